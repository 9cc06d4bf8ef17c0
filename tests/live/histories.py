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

from linearizability import NEVER, VIVIFIED_VALUE, Operation, Value
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
KEYS_PER_FAMILY, HOT_KEYS_PER_FAMILY = 24, 3
# The clock of a memcached ticks once a second, so what is delayed happens up to so much earlier or later.
TICK_S = 1.3
DELAYED_FLUSH_S = 1
# The share of flushes that are of a prefix, where the server knows these.
PREFIX_SHARE = 0.6
SHORT_TTL_S, LONG_TTL_S, RECACHE_S = 20, 600, 60


def period_end(key: bytes) -> float:
    """When the key of this name is left alone."""
    return (int(key.split(b".")[1]) + 1) * PERIOD_S[key[:1].decode()]


class Flush(NamedTuple):
    """A flush of all keys that start with the prefix; of all keys if that is empty."""

    prefix: bytes
    operation: Operation


class Batch(NamedTuple):
    """What one process recorded, by key, until `recorded_until`; a flush belongs to many keys."""

    process_number: int
    recorded_until: float
    operations_by_key: dict[bytes, list[Operation]]
    flushes: list[Flush]


class Histories(Session):
    """Runs and records operations on the shared keys."""

    def __init__(self, plan: Plan, process_number: int, shared_versions: SharedVersions) -> None:
        super().__init__(plan, process_number, shared_versions)
        self.recorded_operations_by_key: dict[bytes, list[Operation]] = defaultdict(list)
        self.flushes: list[Flush] = []
        # Only glasscache knows the command.
        self.can_flush_prefixes = True
        self.next_flush_at = (
            time.monotonic() + plan.flush_s if process_number == 0 and plan.flush_s else NEVER
        )
        self.uniques: dict[bytes, int] = {}
        self.send_batch: Callable[[Batch], None] = lambda _batch: None
        self.next_send_at = time.monotonic()

    # ---- recording --------------------------------------------------------------------------------

    def record(
        self,
        key: bytes,
        operation: Operation,
        request: bytes,
        parse_reply: Callable[[bytes], Operation],
    ) -> Operation:
        """Runs a request and records the operation that `parse_reply` returns for its reply."""
        start = time.monotonic()
        try:
            result_operation = parse_reply(self.send_request(request))
        except (Killed, OSError):
            self.recorded_operations_by_key[key].append(
                operation._replace(start=start, end=NEVER, result="unknown")
            )
            raise
        result_operation = result_operation._replace(start=start, end=time.monotonic())
        self.recorded_operations_by_key[key].append(result_operation)
        self.report.history[f"{result_operation.verb} {result_operation.result}"] += 1
        return result_operation

    def send_finished_histories(self, at_end: bool = False) -> None:
        """Sends the histories of keys whose period is over."""
        now = time.monotonic()
        if now < self.next_send_at and not at_end:
            return
        self.next_send_at = now + 1.0
        recorded_until = NEVER if at_end else now
        keys = [key for key in self.recorded_operations_by_key if period_end(key) <= recorded_until]
        operations_by_key = {key: self.recorded_operations_by_key.pop(key) for key in keys}
        for key in keys:
            self.uniques.pop(key, None)
        self.send_batch(Batch(self.process_number, recorded_until, operations_by_key, self.flushes))
        self.flushes = []

    def pick_shared_key(self, family: str) -> bytes:
        """A key of the family in the present period."""
        period = int(time.monotonic() / PERIOD_S[family])
        is_hot = self.rng.random() < 0.5
        index = self.rng.randrange(HOT_KEYS_PER_FAMILY if is_hot else KEYS_PER_FAMILY)
        return b"%s%d.%d" % (family.encode(), index, period)

    def new_version(self) -> int:
        """A number that no other write of the run has."""
        self.serial += 1
        return self.serial * 64 + self.process_number

    # ---- replies ----------------------------------------------------------------------------------

    def with_result_of_reply(
        self, operation: Operation, line: bytes, **results: tuple[bytes, ...]
    ) -> Operation:
        """The operation with the result under which the reply's first word stands."""
        for result, words in results.items():
            if line.split(b" ")[0] in words:
                return operation._replace(result=result)
        if line.startswith(b"SERVER_ERROR"):
            self.report.refused_writes += 1
            return operation._replace(result="refused")
        raise ValueError(f"{operation.verb}: reply {line[:60]!r}")

    def with_text_value(self, key: bytes, operation: Operation, line: bytes) -> Operation:
        """The operation with what a get, gets or gat found."""
        if line.startswith(b"SERVER_ERROR"):
            return operation._replace(result="refused")
        unique = (
            int(line.split()[4]) if line.startswith(b"VALUE") and line.count(b" ") == 4 else None
        )
        values = self.read_values_until_end(line)
        if not values:
            return operation._replace(result="miss")
        if unique is not None:
            self.uniques[key] = unique
        value = self.decode_value(key, values[0].value)
        return operation._replace(result="done", value=value, unique=unique)

    def decode_value(self, key: bytes, text: bytes) -> Value:
        """A stored text as `linearizability` knows it: its version, the number, or the log itself."""
        family = key[:1]
        if family == b"a" or text == VIVIFIED_VALUE:
            return text
        if family == b"n":
            return int(text)
        version = self.checked_values.read_version(key, text)
        if version is None:
            self.record_violation(f"{key!r} holds another value: {text[:60]!r}, {len(text)} bytes")
            return text
        return version

    # ---- plain values -----------------------------------------------------------------------------

    def pick_value_bytes(self) -> int:
        """Mostly small, some of them uploads."""
        chance = self.rng.random()
        if chance < 0.01:
            return self.rng.randint(20_000, self.plan.large_bytes)
        return self.rng.randint(0, 300) if chance < 0.9 else self.rng.randint(500, 20_000)

    def write_shared_value(self) -> None:
        """set, add, replace, meta set, or cas with the unique last seen."""
        key = self.pick_shared_key("v")
        version = self.new_version()
        value = self.checked_values.make(key, version, self.pick_value_bytes())
        verb = self.rng.choice(["set", "ms", "add", "replace", "cas", "cas"])
        self.store(key, verb, version, value)

    def store(self, key: bytes, verb: str, version: Value, value: bytes, ttl_s: int = 0) -> None:
        """One store command."""
        operation = Operation(0, 0, verb, "", version, ttl_s=ttl_s)
        unique = self.uniques.get(key)
        unique_field = b""
        if verb == "cas":
            if unique is None:
                return
            operation = operation._replace(unique=unique)
            unique_field = b" %d" % unique
        if verb == "ms":
            request = b"ms %s %d c T%d\r\n%s\r\n" % (key, len(value), ttl_s, value)
            operation = operation._replace(verb="set")
            self.record(
                key,
                operation,
                request,
                lambda line: self.with_meta_store_result(key, operation, line),
            )
            return
        request = b"%s %s 0 %d %d%s\r\n%s\r\n" % (
            verb.encode(),
            key,
            ttl_s,
            len(value),
            unique_field,
            value,
        )
        self.record(
            key, operation, request, lambda line: self.with_text_store_result(operation, line)
        )

    def with_text_store_result(self, operation: Operation, line: bytes) -> Operation:
        """The reply of a text store; NOT_STORED says to an add that there is an item, to others that not."""
        if line == b"NOT_STORED":
            return operation._replace(result="exists" if operation.verb == "add" else "miss")
        return self.with_result_of_reply(
            operation, line, done=(b"STORED",), miss=(b"NOT_FOUND",), exists=(b"EXISTS",)
        )

    def with_meta_store_result(self, key: bytes, operation: Operation, line: bytes) -> Operation:
        """The reply of a meta set that returns its unique."""
        operation_with_result = self.with_result_of_reply(operation, line, done=(b"HD",))
        if operation_with_result.result != "done":
            return operation_with_result
        unique = int(line.split(b" c")[1])
        self.uniques[key] = unique
        return operation_with_result._replace(unique=unique)

    def read_shared_value(self) -> None:
        """get, gets, gat or mg of a plain value, a log or a number."""
        family = self.rng.choice(["v", "v", "v", "a", "n"])
        self.read_key(self.pick_shared_key(family))

    def read_key(self, key: bytes) -> None:
        """One read command."""
        command_format = self.rng.choice(
            [b"get %s\r\n", b"gets %s\r\n", b"gats 0 %s\r\n", b"mg %s c v\r\n"]
        )
        operation = Operation(0, 0, "get", "")
        if command_format.startswith(b"mg"):
            self.record(
                key,
                operation,
                command_format % key,
                lambda line: self.with_meta_value(key, operation, line),
            )
        else:
            self.record(
                key,
                operation,
                command_format % key,
                lambda line: self.with_text_value(key, operation, line),
            )

    def with_meta_value(self, key: bytes, operation: Operation, line: bytes) -> Operation:
        """The reply of a meta get with its value, unique and marks."""
        if line == b"EN":
            return operation._replace(result="miss")
        if line.startswith(b"SERVER_ERROR"):
            return operation._replace(result="refused")
        words = line.split()
        if words[0] != b"VA":
            raise ValueError(f"mg: reply {line[:60]!r}")
        value = self.decode_value(key, self.connection.read_value(int(words[1])))
        unique = next((int(word[1:]) for word in words[2:] if word[:1] == b"c"), None)
        if unique is not None:
            self.uniques[key] = unique
        marks = "".join(word.decode() for word in words[2:] if word in (b"W", b"X", b"Z"))
        return operation._replace(
            result="done", value=value, unique=unique, flags=operation.flags + marks
        )

    def delete_shared_key(self) -> None:
        """delete or md."""
        key = self.pick_shared_key(self.rng.choice(["v", "v", "a", "n", "l"]))
        operation = Operation(0, 0, "delete", "")
        command_format = self.rng.choice([b"delete %s\r\n", b"md %s\r\n"])
        self.record(
            key,
            operation,
            command_format % key,
            lambda line: self.with_result_of_reply(
                operation, line, done=(b"DELETED", b"HD"), miss=(b"NOT_FOUND", b"NF")
            ),
        )

    # ---- logs and numbers -------------------------------------------------------------------------

    def append_to_shared_log(self) -> None:
        """Appends to a shared log, or begins it; a record that survives its log's end is found."""
        key = self.pick_shared_key("a")
        text = b"%d;" % self.new_version()
        verb = self.rng.choice(["append", "append", "append", "set", "cas"])
        self.store(key, verb, text, text)

    def increment_shared_number(self) -> None:
        """incr, meta arithmetic, or a new beginning above every number before."""
        key = self.pick_shared_key("n")
        if self.rng.random() < 0.2:
            number = self.new_version() * 1000
            self.store(key, self.rng.choice(["set", "add"]), number, b"%d" % number)
            return
        operation = Operation(0, 0, "incr", "")
        command_format = self.rng.choice([b"incr %s 1\r\n", b"ma %s v\r\n"])
        self.record(
            key,
            operation,
            command_format % key,
            lambda line: self.with_incremented_number(operation, line),
        )

    def with_incremented_number(self, operation: Operation, line: bytes) -> Operation:
        """The reply of an increment."""
        if line.startswith(b"VA "):
            line = self.connection.read_value(int(line.split()[1]))
        if line.strip().isdigit():
            return operation._replace(result="done", value=int(line))
        return self.with_result_of_reply(operation, line, miss=(b"NOT_FOUND", b"NF"))

    # ---- leases -----------------------------------------------------------------------------------

    def use_shared_lease(self) -> None:
        """A meta get that may win, a store by a winner, or an invalidation."""
        key = self.pick_shared_key("l")
        chance = self.rng.random()
        if chance < 0.12:
            operation = Operation(0, 0, "invalidate", "")
            self.record(
                key,
                operation,
                b"md %s I T%d\r\n" % (key, LONG_TTL_S),
                lambda line: self.with_result_of_reply(
                    operation, line, done=(b"HD",), miss=(b"NF",)
                ),
            )
        elif chance < 0.3:
            self.store_under_lease(key, None)
        else:
            self.get_lease(key)

    def get_lease(self, key: bytes) -> None:
        """mg with N, with R, with both or neither; who wins stores a value, mostly."""
        flags = self.rng.choice(["N", "N", "NR", "R", ""])
        request = b"mg %s c v" % key
        if "N" in flags:
            request += b" N%d" % LONG_TTL_S
        if "R" in flags:
            request += b" R%d" % RECACHE_S
        operation = Operation(0, 0, "lease", "", flags=flags)
        operation_with_result = self.record(
            key,
            operation,
            request + b"\r\n",
            lambda line: self.with_meta_value(key, operation, line),
        )
        if "W" in operation_with_result.flags:
            self.report.history["wins"] += 1
            if self.rng.random() < 0.7:
                self.store_under_lease(key, operation_with_result.unique)

    def store_under_lease(self, key: bytes, unique: int | None) -> None:
        """A meta set, under the unique of a win if there is one."""
        version = self.new_version()
        value = self.checked_values.make(key, version, self.rng.randint(0, 200))
        is_short = self.rng.random() < 0.3
        flags = "S" if is_short else ""
        ttl_s = SHORT_TTL_S if is_short else LONG_TTL_S
        request = b"ms %s %d T%d" % (key, len(value), ttl_s)
        operation = Operation(0, 0, "set", "", version, flags=flags)
        if unique is not None:
            request += b" C%d" % unique
            operation = operation._replace(verb="cas", unique=unique)
        self.record(
            key,
            operation,
            request + b"\r\n%s\r\n" % value,
            lambda line: self.with_result_of_reply(
                operation, line, done=(b"HD",), exists=(b"EX",), miss=(b"NF",)
            ),
        )

    # ---- expiry and flush -------------------------------------------------------------------------

    def use_expiring_item(self) -> None:
        """Stores, touches and reads of items that live for a second or two, or are left alone."""
        family = self.rng.choice("td")
        key = self.pick_shared_key(family)
        ttl_s = self.rng.randint(1, 2) if family == "t" else 0
        remaining_s = period_end(key) - time.monotonic()
        is_written = remaining_s > PERIOD_S[family] * (1 - WRITING_SHARE_OF_PERIOD)
        chance = self.rng.random() if is_written else 1.0
        if family == "d" and self.rng.random() < 0.03:
            # Written again now and then, for a flush that is not delayed leaves nothing to be found.
            chance = 0.0
        if chance < 0.15:
            version = self.new_version()
            value = self.checked_values.make(key, version, self.rng.randint(0, 200))
            self.store(key, self.rng.choice(["set", "ms", "add", "replace"]), version, value, ttl_s)
        elif chance < 0.18:
            operation = Operation(0, 0, "touch", "", ttl_s=ttl_s)
            self.record(
                key,
                operation,
                b"touch %s %d\r\n" % (key, ttl_s),
                lambda line: self.with_result_of_reply(
                    operation, line, done=(b"TOUCHED",), miss=(b"NOT_FOUND",)
                ),
            )
        elif chance < 0.21:
            gat = Operation(0, 0, "gat", "", ttl_s=ttl_s)
            request = b"gat %d %s\r\n" % (ttl_s, key)
            self.record(key, gat, request, lambda line: self.with_text_value(key, gat, line))
        else:
            get = Operation(0, 0, "get", "")
            command_format = self.rng.choice([b"get %s\r\n", b"mg %s v\r\n"])
            parse_reply = (
                self.with_meta_value if command_format.startswith(b"mg") else self.with_text_value
            )
            self.record(key, get, command_format % key, lambda line: parse_reply(key, get, line))

    def flush_if_due(self) -> None:
        """The first process empties the cache now and then; a delayed flush ends before the next is sent."""
        start = time.monotonic()
        if start < self.next_flush_at:
            return
        self.may_kill_during_next_request = False
        if self.can_flush_prefixes and self.rng.random() < PREFIX_SHARE:
            self.flush_prefix(start)
            return
        delay_s = DELAYED_FLUSH_S if self.rng.random() < 0.25 else 0
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
        self.next_flush_at = end + self.rng.uniform(0.2, 2.0) * self.plan.flush_s

    def flush_prefix(self, start: float) -> None:
        """Flushes a family of keys, those of a few numbers, or one key with its neighbours in time."""
        key = self.pick_shared_key(self.rng.choice("vanltd"))
        prefix = key[: self.rng.randint(1, len(key))]
        request = self.rng.choice([b"flush_prefix %s\r\n", b"mf %s\r\n"])
        reply = self.send_request(request % prefix)
        if reply in {b"ERROR", b"CLIENT_ERROR bad command line format"}:
            self.can_flush_prefixes = False
            return
        if reply not in {b"OK", b"HD"}:
            raise ValueError(f"flush_prefix: reply {reply[:60]!r}")
        end = time.monotonic()
        self.flushes.append(Flush(prefix, Operation(start, end, "flush", "done")))
        self.report.history["flushes of prefixes"] += 1
        self.next_flush_at = end + self.rng.uniform(0.2, 2.0) * self.plan.flush_s
