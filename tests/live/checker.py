"""The main loop of one process of the consistency check: random operations whose replies are verified.

Violations are replies that no correct server could give, whatever the others do: a value of another
key or version, a version older than one acknowledged before the read began, a counter that gives one
number twice, a log with a hole, an item alive long after its expiry, a reply out of order. A miss is
right as soon as the server evicts or is flushed; without either a miss of something acknowledged is a
violation too (the caller reads the counters and interprets `lost`). What happened to keys that all processes
write is recorded, and decided by a process of its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from histories import Histories
from ordered_operations import OrderedOperations
from session import Killed
from versioned_keys import VersionedKeys

if TYPE_CHECKING:
    from session import Report


class Checker(VersionedKeys, OrderedOperations, Histories):
    """Runs operations until the time is up."""

    def run(self) -> Report:
        """Runs until the time is up; returns what was seen."""
        actions = [
            (self.write, 20), (self.read, 22), (self.read_many, 6), (self.read_meta, 8),
            (self.increment_by_cas, 8), (self.increment_by_incr, 8), (self.append_log, 6), (self.read_log, 4),
            (self.check_expiry, 4), (self.check_noreply_order, 4), (self.delete, 3), (self.touch, 3),
            (self.write_shared_value, 14), (self.read_shared_value, 20), (self.append_to_shared_log, 8),
            (self.increment_shared_number, 8), (self.use_shared_lease, 16), (self.use_expiring_item, 14),
            (self.delete_shared_key, 4),
        ]  # fmt: skip
        weighted_actions = [action for action, weight in actions for _ in range(weight)]
        end_at = time.monotonic() + self.plan.duration_s
        while time.monotonic() < end_at and len(self.report.violations) < 100:
            action = self.rng.choice(weighted_actions)
            self.may_kill_during_next_request = self.rng.random() < self.plan.kill_rate
            try:
                self.flush_if_due()
                self.send_finished_histories()
                action()
            except Killed:
                self.report.killed_requests += 1
                self.connection = self.connect()
            except (OSError, ValueError, IndexError) as error:
                self.report.errors.append(f"{action.__name__}: {type(error).__name__}: {error}")
                self.connection.socket.close()
                if len(self.report.errors) > 20:
                    break
                self.connection = self.connect()
            self.report.operations[action.__name__] += 1
        self.send_finished_histories(at_end=True)
        self.connection.socket.close()
        return self.report
