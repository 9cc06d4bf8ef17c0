"""The body of a response on its way into the store: pieces while it streams, the record at its end.

Pieces have keys of a name that no other write has, so a record never leads to pieces of another write.
Nothing is visible before the record, and the record is stored only for a body that is complete and as long
as was stated.
"""

from __future__ import annotations

import gzip
import math
from typing import TYPE_CHECKING, Any, Final

from glasscache._plans import call
from glasscache.errors import GlasscacheError
from glasscache.web._core import INLINE_BYTES_MAX, PIECE_BYTES, new_token, new_write_id
from glasscache.web._entry import VaryMark, encode_mark
from glasscache.web._fields import parse_seconds
from glasscache.web._purged import Tag

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._entry import Entry
    from glasscache.web._lease import Lease
    from glasscache.web._message import Request, Settings
    from glasscache.web._policy import Lifetime

__all__ = ["Writer"]

_TTL_MAX_S: Final = 30 * 86400
_COMPRESS_BYTES_MIN: Final = 512
_COMPRESSED_TYPES: Final = (
    b"text/",
    b"application/json",
    b"application/javascript",
    b"image/svg+xml",
)


class Writer:
    """Stores one response."""

    __slots__ = (
        "_buffer", "_lease", "_length", "_life", "_pieces", "_request", "_requested_at", "_settings",
        "_write_id", "entry", "is_off", "length_stated", "max_bytes",
    )  # fmt: skip

    def __init__(
        self,
        lease: Lease,
        request: Request,
        entry: Entry,
        life: Lifetime,
        settings: Settings,
        sent: float,
    ) -> None:
        """Prepare to store what a fetch brings."""
        self._lease, self._request, self._life, self._settings = lease, request, life, settings
        self.entry, self._requested_at = entry, sent
        self._buffer = bytearray()
        self._length, self._pieces, self._write_id = 0, 0, 0
        self.is_off = False
        """Whether the response is not stored after all."""
        stated = entry.field(b"content-length")
        self.length_stated = None if stated is None else parse_seconds(stated.decode("latin-1"))
        self.max_bytes = lease.core.max_bytes if settings.max_bytes is None else settings.max_bytes

    def feed(self, chunk: bytes) -> bool:
        """Take a part of the body; whether `flush` has something to do."""
        if self.is_off or not chunk:
            return False
        self._length += len(chunk)
        if self._length > self.max_bytes:
            self._buffer.clear()
            return True
        self._buffer += chunk
        return len(self._buffer) > PIECE_BYTES

    def flush(self) -> Generator[Any, Any, None]:
        """Store the pieces that are full, or give up on a body that is too long: a plan."""
        if self._length > self.max_bytes:
            yield from self.abandon("too-large")
            return
        while len(self._buffer) > PIECE_BYTES and not self.is_off:
            piece = bytes(memoryview(self._buffer)[:PIECE_BYTES])
            del self._buffer[:PIECE_BYTES]
            yield from self._put_piece(piece)

    def _put_piece(self, piece: bytes) -> Generator[Any, Any, None]:
        lease = self._lease
        self._write_id = self._write_id or new_write_id()
        key = lease.core.piece_key(self._write_id, self._pieces)
        self._pieces += 1
        try:
            is_stored = yield call(lease.client, "set", key, piece, ttl=self._ttl())
        except GlasscacheError:
            lease.core.counters["store_errors"] += 1
            is_stored = False
        if not is_stored:
            yield from self.abandon("store-failed")

    def finish(self) -> Generator[Any, Any, None]:
        """Store the record of a body that is complete: a plan."""
        if self.is_off:
            return
        if self.length_stated is not None and self.length_stated != self._length:
            yield from self.abandon("cut-short")
            return
        entry, lease = self.entry, self._lease
        entry.length = self._length
        entry.cost_ms = max(0, int((lease.core.clock() - self._requested_at) * 1000))
        if not self._pieces and len(self._buffer) <= INLINE_BYTES_MAX:
            entry.body = bytes(self._buffer)
            self._compress()
        else:
            if self._buffer:
                yield from self._put_piece(bytes(self._buffer))
            if self.is_off:
                return
            entry.write_id = self._write_id
        self._buffer.clear()
        yield from self.put()

    def _compress(self) -> None:
        """Compress a body where a rule says so; the response then varies on Accept-Encoding."""
        entry = self.entry
        if not self._settings.compress or entry.status != 200:  # noqa: PLR2004
            return
        kind = (entry.field(b"content-type") or b"").lower()
        if not kind.startswith(_COMPRESSED_TYPES) or entry.field(b"content-encoding") is not None:
            return
        names = {*self._life.vary, b"accept-encoding"}
        self._life = self._life._replace(vary=tuple(sorted(names)))
        entry.fields = [pair for pair in entry.fields if pair[0] != b"vary"]
        entry.fields.append((b"vary", b", ".join(sorted(names))))
        accepted = self._request.named.get(b"accept-encoding", b"")
        if b"gzip" not in accepted or b"gzip;q=0" in accepted.replace(b" ", b""):
            return
        if len(entry.body) < _COMPRESS_BYTES_MIN:
            return
        packed = gzip.compress(entry.body, 6, mtime=0)
        dropped = {b"content-length", b"accept-ranges"}
        fields = [pair for pair in entry.fields if pair[0] not in dropped]
        # Another representation: its tag is weak, for it stands for the same content.
        fields = [
            (name, value if name != b"etag" or value.startswith(b"W/") else b"W/" + value)
            for name, value in fields
        ]
        entry.fields = [*fields, (b"content-encoding", b"gzip")]
        entry.body, entry.length = packed, len(packed)

    def abandon(self, why: str = "abandoned") -> Generator[Any, Any, None]:
        """Store nothing and give the lease back: a plan."""
        if self.is_off:
            return
        self.is_off = True
        self._buffer.clear()
        self._lease.core.counters["abandoned"] += 1
        if why == "too-large":
            from glasscache.web._policy import Refusal  # noqa: PLC0415 - a rare end

            yield from self._lease.refuse(Refusal(why), 200)
        else:
            yield from self._lease.give_up()

    def _ttl(self) -> int:
        life = self._life
        left = life.fresh + life.keep - max(0.0, self._lease.core.clock() - life.born)
        # Servers count whole seconds: an item of two may be gone after one.
        return min(max(1, math.ceil(left)) + 1, _TTL_MAX_S)

    def put(self) -> Generator[Any, Any, None]:
        """Store the record in place of what its fetch replaces: a plan."""
        core = self._lease.core
        try:
            if (yield from self._put()):
                core.counters["stored"] += 1
            else:
                core.counters["not_stored"] += 1
            if self._lease.fetch.token:
                yield from self._lease.give_up()
        except GlasscacheError:
            core.counters["store_errors"] += 1
        self._lease.fetch.is_leased = False

    def _put(self) -> Generator[Any, Any, bool]:
        lease, look = self._lease, self._lease.look
        core, client, names = lease.core, lease.client, self._life.vary
        if self.entry.tags:
            yield from self._put_tags()
        data, ttl = self.entry.encode(), self._ttl()
        if not names or (look.mark is not None and look.mark.names == names):
            return (yield from self._replace(look.target, data, ttl, self._lease.fetch.unique))
        # The first response that varies, or one that varies on other fields than the last.
        mark = VaryMark(look.digest, names, new_token()[:8])
        variant = core.variant_key(look.key, mark, self._request)
        if not (yield call(client, "set", variant, data, ttl=ttl)):
            return False
        if look.mark is None:
            unique = self._lease.fetch.unique
        else:
            held = yield call(client, "gets", look.key)
            unique = held[1] if held is not None and look.holds(held[0], look.key) else None
            if unique is None:
                return False
        return (yield from self._replace(look.key, encode_mark(mark), _TTL_MAX_S, unique))

    def _replace(
        self, key: str, data: bytes, ttl: int, unique: int | None
    ) -> Generator[Any, Any, bool]:
        """Store at a key that still holds what was read; a purged one stays purged."""
        lease = self._lease
        if unique is None:
            held = yield call(lease.client, "gets", key)
            if held is None or not lease.look.holds(held[0], key):
                return False
            unique = held[1]
        done = yield call(lease.client, "cas", key, data, unique, ttl=ttl)
        return done is True

    def _put_tags(self) -> Generator[Any, Any, None]:
        """Make records for tags without, as purged up to now: their older responses are not trusted."""
        lease = self._lease
        core, client = lease.core, lease.client
        keys = [core.tag_key(tag) for tag in self.entry.tags]
        found = yield call(client, "get_many", [core.site_key, *keys])
        site = core.site_of(found.get(core.site_key))
        for key in keys:
            if key not in found and site is not None:
                yield call(client, "add", key, Tag(site.seq, 0).encode())
