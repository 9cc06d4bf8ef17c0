"""Where servers are found: functions that return the present ones, sorted."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

from glasscache.discovery import dns_client
from glasscache.discovery.dns_client import DiscoveryError
from glasscache.tls import asyncio_tls

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
        records = [
            record
            for record in dns_client.query_services(name, nameserver, timeout)
            if record.target  # the root stands for "no such service here" (RFC 2782)
        ]
        least_priority = min((record.priority for record in records), default=0)
        preferred_records = [record for record in records if record.priority == least_priority]
        is_weighted = len({record.weight for record in preferred_records}) > 1
        return sorted(
            f"{record.target}:{record.port}" + (f"*{max(1, record.weight)}" if is_weighted else "")
            for record in preferred_records
        )

    return find_servers


def elasticache(
    endpoint: str, key: str = "cluster", *, timeout: float = 2.0, tls: Any = None
) -> Source:
    """Return a source of the nodes that a configuration endpoint names (`config get cluster`).

    Args:
        endpoint: `host:port`.
        key: of the configuration.
        timeout: seconds to connect, and to wait for each part of the reply.
        tls: as of `Client`, for the endpoint of a cluster with encryption in transit: True,
            `TLS(...)` or an `ssl.SSLContext`. The nodes then have their names, which their
            certificates are issued for, instead of their addresses.

    """
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    context_and_name = asyncio_tls(tls, [endpoint])

    def find_servers() -> list[str]:
        with contextlib.ExitStack() as open_resources:
            connection = open_resources.enter_context(
                socket.create_connection((host, int(port)), timeout)
            )
            if context_and_name is not None:
                context, server_name = context_and_name
                connection = open_resources.enter_context(
                    context.wrap_socket(connection, server_hostname=server_name or host)
                )
            replies = open_resources.enter_context(connection.makefile("rb"))
            connection.sendall(f"config get {key}\r\n".encode())
            return parse_cluster(
                replies.readline, replies.read, prefers_names=context_and_name is not None
            )

    return find_servers


_HEADER_WORD_COUNT: Final = 4
"""As in `CONFIG cluster 0 147`."""

_CLUSTER_BYTES_MAX: Final = 1 << 20
"""Bound of a cluster's description; a node takes about a hundred bytes."""


def parse_cluster(
    readline: Callable[[int], bytes], read: Callable[[int], bytes], *, prefers_names: bool = False
) -> list[str]:
    """Return the nodes of a `CONFIG cluster` reply; see `cluster_nodes`."""
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
    return cluster_nodes(read(text_length).decode(), prefers_names=prefers_names)


def cluster_nodes(text: str, *, prefers_names: bool = False) -> list[str]:
    """Return the nodes of a cluster's description, by their addresses where they have one.

    It is a line with a version, then one with `name|address|port` of each node, blanks between. With
    `prefers_names` the nodes are named by their names, for certificates.
    """
    version, _, node_line = text.partition("\n")
    if not version.strip().isdigit():
        raise DiscoveryError(f"cluster configuration without a version: {version[:100]!r}")
    nodes: list[str] = []
    for node in node_line.partition("\n")[0].split():
        name, address, port = node.split("|")
        nodes.append(_host_port(name if prefers_names else address or name, int(port)))
    return sorted(nodes)
