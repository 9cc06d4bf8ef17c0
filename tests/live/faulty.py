"""A small memcached that is wrong on purpose, to prove that the consistency check finds it.

One thread a connection over one dictionary under one lock, so that it is right without its fault.
The faults are silent: every reply has the right form. They strike once in a thousand operations.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = ["none", "stale", "lost", "swapped", "double-incr", "late-expiry", "torn"]


@dataclass
class Item:
    """A stored value with what it was before."""

    value: bytes
    flags: bytes
    unique: int
    expires: float | None
    before: bytes | None = None


class Store:
    """The dictionary and the fault."""

    def __init__(self, mode: str, rate: float) -> None:
        self.mode, self.rate = mode, rate
        self.items: dict[bytes, Item] = {}
        self.lock = threading.Lock()
        self.unique = 0
        self.random = random.Random(7)

    def strikes(self, mode: str, factor: float = 1.0) -> bool:
        """Whether the fault of this mode happens now."""
        return mode == self.mode and self.random.random() < self.rate * factor

    def find(self, key: bytes) -> Item | None:
        """The live item."""
        item = self.items.get(key)
        is_over = item and item.expires is not None and time.monotonic() >= item.expires
        if is_over and self.mode != "late-expiry":
            del self.items[key]
            return None
        return item

    def read(self, key: bytes) -> tuple[Item, bytes] | None:
        """The item and the value to show, which the fault may change."""
        item = self.find(key)
        if item is None:
            return None
        value = item.value
        if self.strikes("stale", 5) and item.before is not None:
            value = item.before
        if self.strikes("torn", 5) and len(value) > 40:
            value = value[:-8] + value[:8]
        if self.strikes("swapped", 2) and self.items:
            value = self.random.choice(list(self.items.values())).value
        return item, value

    def write(self, key: bytes, value: bytes, flags: bytes, exptime: int) -> None:
        """Stores, or forgets to."""
        if self.strikes("lost", 5):
            return
        self.unique += 1
        old = self.items.get(key)
        expires = time.monotonic() + exptime if exptime > 0 else None
        self.items[key] = Item(value, flags, self.unique, expires, old.value if old else None)


class Session(threading.Thread):
    """One connection."""

    def __init__(self, store: Store, connection: socket.socket) -> None:
        super().__init__(daemon=True)
        self.store, self.connection = store, connection
        self.file = connection.makefile("rb")

    def run(self) -> None:
        """Answers until the client leaves."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            while line := self.file.readline():
                reply = self.answer(line.split())
                if reply:
                    self.connection.sendall(reply)
        self.connection.close()

    def answer(self, words: list[bytes]) -> bytes:
        """Runs one command."""
        verb = words[0]
        value = b""
        if verb in (b"set", b"add", b"append", b"cas"):
            value = self.file.read(int(words[4]) + 2)[:-2]
        elif verb == b"ms":
            value = self.file.read(int(words[2]) + 2)[:-2]
        with self.store.lock:
            reply = self.execute(verb, words, value)
        return b"" if words[-1] == b"noreply" else reply

    def execute(self, verb: bytes, words: list[bytes], value: bytes) -> bytes:  # noqa: PLR0911 - a line for each
        """One command under the lock."""
        store = self.store
        if verb == b"version":
            return b"VERSION faulty\r\n"
        if verb == b"mn":
            return b"MN\r\n"
        if verb in (b"get", b"gets", b"gat"):
            return self.values(words[2:] if verb == b"gat" else words[1:], verb == b"gets")
        key = words[1]
        item = store.find(key)
        if verb in (b"set", b"ms"):
            flags, exptime = (b"0", 0) if verb == b"ms" else (words[2], int(words[3]))
            store.write(key, value, flags, exptime)
            return b"HD\r\n" if verb == b"ms" else b"STORED\r\n"
        if verb == b"add":
            if item:
                return b"NOT_STORED\r\n"
            store.write(key, value, words[2], int(words[3]))
            return b"STORED\r\n"
        if verb == b"mg":
            found = store.read(key)
            extra = b" ".join(
                word if word[:1] == b"O" else b"k" + key for word in words[2:] if word[:1] in b"kO"
            )
            return b"VA %d %s\r\n%s\r\n" % (len(found[1]), extra, found[1]) if found else b"EN\r\n"
        meta = verb in (b"md", b"ma")
        if item is None:
            return (
                b"NF\r\n" if meta else b"NOT_STORED\r\n" if verb == b"append" else b"NOT_FOUND\r\n"
            )
        return self.change(verb, words, value, item)

    def change(self, verb: bytes, words: list[bytes], value: bytes, item: Item) -> bytes:
        """A command on an item that is there."""
        store, key = self.store, words[1]
        if verb == b"append":
            store.write(key, item.value + value, item.flags, 0)
            return b"STORED\r\n"
        if verb == b"cas":
            if int(words[5]) != item.unique:
                return b"EXISTS\r\n"
            store.write(key, value, words[2], int(words[3]))
            return b"STORED\r\n"
        if verb in (b"incr", b"ma"):
            number = b"%d" % (int(item.value) + 1)
            if not store.strikes("double-incr", 10):
                store.write(key, number, item.flags, 0)
            return b"VA %d\r\n%s\r\n" % (len(number), number) if verb == b"ma" else number + b"\r\n"
        if verb in (b"delete", b"md"):
            del store.items[key]
            return b"HD\r\n" if verb == b"md" else b"DELETED\r\n"
        return b"TOUCHED\r\n"

    def values(self, keys: list[bytes], with_unique: bool) -> bytes:
        """VALUE blocks and END."""
        reply = b""
        for key in keys:
            if found := self.store.read(key):
                item, value = found
                unique = b" %d" % item.unique if with_unique else b""
                reply += b"VALUE %s %s %d%s\r\n%s\r\n" % (
                    key,
                    item.flags,
                    len(value),
                    unique,
                    value,
                )
        return reply + b"END\r\n"


def serve(mode: str, rate: float, listener: socket.socket) -> None:
    """The body of the server process."""
    store = Store(mode, rate)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Session(store, connection).start()


@contextlib.contextmanager
def running(mode: str, rate: float) -> Iterator[int]:
    """A faulty server in a process of its own; gives its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.Process(target=serve, args=(mode, rate, listener), daemon=True)
    process.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        process.terminate()
        process.join()
        listener.close()
