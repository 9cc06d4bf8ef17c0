"""Values too long for one item, in chunks: their keys, and how they are cut, read, kept and removed.

Values of `split=True`, bodies of the HTTP cache and bodies of hishel are stored so. The keys of a value's
chunks have a name of one write in them, so that a mixture of two writes is never read, and whatever leads to
them is stored last: a manifest, a record, a head. What that is, and what is done about a chunk that is lost,
is its user's. Methods that wait are steps.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from glasscache._steps import call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glasscache._steps import Steps

K = TypeVar("K")

__all__ = ["CHUNKS_PER_READ", "CHUNK_BYTES", "Chunks", "read_whole", "take_chunk"]

CHUNK_BYTES: Final = 512 << 10
"""Longest chunk, which fits a server with the usual limit of 1 MiB."""
CHUNKS_PER_READ: Final = 8
"""Chunks that a stream reads at once: 4 MiB of memory."""
CHUNKS_PER_REQUEST: Final = 64
"""Chunks of one request about values that are in memory as a whole: 32 MiB."""


class Chunks(NamedTuple):
    """A value of `length` bytes in chunks, whose keys are `key_stem`, a full stop and their index."""

    key_stem: str
    length: int
    chunk_bytes: int = CHUNK_BYTES

    @property
    def chunk_count(self) -> int:
        """Return how many chunks there are."""
        return -(-self.length // self.chunk_bytes)

    def key(self, index: int) -> str:
        """Return the key of a chunk."""
        return f"{self.key_stem}.{index}"

    def keys(self, first_index: int = 0, count_max: int | None = None) -> list[str]:
        """Return the keys of the chunks from the first on, of `count_max` at most."""
        stop = (
            self.chunk_count
            if count_max is None
            else min(self.chunk_count, first_index + count_max)
        )
        return [self.key(index) for index in range(first_index, stop)]

    def is_intact(self, index: int, chunk: Any) -> bool:
        """Whether a chunk that was read is there, as long as it was written."""
        chunk_bytes = min(self.chunk_bytes, self.length - index * self.chunk_bytes)
        return type(chunk) is bytes and len(chunk) == chunk_bytes

    def batches(self, body: bytes) -> Iterator[dict[str, bytes]]:
        """Yield the chunks of a body by key, those of one request at a time."""
        view = memoryview(body)
        for first_index in range(0, self.chunk_count, CHUNKS_PER_REQUEST):
            keys = self.keys(first_index, CHUNKS_PER_REQUEST)
            starts = itertools.count(first_index * self.chunk_bytes, self.chunk_bytes)
            yield {
                key: bytes(view[start : start + self.chunk_bytes])
                for key, start in zip(keys, starts, strict=False)
            }

    def read(
        self, client: Any, first_index: int, count_max: int = CHUNKS_PER_READ
    ) -> Steps[list[bytes] | None]:
        """Return the chunks from the first on, by one request; None if one is lost."""
        keys = self.keys(first_index, count_max)
        values = yield call(client, "get_many", keys)
        chunks = [values.get(key) for key in keys]
        are_intact = all(itertools.starmap(self.is_intact, enumerate(chunks, first_index)))
        return chunks if are_intact else None

    def touch(self, client: Any, ttl: float, first_index: int = 0) -> Steps[bool]:
        """Give the chunks from the first on a new TTL, up to one that is lost; whether none is."""
        for index in range(first_index, self.chunk_count):
            if not (yield call(client, "touch", self.key(index), ttl)):
                return False
        return True

    def slices(
        self, chunks: list[bytes], first_index: int, start: int, stop: int
    ) -> Iterator[bytes]:
        """Yield what lies between two positions of the value, of chunks that were read."""
        for index, chunk in enumerate(chunks, first_index):
            chunk_start = index * self.chunk_bytes
            if chunk_start < stop:
                yield chunk[max(0, start - chunk_start) : stop - chunk_start]


def take_chunk(buffer: bytearray) -> bytes:
    """Remove a chunk from the front of a buffer."""
    chunk = bytes(memoryview(buffer)[:CHUNK_BYTES])
    del buffer[:CHUNK_BYTES]
    return chunk


def read_whole(client: Any, chunks_by_name: Mapping[K, Chunks]) -> Steps[dict[K, bytes]]:
    """Return those values of which no chunk is lost, read with as many of them in a request as it takes."""
    read_chunks: dict[K, list[bytes]] = {name: [] for name in chunks_by_name}
    unread = [
        (name, index)
        for name, chunks in chunks_by_name.items()
        for index in range(chunks.chunk_count)
    ]
    while unread:
        batch, unread = unread[:CHUNKS_PER_REQUEST], unread[CHUNKS_PER_REQUEST:]
        values = yield call(
            client, "get_many", [chunks_by_name[name].key(index) for name, index in batch]
        )
        for name, index in batch:
            chunks = chunks_by_name[name]
            chunk = values.get(chunks.key(index))
            if name in read_chunks and chunks.is_intact(index, chunk):
                read_chunks[name].append(chunk)
            else:
                read_chunks.pop(name, None)
        unread = [(name, index) for name, index in unread if name in read_chunks]
    return {name: b"".join(chunks) for name, chunks in read_chunks.items()}
