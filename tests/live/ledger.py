"""What all processes of the consistency check know in common: versions begun and acknowledged.

A key has one writer. Before a write the writer publishes the new version as begun, after the reply
as acknowledged; a reader notes the acknowledged version before it asks and the begun version after
it was answered, and the version it got must lie between. When a connection dies during a write its
outcome stays unknown for ever, for the server may run it later: the writer then leaves that name and
goes on under the next generation of the key.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from multiprocessing.sharedctypes import RawArray

VERSION_BITS = 40
VERSION_MASK = (1 << VERSION_BITS) - 1
# A deleted version is published like any other; its number alone says that it is no value.
CLAIMS = 1 << 23


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
            index = number % CLAIMS
            if self.claims[counter][index]:
                return False
            self.claims[counter][index] = 1
            # Numbers wrap after eight million changes; the far half is given back in time.
            self.claims[counter][(index + CLAIMS // 2) % CLAIMS] = 0
            return True
