#!/usr/bin/env python3
"""The latency that `glasscache warm` costs the clients of two servers, and the hit ratio of the new one.

An old server is filled beyond its memory and read by Zipf, then copied to an empty one while one reader
measures single gets at both alternately. At the end the same reads go to both.
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
KEYS_PER_BATCH = 500
RATIO_MAX = 2.0
HIT_RATIO_LOSS_POINTS_MAX = 1.0
# How long the reader stays at one server.
INTERVAL_S = 0.25


class ZipfKeys:
    """Keys drawn by Zipf, the same for every server that gets the same seed."""

    def __init__(self, key_count: int) -> None:
        self.key_count = key_count
        weights = ((rank + 1) ** -ZIPF_EXPONENT for rank in range(key_count))
        self.cumulative_weights = list(itertools.accumulate(weights))

    def draw(self, seed: int, read_count: int) -> list[bytes]:
        """Keys of `read_count` reads."""
        ranks = random.Random(seed).choices(
            range(self.key_count), cum_weights=self.cumulative_weights, k=read_count
        )
        return [b"key:%d" % rank for rank in ranks]


def store_all_keys(server: Server, key_count: int) -> None:
    """Stores every key, the most popular last."""
    value = b"v" * VALUE_BYTES
    with server.connect() as connection:
        for first_index in range(key_count, 0, -KEYS_PER_BATCH):
            ranks = range(first_index - 1, max(first_index - 1 - KEYS_PER_BATCH, -1), -1)
            connection.send(
                b"".join(
                    b"set key:%d 0 0 %d noreply\r\n%s\r\n" % (rank, VALUE_BYTES, value)
                    for rank in ranks
                )
            )
            connection.send_request(b"mn\r\n")


def count_hits(server: Server, keys: list[bytes]) -> int:
    """How many of the reads hit."""
    hit_count = 0
    with server.connect() as connection:
        for first_index in range(0, len(keys), KEYS_PER_BATCH):
            batch_of_keys = keys[first_index : first_index + KEYS_PER_BATCH]
            connection.send(b"".join(b"mg %s\r\n" % key for key in batch_of_keys) + b"mn\r\n")
            while (line := connection.read_line()) != b"MN":
                hit_count += line == b"HD"
    return hit_count


def alternating_latencies_us(
    connections: tuple[ServerConnection, ServerConnection],
    keys: list[bytes],
    is_over: Callable[[], bool],
) -> tuple[list[float], list[float]]:
    """Microseconds of single gets at both servers alternately, until `is_over` returns true."""
    latencies_us: tuple[list[float], list[float]] = ([], [])
    endless_keys = itertools.cycle(keys)
    for server_index in itertools.cycle((0, 1)):
        if is_over():
            return latencies_us
        interval_end = time.monotonic() + INTERVAL_S
        while time.monotonic() < interval_end:
            started_at = time.perf_counter()
            connections[server_index].get(next(endless_keys))
            latencies_us[server_index].append((time.perf_counter() - started_at) * 1e6)
    raise AssertionError("itertools.cycle never ends")


def measure(old_server: Server, new_server: Server, args: argparse.Namespace) -> bool:
    """Prints the figures; returns whether each is within its bound."""
    zipf_keys = ZipfKeys(args.keys)
    store_all_keys(old_server, args.keys)
    count_hits(old_server, zipf_keys.draw(1, args.reads))
    read_keys = zipf_keys.draw(2, args.reads)
    with old_server.connect() as old_connection, new_server.connect() as new_connection:
        baseline_end = time.monotonic() + args.seconds
        before_us = alternating_latencies_us(
            (old_connection, new_connection), read_keys, lambda: time.monotonic() > baseline_end
        )
        command = [args.binary, "warm", "--json", "--from", f"127.0.0.1:{old_server.port}"]
        command += ["--to", f"127.0.0.1:{new_server.port}", *args.option]
        copy_started_at = time.monotonic()
        copy_process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        during_us = alternating_latencies_us(
            (old_connection, new_connection), read_keys, lambda: copy_process.poll() is not None
        )
        copy_s = time.monotonic() - copy_started_at
    document = json.loads(copy_process.communicate()[0])
    if copy_process.returncode != 0:
        sys.exit(f"the copy failed: {document['error']}")
    copy_result = document["result"]
    print(
        f"{copy_result['copied_items']:,} items, {copy_result['copied_bytes']:,} bytes"
        f" copied in {copy_s:.1f} s"
    )
    is_good = True
    for server_index, name in enumerate(("old", "new")):
        server_before_us, server_during_us = before_us[server_index], during_us[server_index]
        ratio = p99(server_during_us) / p99(server_before_us)
        is_good = is_good and ratio <= RATIO_MAX
        print(
            f"get at the {name} server, us: p50 {statistics.median(server_before_us):.0f} before, "
            f"{statistics.median(server_during_us):.0f} during; p99 {p99(server_before_us):.0f} before, "
            f"{p99(server_during_us):.0f} during, ratio {ratio:.2f}"
        )
    read_keys = zipf_keys.draw(3, args.reads)
    hit_percentages = [
        100 * count_hits(server, read_keys) / len(read_keys) for server in (old_server, new_server)
    ]
    print(
        f"hits of {len(read_keys):,} reads: {hit_percentages[0]:.2f} % at the old server,"
        f" {hit_percentages[1]:.2f} % at the new one"
    )
    return is_good and hit_percentages[0] - hit_percentages[1] <= HIT_RATIO_LOSS_POINTS_MAX


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
