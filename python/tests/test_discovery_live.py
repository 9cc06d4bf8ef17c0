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

    def announce(self, *indices: int) -> list[str]:
        """Write the file anew; return the addresses in it, sorted."""
        self._version += 1
        addresses = [self.servers[index].address for index in indices]
        nodes = " ".join(f"node|{address.replace(':', '|')}" for address in addresses)
        new_file = self._file.with_suffix(".new")
        new_file.write_text(f"{self._version}\n{nodes}\n")
        new_file.replace(self._file)
        return sorted(addresses)

    def stop(self) -> None:
        for server in [*self.servers, self.endpoint]:
            server.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


class Findings:
    """What a load has met: calls, values that were not the last ones written, and whose errors."""

    def __init__(self) -> None:
        self.calls = 0
        self.wrong_values: list[str] = []
        self.failed_servers: set[str] = set()

    def check(self, key: str, value: object, last_written: int) -> None:
        self.calls += 1
        if value is not None and value != f"{key}={last_written}":
            self.wrong_values.append(f"{key}: {value!r}, written {last_written}")


def _read_and_write(
    client: Client, key_prefix: str, stop_event: threading.Event, findings: Findings
) -> None:
    """Write and read keys of its own until `stop_event` is set."""
    written: dict[str, int] = {}
    round_number = 0
    while not stop_event.is_set():
        round_number += 1
        key = f"{key_prefix}-{round_number % 50}"
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
    started_at = time.monotonic()
    while not is_true():
        assert time.monotonic() - started_at < NOTICE_TIMEOUT_S, "not noticed"
        time.sleep(0.005)
    return time.monotonic() - started_at


def test_a_node_added_and_one_lost_are_noticed_under_load(cluster: Cluster) -> None:
    source = discovery.elasticache(cluster.endpoint.address)
    first_address, lost_address = cluster.servers[0].address, cluster.servers[1].address
    stop_event, findings = threading.Event(), Findings()
    with Client(first_address, timeout=5) as client:
        with discovery.Watch(client, source, interval=INTERVAL_S):
            assert _servers_in_use(client) == sorted([first_address, lost_address])
            threads = [
                threading.Thread(
                    target=_read_and_write, args=(client, f"t{number}", stop_event, findings)
                )
                for number in range(3)
            ]
            for thread in threads:
                thread.start()
            announced_addresses = cluster.announce(0, 1, 2)
            _wait_until(lambda: _servers_in_use(client) == announced_addresses)
            calls_before = findings.calls
            _wait_until(lambda: findings.calls > calls_before + 200)
            assert findings.failed_servers == set()
            cluster.servers[1].stop()
            _wait_until(lambda: findings.failed_servers == {lost_address})
            announced_addresses = cluster.announce(0, 2)
            _wait_until(lambda: _servers_in_use(client) == announced_addresses)
            findings.failed_servers.clear()
            calls_before = findings.calls
            _wait_until(lambda: findings.calls > calls_before + 200)
            stop_event.set()
            for thread in threads:
                thread.join()
        # A call that was on its way when the list changed may still have met the lost one.
        assert findings.failed_servers <= {lost_address}
        assert findings.wrong_values == []


async def test_asyncio_clients_follow_the_list_of_servers(cluster: Cluster) -> None:
    source = discovery.elasticache(cluster.endpoint.address)
    async with AsyncClient(cluster.servers[0].address, timeout=5) as client:
        keep_up_task = asyncio.create_task(discovery.keep_up(client, source, interval=INTERVAL_S))
        announced_addresses = cluster.announce(1, 2)
        deadline = time.monotonic() + NOTICE_TIMEOUT_S
        round_number = 0
        while sorted(client._names.values()) != announced_addresses:
            assert time.monotonic() < deadline, "not noticed"
            round_number += 1
            assert await client.set("k", round_number)
            assert await client.get("k") in {round_number, None}
            await asyncio.sleep(0)
        keep_up_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keep_up_task


FLOOD_REPLIES_MAX = 1500
"""Half a minute of them."""


class NameServer:
    """Replies to A, AAAA and SRV questions over UDP from lists that may change."""

    RECORD_TYPES = {1: "A", 28: "AAAA", 33: "SRV"}  # noqa: RUF012 - a constant

    def __init__(self) -> None:
        self.records: dict[str, list[bytes]] = {}
        self.floods = False
        """Whether each query gets replies to other queries only, until `flood_ended` is set."""
        self.flood_ended = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            query, client_address = self._socket.recvfrom(512)
            if not query:
                self._socket.close()
                return
            if self.floods:
                foreign_reply = bytes([query[0] ^ 1]) + query[1:]
                for _ in range(FLOOD_REPLIES_MAX):
                    self._socket.sendto(foreign_reply, client_address)
                    if self.flood_ended.wait(0.02):
                        break
                continue
            record_type = struct.unpack(">H", query[-4:-2])[0]
            records = self.records.get(self.RECORD_TYPES[record_type], [])
            reply = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(records), 0, 0) + query[12:]
            for record_data in records:
                reply += (
                    b"\xc0\x0c"
                    + struct.pack(">HHIH", record_type, 1, 5, len(record_data))
                    + record_data
                )
            self._socket.sendto(reply, client_address)

    def stop(self) -> None:
        self.flood_ended.set()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waking_socket:
            waking_socket.sendto(b"", self._socket.getsockname())
        self._thread.join()


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    name_server = NameServer()
    yield name_server
    name_server.stop()


def _service_records(addresses: list[str]) -> list[bytes]:
    host_name = b"\x09localhost\x00"
    ports = [int(address.rpartition(":")[2]) for address in addresses]
    return [struct.pack(">HHH", 1, 1, port) + host_name for port in ports]


def test_addresses_of_both_families_are_resolved_again(name_server: NameServer) -> None:
    source = discovery.dns("cache.example", 11311, nameserver=name_server.address)
    name_server.records["A"] = [bytes([10, 0, 0, 2]), bytes([10, 0, 0, 1])]
    assert source() == ["10.0.0.1:11311", "10.0.0.2:11311"]
    name_server.records["AAAA"] = [bytes(15) + b"\x01"]
    name_server.records["A"].pop()
    assert source() == ["10.0.0.2:11311", "[::1]:11311"]


def test_replies_to_other_queries_do_not_prolong_a_query(name_server: NameServer) -> None:
    name_server.floods = True
    source = discovery.dns("cache.example", nameserver=name_server.address, timeout=0.1)
    with pytest.raises(TimeoutError, match="no reply from name server"):
        source()
    assert not name_server.flood_ended.is_set()


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
        ports = {address.rpartition(":")[2] for address in _servers_in_use(client)}
        assert ports == {address.rpartition(":")[2] for address in addresses[:2]}
        assert client.set("k", 1)
        name_server.records["SRV"] = _service_records(addresses[2:])
        last_address = f"localhost:{addresses[2].rpartition(':')[2]}"
        _wait_until(lambda: _servers_in_use(client) == [last_address])
        assert client.set("k", 2)
        assert client.get("k") == 2
