"""Which servers there are, when that changes: DNS addresses, SRV records, ElastiCache's `config get cluster`.

A source is a function that returns the present servers, sorted; a `Watch` asks it now and then and
hands a changed list to `client.set_servers`, which makes a new ring and keeps the connections of
the servers that stay. A source that fails or answers with nothing leaves the list as it is: a name
server that is down is no reason to lose a cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

Source = Callable[[], list[str]]

_log = logging.getLogger(__name__)


class DiscoveryError(Exception):
    """The source gave no servers; the message says which and why."""


def dns(host: str, port: int = 11211) -> Source:
    """Return a source of the addresses (A and AAAA) of `host`, as of a Kubernetes headless service."""

    def servers() -> list[str]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return sorted({_spell(str(address[0]), port) for *_, address in found})

    return servers


def _spell(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def srv(name: str, *, nameserver: str | None = None, timeout: float = 2.0) -> Source:
    """Return a source of the targets of the SRV records of `name`, such as `_memcache._tcp.example.org`.

    Only the records of the least priority count; their weights become the servers' weights.

    Args:
        name: the record's name.
        nameserver: `host` or `host:port`; None takes the first of /etc/resolv.conf.
        timeout: seconds for each of two tries.

    """

    def servers() -> list[str]:
        records = _query_srv(name, nameserver or _first_nameserver(), timeout)
        if not records:
            return []
        least = min(priority for priority, *_ in records)
        chosen = [record for record in records if record[0] == least]
        is_weighted = len({weight for _, weight, *_ in chosen}) > 1
        return sorted(
            f"{target}:{port}" + (f"*{max(1, weight)}" if is_weighted else "")
            for _, weight, port, target in chosen
        )

    return servers


def elasticache(endpoint: str, key: str = "cluster", *, timeout: float = 2.0) -> Source:
    """Return a source of the nodes that a configuration endpoint names (`config get cluster`)."""
    host, _, port = endpoint.rpartition(":")

    def servers() -> list[str]:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout) as peer,
            peer.makefile("rb") as replies,
        ):
            peer.sendall(f"config get {key}\r\n".encode())
            return parse_cluster(replies.readline, replies.read)

    return servers


_HEAD_WORDS: Final = 4
"""As in `CONFIG cluster 0 147`."""

_CLUSTER_BYTES_MAX: Final = 1 << 20
"""Bound of a cluster's description; a node takes about a hundred bytes."""


def parse_cluster(readline: Callable[[int], bytes], read: Callable[[int], bytes]) -> list[str]:
    """Return the nodes of a `CONFIG cluster` reply."""
    words = readline(1024).split()
    if words[:2] != [b"CONFIG", b"cluster"] or len(words) != _HEAD_WORDS or not words[3].isdigit():
        raise DiscoveryError(f"not a cluster configuration: {b' '.join(words)[:100]!r}")
    size = int(words[3])
    if size > _CLUSTER_BYTES_MAX:
        raise DiscoveryError(f"cluster configuration of {size} bytes, limit {_CLUSTER_BYTES_MAX}")
    return cluster_nodes(read(size).decode())


def cluster_nodes(text: str) -> list[str]:
    """Return the nodes of a cluster's description.

    It is a line with a version, then one with `name|address|port` of each node, blanks between.
    """
    version, _, rest = text.partition("\n")
    if not version.strip().isdigit():
        raise DiscoveryError(f"cluster configuration without a version: {version[:100]!r}")
    nodes: list[str] = []
    for node in rest.partition("\n")[0].split():
        name, address, port = node.split("|")
        nodes.append(_spell(address or name, int(port)))
    return sorted(nodes)


class Watch:
    """Keeps a blocking client's servers equal to a source's, from a thread of its own.

    Use it as a context manager, or call `start` and `stop`. For an asyncio client run `keep_up` as
    a task instead.
    """

    def __init__(self, client: Any, source: Source, *, interval: float = 60.0) -> None:
        """Watch for a client; nothing happens before `start`."""
        self._client, self._source, self._interval = client, source, interval
        self._known: list[str] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self) -> bool:
        """Ask the source once; return whether the servers changed."""
        servers = _ask(self._source)
        if servers is None or servers == self._known:
            return False
        self._client.set_servers(servers)
        self._known = servers
        return True

    def start(self) -> Self:
        """Check now, then every `interval` seconds in the background."""
        self.check()
        self._thread = threading.Thread(target=self._run, name="glasscache-discovery", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_jitter(self._interval)):
            self.check()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


async def keep_up(client: Any, source: Source, *, interval: float = 60.0) -> None:
    """Keep an asyncio client's servers equal to a source's until cancelled."""
    known: list[str] = []
    loop = asyncio.get_running_loop()
    while True:
        # Name servers are asked by blocking calls of the C library, hence the executor.
        servers = await loop.run_in_executor(None, _ask, source)
        if servers is not None and servers != known:
            client.set_servers(servers)
            known = servers
        await asyncio.sleep(_jitter(interval))


def _ask(source: Source) -> list[str] | None:
    try:
        servers = source()
    except (OSError, DiscoveryError, ValueError, struct.error) as error:
        _log.warning("discovery failed, the servers stay as they are: %s", error)
        return None
    if not servers:
        _log.warning("discovery found no servers, they stay as they are")
        return None
    return servers


def _jitter(interval: float) -> float:
    """Within a tenth of the interval, so that a fleet does not ask in step."""
    return interval * random.uniform(0.9, 1.1)  # noqa: S311 - spreads clients


# A query of one kind (RFC 1035, RFC 2782), since the standard library resolves addresses only.

_SRV: Final = 33
_INTERNET: Final = 1
_TRUNCATED: Final = 0x0200
_RECURSE: Final = 0x0100
_POINTER: Final = 0xC0
_POINTERS_MAX: Final = 64


def _first_nameserver() -> str:
    for line in Path("/etc/resolv.conf").read_text().splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            return words[1]
    raise DiscoveryError("no nameserver in /etc/resolv.conf")


def _query_srv(name: str, nameserver: str, timeout: float) -> list[tuple[int, int, int, str]]:
    host, port = nameserver, 53
    if nameserver.count(":") == 1:
        host, _, text = nameserver.partition(":")
        port = int(text)
    query = _srv_query(name)
    reply = _ask_by_udp(query, (host, port), timeout)
    if struct.unpack_from(">H", reply, 2)[0] & _TRUNCATED:
        reply = _ask_by_tcp(query, (host, port), timeout)
    return _srv_records(reply, name)


def _srv_query(name: str) -> bytes:
    labels = b"".join(
        bytes([len(label)]) + label for label in name.rstrip(".").encode("idna").split(b".")
    )
    return (
        struct.pack(">HHHHHH", secrets.randbits(16), _RECURSE, 1, 0, 0, 0)
        + labels
        + struct.pack(">xHH", _SRV, _INTERNET)
    )


def _ask_by_udp(query: bytes, address: tuple[str, int], timeout: float) -> bytes:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as peer:
        peer.settimeout(timeout)
        peer.connect(address)
        for is_last in (False, True):
            peer.send(query)
            with contextlib.nullcontext() if is_last else contextlib.suppress(TimeoutError):
                while True:
                    reply = peer.recv(65536)
                    # The question comes back, else it is not the answer to ours.
                    if (
                        len(reply) >= len(query)
                        and reply[:2] == query[:2]
                        and reply[12 : len(query)] == query[12:]
                    ):
                        return reply
    raise TimeoutError(f"no answer from name server {address[0]}")


def _ask_by_tcp(query: bytes, address: tuple[str, int], timeout: float) -> bytes:
    with socket.create_connection(address, timeout) as peer, peer.makefile("rb") as replies:
        peer.sendall(struct.pack(">H", len(query)) + query)
        (size,) = struct.unpack(">H", replies.read(2))
        reply: bytes = replies.read(size)
    if len(reply) != size or reply[:2] != query[:2]:
        raise DiscoveryError("the name server's answer is cut or another's")
    return reply


def _srv_records(reply: bytes, name: str) -> list[tuple[int, int, int, str]]:
    _, flags, questions, answers, _, _ = struct.unpack_from(">HHHHHH", reply)
    if flags & 0xF:
        raise DiscoveryError(f"name server: {name} has no SRV record (code {flags & 0xF})")
    at = 12
    for _ in range(questions):
        at = _read_name(reply, at)[1] + 4
    records: list[tuple[int, int, int, str]] = []
    for _ in range(answers):
        at = _read_name(reply, at)[1]
        kind, _, _, size = struct.unpack_from(">HHIH", reply, at)
        at += 10
        if kind == _SRV:
            priority, weight, port = struct.unpack_from(">HHH", reply, at)
            records.append((priority, weight, port, _read_name(reply, at + 6)[0]))
        at += size
    return records


def _read_name(reply: bytes, at: int) -> tuple[str, int]:
    """Return the name that begins at `at`, and where what follows it begins."""
    labels: list[str] = []
    end: int | None = None
    for _ in range(_POINTERS_MAX):
        if at >= len(reply):
            break
        size = reply[at]
        if size == 0:
            return ".".join(labels), end if end is not None else at + 1
        if size >= _POINTER:
            end = at + 2 if end is None else end
            at = struct.unpack_from(">H", reply, at)[0] & 0x3FFF
            continue
        labels.append(reply[at + 1 : at + 1 + size].decode("ascii"))
        at += 1 + size
    raise DiscoveryError("a name in the name server's answer does not end")
