"""One process of the consistency check: random operations, each reply held against the ledger.

Violations are replies that no correct server could give, whatever the others do: a value of another
key or version, a version older than one acknowledged before the read began, a counter that gives one
number twice, a log with a hole, an item alive long after its expiry, a reply out of order. A miss is
right as soon as the server evicts; without evictions a miss of something acknowledged is a violation
too (the caller knows the counters and judges `lost`).
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass, field

from harness import Wire
from ledger import Ledger, Values

# The clock of a memcached ticks once a second, so an item lives up to a second less or more.
TICK_SECONDS = 1.3
LOG_RECORDS = 400
# Enough that some are looked at when their time is long past.
EXPIRING_KEPT = 250


@dataclass
class Plan:
    """What a run consists of; equal in all processes."""

    port: int
    processes: int = 6
    keys: int = 600
    counters: int = 2
    seconds: float = 20.0
    large_bytes: int = 700_000
    kill_rate: float = 0.006
    seed: int = 1


@dataclass
class Report:
    """What one process saw."""

    operations: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    lost: int = 0
    killed: int = 0
    refused: int = 0
    errors: list[str] = field(default_factory=list)


class Killed(Exception):
    """The connection was killed on purpose in the middle of an operation."""


class Checker:
    """Runs operations until the time is up."""

    def __init__(self, plan: Plan, number: int, ledger: Ledger) -> None:
        self.plan, self.number, self.ledger = plan, number, ledger
        self.random = random.Random(plan.seed * 1000 + number)
        self.values = Values()
        self.report = Report()
        self.own = [index for index in range(plan.keys) if index % plan.processes == number]
        self.seen = [0] * plan.counters * 2
        self.log_generation = 0
        self.log_next = 0
        self.expiring: list[tuple[bytes, float, float, int]] = []
        self.serial = 0
        self.deleted: set[int] = set()
        self.wire = self._connect()
        self.kill_next = False

    def _connect(self) -> Wire:
        return Wire(self.plan.port, 30.0, None)

    def run(self) -> Report:
        """Runs until the time is up; returns what was seen."""
        actions = [
            (self.write, 20), (self.read, 22), (self.read_many, 6), (self.read_meta, 8),
            (self.cas_counter, 8), (self.incr_counter, 8), (self.append_log, 6), (self.read_log, 4),
            (self.expire, 4), (self.noreply_order, 4), (self.delete, 3), (self.touch, 3),
        ]  # fmt: skip
        choices = [action for action, weight in actions for _ in range(weight)]
        end = time.monotonic() + self.plan.seconds
        while time.monotonic() < end and len(self.report.violations) < 100:
            action = self.random.choice(choices)
            self.kill_next = self.random.random() < self.plan.kill_rate
            try:
                action()
            except Killed:
                self.report.killed += 1
                self.wire = self._connect()
            except (OSError, ValueError, IndexError) as error:
                self.report.errors.append(f"{action.__name__}: {type(error).__name__}: {error}")
                self.wire.socket.close()
                if len(self.report.errors) > 20:
                    break
                self.wire = self._connect()
            self.report.operations[action.__name__] += 1
        self.wire.socket.close()
        return self.report

    # ---- helpers -------------------------------------------------------------------------------

    def violation(self, text: str) -> None:
        """Notes a reply that cannot be."""
        self.report.violations.append(f"process {self.number}: {text}")

    def ask(self, request: bytes) -> bytes:
        """Sends a request, or cuts the connection in its middle or before its reply."""
        if not self.kill_next:
            return self.wire.ask(request)
        self.kill_next = False
        cut = len(request) if self.random.random() < 0.5 else self.random.randrange(len(request))
        self.wire.send(request[:cut])
        if self.random.random() < 0.5:
            self.wire.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self.wire.socket.close()
        raise Killed

    def size(self) -> int:
        """Mostly small, some medium, few large."""
        chance = self.random.random()
        if chance < 0.004:
            return self.random.randint(20_000, self.plan.large_bytes)
        if chance < 0.1:
            return self.random.randint(500, 20_000)
        return self.random.randint(0, 300)

    def values_until_end(self, head: bytes) -> list[tuple[bytes, bytes]]:
        """The VALUE blocks of a text reply whose first line was read."""
        found = []
        while head != b"END":
            parts = head.split()
            if len(parts) < 4 or parts[0] != b"VALUE":
                raise ValueError(f"instead of VALUE came {head[:60]!r}")
            found.append((parts[1], self.wire.block(int(parts[3]))))
            head = self.wire.line()
        return found

    def judge(self, index: int, generation: int, lower: int, value: bytes | None) -> None:
        """Holds a read value, or a miss, against the ledger."""
        name = self.ledger.name(index, generation)
        if value is None:
            if (
                index in self.own
                and lower
                and index not in self.deleted
                and generation == self.ledger.generation(index)
            ):
                self.report.lost += 1
            return
        version = self.values.read(name, value)
        upper = self.ledger.upper(index, generation)
        if version is None:
            self.violation(f"{name!r} holds another value: {value[:60]!r}, {len(value)} bytes")
        elif not lower <= version <= upper:
            self.violation(f"{name!r} shows version {version}, must be {lower} to {upper}")

    # ---- versions ------------------------------------------------------------------------------

    def write(self) -> None:
        """set, meta set, replace or add of a key of this process."""
        index = self.random.choice(self.own)
        name = self.ledger.name(index, self.ledger.generation(index))
        version = self.ledger.begin(index)
        value = self.values.make(name, version, self.size())
        form = self.random.random()
        flags = version & 0xFFFF
        if form < 0.6:
            request, good = (
                b"set %s %d 0 %d\r\n%s\r\n" % (name, flags, len(value), value),
                b"STORED",
            )
        else:
            request, good = b"ms %s %d F%d\r\n%s\r\n" % (name, len(value), flags, value), b"HD"
        try:
            reply = self.ask(request)
        except (Killed, OSError):
            self.ledger.abandon(index)
            self.deleted.discard(index)
            raise
        if reply == good:
            self.ledger.acknowledge(index)
            self.deleted.discard(index)
        elif reply.startswith(b"SERVER_ERROR"):
            # Refused: the old value is gone or stays; its outcome is unknown to the ledger.
            self.report.refused += 1
            self.ledger.abandon(index)
        else:
            self.violation(f"set of {name!r} answered {reply[:60]!r}")
            self.ledger.abandon(index)

    def delete(self) -> None:
        """delete or md; older versions must not show again."""
        index = self.random.choice(self.own)
        name = self.ledger.name(index, self.ledger.generation(index))
        self.ledger.begin(index)
        meta = self.random.random() < 0.5
        try:
            reply = self.ask((b"md %s\r\n" if meta else b"delete %s\r\n") % name)
        except (Killed, OSError):
            self.ledger.abandon(index)
            self.deleted.discard(index)
            raise
        if reply not in (b"DELETED", b"NOT_FOUND", b"HD", b"NF"):
            self.violation(f"delete of {name!r} answered {reply[:60]!r}")
        self.deleted.add(index)
        self.ledger.acknowledge(index)

    def touch(self) -> None:
        """touch changes no value."""
        index = self.random.choice(self.own)
        name = self.ledger.name(index, self.ledger.generation(index))
        reply = self.ask(b"touch %s 0\r\n" % name)
        if reply not in (b"TOUCHED", b"NOT_FOUND"):
            self.violation(f"touch of {name!r} answered {reply[:60]!r}")

    def read(self) -> None:
        """get, gets or gat of any key."""
        index = self.random.randrange(self.plan.keys)
        generation = self.ledger.generation(index)
        lower = self.ledger.lower(index, generation)
        name = self.ledger.name(index, generation)
        form = self.random.choice([b"get %s\r\n", b"gets %s\r\n", b"gat 0 %s\r\n"])
        found = self.values_until_end(self.ask(form % name))
        if len(found) > 1 or (found and found[0][0] != name):
            self.violation(f"a get of {name!r} returned {[key for key, _ in found]}")
            return
        self.judge(index, generation, lower, found[0][1] if found else None)

    def read_many(self) -> None:
        """One get of many keys: each asked, none twice, in order."""
        count = self.random.randint(2, 60)
        indexes = self.random.sample(range(self.plan.keys), count)
        asked = []
        for index in indexes:
            generation = self.ledger.generation(index)
            asked.append((index, generation, self.ledger.lower(index, generation)))
        names = [self.ledger.name(index, generation) for index, generation, _ in asked]
        found = self.values_until_end(self.ask(b"get %s\r\n" % b" ".join(names)))
        places = [names.index(key) if key in names else -1 for key, _ in found]
        if -1 in places or places != sorted(set(places)):
            self.violation(f"a multi-get of {count} keys returned keys at {places}")
            return
        values = dict(found)
        for (index, generation, lower), name in zip(asked, names, strict=True):
            self.judge(index, generation, lower, values.get(name))

    def read_meta(self) -> None:
        """Pipelined mg with opaque and key; the opaque names the request."""
        indexes = self.random.sample(range(self.plan.keys), self.random.randint(1, 12))
        asked = {}
        request = b""
        for index in indexes:
            generation = self.ledger.generation(index)
            self.serial += 1
            opaque = b"o%d" % self.serial
            asked[opaque] = (index, generation, self.ledger.lower(index, generation))
            request += b"mg %s v k O%s\r\n" % (self.ledger.name(index, generation), opaque)
        line = self.ask(request + b"mn\r\n")
        order = list(asked)
        while line != b"MN":
            parts = line.split()
            value = self.wire.block(int(parts[1])) if parts[0] == b"VA" else None
            if parts[0] not in (b"VA", b"EN", b"HD"):
                raise ValueError(f"mg answered {line[:60]!r}")
            expected = order.pop(0)
            if value is not None:
                opaque = next((part[1:] for part in parts[2:] if part[:1] == b"O"), b"")
                key = next((part[1:] for part in parts[2:] if part[:1] == b"k"), b"")
                index, generation, lower = asked[expected]
                if opaque != expected or key != self.ledger.name(index, generation):
                    self.violation(f"mg {expected!r} was answered with {line[:80]!r}")
                else:
                    self.judge(index, generation, lower, value)
            else:
                self.judge(*asked[expected], None)
            line = self.wire.line()
        if order:
            self.violation(f"{len(order)} meta requests without an answer")

    # ---- counters ------------------------------------------------------------------------------

    def observe(self, counter: int, number: int, what: str) -> None:
        """A counter never goes back in the eyes of one process."""
        if number < self.seen[counter]:
            self.violation(f"{what} went back from {self.seen[counter]} to {number}")
        self.seen[counter] = number

    def restart(self, name: bytes, counter: int) -> None:
        """Stores a counter that is not there, with a number above all earlier ones."""
        number = self.ledger.fresh_number(counter, self.seen[counter])
        self.kill_next = False
        reply = self.ask(b"add %s 0 0 %d\r\n%d\r\n" % (name, len(str(number)), number))
        if reply not in (b"STORED", b"NOT_STORED") and not reply.startswith(b"SERVER_ERROR"):
            self.violation(f"add of {name!r} answered {reply[:60]!r}")

    def cas_counter(self) -> None:
        """gets, then cas of the next number: no number is reached twice."""
        counter = self.random.randrange(self.plan.counters)
        name = b"cas%d" % counter
        head = self.ask(b"gets %s\r\n" % name)
        if head == b"END":
            self.restart(name, counter)
            return
        parts = head.split()
        number = int(self.wire.block(int(parts[3])))
        if self.wire.line() != b"END":
            raise ValueError("no END after gets")
        self.observe(counter, number, "the cas counter")
        after = b"%d" % (number + 1)
        reply = self.ask(b"cas %s 0 0 %d %s\r\n%s\r\n" % (name, len(after), parts[4], after))
        if reply == b"STORED":
            if not self.ledger.claim(counter, number + 1):
                self.violation(f"two cas succeeded from {number} to {number + 1}")
            self.observe(counter, number + 1, "the cas counter")
        elif reply not in (b"EXISTS", b"NOT_FOUND") and not reply.startswith(b"SERVER_ERROR"):
            self.violation(f"cas answered {reply[:60]!r}")

    def incr_counter(self) -> None:
        """incr or meta arithmetic: each number is returned once."""
        counter = self.plan.counters + self.random.randrange(self.plan.counters)
        name = b"incr%d" % counter
        if self.random.random() < 0.5:
            reply = self.ask(b"incr %s 1\r\n" % name)
        else:
            reply = self.ask(b"ma %s v\r\n" % name)
            if reply.startswith(b"VA "):
                reply = self.wire.block(int(reply.split()[1]))
        if reply in (b"NOT_FOUND", b"NF"):
            self.restart(name, counter)
            return
        if not reply.strip().isdigit():
            if not reply.startswith(b"SERVER_ERROR"):
                self.violation(f"incr answered {reply[:60]!r}")
            return
        number = int(reply)
        if not self.ledger.claim(counter, number):
            self.violation(f"incr returned {number} twice")
        self.observe(counter, number, "the incr counter")

    # ---- logs, expiry, order -------------------------------------------------------------------

    def log_name(self) -> bytes:
        """The present append log of this process."""
        return b"log%d.%d" % (self.number, self.log_generation)

    def append_log(self) -> None:
        """Appends the next record, or starts a new log."""
        record = b"%d;" % self.log_next
        try:
            if self.log_next % LOG_RECORDS == 0:
                self.log_generation += 1
                reply = self.ask(
                    b"set %s 0 0 %d\r\n%s\r\n" % (self.log_name(), len(record), record)
                )
            else:
                reply = self.ask(
                    b"append %s 0 0 %d\r\n%s\r\n" % (self.log_name(), len(record), record)
                )
        except (Killed, OSError):
            self.log_next += LOG_RECORDS - self.log_next % LOG_RECORDS
            raise
        if reply == b"STORED":
            self.log_next += 1
        elif reply == b"NOT_STORED" or reply.startswith(b"SERVER_ERROR"):
            self.log_next += LOG_RECORDS - self.log_next % LOG_RECORDS
        else:
            self.violation(f"append answered {reply[:60]!r}")

    def read_log(self) -> None:
        """The log holds every acknowledged record, once, in order."""
        if self.log_next % LOG_RECORDS == 0:
            return
        found = self.values_until_end(self.ask(b"get %s\r\n" % self.log_name()))
        if not found:
            self.report.lost += 1
            return
        first = self.log_next - self.log_next % LOG_RECORDS
        expected = b"".join(b"%d;" % number for number in range(first, self.log_next))
        if found[0][1] != expected:
            self.violation(
                f"log {self.log_name()!r}: {found[0][1][-40:]!r}, expected the end {expected[-40:]!r}"
            )

    def expire(self) -> None:
        """Stores items of one to three seconds and looks at older ones."""
        self.serial += 1
        name = b"ttl%d.%d" % (self.number, self.serial)
        ttl = self.random.randint(2, 3)
        begun = time.monotonic()
        if self.ask(b"set %s 0 %d 1\r\nx\r\n" % (name, ttl)) == b"STORED":
            self.expiring.append((name, begun, time.monotonic(), ttl))
        if len(self.expiring) < EXPIRING_KEPT:
            return
        name, begun, ended, ttl = self.expiring.pop(self.random.randrange(len(self.expiring)))
        asked = time.monotonic()
        found = self.values_until_end(self.ask(b"get %s\r\n" % name))
        answered = time.monotonic()
        if found and asked - ended > ttl + TICK_SECONDS:
            self.violation(f"{name!r} lives {asked - ended:.2f} s after its set, its TTL is {ttl}")
        if not found and answered - begun < ttl - TICK_SECONDS:
            self.report.lost += 1

    def noreply_order(self) -> None:
        """What is sent without replies happens in the order in which it was sent."""
        self.serial += 1
        name = b"order%d.%d" % (self.number, self.serial % 50)
        last = b"%d" % self.serial
        request = b"set %s 0 0 1 noreply\r\na\r\n" % name
        request += b"append %s 0 0 1 noreply\r\nb\r\n" % name
        request += b"delete %s noreply\r\n" % name
        request += b"set %s 0 0 %d noreply\r\n%s\r\n" % (name, len(last), last)
        self.kill_next = False
        found = self.values_until_end(self.ask(request + b"get %s\r\n" % name))
        if found and found[0][1] != last:
            self.violation(
                f"after noreply commands {name!r} holds {found[0][1][:40]!r}, sent last was {last!r}"
            )
        if not found:
            self.report.lost += 1
