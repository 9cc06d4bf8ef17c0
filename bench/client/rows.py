"""The rows that are measured: everyday calls, and calls that only some clients have.

A row reads what it stored itself under a key of its own for each client, for their dialects differ.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import glasscache
from ids import number_rows
from peers import (
    GET_MANY_NAMES,
    SET_MANY_NAMES,
    host_and_port,
    import_if_installed,
    set_method,
    try_preparing_call,
)
from rounds import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def rows_of(clients: dict[str, Any]) -> Iterator[Row]:
    """Yield each row, its values stored, in the order in which they are measured and printed."""
    values = {"40 B": b"x" * 40, "1 KB": os.urandom(1024), "100 KB": os.urandom(100_000)}
    for size, value in values.items():
        yield from single_rows(clients, size, value)
    yield mixed_row(clients, values["1 KB"])
    yield Row(
        "get missing",
        2000,
        {
            client_name: lambda client=client: client.get("gone")
            for client_name, client in clients.items()
        },
    )
    yield from object_rows(clients)
    for size, key_prefix in (("40 B", "many"), ("1 KB", "kilo")):
        yield from many_rows(
            clients,
            size,
            {f"{key_prefix}{number}": b"y" * len(values[size]) for number in range(100)},
        )
    address = next(iter(clients["glasscache"].stats()["servers"]))
    yield quiet_row(clients, address, values["1 KB"])
    yield from rows_of_our_options(clients["glasscache"], address)
    yield deadline_row(address, values["40 B"])
    yield from number_rows(address)


def single_rows(clients: dict[str, Any], size: str, value: bytes) -> Iterator[Row]:
    """Yield a read and a write of one value."""
    calls = 300 if size == "100 KB" else 2000
    keys = {name: f"one-{size.replace(' ', '')}-{name}" for name in clients}
    set_calls = {name: set_method(name, client) for name, client in clients.items()}
    for name, key in keys.items():
        try_preparing_call(name, lambda name=name, key=key: set_calls[name](key, value))
    get_calls = {
        name: lambda client=client, key=keys[name]: client.get(key)
        for name, client in clients.items()
    }
    yield Row(f"get {size}", calls, get_calls)
    yield Row(
        f"set {size}",
        calls,
        {name: lambda store=store: store("two", value) for name, store in set_calls.items()},
    )


def mixed_row(clients: dict[str, Any], value: bytes) -> Row:
    """Return nine reads and a write of one value in each call, after `single_rows` stored it."""

    def nine_gets_and_a_set(client: Any, store: Callable[[str, Any], Any], key: str) -> None:
        for _ in range(9):
            client.get(key)
        store(key, value)

    calls = {
        name: lambda client=client, store=set_method(name, client), key=f"mix-{name}": (
            nine_gets_and_a_set(client, store, key)
        )
        for name, client in clients.items()
    }
    for name, call in calls.items():
        try_preparing_call(name, call)
    return Row("mixed, 9 get and 1 set of 1 KB", 200, calls)


def object_rows(clients: dict[str, Any]) -> Iterator[Row]:
    """Yield a write and a read of a small object, as each client's own serialiser takes it."""
    example_object = {"user": 17, "name": "Ada", "tags": ["a", "b"], "score": 1.5}
    set_calls = {
        name: lambda store=set_method(name, client), key=f"obj-{name}": store(key, example_object)
        for name, client in clients.items()
    }
    yield Row("set object", 2000, set_calls)
    get_calls = {
        name: lambda client=client, key=f"obj-{name}": client.get(key)
        for name, client in clients.items()
    }
    yield Row("get object", 2000, get_calls)


def many_rows(clients: dict[str, Any], size: str, items: dict[str, bytes]) -> Iterator[Row]:
    """Yield a read and a write of a hundred values in one call."""
    keys = list(items)
    clients["glasscache"].set_many(items)
    read_calls = {
        name: getattr(client, GET_MANY_NAMES.get(name, "get_many"))
        for name, client in clients.items()
    }
    yield Row(
        f"get_many(100) {size}",
        100,
        {name: lambda call=call: call(keys) for name, call in read_calls.items()},
    )
    write_calls = {
        name: getattr(client, SET_MANY_NAMES.get(name, "set_many"))
        for name, client in clients.items()
        if name != "meta-memcache"
    }
    yield Row(
        f"set_many(100) {size}",
        50,
        {name: lambda call=call: call(items) for name, call in write_calls.items()},
    )


def quiet_row(clients: dict[str, Any], address: str, value: bytes) -> Row:
    """Return writes without waiting for replies, by the clients that have them.

    Ours gathers them, the others send each at once: a round ends with a call that waits, which has its
    reply when the server has processed all that was written before it.
    """
    our_client = clients["glasscache"]
    quiet_sets = {"glasscache": lambda: our_client.set("two", value, noreply=True)}
    waiting_gets = {"glasscache": lambda: our_client.get("gone")}
    if "pylibmc" in clients:
        import pylibmc

        quiet_client = pylibmc.Client(
            [address], behaviors={"tcp_nodelay": True, "no_block": True, "_noreply": True}
        )
        quiet_sets["pylibmc"] = lambda: quiet_client.set("two", value)
        waiting_gets["pylibmc"] = lambda: quiet_client.get("gone")
    if "pymemcache" in clients:
        client = clients["pymemcache"]
        quiet_sets["pymemcache"] = lambda: client.set("two", value, noreply=True)
        waiting_gets["pymemcache"] = lambda: client.get("gone")
    return Row("set 1 KB without waiting", 2000, quiet_sets, waiting_gets)


def rows_of_our_options(our_client: Any, address: str) -> Iterator[Row]:
    """Yield our client with and without an option: counting costs, and a deadline for each call."""
    client_without_costs = glasscache.Client(address, timeout=5, costs=False)
    client_with_costs = glasscache.Client(address, timeout=5)
    our_client.set("one", b"x" * 40)
    yield Row(
        "get 40 B: counting costs",
        2000,
        {
            "costs on": lambda: client_with_costs.get("one"),
            "costs off": lambda: client_without_costs.get("one"),
        },
    )
    yield Row(
        "get 40 B: a deadline per call",
        2000,
        {
            "deadline per call": lambda: client_without_costs.get("one", deadline=0.5),
            "no deadline": lambda: client_without_costs.get("one"),
        },
    )


def deadline_row(address: str, value: bytes) -> Row:
    """Return reads without a deadline, with one for each wait on the socket, and with one for the call."""
    our_client = glasscache.Client(address, timeout=5, costs=False)
    clients: dict[str, Any] = {}
    if import_if_installed("pylibmc"):
        import pylibmc

        timeouts = {"send_timeout": 500_000, "receive_timeout": 500_000}
        nodelay = {"tcp_nodelay": True}
        clients["pylibmc, none"] = pylibmc.Client([address], behaviors=nodelay)
        clients["pylibmc, socket"] = pylibmc.Client([address], behaviors={**nodelay, **timeouts})
    if import_if_installed("pymemcache"):
        from pymemcache.client.base import Client

        server = host_and_port(address)
        clients["pymemcache, none"] = Client(server, no_delay=True)
        clients["pymemcache, socket"] = Client(server, no_delay=True, timeout=0.5)
    keys = {client_name: f"due-{client_name.split(',')[0]}" for client_name in clients}
    our_client.set("due", value)
    for client_name, client in clients.items():
        client.set(keys[client_name], value)
    read_calls = {
        client_name: lambda client=client, key=keys[client_name]: client.get(key)
        for client_name, client in clients.items()
    }
    read_calls = {"glasscache, call": lambda: our_client.get("due", deadline=0.5), **read_calls}
    return Row("get 40 B: a deadline for none, a socket, a call", 2000, read_calls)
