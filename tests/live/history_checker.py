"""The process that checks recorded histories while the run goes on, as soon as a key's period is over."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import linearizability
from histories import TICK_S, Batch, Flush, period_end
from linearizability import NEVER, Operation
from session import Report

if TYPE_CHECKING:
    import multiprocessing

    from session import Plan

# Flushes are kept this long: more than any period and any delay.
FLUSHES_KEPT_S = 60.0


class HistoryChecker:
    """Gathers what all processes recorded of a key, and checks it."""

    def __init__(self, processes: int) -> None:
        self.checked_until = dict.fromkeys(range(processes), -NEVER)
        self.unchecked: dict[bytes, list[Operation]] = defaultdict(list)
        self.flushes: list[Flush] = []
        self.report = Report()

    def add_batch(self, batch: Batch) -> None:
        """Adds a batch and checks the keys whose period is over for every process."""
        self.checked_until[batch.process] = batch.until
        self.flushes += batch.flushes
        for name, operations in batch.operations.items():
            self.unchecked[name] += operations
        complete_until = min(self.checked_until.values())
        for name in [name for name in self.unchecked if period_end(name) <= complete_until]:
            self.check_key(name, self.unchecked.pop(name))
        if complete_until != NEVER:
            oldest = complete_until - FLUSHES_KEPT_S
            self.flushes = [flush for flush in self.flushes if flush.operation.end > oldest]

    def check_key(self, name: bytes, operations: list[Operation]) -> None:
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
        result = linearizability.check([*operations, *flushes])
        found = result.violation or linearizability.reused_unique(operations)
        if not found and name[:1] == b"t":
            found = linearizability.found_expired(operations, TICK_S)
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
    """The body of the process: checks until every process has sent its last batch."""
    history_checker = HistoryChecker(plan.processes)
    while min(history_checker.checked_until.values()) != NEVER:
        history_checker.add_batch(batches.get())
    reports.put(history_checker.report)
