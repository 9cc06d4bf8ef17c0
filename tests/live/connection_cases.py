"""Hostile connections: cut off, thousands of them, more than are allowed. Nothing of them stays behind."""

from __future__ import annotations

import socket
import struct
import time

from harness import Protection, RequirementFailed, Server, ServerConnection, case, require


@case()
def cut_off_commands(server: Server) -> str:
    """1000 partial commands, then close or reset: nothing leaks."""
    before = server.descriptors()
    for number in range(1000):
        connection = server.connect()
        connection.send(b"set cut 0 0 100000\r\n" + b"x" * (number * 37 % 5000))
        if number % 2:
            connection.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        connection.socket.close()
    return wait_for_descriptors(server, before)


def wait_for_descriptors(server: Server, before: int) -> str:
    """The server's descriptors come back within two seconds."""
    deadline = time.monotonic() + 2
    while server.descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    require(server.descriptors() <= before, f"{server.descriptors() - before} descriptors are left")
    with server.connect() as connection:
        require(connection.is_in_sync(), "not served")
    return "descriptors back"


@case()
def five_thousand_connects(server: Server) -> str:
    """Connect and close, 5000 times: nothing leaks."""
    before = server.descriptors()
    for _ in range(5000):
        server.connect().socket.close()
    return wait_for_descriptors(server, before)


@case(options=("-m", "64", "-c", "20000"))
def sixteen_thousand_idle_connections(server: Server) -> str:
    """Each costs at most 1 KB (24 with TLS) beyond the start-up tables, and others are served at once."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = min(16_000, hard - 200)
    probes = [server.connect() for _ in range(50)]
    for connection in probes:
        require(connection.is_in_sync(), "not served")
    before = server.resident_mb()
    connections = [server.connect() for _ in range(wanted)]
    worst = 0.0
    for _ in range(50):
        begun = time.monotonic()
        require(probes[0].is_in_sync(), "not served")
        worst = max(worst, time.monotonic() - begun)
    each = (server.resident_mb() - before) * 1024 / wanted
    require(connections[-1].is_in_sync(), "the last connection is not served")
    for connection in probes + connections:
        connection.socket.close()
    require(each <= (24.0 if Protection.tls else 1.0), f"{each:.2f} KB for each of {wanted}")
    return f"{wanted} connections, {each:.2f} KB each, others wait {worst * 1000:.1f} ms"


@case(options=("-m", "64", "-c", "50"))
def connections_beyond_the_limit(server: Server) -> None:
    """Refused with memcached's words and closed; at once usable when one leaves."""
    connections: list[ServerConnection] = []
    refused = None
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
        refused = reply
        break
    require(refused is not None, "never refused")
    require(refused in (b"ERROR Too many open connections", b""), f"refused with {refused!r}")
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
        raise RequirementFailed("a free place is not given out")
    for connection in connections:
        connection.socket.close()
