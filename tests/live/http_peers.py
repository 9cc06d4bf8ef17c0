#!/usr/bin/env python3
"""What malformed requests to the HTTP port cost: the latency of gets, and resident memory.

Each request is a valid one with bytes changed, cut off, repeated or replaced, or is random. Every
response has to be one of HTTP, or the connection closed; afterwards metrics are served as before.
Times are printed and decide nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import re
import socket
import statistics
import sys
import time

from harness import Server, free_port, p99, require

ATTACKER_COUNT = 4
# Above what 64 connections of at most 264 KB, and their sockets, can take.
RESIDENT_GROWTH_MB_MAX = 24.0

PATHS = ("/", "/metrics", "/healthz", "/readyz", "/api/slow", "/api/hotkeys?window=1m&by=bytes")
HEADS = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer x\r\n\r\n",
    "HEAD {path} HTTP/1.0\r\n\r\n",
    "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n0123456789",
    "GET {path} HTTP/1.1\r\nHost: evil.example\r\nOrigin: https://evil.example\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "get key\r\nset a 0 0 1\r\nx\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)
RESPONSE = re.compile(rb"HTTP/1\.1 [2-5][0-9][0-9] [^\r\n]+\r\n(?:[^\r\n]+\r\n)+\r\n", re.ASCII)


def make_request(rng: random.Random) -> bytes:
    """A request that is not quite one."""
    request = bytearray(rng.choice(HEADS).replace("{path}", rng.choice(PATHS)).encode("latin-1"))
    match rng.randrange(7):
        case 0:
            for _ in range(rng.randrange(1, 8)):
                request[rng.randrange(len(request))] = rng.randrange(256)
        case 1:
            del request[rng.randrange(len(request)) :]
        case 2:
            start = rng.randrange(len(request))
            request[start:start] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40)))
        case 3:
            request = request.replace(b"\r\n", b"\n")
        case 4:
            line = b"X-Field: " + b"v" * rng.randrange(9000) + b"\r\n"
            request = request.replace(b"\r\n", b"\r\n" + line * rng.randrange(1, 3), 1)
        case 5:
            request = bytearray(rng.randbytes(rng.randrange(1, 300)))
        case _:
            request *= rng.randrange(2, 40)
    return bytes(request)


def send_requests(port: int, count: int, seed: int, faults: multiprocessing.Queue[str]) -> None:
    """Sends so many malformed requests, each over a connection of its own."""
    rng = random.Random(seed)
    for _ in range(count):
        request = make_request(rng)
        response = b""
        # A reset: the server does not read an input that is too long to its end.
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", port), 30) as connection,
        ):
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                response += chunk
        if response and not RESPONSE.match(response):
            faults.put(f"{request[:200]!r} had the response {response[:200]!r}")


def get_latencies_us(
    server: Server, seconds: float, processes: list[multiprocessing.Process]
) -> list[float]:
    """Microseconds of the gets of one client, for so long or until the processes have ended."""
    latencies_us = []
    with server.connect() as connection:
        connection.set(b"key", b"x" * 100)
        deadline = time.monotonic() + seconds
        while any(process.is_alive() for process in processes) or time.monotonic() < deadline:
            started_at = time.perf_counter()
            connection.get(b"key")
            latencies_us.append((time.perf_counter() - started_at) * 1e6)
    return latencies_us


def read_metrics(port: int) -> bytes:
    """The response to a request for metrics."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = b""
        while chunk := connection.recv(1 << 16):
            response += chunk
    return response


def main() -> int:
    """Prints the latencies and memory; fails if a response is malformed or memory grows beyond its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5, help="of the baseline")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    http_port = free_port()
    server = Server(args.server.split(), ("-m", "64", "--http", str(http_port)))
    faults: multiprocessing.Queue[str] = multiprocessing.Queue()
    try:
        require(b" 200 " in read_metrics(http_port)[:20], "no metrics at the start")
        before_us = get_latencies_us(server, args.seconds, [])
        before_mb = server.resident_mb()
        attackers = [
            multiprocessing.Process(
                target=send_requests,
                args=(http_port, args.requests // ATTACKER_COUNT, args.seed + number, faults),
            )
            for number in range(ATTACKER_COUNT)
        ]
        started_at = time.monotonic()
        for attacker in attackers:
            attacker.start()
        during_us = get_latencies_us(server, 0, attackers)
        seconds = time.monotonic() - started_at
        require(all(attacker.exitcode == 0 for attacker in attackers), "a client failed")
        require(faults.empty(), "" if faults.empty() else faults.get())
        resident_mb = server.resident_mb()
        require(server.is_alive(), "the server does not respond")
        require(b"\nmemcached_up 1\n" in read_metrics(http_port), "no metrics at the end")
    finally:
        server.kill()
    print(f"{args.requests} malformed requests in {seconds:.1f} s, seed {args.seed}")
    print(f"resident: {before_mb:.1f} MB before, {resident_mb:.1f} MB after")
    for name, percentile in (("p50", statistics.median), ("p99", p99)):
        before, during = percentile(before_us), percentile(during_us)
        print(f"get, {name}: {before:.0f} us before, {during:.0f} us during")
    grown_mb = resident_mb - before_mb
    require(grown_mb <= RESIDENT_GROWTH_MB_MAX, f"resident memory grew by {grown_mb:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
