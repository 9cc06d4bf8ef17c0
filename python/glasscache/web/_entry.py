"""What is stored for a URL: a response, or that it varies, is being fetched, or cannot be stored.

A record opens with its magic, the digest of the request that it belongs to and a checksum, so that a value
that is cut short, altered or another key's reads as a miss. Fields are kept as one run of bytes, which a hit
splits without parsing. Sizes are bytes, times Unix seconds, lifetimes seconds.

A record is whatever lies at a key of the cache; an entry is a record that is a stored response.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from glasscache.web._fields import with_vary

if TYPE_CHECKING:
    from glasscache.web._fields import Fields

__all__ = [
    "Entry",
    "PendingRecord",
    "UncacheableRecord",
    "UnreadableRecord",
    "VaryRecord",
    "decode",
]

_HEAD: Final = struct.Struct("<4sI16sdIIIIHHQQQII")
_ENTRY_MAGIC, _OTHER_MAGIC = b"GCW2", b"GCM1"
GZIP: Final = b"gzip"
IDENTITY: Final = b"identity"
_LIFETIME_MAX_S: Final = 2**32 - 1

MUST_REVALIDATE: Final = 1
"""Never sent stale, not even when the application fails."""
NO_CACHE: Final = 2
"""Validated before each use."""
HAS_GRACE: Final = 4
"""`stale_while_revalidate_s` was set by a rule."""
HEURISTIC: Final = 8
"""The response states no lifetime: it is not sent to requests with cookies."""
NO_CREDENTIALS: Final = 16
"""The response does not say that it is for everyone: none with credentials beside its key gets it."""
NO_AUTHORIZATION: Final = 32
"""The same for Authorization, which `must-revalidate` permits, too."""


class UnreadableRecord(Exception):
    """A record that cannot be read."""


@dataclass(slots=True)
class Entry:
    """A stored response.

    Attributes:
        digest: of the request.
        born_at: Unix time at which the response's age was 0.
        fresh_s: lifetime in seconds.
        stale_while_revalidate_s: seconds after it in which it may be sent while it is refreshed.
        stale_if_error_s: seconds after it in which it may be sent instead of an error.
        status: the status code.
        flags: MUST_REVALIDATE, NO_CACHE, HAS_GRACE, HEURISTIC, NO_CREDENTIALS, NO_AUTHORIZATION.
        purge_seq: the purge clock when its fetch began.
        length: bytes of the whole body.
        write_id: names the chunks of the body; 0 if the body is in the record.
        cost_ms: how long the application took, up to the end of the body.
        fields: of the response, with lower-case names.
        tags: by which it can be purged.
        body: the body, unless it is in chunks.
        url: host, path and query.
        coding: "gzip" if the cache has compressed the body, "identity" if it compresses it for other clients.
        added_vary: fields of the request that rules put into the key, for caches downstream.

    """

    digest: bytes
    born_at: float
    fresh_s: int
    stale_while_revalidate_s: int
    stale_if_error_s: int
    status: int
    flags: int
    purge_seq: int
    length: int
    write_id: int
    cost_ms: int
    fields: Fields
    tags: tuple[bytes, ...] = ()
    body: bytes = b""
    url: bytes = b""
    coding: bytes = b""
    added_vary: tuple[bytes, ...] = ()
    hit_fields: tuple[int, Fields] | None = field(
        default=None, init=False, compare=False, repr=False
    )
    """The fields that the last plain hit sent, and its age: they are the same for a second."""

    def encode(self) -> bytes:
        """Return the record."""
        additions = b" ".join((self.coding, *self.added_vary))
        texts: list[bytes] = [self.url, b" ".join(self.tags), additions]
        for pair in self.fields:
            texts += pair
        joined_texts = b"\0".join(texts)
        lifetimes = (
            self.fresh_s,
            self.stale_while_revalidate_s,
            self.stale_if_error_s,
            self.cost_ms,
        )
        packed_head = _HEAD.pack(
            _ENTRY_MAGIC, 0, self.digest, self.born_at,
            *(min(lifetime_s, _LIFETIME_MAX_S) for lifetime_s in lifetimes),
            self.status, self.flags, self.purge_seq, self.length, self.write_id,
            len(joined_texts), len(self.body),
        )  # fmt: skip
        payload = packed_head[8:] + joined_texts + self.body
        return _ENTRY_MAGIC + zlib.crc32(payload).to_bytes(4, "little") + payload

    @property
    def is_bodiless(self) -> bool:
        """Whether the status allows no body."""
        return self.status in {204, 304}

    def fields_to_send(self) -> Fields:
        """Return the fields of a whole response, without Age and Cache-Status, which each reply makes."""
        fields = [pair for pair in self.fields if pair[0] != b"age"]
        if self.coding or self.added_vary:
            fields = self._with_additions(fields)
        is_length_stated = self.coding != GZIP and self.field_value(b"content-length") is not None
        if not self.is_bodiless and not is_length_stated:
            fields.append((b"content-length", b"%d" % self.length))
        return fields

    @property
    def variant_names(self) -> tuple[bytes, ...]:
        """Return the fields of the request by which the cache itself tells variants apart."""
        return (b"accept-encoding",) if self.coding else ()

    def _with_additions(self, fields: Fields) -> Fields:
        """Return fields with what the cache adds to the application's: a coding, a weak tag, Vary."""
        fields = with_vary(fields, (*self.added_vary, *self.variant_names))
        if self.coding != GZIP:
            return fields
        # Another representation: its tag is weak, for it stands for the same content.
        return [
            (name, value if name != b"etag" or value.startswith(b"W/") else b"W/" + value)
            for name, value in fields
            if name not in {b"content-length", b"accept-ranges"}
        ] + [(b"content-encoding", GZIP)]

    def field_value(self, name: bytes) -> bytes | None:
        """Return the first value of a field."""
        for field_name, value in self.fields:
            if field_name == name:
                return value
        return None

    def age(self, now: float) -> float:
        """Return the seconds since the origin made or validated it."""
        age = now - self.born_at
        return age if age > 0 else 0.0  # a call of max would take as long as the rest


@dataclass(slots=True)
class PendingRecord:
    """A request fetches this response; the token identifies it."""

    digest: bytes
    token: str
    begun_at: float


@dataclass(slots=True)
class VaryRecord:
    """The response depends on these request fields; its variants have keys of their own under `id`."""

    digest: bytes
    names: tuple[bytes, ...]
    id: str
    stale_before: int = 0
    """Variants whose fetch began before this moment of the purge clock are stale."""


@dataclass(slots=True)
class UncacheableRecord:
    """The last response was not storable: requests go to the application without waiting for each other."""

    digest: bytes
    reason: str = ""
    token: str = ""


Record = Entry | PendingRecord | VaryRecord | UncacheableRecord


def encode_record(record: PendingRecord | VaryRecord | UncacheableRecord) -> bytes:
    """Return the bytes of a record that is not an entry."""
    content: dict[str, Any]
    match record:
        case PendingRecord(token=token, begun_at=begun_at):
            content = {"pending": token, "begun": begun_at}
        case VaryRecord(names=names, id=variant_id, stale_before=stale_before):
            content = {
                "vary": [name.decode("latin-1") for name in names],
                "id": variant_id,
                "soft": stale_before,
            }
        case UncacheableRecord(reason=reason, token=token):
            content = {"uncacheable": reason, "token": token}
    payload = record.digest + json.dumps(content).encode()
    return _OTHER_MAGIC + zlib.crc32(payload).to_bytes(4, "little") + payload


def decode(data: Any, digest: bytes) -> Record:
    """Return the record that a value holds.

    Raises:
        UnreadableRecord: it is not a record, is damaged, or belongs to another request.

    """
    if type(data) is not bytes or len(data) < 24:  # noqa: PLR2004 - magic, checksum, digest
        raise UnreadableRecord("not a record")
    if data[8:24] != digest:
        raise UnreadableRecord("of another request")
    if int.from_bytes(data[4:8], "little") != zlib.crc32(memoryview(data)[8:]):
        raise UnreadableRecord("damaged")
    if data.startswith(_ENTRY_MAGIC):
        return _decode_entry(data, digest)
    if data.startswith(_OTHER_MAGIC):
        return _decode_other(data[24:], digest)
    raise UnreadableRecord("of an unknown kind")


def _decode_entry(data: bytes, digest: bytes) -> Entry:
    try:
        _, _, _, *numbers, texts_length, inline_length = _HEAD.unpack_from(data)
    except struct.error:
        raise UnreadableRecord("cut short") from None
    born_at, fresh_s, while_revalidate_s, if_error_s, cost_ms, *numbers = numbers
    status, flags, purge_seq, length, write_id = numbers
    body_start = _HEAD.size + texts_length
    if len(data) != body_start + inline_length or (not write_id and length != inline_length):
        raise UnreadableRecord("cut short")
    url, tags, additions, *texts = data[_HEAD.size : body_start].split(b"\0")
    coding, *added_vary = additions.split(b" ")
    if len(texts) % 2:
        raise UnreadableRecord("of half a field")
    fields = list(zip(texts[::2], texts[1::2], strict=True))
    return Entry(
        digest, born_at, fresh_s, while_revalidate_s, if_error_s, status, flags, purge_seq, length, write_id,
        cost_ms, fields, tuple(tags.split()), data[body_start:], url, coding, tuple(added_vary),
    )  # fmt: skip


def _decode_other(text: bytes, digest: bytes) -> Record:
    try:
        match json.loads(text):
            case {"pending": str(token), "begun": float(begun_at)}:
                return PendingRecord(digest, token, begun_at)
            case {"vary": [*names], "id": str(variant_id), "soft": int(stale_before)}:
                return VaryRecord(
                    digest, tuple(str(name).encode() for name in names), variant_id, stale_before
                )
            case {"uncacheable": str(reason), "token": str(token)}:
                return UncacheableRecord(digest, reason, token)
            case _:
                raise UnreadableRecord("of an unknown kind")
    except ValueError:
        raise UnreadableRecord("damaged") from None
