"""The process that decides recorded histories while the run goes on, as soon as a key's period is over."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import linear
from histories import TICK_S, Batch, Flush, period_end
from linear import NEVER, Operation
from session import Report

if TYPE_CHECKING:
    import multiprocessing

    from session import Plan

# Flushes are kept this long: more than any period and any delay.
FLUSHES_KEPT_S = 60.0


class HistoryChecker:
    """Gathers what all processes recorded of a key, and decides it."""

    def __init__(self, processes: int) -> None:
        self.until = dict.fromkeys(range(processes), -NEVER)
        self.waiting: dict[bytes, list[Operation]] = defaultdict(list)
        self.flushes: list[Flush] = []
        self.report = Report()

    def take(self, batch: Batch) -> None:
        """Adds a batch and decides the keys whose period is over for every process."""
        self.until[batch.process] = batch.until
        self.flushes += batch.flushes
        for name, operations in batch.operations.items():
            self.waiting[name] += operations
        everybody = min(self.until.values())
        for name in [name for name in self.waiting if period_end(name) <= everybody]:
            self.decide(name, self.waiting.pop(name))
        if everybody != NEVER:
            oldest = everybody - FLUSHES_KEPT_S
            self.flushes = [flush for flush in self.flushes if flush.operation.end > oldest]

    def decide(self, name: bytes, operations: list[Operation]) -> None:
        """Checks one key's history with the flushes of its time."""
        first = min(operation.start for operation in operations)
        last = max(operation.start for operation in operations)
        flushes = [
            flush.operation
            for flush in self.flushes
            if name.startswith(flush.prefix)
            and flush.operation.end >= first
            and flush.operation.start <= last
        ]
        result = linear.check([*operations, *flushes])
        found = result.violation or linear.reused_unique(operations)
        if not found and name[:1] == b"t":
            found = linear.outlived(operations, TICK_S)
        if found:
            self.report.violations.append(f"{name!r}: {found}")
        history = self.report.history
        history["keys"] += 1
        history["undecided"] += result.is_undecided
        if not result.is_undecided:
            history["decided operations"] += len(operations)


def check_histories(
    plan: Plan,
    batches: multiprocessing.Queue[Batch],
    reports: multiprocessing.Queue[Report],
) -> None:
    """The body of the process: decides until every process has shipped its last batch."""
    check_history = HistoryChecker(plan.processes)
    while min(check_history.until.values()) != NEVER:
        check_history.take(batches.get())
    reports.put(check_history.report)
