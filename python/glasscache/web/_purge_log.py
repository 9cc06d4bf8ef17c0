"""What was purged: a clock in the store, prefixes beside it, and a number for each tag.

Each purge moves the clock on, and each response carries the clock of the moment its fetch began; whatever
began before a purge that concerns it is gone (or stale, if the purge is soft). No entry is touched, so a
tag of a hundred thousand URLs is purged by one write, and no clock of a machine matters. A record that the
store has lost counts as a purge of all that it spoke for: a lost record means misses, never an old
response.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["PurgeLog", "TagPurges", "new_purge_log"]

PREFIXES_MAX: Final = 64
"""More prefixes in one record are merged into their common one: too much is purged rather than too little."""


@dataclass(slots=True, frozen=True)
class Purge:
    """A purge of the URLs that begin with `prefix`, at `seq` of the clock."""

    prefix: bytes
    seq: int
    is_soft: bool


@dataclass(slots=True, frozen=True)
class PurgeLog:
    """The clock and the prefixes purged since `first_seq`."""

    first_seq: int
    seq: int
    purges: tuple[Purge, ...] = ()

    def encode(self) -> bytes:
        """Return the record."""
        purges = [
            [purge.prefix.decode("latin-1"), purge.seq, purge.is_soft] for purge in self.purges
        ]
        return json.dumps({"born": self.first_seq, "seq": self.seq, "purges": purges}).encode()

    @classmethod
    def decode(cls, data: Any) -> PurgeLog | None:
        """Return the record of a value, or None if it is not one."""
        try:
            match json.loads(data):
                case {"born": int(first_seq), "seq": int(seq), "purges": [*purges]}:
                    return cls(first_seq, seq, tuple(
                        Purge(str(prefix).encode("latin-1"), int(purged_seq), bool(is_soft))
                        for prefix, purged_seq, is_soft in purges
                    ))  # fmt: skip
                case _:
                    return None
        except (ValueError, TypeError, UnicodeError):
            return None

    def purge_state_of(self, url: bytes, seq: int) -> tuple[bool, bool]:
        """Return whether a response fetched at `seq` was purged for good, and whether softly."""
        if seq < self.first_seq:
            return True, False
        is_soft = False
        for purge in self.purges:
            if seq < purge.seq and url.startswith(purge.prefix):
                if not purge.is_soft:
                    return True, False
                is_soft = True
        return False, is_soft

    def with_purge(self, prefix: bytes, *, is_soft: bool) -> PurgeLog:
        """Return the record after one more purge."""
        seq = self.seq + 1
        remaining_purges = [purge for purge in self.purges if not (
            purge.prefix.startswith(prefix) and (purge.is_soft or not is_soft)
        )]  # fmt: skip
        purges = [*remaining_purges, Purge(prefix, seq, is_soft)]
        if len(purges) > PREFIXES_MAX:
            common_prefix = _common_prefix([purge.prefix for purge in purges])
            purges = [Purge(common_prefix, seq, all(purge.is_soft for purge in purges))]
        return PurgeLog(self.first_seq, seq, tuple(purges))

    def with_clock_advanced(self) -> PurgeLog:
        """Return the record with its clock one further."""
        return PurgeLog(self.first_seq, self.seq + 1, self.purges)


@dataclass(slots=True, frozen=True)
class TagPurges:
    """A tag's last purges on the clock: which responses are gone, and which are stale, by their fetch."""

    removed_before: int
    stale_before: int

    def encode(self) -> bytes:
        """Return the record."""
        return b"%d %d" % (self.removed_before, self.stale_before)

    @classmethod
    def decode(cls, data: Any) -> TagPurges | None:
        """Return the record of a value, or None if it is not one."""
        try:
            removed_before, stale_before = bytes(data).split()
            return cls(int(removed_before), int(stale_before))
        except (TypeError, ValueError):
            return None


def new_purge_log() -> PurgeLog:
    """Return a record whose clock is beyond any that was lost: microseconds since 1970."""
    now = time.time_ns() // 1000
    return PurgeLog(now, now)


def _common_prefix(prefixes: list[bytes]) -> bytes:
    least, greatest = min(prefixes), max(prefixes)
    prefix_length = 0
    for least_byte, greatest_byte in zip(least, greatest, strict=False):
        if least_byte != greatest_byte:
            break
        prefix_length += 1
    return least[:prefix_length]
