#!/usr/bin/env python3
"""What idle connections cost: resident memory of thousands of them after each did real work.

Every connection sets one 100 KB value (all the same key, so the data stays small) and reads 2,000
small keys in one get; then it stays open and sends nothing. Before that, the same work is done over
a few connections that are closed again: what is resident then is the empty server with the data and
the store's open segments. The requirement: all the idle connections together add at most 4 MiB to it.
Works on glasscache and on memcached: `python3 tests/live/idle_connections.py --server memcached`.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

from harness import Protection, Server, ServerConnection, require

LARGE_VALUE = bytes(100_000)
SMALL_KEYS = [b"small-%04d" % number for number in range(2000)]
ADDED_MIB_MAX = 4.0
# With TLS each has a session in addition.
TLS_KIB_PER_CONNECTION = 24
# Descriptors of this process in addition to the connections.
SPARE_DESCRIPTORS = 64
# Connections that do the work beforehand and are closed, and how often each does it: every worker
# of the server takes part, and its open segments and buffers reach their size.
WARM_UP_CONNECTIONS = 16
WARM_UP_ROUNDS = 50
# Connections that are opened between two lines of progress.
PROGRESS_STEP = 500
# What a server may take to let go of what it no longer needs.
SETTLE_SECONDS = 1.0


def store_and_read(connection: ServerConnection) -> None:
    """One connection's work: a large set, then a wide get whose values are counted."""
    require(connection.set(b"large", LARGE_VALUE) == b"STORED", "the large set was not stored")
    connection.send(b"get " + b" ".join(SMALL_KEYS) + b"\r\n")
    value_count = 0
    while (line := connection.read_line()) != b"END":
        require(line.startswith(b"VALUE "), f"get: reply {line!r}")
        require(connection.read_value(10) == b"0123456789", "another value than was set")
        value_count += 1
    require(value_count == len(SMALL_KEYS), f"{value_count} values of {len(SMALL_KEYS)}")


def main() -> int:
    """Prints the resident sizes and the cost per connection; returns 0 when the requirement holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--server", default="target/release/glasscache serve", help="command without options"
    )
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--tls", action="store_true", help="the same with TLS")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    added_mib_max = ADDED_MIB_MAX
    if args.tls:
        Protection.encrypt()
        added_mib_max += args.connections * TLS_KIB_PER_CONNECTION / 1024
    descriptors_needed = args.connections + SPARE_DESCRIPTORS
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < descriptors_needed:
        print(
            f"this shell allows {hard_limit} descriptors, {descriptors_needed} are needed:"
            f" ulimit -n {descriptors_needed}"
        )
        return 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft_limit, descriptors_needed), hard_limit))

    server = Server(args.server.split(), ("-m", "1024", "-c", str(descriptors_needed)))
    empty_mib = server.resident_mb()
    with server.connect() as connection:
        for key in SMALL_KEYS:
            connection.set(key, b"0123456789")
    for _ in range(WARM_UP_CONNECTIONS):
        with server.connect() as connection:
            for _ in range(WARM_UP_ROUNDS):
                store_and_read(connection)
    time.sleep(SETTLE_SECONDS)
    data_mib = server.resident_mb()
    connections = []
    for number in range(args.connections):
        connections.append(server.connect())
        store_and_read(connections[-1])
        if sys.stderr.isatty() and (number + 1) % PROGRESS_STEP == 0:
            print(f"{number + 1} connections, {server.resident_mb():.1f} MiB", file=sys.stderr)
    time.sleep(SETTLE_SECONDS)
    idle_mib = server.resident_mb()
    server.kill()
    figures = {
        "connections": args.connections,
        "empty_mib": round(empty_mib, 2),
        "data_mib": round(data_mib, 2),
        "idle_mib": round(idle_mib, 2),
        "added_mib": round(idle_mib - data_mib, 2),
        "bytes_per_connection": round((idle_mib - data_mib) * 1024 * 1024 / args.connections),
    }
    if args.json:
        print(json.dumps(figures))
    else:
        print(
            f"empty {empty_mib:.2f} MiB; with the data, all connections closed, {data_mib:.2f} MiB"
        )
        print(
            f"{args.connections} idle connections: {idle_mib:.2f} MiB, so they add"
            f" {idle_mib - data_mib:.2f} MiB "
            f"(<= {added_mib_max:.1f}), {figures['bytes_per_connection']} bytes each"
        )
    return 0 if idle_mib - data_mib <= added_mib_max else 1


if __name__ == "__main__":
    sys.exit(main())
