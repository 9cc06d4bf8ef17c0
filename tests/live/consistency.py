#!/usr/bin/env python3
"""Concurrent checked operations against a live server: every reply must be one a correct cache can give.

Starts the server and lets several processes work on common keys, see `checker`. With `--faulty MODE` it
runs against a server of its own that is wrong once in a thousand operations, and must find the fault. With
`--soak` it also samples resident memory and descriptors and ends with their slope.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

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
GROWTH_MB_MAX = 2.0
# How far the means of the first and last third of that time may lie apart, in MiB.
THIRDS_DIFFERENCE_MB_MAX = 1.0


def run_checker_process(
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
    shared_versions = SharedVersions(plan.key_count, plan.counter_count * 2)
    reports: multiprocessing.Queue[Report] = multiprocessing.Queue()
    # Bounded: processes wait where the decisions do not keep up.
    batches: multiprocessing.Queue[Batch] = multiprocessing.Queue(maxsize=256)
    processes = [
        multiprocessing.Process(
            target=run_checker_process, args=(plan, number, shared_versions, batches, reports)
        )
        for number in range(plan.process_count)
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
        total.lost_items += report.lost_items
        total.killed_requests += report.killed_requests
        total.refused_writes += report.refused_writes
    for process in processes:
        process.join()
    return total


def server_stats(server: Server) -> dict[str, str]:
    """The rows of `stats`."""
    stats = {}
    with server.connect() as connection:
        line = connection.send_request(b"stats\r\n")
        while line != b"END":
            _, name, value = line.decode().split(" ", 2)
            stats[name] = value
            line = connection.read_line()
    return stats


class Sample(NamedTuple):
    """What the server held at one time."""

    time_s: float
    resident_mb: float
    descriptor_count: int


class Sampler:
    """Samples resident memory and descriptors every second."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.samples: list[Sample] = []
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        started_at = time.monotonic()
        while not self._stop_event.wait(1.0):
            try:
                sample = Sample(
                    time.monotonic() - started_at,
                    self.server.resident_mb(),
                    self.server.open_descriptor_count(),
                )
            except OSError:
                return
            self.samples.append(sample)

    def stop(self) -> None:
        """Ends the sampling."""
        self._stop_event.set()
        self._thread.join()

    def slope_and_growth_after_warm_up(self) -> tuple[float, float]:
        """The slope of resident memory after the warm-up by least squares, and its growth in MB."""
        after_warm_up = self.samples[int(len(self.samples) * WARM_UP_SHARE) :]
        if len(after_warm_up) < 10:
            return 0.0, 0.0
        mean_time_s = sum(sample.time_s for sample in after_warm_up) / len(after_warm_up)
        mean_resident_mb = sum(resident_mb for _, resident_mb, _ in after_warm_up) / len(
            after_warm_up
        )
        time_variance_sum = sum((time_s - mean_time_s) ** 2 for time_s, _, _ in after_warm_up)
        covariance_sum = sum(
            (time_s - mean_time_s) * (resident_mb - mean_resident_mb)
            for time_s, resident_mb, _ in after_warm_up
        )
        slope_mb_per_s = covariance_sum / time_variance_sum
        return slope_mb_per_s * 3600, slope_mb_per_s * (
            after_warm_up[-1].time_s - after_warm_up[0].time_s
        )

    def thirds_mb(self) -> tuple[float, float, float]:
        """The mean resident memory of each third of the time after the warm-up, in MiB."""
        resident_mb_after_warm_up = [
            megabytes for _, megabytes, _ in self.samples[int(len(self.samples) * WARM_UP_SHARE) :]
        ]
        third_length = max(len(resident_mb_after_warm_up) // 3, 1)
        parts = (
            resident_mb_after_warm_up[:third_length],
            resident_mb_after_warm_up[third_length:-third_length],
            resident_mb_after_warm_up[-third_length:],
        )
        first, middle, last = (sum(part) / max(len(part), 1) for part in parts)
        return first, middle, last


def print_report(report: Report, evictions: int, seconds: float) -> bool:
    """Print the report, and return whether it has neither violations nor errors."""
    operations = sum(report.operations.values())
    print(
        f"{operations} operations in {seconds:.0f} s, {report.killed_requests} connections killed, "
        f"{evictions} evictions"
    )
    print(
        f"misses of acknowledged items: {report.lost_items}, refused writes: {report.refused_writes}"
    )
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
    lost_without_eviction = report.lost_items if evictions == 0 and flushes == 0 else 0
    if lost_without_eviction:
        print(f"violation: {lost_without_eviction} items were lost although nothing was evicted")
    violation_count = len(report.violations) + lost_without_eviction
    print(f"{violation_count} violations, {len(report.errors)} errors")
    return violation_count == 0 and not report.errors


def check_server(args: argparse.Namespace) -> bool:
    """Runs the check against a server of the given command, sampling it when a soak is wanted."""
    server = Server(args.server.split(), ("-m", str(args.memory), "-c", "4096"))
    plan = Plan(
        server.port,
        process_count=args.processes,
        key_count=args.keys,
        duration_s=args.seconds,
        kill_rate=args.kill_rate,
        flush_s=flush_seconds(args),
        seed=args.seed,
    )
    sampler = Sampler(server)
    report = run_plan(plan)
    sampler.stop()
    stats_at_end = server_stats(server)
    is_good = print_report(report, int(stats_at_end["evictions"]), args.seconds)
    if args.soak:
        slope_mb_per_hour, growth_mb = sampler.slope_and_growth_after_warm_up()
        thirds_mb = sampler.thirds_mb()
        thirds_difference_mb = abs(thirds_mb[2] - thirds_mb[0])
        descriptors_at_end = server.open_descriptor_count()
        descriptors_under_load = [count for _, _, count in sampler.samples]
        descriptors_when_idle = descriptors_after_another_connection(server)
        first_resident_mb = sampler.samples[0].resident_mb
        print(
            f"resident {first_resident_mb:.1f} MB at first, {server.resident_mb():.1f} MB at last"
        )
        print(
            f"slope after warm-up {slope_mb_per_hour:+.2f} MB an hour, "
            f"that is {growth_mb:+.2f} MB in this run (bound {GROWTH_MB_MAX} MB)"
        )
        print(
            "mean resident of the thirds after warm-up "
            f"{', '.join(f'{mean:.2f}' for mean in thirds_mb)} MiB, "
            f"{thirds_difference_mb:.2f} MiB between the first and the last "
            f"(bound {THIRDS_DIFFERENCE_MB_MAX} MiB)"
        )
        print(
            f"descriptors: at most {max(descriptors_under_load)} under load, "
            f"{descriptors_at_end} at the end, "
            f"{descriptors_when_idle} after a new connection was opened and closed"
        )
        is_good = (
            is_good
            and abs(growth_mb) <= GROWTH_MB_MAX
            and thirds_difference_mb <= THIRDS_DIFFERENCE_MB_MAX
            and descriptors_when_idle <= descriptors_at_end
        )
    server.kill()
    return is_good


def flush_seconds(args: argparse.Namespace) -> float:
    """The mean time between flushes: in a soak long enough for memory to be full in between."""
    if args.flush_seconds is not None:
        return float(args.flush_seconds)
    return 20.0 if args.soak else 10.0


def descriptors_after_another_connection(server: Server) -> int:
    """Descriptors after one more connection was opened and closed."""
    server.connect().socket.close()
    time.sleep(0.2)
    return server.open_descriptor_count()


def check_faulty(mode: str, seconds: float, fault_rate: float) -> bool:
    """The check must find a violation in a faulty server, and none in the same server without faults."""
    flush_s = 0.5 if mode in faulty.FLUSHED_MODES else 0.0
    with faulty.faulty_server(mode, fault_rate) as port:
        plan = Plan(port, process_count=4, key_count=60, duration_s=seconds, kill_rate=0.0)
        report = run_plan(replace(plan, large_bytes=30_000, flush_s=flush_s))
    finding_count = len(report.violations) + (0 if flush_s else report.lost_items)
    operations = sum(report.operations.values())
    print(
        f"faulty server, mode {mode}: {finding_count} findings in {operations} operations; "
        f"{len(report.errors)} errors"
    )
    for violation in (report.violations + report.errors)[:2]:
        print(f"  {violation}")
    is_without_fault = mode in {"none", "flushed"}
    return (finding_count == 0 and not report.errors) if is_without_fault else finding_count > 0


def main() -> int:
    """Returns 0 when the server, or the check itself, behaved as required."""
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
        linearizability_cases.check_all_cases()
        modes = faulty.MODES if args.faulty == "all" else [args.faulty]
        results = [check_faulty(mode, min(args.seconds, 15.0), 0.001) for mode in modes]
        return 0 if all(results) else 1
    print(f"seed {args.seed}, -m {args.memory}")
    return 0 if check_server(args) else 1


if __name__ == "__main__":
    sys.exit(main())
