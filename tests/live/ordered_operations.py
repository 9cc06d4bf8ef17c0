"""Operations whose results have a known order: counters, logs, items that expire, and noreply commands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from session import Killed, Session

if TYPE_CHECKING:
    from session import Plan
    from shared_versions import SharedVersions

# The clock of a memcached ticks once a second, so an item lives up to a second less or more.
EXPIRY_TOLERANCE_S = 1.3
LOG_RECORDS = 400
# Enough that some are read long after they have expired.
EXPIRING_ITEMS_MAX = 250


class OrderedOperations(Session):
    """Counts, appends, stores for seconds, sends without replies; `Checker` lists what runs."""

    def __init__(self, plan: Plan, process_number: int, shared_versions: SharedVersions) -> None:
        super().__init__(plan, process_number, shared_versions)
        # By index of a counter: first those that are incremented by cas, then as many incremented by incr.
        self.highest_seen_numbers = [0] * plan.counter_count * 2
        self.log_generation = 0
        self.next_record = 0
        self.expiring: list[tuple[bytes, float, float, int]] = []

    def check_monotonic(self, counter_index: int, number: int, counter_name: str) -> None:
        """One process never sees a counter decrease."""
        if number < self.highest_seen_numbers[counter_index]:
            self.record_violation(
                f"{counter_name} went back from {self.highest_seen_numbers[counter_index]} to {number}"
            )
        self.highest_seen_numbers[counter_index] = number

    def restore_counter(self, key: bytes, counter_index: int) -> None:
        """Stores a counter that is not there, with a number above all earlier ones."""
        number = self.shared_versions.reserve_number_above_all(
            counter_index, self.highest_seen_numbers[counter_index]
        )
        self.may_kill_during_next_request = False
        reply = self.send_request(b"add %s 0 0 %d\r\n%d\r\n" % (key, len(str(number)), number))
        if reply not in (b"STORED", b"NOT_STORED") and not reply.startswith(b"SERVER_ERROR"):
            self.record_violation(f"add of {key!r}: reply {reply[:60]!r}")

    def increment_by_cas(self) -> None:
        """gets, then cas of the next number: no number is reached twice. Its counters are the first half."""
        counter_index = self.rng.randrange(self.plan.counter_count)
        key = b"cas%d" % counter_index
        first_line = self.send_request(b"gets %s\r\n" % key)
        if first_line == b"END":
            self.restore_counter(key, counter_index)
            return
        parts = first_line.split()
        number = int(self.connection.read_value(int(parts[3])))
        if self.connection.read_line() != b"END":
            raise ValueError("no END after gets")
        self.check_monotonic(counter_index, number, "the cas counter")
        next_number = b"%d" % (number + 1)
        reply = self.send_request(
            b"cas %s 0 0 %d %s\r\n%s\r\n" % (key, len(next_number), parts[4], next_number)
        )
        if reply == b"STORED":
            if not self.shared_versions.mark_used(counter_index, number + 1):
                self.record_violation(f"two cas succeeded from {number} to {number + 1}")
            self.check_monotonic(counter_index, number + 1, "the cas counter")
        elif reply not in (b"EXISTS", b"NOT_FOUND") and not reply.startswith(b"SERVER_ERROR"):
            self.record_violation(f"cas: reply {reply[:60]!r}")

    def increment_by_incr(self) -> None:
        """incr or meta arithmetic: each number is returned once. Its counters are the second half."""
        counter_index = self.plan.counter_count + self.rng.randrange(self.plan.counter_count)
        key = b"incr%d" % counter_index
        if self.rng.random() < 0.5:
            reply = self.send_request(b"incr %s 1\r\n" % key)
        else:
            reply = self.send_request(b"ma %s v\r\n" % key)
            if reply.startswith(b"VA "):
                reply = self.connection.read_value(int(reply.split()[1]))
        if reply in (b"NOT_FOUND", b"NF"):
            self.restore_counter(key, counter_index)
            return
        if not reply.strip().isdigit():
            if not reply.startswith(b"SERVER_ERROR"):
                self.record_violation(f"incr: reply {reply[:60]!r}")
            return
        number = int(reply)
        if not self.shared_versions.mark_used(counter_index, number):
            self.record_violation(f"incr returned {number} twice")
        self.check_monotonic(counter_index, number, "the incr counter")

    def log_key(self) -> bytes:
        """The present append log of this process."""
        return b"log%d.%d" % (self.process_number, self.log_generation)

    def append_log(self) -> None:
        """Appends the next record, or starts a new log."""
        record = b"%d;" % self.next_record
        try:
            if self.next_record % LOG_RECORDS == 0:
                self.log_generation += 1
                reply = self.send_request(
                    b"set %s 0 0 %d\r\n%s\r\n" % (self.log_key(), len(record), record)
                )
            else:
                reply = self.send_request(
                    b"append %s 0 0 %d\r\n%s\r\n" % (self.log_key(), len(record), record)
                )
        except (Killed, OSError):
            self.next_record += LOG_RECORDS - self.next_record % LOG_RECORDS
            raise
        if reply == b"STORED":
            self.next_record += 1
        elif reply == b"NOT_STORED" or reply.startswith(b"SERVER_ERROR"):
            self.next_record += LOG_RECORDS - self.next_record % LOG_RECORDS
        else:
            self.record_violation(f"append: reply {reply[:60]!r}")

    def read_log(self) -> None:
        """The log holds every acknowledged record, once, in order."""
        if self.next_record % LOG_RECORDS == 0:
            return
        values = self.read_values_until_end(self.send_request(b"get %s\r\n" % self.log_key()))
        if not values:
            self.report.lost_items += 1
            return
        first_record = self.next_record - self.next_record % LOG_RECORDS
        expected_log = b"".join(b"%d;" % number for number in range(first_record, self.next_record))
        if values[0].value != expected_log:
            self.record_violation(
                f"log {self.log_key()!r}: {values[0].value[-40:]!r}, expected the end {expected_log[-40:]!r}"
            )

    def check_expiry(self) -> None:
        """Stores items of two or three seconds and looks at older ones."""
        self.serial += 1
        key = b"ttl%d.%d" % (self.process_number, self.serial)
        ttl_s = self.rng.randint(2, 3)
        set_started_at = time.monotonic()
        if self.send_request(b"set %s 0 %d 1\r\nx\r\n" % (key, ttl_s)) == b"STORED":
            self.expiring.append((key, set_started_at, time.monotonic(), ttl_s))
        if len(self.expiring) < EXPIRING_ITEMS_MAX:
            return
        key, set_started_at, set_ended_at, ttl_s = self.expiring.pop(
            self.rng.randrange(len(self.expiring))
        )
        get_started_at = time.monotonic()
        values = self.read_values_until_end(self.send_request(b"get %s\r\n" % key))
        get_ended_at = time.monotonic()
        if values and get_started_at - set_ended_at > ttl_s + EXPIRY_TOLERANCE_S:
            self.record_violation(
                f"{key!r} lives {get_started_at - set_ended_at:.2f} s after its set, its TTL is {ttl_s}"
            )
        if not values and get_ended_at - set_started_at < ttl_s - EXPIRY_TOLERANCE_S:
            self.report.lost_items += 1

    def check_noreply_order(self) -> None:
        """What is sent without replies happens in the order in which it was sent."""
        self.serial += 1
        key = b"order%d.%d" % (self.process_number, self.serial % 50)
        last_value = b"%d" % self.serial
        request = b"set %s 0 0 1 noreply\r\na\r\n" % key
        request += b"append %s 0 0 1 noreply\r\nb\r\n" % key
        request += b"delete %s noreply\r\n" % key
        request += b"set %s 0 0 %d noreply\r\n%s\r\n" % (key, len(last_value), last_value)
        self.may_kill_during_next_request = False
        values = self.read_values_until_end(self.send_request(request + b"get %s\r\n" % key))
        if values and values[0].value != last_value:
            self.record_violation(
                f"after noreply commands {key!r} holds {values[0].value[:40]!r}, sent last was {last_value!r}"
            )
        if not values:
            self.report.lost_items += 1
