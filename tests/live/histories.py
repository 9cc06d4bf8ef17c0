"""Operations on few keys that all processes share, recorded with times and replies for `linearizability`.

Six families of keys, each with its commands: plain values, appended logs, numbers, leases, items that
expire, and items that are left alone for a while (a delayed flush must find them). A key's name carries a
period; when it is over the key is left alone, and its history, with every flush of that time, can be decided.
One process flushes everything now and then, at once or with a delay, or the keys of a prefix.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from linearizability import NEVER, STUB, Operation, Value
from session import Killed, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from session import Plan
    from shared_versions import SharedVersions

# A key of the families below lives for one period of this many seconds.
PERIOD_S = {"v": 2.0, "a": 2.0, "n": 2.0, "l": 2.0, "t": 8.0, "d": 8.0}
# The share of a period in which items that expire or are left alone are written; then they are only read.
WRITING_SHARE_OF_PERIOD = 0.3
# Keys of a family in one period, and how many of them get half of all operations.
KEYS, HOT_KEYS = 24, 3
# The clock of a memcached ticks once a second, so what is delayed happens up to so much earlier or later.
TICK_S = 1.3
DELAYED_FLUSH_S = 1
# The share of flushes that are of a prefix, where the server knows these.
PREFIX_SHARE = 0.6
SHORT_TTL_S, LONG_TTL_S, RECACHE_S = 20, 600, 60


def period_end(name: bytes) -> float:
    """When the key of this name is left alone."""
    return (int(name.split(b".")[1]) + 1) * PERIOD_S[name[:1].decode()]


class Flush(NamedTuple):
    """A flush of all keys that start with the prefix; of all keys if that is empty."""

    prefix: bytes
    operation: Operation


class Batch(NamedTuple):
    """What one process recorded of periods that end by `until`, by key; flushes belong to many keys."""

    process: int
    until: float
    operations: dict[bytes, list[Operation]]
    flushes: list[Flush]


class Histories(Session):
    """Runs and records operations on the shared keys."""

    def __init__(self, plan: Plan, number: int, shared_versions: SharedVersions) -> None:
        super().__init__(plan, number, shared_versions)
        self.recorded: dict[bytes, list[Operation]] = defaultdict(list)
        self.flushes: list[Flush] = []
        # Only glasscache knows the command.
        self.can_flush_prefixes = True
        self.next_flush = time.monotonic() + plan.flush_s if number == 0 and plan.flush_s else NEVER
        self.uniques: dict[bytes, int] = {}
        self.send_batch: Callable[[Batch], None] = lambda _batch: None
        self.next_send_at = time.monotonic()

    # ---- recording --------------------------------------------------------------------------------

    def record(
        self, name: bytes, operation: Operation, request: bytes, read: Callable[[bytes], Operation]
    ) -> Operation:
        """Runs a request and records the operation that `read` returns for its reply."""
        start = time.monotonic()
        try:
            result_operation = read(self.send_request(request))
        except (Killed, OSError):
            self.recorded[name].append(operation._replace(start=start, end=NEVER, result="unknown"))
            raise
        result_operation = result_operation._replace(start=start, end=time.monotonic())
        self.recorded[name].append(result_operation)
        self.report.history[f"{result_operation.verb} {result_operation.result}"] += 1
        return result_operation

    def send_finished_histories(self, at_end: bool = False) -> None:
        """Sends the histories of keys whose period is over."""
        now = time.monotonic()
        if now < self.next_send_at and not at_end:
            return
        self.next_send_at = now + 1.0
        until = NEVER if at_end else now
        names = [name for name in self.recorded if period_end(name) <= until]
        operations = {name: self.recorded.pop(name) for name in names}
        for name in names:
            self.uniques.pop(name, None)
        self.send_batch(Batch(self.number, until, operations, self.flushes))
        self.flushes = []

    def shared_name(self, family: str) -> bytes:
        """A key of the family in the present period."""
        period = int(time.monotonic() / PERIOD_S[family])
        hot = self.random.random() < 0.5
        index = self.random.randrange(HOT_KEYS if hot else KEYS)
        return b"%s%d.%d" % (family.encode(), index, period)

    def new_version(self) -> int:
        """A number that no other write of the run has."""
        self.serial += 1
        return self.serial * 64 + self.number

    # ---- replies ----------------------------------------------------------------------------------

    def with_status(
        self, operation: Operation, line: bytes, **results: tuple[bytes, ...]
    ) -> Operation:
        """The operation with the result under which the reply's first word stands."""
        for result, words in results.items():
            if line.split(b" ")[0] in words:
                return operation._replace(result=result)
        if line.startswith(b"SERVER_ERROR"):
            self.report.refused += 1
            return operation._replace(result="refused")
        raise ValueError(f"{operation.verb}: reply {line[:60]!r}")

    def with_text_value(self, name: bytes, operation: Operation, line: bytes) -> Operation:
        """The operation with what a get, gets or gat found."""
        if line.startswith(b"SERVER_ERROR"):
            return operation._replace(result="refused")
        unique = (
            int(line.split()[4]) if line.startswith(b"VALUE") and line.count(b" ") == 4 else None
        )
        values = self.values_until_end(line)
        if not values:
            return operation._replace(result="miss")
        if unique is not None:
            self.uniques[name] = unique
        value = self.decode_value(name, values[0][1])
        return operation._replace(result="done", value=value, unique=unique)

    def decode_value(self, name: bytes, text: bytes) -> Value:
        """A stored text as `linearizability` knows it: its version, the number, or the log itself."""
        family = name[:1]
        if family == b"a" or text == STUB:
            return text
        if family == b"n":
            return int(text)
        version = self.values.read(name, text)
        if version is None:
            self.violation(f"{name!r} holds another value: {text[:60]!r}, {len(text)} bytes")
            return text
        return version

    # ---- plain values -----------------------------------------------------------------------------

    def shared_size(self) -> int:
        """Mostly small, some of them uploads."""
        chance = self.random.random()
        if chance < 0.01:
            return self.random.randint(20_000, self.plan.large_bytes)
        return self.random.randint(0, 300) if chance < 0.9 else self.random.randint(500, 20_000)

    def shared_write(self) -> None:
        """set, add, replace, meta set, or cas with the unique last seen."""
        name = self.shared_name("v")
        version = self.new_version()
        value = self.values.make(name, version, self.shared_size())
        verb = self.random.choice(["set", "ms", "add", "replace", "cas", "cas"])
        self.store(name, verb, version, value)

    def store(self, name: bytes, verb: str, version: Value, value: bytes, ttl_s: int = 0) -> None:
        """One store command."""
        operation = Operation(0, 0, verb, "", version, ttl_s=ttl_s)
        unique = self.uniques.get(name)
        tail = b""
        if verb == "cas":
            if unique is None:
                return
            operation = operation._replace(unique=unique)
            tail = b" %d" % unique
        if verb == "ms":
            request = b"ms %s %d c T%d\r\n%s\r\n" % (name, len(value), ttl_s, value)
            operation = operation._replace(verb="set")
            self.record(
                name, operation, request, lambda line: self.meta_stored(name, operation, line)
            )
            return
        request = b"%s %s 0 %d %d%s\r\n%s\r\n" % (
            verb.encode(),
            name,
            ttl_s,
            len(value),
            tail,
            value,
        )
        self.record(name, operation, request, lambda line: self.text_stored(operation, line))

    def text_stored(self, operation: Operation, line: bytes) -> Operation:
        """The reply of a text store; NOT_STORED says to an add that there is an item, to others that not."""
        if line == b"NOT_STORED":
            return operation._replace(result="exists" if operation.verb == "add" else "miss")
        return self.with_status(
            operation, line, done=(b"STORED",), miss=(b"NOT_FOUND",), exists=(b"EXISTS",)
        )

    def meta_stored(self, name: bytes, operation: Operation, line: bytes) -> Operation:
        """The reply of a meta set that returns its unique."""
        done = self.with_status(operation, line, done=(b"HD",))
        if done.result != "done":
            return done
        unique = int(line.split(b" c")[1])
        self.uniques[name] = unique
        return done._replace(unique=unique)

    def shared_read(self) -> None:
        """get, gets, gat or mg of a plain value, a log or a number."""
        family = self.random.choice(["v", "v", "v", "a", "n"])
        self.read_of(self.shared_name(family))

    def read_of(self, name: bytes) -> None:
        """One read command."""
        form = self.random.choice(
            [b"get %s\r\n", b"gets %s\r\n", b"gats 0 %s\r\n", b"mg %s c v\r\n"]
        )
        operation = Operation(0, 0, "get", "")
        if form.startswith(b"mg"):
            self.record(
                name,
                operation,
                form % name,
                lambda line: self.with_meta_value(name, operation, line),
            )
        else:
            self.record(
                name,
                operation,
                form % name,
                lambda line: self.with_text_value(name, operation, line),
            )

    def with_meta_value(self, name: bytes, operation: Operation, line: bytes) -> Operation:
        """The reply of a meta get with its value, unique and marks."""
        if line == b"EN":
            return operation._replace(result="miss")
        if line.startswith(b"SERVER_ERROR"):
            return operation._replace(result="refused")
        words = line.split()
        if words[0] != b"VA":
            raise ValueError(f"mg: reply {line[:60]!r}")
        value = self.decode_value(name, self.connection.read_value(int(words[1])))
        unique = next((int(word[1:]) for word in words[2:] if word[:1] == b"c"), None)
        if unique is not None:
            self.uniques[name] = unique
        marks = "".join(word.decode() for word in words[2:] if word in (b"W", b"X", b"Z"))
        return operation._replace(
            result="done", value=value, unique=unique, flags=operation.flags + marks
        )

    def shared_delete(self) -> None:
        """delete or md."""
        name = self.shared_name(self.random.choice(["v", "v", "a", "n", "l"]))
        operation = Operation(0, 0, "delete", "")
        form = self.random.choice([b"delete %s\r\n", b"md %s\r\n"])
        self.record(
            name,
            operation,
            form % name,
            lambda line: self.with_status(
                operation, line, done=(b"DELETED", b"HD"), miss=(b"NOT_FOUND", b"NF")
            ),
        )

    # ---- logs and numbers -------------------------------------------------------------------------

    def shared_append(self) -> None:
        """Appends to a shared log, or begins it; a record that survives its log's end is found."""
        name = self.shared_name("a")
        text = b"%d;" % self.new_version()
        verb = self.random.choice(["append", "append", "append", "set", "cas"])
        self.store(name, verb, text, text)

    def shared_count(self) -> None:
        """incr, meta arithmetic, or a new beginning above every number before."""
        name = self.shared_name("n")
        if self.random.random() < 0.2:
            number = self.new_version() * 1000
            self.store(name, self.random.choice(["set", "add"]), number, b"%d" % number)
            return
        operation = Operation(0, 0, "incr", "")
        form = self.random.choice([b"incr %s 1\r\n", b"ma %s v\r\n"])
        self.record(name, operation, form % name, lambda line: self.counted(operation, line))

    def counted(self, operation: Operation, line: bytes) -> Operation:
        """The reply of an increment."""
        if line.startswith(b"VA "):
            line = self.connection.read_value(int(line.split()[1]))
        if line.strip().isdigit():
            return operation._replace(result="done", value=int(line))
        return self.with_status(operation, line, miss=(b"NOT_FOUND", b"NF"))

    # ---- leases -----------------------------------------------------------------------------------

    def shared_lease(self) -> None:
        """A meta get that may win, a store by a winner, or an invalidation."""
        name = self.shared_name("l")
        chance = self.random.random()
        if chance < 0.12:
            operation = Operation(0, 0, "invalidate", "")
            self.record(
                name,
                operation,
                b"md %s I T%d\r\n" % (name, LONG_TTL_S),
                lambda line: self.with_status(operation, line, done=(b"HD",), miss=(b"NF",)),
            )
        elif chance < 0.3:
            self.lease_store(name, None)
        else:
            self.lease_get(name)

    def lease_get(self, name: bytes) -> None:
        """mg with N, with R, with both or neither; who wins stores a value, mostly."""
        flags = self.random.choice(["N", "N", "NR", "R", ""])
        request = b"mg %s c v" % name
        if "N" in flags:
            request += b" N%d" % LONG_TTL_S
        if "R" in flags:
            request += b" R%d" % RECACHE_S
        operation = Operation(0, 0, "lease", "", flags=flags)
        done = self.record(
            name,
            operation,
            request + b"\r\n",
            lambda line: self.with_meta_value(name, operation, line),
        )
        if "W" in done.flags:
            self.report.history["wins"] += 1
            if self.random.random() < 0.7:
                self.lease_store(name, done.unique)

    def lease_store(self, name: bytes, unique: int | None) -> None:
        """A meta set, under the unique of a win if there is one."""
        version = self.new_version()
        value = self.values.make(name, version, self.random.randint(0, 200))
        is_short = self.random.random() < 0.3
        flags = "S" if is_short else ""
        ttl_s = SHORT_TTL_S if is_short else LONG_TTL_S
        request = b"ms %s %d T%d" % (name, len(value), ttl_s)
        operation = Operation(0, 0, "set", "", version, flags=flags)
        if unique is not None:
            request += b" C%d" % unique
            operation = operation._replace(verb="cas", unique=unique)
        self.record(
            name,
            operation,
            request + b"\r\n%s\r\n" % value,
            lambda line: self.with_status(
                operation, line, done=(b"HD",), exists=(b"EX",), miss=(b"NF",)
            ),
        )

    # ---- expiry and flush -------------------------------------------------------------------------

    def shared_expiry(self) -> None:
        """Stores, touches and reads of items that live for a second or two, or are left alone."""
        family = self.random.choice("td")
        name = self.shared_name(family)
        ttl_s = self.random.randint(1, 2) if family == "t" else 0
        left_s = period_end(name) - time.monotonic()
        is_written = left_s > PERIOD_S[family] * (1 - WRITING_SHARE_OF_PERIOD)
        chance = self.random.random() if is_written else 1.0
        if family == "d" and self.random.random() < 0.03:
            # Written again now and then, for a flush that is not delayed leaves nothing to be found.
            chance = 0.0
        if chance < 0.15:
            version = self.new_version()
            value = self.values.make(name, version, self.random.randint(0, 200))
            self.store(
                name, self.random.choice(["set", "ms", "add", "replace"]), version, value, ttl_s
            )
        elif chance < 0.18:
            operation = Operation(0, 0, "touch", "", ttl_s=ttl_s)
            self.record(
                name,
                operation,
                b"touch %s %d\r\n" % (name, ttl_s),
                lambda line: self.with_status(
                    operation, line, done=(b"TOUCHED",), miss=(b"NOT_FOUND",)
                ),
            )
        elif chance < 0.21:
            gat = Operation(0, 0, "gat", "", ttl_s=ttl_s)
            request = b"gat %d %s\r\n" % (ttl_s, name)
            self.record(name, gat, request, lambda line: self.with_text_value(name, gat, line))
        else:
            get = Operation(0, 0, "get", "")
            form = self.random.choice([b"get %s\r\n", b"mg %s v\r\n"])
            read = self.with_meta_value if form.startswith(b"mg") else self.with_text_value
            self.record(name, get, form % name, lambda line: read(name, get, line))

    def flush_if_due(self) -> None:
        """The first process empties the cache now and then; a delayed flush ends before the next is sent."""
        start = time.monotonic()
        if start < self.next_flush:
            return
        self.may_kill_during_next_request = False
        if self.can_flush_prefixes and self.random.random() < PREFIX_SHARE:
            self.flush_prefix(start)
            return
        delay_s = DELAYED_FLUSH_S if self.random.random() < 0.25 else 0
        request = b"flush_all %d\r\n" % delay_s if delay_s else b"flush_all\r\n"
        reply = self.send_request(request)
        if reply != b"OK":
            raise ValueError(f"flush_all: reply {reply[:60]!r}")
        end = time.monotonic()
        if delay_s:
            end += delay_s + TICK_S
            start = max(start, start + delay_s - TICK_S)
        self.flushes.append(Flush(b"", Operation(start, end, "flush", "done")))
        self.report.history["flushes"] += 1
        self.next_flush = end + self.random.uniform(0.2, 2.0) * self.plan.flush_s

    def flush_prefix(self, start: float) -> None:
        """Flushes a family of keys, those of a few numbers, or one key with its neighbours in time."""
        name = self.shared_name(self.random.choice("vanltd"))
        prefix = name[: self.random.randint(1, len(name))]
        request = self.random.choice([b"flush_prefix %s\r\n", b"mf %s\r\n"])
        reply = self.send_request(request % prefix)
        if reply in {b"ERROR", b"CLIENT_ERROR bad command line format"}:
            self.can_flush_prefixes = False
            return
        if reply not in {b"OK", b"HD"}:
            raise ValueError(f"flush_prefix: reply {reply[:60]!r}")
        end = time.monotonic()
        self.flushes.append(Flush(prefix, Operation(start, end, "flush", "done")))
        self.report.history["flushes of prefixes"] += 1
        self.next_flush = end + self.random.uniform(0.2, 2.0) * self.plan.flush_s
