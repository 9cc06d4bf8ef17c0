#!/usr/bin/env python3
"""What plain clients notice of full TLS handshakes at a fixed rate: the latency of gets.

One process opens TLS connections by schedule, each with a full handshake and one request, and closes
them. A client of the same worker, without TLS, reads a small value meanwhile.

Where processors are few, the process that opens the connections takes as much of them as the server
does. So the same gets are timed three times in each round: without handshakes, while another server makes
them (the control: what the load itself costs on this machine), and while their own server makes them.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import resource
import socket
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from certificates import ELLIPTIC, RSA, Authority, Identity
from harness import Server, Wire, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

RATIO_MAX = 2.0


def shake_hands(
    port: int, authority: str, rate: float, seconds: float, results: Connection
) -> None:
    """Opens `rate` connections a second, late ones at once, and sends how many were served."""
    import ssl

    context = ssl.create_default_context(cafile=authority)
    begun, served = time.monotonic(), 0
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wire,
        ):
            # Else the request waits until the end of the handshake is acknowledged, up to 40 ms.
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.sendall(b"mn\r\n")
            served += wire.recv(4) == b"MN\r\n"
    results.send((served, time.monotonic() - begun))


def latencies(wire: Wire, seconds: float) -> list[float]:
    """Microseconds of gets."""
    timed: list[float] = []
    ends = time.monotonic() + seconds
    while not timed or time.monotonic() < ends:
        begun = time.perf_counter()
        wire.get(b"key")
        timed.append((time.perf_counter() - begun) * 1e6)
    return timed


def p99(values: list[float]) -> float:
    """The 99th percentile; of one value that value."""
    return statistics.quantiles(values * 2 if len(values) == 1 else values, n=100)[98]


def start(command: list[str], identity: Identity) -> Server:
    """A server of one worker with TLS, and without it on a second port."""
    port = free_port()
    listen = ("-l", f"notls:127.0.0.1:{port}", "-t", "1")
    return Server(command, ("-m", "64", *listen, *identity.options()), plain_port=port)


@dataclass
class Condition:
    """The gets that were timed under one condition."""

    name: str
    microseconds: list[float] = field(default_factory=list)
    p99_by_round: list[float] = field(default_factory=list)
    handshakes: int = 0
    seconds: float = 0.0
    generator_cpu_s: float = 0.0
    server_cpu_s: float = 0.0

    def measure(self, wire: Wire, seconds: float, load: Load | None) -> None:
        """Times gets of one round, with handshakes at a server or without."""
        if load is None:
            self._add(latencies(wire, seconds))
            return
        cpu_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        server_cpu_before = load.server.cpu_seconds()
        with load.started(seconds):
            self._add(latencies(wire, seconds))
            served, took = load.finish()
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.handshakes += served
        self.seconds += took
        self.generator_cpu_s += cpu.ru_utime + cpu.ru_stime
        self.generator_cpu_s -= cpu_before.ru_utime + cpu_before.ru_stime
        self.server_cpu_s += load.server.cpu_seconds() - server_cpu_before

    def _add(self, microseconds: list[float]) -> None:
        self.microseconds += microseconds
        self.p99_by_round.append(p99(microseconds))

    def print(self) -> None:
        """One line of the table."""
        low, high = min(self.p99_by_round), max(self.p99_by_round)
        print(
            f"{self.name:36} p50 {statistics.median(self.microseconds):5.0f} us"
            f"   p99 {p99(self.microseconds):6.0f} us ({low:.0f} to {high:.0f} by round)"
        )


class Load:
    """Handshakes at a server, made by a process of their own."""

    def __init__(self, server: Server, authority: Authority, rate: float) -> None:
        self.server = server
        self._authority, self._rate = str(authority.file), rate

    @contextlib.contextmanager
    def started(self, seconds: float) -> Iterator[None]:
        """Runs the process for this long; it is ended at the end of the block at the latest."""
        self._results, results = multiprocessing.Pipe(duplex=False)
        arguments = (self.server.tls_port, self._authority, self._rate, seconds, results)
        self._process = multiprocessing.Process(target=shake_hands, args=arguments)
        self._process.start()
        results.close()  # The process has the only other end, so that its death ends the wait.
        try:
            yield
        finally:
            self._process.kill()
            self._process.join()

    def finish(self) -> tuple[int, float]:
        """Waits for the end; how many connections were served, and in how many seconds."""
        try:
            result: tuple[int, float] = self._results.recv()
        except EOFError:
            raise SystemExit("the process that opens connections failed") from None
        self._process.join()
        return result


def main() -> int:
    """Prints the percentiles and their ratios; returns 0 if that to the baseline is within the demand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    parser.add_argument("--rate", type=float, default=300, help="handshakes a second")
    parser.add_argument("--seconds", type=float, default=3, help="of each condition in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rsa", action="store_true", help="an RSA 2048 key instead of ECDSA P-256")
    args = parser.parse_args()
    authority = Authority()
    identity = authority.sign("server", RSA if args.rsa else ELLIPTIC)
    command = args.server.split()
    baseline = Condition("without handshakes")
    control = Condition("handshakes at another server")
    measured = Condition("handshakes at their own server")
    with contextlib.ExitStack() as servers:
        own = start(command, identity)
        servers.callback(own.kill)
        other = start(command, identity)
        servers.callback(other.kill)
        with own.connect() as wire:
            wire.set(b"key", b"x" * 100)
            for _ in range(args.rounds):
                baseline.measure(wire, args.seconds, None)
                control.measure(wire, args.seconds, Load(other, authority, args.rate))
                measured.measure(wire, args.seconds, Load(own, authority, args.rate))
    if not (control.handshakes and measured.handshakes):
        raise SystemExit("no connection was served; raise --rate or --seconds")
    rate = measured.handshakes / measured.seconds
    print(f"{measured.handshakes} handshakes at {rate:.0f} a second; gets of a plain connection:")
    for condition in (baseline, control, measured):
        condition.print()
    generator_us = control.generator_cpu_s / control.handshakes * 1e6
    server_us = control.server_cpu_s / control.handshakes * 1e6
    print(
        f"CPU of a connection: {server_us:.0f} us of the server, {generator_us:.0f} us of its client"
    )
    ratio = p99(measured.microseconds) / p99(baseline.microseconds)
    print(f"p99: {ratio:.2f} times that without handshakes (at most {RATIO_MAX})")
    load_ratio = p99(control.microseconds) / p99(baseline.microseconds)
    own_ratio = p99(measured.microseconds) / p99(control.microseconds)
    print(
        f"     of which the load alone {load_ratio:.2f} times, and the server {own_ratio:.2f} times"
    )
    wanted = args.rate * args.seconds * args.rounds * 0.99
    return 0 if ratio <= RATIO_MAX and measured.handshakes >= wanted else 1


if __name__ == "__main__":
    sys.exit(main())
