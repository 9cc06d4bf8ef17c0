"""The hishel storages: the cases of hishel's own Redis storage tests that concern what callers see."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import Client
from glasscache._chunks import CHUNK_BYTES, CHUNKS_PER_READ
from glasscache.contrib.hishel import Storage

from web.hishel_storages import (
    UNUSED_KEYS,
    BlockingStorage,
    FakeTime,
    StorageInEventLoop,
    hishel,
    store_entry,
)

if TYPE_CHECKING:
    from glasscache import Server


def test_round_trip_returns_exact_body_and_headers(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    body = b"x" * (CHUNK_BYTES * 2 + 5)
    storage.read(storage.create(key, [body[:100], body[100:]]))
    (found_entry,) = storage.call_method("get_entries", key)
    assert storage.read(found_entry) == body
    assert found_entry.response.headers.get_list("A") == ["1", "2"]
    assert (found_entry.request.url, found_entry.response.status_code) == (
        "https://example.com/",
        200,
    )


@pytest.mark.parametrize("parts", [[], [b""]])
def test_an_empty_body_is_stored_and_read(make_storage: Any, parts: list[bytes]) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    storage.read(storage.create(key, parts))
    assert [storage.read(entry) for entry in storage.call_method("get_entries", key)] == [b""]


def test_incomplete_entry_is_invisible_until_stream_finishes(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = storage.create(key, [b"a", b"b"])
    assert storage.read(entry, 1) == b"a"
    assert storage.call_method("get_entries", key) == []
    assert storage.read(entry) == b"b" or isinstance(storage, StorageInEventLoop)


def test_ttl_hides_and_tti_extends_on_read(make_storage: Any, storage_clock: FakeTime) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    store_entry(storage, key, ttl=10)
    storage_clock.now += 9
    assert len(storage.call_method("get_entries", key)) == 1
    storage_clock.now += 2
    assert storage.call_method("get_entries", key) == []
    idle_key, other_key = next(UNUSED_KEYS), next(UNUSED_KEYS)
    store_entry(storage, idle_key, tti=10)
    store_entry(storage, other_key, ttl=25, tti=10)
    for _ in range(3):
        storage_clock.now += 6
        assert len(storage.call_method("get_entries", idle_key)) == 1
        assert len(storage.call_method("get_entries", other_key)) == 1
    storage_clock.now += 8
    assert storage.call_method("get_entries", other_key) == []  # its ttl caps its tti
    storage_clock.now += 3
    assert storage.call_method("get_entries", idle_key) == []


def test_defaults_are_an_hour_and_those_of_the_call_come_first(
    make_storage: Any, storage_clock: FakeTime
) -> None:
    storage, first_key, second_key = (
        make_storage(default_ttl=3600),
        next(UNUSED_KEYS),
        next(UNUSED_KEYS),
    )
    store_entry(storage, first_key)
    store_entry(storage, second_key, ttl=7200)
    storage_clock.now += 3601
    assert storage.call_method("get_entries", first_key) == []
    assert len(storage.call_method("get_entries", second_key)) == 1


def test_update_headers_keeps_limits_and_body(make_storage: Any, storage_clock: FakeTime) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = store_entry(storage, key, ttl=10)
    storage.call_method("update_headers", entry.id, hishel.Headers({"B": "3"}))
    (found_entry,) = storage.call_method("get_entries", key)
    assert (found_entry.response.headers["B"], storage.read(found_entry)) == ("3", b"data")
    storage_clock.now += 11
    assert storage.call_method("get_entries", key) == []


def test_remove_and_update_of_a_missing_entry_do_nothing(make_storage: Any) -> None:
    storage = make_storage()
    storage.call_method("remove_entry", uuid.uuid4())
    storage.call_method("update_headers", uuid.uuid4(), hishel.Headers({}))


def test_remove_hides_at_once_but_a_reader_can_finish(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = store_entry(storage, key, b"x" * (CHUNK_BYTES + 1))
    (found_entry,) = storage.call_method("get_entries", key)
    storage.call_method("remove_entry", entry.id)
    assert storage.call_method("get_entries", key) == []
    assert len(storage.read(found_entry)) == CHUNK_BYTES + 1


def test_remove_during_write_stays_removed_and_consumer_is_served(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = storage.create(key, [b"a", b"b"])
    storage.call_method("remove_entry", entry.id)
    assert storage.read(entry) == b"ab"
    assert storage.call_method("get_entries", key) == []


def test_a_lost_chunk_is_a_miss_or_an_error_but_never_a_short_body(make_storage: Any) -> None:
    storage, key = make_storage(max_stream_size=None), next(UNUSED_KEYS)
    chunk_count = CHUNKS_PER_READ + 3
    entry = store_entry(storage, key, b"y" * (CHUNK_BYTES * chunk_count))
    (found_entry,) = storage.call_method("get_entries", key)
    storage.call_client_method("delete", storage.entry_steps.chunks(entry.id).key(chunk_count - 1))
    with pytest.raises(RuntimeError, match="evicted"):
        storage.read(found_entry)
    storage.call_client_method("delete", storage.entry_steps.chunks(entry.id).key(0))
    assert storage.call_method("get_entries", key) == []


def test_abandoned_and_failed_streams_discard_what_was_stored(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry = storage.create(key, [b"z" * CHUNK_BYTES, b"rest"])
    storage.read(entry, 1)
    storage.close(entry)
    assert storage.call_client_method("get", storage.entry_steps.chunks(entry.id).key(0)) is None
    assert storage.call_client_method("get", storage.entry_steps.head_key(entry.id)) is None
    assert storage.call_method("get_entries", key) == []


def test_a_response_that_is_too_large_is_delivered_and_not_stored(make_storage: Any) -> None:
    storage, key = make_storage(max_stream_size=10), next(UNUSED_KEYS)
    entry = storage.create(key, [b"12345", b"67890", b"1"])
    assert storage.read(entry) == b"12345678901"
    assert storage.call_method("get_entries", key) == []


def test_an_outage_does_not_fail_the_caller(glasscache_server: Server) -> None:
    del glasscache_server
    for storage in (BlockingStorage("127.0.0.1:1"), StorageInEventLoop("127.0.0.1:1")):
        entry = storage.create("k", [b"a", b"b"])
        assert storage.read(entry) == b"ab"
        assert storage.call_method("get_entries", "k") == []
        storage.call_method("update_headers", entry.id, hishel.Headers({}))
        storage.call_method("remove_entry", entry.id)
        assert storage.entry_steps.store_errors
        if isinstance(storage, StorageInEventLoop):
            storage.run_until_complete(storage.entry_steps.client.close())
            storage.loop.close()


def test_a_corrupt_entry_is_dropped_and_lookup_still_works(make_storage: Any) -> None:
    storage, key = make_storage(), next(UNUSED_KEYS)
    entry, valid_entry = store_entry(storage, key), store_entry(storage, key, b"fine")
    for corrupt in (b"garbage", b"{}", b'{"key": 3}'):
        storage.call_client_method("set", storage.entry_steps.head_key(entry.id), corrupt)
        assert [found_entry.id for found_entry in storage.call_method("get_entries", key)] == [
            valid_entry.id
        ]
    storage.call_client_method(
        "set", storage.entry_steps.index_key(key), f"nonsense {valid_entry.id.hex}"
    )
    assert [found_entry.id for found_entry in storage.call_method("get_entries", key)] == [
        valid_entry.id
    ]


def test_a_response_without_a_stream_has_an_empty_body(glasscache_server: Server) -> None:
    storage = BlockingStorage(glasscache_server.address)
    request = hishel.Request("GET", "https://example.com/")
    entry = storage.storage.create_entry(request, hishel.Response(204), "no stream")
    assert storage.read(entry) == b""
    assert len(storage.call_method("get_entries", "no stream")) == 1


def test_httpx_responses_come_from_the_store(glasscache_server: Server) -> None:
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    hishel_httpx = pytest.importorskip("hishel.httpx")
    calls = []

    def respond(request: Any) -> Any:
        calls.append(request)
        return httpx.Response(200, headers={"cache-control": "max-age=60"}, content=b"hello")

    with Client(glasscache_server.address, timeout=5) as cache_client:
        transport = hishel_httpx.CacheTransport(
            httpx.MockTransport(respond), storage=Storage(cache_client)
        )
        with httpx.Client(transport=transport) as client:
            assert [client.get("https://shop.example/a").text for _ in range(3)] == ["hello"] * 3
    assert len(calls) == 1
