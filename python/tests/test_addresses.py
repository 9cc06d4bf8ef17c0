"""Servers in every form that a configuration has; other texts are refused when a client is made."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, BadSetting, Client
from glasscache._connecting import connect
from glasscache.server import find_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from glasscache import Server


@pytest.mark.parametrize(
    ("servers", "displayed"),
    [
        ("cache1", "cache1:11211"),
        (("cache1", 7000), "cache1:7000"),
        (["cache1", 7000], "cache1:7000"),
        ([("cache1", 7000), "cache2:7001"], "cache1:7000, cache2:7001"),
        ((("cache1", 7000), ("cache2", 7001)), "cache1:7000, cache2:7001"),
        (["cache1:7000", "cache2"], "cache1:7000, cache2:11211"),
        (iter(["cache1:7000"]), "cache1:7000"),
        ("cache1:7000, cache2:7001", "cache1:7000, cache2:7001"),
        ("cache1:7000:2", "cache1:7000"),
        ("cache1:7000*2", "cache1:7000"),
        ("memcached://cache1:7000", "cache1:7000"),
        ("unix:/run/c.sock", "/run/c.sock"),
        ("/run/c.sock", "/run/c.sock"),
        ("[::1]:7000", "[::1]:7000"),
        (("::1", 7000), "[::1]:7000"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_server_is_taken_in_each_form(kind: Any, servers: Any, displayed: str) -> None:
    if not isinstance(servers, str | tuple | list):
        servers = ["cache1:7000"]
    assert f"of {displayed}, placement" in repr(kind(servers))


@pytest.mark.parametrize(
    "servers",
    [
        "",
        [],
        None,
        11211,
        b"127.0.0.1:11211",
        [b"127.0.0.1:11211"],
        ("127.0.0.1", "11211"),
        ("127.0.0.1:11211", 3),
        ("127.0.0.1", True),
        [("127.0.0.1", 11211, 2)],
        {"127.0.0.1:11211"},
        {"127.0.0.1:11211": 2},
        "::1",
        "::1:11211",
        "[127.0.0.1]:1",
        "redis://127.0.0.1",
        "memcached://user:secret@cache1:11211",
        "http://127.0.0.1:80/",
        "a:0",
        "a:99999",
        "a:1:0",
        "a:1:2*3",
        "udp:127.0.0.1:11211",
        "a;b",
        "a b",
        "unix:",
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_names_no_server_is_refused_when_the_client_is_made(kind: Any, servers: Any) -> None:
    with pytest.raises(BadSetting):
        kind(servers)


def test_a_refused_address_names_the_accepted_forms() -> None:
    with pytest.raises(BadSetting, match=r'write "\[::1\]"'):
        Client("::1")
    with pytest.raises(BadSetting, match=r'write "127\.0\.0\.1:11211"'):
        Client(("127.0.0.1", "11211"))  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match=r'"host:port", \("host", port\) or a list of them'):
        Client({"127.0.0.1:11211": 2})


def test_a_weight_in_either_form_moves_the_same_keys() -> None:
    keys = [f"key{i}" for i in range(500)]
    rings = [
        Client([f"cache1:1{weight}", "cache2:2"], placement="ketama") for weight in (":3", "*3", "")
    ]
    dalli, star, plain = ([ring.server_of(key) for key in keys] for ring in rings)
    assert dalli == star != plain


def test_pairs_of_host_and_port_find_every_value(server: Server) -> None:
    host, port = server.address.split(":")
    pair = (host, int(port))

    async def awaited(servers: Any) -> int:
        async with AsyncClient(servers, timeout=5) as client:
            return len(await client.get_many([f"k{i}" for i in range(100)]))

    with Client(pair, timeout=5) as client:
        assert client.set_many({f"k{i}": i for i in range(100)}) == {}
    for servers in (pair, [pair], f"memcached://{server.address}", f"{server.address}:2"):
        with Client(servers, timeout=5) as client:
            assert len(client.get_many([f"k{i}" for i in range(100)])) == 100
        assert asyncio.run(awaited(servers)) == 100
    with Client("127.0.0.1:1", timeout=5) as client:
        client.set_servers([pair])
        assert client.get("k1") == 1


def test_a_unix_socket_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    process = subprocess.Popen(
        [find_command(), "serve", "-u", "root", "-s", str(path)], stderr=subprocess.DEVNULL
    )
    try:
        ends = time.monotonic() + 30
        while not path.exists() and time.monotonic() < ends:
            time.sleep(0.01)
        for servers in (f"unix:{path}", str(path), [f"unix:{path}"]):
            with Client(servers, timeout=5) as client:
                assert client.set("k", servers) is True
                assert client.get("k") == servers
    finally:
        process.terminate()
        process.wait()


def test_a_ring_has_only_the_servers_that_were_configured() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert set(Client(("127.0.0.1", port)).stats()["servers"]) == {f"127.0.0.1:{port}"}


@pytest.fixture
def silent_port(server: Server) -> Iterator[int]:
    """The port of a server on 127.0.0.1 whose twin on 127.0.0.2 takes no connection and says nothing."""
    with contextlib.ExitStack() as stack:
        port = int(server.address.rpartition(":")[2])
        full = stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(2):  # one more than the backlog; later connections get no reply
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield port


def _resolve_to_both(loop: asyncio.AbstractEventLoop) -> None:
    """Resolve every name to the silent address and the one that replies, in this order."""

    async def both(_: str, port: int, **__: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    loop.getaddrinfo = both  # type: ignore[assignment]


def test_an_awaited_call_tries_the_next_address_after_a_silent_one_within_its_deadline(
    silent_port: int,
) -> None:
    async def main() -> float:
        _resolve_to_both(asyncio.get_running_loop())
        async with AsyncClient(f"two-addresses:{silent_port}", timeout=10) as client:
            begin = time.monotonic()
            assert await client.get("no-such-key", deadline=10) is None
            return time.monotonic() - begin

    assert asyncio.run(main()) >= 4.9, "the silent address was tried first and had its share"


def test_the_address_that_replied_last_is_tried_first(silent_port: int) -> None:
    async def main() -> None:
        _resolve_to_both(asyncio.get_running_loop())
        first = None
        for limit in (1, 60):  # a share of the second would be half a minute
            transport, first = await asyncio.wait_for(
                connect(asyncio.Protocol, "two-addresses", silent_port, limit, first, {}), 20
            )
            transport.close()
        assert first == "127.0.0.1"

    asyncio.run(main())
