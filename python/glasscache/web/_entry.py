"""What is stored for a URL: a response, a mark that it varies, is being fetched, or cannot be stored.

A record opens with its magic, the digest of the request that it belongs to and a checksum, so that a value
that is cut short, altered or another key's reads as a miss. Fields are kept as one run of bytes, which a hit
splits without parsing. Sizes are bytes, times Unix seconds, lifetimes seconds.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from glasscache.web._fields import Fields

__all__ = ["Entry", "Pending", "Uncacheable", "Unreadable", "VaryMark", "decode"]

_HEAD: Final = struct.Struct("<4sI16sdIIIIHHQQQII")
_ENTRY, _OTHER = b"GCW1", b"GCM1"
_LIFE_MAX: Final = 2**32 - 1

MUST_REVALIDATE: Final = 1
"""Never sent stale, not even when the application fails."""
NO_CACHE: Final = 2
"""Validated before each use."""
HAS_GRACE: Final = 4
"""`swr` was set by a rule."""
HEURISTIC: Final = 8
"""The response states no lifetime: it is not sent to requests with cookies or credentials."""


class Unreadable(Exception):
    """A record that cannot be read."""


@dataclass(slots=True)
class Entry:
    """A stored response.

    Attributes:
        digest: of the request.
        born: Unix time at which the response's age was 0.
        fresh: lifetime in seconds.
        swr: seconds after it in which it may be sent while it is refreshed.
        sie: seconds after it in which it may be sent instead of an error.
        status: the status code.
        flags: MUST_REVALIDATE, NO_CACHE, HAS_GRACE.
        seq: the purge clock when its fetch began.
        length: bytes of the whole body.
        write_id: names the pieces of the body; 0 if the body is in the record.
        cost_ms: how long the application took, up to the end of the body.
        fields: of the response, with lower-case names.
        tags: by which it can be purged.
        body: the body, unless it is in pieces.

    """

    digest: bytes
    born: float
    fresh: int
    swr: int
    sie: int
    status: int
    flags: int
    seq: int
    length: int
    write_id: int
    cost_ms: int
    fields: Fields
    tags: tuple[bytes, ...] = ()
    body: bytes = b""
    url: bytes = b""

    def encode(self) -> bytes:
        """Return the record."""
        flat: list[bytes] = [self.url, b" ".join(self.tags)]
        for pair in self.fields:
            flat += pair
        head = b"\0".join(flat)
        packed = _HEAD.pack(
            _ENTRY, 0, self.digest, self.born, min(self.fresh, _LIFE_MAX), min(self.swr, _LIFE_MAX),
            min(self.sie, _LIFE_MAX), min(self.cost_ms, _LIFE_MAX), self.status, self.flags, self.seq,
            self.length, self.write_id, len(head), len(self.body),
        )  # fmt: skip
        rest = packed[8:] + head + self.body
        return _ENTRY + zlib.crc32(rest).to_bytes(4, "little") + rest

    def field(self, name: bytes) -> bytes | None:
        """Return the first value of a field."""
        for known, value in self.fields:
            if known == name:
                return value
        return None

    def age(self, now: float) -> float:
        """Return the seconds since the origin made or validated it."""
        return max(0.0, now - self.born)


@dataclass(slots=True)
class Pending:
    """A request fetches this response; the token identifies it."""

    digest: bytes
    token: str
    begun: float


@dataclass(slots=True)
class VaryMark:
    """The response depends on these request fields; its variants have keys of their own under `id`."""

    digest: bytes
    names: tuple[bytes, ...]
    id: str
    soft: int = 0
    """Variants whose fetch began before this moment of the purge clock are stale."""


@dataclass(slots=True)
class Uncacheable:
    """The last response was not storable: requests go to the application without waiting for each other."""

    digest: bytes
    why: str = ""
    token: str = ""


Record = Entry | Pending | VaryMark | Uncacheable


def encode_mark(mark: Pending | VaryMark | Uncacheable) -> bytes:
    """Return the record of a mark."""
    content: dict[str, Any]
    match mark:
        case Pending(token=token, begun=begun):
            content = {"pending": token, "begun": begun}
        case VaryMark(names=names, id=own, soft=soft):
            content = {"vary": [name.decode("latin-1") for name in names], "id": own, "soft": soft}
        case Uncacheable(why=why, token=token):
            content = {"uncacheable": why, "token": token}
    rest = mark.digest + json.dumps(content).encode()
    return _OTHER + zlib.crc32(rest).to_bytes(4, "little") + rest


def decode(data: Any, digest: bytes) -> Record:
    """Return the record that a value holds.

    Raises:
        Unreadable: it is not a record, is damaged, or belongs to another request.

    """
    if type(data) is not bytes or len(data) < 24:  # noqa: PLR2004 - magic, checksum, digest
        raise Unreadable("not a record")
    if data[8:24] != digest:
        raise Unreadable("of another request")
    if int.from_bytes(data[4:8], "little") != zlib.crc32(memoryview(data)[8:]):
        raise Unreadable("damaged")
    if data.startswith(_ENTRY):
        return _decode_entry(data, digest)
    if data.startswith(_OTHER):
        return _decode_mark(data[24:], digest)
    raise Unreadable("of an unknown kind")


def _decode_entry(data: bytes, digest: bytes) -> Entry:
    try:
        (_, _, _, born, fresh, swr, sie, cost, status, flags, seq, length, write_id, head, body) = (
            _HEAD.unpack_from(data)
        )
    except struct.error:
        raise Unreadable("cut short") from None
    at = _HEAD.size + head
    if len(data) != at + body or (not write_id and length != body):
        raise Unreadable("cut short")
    url, tags, *flat = data[_HEAD.size : at].split(b"\0")
    if len(flat) % 2:
        raise Unreadable("of half a field")
    fields = list(zip(flat[::2], flat[1::2], strict=True))
    return Entry(
        digest, born, fresh, swr, sie, status, flags, seq, length, write_id, cost, fields,
        tuple(tags.split()), data[at:], url,
    )  # fmt: skip


def _decode_mark(text: bytes, digest: bytes) -> Record:
    try:
        match json.loads(text):
            case {"pending": str(token), "begun": float(begun)}:
                return Pending(digest, token, begun)
            case {"vary": [*names], "id": str(own), "soft": int(soft)}:
                return VaryMark(digest, tuple(str(name).encode() for name in names), own, soft)
            case {"uncacheable": str(why), "token": str(token)}:
                return Uncacheable(digest, why, token)
            case _:
                raise Unreadable("of an unknown kind")
    except ValueError:
        raise Unreadable("damaged") from None
