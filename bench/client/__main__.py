"""Python clients side by side against one server: what each call of everyday costs.

    python bench/client --server 127.0.0.1:11211 [--repetitions 12] [--scale 1] [--cpu 0]
        [--rows TEXT,TEXT] [--keep FILE]

Server and clients should share one CPU (the server is started so by `make bench-client`): across
CPUs the wake-ups make any client vary threefold. Clients alternate within each repetition, a new
one first each time; a round ends when the server has digested what was sent to it. A figure is the
median over repetitions, with the least and the most beside it; the ratio to ours is the median of
the ratios of neighbouring rounds, which a busy machine disturbs least, with the middle half of them
and the required ratio beside it. CPU is the client's own, per call. A client that is not installed is left
out and named; one that takes longer than half a second for a call has one round.

All rows take about three minutes at scale 1; how far it is goes to stderr. A run may take only some
(`--rows`): what is kept in FILE of other rows stays there.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from concurrent_calls import ASYNCIO, THREADS, asyncio_rows, threads_row
from figures import print_result, run_environment, write_results
from peers import open_clients
from rounds import measure
from rows import rows_of
from warm_up import WARM_UP_CALLS, warm_up_name, warm_up_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def main() -> None:
    """Measure, print and keep each chosen row."""
    arguments = options()
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    logging.disable(logging.CRITICAL)  # meta-memcache logs whole values
    clients = open_clients(arguments.server)
    for result in every_row(clients, arguments):
        print_result(result)
        if arguments.keep:
            environment = run_environment(arguments.keep, arguments.repetitions, arguments.scale)
            write_results(arguments.keep, result, environment)


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--server", default="127.0.0.1:11211")
    parser.add_argument("--repetitions", type=int, default=12)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--cpu", type=int, help="pin this process to one CPU")
    parser.add_argument("--rows", default="", help="only rows whose name has one of these texts")
    parser.add_argument("--keep", metavar="FILE", type=Path, help="write all figures as JSON")
    return parser.parse_args()


def every_row(clients: dict[str, Any], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the record of each chosen row as soon as it is measured, and print how far it is."""
    address, repetitions_and_scale = arguments.server, (arguments.repetitions, arguments.scale)
    parts: list[tuple[str, Callable[[], list[dict[str, Any]]]]] = [
        (row.name, lambda row=row: [measure(row, *repetitions_and_scale)])
        for row in rows_of(clients)
    ]
    parts += [
        (warm_up_name(count), lambda count=count: [warm_up_row(address, count, arguments.scale)])
        for count in WARM_UP_CALLS
    ]
    parts.append((THREADS, lambda: [threads_row(address, *repetitions_and_scale)]))
    parts.append((ASYNCIO, lambda: asyncio.run(asyncio_rows(address, *repetitions_and_scale))))
    texts = arguments.rows.split(",")
    chosen = [part for name, part in parts if any(text in name for text in texts)]
    begin = time.monotonic()
    for done, part in enumerate(chosen, 1):
        yield from part()
        spent = time.monotonic() - begin
        left = spent / done * (len(chosen) - done)
        print(f"{done} of {len(chosen)}, {spent:.0f} s, some {left:.0f} s left", file=sys.stderr)


if __name__ == "__main__":
    main()
