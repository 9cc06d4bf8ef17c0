"""A dictionary of the last entries that are worth keeping, bounded in bytes."""

from __future__ import annotations

import threading
from typing import Final, Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K")
V = TypeVar("V")

_ENTRY_BYTES: Final = 256
"""What an entry takes beside the bytes that it is put with."""


class BoundedCache(Generic[K, V]):
    """The last entries, so many that they take at most `bytes_max`; the oldest goes first.

    Threads may read and write at once: `entries` is read directly, as the path of a hit does.
    """

    __slots__ = ("_bytes", "_bytes_max", "_lock", "_sizes", "entries")

    def __init__(self, bytes_max: int) -> None:
        """Begin without entries."""
        self.entries: dict[K, V] = {}
        self._sizes: dict[K, int] = {}
        self._bytes, self._bytes_max, self._lock = 0, bytes_max, threading.Lock()

    def put(self, key: K, value: V, value_bytes: int) -> None:
        """Keep an entry of about so many bytes; one that is a large part of all is not kept."""
        entry_bytes = value_bytes + _ENTRY_BYTES
        with self._lock:
            self._remove(key)
            if 16 * entry_bytes > self._bytes_max:
                return
            while self._bytes + entry_bytes > self._bytes_max:
                self._remove(next(iter(self._sizes)))
            self._sizes[key], self._bytes = entry_bytes, self._bytes + entry_bytes
            self.entries[key] = value

    def _remove(self, key: K) -> None:
        self._bytes -= self._sizes.pop(key, 0)
        self.entries.pop(key, None)
