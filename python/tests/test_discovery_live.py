"""Servers that are added and removed under load, reported by a cluster's endpoint and by a name server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

import pytest
from glasscache import AsyncClient, Client, GlasscacheError, Server, discovery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

INTERVAL_S = 0.2
NOTICE_TIMEOUT_S = 1.5
"""The interval with its jitter, and room for a loaded machine."""


class Cluster:
    """Three servers, and an endpoint whose file names some of them."""

    def __init__(self, folder: Path) -> None:
        self.servers = [Server() for _ in range(3)]
        self._file = folder / "cluster"
        self._version = 0
        self.announce(0, 1)
        self.endpoint = Server(arguments=("--cluster-file", str(self._file)))

    def announce(self, *which: int) -> list[str]:
        """Write the file anew; its servers."""
        self._version += 1
        addresses = [self.servers[index].address for index in which]
        nodes = " ".join(f"node|{address.replace(':', '|')}" for address in addresses)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{self._version}\n{nodes}\n")
        fresh.replace(self._file)
        return sorted(addresses)

    def stop(self) -> None:
        for server in [*self.servers, self.endpoint]:
            server.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.stop()


class Findings:
    """What a load has met: calls, values that were not the last ones written, and whose errors."""

    def __init__(self) -> None:
        self.calls = 0
        self.wrong: list[str] = []
        self.failed_servers: set[str] = set()

    def check(self, key: str, found: object, last: int) -> None:
        self.calls += 1
        if found is not None and found != f"{key}={last}":
            self.wrong.append(f"{key}: {found!r}, written {last}")


def _read_and_write(client: Client, name: str, stop: threading.Event, findings: Findings) -> None:
    """Write and read keys of its own until `stop` is set."""
    written: dict[str, int] = {}
    round_number = 0
    while not stop.is_set():
        round_number += 1
        key = f"{name}-{round_number % 50}"
        try:
            findings.check(key, client.get(key), written.get(key, -1))
            written.pop(key, None)
            if client.set(key, f"{key}={round_number}"):
                written[key] = round_number
            findings.check(key, client.get(key), round_number)
        except GlasscacheError as error:
            findings.failed_servers.add(getattr(error, "server", repr(error)))
            written.pop(key, None)


def _servers_in_use(client: Client) -> list[str]:
    return sorted({client.server_of(f"key{number}") for number in range(200)})


def _wait_until(is_true: Callable[[], bool]) -> float:
    begin = time.monotonic()
    while not is_true():
        assert time.monotonic() - begin < NOTICE_TIMEOUT_S, "not noticed"
        time.sleep(0.005)
    return time.monotonic() - begin


def test_a_node_added_and_one_lost_are_noticed_under_load(cluster: Cluster) -> None:
    source = discovery.elasticache(cluster.endpoint.address)
    first, lost = cluster.servers[0].address, cluster.servers[1].address
    stop, findings = threading.Event(), Findings()
    with Client(first, timeout=5) as client:
        with discovery.Watch(client, source, interval=INTERVAL_S):
            assert _servers_in_use(client) == sorted([first, lost])
            threads = [
                threading.Thread(
                    target=_read_and_write, args=(client, f"t{number}", stop, findings)
                )
                for number in range(3)
            ]
            for thread in threads:
                thread.start()
            named = cluster.announce(0, 1, 2)
            _wait_until(lambda: _servers_in_use(client) == named)
            calls = findings.calls
            _wait_until(lambda: findings.calls > calls + 200)
            assert findings.failed_servers == set()
            cluster.servers[1].stop()
            _wait_until(lambda: findings.failed_servers == {lost})
            named = cluster.announce(0, 2)
            _wait_until(lambda: _servers_in_use(client) == named)
            findings.failed_servers.clear()
            calls = findings.calls
            _wait_until(lambda: findings.calls > calls + 200)
            stop.set()
            for thread in threads:
                thread.join()
        # A call that was on its way when the list changed may still have met the lost one.
        assert findings.failed_servers <= {lost}
        assert findings.wrong == []


def test_asyncio_clients_are_kept_up_as_well(cluster: Cluster) -> None:
    async def run() -> None:
        source = discovery.elasticache(cluster.endpoint.address)
        async with AsyncClient(cluster.servers[0].address, timeout=5) as client:
            keeping = asyncio.create_task(discovery.keep_up(client, source, interval=INTERVAL_S))
            named = cluster.announce(1, 2)
            ends = time.monotonic() + NOTICE_TIMEOUT_S
            round_number = 0
            while sorted(client._names.values()) != named:
                assert time.monotonic() < ends, "not noticed"
                round_number += 1
                assert await client.set("k", round_number)
                assert await client.get("k") in {round_number, None}
                await asyncio.sleep(0)
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping

    asyncio.run(run())


class NameServer:
    """Answers A, AAAA and SRV questions over UDP from lists that may change."""

    KINDS = {1: "A", 28: "AAAA", 33: "SRV"}  # noqa: RUF012 - a constant

    def __init__(self) -> None:
        self.records: dict[str, list[bytes]] = {}
        self._peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._peer.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._peer.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            query, client_address = self._peer.recvfrom(512)
            if not query:
                self._peer.close()
                return
            kind = struct.unpack(">H", query[-4:-2])[0]
            replies = self.records.get(self.KINDS[kind], [])
            reply = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(replies), 0, 0) + query[12:]
            for data in replies:
                reply += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 5, len(data)) + data
            self._peer.sendto(reply, client_address)

    def stop(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._peer.getsockname())
        self._thread.join()


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    made = NameServer()
    yield made
    made.stop()


def _service_records(addresses: list[str]) -> list[bytes]:
    name = b"\x09localhost\x00"
    ports = [int(address.rpartition(":")[2]) for address in addresses]
    return [struct.pack(">HHH", 1, 1, port) + name for port in ports]


def test_addresses_of_both_families_are_resolved_again(name_server: NameServer) -> None:
    source = discovery.dns("cache.example", 11311, nameserver=name_server.address)
    name_server.records["A"] = [bytes([10, 0, 0, 2]), bytes([10, 0, 0, 1])]
    assert source() == ["10.0.0.1:11311", "10.0.0.2:11311"]
    name_server.records["AAAA"] = [bytes(15) + b"\x01"]
    name_server.records["A"].pop()
    assert source() == ["10.0.0.2:11311", "[::1]:11311"]


def test_a_service_that_moves_takes_the_client_along(
    cluster: Cluster, name_server: NameServer
) -> None:
    addresses = [server.address for server in cluster.servers]
    name_server.records["SRV"] = _service_records(addresses[:2])
    source = discovery.srv("_memcache._tcp.cache.example", nameserver=name_server.address)
    with (
        Client("127.0.0.1:1", timeout=5) as client,
        discovery.Watch(client, source, interval=INTERVAL_S),
    ):
        ports = {name.rpartition(":")[2] for name in _servers_in_use(client)}
        assert ports == {address.rpartition(":")[2] for address in addresses[:2]}
        assert client.set("k", 1)
        name_server.records["SRV"] = _service_records(addresses[2:])
        last = f"localhost:{addresses[2].rpartition(':')[2]}"
        _wait_until(lambda: _servers_in_use(client) == [last])
        assert client.set("k", 2)
        assert client.get("k") == 2
