"""Values that name their key and version and are filled from both, so that a torn or foreign one is found."""

from __future__ import annotations

import functools
import hashlib

POOL_BYTES = 1 << 21

md5 = functools.partial(hashlib.md5, usedforsecurity=False)


def make_pool() -> bytes:
    """Bytes without a short period, the same in every process; values are slices of them."""
    numbers = (b"%d" % number for number in range(POOL_BYTES // 32))
    return b"".join(md5(number).hexdigest().encode() for number in numbers)


class CheckedValues:
    """Values from every byte of which key and version can be checked."""

    def __init__(self) -> None:
        self._pool = make_pool()

    def make(self, key: bytes, version: int, size_bytes: int) -> bytes:
        """The value of `size_bytes` bytes or a few more that only this key and version have."""
        header = b"%s|%d|%d|" % (key, version, size_bytes)
        return header + self._body(key, version, size_bytes)

    def _body(self, key: bytes, version: int, size_bytes: int) -> bytes:
        start = (stable_hash(key) + version * 104_729) % (POOL_BYTES - size_bytes)
        return self._pool[start : start + size_bytes]

    def read_version(self, key: bytes, value: bytes) -> int | None:
        """The version of a value, or `None` when it is not wholly a value of this key."""
        parts = value.split(b"|", 3)
        if len(parts) != 4 or parts[0] != key or not parts[1].isdigit() or not parts[2].isdigit():
            return None
        version, size_bytes = int(parts[1]), int(parts[2])
        return version if parts[3] == self._body(key, version, size_bytes) else None


def stable_hash(key: bytes) -> int:
    """A number that is the same in every process."""
    return int.from_bytes(md5(key).digest()[:6], "big")
