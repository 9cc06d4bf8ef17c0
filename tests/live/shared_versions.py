"""What all processes of the consistency check share: versions begun and acknowledged.

A key has one writer. Before a write the writer publishes the new version as begun, after the reply
as acknowledged; a reader notes the acknowledged version before its request and the begun version after
the reply, and the version it got must lie between. When a connection dies during a write its
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
USED_NUMBER_SLOTS = 1 << 23


class SharedVersions:
    """Versions of keys and used numbers, in memory that all processes share."""

    def __init__(self, key_count: int, counter_count: int) -> None:
        self.begun = RawArray(ctypes.c_uint64, key_count)
        self.acknowledged = RawArray(ctypes.c_uint64, key_count)
        self.next_number_by_counter = RawArray(ctypes.c_uint64, counter_count)
        self.used_numbers = [
            RawArray(ctypes.c_uint8, USED_NUMBER_SLOTS) for _ in range(counter_count)
        ]
        self.lock = multiprocessing.Lock()

    def key(self, key_index: int, generation: int) -> bytes:
        """The name of a key in one generation."""
        return b"key%d.%d" % (key_index, generation)

    def current_generation(self, key_index: int) -> int:
        """The generation in which the key is written now."""
        return self.begun[key_index] >> VERSION_BITS

    def begin(self, key_index: int) -> int:
        """Publishes the next version of the key as begun and returns it."""
        self.begun[key_index] += 1
        return self.begun[key_index] & VERSION_MASK

    def acknowledge(self, key_index: int) -> None:
        """Publishes the begun version as acknowledged."""
        self.acknowledged[key_index] = self.begun[key_index]

    def begin_next_generation(self, key_index: int) -> None:
        """Goes on under a new name, after a write whose outcome is unknown."""
        self.begun[key_index] = (self.current_generation(key_index) + 1) << VERSION_BITS
        self.acknowledged[key_index] = self.begun[key_index]

    def oldest_valid_version(self, key_index: int, generation: int) -> int:
        """The lowest version a read that begins now may return in this generation."""
        generation_and_version = self.acknowledged[key_index]
        return (
            generation_and_version & VERSION_MASK
            if generation_and_version >> VERSION_BITS == generation
            else 0
        )

    def newest_valid_version(self, key_index: int, generation: int) -> int:
        """The highest version a read that ends now may return in this generation."""
        generation_and_version = self.begun[key_index]
        return (
            generation_and_version & VERSION_MASK
            if generation_and_version >> VERSION_BITS == generation
            else VERSION_MASK
        )

    def reserve_number_above_all(self, counter_index: int, number_min: int) -> int:
        """A number above all that were read of the counter, to start it again after an eviction."""
        with self.lock:
            number = max(self.next_number_by_counter[counter_index], number_min) + 64
            self.next_number_by_counter[counter_index] = number
            return number

    def mark_used(self, counter_index: int, number: int) -> bool:
        """Marks a number as used by one successful change; false when another change has used it."""
        with self.lock:
            self.next_number_by_counter[counter_index] = max(
                self.next_number_by_counter[counter_index], number
            )
            index = number % USED_NUMBER_SLOTS
            if self.used_numbers[counter_index][index]:
                return False
            self.used_numbers[counter_index][index] = 1
            # Numbers wrap after eight million changes; the far half is free again in time.
            self.used_numbers[counter_index][
                (index + USED_NUMBER_SLOTS // 2) % USED_NUMBER_SLOTS
            ] = 0
            return True
