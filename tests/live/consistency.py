#!/usr/bin/env python3
"""Concurrent checked operations against a live server: every reply must be one a correct cache can give.

Starts the server, or takes a running one with `--port`, and lets several processes work on common
keys, see `checker`. With `--faulty MODE` it runs against a server of its own that is wrong once in a
thousand operations, and must find that out: the proof that the check checks. With `--soak` it also
samples resident memory and descriptors and ends with their slope.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import faulty
import linearizability_cases
from checker import Checker
from harness import Server
from history_checker import check_histories
from session import Plan, Report
from shared_versions import SharedVersions

if TYPE_CHECKING:
    from histories import Batch

# The first part of a soak is warm-up: memory fills, tables grow.
WARM_UP_SHARE = 0.3
# Growth over the rest that still counts as none, in MB: the grain of the allocator's arenas.
GROWTH_MB = 2.0
# How far the means of the first and last third of that time may lie apart, in MiB.
THIRDS_MB = 1.0


def work(
    plan: Plan,
    number: int,
    shared_versions: SharedVersions,
    batches: multiprocessing.Queue[Batch],
    reports: multiprocessing.Queue[Report],
) -> None:
    """The body of one process."""
    checker = Checker(plan, number, shared_versions)
    checker.send_batch = batches.put
    reports.put(checker.run())


def run_plan(plan: Plan) -> Report:
    """Runs all processes of a plan and adds their reports up."""
    shared_versions = SharedVersions(plan.keys, plan.counters * 2)
    reports: multiprocessing.Queue[Report] = multiprocessing.Queue()
    # Bounded: processes wait where the decisions do not keep up.
    batches: multiprocessing.Queue[Batch] = multiprocessing.Queue(maxsize=256)
    processes = [
        multiprocessing.Process(target=work, args=(plan, number, shared_versions, batches, reports))
        for number in range(plan.processes)
    ]
    history_checker = multiprocessing.Process(target=check_histories, args=(plan, batches, reports))
    processes.append(history_checker)
    for process in processes:
        process.start()
    total = Report()
    for _ in processes:
        report = reports.get()
        total.operations += report.operations
        total.history += report.history
        total.violations += report.violations
        total.errors += report.errors
        total.lost += report.lost
        total.killed += report.killed
        total.refused += report.refused
    for process in processes:
        process.join()
    return total


def stats(server: Server) -> dict[str, str]:
    """The rows of `stats`."""
    rows = {}
    with server.connect() as connection:
        line = connection.send_request(b"stats\r\n")
        while line != b"END":
            _, name, value = line.decode().split(" ", 2)
            rows[name] = value
            line = connection.read_line()
    return rows


class Sampler:
    """Samples resident memory and descriptors every second."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.samples: list[tuple[float, float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._stop.wait(1.0):
            try:
                sample = (
                    time.monotonic() - begun,
                    self.server.resident_mb(),
                    self.server.descriptors(),
                )
            except OSError:
                return
            self.samples.append(sample)

    def stop(self) -> None:
        """Ends the sampling."""
        self._stop.set()
        self._thread.join()

    def slope_mb_per_hour(self) -> tuple[float, float]:
        """The slope of resident memory after the warm-up by least squares, and its growth in MB."""
        kept = self.samples[int(len(self.samples) * WARM_UP_SHARE) :]
        if len(kept) < 10:
            return 0.0, 0.0
        mean_t = sum(t for t, _, _ in kept) / len(kept)
        mean_m = sum(m for _, m, _ in kept) / len(kept)
        spread = sum((t - mean_t) ** 2 for t, _, _ in kept)
        slope = sum((t - mean_t) * (m - mean_m) for t, m, _ in kept) / spread
        return slope * 3600, slope * (kept[-1][0] - kept[0][0])

    def thirds_mb(self) -> tuple[float, float, float]:
        """The mean resident memory of each third of the time after the warm-up, in MiB."""
        kept = [
            megabytes for _, megabytes, _ in self.samples[int(len(self.samples) * WARM_UP_SHARE) :]
        ]
        third = max(len(kept) // 3, 1)
        parts = kept[:third], kept[third:-third], kept[-third:]
        first, middle, last = (sum(part) / max(len(part), 1) for part in parts)
        return first, middle, last


def print_report(report: Report, evictions: int, seconds: float) -> bool:
    """Prints what was seen; true when nothing was wrong."""
    operations = sum(report.operations.values())
    print(
        f"{operations} operations in {seconds:.0f} s, {report.killed} connections killed, "
        f"{evictions} evictions"
    )
    print(f"misses of acknowledged items: {report.lost}, refused writes: {report.refused}")
    for error in report.errors[:5]:
        print(f"error: {error}")
    for violation in report.violations[:10]:
        print(f"violation: {violation}")
    history = report.history
    print(
        f"{history['keys']} histories with {history['decided operations']} operations decided, "
        f"{history['undecided']} undecided; {history['flushes']} flushes and "
        f"{history['flushes of prefixes']} of prefixes, {history['wins']} leases won, "
        f"{history['cas done']} of {history['cas done'] + history['cas exists']} cas succeeded"
    )
    flushes = history["flushes"] + history["flushes of prefixes"]
    lost_for_nothing = report.lost if evictions == 0 and flushes == 0 else 0
    if lost_for_nothing:
        print(f"violation: {lost_for_nothing} items were lost although nothing was evicted")
    count = len(report.violations) + lost_for_nothing
    print(f"{count} violations, {len(report.errors)} errors")
    return count == 0 and not report.errors


def check_server(args: argparse.Namespace) -> bool:
    """Runs the check against a server of the given command, sampling it when a soak is wanted."""
    server = Server(args.server.split(), ("-m", str(args.memory), "-c", "4096"))
    plan = Plan(
        server.port,
        processes=args.processes,
        keys=args.keys,
        seconds=args.seconds,
        kill_rate=args.kill_rate,
        flush_s=flush_seconds(args),
        seed=args.seed,
    )
    sampler = Sampler(server)
    report = run_plan(plan)
    sampler.stop()
    after = stats(server)
    good = print_report(report, int(after["evictions"]), args.seconds)
    if args.soak:
        slope, growth = sampler.slope_mb_per_hour()
        thirds = sampler.thirds_mb()
        apart = abs(thirds[2] - thirds[0])
        left = server.descriptors()
        busy = [count for _, _, count in sampler.samples]
        idle = sampler_idle(server)
        print(
            f"resident {sampler.samples[0][1]:.1f} MB at first, {server.resident_mb():.1f} MB at last"
        )
        print(
            f"slope after warm-up {slope:+.2f} MB an hour, that is {growth:+.2f} MB in this run "
            f"(bound {GROWTH_MB} MB)"
        )
        print(
            f"mean resident of the thirds after warm-up {', '.join(f'{mean:.2f}' for mean in thirds)} MiB, "
            f"{apart:.2f} MiB between the first and the last (bound {THIRDS_MB} MiB)"
        )
        print(
            f"descriptors: at most {max(busy)} under load, {left} at the end, {idle} after a new "
            "connection came and went"
        )
        good = good and abs(growth) <= GROWTH_MB and apart <= THIRDS_MB and idle <= left
    server.kill()
    return good


def flush_seconds(args: argparse.Namespace) -> float:
    """The mean time between flushes: in a soak long enough for memory to be full in between."""
    if args.flush_seconds is not None:
        return float(args.flush_seconds)
    return 20.0 if args.soak else 10.0


def sampler_idle(server: Server) -> int:
    """Descriptors after one more connection came and went."""
    server.connect().socket.close()
    time.sleep(0.2)
    return server.descriptors()


def check_faulty(mode: str, seconds: float, rate: float) -> bool:
    """The check must find a violation in a faulty server, and none in the same server without faults."""
    flush_s = 0.5 if mode in faulty.FLUSHED_MODES else 0.0
    with faulty.running(mode, rate) as port:
        plan = Plan(port, processes=4, keys=60, seconds=seconds, kill_rate=0.0)
        report = run_plan(replace(plan, large_bytes=30_000, flush_s=flush_s))
    found = len(report.violations) + (0 if flush_s else report.lost)
    operations = sum(report.operations.values())
    print(
        f"faulty server, mode {mode}: {found} findings in {operations} operations; "
        f"{len(report.errors)} errors"
    )
    for violation in (report.violations + report.errors)[:2]:
        print(f"  {violation}")
    is_right = mode in {"none", "flushed"}
    return (found == 0 and not report.errors) if is_right else found > 0


def main() -> int:
    """Returns 0 when the server, or the check itself, did as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--server", default="target/release/glasscache serve", help="command without options"
    )
    parser.add_argument(
        "--memory", type=int, default=24, help="megabytes; 24 makes it evict, 1024 does not"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--keys", type=int, default=20000)
    parser.add_argument(
        "--kill-rate", type=float, default=0.006, help="share of operations cut off"
    )
    parser.add_argument(
        "--flush-seconds",
        type=float,
        help="mean time between flushes [default: 10; a soak: 20]; 0: none",
    )
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--soak", action="store_true", help="watch memory and descriptors too")
    parser.add_argument(
        "--faulty", choices=["all", *faulty.MODES], help="prove the check on a wrong server"
    )
    args = parser.parse_args()
    if args.faulty:
        linearizability_cases.run()
        modes = faulty.MODES if args.faulty == "all" else [args.faulty]
        results = [check_faulty(mode, min(args.seconds, 15.0), 0.001) for mode in modes]
        return 0 if all(results) else 1
    print(f"seed {args.seed}, -m {args.memory}")
    return 0 if check_server(args) else 1


if __name__ == "__main__":
    sys.exit(main())
