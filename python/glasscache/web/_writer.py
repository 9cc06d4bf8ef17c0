"""The body of a response on its way into the store: chunks while it streams, the record at its end.

Chunks have keys of a name that no other write has, so a record never leads to chunks of another write.
Nothing is visible before the record, and the record is stored only for a body that is complete and as long
as was stated.
"""

from __future__ import annotations

import gzip
import math
import re
from typing import TYPE_CHECKING, Any, Final

from glasscache._chunks import CHUNK_BYTES, take_chunk
from glasscache._steps import package_call as call
from glasscache.errors import GlasscacheError
from glasscache.web._entry import GZIP, VaryRecord, encode_record
from glasscache.web._fields import parse_whole_number
from glasscache.web._message import normalized_value
from glasscache.web._policy import Refusal
from glasscache.web._purge_log import TagPurges
from glasscache.web._shared_state import INLINE_BYTES_MAX, new_token, new_write_id

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._entry import Entry
    from glasscache.web._lease import Lease
    from glasscache.web._message import Request, Settings
    from glasscache.web._policy import Lifetime

__all__ = ["Writer"]

_TTL_MAX_S: Final = 30 * 86400 - 3600
"""Of a record; that of its chunks is at most 30 days, above which servers read a moment in time."""
_CHUNK_MARGIN_S: Final = 3600
"""Chunks outlive their record by this time, less what the application took after they were stored."""
_TAKES_GZIP: Final = re.compile(rb"(?:x-)?gzip(?:;q=(?:0?\.0*[1-9][0-9]*|1(?:\.0*)?))?")
_COMPRESS_BYTES_MIN: Final = 512


class Writer:
    """Stores one response."""

    __slots__ = (
        "_buffer",
        "_chunk_count",
        "_lease",
        "_lifetime",
        "_received_bytes",
        "_request",
        "_requested_at",
        "_vary_names",
        "_write_id",
        "entry",
        "is_closed",
        "max_bytes",
        "stated_body_bytes",
    )  # fmt: skip

    def __init__(
        self,
        lease: Lease,
        request: Request,
        entry: Entry,
        lifetime: Lifetime,
        settings: Settings,
        requested_at: float,
    ) -> None:
        """Prepare to store what a fetch brings."""
        self._lease, self._request, self._lifetime = lease, request, lifetime
        self.entry, self._requested_at = entry, requested_at
        self._vary_names = tuple(sorted({*lifetime.vary_names, *entry.variant_names}))
        self._buffer = bytearray()
        self._received_bytes, self._chunk_count, self._write_id = 0, 0, 0
        self.is_closed = False
        """Whether the response is stored, or not stored after all."""
        content_length = entry.field_value(b"content-length")
        self.stated_body_bytes = (
            None if content_length is None else parse_whole_number(content_length.decode("latin-1"))
        )
        self.max_bytes = (
            lease.shared.max_bytes if settings.max_bytes is None else settings.max_bytes
        )

    def exclude_from_cost(self, seconds: float) -> None:
        """Leave out of the cost of the response that the application waited for its client."""
        self._requested_at += seconds

    def feed(self, data: bytes) -> bool:
        """Take a part of the body; whether `flush` has something to do."""
        if self.is_closed or not data:
            return False
        self._received_bytes += len(data)
        if self._received_bytes > self.max_bytes:
            self._buffer.clear()
            return True
        self._buffer += data
        return len(self._buffer) > CHUNK_BYTES

    def flush(self) -> Generator[Any, Any, None]:
        """Store the chunks that are full, or give up on a body that is too long (as steps)."""
        if self._received_bytes > self.max_bytes:
            yield from self.abandon("too-large")
            return
        while len(self._buffer) > CHUNK_BYTES and not self.is_closed:
            yield from self._store_chunk(take_chunk(self._buffer))

    def _store_chunk(self, chunk: bytes) -> Generator[Any, Any, None]:
        lease = self._lease
        self._write_id = self._write_id or new_write_id()
        chunks = lease.shared.chunks(self._write_id, self._received_bytes)
        chunk_key = chunks.key(self._chunk_count)
        self._chunk_count += 1
        try:
            ttl_s = self._ttl_s() + _CHUNK_MARGIN_S
            is_stored = yield call(lease.client, "set", chunk_key, chunk, ttl=ttl_s)
        except GlasscacheError:
            lease.shared.counters["store_errors"] += 1
            is_stored = False
        if not is_stored:
            yield from self.abandon("store-failed")

    def finish(self) -> Generator[Any, Any, None]:
        """Store the record of a body that is complete (as steps)."""
        if self.is_closed:
            return
        if self.stated_body_bytes is not None and self.stated_body_bytes != self._received_bytes:
            yield from self.abandon("cut-short")
            return
        entry, lease = self.entry, self._lease
        entry.length = self._received_bytes
        entry.cost_ms = max(0, int((lease.shared.clock() - self._requested_at) * 1000))
        if not self._chunk_count and len(self._buffer) <= INLINE_BYTES_MAX:
            entry.body = bytes(self._buffer)
            self._compress()
        else:
            if self._buffer:
                yield from self._store_chunk(bytes(self._buffer))
            if self.is_closed:
                return
            entry.write_id = self._write_id
        self._buffer.clear()
        self.is_closed = True
        yield from self._store_record()

    def _compress(self) -> None:
        """Compress a body where a rule says so and the client takes it."""
        entry = self.entry
        if not entry.coding:
            return
        codings = normalized_value(
            b"accept-encoding", self._request.headers.get(b"accept-encoding", b"")
        )
        if not any(map(_TAKES_GZIP.fullmatch, codings.split(b","))):
            return
        if len(entry.body) < _COMPRESS_BYTES_MIN:
            return
        entry.body, entry.coding = gzip.compress(entry.body, 6, mtime=0), GZIP
        entry.length = len(entry.body)

    def abandon(self, reason: str = "abandoned") -> Generator[Any, Any, None]:
        """Store nothing and give the lease back (as steps)."""
        if self.is_closed:
            return
        self.is_closed = True
        self._buffer.clear()
        self._lease.shared.counters["abandoned"] += 1
        if reason == "too-large":
            yield from self._lease.mark_uncacheable(Refusal(reason), 200)
        elif reason == "store-failed":
            yield from self._lease.mark_failed(reason)
        else:
            yield from self._lease.release()

    @property
    def has_whole_body(self) -> bool:
        """Whether as many bytes were received as the head stated."""
        return self._received_bytes == self.stated_body_bytes

    def _ttl_s(self) -> int:
        """Return how long the store keeps the record, and chunks that are written now."""
        lifetime = self._lifetime
        remaining_s = (
            lifetime.fresh_s
            + lifetime.keep_s
            - max(0.0, self._lease.shared.clock() - lifetime.born_at)
        )
        # Servers count whole seconds: an item of two may be gone after one.
        return min(max(1, math.ceil(remaining_s)) + 1, _TTL_MAX_S)

    def renew(self) -> Generator[Any, Any, None]:
        """Store the record of a response that was validated, after its chunks live as long (as steps).

        Without a chunk the response is removed: its body is lost.
        """
        self.is_closed = True
        try:
            has_chunks = yield from self._touch_chunks()
        except GlasscacheError:
            self._lease.shared.counters["store_errors"] += 1
            yield from self._lease.release()
            return
        if has_chunks:
            yield from self._store_record()
        else:
            self._lease.shared.counters["lost_chunks"] += 1
            yield from self._lease.remove_stored()

    def _touch_chunks(self) -> Generator[Any, Any, bool]:
        """Let the chunks of a stored body live as long as its record will; whether all are there."""
        entry, lease = self.entry, self._lease
        if not entry.write_id:
            return True
        chunks = lease.shared.chunks(entry.write_id, entry.length)
        return (yield from chunks.touch(lease.client, self._ttl_s() + _CHUNK_MARGIN_S))

    def _store_record(self) -> Generator[Any, Any, None]:
        """Store the record in place of what its fetch replaces (as steps)."""
        shared, lease = self._lease.shared, self._lease
        try:
            is_stored = yield from self._store_unless_replaced()
        except GlasscacheError:
            shared.counters["store_errors"] += 1
            yield from lease.mark_failed("store-failed")
            return
        shared.counters["stored" if is_stored else "not_stored"] += 1
        yield from (lease.finish() if is_stored else lease.release())

    def _store_unless_replaced(self) -> Generator[Any, Any, bool]:
        lease, lookup = self._lease, self._lease.lookup
        shared, client, vary_names = lease.shared, lease.client, self._vary_names
        if self.entry.tags:
            yield from self._store_tags()
        record_bytes, ttl_s = self.entry.encode(), self._ttl_s()
        if not vary_names or (
            lookup.vary_record is not None and lookup.vary_record.names == vary_names
        ):
            return (
                yield from self._replace_if_unchanged(
                    lookup.response_key, record_bytes, ttl_s, self._lease.fetch.cas_unique
                )
            )
        # The first response that varies, or one that varies on other fields than the last.
        vary_record = VaryRecord(lookup.digest, vary_names, new_token()[:8])
        variant_key = shared.variant_key(lookup.primary_key, vary_record, self._request)
        if not (yield call(client, "set", variant_key, record_bytes, ttl=ttl_s)):
            return False
        if lookup.vary_record is None:
            cas_unique = self._lease.fetch.cas_unique
        else:
            value_and_cas = yield call(client, "gets", lookup.primary_key)
            cas_unique = (
                value_and_cas[1]
                if value_and_cas is not None
                and lookup.is_unchanged(value_and_cas[0], lookup.primary_key)
                else None
            )
            if cas_unique is None:
                return False
        return (
            yield from self._replace_if_unchanged(
                lookup.primary_key, encode_record(vary_record), _TTL_MAX_S, cas_unique
            )
        )

    def _replace_if_unchanged(
        self, key: str, record_bytes: bytes, ttl_s: int, cas_unique: int | None
    ) -> Generator[Any, Any, bool]:
        """Store at a key that still holds what was read; a purged one stays purged."""
        lease = self._lease
        if cas_unique is None:
            value_and_cas = yield call(lease.client, "gets", key)
            if value_and_cas is None or not lease.lookup.is_unchanged(value_and_cas[0], key):
                return False
            cas_unique = value_and_cas[1]
        cas_result = yield call(lease.client, "cas", key, record_bytes, cas_unique, ttl=ttl_s)
        return cas_result is True

    def _store_tags(self) -> Generator[Any, Any, None]:
        """Make a record, as purged up to now, for each tag without one: older responses are not trusted."""
        lease = self._lease
        shared, client = lease.shared, lease.client
        tag_keys = [shared.tag_key(tag) for tag in self.entry.tags]
        values = yield call(client, "get_many", [shared.purge_log_key, *tag_keys])
        purge_log = shared.decode_purge_log(values.get(shared.purge_log_key))
        for tag_key in tag_keys:
            if tag_key not in values and purge_log is not None:
                yield call(client, "add", tag_key, TagPurges(purge_log.seq, 0).encode())
