"""Hostile connections: cut off, thousands of them, more than are allowed. They leave nothing open."""

from __future__ import annotations

import socket
import struct
import time

from harness import Protection, RequirementFailed, Server, ServerConnection, case, require


@case()
def cut_off_commands(server: Server) -> str:
    """1000 partial commands, then close or reset: nothing leaks."""
    descriptors_before = server.open_descriptor_count()
    for number in range(1000):
        connection = server.connect()
        connection.send(b"set cut 0 0 100000\r\n" + b"x" * (number * 37 % 5000))
        if number % 2:
            connection.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        connection.socket.close()
    return require_descriptors_released(server, descriptors_before)


def require_descriptors_released(server: Server, expected_count: int) -> str:
    """The server's descriptors come back within two seconds."""
    deadline = time.monotonic() + 2
    while server.open_descriptor_count() > expected_count and time.monotonic() < deadline:
        time.sleep(0.02)
    require(
        server.open_descriptor_count() <= expected_count,
        f"{server.open_descriptor_count() - expected_count} descriptors are left",
    )
    with server.connect() as connection:
        require(connection.is_in_sync(), "not served")
    return "descriptors back"


@case()
def five_thousand_connects(server: Server) -> str:
    """Connect and close, 5000 times: nothing leaks."""
    descriptors_before = server.open_descriptor_count()
    for _ in range(5000):
        server.connect().socket.close()
    return require_descriptors_released(server, descriptors_before)


@case(options=("-m", "64", "-c", "20000"))
def sixteen_thousand_idle_connections(server: Server) -> str:
    """Each costs at most 1 KB (24 with TLS) beyond the start-up tables, and others are served at once."""
    import resource

    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    connection_count = min(16_000, hard_limit - 200)
    probes = [server.connect() for _ in range(50)]
    for connection in probes:
        require(connection.is_in_sync(), "not served")
    resident_mb_before = server.resident_mb()
    connections = [server.connect() for _ in range(connection_count)]
    latency_s_max = 0.0
    for _ in range(50):
        started_at = time.monotonic()
        require(probes[0].is_in_sync(), "not served")
        latency_s_max = max(latency_s_max, time.monotonic() - started_at)
    kb_per_connection = (server.resident_mb() - resident_mb_before) * 1024 / connection_count
    require(connections[-1].is_in_sync(), "the last connection is not served")
    for connection in probes + connections:
        connection.socket.close()
    require(
        kb_per_connection <= (24.0 if Protection.tls else 1.0),
        f"{kb_per_connection:.2f} KB for each of {connection_count}",
    )
    return (
        f"{connection_count} connections, {kb_per_connection:.2f} KB each,"
        f" others wait {latency_s_max * 1000:.1f} ms"
    )


@case(options=("-m", "64", "-c", "50"))
def connections_beyond_the_limit(server: Server) -> None:
    """Refused with memcached's error and closed; usable again as soon as one closes."""
    connections: list[ServerConnection] = []
    refusal_reply = None
    for _ in range(80):
        try:
            connection = server.connect(2)
            connection.send(b"mn\r\n")
            reply = connection.read_line()
        except ConnectionError:
            reply = b""
        if reply == b"MN":
            connections.append(connection)
            continue
        refusal_reply = reply
        break
    require(refusal_reply is not None, "never refused")
    require(
        refusal_reply in (b"ERROR Too many open connections", b""),
        f"refused with {refusal_reply!r}",
    )
    connections.pop().socket.close()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            with server.connect(1) as connection:
                if connection.is_in_sync():
                    break
        except OSError:
            time.sleep(0.02)
    else:
        raise RequirementFailed("a closed connection did not make room for another")
    for connection in connections:
        connection.socket.close()
