"""Values above the servers' limit, stored in pieces: a read returns one write's whole value, or a miss.

    pieces = Pieces(client)
    pieces.set("report", document, ttl=3600)

A value that fits is stored as `client.set` stores it. A longer one is stored as pieces under keys that
contain a random number of the write, and a manifest under the key itself, last. So a mixture of two writes
is never read, and a piece that is lost or altered makes the value a miss.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

from glasscache._plans import call
from glasscache.errors import GlasscacheError
from glasscache.web._drive import drive, drive_async

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.aio import AsyncClient
    from glasscache.client import Client

__all__ = ["AsyncPieces", "Pieces"]

_MANIFEST: Final = struct.Struct("<16sQQIII")
"""Magic, number of the write, bytes of the value and of a piece, flags of the codec, checksum."""
_MAGIC: Final = b"\x00glasscache-split"[:16]
PIECE_BYTES: Final = 512 << 10
WINDOW_PIECES: Final = 64
"""Pieces of one request: 32 MiB."""


class _Plans:
    """What both classes do, as plans."""

    def __init__(self, client: Any, piece_bytes: int) -> None:
        if piece_bytes < 1:
            raise ValueError(f"piece_bytes={piece_bytes}: at least 1")
        self.client, self.piece_bytes = client, piece_bytes

    def put(self, key: str, value: Any, ttl: float | None) -> Generator[Any, Any, bool]:
        flags, body = self.client.codec.encode(value)
        looks_split = isinstance(value, bytes) and value.startswith(_MAGIC)
        if len(body) <= self.piece_bytes and not looks_split:
            return bool((yield call(self.client, "set", key, value, ttl=ttl)))
        write, size = secrets.randbits(64), self.piece_bytes
        names = [_piece_key(write, index) for index in range(-(-len(body) // size))]
        view = memoryview(body)
        for first in range(0, len(names), WINDOW_PIECES):
            some = {
                name: bytes(view[index * size : (index + 1) * size])
                for index, name in enumerate(names[first : first + WINDOW_PIECES], first)
            }
            failed = yield call(self.client, "set_many", some, ttl=ttl)
            if failed:
                yield from self._discard(names)
                raise next(iter(failed.values()))
        manifest = _MANIFEST.pack(_MAGIC, write, len(body), size, flags, zlib.crc32(body))
        done = yield call(self.client, "set", key, manifest, ttl=ttl)
        if not done:
            yield from self._discard(names)
        return bool(done)

    def _discard(self, names: list[str]) -> Generator[Any, Any, None]:
        try:
            yield call(self.client, "delete_many", names)
        except GlasscacheError:
            return  # they are never read, and fall out by age

    def find(self, key: str, default: Any) -> Generator[Any, Any, Any]:
        value = yield call(self.client, "get", key, default)
        if (
            not isinstance(value, bytes)
            or not value.startswith(_MAGIC)
            or len(value) != _MANIFEST.size
        ):
            return value
        _, write, length, size, flags, checksum = _MANIFEST.unpack(value)
        body, count = bytearray(), -(-length // size) if size else 0
        for first in range(0, count, WINDOW_PIECES):
            names = [
                _piece_key(write, index)
                for index in range(first, min(count, first + WINDOW_PIECES))
            ]
            found = yield call(self.client, "get_many", names)
            for name in names:
                piece: Any = found.get(name)
                if not isinstance(piece, bytes):
                    return default
                body += piece
        if len(body) != length or zlib.crc32(body) != checksum:
            return default
        return self.client.codec.decode(flags, bytes(body))

    def remove(self, key: str) -> Generator[Any, Any, bool]:
        # Without its manifest no piece is ever read; they fall out by age.
        return bool((yield call(self.client, "delete", key)))


def _piece_key(write: int, index: int) -> str:
    return f"~piece:{write:016x}.{index}"


class Pieces:
    """`get`, `set` and `delete` of values of any size, over a `Client`.

    Args:
        client: whose codec makes bytes of values.
        piece_bytes: longest piece; below the servers' limit for an item (1 MiB unless they allow more).

    """

    def __init__(self, client: Client, *, piece_bytes: int = PIECE_BYTES) -> None:
        """Bind to a client."""
        self._plans = _Plans(client, piece_bytes)

    def set(self, key: str, value: Any, *, ttl: float | None = None) -> bool:
        """Store a value, in pieces if it is long; whether it was stored.

        Raises:
            GlasscacheError: what a piece's `set` failed with; the old value stays.

        """
        return drive(self._plans.put(key, value, ttl))

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under key; `default` if there is none or a piece of it is lost."""
        return drive(self._plans.find(key, default))

    def delete(self, key: str) -> bool:
        """Remove key; whether it was there."""
        return drive(self._plans.remove(key))


class AsyncPieces:
    """`Pieces` over an `AsyncClient`."""

    def __init__(self, client: AsyncClient, *, piece_bytes: int = PIECE_BYTES) -> None:
        """Bind to a client, as `Pieces`."""
        self._plans = _Plans(client, piece_bytes)

    async def set(self, key: str, value: Any, *, ttl: float | None = None) -> bool:
        """Store a value, as `Pieces.set`."""
        return await drive_async(self._plans.put(key, value, ttl))

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value under key, as `Pieces.get`."""
        return await drive_async(self._plans.find(key, default))

    async def delete(self, key: str) -> bool:
        """Remove key, as `Pieces.delete`."""
        return await drive_async(self._plans.remove(key))
