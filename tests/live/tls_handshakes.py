#!/usr/bin/env python3
"""What plain clients notice of full TLS handshakes at a fixed rate: the latency of gets.

One process opens TLS connections by schedule, each with a full handshake and one request, and closes
them. A client of the same worker, without TLS, reads a small value meanwhile.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import sys
import time

from certificates import ELLIPTIC, RSA, Authority
from harness import Server, Wire, free_port

RATIO_MAX = 2.0


def shake_hands(port: int, authority: str, rate: float, seconds: float, done: object) -> None:
    """Opens `rate` connections a second, late ones at once, and puts how many were served."""
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
    done.put((served, time.monotonic() - begun))  # type: ignore[attr-defined]


def latencies(wire: Wire, seconds: float) -> list[float]:
    """Microseconds of gets."""
    found = []
    ends = time.monotonic() + seconds
    while (begun := time.perf_counter()) and time.monotonic() < ends:
        wire.get(b"key")
        found.append((time.perf_counter() - begun) * 1e6)
    return found


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def main() -> int:
    """Prints both percentiles and their ratio; returns 0 if it is within the demand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    parser.add_argument("--rate", type=float, default=300, help="handshakes a second")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rsa", action="store_true", help="an RSA 2048 key instead of ECDSA P-256")
    args = parser.parse_args()
    authority = Authority()
    identity = authority.sign("server", RSA if args.rsa else ELLIPTIC)
    port = free_port()
    listen = ("-l", f"notls:127.0.0.1:{port}", "-t", "1")
    server = Server(
        args.server.split(), ("-m", "64", *listen, *identity.options()), plain_port=port
    )
    done: multiprocessing.Queue[tuple[int, float]] = multiprocessing.Queue()
    try:
        with server.connect() as wire:
            wire.set(b"key", b"x" * 100)
            before = latencies(wire, args.seconds)
            load = (server.tls_port, str(authority.file), args.rate, args.seconds, done)
            client = multiprocessing.Process(target=shake_hands, args=load)
            client.start()
            during = latencies(wire, args.seconds)
            served, took = done.get()
            client.join()
    finally:
        server.kill()
    ratio = p99(during) / p99(before)
    print(f"{served} handshakes in {took:.1f} s, {served / took:.0f} a second")
    print(
        f"get, p50: {statistics.median(before):.0f} us without, {statistics.median(during):.0f} us with"
    )
    print(f"get, p99: {p99(before):.0f} us without, {p99(during):.0f} us with, ratio {ratio:.2f}")
    return 0 if ratio <= RATIO_MAX and served >= args.rate * args.seconds * 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
