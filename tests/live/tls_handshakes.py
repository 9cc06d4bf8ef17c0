#!/usr/bin/env python3
"""What full TLS handshakes at a fixed rate cost clients without TLS: the latency of gets.

One process opens TLS connections by schedule, each with a full handshake and one request, and closes
them. A client of the same worker, without TLS, reads a small value meanwhile.

Where processors are few, the process that opens the connections takes more of them than the server
does, and the kernel likes to run it on the processor of a worker that it exchanges bytes with. So the
same gets are timed three times in each round: without handshakes; as the control while another server
makes the handshakes and each is followed by a connection without TLS and one request at their own
server, which is what the load costs on this machine; and while their own server makes the handshakes.
With `--apart` that process has a processor of its own, as on another machine, and the gets and the
worker have another; the thread of the handshakes runs where the kernel wants.

With `--hostile` no handshake is completed: the clients stop half-way, send nothing or no TLS, offer
TLS 1.1 at most, or present no certificate, a foreign one or one that has expired, where one is required.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import multiprocessing
import os
import pathlib
import resource
import socket
import ssl
import statistics
import sys
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from certificates import ELLIPTIC_CURVE_KEY, RSA_KEY, Authority, Identity
from harness import Server, ServerConnection, free_port, p99, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack
    from multiprocessing.connection import Connection

RATIO_MAX = 2.0
# The head of a record with a client's hello of 512 bytes, of which few come.
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)
# Unfinished handshakes that are open at a time.
UNFINISHED_HANDSHAKES = 64


@dataclass(frozen=True)
class Schedule:
    """Connections that a process of its own opens: where, how often and for how long."""

    tls_port: int
    plain_port: int | None
    authority_file: str
    refused_identities: tuple[Identity, ...]
    """Certificates that the server does not accept; none if it requires none."""
    rate: float
    seconds: float
    processor: int | None


def open_connections(schedule: Schedule, sending_end: Connection) -> None:
    """Opens them, late ones at once, and sends how many ended as expected."""
    if schedule.processor is not None:
        os.sched_setaffinity(0, {schedule.processor})
    attempts = (
        hostile_attempts(schedule) if schedule.refused_identities else [honest_attempt(schedule)]
    )
    started_at, expected_count = time.monotonic(), 0
    for number in range(int(schedule.rate * schedule.seconds)):
        time.sleep(max(0.0, started_at + number / schedule.rate - time.monotonic()))
        expected_count += attempts[number % len(attempts)]()
        if schedule.plain_port is not None:
            with socket.create_connection(("127.0.0.1", schedule.plain_port), 10) as connection:
                require(is_served(connection), "a connection without TLS was not served")
    sending_end.send((expected_count, time.monotonic() - started_at))


def honest_attempt(schedule: Schedule) -> Callable[[], bool]:
    """A full handshake and a request; whether it was served."""
    context = ssl.create_default_context(cafile=schedule.authority_file)
    return lambda: is_encrypted_and_served(schedule.tls_port, context)


def hostile_attempts(schedule: Schedule) -> list[Callable[[], bool]]:
    """Handshakes that a server refuses or waits for; whether it served nothing."""
    tls_1_1_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls_1_1_context.check_hostname, tls_1_1_context.verify_mode = False, ssl.CERT_NONE
    tls_1_1_context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        tls_1_1_context.minimum_version = tls_1_1_context.maximum_version = ssl.TLSVersion.TLSv1_1
    contexts = [tls_1_1_context, ssl.create_default_context(cafile=schedule.authority_file)]
    for identity in schedule.refused_identities:
        contexts.append(ssl.create_default_context(cafile=schedule.authority_file))
        contexts[-1].load_cert_chain(identity.chain, identity.key)
    open_sockets: collections.deque[socket.socket] = collections.deque(maxlen=UNFINISHED_HANDSHAKES)

    def attempt_refused_handshake(context: ssl.SSLContext) -> bool:
        try:
            return not is_encrypted_and_served(schedule.tls_port, context)
        except OSError:
            return True

    def leave_handshake_unfinished(data: bytes) -> bool:
        if len(open_sockets) == UNFINISHED_HANDSHAKES:
            open_sockets.popleft().close()
        open_sockets.append(socket.create_connection(("127.0.0.1", schedule.tls_port), 10))
        open_sockets[-1].sendall(data)
        return True

    unfinished_attempts = [
        functools.partial(leave_handshake_unfinished, data)
        for data in (b"", HALF_HELLO, b"get key\r\n")
    ]
    return [
        *(functools.partial(attempt_refused_handshake, context) for context in contexts),
        *unfinished_attempts,
    ]


def is_encrypted_and_served(port: int, context: ssl.SSLContext) -> bool:
    """Whether a new connection completes its handshake and gets a reply."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain_socket,
        context.wrap_socket(plain_socket, server_hostname="localhost") as connection,
    ):
        return is_served(connection)


def is_served(connection: socket.socket) -> bool:
    """Whether a request gets its reply."""
    # Else the request waits until the end of the handshake is acknowledged, up to 40 ms.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(b"mn\r\n")
    return connection.recv(4) == b"MN\r\n"


def get_latencies_us(connection: ServerConnection, seconds: float) -> list[float]:
    """Microseconds of gets."""
    latencies_us: list[float] = []
    deadline = time.monotonic() + seconds
    while not latencies_us or time.monotonic() < deadline:
        started_at = time.perf_counter()
        connection.get(b"key")
        latencies_us.append((time.perf_counter() - started_at) * 1e6)
    return latencies_us


def start_server(command: list[str], options: tuple[str, ...]) -> Server:
    """A server of one worker with TLS, and without it on a second port."""
    port = free_port()
    listen_options = ("-l", f"notls:127.0.0.1:{port}", "-t", "1")
    return Server(command, ("-m", "64", *listen_options, *options), plain_port=port)


@dataclass
class Condition:
    """The gets that were timed under one condition."""

    name: str
    latencies_us: list[float] = field(default_factory=list)
    p99_by_round: list[float] = field(default_factory=list)
    handshake_count: int = 0
    seconds: float = 0.0
    generator_cpu_s: float = 0.0
    server_cpu_s: float = 0.0

    def measure(self, connection: ServerConnection, seconds: float, load: Load | None) -> None:
        """Times gets of one round, with handshakes at a server or without."""
        if load is None:
            self._add(get_latencies_us(connection, seconds))
            return
        usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        server_cpu_s_before = load.server.cpu_seconds()
        with load.running():
            self._add(get_latencies_us(connection, seconds))
            handshake_count, duration_s = load.finish()
        usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.handshake_count += handshake_count
        self.seconds += duration_s
        self.generator_cpu_s += usage_after.ru_utime + usage_after.ru_stime
        self.generator_cpu_s -= usage_before.ru_utime + usage_before.ru_stime
        self.server_cpu_s += load.server.cpu_seconds() - server_cpu_s_before

    def _add(self, latencies_us: list[float]) -> None:
        self.latencies_us += latencies_us
        self.p99_by_round.append(p99(latencies_us))

    def print_line(self) -> None:
        """Prints one line of the table."""
        low, high = min(self.p99_by_round), max(self.p99_by_round)
        print(
            f"  {self.name:36} p50 {statistics.median(self.latencies_us):5.0f} us"
            f"   p99 {p99(self.latencies_us):6.0f} us ({low:.0f} to {high:.0f} by round)"
        )


class Load:
    """Connections opened by a process of their own; `server` makes the handshakes."""

    def __init__(self, server: Server, schedule: Schedule) -> None:
        self.server, self._schedule = server, schedule

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Runs the process; it is ended at the end of the block at the latest."""
        self._receiving_end, sending_end = multiprocessing.Pipe(duplex=False)
        arguments = (self._schedule, sending_end)
        self._process = multiprocessing.Process(target=open_connections, args=arguments)
        self._process.start()
        sending_end.close()  # The process has the only other end, so that its death ends the wait.
        try:
            yield
        finally:
            self._process.kill()
            self._process.join()

    def finish(self) -> tuple[int, float]:
        """Waits for the end; returns how many connections were served, and in how many seconds."""
        try:
            result: tuple[int, float] = self._receiving_end.recv()
        except EOFError:
            raise SystemExit("the process that opens connections failed") from None
        self._process.join()
        return result


class Subject:
    """One build of the server with one kind of key, under the three conditions."""

    def __init__(
        self,
        name: str,
        command: list[str],
        key_options: list[str],
        is_hostile: bool,
        servers: ExitStack,
    ) -> None:
        self.name, self.is_rsa = name, key_options is RSA_KEY
        self._authority = Authority()
        self._refused: tuple[Identity, ...] = ()
        identity = self._authority.sign("server", key_options)
        options = identity.options()
        if is_hostile:
            expired = self._authority.sign("expired", days=-1)
            self._foreign = Authority("foreign")
            self._refused = (expired, self._foreign.sign("client"))
            options = identity.options("ssl_verify_mode=2", f"ssl_ca_cert={self._authority.file}")
        self._own_server, self._other_server = (
            start_server(command, options),
            start_server(command, options),
        )
        servers.callback(self._own_server.kill)
        servers.callback(self._other_server.kill)
        self._connection = servers.enter_context(self._own_server.connect())
        self._connection.set(b"key", b"x" * 100)
        self._baseline = Condition("without handshakes")
        self._control = Condition("handshakes at another server")
        self._measured = Condition("handshakes at their own server")

    def pin_workers(self, processor: int) -> None:
        """Keeps the workers on one processor."""
        for server in (self._own_server, self._other_server):
            for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
                if "worker" in (task / "comm").read_text():
                    os.sched_setaffinity(int(task.name), {processor})

    def measure(self, rate: float, seconds: float, processor: int | None) -> None:
        """One round."""
        authority = str(self._authority.file)
        own_server_schedule = Schedule(
            self._own_server.tls_port, None, authority, self._refused, rate, seconds, processor
        )
        other_server_schedule = replace(
            own_server_schedule,
            tls_port=self._other_server.tls_port,
            plain_port=self._own_server.port,
        )
        self._baseline.measure(self._connection, seconds, None)
        self._control.measure(
            self._connection, seconds, Load(self._other_server, other_server_schedule)
        )
        self._measured.measure(
            self._connection, seconds, Load(self._own_server, own_server_schedule)
        )

    def print_table(self) -> None:
        """Prints the table with its ratios."""
        measured, control, baseline = self._measured, self._control, self._baseline
        if not (control.handshake_count and measured.handshake_count):
            raise SystemExit("no connection was served; raise --rate or --seconds")
        key_name = "RSA 2048" if self.is_rsa else "ECDSA P-256"
        rate = measured.handshake_count / measured.seconds
        print(
            f"{self.name}, {key_name}: {measured.handshake_count} handshakes at {rate:.0f} a second"
        )
        for condition in (baseline, control, measured):
            condition.print_line()
        generator_us = measured.generator_cpu_s / measured.handshake_count * 1e6
        # The CPU time of the measured server includes the gets, so that of the other server is printed.
        server_us = control.server_cpu_s / control.handshake_count * 1e6
        print(
            f"  CPU of a TLS connection: {server_us:.0f} us of the server,"
            f" {generator_us:.0f} us of its client"
        )
        load_ratio = p99(control.latencies_us) / p99(baseline.latencies_us)
        encrypted_ratio = p99(measured.latencies_us) / p99(control.latencies_us)
        print(f"  p99: {self.ratio():.2f} times that without handshakes (at most {RATIO_MAX}),")
        print(
            f"       of which the load {load_ratio:.2f} times, and the server {encrypted_ratio:.2f} times"
        )

    def ratio(self) -> float:
        """The p99 with handshakes to that without."""
        return p99(self._measured.latencies_us) / p99(self._baseline.latencies_us)

    def is_required(self, key_kinds: str) -> bool:
        """Whether its ratio decides the result: that of ECDSA, and of RSA only if measured alone."""
        return self.name == "server" and (key_kinds == "rsa" or not self.is_rsa)

    def completed_handshakes(self) -> int:
        """Handshakes that their own server completed."""
        return self._measured.handshake_count


def main() -> int:
    """Prints the percentiles and their ratios; returns 0 if the required ratio is small enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    parser.add_argument("--against", help="another build, measured in the same rounds")
    parser.add_argument("--rate", type=float, default=300, help="handshakes a second")
    parser.add_argument("--seconds", type=float, default=3, help="of each condition in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--keys", choices=("both", "ecdsa", "rsa"), default="both", help="kinds of the server's key"
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="gets and worker on one processor, the process that opens connections on another",
    )
    parser.add_argument("--hostile", action="store_true", help="handshakes that fail")
    args = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))
    if args.apart and len(processors) < 2:
        raise SystemExit("--apart needs two processors")
    builds = [("server", args.server)]
    if args.against:
        builds.append(("the other build", args.against))
    key_options_lists = {
        "both": [ELLIPTIC_CURVE_KEY, RSA_KEY],
        "ecdsa": [ELLIPTIC_CURVE_KEY],
        "rsa": [RSA_KEY],
    }[args.keys]
    with contextlib.ExitStack() as servers:
        subjects = [
            Subject(name, command.split(), key_options, args.hostile, servers)
            for key_options in key_options_lists
            for name, command in builds
        ]
        if args.apart:
            os.sched_setaffinity(0, {processors[0]})
            for subject in subjects:
                subject.pin_workers(processors[0])
        for _ in range(args.rounds):
            for subject in subjects:
                subject.measure(args.rate, args.seconds, processors[-1] if args.apart else None)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}; gets of a plain connection:")
    for subject in subjects:
        subject.print_table()
    wanted_handshakes = args.rate * args.seconds * args.rounds * 0.99
    required = [subject for subject in subjects if subject.is_required(args.keys)]
    is_met = all(
        subject.ratio() <= RATIO_MAX and subject.completed_handshakes() >= wanted_handshakes
        for subject in required
    )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
