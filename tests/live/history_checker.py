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

    def __init__(self, process_count: int) -> None:
        self.checked_until_by_process = dict.fromkeys(range(process_count), -NEVER)
        self.unchecked_operations_by_key: dict[bytes, list[Operation]] = defaultdict(list)
        self.flushes: list[Flush] = []
        self.report = Report()

    def add_batch(self, batch: Batch) -> None:
        """Adds a batch and checks the keys whose period is over for every process."""
        self.checked_until_by_process[batch.process_number] = batch.recorded_until
        self.flushes += batch.flushes
        for key, operations in batch.operations_by_key.items():
            self.unchecked_operations_by_key[key] += operations
        complete_until = min(self.checked_until_by_process.values())
        for key in [
            key for key in self.unchecked_operations_by_key if period_end(key) <= complete_until
        ]:
            self.check_key(key, self.unchecked_operations_by_key.pop(key))
        if complete_until != NEVER:
            oldest_kept_end = complete_until - FLUSHES_KEPT_S
            self.flushes = [
                flush for flush in self.flushes if flush.operation.end > oldest_kept_end
            ]

    def check_key(self, key: bytes, operations: list[Operation]) -> None:
        """Checks one key's history with the flushes of its time."""
        first_start = min(operation.start for operation in operations)
        last_start = max(operation.start for operation in operations)
        flushes = [
            flush.operation
            for flush in self.flushes
            if key.startswith(flush.prefix)
            and flush.operation.end >= first_start
            and flush.operation.start <= last_start
        ]
        result = linearizability.check_history([*operations, *flushes])
        violation = result.violation or linearizability.find_reused_unique(operations)
        if not violation and key[:1] == b"t":
            violation = linearizability.find_expired_hit(operations, TICK_S)
        if violation:
            self.report.violations.append(f"{key!r}: {violation}")
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
    history_checker = HistoryChecker(plan.process_count)
    while min(history_checker.checked_until_by_process.values()) != NEVER:
        history_checker.add_batch(batches.get())
    reports.put(history_checker.report)
