"""Where servers are found: functions that return the present ones, sorted."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from glasscache.discovery import dns_client
from glasscache.discovery.dns_client import DiscoveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache.discovery.watch import Source


def dns(
    host: str, port: int = 11211, *, nameserver: str | None = None, timeout: float = 2.0
) -> Source:
    """Return a source of the addresses (A and AAAA) of `host`, as of a Kubernetes headless service.

    Args:
        host: the name.
        port: where a server listens at each address.
        nameserver: `host` or `host:port`; None uses the system's resolver, /etc/hosts included.
        timeout: seconds for each of two tries at `nameserver`.

    """

    def find_servers() -> list[str]:
        if nameserver is None:
            address_infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            hosts = [str(socket_address[0]) for *_, socket_address in address_infos]
        else:
            hosts = dns_client.query_addresses(host, nameserver, timeout)
        return sorted({_host_port(found_host, port) for found_host in hosts})

    return find_servers


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def srv(name: str, *, nameserver: str | None = None, timeout: float = 2.0) -> Source:
    """Return a source of the targets of the SRV records of `name`, such as `_memcache._tcp.example.org`.

    Only the records of the least priority count; their weights become the servers' weights.

    Args:
        name: the record's name.
        nameserver: `host` or `host:port`; None takes the first of /etc/resolv.conf.
        timeout: seconds for each of two tries.

    """

    def find_servers() -> list[str]:
        records = dns_client.query_services(name, nameserver, timeout)
        least_priority = min((record.priority for record in records), default=0)
        preferred_records = [record for record in records if record.priority == least_priority]
        is_weighted = len({record.weight for record in preferred_records}) > 1
        return sorted(
            f"{record.target}:{record.port}" + (f"*{max(1, record.weight)}" if is_weighted else "")
            for record in preferred_records
        )

    return find_servers


def elasticache(endpoint: str, key: str = "cluster", *, timeout: float = 2.0) -> Source:
    """Return a source of the nodes that a configuration endpoint names (`config get cluster`)."""
    host, _, port = endpoint.rpartition(":")

    def find_servers() -> list[str]:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout) as connection,
            connection.makefile("rb") as replies,
        ):
            connection.sendall(f"config get {key}\r\n".encode())
            return parse_cluster(replies.readline, replies.read)

    return find_servers


_HEADER_WORD_COUNT: Final = 4
"""As in `CONFIG cluster 0 147`."""

_CLUSTER_BYTES_MAX: Final = 1 << 20
"""Bound of a cluster's description; a node takes about a hundred bytes."""


def parse_cluster(readline: Callable[[int], bytes], read: Callable[[int], bytes]) -> list[str]:
    """Return the nodes of a `CONFIG cluster` reply."""
    words = readline(1024).split()
    if (
        words[:2] != [b"CONFIG", b"cluster"]
        or len(words) != _HEADER_WORD_COUNT
        or not words[3].isdigit()
    ):
        raise DiscoveryError(f"not a cluster configuration: {b' '.join(words)[:100]!r}")
    text_length = int(words[3])
    if text_length > _CLUSTER_BYTES_MAX:
        raise DiscoveryError(
            f"cluster configuration of {text_length} bytes, limit {_CLUSTER_BYTES_MAX}"
        )
    return cluster_nodes(read(text_length).decode())


def cluster_nodes(text: str) -> list[str]:
    """Return the nodes of a cluster's description.

    It is a line with a version, then one with `name|address|port` of each node, blanks between.
    """
    version, _, node_line = text.partition("\n")
    if not version.strip().isdigit():
        raise DiscoveryError(f"cluster configuration without a version: {version[:100]!r}")
    nodes: list[str] = []
    for node in node_line.partition("\n")[0].split():
        name, address, port = node.split("|")
        nodes.append(_host_port(address or name, int(port)))
    return sorted(nodes)
