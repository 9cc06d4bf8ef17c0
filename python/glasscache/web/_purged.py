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

__all__ = ["Site", "Tag", "new_site"]

PREFIXES_MAX: Final = 64
"""More prefixes in one record are merged into their common one: too much is purged rather than too little."""


@dataclass(slots=True, frozen=True)
class Purge:
    """A purge of the URLs that begin with `prefix`, at `seq` of the clock."""

    prefix: bytes
    seq: int
    is_soft: bool


@dataclass(slots=True, frozen=True)
class Site:
    """The clock and the prefixes purged since `born`."""

    born: int
    seq: int
    purges: tuple[Purge, ...] = ()

    def encode(self) -> bytes:
        """Return the record."""
        purges = [[one.prefix.decode("latin-1"), one.seq, one.is_soft] for one in self.purges]
        return json.dumps({"born": self.born, "seq": self.seq, "purges": purges}).encode()

    @classmethod
    def decode(cls, data: Any) -> Site | None:
        """Return the record of a value, or None if it is not one."""
        try:
            match json.loads(data):
                case {"born": int(born), "seq": int(seq), "purges": [*purges]}:
                    return cls(born, seq, tuple(
                        Purge(str(prefix).encode("latin-1"), int(at), bool(is_soft))
                        for prefix, at, is_soft in purges
                    ))  # fmt: skip
                case _:
                    return None
        except (ValueError, TypeError, UnicodeError):
            return None

    def state_of(self, url: bytes, seq: int) -> tuple[bool, bool]:
        """Return whether a response fetched at `seq` was purged for good, and whether softly."""
        if seq < self.born:
            return True, False
        is_soft = False
        for purge in self.purges:
            if seq < purge.seq and url.startswith(purge.prefix):
                if not purge.is_soft:
                    return True, False
                is_soft = True
        return False, is_soft

    def with_purge(self, prefix: bytes, *, is_soft: bool) -> Site:
        """Return the record after one more purge."""
        seq = self.seq + 1
        remaining = [one for one in self.purges if not (
            one.prefix.startswith(prefix) and (one.is_soft or not is_soft)
        )]  # fmt: skip
        purges = [*remaining, Purge(prefix, seq, is_soft)]
        if len(purges) > PREFIXES_MAX:
            common = _common([one.prefix for one in purges])
            hard = any(not one.is_soft for one in purges)
            purges = [Purge(common, seq, not hard)]
        return Site(self.born, seq, tuple(purges))

    def moved_on(self) -> Site:
        """Return the record with its clock one further."""
        return Site(self.born, self.seq + 1, self.purges)


@dataclass(slots=True, frozen=True)
class Tag:
    """A tag's last purges on the clock: responses fetched before `hard` are gone, before `soft` stale."""

    hard: int
    soft: int

    def encode(self) -> bytes:
        """Return the record."""
        return b"%d %d" % (self.hard, self.soft)

    @classmethod
    def decode(cls, data: Any) -> Tag | None:
        """Return the record of a value, or None if it is not one."""
        try:
            hard, soft = bytes(data).split()
            return cls(int(hard), int(soft))
        except (TypeError, ValueError):
            return None


def new_site() -> Site:
    """Return a record whose clock is beyond any that was lost: microseconds since 1970."""
    now = time.time_ns() // 1000
    return Site(now, now)


def _common(prefixes: list[bytes]) -> bytes:
    low, high = min(prefixes), max(prefixes)
    count = 0
    for one, other in zip(low, high, strict=False):
        if one != other:
            break
        count += 1
    return low[:count]
