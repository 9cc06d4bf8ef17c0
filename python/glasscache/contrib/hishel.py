"""hishel storages (version 2): responses of httpx and requests, for blocking programs and asyncio.

    client = hishel.httpx.CacheClient(storage=Storage(Client("127.0.0.1:11211")))

An entry is a head, an index of the heads of its key, and pieces of its body. The head is marked as complete
by compare-and-swap once the last piece is stored, so an entry that is removed while it is being written
stays removed, and one that is not complete is never returned. The body of a returned entry is read some
pieces at a time; if one was evicted the stream raises. A failing store means a miss, never a failed
request.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

try:
    from hishel import AsyncBaseStorage, BaseStorage, Entry, Headers, Request, Response
except ImportError as error:  # pragma: no cover
    raise ImportError("glasscache.contrib.hishel needs the package hishel, version 2") from error

from glasscache._plans import call
from glasscache.errors import GlasscacheError
from glasscache.web._drive import drive, drive_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from glasscache.aio import AsyncClient
    from glasscache.client import Client

__all__ = ["AsyncStorage", "Storage"]

PIECE_BYTES: Final = 512 << 10
WINDOW_PIECES: Final = 8
"""Pieces that are read at once: 4 MiB of memory."""
ENTRIES_MAX: Final = 32
"""Entries of one key; the oldest goes."""
KEY_CHARS_MAX: Final = 150
"""Longer keys are hashed: with prefixes a key of the store has 250 bytes at most."""
WRITING_S: Final = 180
"""So long an entry that is not complete is kept, from its last piece on."""
_TRIES: Final = 20


@dataclass
class _Head:
    """What is stored under an entry's id."""

    key: str
    request: dict[str, Any]
    response: dict[str, Any]
    is_done: bool = False
    length: int = 0
    deadline: float | None = None
    tti: float | None = None
    used: float = 0.0

    def encode(self) -> bytes:
        return json.dumps(self.__dict__).encode()

    @classmethod
    def decode(cls, data: Any) -> _Head | None:
        try:
            head = cls(**json.loads(data))
            _message(head.request, head.response)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        return head

    def expires_at(self) -> float | None:
        limits = [self.deadline] if self.deadline is not None else []
        if self.tti is not None:
            limits.append(self.used + self.tti)
        return min(limits, default=None)

    def ttl(self, now: float) -> int | None:
        """Return the seconds that the store keeps it; None for ever."""
        end = self.expires_at()
        return None if end is None else max(1, int(end - now) + WRITING_S)


def _listed(headers: Headers) -> dict[str, list[str]]:
    return {name: headers.get_list(name) or [] for name in headers}


def _headers(listed: Any) -> Headers:
    return Headers({str(name): [str(value) for value in values] for name, values in listed.items()})


def _message(request: dict[str, Any], response: dict[str, Any]) -> tuple[Request, Response]:
    return (
        Request(request["method"], request["url"], _headers(request["headers"])),
        Response(response["status"], _headers(response["headers"])),
    )


class _Plans:
    """What both storages do, as plans; a storage's own methods are thin."""

    def __init__(self, client: Any, key_prefix: str) -> None:
        self.client, self._prefix = client, key_prefix
        self.store_errors = 0

    def head_key(self, entry: uuid.UUID) -> str:
        return f"{self._prefix}:e:{entry.hex}"

    def piece_key(self, entry: uuid.UUID, index: int) -> str:
        return f"{self._prefix}:s:{entry.hex}.{index}"

    def index_key(self, key: str) -> str:
        is_fine = (
            len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable() and " " not in key
        )
        digest = base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_URL, key).bytes).decode()
        name = key if is_fine else f"~{digest.rstrip('=')}"
        return f"{self._prefix}:i:{name}"

    def begin(self, entry: uuid.UUID, head: _Head) -> Generator[Any, Any, bool]:
        """Store the head of an entry that is being written."""
        try:
            return bool(
                (yield call(self.client, "set", self.head_key(entry), head.encode(), ttl=WRITING_S))
            )
        except GlasscacheError:
            self.store_errors += 1
            return False

    def put_piece(
        self, entry: uuid.UUID, index: int, data: bytes, head: _Head
    ) -> Generator[Any, Any, bool]:
        """Store a piece, and keep the head for the time that writing may still take."""
        try:
            ttl = head.ttl(time.time())
            done = yield call(self.client, "set", self.piece_key(entry, index), data, ttl=ttl)
            alive = yield call(self.client, "touch", self.head_key(entry), WRITING_S)
        except GlasscacheError:
            self.store_errors += 1
            return False
        return bool(done and alive)

    def publish(self, entry: uuid.UUID, head: _Head) -> Generator[Any, Any, bool]:
        """Make a complete entry visible, unless it was removed while it was being written."""
        name, now = self.head_key(entry), time.time()
        head.is_done, head.used = True, now
        try:
            held = yield call(self.client, "gets", name)
            if held is None:
                return False
            if not (yield from self._index(head.key, entry, head.ttl(now))):
                return False
            return (
                yield call(self.client, "cas", name, head.encode(), held[1], ttl=head.ttl(now))
            ) is True
        except GlasscacheError:
            self.store_errors += 1
            return False

    def _index(self, key: str, entry: uuid.UUID, ttl: int | None) -> Generator[Any, Any, bool]:
        """Add an entry to the index of its key, which lives as long as the longest of them."""
        name = self.index_key(key)
        for _ in range(_TRIES):
            held = yield call(self.client, "gets", name)
            if held is None:
                if (yield call(self.client, "add", name, entry.hex, ttl=ttl)):
                    return True
                continue
            known = [one for one in str(held[0]).split() if one != entry.hex][-(ENTRIES_MAX - 1) :]
            item = yield call(self.client, "get_with_meta", name)
            longest = (
                None if ttl is None or item is None or item.ttl is None else max(ttl, item.ttl)
            )
            if (
                yield call(
                    self.client, "cas", name, " ".join([*known, entry.hex]), held[1], ttl=longest
                )
            ):
                return True
        return False

    def discard(self, entry: uuid.UUID, pieces: int) -> Generator[Any, Any, None]:
        """Remove what was written of an entry."""
        try:
            keys = [
                self.head_key(entry),
                *(self.piece_key(entry, index) for index in range(pieces)),
            ]
            yield call(self.client, "delete_many", keys)
        except GlasscacheError:
            self.store_errors += 1

    def find(self, key: str) -> Generator[Any, Any, list[tuple[uuid.UUID, _Head, list[bytes]]]]:
        """Return the entries of a key that are complete and have not expired, with their first pieces."""
        try:
            index = yield call(self.client, "get", self.index_key(key), "")
            ids = _ids(str(index))
            if not ids:
                return []
            wanted = [name for one in ids for name in (self.head_key(one), self.piece_key(one, 0))]
            found = yield call(self.client, "get_many", wanted)
            made: list[tuple[uuid.UUID, _Head, list[bytes]]] = []
            for one in ids:
                entry = yield from self._entry(one, found, key)
                if entry is not None:
                    made.append(entry)
        except GlasscacheError:
            self.store_errors += 1
            return []
        return made

    def _entry(
        self, one: uuid.UUID, found: dict[str, Any], key: str
    ) -> Generator[Any, Any, tuple[uuid.UUID, _Head, list[bytes]] | None]:
        head, now = _Head.decode(found.get(self.head_key(one), b"")), time.time()
        if head is None or not head.is_done or head.key != key:
            return None
        end = head.expires_at()
        if end is not None and end <= now:
            return None
        first: Any = found.get(self.piece_key(one, 0))
        pieces = [first] if head.length else []
        if head.length > PIECE_BYTES and first is not None:
            rest = yield from self.window(one, head, 1)
            if rest is None:
                return None
            pieces += rest
        if head.length and (
            not isinstance(first, bytes) or len(first) != min(head.length, PIECE_BYTES)
        ):
            return None
        if head.tti is not None and now - head.used >= head.tti / 2:
            yield from self._used(one, now)
        return one, head, pieces

    def _used(self, one: uuid.UUID, now: float) -> Generator[Any, Any, None]:
        """Restart the time that an entry may be idle."""
        held = yield call(self.client, "gets", self.head_key(one))
        head = None if held is None else _Head.decode(held[0])
        if held is not None and head is not None:
            head.used = now
            yield call(
                self.client, "cas", self.head_key(one), head.encode(), held[1], ttl=head.ttl(now)
            )
            yield call(self.client, "touch", self.index_key(head.key), head.ttl(now) or 0)
            for index in range(-(-head.length // PIECE_BYTES)):
                yield call(self.client, "touch", self.piece_key(one, index), head.ttl(now) or 0)

    def window(
        self, one: uuid.UUID, head: _Head, first: int
    ) -> Generator[Any, Any, list[bytes] | None]:
        """Return pieces from `first` on, by one request; None if one is lost."""
        last = min(-(-head.length // PIECE_BYTES), first + WINDOW_PIECES)
        names = [self.piece_key(one, index) for index in range(first, last)]
        found = yield call(self.client, "get_many", names)
        pieces: list[bytes] = []
        for index, name in enumerate(names, first):
            piece: Any = found.get(name)
            if not isinstance(piece, bytes) or len(piece) != min(
                PIECE_BYTES, head.length - index * PIECE_BYTES
            ):
                return None
            pieces.append(piece)
        return pieces

    def update(self, one: uuid.UUID, headers: Headers) -> Generator[Any, Any, None]:
        """Replace the response headers of an entry that still exists."""
        try:
            for _ in range(_TRIES):
                held = yield call(self.client, "gets", self.head_key(one))
                head = None if held is None else _Head.decode(held[0])
                if held is None or head is None:
                    return
                head.response["headers"] = _listed(headers)
                ttl = head.ttl(time.time()) if head.is_done else WRITING_S
                if (
                    yield call(
                        self.client, "cas", self.head_key(one), head.encode(), held[1], ttl=ttl
                    )
                ):
                    return
        except GlasscacheError:
            self.store_errors += 1

    def remove(self, one: uuid.UUID) -> Generator[Any, Any, None]:
        """Hide an entry; readers that stream it can finish."""
        try:
            yield call(self.client, "delete", self.head_key(one))
        except GlasscacheError:
            self.store_errors += 1


def _ids(index: str) -> list[uuid.UUID]:
    found: list[uuid.UUID] = []
    for text in index.split():
        try:
            found.append(uuid.UUID(hex=text))
        except ValueError:
            continue
    return found


class _Saving:
    """The body of an entry on its way into the store; after a failure it only passes through."""

    def __init__(self, plans: _Plans, entry: uuid.UUID, head: _Head, most: int | None) -> None:
        self._plans, self._entry, self._head, self._most = plans, entry, head, most
        self._buffer, self._pieces, self._is_on, self._is_published = bytearray(), 0, True, False

    def take(self, chunk: bytes) -> Generator[Any, Any, None]:
        if not self._is_on:
            return
        self._head.length += len(chunk)
        self._buffer += chunk
        if self._most is not None and self._head.length > self._most:
            yield from self.give_up()
        while self._is_on and len(self._buffer) >= PIECE_BYTES:
            piece = bytes(self._buffer[:PIECE_BYTES])
            del self._buffer[:PIECE_BYTES]
            yield from self._put(piece)

    def _put(self, piece: bytes) -> Generator[Any, Any, None]:
        self._pieces += 1
        if not (yield from self._plans.put_piece(self._entry, self._pieces - 1, piece, self._head)):
            yield from self.give_up()

    def finish(self) -> Generator[Any, Any, None]:
        if self._is_on and self._buffer:
            yield from self._put(bytes(self._buffer))
        if self._is_on:
            self._is_published = yield from self._plans.publish(self._entry, self._head)

    def give_up(self) -> Generator[Any, Any, None]:
        """Remove what was written, unless it is visible."""
        if self._is_on and not self._is_published:
            self._is_on = False
            self._buffer.clear()
            yield from self._plans.discard(self._entry, self._pieces)


class Storage(BaseStorage):
    """A storage over a `Client`.

    Args:
        client: of the servers that keep the responses.
        default_ttl: seconds for which an entry is kept; None for ever.
        default_tti: seconds for which an entry is kept after its last use; None for ever.
        max_stream_size: longest body that is kept.
        key_prefix: stands before each key.

    """

    def __init__(
        self,
        client: Client,
        *,
        default_ttl: float | None = 3600,
        default_tti: float | None = None,
        max_stream_size: int | None = 10 << 20,
        key_prefix: str = "hishel",
    ) -> None:
        """Make the storage; the class says what the arguments mean."""
        super().__init__(
            default_ttl=default_ttl, default_tti=default_tti, max_stream_size=max_stream_size
        )
        self._plans = _Plans(client, key_prefix)

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
        deadline, idle = self._limits(ttl, tti, time.time())
        entry = Entry(uuid.uuid4(), request, response)
        stream = cast("Iterator[bytes]", iter(()) if response.stream is None else response.stream)
        head = _head_of(key, request, response, deadline, idle)
        if not drive(self._plans.begin(entry.id, head)):
            return replace(entry, response=replace(response, stream=stream))
        saving = _Saving(self._plans, entry.id, head, self.max_stream_size)
        return replace(entry, response=replace(response, stream=_saved(stream, saving)))

    def get_entries(self, key: str) -> list[Entry]:
        """Return the complete entries of a key that have not expired."""
        return [
            _entry_of(one, head, _read(self._plans, one, head, pieces))
            for one, head, pieces in drive(self._plans.find(key))
        ]

    def update_headers(self, id: uuid.UUID, headers: Headers) -> None:
        """Replace the response headers of an entry."""
        drive(self._plans.update(id, headers))

    def remove_entry(self, id: uuid.UUID) -> None:
        """Hide an entry from now on."""
        drive(self._plans.remove(id))


class AsyncStorage(AsyncBaseStorage):
    """`Storage` over an `AsyncClient`; the arguments are the same."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        default_ttl: float | None = 3600,
        default_tti: float | None = None,
        max_stream_size: int | None = 10 << 20,
        key_prefix: str = "hishel",
    ) -> None:
        """Make the storage, as `Storage`."""
        super().__init__(
            default_ttl=default_ttl, default_tti=default_tti, max_stream_size=max_stream_size
        )
        self._plans = _Plans(client, key_prefix)

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
        deadline, idle = self._limits(ttl, tti, time.time())
        entry = Entry(uuid.uuid4(), request, response)
        stream = cast(
            "AsyncIterator[bytes]", _nothing() if response.stream is None else response.stream
        )
        head = _head_of(key, request, response, deadline, idle)
        if not await drive_async(self._plans.begin(entry.id, head)):
            return replace(entry, response=replace(response, stream=stream))
        saving = _Saving(self._plans, entry.id, head, self.max_stream_size)
        return replace(entry, response=replace(response, stream=_saved_async(stream, saving)))

    async def get_entries(self, key: str) -> list[Entry]:
        """Return the complete entries of a key that have not expired."""
        return [
            _entry_of(one, head, _read_async(self._plans, one, head, pieces))
            for one, head, pieces in await drive_async(self._plans.find(key))
        ]

    async def update_headers(self, id: uuid.UUID, headers: Headers) -> None:
        """Replace the response headers of an entry."""
        await drive_async(self._plans.update(id, headers))

    async def remove_entry(self, id: uuid.UUID) -> None:
        """Hide an entry from now on."""
        await drive_async(self._plans.remove(id))


def _head_of(
    key: str, request: Request, response: Response, deadline: float | None, tti: float | None
) -> _Head:
    return _Head(
        key,
        {"method": request.method, "url": request.url, "headers": _listed(request.headers)},
        {"status": response.status_code, "headers": _listed(response.headers)},
        deadline=deadline,
        tti=tti,
        used=time.time(),
    )


def _entry_of(one: uuid.UUID, head: _Head, stream: Any) -> Entry:
    request, response = _message(head.request, head.response)
    return Entry(one, request, replace(response, stream=stream))


def _saved(stream: Iterator[bytes], saving: _Saving) -> Iterator[bytes]:
    try:
        for chunk in stream:
            drive(saving.take(chunk))
            yield chunk
        drive(saving.finish())
    finally:
        drive(saving.give_up())


async def _saved_async(stream: AsyncIterator[bytes], saving: _Saving) -> AsyncIterator[bytes]:
    try:
        async for chunk in stream:
            await drive_async(saving.take(chunk))
            yield chunk
        await drive_async(saving.finish())
    finally:
        await drive_async(saving.give_up())


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""  # a generator, though an empty one


_LOST: Final = "a part of the stored response was evicted while it was being read"


def _read(plans: _Plans, one: uuid.UUID, head: _Head, pieces: list[bytes]) -> Iterator[bytes]:
    count, index = -(-head.length // PIECE_BYTES), 0
    while True:
        yield from pieces
        index += len(pieces)
        if index >= count:
            return
        following = drive(plans.window(one, head, index))
        if following is None:
            raise RuntimeError(_LOST)
        pieces = following


async def _read_async(
    plans: _Plans, one: uuid.UUID, head: _Head, pieces: list[bytes]
) -> AsyncIterator[bytes]:
    count, index = -(-head.length // PIECE_BYTES), 0
    while True:
        for piece in pieces:
            yield piece
        index += len(pieces)
        if index >= count:
            return
        following = await drive_async(plans.window(one, head, index))
        if following is None:
            raise RuntimeError(_LOST)
        pieces = following
