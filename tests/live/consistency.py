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

import faulty
from checker import Checker
from harness import Server
from ledger import Ledger
from session import Plan, Report

# The first part of a soak is warm-up: memory fills, tables grow.
WARM_UP_SHARE = 0.3
# Growth over the rest that still counts as none, in MB: the grain of the allocator's arenas.
GROWTH_MB = 2.0


def work(plan: Plan, number: int, ledger: Ledger, reports: multiprocessing.Queue[Report]) -> None:
    """The body of one process."""
    reports.put(Checker(plan, number, ledger).run())


def run_plan(plan: Plan) -> Report:
    """Runs all processes of a plan and adds their reports up."""
    ledger = Ledger(plan.keys, plan.counters * 2)
    reports: multiprocessing.Queue[Report] = multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=work, args=(plan, number, ledger, reports))
        for number in range(plan.processes)
    ]
    for process in processes:
        process.start()
    total = Report()
    for _ in processes:
        report = reports.get()
        total.operations += report.operations
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
    with server.connect() as wire:
        line = wire.ask(b"stats\r\n")
        while line != b"END":
            _, name, value = line.decode().split(" ", 2)
            rows[name] = value
            line = wire.line()
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


def tell(report: Report, evictions: int, seconds: float) -> bool:
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
    lost_for_nothing = report.lost if evictions == 0 else 0
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
        seed=args.seed,
    )
    sampler = Sampler(server)
    report = run_plan(plan)
    sampler.stop()
    after = stats(server)
    good = tell(report, int(after["evictions"]), args.seconds)
    if args.soak:
        slope, growth = sampler.slope_mb_per_hour()
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
            f"descriptors: at most {max(busy)} under load, {left} at the end, {idle} after a new "
            "connection came and went"
        )
        good = good and abs(growth) <= GROWTH_MB and idle <= left
    server.kill()
    return good


def sampler_idle(server: Server) -> int:
    """Descriptors after one more connection came and went."""
    server.connect().socket.close()
    time.sleep(0.2)
    return server.descriptors()


def check_faulty(mode: str, seconds: float, rate: float) -> bool:
    """The check must find a violation in a faulty server, and none in the same server without faults."""
    with faulty.running(mode, rate) as port:
        report = run_plan(
            Plan(port, processes=4, keys=60, seconds=seconds, kill_rate=0.0, large_bytes=30_000)
        )
    found = len(report.violations) + report.lost
    operations = sum(report.operations.values())
    print(
        f"faulty server, mode {mode}: {found} findings in {operations} operations; "
        f"{len(report.errors)} errors"
    )
    for violation in (report.violations + report.errors)[:2]:
        print(f"  {violation}")
    return (found == 0 and not report.errors) if mode == "none" else found > 0


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
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--soak", action="store_true", help="watch memory and descriptors too")
    parser.add_argument(
        "--faulty", choices=["all", *faulty.MODES], help="prove the check on a wrong server"
    )
    args = parser.parse_args()
    if args.faulty:
        modes = faulty.MODES if args.faulty == "all" else [args.faulty]
        results = [check_faulty(mode, min(args.seconds, 15.0), 0.001) for mode in modes]
        return 0 if all(results) else 1
    print(f"seed {args.seed}, -m {args.memory}")
    return 0 if check_server(args) else 1


if __name__ == "__main__":
    sys.exit(main())
