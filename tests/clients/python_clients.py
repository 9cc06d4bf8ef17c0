"""Python clients of other projects, unchanged, each through every operation it has.

Run as `python_clients.py NAME PORT`, with the authority of a server that encrypts in TLS_AUTHORITY and the
login of one that requires it in SASL_USER and SASL_PASSWORD; prints one line for each operation that
failed and ends with 1 if there is one.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FAILED_OPERATIONS: list[str] = []
CHECKED_OPERATIONS: list[str] = []


def tls_context() -> ssl.SSLContext | None:
    """The context that verifies the server, if it encrypts."""
    authority = os.environ.get("TLS_AUTHORITY")
    return ssl.create_default_context(cafile=authority) if authority else None


def login() -> tuple[str, str] | tuple[None, None]:
    """User and password, if the server requires them."""
    user = os.environ.get("SASL_USER")
    return (user, os.environ["SASL_PASSWORD"]) if user else (None, None)


def check(operation: str, condition: object) -> None:
    """Records whether an operation behaved as its client documents."""
    CHECKED_OPERATIONS.append(operation)
    if not condition:
        FAILED_OPERATIONS.append(operation)
        print(f"  FAIL {operation}")


def pymemcache(port: int) -> None:
    """pymemcache 4: base client, pooled client, hash client with several values."""
    from pymemcache.client.base import Client, PooledClient
    from pymemcache.client.hash import HashClient

    for client in (
        Client(("127.0.0.1", port), default_noreply=False, tls_context=tls_context()),
        PooledClient(("127.0.0.1", port), default_noreply=False, tls_context=tls_context()),
        HashClient([("127.0.0.1", port)], default_noreply=False, tls_context=tls_context()),
    ):
        name = type(client).__name__
        check(f"{name} flush_all", client.flush_all() in (True, None))
        check(f"{name} set", client.set("a", b"1"))
        check(f"{name} get", client.get("a") == b"1")
        check(f"{name} get default", client.get("nothing", default=b"d") == b"d")
        check(f"{name} set_many", client.set_many({"x": b"1", "y": b"2"}) == [])
        check(f"{name} get_many", client.get_many(["x", "y", "z"]) == {"x": b"1", "y": b"2"})
        check(f"{name} add", client.add("b", b"1") and not client.add("b", b"2"))
        check(f"{name} replace", client.replace("b", b"3") and not client.replace("none", b"1"))
        check(f"{name} append", client.append("b", b"4") and client.get("b") == b"34")
        check(f"{name} prepend", client.prepend("b", b"2") and client.get("b") == b"234")
        value, unique = client.gets("b")
        check(f"{name} gets", value == b"234" and unique)
        check(f"{name} gets_many", client.gets_many(["b", "none"])["b"][0] == b"234")
        check(f"{name} cas", client.cas("b", b"5", unique) is True)
        check(f"{name} cas again", client.cas("b", b"6", unique) is False)
        check(f"{name} cas of nothing", client.cas("none", b"6", unique) is None)
        check(f"{name} incr", client.set("n", b"5") and client.incr("n", 3) == 8)
        check(f"{name} decr", client.decr("n", 3) == 5 and client.decr("none", 1) is None)
        check(f"{name} touch", client.touch("n", 100) and not client.touch("none", 100))
        check(f"{name} delete", client.delete("n") and not client.delete("n"))
        check(f"{name} delete_many", client.delete_many(["x", "y"]) in (True, None))
        check(f"{name} noreply", client.set("q", b"1", noreply=True) and client.get("q") == b"1")
        check(
            f"{name} large value",
            client.set("large", b"x" * 900_000) and len(client.get("large")) == 900_000,
        )
        if hasattr(client, "gat"):
            check(f"{name} gat", client.gat("b", 100) == b"5")
        if hasattr(client, "gats"):
            check(f"{name} gats", client.gats("b", 100)[0] == b"5")
        if name != "HashClient":
            check(f"{name} version", client.version())
            check(f"{name} stats", client.stats()[b"pid"])
            check(
                f"{name} cache_memlimit",
                client.cache_memlimit(64) if hasattr(client, "cache_memlimit") else True,
            )
        client.quit() if hasattr(client, "quit") else client.close()


def check_stores_and_reads(client: Any) -> None:
    """The methods that pylibmc and python-memcached share, first part: storing and reading."""
    check("set", client.set("a", "text") and client.get("a") == "text")
    check(
        "types",
        client.set("i", 5)
        and client.get("i") == 5
        and client.set("l", [1, 2])
        and client.get("l") == [1, 2],
    )
    check(
        "compression",
        client.set("z", "x" * 100_000, min_compress_len=100) and client.get("z") == "x" * 100_000,
    )
    check("get default", client.get("nothing", "d") == "d")
    check("set_multi", client.set_multi({"x": 1, "y": 2}, key_prefix="p") == [])
    check("get_multi", client.get_multi(["x", "y", "z"], key_prefix="p") == {"x": 1, "y": 2})


def check_deletes_and_concatenates(client: Any) -> None:
    """The methods that they share, second part: deleting, conditional storing, concatenating."""
    check("delete_multi", client.delete_multi(["x", "y"], key_prefix="p"))
    check("add", client.add("b", "1") and not client.add("b", "2"))
    check("replace", client.replace("b", "3") and not does_replace_missing_key(client))
    check("append", client.append("b", "4") and client.get("b") == "34")
    check("prepend", client.prepend("b", "2") and client.get("b") == "234")


def does_replace_missing_key(client: Any) -> bool:
    """Whether a replace without an item succeeds; pylibmc raises in binary, as it does with memcached."""
    try:
        return bool(client.replace("none", "1"))
    except Exception as error:
        if type(error).__name__ != "NotFound":
            raise
        return False


def pylibmc(port: int, *, binary: bool = False) -> None:
    """pylibmc over libmemcached."""
    import pylibmc as lib

    servers = [f"127.0.0.1:{port}"]
    user, password = login()
    client = lib.Client(servers, binary=binary, username=user, password=password)
    client.behaviors = {"cas": True, "tcp_nodelay": True}
    check("flush_all", client.flush_all())
    check_stores_and_reads(client)
    check("add_multi", client.add_multi({"x": 1, "fresh": 2}, key_prefix="p") == ["x"])
    check(
        "incr_multi",
        client.incr_multi(["x", "y"], key_prefix="p", delta=2) is None and client.get("px") == 3,
    )
    check_deletes_and_concatenates(client)
    value, unique = client.gets("b")
    check("gets", value == "234")
    check("cas", client.cas("b", "5", unique) and not client.cas("b", "6", unique))
    check("incr", client.set("n", 5) and client.incr("n", 3) == 8 and client.decr("n") == 7)
    check("touch", client.touch("n", 100) and not client.touch("none", 100))
    check("delete", client.delete("n") and not client.delete("n"))
    check("expiry", client.set("t", "v", time=100) and client.get("t") == "v")
    check("get_stats", client.get_stats()[0][1])
    client.behaviors = {"no_block": True, "buffer_requests": False}
    check("no_block", client.set("nb", "v") and client.get("nb") == "v")
    client.disconnect_all()
    if user:
        wrong_login = {"username": user, "password": "wrong"}
        rejected_client = lib.Client(servers, binary=binary, **wrong_login)
        check("wrong password", does_raise(lambda: rejected_client.set("a", "v")))


def python_binary_memcached(port: int) -> None:
    """python-binary-memcached, all operations of its client."""
    import bmemcached

    servers = (f"127.0.0.1:{port}",)
    user, password = login()
    client = bmemcached.Client(servers, user, password, tls_context=tls_context())
    check("flush_all", client.flush_all())
    check("set and get", client.set("a", "text") and client.get("a") == "text")
    check("miss", client.get("nothing") is None and client.get("nothing", default="d") == "d")
    check("types", client.set("i", 5) and client.get("i") == 5)
    check("pickled", client.set("l", [1, {"x": 2}]) and client.get("l") == [1, {"x": 2}])
    check("compression", client.set("z", "x" * 100_000) and client.get("z") == "x" * 100_000)
    check(
        "large value",
        client.set("large", b"x" * 900_000, compress_level=0)
        and len(client.get("large")) == 900_000,
    )
    check("set_multi", client.set_multi({"x": 1, "y": 2}) in ([], True))
    check("get_multi", client.get_multi(["x", "y", "none"]) == {"x": 1, "y": 2})
    values = {f"m{number}": number for number in range(300)}
    check("set_multi of 300", client.set_multi(values) in ([], True))
    check("get_multi of 300", client.get_multi(list(values)) == values)
    check("add", client.add("b", "1") and not client.add("b", "2"))
    check("replace", client.replace("b", "3") and not client.replace("none", "1"))
    value, unique = client.gets("b")
    check("gets", value == "3" and unique > 0)
    check("cas", client.cas("b", "4", unique) and not client.cas("b", "5", unique))
    check("incr", client.incr("n", 3, default=5) == 5 and client.incr("n", 3) == 8)
    check("decr", client.decr("n", 1) == 7 and client.decr("n", 100) == 0)
    check("delete", client.delete("b") and client.get("b") is None)
    check("delete of nothing", client.delete("b"))
    check("delete with cas", client.set("c", "v") and client.delete("c", cas=client.gets("c")[1]))
    check("delete_multi", client.delete_multi(["x", "y"]) and client.get_multi(["x", "y"]) == {})
    check("expiry", client.set("t", "v", time=100) and client.get("t") == "v")
    check("stats", next(iter(client.stats().values()))["pid"])
    check("stats settings", next(iter(client.stats("settings").values()))["maxconns"])
    client.disconnect_all()
    if user:
        rejected_client = bmemcached.Client(servers, user, "wrong", tls_context=tls_context())
        check("wrong password", does_raise(lambda: rejected_client.set("a", "v")))


def python_memcached(port: int) -> None:
    """python-memcached."""
    import memcache

    client = memcache.Client([f"127.0.0.1:{port}"], cache_cas=True)
    client.flush_all()
    check_stores_and_reads(client)
    check_deletes_and_concatenates(client)
    check(
        "gets and cas",
        client.gets("b") == "234" and client.cas("b", "5") and client.get("b") == "5",
    )
    check("incr", client.set("n", 5) and client.incr("n", 3) == 8 and client.decr("n") == 7)
    check("touch", client.touch("n", 100))
    check("delete", client.delete("n"))
    check("noreply", client.set("q", "v", noreply=True) and client.get("q") == "v")
    check("get_stats", client.get_stats()[0][1])
    check("get_stats settings", client.get_stats("settings")[0][1])
    check("get_slab_stats", client.get_slab_stats() is not None)
    # `get_slabs` of 1.62 mixes bytes and text on Python 3 and fails with every server.
    client.disconnect_all()


async def emcache_client(port: int) -> None:
    """emcache, asyncio."""
    import emcache

    client = await emcache.create_client(
        [emcache.MemcachedHostAddress("127.0.0.1", port)],
        timeout=5.0,
        ssl="TLS_AUTHORITY" in os.environ,
        ssl_extra_ca=os.environ.get("TLS_AUTHORITY"),
    )
    node = emcache.MemcachedHostAddress("127.0.0.1", port)
    await client.flush_all(node)
    await client.set(b"a", b"1", flags=3)
    item = await client.get(b"a", return_flags=True)
    check("set and get", item.value == b"1" and item.flags == 3)
    check("miss", await client.get(b"nothing") is None)
    item = await client.gets(b"a")
    check("gets", item.value == b"1" and item.cas)
    await client.cas(b"a", b"2", item.cas)
    check("cas", (await client.get(b"a")).value == b"2")
    await client.set(b"b", b"1")
    found_values = await client.get_many([b"a", b"b", b"none"])
    check(
        "get_many",
        {key: item.value for key, item in found_values.items()} == {b"a": b"2", b"b": b"1"},
    )
    check("gets_many", (await client.gets_many([b"a"]))[b"a"].cas)
    await client.add(b"c", b"1")
    check("add", await does_await_raise(client.add(b"c", b"1")))
    await client.replace(b"c", b"2")
    await client.append(b"c", b"3")
    await client.prepend(b"c", b"1")
    check("replace, append, prepend", (await client.get(b"c")).value == b"123")
    await client.set(b"n", b"5")
    check(
        "increment", await client.increment(b"n", 3) == 8 and await client.decrement(b"n", 1) == 7
    )
    await client.touch(b"n", 100)
    check("touch", await does_await_raise(client.touch(b"none", 100)))
    if hasattr(client, "gat"):
        check("gat", (await client.gat(100, b"n")).value == b"7")
        check("gats", (await client.gats(100, b"n")).cas)
        check(
            "gat_many",
            (
                await client.get_and_touch_many(100, [b"n", b"a"])
                if hasattr(client, "get_and_touch_many")
                else {b"n": 1}
            ),
        )
    await client.delete(b"n")
    check("delete", await does_await_raise(client.delete(b"n")))
    await client.set(b"q", b"v", noreply=True)
    check("noreply", (await client.get(b"q")).value == b"v")
    for name in ("version", "stats", "verbosity"):
        if method := getattr(client, name, None):
            check(name, await method(node, *((0,) if name == "verbosity" else ())) is not False)
    await client.close()


async def aiomcache_client(port: int) -> None:
    """aiomcache, asyncio."""
    import aiomcache

    context = tls_context()
    client = aiomcache.Client("127.0.0.1", port, conn_args={"ssl": context} if context else None)
    check("flush_all", await client.flush_all() is None)
    check("set", await client.set(b"a", b"1"))
    check("get", await client.get(b"a") == b"1" and await client.get(b"none") is None)
    value, unique = await client.gets(b"a")
    check("gets", value == b"1" and unique)
    check("cas", await client.cas(b"a", b"2", unique) and not await client.cas(b"a", b"3", unique))
    check("multi_get", await client.multi_get(b"a", b"none") == (b"2", None))
    check("add", await client.add(b"b", b"1") and not await client.add(b"b", b"1"))
    check("replace", await client.replace(b"b", b"2") and not await client.replace(b"none", b"1"))
    check("append, prepend", await client.append(b"b", b"3") and await client.prepend(b"b", b"1"))
    check("value", await client.get(b"b") == b"123")
    await client.set(b"n", b"5")
    check("incr, decr", await client.incr(b"n", 3) == 8 and await client.decr(b"n", 1) == 7)
    check("touch", await client.touch(b"n", 100) and not await client.touch(b"none", 1))
    check("delete", await client.delete(b"n") and not await client.delete(b"n"))
    check("version", await client.version())
    check("stats", (await client.stats())[b"pid"])
    await client.close()


def meta_memcache(port: int) -> None:
    """meta-memcache, meta protocol only."""
    from meta_memcache import (
        CacheClient,
        Key,
        LeasePolicy,
        RecachePolicy,
        ServerAddress,
        SetMode,
        StalePolicy,
        connection_pool_factory_builder,
    )

    pool = connection_pool_factory_builder()
    client = CacheClient.cache_client_from_servers([ServerAddress("127.0.0.1", port)], pool)
    key = Key("mm:a")
    check("set", client.set(key, "text", ttl=100))
    check("get", client.get(key) == "text")
    check("miss", client.get(Key("mm:none")) is None)
    check("types", client.set(Key("mm:l"), [1, 2], ttl=100) and client.get(Key("mm:l")) == [1, 2])
    check(
        "multi_get", client.multi_get([key, Key("mm:none")]) == {key: "text", Key("mm:none"): None}
    )
    value, unique = client.get_cas(key)
    check("get_cas", value == "text" and unique)
    check("cas", client.set(key, "next", ttl=100, cas_token=unique))
    check("cas again", not client.set(key, "other", ttl=100, cas_token=unique))
    check("add", client.set(Key("mm:add"), 1, ttl=100, set_mode=SetMode.ADD))
    check("add again", not client.set(Key("mm:add"), 1, ttl=100, set_mode=SetMode.ADD))
    check("touch", client.touch(key, ttl=200))
    check("get_or_lease", client.get_or_lease(Key("mm:lease"), LeasePolicy(ttl=30)) is None)
    check(
        "lease won",
        client.set(Key("mm:lease"), "filled", ttl=100) and client.get(Key("mm:lease")) == "filled",
    )
    check("recache", client.get(key, recache_policy=RecachePolicy(ttl=300)) in ("next", None))
    check(
        "invalidate",
        client.invalidate(key, stale_policy=StalePolicy(mark_stale_on_deletion_ttl=30)),
    )
    check("delta", client.delta_initialize(Key("mm:n"), 1, 5, 100))
    check("delta_and_get", client.delta_and_get(Key("mm:n"), 3) == 8)
    check("delta_initialize_and_get", client.delta_initialize_and_get(Key("mm:m"), 1, 5, 100) == 5)
    check("delta again", client.delta(Key("mm:n"), -2))
    check("set_cas", client.set_cas(Key("mm:c"), "v", ttl=100) > 0)
    check("multi_get_cas", client.multi_get_cas([Key("mm:c")])[Key("mm:c")][1] > 0)
    check("refill", client.refill(Key("mm:r"), "v", ttl=100) and client.get(Key("mm:r")) == "v")
    check(
        "append",
        client.set(Key("mm:r"), "w", ttl=100, set_mode=SetMode.APPEND)
        and client.get(Key("mm:r")) == "vw",
    )
    check("prepend and replace", client.set(Key("mm:r"), "u", ttl=100, set_mode=SetMode.PREPEND))
    check("replace", client.set(Key("mm:r"), "x", ttl=100, set_mode=SetMode.REPLACE))
    check(
        "no_reply",
        client.set(Key("mm:q"), "v", ttl=100, no_reply=True) and client.get(Key("mm:q")) == "v",
    )
    check("delete", client.delete(Key("mm:n")) and not client.delete(Key("mm:n")))
    check("get after invalidate", client.get(key) in ("next", None))
    check(
        "long key",
        client.set(Key("k" * 300), "long", ttl=100) and client.get(Key("k" * 300)) == "long",
    )
    check("unicode key", client.set(Key("ü"), "u", ttl=100) and client.get(Key("ü")) == "u")
    check("touch of nothing", client.touch(Key("mm:none"), ttl=1) is False)


def does_raise(call: Callable[[], object]) -> bool:
    """Whether a call ends with an exception."""
    try:
        call()
    except Exception:  # noqa: BLE001 - whichever class this client uses
        return True
    return False


async def does_await_raise(awaitable: Awaitable[object]) -> bool:
    """Whether an awaited call raises, as those of emcache do if their condition is not met."""
    try:
        await awaitable
    except Exception:  # noqa: BLE001 - whichever class this client uses
        return True
    return False


CLIENTS: dict[str, Callable[[int], object]] = {
    "pymemcache": pymemcache,
    "pylibmc": pylibmc,
    "pylibmc-binary": lambda port: pylibmc(port, binary=True),
    "python-binary-memcached": python_binary_memcached,
    "python-memcached": python_memcached,
    "emcache": lambda port: asyncio.run(emcache_client(port)),
    "aiomcache": lambda port: asyncio.run(aiomcache_client(port)),
    "meta-memcache": meta_memcache,
}


def main() -> int:
    """Runs one client."""
    name, port = sys.argv[1], int(sys.argv[2])
    try:
        CLIENTS[name.removesuffix("-tls").removesuffix("-sasl")](port)
    except Exception:  # noqa: BLE001 - reported as a failure
        traceback.print_exc()
        FAILED_OPERATIONS.append("exception")
    print(
        f"{len(CHECKED_OPERATIONS) - len(FAILED_OPERATIONS)} of {len(CHECKED_OPERATIONS)} operations"
    )
    return 1 if FAILED_OPERATIONS else 0


if __name__ == "__main__":
    sys.exit(main())
