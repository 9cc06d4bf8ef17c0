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
    ("servers", "expected_text"),
    [
        ("cache1", "cache1:11211"),
        (("cache1", 7000), "cache1:7000"),
        (["cache1", 7000], "cache1:7000"),
        ([("cache1", 7000), "cache2:7001"], "cache1:7000, cache2:7001"),
        ((("cache1", 7000), ("cache2", 7001)), "cache1:7000, cache2:7001"),
        (["cache1:7000", "cache2"], "cache1:7000, cache2:11211"),
        (lambda: iter(["cache1:7000"]), "cache1:7000"),
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
@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_a_server_is_taken_in_each_form(
    client_class: Any, servers: Any, expected_text: str
) -> None:
    given_servers = servers() if callable(servers) else servers
    assert f"of {expected_text}, placement" in repr(client_class(given_servers))


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
@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_an_invalid_server_is_refused_when_the_client_is_made(
    client_class: Any, servers: Any
) -> None:
    with pytest.raises(BadSetting):
        client_class(servers)


def test_a_refused_address_names_the_accepted_forms() -> None:
    with pytest.raises(BadSetting, match=r'write "\[::1\]"'):
        Client("::1")
    with pytest.raises(BadSetting, match=r'write "127\.0\.0\.1:11211"'):
        Client(("127.0.0.1", "11211"))  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match=r'"host:port", \("host", port\) or a list of them'):
        Client({"127.0.0.1:11211": 2})


def test_a_weight_in_either_form_moves_the_same_keys() -> None:
    keys = [f"key{number}" for number in range(500)]
    rings = [
        Client([f"cache1:1{weight}", "cache2:2"], placement="ketama") for weight in (":3", "*3", "")
    ]
    servers_by_colon_weight, servers_by_star_weight, servers_without_weight = (
        [ring.server_of(key) for key in keys] for ring in rings
    )
    assert servers_by_colon_weight == servers_by_star_weight != servers_without_weight


def test_pairs_of_host_and_port_find_every_value(server: Server) -> None:
    host, port = server.address.split(":")
    host_and_port = (host, int(port))

    async def count_found_async(servers: Any) -> int:
        async with AsyncClient(servers, timeout=5) as client:
            return len(await client.get_many([f"k{number}" for number in range(100)]))

    with Client(host_and_port, timeout=5) as client:
        assert client.set_many({f"k{number}": number for number in range(100)}) == {}
    for servers in (
        host_and_port,
        [host_and_port],
        f"memcached://{server.address}",
        f"{server.address}:2",
    ):
        with Client(servers, timeout=5) as client:
            assert len(client.get_many([f"k{number}" for number in range(100)])) == 100
        assert asyncio.run(count_found_async(servers)) == 100
    with Client("127.0.0.1:1", timeout=5) as client:
        client.set_servers([host_and_port])
        assert client.get("k1") == 1


def test_a_unix_socket_is_found_by_its_path(tmp_path: Path) -> None:
    socket_path = tmp_path / "c.sock"
    process = subprocess.Popen(
        [find_command(), "serve", "-u", "root", "-s", str(socket_path)], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while not socket_path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        for servers in (f"unix:{socket_path}", str(socket_path), [f"unix:{socket_path}"]):
            with Client(servers, timeout=5) as client:
                assert client.set("k", servers) is True
                assert client.get("k") == servers
    finally:
        process.terminate()
        process.wait()


def test_a_ring_has_only_the_servers_that_were_configured() -> None:
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        port = reserved_socket.getsockname()[1]
    assert set(Client(("127.0.0.1", port)).stats()["servers"]) == {f"127.0.0.1:{port}"}


@pytest.fixture
def silent_port(server: Server) -> Iterator[int]:
    """The port of a server on 127.0.0.1 whose twin on 127.0.0.2 accepts no connection and sends nothing."""
    with contextlib.ExitStack() as stack:
        port = int(server.address.rpartition(":")[2])
        full_listener = stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(2):  # one more than the backlog; later connections get no reply
            waiting_socket = stack.enter_context(socket.socket())
            waiting_socket.setblocking(False)
            waiting_socket.connect_ex(full_listener.getsockname())
        yield port


def _resolve_names_to_both_addresses(loop: asyncio.AbstractEventLoop) -> None:
    """Resolve every name to the silent address and the one that replies, in this order."""

    async def resolve_to_both(_: str, port: int, **__: Any) -> list[Any]:
        family_and_type = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*family_and_type, (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    loop.getaddrinfo = resolve_to_both  # type: ignore[assignment]


def test_an_awaited_call_tries_the_next_address_after_a_silent_one_within_its_deadline(
    silent_port: int,
) -> None:
    async def main() -> float:
        _resolve_names_to_both_addresses(asyncio.get_running_loop())
        async with AsyncClient(f"two-addresses:{silent_port}", timeout=10) as client:
            started_at = time.monotonic()
            assert await client.get("no-such-key", deadline=10) is None
            return time.monotonic() - started_at

    assert asyncio.run(main()) >= 4.9, "the silent address was tried first and had its share"


async def test_the_address_that_replied_last_is_tried_first(silent_port: int) -> None:
    async def open_socket(host: str, port: int) -> asyncio.WriteTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
        return transport

    _resolve_names_to_both_addresses(asyncio.get_running_loop())
    first_address = None
    for limit_s in (1, 60):  # a share of the second would be half a minute
        transport, first_address = await asyncio.wait_for(
            connect(open_socket, "two-addresses", silent_port, limit_s, first_address),
            20,
        )
        transport.close()
    assert first_address == "127.0.0.1"
