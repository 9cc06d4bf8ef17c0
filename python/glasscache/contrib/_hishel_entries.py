"""hishel entries: what both storages do, as steps without waiting.

An entry is a head, an index of the heads of its key, and chunks of its body. The head is marked as complete
by compare-and-swap once the last chunk is stored, so an entry that is removed while it is being written
stays removed, and one that is not complete is never returned. A failing store means a miss, never a failed
request.
"""

from __future__ import annotations

import base64
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hishel import Entry

from glasscache._chunks import Chunks
from glasscache._steps import package_call as call
from glasscache.contrib._hishel_head import GRACE_S, EntryHead, headers_as_lists
from glasscache.errors import GlasscacheError

if TYPE_CHECKING:
    from collections.abc import Generator

    from hishel import Headers, Request, Response

__all__ = ["EntrySteps", "StoredEntry"]

ENTRIES_MAX: Final = 32
"""Entries of one key; a further one removes the oldest."""
KEY_CHARS_MAX: Final = 150
"""Longer keys are hashed: with prefixes a key of the store has 250 bytes at most."""
UNPUBLISHED_S: Final = 86400
"""So long the chunks of an entry without a limit are kept until it is complete."""
_ATTEMPTS_MAX: Final = 20


class StoredEntry(NamedTuple):
    """An entry that was found, with the chunks of its body that were read with it."""

    id: uuid.UUID
    head: EntryHead
    first_chunks: list[bytes]


class EntrySteps:
    """What both storages do, as steps; a storage's own methods are thin."""

    def __init__(self, client: Any, key_prefix: str) -> None:
        self.client, self._prefix = client, key_prefix
        self.store_errors = 0

    def begin_entry(
        self,
        request: Request,
        response: Response,
        key: str,
        limits: tuple[float | None, float | None],
    ) -> Generator[Any, Any, tuple[Entry, EntryHead | None]]:
        """Return a new entry with its head; without one if the response cannot be stored now.

        `limits` are the moment at which its TTL ends and the seconds that it may be idle.
        """
        ttl_ends_at, tti_s = limits
        entry = Entry(uuid.uuid4(), request, response)
        head = EntryHead(
            key,
            {
                "method": request.method,
                "url": request.url,
                "headers": headers_as_lists(request.headers),
            },
            {"status": response.status_code, "headers": headers_as_lists(response.headers)},
            ttl_ends_at=ttl_ends_at,
            tti_s=tti_s,
            used_at=time.time(),
        )
        is_begun = yield from self._store_head(entry.id, head)
        return entry, head if is_begun else None

    def head_key(self, entry_id: uuid.UUID) -> str:
        return f"{self._prefix}:e:{entry_id.hex}"

    def chunks(self, entry_id: uuid.UUID, length: int = 0) -> Chunks:
        """Return where a body of this length is."""
        return Chunks(f"{self._prefix}:s:{entry_id.hex}", length)

    def index_key(self, key: str) -> str:
        is_valid_key = (
            len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable() and " " not in key
        )
        digest = base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_URL, key).bytes).decode()
        key_part = key if is_valid_key else f"~{digest.rstrip('=')}"
        return f"{self._prefix}:i:{key_part}"

    def _store_head(self, entry_id: uuid.UUID, head: EntryHead) -> Generator[Any, Any, bool]:
        """Store the head of an entry that is being written."""
        try:
            return bool(
                (
                    yield call(
                        self.client, "set", self.head_key(entry_id), head.encode(), ttl=GRACE_S
                    )
                )
            )
        except GlasscacheError:
            self.store_errors += 1
            return False

    def store_chunk(
        self, entry_id: uuid.UUID, chunk_index: int, data: bytes, head: EntryHead
    ) -> Generator[Any, Any, bool]:
        """Store a chunk, and keep the head for the time that writing may still take."""
        try:
            ttl = head.ttl(time.time()) or UNPUBLISHED_S
            is_stored = yield call(
                self.client, "set", self.chunks(entry_id).key(chunk_index), data, ttl=ttl
            )
            is_head_kept = yield call(self.client, "touch", self.head_key(entry_id), GRACE_S)
        except GlasscacheError:
            self.store_errors += 1
            return False
        return bool(is_stored and is_head_kept)

    def publish(self, entry_id: uuid.UUID, head: EntryHead) -> Generator[Any, Any, bool]:
        """Make a complete entry visible, unless it was removed while it was being written."""
        head_key, now = self.head_key(entry_id), time.time()
        head.is_complete, head.used_at = True, now
        try:
            value_and_cas = yield call(self.client, "gets", head_key)
            if value_and_cas is None:
                return False
            chunks = self.chunks(entry_id, head.length)
            if head.ttl(now) is None and not (yield from chunks.touch(self.client, 0)):
                return False
            if not (yield from self._add_to_index(head.key, entry_id, head.ttl(now))):
                return False
            return (
                yield call(
                    self.client, "cas", head_key, head.encode(), value_and_cas[1], ttl=head.ttl(now)
                )
            ) is True
        except GlasscacheError:
            self.store_errors += 1
            return False

    def _add_to_index(
        self, key: str, entry_id: uuid.UUID, ttl: int | None
    ) -> Generator[Any, Any, bool]:
        """Add an entry to the index of its key, which lives as long as the longest of them."""
        index_key = self.index_key(key)
        for _ in range(_ATTEMPTS_MAX):
            value_and_cas = yield call(self.client, "gets", index_key)
            if value_and_cas is None:
                if (yield call(self.client, "add", index_key, entry_id.hex, ttl=ttl)):
                    return True
                continue
            earlier_ids = [text for text in str(value_and_cas[0]).split() if text != entry_id.hex]
            index_item = yield call(self.client, "get_with_meta", index_key)
            longest_ttl = (
                None
                if ttl is None or index_item is None or index_item.ttl is None
                else max(ttl, index_item.ttl)
            )
            if (
                yield call(
                    self.client,
                    "cas",
                    index_key,
                    " ".join([*earlier_ids[1 - ENTRIES_MAX :], entry_id.hex]),
                    value_and_cas[1],
                    ttl=longest_ttl,
                )
            ):
                return True
        return False

    def discard(self, entry_id: uuid.UUID, length: int) -> Generator[Any, Any, None]:
        """Remove what was written of an entry."""
        try:
            keys = [self.head_key(entry_id), *self.chunks(entry_id, length).keys()]
            yield call(self.client, "delete_many", keys)
        except GlasscacheError:
            self.store_errors += 1

    def find(self, key: str) -> Generator[Any, Any, list[StoredEntry]]:
        """Return the entries of a key that are complete and have not expired, with their first chunks."""
        try:
            index_text = yield call(self.client, "get", self.index_key(key), "")
            entry_ids = _parse_ids(str(index_text))
            if not entry_ids:
                return []
            item_keys = [
                item_key
                for entry_id in entry_ids
                for item_key in (self.head_key(entry_id), self.chunks(entry_id).key(0))
            ]
            values = yield call(self.client, "get_many", item_keys)
            stored_entries: list[StoredEntry] = []
            for entry_id in entry_ids:
                head = EntryHead.decode(values.get(self.head_key(entry_id), b""))
                if head is None or not head.is_complete or head.key != key:
                    continue
                stored_entry = yield from self._load_if_usable(entry_id, head, values)
                if stored_entry is not None:
                    stored_entries.append(stored_entry)
        except GlasscacheError:
            self.store_errors += 1
            return []
        return stored_entries

    def _load_if_usable(
        self, entry_id: uuid.UUID, head: EntryHead, values: dict[str, Any]
    ) -> Generator[Any, Any, StoredEntry | None]:
        """Return an entry that has not expired, with the chunks of one more read; None if one is lost."""
        now, expires_at = time.time(), head.expires_at()
        if expires_at is not None and expires_at <= now:
            return None
        stored_chunks = self.chunks(entry_id, head.length)
        chunks: list[bytes] = []
        if head.length:
            first_chunk: Any = values.get(stored_chunks.key(0))
            if not stored_chunks.is_intact(0, first_chunk):
                return None
            chunks.append(first_chunk)
        if stored_chunks.chunk_count > 1:
            more_chunks = yield from stored_chunks.read(self.client, 1)
            if more_chunks is None:
                return None
            chunks += more_chunks
        if head.tti_s is not None and now - head.used_at >= head.tti_s / 2:
            yield from self._restart_idle_time(entry_id, now)
        return StoredEntry(entry_id, head, chunks)

    def _restart_idle_time(self, entry_id: uuid.UUID, now: float) -> Generator[Any, Any, None]:
        """Restart the time that an entry may be idle."""
        value_and_cas = yield call(self.client, "gets", self.head_key(entry_id))
        head = None if value_and_cas is None else EntryHead.decode(value_and_cas[0])
        if value_and_cas is not None and head is not None:
            head.used_at = now
            yield call(
                self.client,
                "cas",
                self.head_key(entry_id),
                head.encode(),
                value_and_cas[1],
                ttl=head.ttl(now),
            )
            ttl = head.ttl(now) or 0
            index_item = yield call(self.client, "get_with_meta", self.index_key(head.key))
            if index_item is not None and index_item.ttl is not None and index_item.ttl < ttl:
                yield call(self.client, "touch", self.index_key(head.key), ttl)
            yield from self.chunks(entry_id, head.length).touch(self.client, ttl)

    def update_headers(self, entry_id: uuid.UUID, headers: Headers) -> Generator[Any, Any, None]:
        """Replace the response headers of an entry that still exists."""
        try:
            for _ in range(_ATTEMPTS_MAX):
                value_and_cas = yield call(self.client, "gets", self.head_key(entry_id))
                head = None if value_and_cas is None else EntryHead.decode(value_and_cas[0])
                if value_and_cas is None or head is None:
                    return
                head.response["headers"] = headers_as_lists(headers)
                ttl = head.ttl(time.time()) if head.is_complete else GRACE_S
                if (
                    yield call(
                        self.client,
                        "cas",
                        self.head_key(entry_id),
                        head.encode(),
                        value_and_cas[1],
                        ttl=ttl,
                    )
                ):
                    return
        except GlasscacheError:
            self.store_errors += 1

    def remove(self, entry_id: uuid.UUID) -> Generator[Any, Any, None]:
        """Hide an entry; readers that stream it can finish."""
        try:
            yield call(self.client, "delete", self.head_key(entry_id))
        except GlasscacheError:
            self.store_errors += 1


def _parse_ids(index_text: str) -> list[uuid.UUID]:
    entry_ids: list[uuid.UUID] = []
    for text in index_text.split():
        try:
            entry_ids.append(uuid.UUID(hex=text))
        except ValueError:
            continue
    return entry_ids
