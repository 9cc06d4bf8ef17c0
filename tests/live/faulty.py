"""A small memcached that is wrong on purpose, to prove that the consistency check finds it.

One thread a connection over one dictionary under one lock, so that it is right without its fault.
The faults are silent: every reply has the right form. They strike once in a thousand operations.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import threading
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from scripted_server import ScriptedServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

MODES = [
    "none", "stale", "lost", "swapped", "double-incr", "late-expiry", "torn",
    "survives-flush", "derived-from-flushed", "never-flushes-late", "undeletes",
    "cas-of-old-unique", "reused-unique", "two-winners", "stale-as-fresh", "flushed",
]  # fmt: skip
# Modes that are checked with flushes between; the last of them has no fault.
FLUSHED_MODES = {"survives-flush", "derived-from-flushed", "never-flushes-late", "flushed"}


@dataclass
class Item:
    """A stored value with what it was before."""

    value: bytes
    flags: bytes
    unique: int
    expires_at: float | None
    previous_value: bytes | None = None
    is_stale: bool = False
    is_won: bool = False


class Store:
    """The dictionary and the fault."""

    def __init__(self, mode: str, fault_rate: float) -> None:
        self.mode, self.fault_rate = mode, fault_rate
        self.items: dict[bytes, Item] = {}
        # What was deleted or flushed, and may come back by a fault.
        self.removed_items: dict[bytes, Item] = {}
        self.delayed_flush_at: float | None = None
        self.lock = threading.Lock()
        self.unique = 0
        self.rng = random.Random(7)

    def has_fault(self, mode: str, factor: float = 1.0) -> bool:
        """Whether the fault of this mode happens now."""
        return mode == self.mode and self.rng.random() < self.fault_rate * factor

    def find(self, key: bytes) -> Item | None:
        """The live item."""
        if self.delayed_flush_at is not None and time.monotonic() >= self.delayed_flush_at:
            self.delayed_flush_at = None
            self.flush()
        item = self.items.get(key)
        if item is None and self.has_fault("undeletes", 50) and key in self.removed_items:
            item = self.items[key] = self.removed_items[key]
        has_expired = item and item.expires_at is not None and time.monotonic() >= item.expires_at
        if has_expired and self.mode != "late-expiry":
            del self.items[key]
            return None
        return item

    def read(self, key: bytes) -> tuple[Item, bytes] | None:
        """The item and the value to show, which the fault may change."""
        item = self.find(key)
        if item is None:
            return None
        value = item.value
        if self.has_fault("stale", 5) and item.previous_value is not None:
            value = item.previous_value
        if self.has_fault("torn", 5) and len(value) > 40:
            value = value[:-8] + value[:8]
        if self.has_fault("swapped", 2) and self.items:
            value = self.rng.choice(list(self.items.values())).value
        return item, value

    def write(self, key: bytes, value: bytes, flags: bytes, exptime: int) -> None:
        """Stores, or forgets to."""
        if self.has_fault("lost", 5):
            return
        old_item = self.items.get(key)
        expires_at = time.monotonic() + exptime if exptime > 0 else None
        unique = self.next_unique()
        if old_item and self.has_fault("reused-unique", 10):
            unique = old_item.unique
        self.items[key] = Item(
            value, flags, unique, expires_at, old_item.value if old_item else None
        )

    def next_unique(self) -> int:
        """A unique that no item has had."""
        self.unique += 1
        return self.unique

    def delete(self, key: bytes) -> None:
        """Removes an item that is there."""
        self.removed_items[key] = self.items.pop(key)

    def flush(self) -> None:
        """Empties the cache, almost."""
        surviving_items = {
            key: item for key, item in self.items.items() if self.has_fault("survives-flush", 50)
        }
        if self.mode == "derived-from-flushed":
            self.removed_items = self.items
        self.items = surviving_items

    def find_for_append(self, key: bytes) -> Item | None:
        """The item that an append finds: by a fault one that was flushed."""
        return self.find(key) or (
            self.removed_items.pop(key, None) if self.mode == "derived-from-flushed" else None
        )

    def compare_and_swap(self, item: Item, unique: int) -> bool:
        """Whether a cas with this unique may store."""
        return item.unique == unique or self.has_fault("cas-of-old-unique", 20)

    def lease_marks(self, item: Item, is_nearly_dead: bool) -> bytes:
        """The marks of a meta get: stale, won by this caller, won by another."""
        mark_flags = b""
        was_won = item.is_won
        may_win = item.is_stale or is_nearly_dead
        if may_win and (not was_won or self.has_fault("two-winners", 20)):
            item.is_won = True
            mark_flags += b" W"
        if item.is_stale and not self.has_fault("stale-as-fresh", 20):
            mark_flags += b" X"
        return mark_flags + (b" Z" if was_won and b"W" not in mark_flags else b"")


class Session:
    """One connection."""

    def __init__(self, store: Store, reader: IO[bytes]) -> None:
        self.store, self.reader = store, reader

    def serve(self, connection: socket.socket) -> None:
        """Replies until the client closes."""
        with contextlib.suppress(ValueError, IndexError):
            while line := self.reader.readline():
                connection.sendall(self.reply_to(line.split()))

    def reply_to(self, request_words: list[bytes]) -> bytes:
        """Runs one command."""
        verb = request_words[0]
        value = b""
        if verb in (b"set", b"add", b"replace", b"append", b"cas"):
            value = self.reader.read(int(request_words[4]) + 2)[:-2]
        elif verb == b"ms":
            value = self.reader.read(int(request_words[2]) + 2)[:-2]
        with self.store.lock:
            reply = self.execute(verb, request_words, value)
        is_quiet = verb in (b"ms", b"md") and b"q" in request_words[2:]
        return b"" if is_quiet or request_words[-1] == b"noreply" else reply

    def execute(  # noqa: C901, PLR0911, PLR0912 - a line for each
        self, verb: bytes, request_words: list[bytes], value: bytes
    ) -> bytes:
        """One command under the lock."""
        store = self.store
        if verb == b"version":
            return b"VERSION faulty\r\n"
        if verb == b"mn":
            return b"MN\r\n"
        if verb in (b"gat", b"gats"):
            for key in request_words[2:]:
                if item := store.find(key):
                    item.expires_at = (
                        time.monotonic() + int(request_words[1]) if int(request_words[1]) else None
                    )
            return self.value_blocks(request_words[2:], verb == b"gats")
        if verb in (b"get", b"gets"):
            return self.value_blocks(request_words[1:], verb == b"gets")
        if verb == b"flush_all":
            self.flush(int(request_words[1]) if len(request_words) > 1 else 0)
            return b"OK\r\n"
        if verb in (b"flush_prefix", b"mf"):
            return b"ERROR\r\n"  # As memcached, which does not know the command.
        key = request_words[1]
        item = store.find(key)
        opaque = b"".join(b" " + word for word in request_words[2:] if word.startswith(b"O"))
        if verb == b"ms":
            return self.meta_set(key, request_words[3:], value, item).replace(b"\r", opaque + b"\r")
        if verb == b"set":
            store.write(key, value, request_words[2], int(request_words[3]))
            return b"STORED\r\n"
        if verb == b"add":
            if item:
                return b"NOT_STORED\r\n"
            store.write(key, value, request_words[2], int(request_words[3]))
            return b"STORED\r\n"
        if verb == b"mg":
            return self.meta_get(key, request_words[2:])
        if verb == b"append":
            item = store.find_for_append(key)
        is_meta = verb in (b"md", b"ma")
        if item is None:
            return (
                b"NF%b\r\n" % opaque
                if is_meta
                else b"NOT_STORED\r\n"
                if verb in (b"append", b"replace")
                else b"NOT_FOUND\r\n"
            )
        reply = self.change_existing_item(verb, request_words, value, item)
        return reply.replace(b"\r", opaque + b"\r", 1) if is_meta else reply

    def flush(self, delay_s: int) -> None:
        """flush_all, at once or later."""
        store = self.store
        if not delay_s:
            store.flush()
        elif store.mode != "never-flushes-late":
            store.delayed_flush_at = time.monotonic() + delay_s

    def meta_set(
        self, key: bytes, meta_flags: list[bytes], value: bytes, item: Item | None
    ) -> bytes:
        """ms with the flags c, C, F and T."""
        flag_values = {meta_flag[:1]: meta_flag[1:] for meta_flag in meta_flags}
        if b"C" in flag_values:
            if item is None:
                return b"NF\r\n"
            if not self.store.compare_and_swap(item, int(flag_values[b"C"])):
                return b"EX\r\n"
        flags, exptime = flag_values.get(b"F", b"0"), int(flag_values.get(b"T", b"0"))
        self.store.write(key, value, flags, exptime)
        written_item = self.store.items.get(key)
        return (
            b"HD c%d\r\n" % (written_item.unique if written_item else 0)
            if b"c" in flag_values
            else b"HD\r\n"
        )

    def meta_get(self, key: bytes, meta_flags: list[bytes]) -> bytes:
        """mg with the flags c, f, k, O, N, R and v."""
        store = self.store
        flag_values = {meta_flag[:1]: meta_flag[1:] for meta_flag in meta_flags}
        item_and_value = store.read(key)
        mark_flags = b" W"
        if item_and_value:
            item, value = item_and_value
            remaining_ttl_s = (
                item.expires_at - time.monotonic() if item.expires_at is not None else 1e9
            )
            mark_flags = store.lease_marks(item, remaining_ttl_s < int(flag_values.get(b"R", b"0")))
        elif b"N" in flag_values:
            expires_at = time.monotonic() + int(flag_values[b"N"])
            item, value = Item(b"", b"0", store.next_unique(), expires_at, is_won=True), b""
            store.items[key] = item
        else:
            return b"EN\r\n"
        returned_flags = {
            b"c": b"c%d" % item.unique,
            b"f": b"f" + item.flags,
            b"k": b"k" + key,
            b"O": b"O" + flag_values.get(b"O", b""),
        }
        returned_text = b"".join(
            b" " + returned_flags[meta_flag[:1]]
            for meta_flag in meta_flags
            if meta_flag[:1] in returned_flags
        )
        return b"VA %d%s%s\r\n%s\r\n" % (len(value), returned_text, mark_flags, value)

    def change_existing_item(  # noqa: PLR0911 - a line for each
        self, verb: bytes, request_words: list[bytes], value: bytes, item: Item
    ) -> bytes:
        """A command on an item that is there."""
        store, key = self.store, request_words[1]
        if verb == b"append":
            store.write(key, item.value + value, item.flags, 0)
            return b"STORED\r\n"
        if verb == b"replace":
            store.write(key, value, request_words[2], int(request_words[3]))
            return b"STORED\r\n"
        if verb == b"cas":
            if not store.compare_and_swap(item, int(request_words[5])):
                return b"EXISTS\r\n"
            store.write(key, value, request_words[2], int(request_words[3]))
            return b"STORED\r\n"
        if verb in (b"incr", b"ma"):
            incremented_number = b"%d" % (int(item.value) + 1)
            if not store.has_fault("double-incr", 10):
                store.write(key, incremented_number, item.flags, 0)
            return (
                b"VA %d\r\n%s\r\n" % (len(incremented_number), incremented_number)
                if verb == b"ma"
                else incremented_number + b"\r\n"
            )
        if verb in (b"delete", b"md"):
            if b"I" in request_words[2:]:
                item.is_stale, item.is_won, item.unique = True, False, store.next_unique()
            else:
                store.delete(key)
            return b"HD\r\n" if verb == b"md" else b"DELETED\r\n"
        item.expires_at = (
            time.monotonic() + int(request_words[2]) if int(request_words[2]) else None
        )
        return b"TOUCHED\r\n"

    def value_blocks(self, keys: list[bytes], with_unique: bool) -> bytes:
        """VALUE blocks and END."""
        reply = b""
        for key in keys:
            if item_and_value := self.store.read(key):
                item, value = item_and_value
                unique_field = b" %d" % item.unique if with_unique else b""
                reply += b"VALUE %s %s %d%s\r\n%s\r\n" % (
                    key,
                    item.flags,
                    len(value),
                    unique_field,
                    value,
                )
        return reply + b"END\r\n"


def serve_connections(mode: str, fault_rate: float, ports: multiprocessing.Queue[int]) -> None:
    """The body of the server process."""
    store = Store(mode, fault_rate)
    server = ScriptedServer(
        lambda connection: Session(store, connection.makefile("rb")).serve(connection)
    )
    ports.put(server.port)
    threading.Event().wait()


@contextlib.contextmanager
def faulty_server(mode: str, fault_rate: float) -> Iterator[int]:
    """A faulty server in a process of its own; gives its port."""
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(
        target=serve_connections, args=(mode, fault_rate, ports), daemon=True
    )
    process.start()
    try:
        yield ports.get()
    finally:
        process.terminate()
        process.join()
