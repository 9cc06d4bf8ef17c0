"""Servers found by DNS and by a cluster's configuration, from name servers and endpoints of our own."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from typing import Any

import pytest
from glasscache import BadSetting, Client, discovery


class ServerListRecorder:
    def __init__(self) -> None:
        self.server_lists: list[list[str]] = []

    def set_servers(self, servers: list[str]) -> None:
        self.server_lists.append(servers)


def _serve_one_query(
    records: bytes, record_count: int, response_code: int = 0
) -> tuple[str, threading.Thread]:
    """Start a name server that replies to one query with these records; return its address and thread."""
    name_server_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    name_server_socket.bind(("127.0.0.1", 0))

    def serve() -> None:
        query, client_address = name_server_socket.recvfrom(512)
        header = query[:2] + struct.pack(">HHHHH", 0x8180 | response_code, 1, record_count, 0, 0)
        name_server_socket.sendto(header + query[12:] + records, client_address)
        name_server_socket.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return f"127.0.0.1:{name_server_socket.getsockname()[1]}", thread


def _srv_record(priority: int, weight: int, port: int, host: str) -> bytes:
    name = b"".join(bytes([len(label)]) + label.encode() for label in host.split(".")) + b"\0"
    record_data = struct.pack(">HHH", priority, weight, port) + name
    return b"\xc0\x0c" + struct.pack(">HHIH", 33, 1, 60, len(record_data)) + record_data


def test_srv_records_of_the_least_priority_become_weighted_servers() -> None:
    records = _srv_record(1, 2, 11211, "a.example") + _srv_record(1, 1, 11212, "b.example")
    records += _srv_record(9, 1, 1, "spare.example")
    name_server_address, thread = _serve_one_query(records, 3)
    servers = discovery.srv("_memcache._tcp.example", nameserver=name_server_address)()
    thread.join()
    assert servers == ["a.example:11211*2", "b.example:11212*1"]


def test_a_name_without_records_is_a_discovery_error() -> None:
    name_server_address, thread = _serve_one_query(b"", 0, response_code=3)
    with pytest.raises(discovery.DiscoveryError, match="no such record"):
        discovery.srv("_memcache._tcp.example", nameserver=name_server_address)()
    thread.join()


def test_a_dns_reply_whose_name_points_at_itself_is_refused() -> None:
    self_pointing_record = (
        b"\xc0\x0c" + struct.pack(">HHIH", 33, 1, 60, 8) + struct.pack(">HHH", 1, 1, 1)
    )
    name_server_address, thread = _serve_one_query(self_pointing_record + b"\xc0\x2a", 1)
    with pytest.raises((discovery.DiscoveryError, UnicodeDecodeError, struct.error, IndexError)):
        discovery.srv("a.b", nameserver=name_server_address)()
    thread.join()


def test_the_nodes_of_a_configuration_become_servers() -> None:
    configuration = "12\nnode1|10.0.0.1|11211 node2||11212\n"
    assert discovery.cluster_nodes(configuration) == ["10.0.0.1:11211", "node2:11212"]
    with pytest.raises(discovery.DiscoveryError, match="without a version"):
        discovery.cluster_nodes("nothing")


def test_a_changed_list_is_handed_on_once_and_a_failure_changes_nothing() -> None:
    server_lists: list[object] = [["a:1"], ["a:1"], OSError("name server down"), [], ["a:1", "b:1"]]

    def source() -> list[str]:
        next_list = server_lists.pop(0)
        if isinstance(next_list, OSError):
            raise next_list
        return next_list  # type: ignore[return-value]

    client = ServerListRecorder()
    watch = discovery.Watch(client, source)
    assert [watch.check() for _ in range(5)] == [True, False, False, False, True]
    assert client.server_lists == [["a:1"], ["a:1", "b:1"]]


def test_addresses_of_a_host_become_servers() -> None:
    assert "127.0.0.1:11299" in discovery.dns("localhost", 11299)()


class FailingSource:
    """A source that raises or returns each of some outcomes, then a list of servers, again and again."""

    def __init__(self, outcomes: list[Any]) -> None:
        self._outcomes = [*outcomes, ["last:1"]]
        self.was_read_to_the_end = threading.Event()

    def __call__(self) -> Any:
        if len(self._outcomes) > 1:
            outcome = self._outcomes.pop(0)
        else:
            outcome = self._outcomes[0]
            self.was_read_to_the_end.set()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class PickyClient(ServerListRecorder):
    """Refuses what `Client` would refuse, by its error or by another."""

    def set_servers(self, servers: list[str]) -> None:
        if ":0" in servers:
            raise BadSetting("server :0: port 0")
        if "memory:1" in servers:
            raise MemoryError
        super().set_servers(servers)


ODD_OUTCOMES: list[Any] = [
    KeyError("servers"), RuntimeError("bug"), StopIteration(), AssertionError(), SystemExit(1),
    KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), RecursionError(), OSError("down"),
    discovery.DiscoveryError("none"), None, 7, [], [":0"], ["memory:1"], iter(()),
]  # fmt: skip


def test_a_watch_survives_whatever_its_source_raises_or_returns() -> None:
    client, source = PickyClient(), FailingSource([["first:1"], *ODD_OUTCOMES])
    with discovery.Watch(client, source, interval=0.001):
        assert source.was_read_to_the_end.wait(20)
        while client.server_lists[-1] != ["last:1"]:
            time.sleep(0.001)
    assert client.server_lists == [["first:1"], ["last:1"]]


def test_a_task_survives_whatever_its_source_raises_or_returns() -> None:
    client, source = PickyClient(), FailingSource([["first:1"], *ODD_OUTCOMES])

    async def main() -> None:
        task = asyncio.create_task(discovery.keep_up(client, source, interval=0.001))
        async with asyncio.timeout(20):
            await asyncio.to_thread(source.was_read_to_the_end.wait, 20)
            await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert client.server_lists == [["first:1"], ["last:1"]]


def test_a_real_client_keeps_its_servers_when_a_source_names_none_that_can_be_used() -> None:
    with Client("127.0.0.1:1", timeout=0.1) as client:
        source = FailingSource([["127.0.0.1:2"], ["127.0.0.1:99999"], ["a b:1"], [7]])
        watch = discovery.Watch(client, source)
        assert [watch.check() for _ in range(5)] == [True, False, False, False, True]


def test_an_srv_record_of_the_root_names_no_server() -> None:
    records = b"\xc0\x0c" + struct.pack(">HHIHHHH", 33, 1, 60, 7, 0, 0, 0) + b"\0"
    name_server_address, thread = _serve_one_query(records, 1)
    assert discovery.srv("_memcache._tcp.example", nameserver=name_server_address)() == []
    thread.join()


def test_nodes_are_named_where_certificates_need_names() -> None:
    configuration = "12\nnode1|10.0.0.1|11211 node2||11212\n"
    nodes = discovery.cluster_nodes(configuration, prefers_names=True)
    assert nodes == ["node1:11211", "node2:11212"]
