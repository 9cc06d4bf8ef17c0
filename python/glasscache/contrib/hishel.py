"""hishel storages (version 2): responses of httpx and requests, for blocking programs and asyncio.

    client = hishel.httpx.CacheClient(storage=Storage(Client("127.0.0.1:11211")))

Both storages run the same steps (`_hishel_entries`); what is here differs in the waiting only. The body of a
returned entry is read some chunks at a time; if one was evicted the stream raises.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

try:
    from hishel import AsyncBaseStorage, BaseStorage, Entry, Headers, Request, Response
except ImportError as error:  # pragma: no cover
    raise ImportError("glasscache.contrib.hishel needs the package hishel, version 2") from error

from glasscache.contrib._hishel_bodies import BodyReader, BodyWriter
from glasscache.contrib._hishel_entries import EntrySteps
from glasscache.contrib._hishel_head import request_and_response_of
from glasscache.web._run_steps import run_steps, run_steps_async

if TYPE_CHECKING:
    import uuid
    from collections.abc import AsyncIterator, Iterator

    from glasscache.aio import AsyncClient  # noqa: F401 - in the text of a type below
    from glasscache.client import Client  # noqa: F401 - likewise
    from glasscache.contrib._hishel_entries import StoredEntry

C = TypeVar("C")

__all__ = ["AsyncStorage", "Storage"]


class _Storage(Generic[C]):
    """The constructor of both storages."""

    def __init__(
        self,
        client: C,
        *,
        default_ttl: float | None = 3600,
        default_tti: float | None = None,
        max_stream_size: int | None = 10 << 20,
        key_prefix: str = "hishel",
    ) -> None:
        """Make the storage; the class says what the arguments mean."""
        cast("Any", super()).__init__(
            default_ttl=default_ttl, default_tti=default_tti, max_stream_size=max_stream_size
        )
        self._entry_steps = EntrySteps(client, key_prefix)


class Storage(_Storage["Client"], BaseStorage):
    """A storage over a `Client`.

    Args:
        client: of the servers that keep the responses.
        default_ttl: seconds for which an entry is kept; None for ever.
        default_tti: seconds for which an entry is kept after its last use; None for ever.
        max_stream_size: longest body that is kept.
        key_prefix: stands before each key.

    """

    def create_entry(
        self,
        request: Request,
        response: Response,
        key: str,
        *,
        ttl: float | None = None,
        tti: float | None = None,
    ) -> Entry:
        """Return an entry whose stream is stored as it is read."""
        limits = self._limits(ttl, tti, time.time())
        entry, head = run_steps(self._entry_steps.begin_entry(request, response, key, limits))
        stream = cast("Iterator[bytes]", response.stream or iter(()))
        if head is not None:
            writer = BodyWriter(self._entry_steps, entry.id, head, self.max_stream_size)
            stream = _store_while_reading(stream, writer)
        return replace(entry, response=replace(response, stream=stream))

    def get_entries(self, key: str) -> list[Entry]:
        """Return the complete entries of a key that have not expired."""
        return [
            _entry_of(stored_entry, _stream_chunks(BodyReader(self._entry_steps, stored_entry)))
            for stored_entry in run_steps(self._entry_steps.find(key))
        ]

    def update_headers(self, id: uuid.UUID, headers: Headers) -> None:
        """Replace the response headers of an entry."""
        run_steps(self._entry_steps.update_headers(id, headers))

    def remove_entry(self, id: uuid.UUID) -> None:
        """Hide an entry from now on."""
        run_steps(self._entry_steps.remove(id))


class AsyncStorage(_Storage["AsyncClient"], AsyncBaseStorage):
    """`Storage` over an `AsyncClient`; the arguments are the same."""

    async def create_entry(
        self,
        request: Request,
        response: Response,
        key: str,
        *,
        ttl: float | None = None,
        tti: float | None = None,
    ) -> Entry:
        """Return an entry whose stream is stored as it is read."""
        limits = self._limits(ttl, tti, time.time())
        entry, head = await run_steps_async(
            self._entry_steps.begin_entry(request, response, key, limits)
        )
        stream = cast("AsyncIterator[bytes]", response.stream or _no_chunks())
        if head is not None:
            writer = BodyWriter(self._entry_steps, entry.id, head, self.max_stream_size)
            stream = _store_while_reading_async(stream, writer)
        return replace(entry, response=replace(response, stream=stream))

    async def get_entries(self, key: str) -> list[Entry]:
        """Return the complete entries of a key that have not expired."""
        return [
            _entry_of(
                stored_entry, _stream_chunks_async(BodyReader(self._entry_steps, stored_entry))
            )
            for stored_entry in await run_steps_async(self._entry_steps.find(key))
        ]

    async def update_headers(self, id: uuid.UUID, headers: Headers) -> None:
        """Replace the response headers of an entry."""
        await run_steps_async(self._entry_steps.update_headers(id, headers))

    async def remove_entry(self, id: uuid.UUID) -> None:
        """Hide an entry from now on."""
        await run_steps_async(self._entry_steps.remove(id))


def _entry_of(stored_entry: StoredEntry, stream: Any) -> Entry:
    request, response = request_and_response_of(
        stored_entry.head.request, stored_entry.head.response
    )
    return Entry(stored_entry.id, request, replace(response, stream=stream))


def _store_while_reading(stream: Iterator[bytes], writer: BodyWriter) -> Iterator[bytes]:
    try:
        for data in stream:
            run_steps(writer.add(data))
            yield data
        run_steps(writer.finish())
    finally:
        run_steps(writer.discard_unpublished())


async def _store_while_reading_async(
    stream: AsyncIterator[bytes], writer: BodyWriter
) -> AsyncIterator[bytes]:
    try:
        async for data in stream:
            await run_steps_async(writer.add(data))
            yield data
        await run_steps_async(writer.finish())
    finally:
        await run_steps_async(writer.discard_unpublished())


def _stream_chunks(reader: BodyReader) -> Iterator[bytes]:
    while chunks := run_steps(reader.read()):
        yield from chunks


async def _stream_chunks_async(reader: BodyReader) -> AsyncIterator[bytes]:
    while chunks := await run_steps_async(reader.read()):
        for chunk in chunks:
            yield chunk


async def _no_chunks() -> AsyncIterator[bytes]:
    return
    yield b""  # a generator, though an empty one
