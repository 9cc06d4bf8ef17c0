"""The rows that are measured: everyday calls, and calls that only some clients have.

A row reads what it stored itself under a key of its own for each client, for their dialects differ.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import glasscache
from ids import id_rows
from peers import (
    GET_MANY_NAMES,
    SET_MANY_NAMES,
    call_and_print_failure,
    choose_set_method,
    host_and_port,
    import_if_installed,
)
from rounds import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def make_rows(clients: dict[str, Any]) -> Iterator[Row]:
    """Yield each row, its values stored, in the order in which they are measured and printed."""
    values = {"40 B": b"x" * 40, "1 KB": os.urandom(1024), "100 KB": os.urandom(100_000)}
    for size_text, value in values.items():
        yield from single_rows(clients, size_text, value)
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
    for size_text, key_prefix in (("40 B", "many"), ("1 KB", "kilo")):
        yield from many_rows(
            clients,
            size_text,
            {f"{key_prefix}{number}": b"y" * len(values[size_text]) for number in range(100)},
        )
    address = next(iter(clients["glasscache"].stats()["servers"]))
    yield quiet_row(clients, address, values["1 KB"])
    yield from rows_of_our_options(clients["glasscache"], address)
    yield deadline_row(address, values["40 B"])
    yield from id_rows(address)


def single_rows(clients: dict[str, Any], size_text: str, value: bytes) -> Iterator[Row]:
    """Yield a read and a write of one value."""
    calls_per_round = 300 if size_text == "100 KB" else 2000
    key_by_client = {
        client_name: f"one-{size_text.replace(' ', '')}-{client_name}" for client_name in clients
    }
    set_calls = {
        client_name: choose_set_method(client_name, client)
        for client_name, client in clients.items()
    }
    for client_name, key in key_by_client.items():
        call_and_print_failure(
            client_name, lambda client_name=client_name, key=key: set_calls[client_name](key, value)
        )
    get_calls = {
        client_name: lambda client=client, key=key_by_client[client_name]: client.get(key)
        for client_name, client in clients.items()
    }
    yield Row(f"get {size_text}", calls_per_round, get_calls)
    yield Row(
        f"set {size_text}",
        calls_per_round,
        {
            client_name: lambda set_value=set_value: set_value("two", value)
            for client_name, set_value in set_calls.items()
        },
    )


def mixed_row(clients: dict[str, Any], value: bytes) -> Row:
    """Return nine reads and a write of one value in each call, after `single_rows` stored it."""

    def nine_gets_and_a_set(client: Any, set_value: Callable[[str, Any], Any], key: str) -> None:
        for _ in range(9):
            client.get(key)
        set_value(key, value)

    set_calls = {
        client_name: choose_set_method(client_name, client)
        for client_name, client in clients.items()
    }
    calls_by_client = {
        client_name: lambda client=client, set_value=set_calls[client_name], key=f"mix-{client_name}": (
            nine_gets_and_a_set(client, set_value, key)
        )
        for client_name, client in clients.items()
    }
    for client_name, call in calls_by_client.items():
        call_and_print_failure(client_name, call)
    return Row("mixed, 9 get and 1 set of 1 KB", 200, calls_by_client)


def object_rows(clients: dict[str, Any]) -> Iterator[Row]:
    """Yield a write and a read of a small object, as each client's own serialiser takes it."""
    example_object = {"user": 17, "name": "Ada", "tags": ["a", "b"], "score": 1.5}
    set_calls = {
        client_name: lambda set_value=choose_set_method(client_name, client), key=f"obj-{client_name}": (
            set_value(key, example_object)
        )
        for client_name, client in clients.items()
    }
    yield Row("set object", 2000, set_calls)
    get_calls = {
        client_name: lambda client=client, key=f"obj-{client_name}": client.get(key)
        for client_name, client in clients.items()
    }
    yield Row("get object", 2000, get_calls)


def many_rows(clients: dict[str, Any], size_text: str, items: dict[str, bytes]) -> Iterator[Row]:
    """Yield a read and a write of a hundred values in one call."""
    keys = list(items)
    clients["glasscache"].set_many(items)
    read_calls = {
        client_name: getattr(client, GET_MANY_NAMES.get(client_name, "get_many"))
        for client_name, client in clients.items()
    }
    yield Row(
        f"get_many(100) {size_text}",
        100,
        {client_name: lambda call=call: call(keys) for client_name, call in read_calls.items()},
    )
    write_calls = {
        client_name: getattr(client, SET_MANY_NAMES.get(client_name, "set_many"))
        for client_name, client in clients.items()
        if client_name != "meta-memcache"
    }
    yield Row(
        f"set_many(100) {size_text}",
        50,
        {client_name: lambda call=call: call(items) for client_name, call in write_calls.items()},
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
    key_by_client = {client_name: f"due-{client_name.split(',')[0]}" for client_name in clients}
    our_client.set("due", value)
    for client_name, client in clients.items():
        client.set(key_by_client[client_name], value)
    get_calls = {
        client_name: lambda client=client, key=key_by_client[client_name]: client.get(key)
        for client_name, client in clients.items()
    }
    get_calls = {"glasscache, call": lambda: our_client.get("due", deadline=0.5), **get_calls}
    return Row("get 40 B: a deadline for none, a socket, a call", 2000, get_calls)
