"""Compares Python clients against one server: the rate and the CPU time of everyday calls.

    python bench/client --server 127.0.0.1:11211 [--repetitions 12] [--scale 1] [--cpu 0]
        [--rows TEXT,TEXT] [--keep FILE]

Server and clients should share one CPU (the server is started so by `make bench-client`): across
CPUs the wake-ups make any client vary threefold. Clients alternate within each repetition, a new
one first each time; the round of a client in it ends when the server has processed what was sent to
it. A figure is the median over repetitions, printed with the least and the most; the ratio to ours
is the median of the ratios of neighbouring rounds, which a busy machine disturbs least, with the middle
half of them and the required ratio beside it. CPU is the client's own, per call. A client that is not
installed is left out and named; one that takes longer than half a second for a call has one round.

All rows take about three minutes at scale 1; the progress goes to stderr. A run may take only some
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

from concurrent_calls import ASYNCIO_ROWS, THREADS_ROW, asyncio_rows, threads_row
from figures import print_result, run_environment, write_results
from peers import open_clients
from rounds import measure_row
from rows import make_rows
from warm_up import WARM_UP_CALLS, warm_up_name, warm_up_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def main() -> None:
    """Measure, print and keep each chosen row."""
    arguments = parse_options()
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    logging.disable(logging.CRITICAL)  # meta-memcache logs whole values
    clients = open_clients(arguments.server)
    for result in measure_chosen_rows(clients, arguments):
        print_result(result)
        if arguments.keep:
            environment = run_environment(arguments.keep, arguments.repetitions, arguments.scale)
            write_results(arguments.keep, result, environment)


def parse_options() -> argparse.Namespace:
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


def measure_chosen_rows(
    clients: dict[str, Any], arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the record of each chosen row as soon as it is measured, and print the progress."""
    address, repetitions_and_scale = arguments.server, (arguments.repetitions, arguments.scale)
    measurements: list[tuple[str, Callable[[], list[dict[str, Any]]]]] = [
        (row.name, lambda row=row: [measure_row(row, *repetitions_and_scale)])
        for row in make_rows(clients)
    ]
    measurements += [
        (warm_up_name(count), lambda count=count: [warm_up_row(address, count, arguments.scale)])
        for count in WARM_UP_CALLS
    ]
    measurements.append((THREADS_ROW, lambda: [threads_row(address, *repetitions_and_scale)]))
    measurements.append(
        (ASYNCIO_ROWS, lambda: asyncio.run(asyncio_rows(address, *repetitions_and_scale)))
    )
    wanted_texts = arguments.rows.split(",")
    chosen = [
        measure_rows
        for name, measure_rows in measurements
        if any(text in name for text in wanted_texts)
    ]
    started_at = time.monotonic()
    for measured_count, measure_rows in enumerate(chosen, 1):
        yield from measure_rows()
        elapsed_s = time.monotonic() - started_at
        remaining_s = elapsed_s / measured_count * (len(chosen) - measured_count)
        print(
            f"{measured_count} of {len(chosen)}, {elapsed_s:.0f} s, some {remaining_s:.0f} s left",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
