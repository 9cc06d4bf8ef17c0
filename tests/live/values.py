"""Values that name their key and version and are filled from both, so that a torn or foreign one is found."""

from __future__ import annotations

import functools
import hashlib

POOL_BYTES = 1 << 21

_md5 = functools.partial(hashlib.md5, usedforsecurity=False)


def pool() -> bytes:
    """Bytes without a short period, the same in every process; values are slices of them."""
    numbers = (b"%d" % number for number in range(POOL_BYTES // 32))
    return b"".join(_md5(number).hexdigest().encode() for number in numbers)


class Values:
    """Values from every byte of which key and version can be checked."""

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
