"""What all processes of the consistency check know in common: versions begun and acknowledged.

A key has one writer. Before a write the writer publishes the new version as begun, after the reply
as acknowledged; a reader notes the acknowledged version before it asks and the begun version after
it was answered, and the version it got must lie between. When a connection dies during a write its
outcome stays unknown for ever, for the server may run it later: the writer then leaves that name and
goes on under the next generation of the key.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import multiprocessing
from multiprocessing.sharedctypes import RawArray

VERSION_BITS = 40
VERSION_MASK = (1 << VERSION_BITS) - 1
POOL_BYTES = 1 << 21
# A deleted version is published like any other; its number alone says that it is no value.
CLAIMS = 1 << 23


_md5 = functools.partial(hashlib.md5, usedforsecurity=False)


def pool() -> bytes:
    """Bytes without a short period, the same in every process; values are slices of them."""
    numbers = (b"%d" % number for number in range(POOL_BYTES // 32))
    return b"".join(_md5(number).hexdigest().encode() for number in numbers)


class Values:
    """Values that say which key and version they belong to, in every byte."""

    def __init__(self) -> None:
        self._pool = pool()

    def make(self, key: bytes, version: int, size: int) -> bytes:
        """The value of `size` bytes or a few more that only this key and version have."""
        head = b"%s|%d|%d|" % (key, version, size)
        return head + self._body(key, version, size)

    def _body(self, key: bytes, version: int, size: int) -> bytes:
        start = (hash_of(key) + version * 104_729) % (POOL_BYTES - size)
        return self._pool[start : start + size]

    def read(self, key: bytes, value: bytes) -> int | None:
        """The version of a value, or `None` when it is not wholly a value of this key."""
        parts = value.split(b"|", 3)
        if len(parts) != 4 or parts[0] != key or not parts[1].isdigit() or not parts[2].isdigit():
            return None
        version, size = int(parts[1]), int(parts[2])
        return version if parts[3] == self._body(key, version, size) else None


def hash_of(key: bytes) -> int:
    """A number that is the same in every process."""
    return int.from_bytes(_md5(key).digest()[:6], "big")


class Ledger:
    """Versions of keys and claims on numbers, in memory that all processes share."""

    def __init__(self, keys: int, counters: int) -> None:
        self.begun = RawArray(ctypes.c_uint64, keys)
        self.acknowledged = RawArray(ctypes.c_uint64, keys)
        self.next_number = RawArray(ctypes.c_uint64, counters)
        self.claims = [RawArray(ctypes.c_uint8, CLAIMS) for _ in range(counters)]
        self.lock = multiprocessing.Lock()

    def name(self, index: int, generation: int) -> bytes:
        """The name of a key in one generation."""
        return b"key%d.%d" % (index, generation)

    def generation(self, index: int) -> int:
        """The generation in which the key is written now."""
        return self.begun[index] >> VERSION_BITS

    def begin(self, index: int) -> int:
        """Publishes the next version of the key as begun and returns it."""
        self.begun[index] += 1
        return self.begun[index] & VERSION_MASK

    def acknowledge(self, index: int) -> None:
        """Publishes the begun version as acknowledged."""
        self.acknowledged[index] = self.begun[index]

    def abandon(self, index: int) -> None:
        """Goes on under a new name, after a write whose outcome is unknown."""
        self.begun[index] = (self.generation(index) + 1) << VERSION_BITS
        self.acknowledged[index] = self.begun[index]

    def lower(self, index: int, generation: int) -> int:
        """The lowest version a read that begins now may return in this generation."""
        stamp = self.acknowledged[index]
        return stamp & VERSION_MASK if stamp >> VERSION_BITS == generation else 0

    def upper(self, index: int, generation: int) -> int:
        """The highest version a read that ends now may return in this generation."""
        stamp = self.begun[index]
        return stamp & VERSION_MASK if stamp >> VERSION_BITS == generation else VERSION_MASK

    def fresh_number(self, counter: int, at_least: int) -> int:
        """A number above all that the counter has shown, to start it again after an eviction."""
        with self.lock:
            number = max(self.next_number[counter], at_least) + 64
            self.next_number[counter] = number
            return number

    def claim(self, counter: int, number: int) -> bool:
        """Takes a number for one successful change; false when another has it already."""
        with self.lock:
            self.next_number[counter] = max(self.next_number[counter], number)
            place = number % CLAIMS
            if self.claims[counter][place]:
                return False
            self.claims[counter][place] = 1
            # Numbers wrap after eight million changes; the far half is given back in time.
            self.claims[counter][(place + CLAIMS // 2) % CLAIMS] = 0
            return True
