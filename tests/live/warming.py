#!/usr/bin/env python3
"""What clients of two servers notice of `glasscache warm`, and how much the new one hits afterwards.

An old server is filled beyond its memory and read by Zipf, then copied to an empty one while one reader
measures single gets at both by turns. At the end the same reads go to both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from harness import Server, ServerConnection, p99

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE_BYTES = 1000
ZIPF_EXPONENT = 0.9
BATCH = 500
RATIO_MAX = 2.0
POINTS_MAX = 1.0
# One turn of the reader at a server.
INTERVAL_S = 0.25


class Keys:
    """Keys drawn by Zipf, the same for every server that gets the same seed."""

    def __init__(self, count: int) -> None:
        self.count = count
        weights = ((rank + 1) ** -ZIPF_EXPONENT for rank in range(count))
        self.cumulative = list(itertools.accumulate(weights))

    def draw(self, seed: int, count: int) -> list[bytes]:
        """Keys of `count` reads."""
        ranks = random.Random(seed).choices(range(self.count), cum_weights=self.cumulative, k=count)
        return [b"key:%d" % rank for rank in ranks]


def fill(server: Server, count: int) -> None:
    """Stores every key, the most popular last."""
    value = b"v" * VALUE_BYTES
    with server.connect() as connection:
        for first in range(count, 0, -BATCH):
            ranks = range(first - 1, max(first - 1 - BATCH, -1), -1)
            connection.send(
                b"".join(
                    b"set key:%d 0 0 %d noreply\r\n%s\r\n" % (rank, VALUE_BYTES, value)
                    for rank in ranks
                )
            )
            connection.send_request(b"mn\r\n")


def hits(server: Server, keys: list[bytes]) -> int:
    """How many of the reads hit."""
    found = 0
    with server.connect() as connection:
        for first in range(0, len(keys), BATCH):
            batch = keys[first : first + BATCH]
            connection.send(b"".join(b"mg %s\r\n" % key for key in batch) + b"mn\r\n")
            while (line := connection.read_line()) != b"MN":
                found += line == b"HD"
    return found


def latencies(
    connections: tuple[ServerConnection, ServerConnection],
    keys: list[bytes],
    is_over: Callable[[], bool],
) -> tuple[list[float], list[float]]:
    """Microseconds of single gets at both servers by turns, until the function says that it is over."""
    found: tuple[list[float], list[float]] = ([], [])
    draws = itertools.cycle(keys)
    for side in itertools.cycle((0, 1)):
        if is_over():
            return found
        interval_ends = time.monotonic() + INTERVAL_S
        while time.monotonic() < interval_ends:
            begun = time.perf_counter()
            connections[side].get(next(draws))
            found[side].append((time.perf_counter() - begun) * 1e6)
    raise AssertionError("the turns never end by themselves")


def measure(old: Server, new: Server, args: argparse.Namespace) -> bool:
    """Prints the figures; returns whether each is within its bound."""
    keys = Keys(args.keys)
    fill(old, args.keys)
    hits(old, keys.draw(1, args.reads))
    reads = keys.draw(2, args.reads)
    with old.connect() as at_old, new.connect() as at_new:
        ends = time.monotonic() + args.seconds
        before = latencies((at_old, at_new), reads, lambda: time.monotonic() > ends)
        command = [args.binary, "warm", "--json", "--from", f"127.0.0.1:{old.port}"]
        command += ["--to", f"127.0.0.1:{new.port}", *args.option]
        began = time.monotonic()
        copy = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        during = latencies((at_old, at_new), reads, lambda: copy.poll() is not None)
        took = time.monotonic() - began
    document = json.loads(copy.communicate()[0])
    if copy.returncode != 0:
        sys.exit(f"the copy failed: {document['error']}")
    copied = document["result"]
    print(
        f"{copied['copied_items']:,} items, {copied['copied_bytes']:,} bytes copied in {took:.1f} s"
    )
    is_good = True
    for side, name in enumerate(("old", "new")):
        ratio = p99(during[side]) / p99(before[side])
        is_good = is_good and ratio <= RATIO_MAX
        print(
            f"get at the {name} server, us: p50 {statistics.median(before[side]):.0f} before, "
            f"{statistics.median(during[side]):.0f} during; p99 {p99(before[side]):.0f} before, "
            f"{p99(during[side]):.0f} during, ratio {ratio:.2f}"
        )
    reads = keys.draw(3, args.reads)
    points = [100 * hits(server, reads) / len(reads) for server in (old, new)]
    print(
        f"hits of {len(reads):,} reads: {points[0]:.2f} % at the old server, {points[1]:.2f} % at the new one"
    )
    return is_good and points[0] - points[1] <= POINTS_MAX


def main() -> int:
    """Measures and returns 0 if everything is within its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="target/release/glasscache")
    parser.add_argument("--old", help="command of the old server; default: ours")
    parser.add_argument("--new", help="command of the new server; default: ours")
    parser.add_argument("--memory", type=int, default=1024, help="-m of both, in MB")
    parser.add_argument("--keys", type=int, default=1_300_000)
    parser.add_argument("--reads", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=10, help="of the reader before the copy")
    parser.add_argument("--option", action="append", default=[], help="more of `warm`")
    args = parser.parse_args()
    commands = [(command or f"{args.binary} serve").split() for command in (args.old, args.new)]
    servers: list[Server] = []
    try:
        servers.extend(Server(command, ("-m", str(args.memory))) for command in commands)
        return 0 if measure(servers[0], servers[1], args) else 1
    finally:
        for server in servers:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
