"""The body of a hishel entry: on its way into the store in chunks, and out of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from glasscache._chunks import CHUNK_BYTES, take_chunk
from glasscache.contrib._hishel_head import GRACE_S
from glasscache.errors import GlasscacheError

if TYPE_CHECKING:
    import uuid
    from collections.abc import Generator

    from glasscache.contrib._hishel_entries import EntrySteps, StoredEntry
    from glasscache.contrib._hishel_head import EntryHead

__all__ = ["BodyReader", "BodyWriter"]


class BodyWriter:
    """The body of an entry on its way into the store; after a failure it only passes through."""

    def __init__(
        self,
        entry_steps: EntrySteps,
        entry_id: uuid.UUID,
        head: EntryHead,
        body_bytes_max: int | None,
    ) -> None:
        self._entry_steps, self._entry_id, self._head = entry_steps, entry_id, head
        self._body_bytes_max = body_bytes_max
        self._buffer, self._chunks_written = bytearray(), 0
        self._is_storing, self._is_published = True, False

    def add(self, data: bytes) -> Generator[Any, Any, None]:
        """Store the chunks that are full with these bytes."""
        if not self._is_storing:
            return
        self._head.length += len(data)
        self._buffer += data
        if self._body_bytes_max is not None and self._head.length > self._body_bytes_max:
            yield from self.discard_unpublished()
        while self._is_storing and len(self._buffer) >= CHUNK_BYTES:
            yield from self._store_chunk(take_chunk(self._buffer))

    def _store_chunk(self, chunk: bytes) -> Generator[Any, Any, None]:
        chunk_index = self._chunks_written
        self._chunks_written += 1
        if not (
            yield from self._entry_steps.store_chunk(self._entry_id, chunk_index, chunk, self._head)
        ):
            yield from self.discard_unpublished()

    def finish(self) -> Generator[Any, Any, None]:
        """Store the last chunk, and make the entry visible."""
        if self._is_storing and self._buffer:
            yield from self._store_chunk(bytes(self._buffer))
        if self._is_storing:
            self._is_published = yield from self._entry_steps.publish(self._entry_id, self._head)

    def discard_unpublished(self) -> Generator[Any, Any, None]:
        """Remove what was written, unless it is visible."""
        if self._is_storing and not self._is_published:
            self._is_storing = False
            self._buffer.clear()
            yield from self._entry_steps.discard(self._entry_id, self._chunks_written * CHUNK_BYTES)


class BodyReader:
    """The body of a stored entry, some chunks at a time."""

    def __init__(self, entry_steps: EntrySteps, stored_entry: StoredEntry) -> None:
        self._entry_steps, self._stored_entry = entry_steps, stored_entry
        self._chunks = entry_steps.chunks(stored_entry.id, stored_entry.head.length)
        self._chunks_read = 0

    def read(self) -> Generator[Any, Any, list[bytes]]:
        """Return the next chunks; none at the end.

        Raises:
            RuntimeError: a chunk was evicted.

        """
        if self._chunks_read == 0:
            chunks: list[bytes] | None = self._stored_entry.first_chunks
        elif self._chunks_read >= self._chunks.chunk_count:
            return []
        else:
            chunks = yield from self._chunks.read(self._entry_steps.client, self._chunks_read)
            yield from self._extend_unread_chunks(self._chunks_read + len(chunks or ()))
        if chunks is None:
            raise RuntimeError("a part of the stored response was evicted while it was being read")
        self._chunks_read += len(chunks)
        return chunks

    def _extend_unread_chunks(self, first_chunk_index: int) -> Generator[Any, Any, None]:
        """Keep the chunks that are still to be read of an entry that has expired meanwhile."""
        expires_at = self._stored_entry.head.expires_at()
        if expires_at is None or expires_at > time.time():
            return
        try:
            yield from self._chunks.touch(self._entry_steps.client, GRACE_S, first_chunk_index)
        except GlasscacheError:
            self._entry_steps.store_errors += 1
