#!/usr/bin/env python3
"""The memory that clients can make a server hold: readers that never read, half uploads, unread dumps and
watches, parts of logins and of a proxy's header, and parts of records, values and handshakes with TLS.

Each scenario starts a server of its own, fills it, opens connections that tie memory up and leave it so, and
watches the resident memory meanwhile. A well-behaved client measures its requests before and during that:
small gets, now and then one of a large value, and sets of 60 KB over new connections. Each has to succeed,
the sets within a second. The bound is 1.02 times `-m` and 16 MiB, and a tenth above `peer_bytes_limit` for
`peer_bytes`. `python3 tests/live/peer_memory.py --server "target/release/glasscache serve"`
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from harness import REPLY_SECONDS, Protection, Server, ServerConnection

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

MEMORY_MB = 64
RESIDENT_OVERHEAD_MB = 16
LARGE_VALUE_BYTES = 255_000
LARGE_KEY_COUNT = 16
KEY_PREFIX_COUNT = 60_000
# What the well-behaved client sets, and how long that may take.
SET_VALUE_BYTES = 60_000
SET_SECONDS_MAX = 1.0
# What a reader that does not read offers the kernel to send into.
RECEIVE_BUFFER_BYTES = 4096
PROXY_HEADER = b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 11211\r\n"
# Descriptors of this process in addition to the connections.
SPARE_DESCRIPTORS = 64


class MeasuringClient:
    """A well-behaved client that measures each small get and counts what failed."""

    def __init__(self, server: Server, has_large_reads: bool) -> None:
        self.server = server
        self.has_large_reads = has_large_reads
        self.stop = threading.Event()
        self.small_latencies_s: list[float] = []
        self.large_latencies_s: list[float] = []
        self.set_latencies_s: list[float] = []
        self.failures: list[str] = []
        self.peak_mb = 0.0
        self.started_at = time.monotonic()
        self.duration_s = 0.0
        self.threads = [
            threading.Thread(target=thread_target)
            for thread_target in (
                self.read_small_values,
                self.set_values,
                self.watch_resident_mb,
            )
        ]
        if has_large_reads:
            self.threads.append(threading.Thread(target=self.read_large_values))

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()
        self.duration_s = time.monotonic() - self.started_at

    def read_small_values(self) -> None:
        """Small gets one after another."""
        with self.server.connect(30) as connection:
            while not self.stop.is_set():
                request_started = time.perf_counter()
                try:
                    if connection.get(b"small") is None:
                        self.failures.append("a small get missed")
                except (OSError, AssertionError) as error:
                    self.failures.append(f"a small get: {error}")
                    return
                self.small_latencies_s.append(time.perf_counter() - request_started)

    def read_large_values(self) -> None:
        """A large get twenty times a second, with a connection that reads its replies."""
        with self.server.connect(60) as connection:
            while not self.stop.wait(0.05):
                request_started = time.perf_counter()
                try:
                    value = connection.get(b"large0")
                except (OSError, AssertionError) as error:
                    self.failures.append(f"a large get: {error}")
                    return
                if value is None or len(value) != LARGE_VALUE_BYTES:
                    self.failures.append("a large get missed")
                self.large_latencies_s.append(time.perf_counter() - request_started)

    def set_values(self) -> None:
        """A set of 60 KB ten times a second, each over a new connection."""
        while not self.stop.wait(0.1):
            request_started = time.perf_counter()
            try:
                with self.server.connect(30) as connection:
                    if connection.set(b"honest", b"v" * SET_VALUE_BYTES) != b"STORED":
                        self.failures.append("a set was refused")
            except (OSError, AssertionError) as error:
                self.failures.append(f"a set: {error}")
            self.set_latencies_s.append(time.perf_counter() - request_started)

    def watch_resident_mb(self) -> None:
        """The peak of the resident memory."""
        while not self.stop.wait(0.01):
            self.peak_mb = max(self.peak_mb, self.server.resident_mb())

    def figures(self) -> dict[str, float]:
        """What was measured."""
        small_latencies_s = sorted(self.small_latencies_s) or [0.0]
        large_latencies_s = sorted(self.large_latencies_s) or [0.0]
        return {
            "gets_per_s": round(len(self.small_latencies_s) / self.duration_s),
            "p50_us": round(small_latencies_s[len(small_latencies_s) // 2] * 1e6),
            "p99_us": round(small_latencies_s[int(len(small_latencies_s) * 0.99)] * 1e6),
            "large_gets": len(self.large_latencies_s),
            "large_worst_ms": round(large_latencies_s[-1] * 1e3, 1),
            "sets": len(self.set_latencies_s),
            "set_worst_ms": round(max(self.set_latencies_s, default=0.0) * 1e3, 1),
        }


def fill_memory(server: Server) -> None:
    """A small value, the large ones, and the rest of the memory in values of 1 KB."""
    with server.connect(60) as connection:
        for start in range(0, 60_000, 500):
            numbers = range(start, start + 500)
            connection.send(
                b"".join(
                    b"set f%d 0 0 1000 noreply\r\n%s\r\n" % (number, b"f" * 1000)
                    for number in numbers
                )
            )
        connection.set(b"small", b"s" * 100)
        for number in range(LARGE_KEY_COUNT):
            connection.set(b"large%d" % number, b"L" * LARGE_VALUE_BYTES)


def open_stalled_connections(
    server: Server, connection_count: int, send_first_bytes: Callable[[ServerConnection, int], None]
) -> list[ServerConnection]:
    """Connections that each send the first bytes and then stop."""
    connections = []
    for number in range(connection_count):
        # The server may refuse or close it for others.
        with contextlib.suppress(TimeoutError, ConnectionError):
            connection = server.connect(5, receive_buffer=RECEIVE_BUFFER_BYTES)
            connections.append(connection)
            send_first_bytes(connection, number)
    return connections


def open_readers_that_never_read(server: Server, connection_count: int) -> list[ServerConnection]:
    """Request 16 values of 255 KB each, several times, and read nothing; the values change now and then."""
    request = (
        b"get " + b" ".join(b"large%d" % number for number in range(LARGE_KEY_COUNT)) + b"\r\n"
    )
    writer = server.connect(30)

    def request_large_values(connection: ServerConnection, number: int) -> None:
        if number % 4 == 0:
            for key_number in range(LARGE_KEY_COUNT):
                writer.set(b"large%d" % key_number, b"L" * LARGE_VALUE_BYTES)
        connection.send(request * 4)

    return [*open_stalled_connections(server, connection_count, request_large_values), writer]


def open_half_uploads(server: Server, connection_count: int) -> list[ServerConnection]:
    """Send the first 60,000 bytes of a value of 65,000 and stop."""
    first_bytes = b"set half 0 0 65000\r\n" + b"h" * 60_000

    def send_part(connection: ServerConnection, _number: int) -> None:
        connection.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.socket.send(first_bytes)

    return open_stalled_connections(server, connection_count, send_part)


def open_binary_half_uploads(server: Server, connection_count: int) -> list[ServerConnection]:
    """Send a request of the binary protocol, two thirds of its value, and stop."""
    key, extras, value_bytes = b"half", bytes(8), 60_000
    body_bytes = len(key) + len(extras) + value_bytes
    header = struct.pack(">BBHBBHIIQ", 0x80, 1, len(key), len(extras), 0, 0, body_bytes, 0, 0)
    first_bytes = header + extras + key + bytes(40_000)

    def send_part(connection: ServerConnection, _number: int) -> None:
        connection.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.socket.send(first_bytes)

    return open_stalled_connections(server, connection_count, send_part)


def open_unread_dumps(server: Server, connection_count: int) -> list[ServerConnection]:
    """Request the table of key prefixes, which is large, and read nothing."""
    with server.connect(60) as connection:
        connection.send_request(b"stats detail on\r\n")
        for start in range(0, KEY_PREFIX_COUNT, 500):
            numbers = range(start, start + 500)
            connection.send(
                b"".join(b"get %s%06d:x\r\n" % (b"p" * 200, number) for number in numbers)
            )
            for _ in numbers:
                connection.read_line()
        connection.send_request(b"stats detail off\r\n")
    return open_stalled_connections(
        server,
        connection_count,
        lambda connection, _: connection.send(b"stats detail dump\r\n" * 2),
    )


def open_unread_watches(server: Server, connection_count: int) -> list[ServerConnection]:
    """Watch what changes and read nothing, while 50,000 values are set."""

    def watch(connection: ServerConnection, _number: int) -> None:
        connection.send_request(b"watch mutations\r\n")

    watchers = open_stalled_connections(server, connection_count, watch)
    with server.connect(60) as connection:
        for start in range(0, 50_000, 100):
            keys = (b"%s%05d" % (b"w" * 235, number) for number in range(start, start + 100))
            connection.send(b"".join(b"set %s 0 0 1\r\nx\r\n" % key for key in keys))
            for _ in range(100):
                connection.read_line()
    return watchers


def open_idle_watches(server: Server, connection_count: int) -> list[ServerConnection]:
    """Watch with heartbeats, which nobody reads."""

    def watch(connection: ServerConnection, _number: int) -> None:
        connection.send_request(b"watch mutations heartbeat\r\n")

    return open_stalled_connections(server, connection_count, watch)


def open_incomplete_records(server: Server, connection_count: int) -> list[ServerConnection]:
    """Send the header and most of a record of TLS and stop."""
    record = b"\x17\x03\x03\x41\x00" + bytes(16_600)

    def send_record(connection: ServerConnection, _number: int) -> None:
        os.write(connection.socket.fileno(), record)

    return open_stalled_connections(server, connection_count, send_record)


def open_half_values(server: Server, connection_count: int) -> list[ServerConnection]:
    """Send half of a value with TLS, in whole records, and stop."""

    def send_half(connection: ServerConnection, _number: int) -> None:
        connection.send(b"set half 0 0 60000\r\n" + bytes(30_000))

    return open_stalled_connections(server, connection_count, send_half)


def open_unfinished_handshakes(server: Server, connection_count: int) -> list[socket.socket]:
    """Send most of a long message of a handshake and stop."""
    hello = b"\x16\x03\x01\x3f\xff\x01\x00\xf0\x00\x03\x03" + bytes(15_000)
    sockets = []
    for _ in range(connection_count):
        with contextlib.suppress(OSError):
            sockets.append(socket.create_connection(("127.0.0.1", server.port), 5))
            sockets[-1].sendall(hello)
    return sockets


def open_half_logins(server: Server, connection_count: int) -> list[ServerConnection]:
    """Send half of a login and stop."""
    return open_raw_connections(server, connection_count, b"set auth 0 0 9\r\nuser ")


def open_half_proxy_headers(server: Server, connection_count: int) -> list[ServerConnection]:
    """Send half of the header of a proxy and stop."""
    return open_raw_connections(server, connection_count, PROXY_HEADER[:20])


def open_raw_connections(
    server: Server, connection_count: int, first_bytes: bytes
) -> list[ServerConnection]:
    """Connections that send these bytes instead of what the server requires first."""
    connections = []
    for _ in range(connection_count):
        with contextlib.suppress(OSError):
            connections.append(ServerConnection(server.port, 5, None))
            connections[-1].send(first_bytes)
    return connections


def log_in(connection: ServerConnection) -> None:
    """Logs in as the user of `ServerWithRequirement.users_file`."""
    if connection.set(b"auth", b"user pass") != b"STORED":
        raise ConnectionRefusedError("the login failed")


def send_proxy_header(connection: ServerConnection) -> None:
    """Sends the header with which a proxy names its client."""
    connection.send(PROXY_HEADER)


class ServerWithRequirement(Server):
    """A server whose connections have to begin with something: a login, or the header of a proxy."""

    def __init__(self, command: list[str], options: tuple[str, ...], scenario: Scenario) -> None:
        self.begin_connection = scenario.begin_connection
        with tempfile.NamedTemporaryFile("w", suffix=".users") as users_file:
            users_file.write("user:pass\n")
            users_file.flush()
            required = tuple(part.format(users=users_file.name) for part in scenario.options)
            super().__init__(command, options + required)

    def connect(
        self, timeout: float = REPLY_SECONDS, receive_buffer: int | None = None
    ) -> ServerConnection:
        """Opens a connection that has begun as the server requires."""
        connection = super().connect(timeout, receive_buffer)
        if self.begin_connection:
            self.begin_connection(connection)
        return connection


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A kind of peer: how its connections are opened, how many, and what the server requires of others."""

    open_connections: Callable[[Server, int], list[ServerConnection] | list[socket.socket]]
    connection_count: int
    is_encrypted: bool = False
    # `{users}` stands for the file of users.
    options: tuple[str, ...] = ()
    begin_connection: Callable[[ServerConnection], None] | None = None


SCENARIOS = {
    "readers": Scenario(open_readers_that_never_read, 300),
    "halves": Scenario(open_half_uploads, 10_000),
    "binary": Scenario(open_binary_half_uploads, 1_000),
    "dumps": Scenario(open_unread_dumps, 1_000),
    "watches": Scenario(open_unread_watches, 1_000),
    "heartbeats": Scenario(open_idle_watches, 1_000),
    "records": Scenario(open_incomplete_records, 900, is_encrypted=True),
    "values": Scenario(open_half_values, 600, is_encrypted=True),
    "handshakes": Scenario(open_unfinished_handshakes, 256, is_encrypted=True),
    "logins": Scenario(open_half_logins, 1_000, options=("-Y", "{users}"), begin_connection=log_in),
    "proxies": Scenario(
        open_half_proxy_headers,
        1_000,
        options=("--proxy-addresses", "127.0.0.1"),
        begin_connection=send_proxy_header,
    ),
}


def peer_counters(server: Server) -> dict[str, int]:
    """What the server counted."""
    with server.connect(30) as connection:
        connection.send(b"stats glasscache\r\n")
        counters = {}
        while (line := connection.read_line()) not in (b"END", b"ERROR", b""):
            _, name, value = line.decode().split(" ", 2)
            if name.startswith(("peer", "stalled", "buffer_bytes", "tls")):
                counters[name] = int(value)
        return counters


def measure(
    command: list[str], name: str, connection_count: int, seconds: float, connections_max: int
) -> dict[str, object]:
    """One scenario: figures before and during it, the peak of the memory and whether all held."""
    Protection.tls = None
    if SCENARIOS[name].is_encrypted:
        Protection.encrypt()
    options = ("-m", str(MEMORY_MB), "-c", str(connections_max))
    server = ServerWithRequirement(command, options, SCENARIOS[name])
    try:
        fill_memory(server)
        with MeasuringClient(server, has_large_reads=True) as idle_measurement:
            time.sleep(min(seconds, 3))
        with MeasuringClient(server, has_large_reads=True) as loaded_measurement:
            connections = SCENARIOS[name].open_connections(server, connection_count)
            cpu_seconds_before = server.cpu_seconds()
            time.sleep(seconds)
            cores = (server.cpu_seconds() - cpu_seconds_before) / seconds
        limit_mb = 1.02 * MEMORY_MB + RESIDENT_OVERHEAD_MB
        counted = peer_counters(server)
        figures = loaded_measurement.figures()
        are_peers_bounded = (
            counted["peer_bytes"] <= 1.1 * counted["peer_bytes_limit"]
            and counted["peer_bytes_faults"] == 0
        )
        result: dict[str, object] = {
            "scenario": name,
            "connections": connection_count,
            "resident_mb": round(loaded_measurement.peak_mb, 1),
            "limit_mb": round(limit_mb, 1),
            "before": idle_measurement.figures(),
            "during": figures,
            "cores": round(cores, 3),
            "failures": loaded_measurement.failures[:3],
            "counted": counted,
            "holds": loaded_measurement.peak_mb <= limit_mb
            and are_peers_bounded
            and figures["set_worst_ms"] <= SET_SECONDS_MAX * 1e3
            and not loaded_measurement.failures,
        }
        for connection in connections:
            peer = connection if isinstance(connection, socket.socket) else connection.socket
            peer.close()
        return result
    finally:
        server.kill()


def main() -> int:
    """Prints one line a scenario; returns 0 when memory stayed within the limit and no request failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--server", default="target/release/glasscache serve", help="command without options"
    )
    parser.add_argument("--only", choices=sorted(SCENARIOS), help="one scenario")
    parser.add_argument("--connections", type=int, help="instead of its own number")
    parser.add_argument("--connections-max", type=int, default=20_000, help="`-c` of the server")
    parser.add_argument("--seconds", type=float, default=6.0, help="after all are connected")
    args = parser.parse_args()
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    is_within_limits = True
    for scenario in [args.only] if args.only else list(SCENARIOS):
        connection_count = min(
            args.connections or SCENARIOS[scenario].connection_count,
            hard_limit - SPARE_DESCRIPTORS,
        )
        result = measure(
            args.server.split(), scenario, connection_count, args.seconds, args.connections_max
        )
        is_within_limits = is_within_limits and bool(result["holds"])
        print(json.dumps(result), flush=True)
    return 0 if is_within_limits else 1


if __name__ == "__main__":
    sys.exit(main())
