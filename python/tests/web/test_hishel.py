"""The hishel storages: the cases of hishel's own Redis storage tests that concern any store."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import TYPE_CHECKING, Any

import pytest

hishel = pytest.importorskip("hishel", reason="hishel is not installed")

from glasscache import AsyncClient, Client
from glasscache.contrib import hishel as storages
from glasscache.contrib.hishel import PIECE_BYTES, WINDOW_PIECES, AsyncStorage, Storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from glasscache import Server

KEYS = (f"key {number}" for number in itertools.count())


class Time:
    """The storages' wall clock."""

    now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(storages, "time", time)
    return time


class Sync:
    """The blocking storage with the interface that the tests use."""

    def __init__(self, address: str, **options: Any) -> None:
        options.setdefault("default_ttl", None)
        self.storage: Any = Storage(Client(address, timeout=5), **options)
        self.plans = self.storage._plans

    def create(self, key: str, parts: list[bytes], **limits: Any) -> Any:
        request = hishel.Request("GET", "https://example.com/")
        response = hishel.Response(200, hishel.Headers({"A": ["1", "2"]}), iter(parts))
        return self.storage.create_entry(request, response, key, **limits)

    def read(self, entry: Any, parts: int | None = None) -> bytes:
        return b"".join(itertools.islice(entry.response.stream, parts))

    def close(self, entry: Any) -> None:
        entry.response.stream.close()

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self.storage, name)(*arguments)

    def client(self, name: str, *arguments: Any) -> Any:
        return getattr(self.plans.client, name)(*arguments)


class Async(Sync):
    """The same over the storage for asyncio."""

    def __init__(self, address: str, **options: Any) -> None:
        options.setdefault("default_ttl", None)
        self.loop = asyncio.new_event_loop()
        self.storage = AsyncStorage(AsyncClient(address, timeout=5), **options)
        self.plans = self.storage._plans

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def create(self, key: str, parts: list[bytes], **limits: Any) -> Any:
        async def stream() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        request = hishel.Request("GET", "https://example.com/")
        response = hishel.Response(200, hishel.Headers({"A": ["1", "2"]}), stream())
        return self.run(self.storage.create_entry(request, response, key, **limits))

    def read(self, entry: Any, parts: int | None = None) -> bytes:
        async def read() -> bytes:
            body, count = b"", 0
            async for part in entry.response.stream:
                body, count = body + part, count + 1
                if count == parts:
                    break
            return body

        return self.run(read())

    def close(self, entry: Any) -> None:
        self.run(entry.response.stream.aclose())

    def call(self, name: str, *arguments: Any) -> Any:
        return self.run(getattr(self.storage, name)(*arguments))

    def client(self, name: str, *arguments: Any) -> Any:
        return self.run(getattr(self.plans.client, name)(*arguments))


@pytest.fixture(params=[Sync, Async])
def make(request: pytest.FixtureRequest, glasscache_server: Server) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def factory(**options: Any) -> Any:
        made.append(request.param(glasscache_server.address, **options))
        return made[-1]

    yield factory
    for one in made:
        if isinstance(one, Async):
            one.run(one.plans.client.close())
            one.loop.close()


def stored(storage: Any, key: str, body: bytes = b"data", **limits: Any) -> Any:
    entry = storage.create(key, [body], **limits)
    assert storage.read(entry) == body
    return entry


def test_round_trip_returns_exact_body_and_headers(make: Any) -> None:
    storage, key = make(), next(KEYS)
    body = b"x" * (PIECE_BYTES * 2 + 5)
    storage.read(storage.create(key, [body[:100], body[100:]]))
    (got,) = storage.call("get_entries", key)
    assert storage.read(got) == body
    assert got.response.headers.get_list("A") == ["1", "2"]
    assert (got.request.url, got.response.status_code) == ("https://example.com/", 200)


@pytest.mark.parametrize("parts", [[], [b""]])
def test_empty_body(make: Any, parts: list[bytes]) -> None:
    storage, key = make(), next(KEYS)
    storage.read(storage.create(key, parts))
    assert [storage.read(entry) for entry in storage.call("get_entries", key)] == [b""]


def test_incomplete_entry_is_invisible_until_stream_finishes(make: Any) -> None:
    storage, key = make(), next(KEYS)
    entry = storage.create(key, [b"a", b"b"])
    assert storage.read(entry, 1) == b"a"
    assert storage.call("get_entries", key) == []
    assert storage.read(entry) == b"b" or isinstance(storage, Async)


def test_ttl_hides_and_tti_extends_on_read(make: Any, clock: Time) -> None:
    storage, key = make(), next(KEYS)
    stored(storage, key, ttl=10)
    clock.now += 9
    assert len(storage.call("get_entries", key)) == 1
    clock.now += 2
    assert storage.call("get_entries", key) == []
    idle, other = next(KEYS), next(KEYS)
    stored(storage, idle, tti=10)
    stored(storage, other, ttl=25, tti=10)
    for _ in range(3):
        clock.now += 6
        assert len(storage.call("get_entries", idle)) == 1
        assert len(storage.call("get_entries", other)) == 1
    clock.now += 8
    assert storage.call("get_entries", other) == []  # its ttl caps its tti
    clock.now += 3
    assert storage.call("get_entries", idle) == []


def test_defaults_are_an_hour_and_those_of_the_call_come_first(make: Any, clock: Time) -> None:
    storage, first, second = make(default_ttl=3600), next(KEYS), next(KEYS)
    stored(storage, first)
    stored(storage, second, ttl=7200)
    clock.now += 3601
    assert storage.call("get_entries", first) == []
    assert len(storage.call("get_entries", second)) == 1


def test_update_headers_keeps_limits_and_body(make: Any, clock: Time) -> None:
    storage, key = make(), next(KEYS)
    entry = stored(storage, key, ttl=10)
    storage.call("update_headers", entry.id, hishel.Headers({"B": "3"}))
    (got,) = storage.call("get_entries", key)
    assert (got.response.headers["B"], storage.read(got)) == ("3", b"data")
    clock.now += 11
    assert storage.call("get_entries", key) == []


def test_remove_and_update_of_a_missing_entry_do_nothing(make: Any) -> None:
    storage = make()
    storage.call("remove_entry", uuid.uuid4())
    storage.call("update_headers", uuid.uuid4(), hishel.Headers({}))


def test_remove_hides_at_once_but_a_reader_can_finish(make: Any) -> None:
    storage, key = make(), next(KEYS)
    entry = stored(storage, key, b"x" * (PIECE_BYTES + 1))
    (got,) = storage.call("get_entries", key)
    storage.call("remove_entry", entry.id)
    assert storage.call("get_entries", key) == []
    assert len(storage.read(got)) == PIECE_BYTES + 1


def test_remove_during_write_stays_removed_and_consumer_is_served(make: Any) -> None:
    storage, key = make(), next(KEYS)
    entry = storage.create(key, [b"a", b"b"])
    storage.call("remove_entry", entry.id)
    assert storage.read(entry) == b"ab"
    assert storage.call("get_entries", key) == []


def test_a_lost_piece_is_a_miss_or_an_error_but_never_a_short_body(make: Any) -> None:
    storage, key = make(max_stream_size=None), next(KEYS)
    pieces = WINDOW_PIECES + 3
    entry = stored(storage, key, b"y" * (PIECE_BYTES * pieces))
    (got,) = storage.call("get_entries", key)
    storage.client("delete", storage.plans.piece_key(entry.id, pieces - 1))
    with pytest.raises(RuntimeError, match="evicted"):
        storage.read(got)
    storage.client("delete", storage.plans.piece_key(entry.id, 0))
    assert storage.call("get_entries", key) == []


def test_abandoned_and_failed_streams_discard_what_was_stored(make: Any) -> None:
    storage, key = make(), next(KEYS)
    entry = storage.create(key, [b"z" * PIECE_BYTES, b"rest"])
    storage.read(entry, 1)
    storage.close(entry)
    assert storage.client("get", storage.plans.piece_key(entry.id, 0)) is None
    assert storage.client("get", storage.plans.head_key(entry.id)) is None
    assert storage.call("get_entries", key) == []


def test_a_response_that_is_too_large_is_delivered_and_not_stored(make: Any) -> None:
    storage, key = make(max_stream_size=10), next(KEYS)
    entry = storage.create(key, [b"12345", b"67890", b"1"])
    assert storage.read(entry) == b"12345678901"
    assert storage.call("get_entries", key) == []


def test_an_outage_does_not_fail_the_caller(glasscache_server: Server) -> None:
    del glasscache_server
    for storage in (Sync("127.0.0.1:1"), Async("127.0.0.1:1")):
        entry = storage.create("k", [b"a", b"b"])
        assert storage.read(entry) == b"ab"
        assert storage.call("get_entries", "k") == []
        storage.call("update_headers", entry.id, hishel.Headers({}))
        storage.call("remove_entry", entry.id)
        assert storage.plans.store_errors
        if isinstance(storage, Async):
            storage.run(storage.plans.client.close())
            storage.loop.close()


def test_a_corrupt_entry_is_dropped_and_lookup_still_works(make: Any) -> None:
    storage, key = make(), next(KEYS)
    entry, fine = stored(storage, key), stored(storage, key, b"fine")
    for corrupt in (b"garbage", b"{}", b'{"key": 3}'):
        storage.client("set", storage.plans.head_key(entry.id), corrupt)
        assert [one.id for one in storage.call("get_entries", key)] == [fine.id]
    storage.client("set", storage.plans.index_key(key), f"nonsense {fine.id.hex}")
    assert [one.id for one in storage.call("get_entries", key)] == [fine.id]


def test_a_response_without_a_stream_has_an_empty_body(glasscache_server: Server) -> None:
    storage = Sync(glasscache_server.address)
    request = hishel.Request("GET", "https://example.com/")
    entry = storage.storage.create_entry(request, hishel.Response(204), "no stream")
    assert storage.read(entry) == b""
    assert len(storage.call("get_entries", "no stream")) == 1


def test_httpx_responses_come_from_the_store(glasscache_server: Server) -> None:
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    module = pytest.importorskip("hishel.httpx")
    calls = []

    def respond(request: Any) -> Any:
        calls.append(request)
        return httpx.Response(200, headers={"cache-control": "max-age=60"}, content=b"hello")

    with Client(glasscache_server.address, timeout=5) as store:
        transport = module.CacheTransport(httpx.MockTransport(respond), storage=Storage(store))
        with httpx.Client(transport=transport) as client:
            assert [client.get("https://shop.example/a").text for _ in range(3)] == ["hello"] * 3
    assert len(calls) == 1
