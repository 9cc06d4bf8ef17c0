"""What clients and applications send is kept, parsed and allocated within bounds of bytes."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from glasscache._chunks import CHUNK_BYTES
from glasscache.web import CacheASGI, CacheSettings
from glasscache.web._bounded_cache import BoundedCache
from glasscache.web._entry import Entry, decode
from glasscache.web._fields import (
    FIELD_BYTES_MAX,
    has_long_fields,
    parse_cache_control,
    parse_date,
    parse_targeted,
)
from glasscache.web._response import TAGS_MAX
from hypothesis import given
from hypothesis import strategies as st

from web.harness import Clock, Origin, chunk_keys_of, key_of_url, send_request

if TYPE_CHECKING:
    from glasscache import AsyncClient

FRESH = {"cache-control": "max-age=60"}


@pytest.mark.parametrize("name", ["x-a", "cookie", "cache-control", "if-modified-since", "range"])
async def test_a_request_with_a_long_field_bypasses_the_cache(
    client: AsyncClient, name: str
) -> None:
    cache = CacheASGI(Origin(lambda _: FRESH), client)
    await send_request(cache)
    for value, is_bypassed in (
        ("a" * 8000, False),
        ("a" * 8200, True),
        ("a" * 5_000_000, True),
    ):
        reply = await send_request(cache, fields={name: value})
        assert ("detail=long-field" in reply.cache_status) is is_bypassed
    many_fields = {f"x-{number}": "a" * 8000 for number in range(10)}
    assert "long-field" in (await send_request(cache, fields=many_fields)).cache_status


@pytest.mark.parametrize("name", ["x-a", "vary", "cache-control", "etag", "cache-tag"])
async def test_a_response_with_a_long_field_is_not_stored(client: AsyncClient, name: str) -> None:
    origin = Origin(lambda _: {**FRESH, name: "a" * 9000})
    cache = CacheASGI(origin, client)
    for _ in range(2):
        assert (await send_request(cache)).status == 200
    assert (len(origin.calls), cache.counters["stored"]) == (2, 0)


@pytest.mark.parametrize(("tag_count", "is_stored"), [(TAGS_MAX, True), (TAGS_MAX + 1, False)])
async def test_a_response_with_too_many_tags_is_not_stored(
    client: AsyncClient, tag_count: int, is_stored: bool
) -> None:
    from glasscache.web import Rules

    rules = Rules.from_text('[[rule]]\nthen = { ttl = 60, tag_field = "cache-tag" }\n')
    tags = ",".join(f"t{number}" for number in range(tag_count))
    cache = CacheASGI(Origin(lambda _: {"cache-tag": tags}), client, rules)
    await send_request(cache)
    assert ("hit" in (await send_request(cache)).cache_status) is is_stored


FIELD_VALUES = st.binary(max_size=64).flatmap(
    lambda text: st.integers(0, 400).map(lambda count: text * count)
)


@given(FIELD_VALUES)
def test_fields_of_any_length_are_parsed_or_refused_at_once(value: bytes) -> None:
    began_at = time.process_time()
    directives = parse_cache_control(value)
    parse_targeted(value)
    parse_date(value)
    assert time.process_time() - began_at < 0.5
    if len(value) > FIELD_BYTES_MAX:
        assert directives == {"no-store": None}
        assert has_long_fields([(b"a", value)])


def test_parsed_fields_are_kept_if_they_are_short() -> None:
    random_fields = random.Random(7)
    sizes = [int(2 ** random_fields.uniform(0, 16)) for _ in range(3000)]
    values = [random_fields.randbytes(size).hex().encode()[:size] for size in sizes]
    for warm_up in (b"max-age=1", b"private"):
        parse_cache_control(warm_up)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for value in values:
        parse_cache_control(value)
        parse_targeted(value)
        parse_date(value)
    del value
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 3 << 20, f"{after - before} of {sum(sizes)} bytes"


async def test_a_middleware_keeps_less_than_it_is_sent(client: AsyncClient) -> None:
    random_requests = random.Random(11)
    cache = CacheASGI(Origin(lambda _: {**FRESH, "vary": "x-a"}), client)

    async def send_random_request(number: int) -> None:
        size = int(2 ** random_requests.uniform(0, 16))
        value = random_requests.randbytes(size).hex()[:size]
        name = random_requests.choice(
            ["cache-control", "cookie", "if-modified-since", "x-a", "x-forwarded-host", "range"]
        )
        await send_request(cache, f"/{number}?{value[:100]}", fields={name: value})

    for number in range(200):
        await send_random_request(number)
    cache.app.calls.clear()  # type: ignore[attr-defined]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(600):
        await send_random_request(number)
        cache.app.calls.clear()  # type: ignore[attr-defined]
    await cache.settle()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 4 << 20


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3000))))
def test_a_bounded_cache_keeps_the_last_entries_within_its_bytes(
    puts: list[tuple[int, int]],
) -> None:
    cache, last = BoundedCache[int, int](32_000), dict[int, int]()
    for key, value_bytes in puts:
        cache.put(key, value_bytes, value_bytes)
        last[key] = value_bytes
        assert sum(size + 256 for size in cache.entries.values()) <= 32_000
        assert all(last[kept_key] == size for kept_key, size in cache.entries.items())
        assert (key in cache.entries) == (16 * (value_bytes + 256) <= 32_000)


async def test_many_fields_of_one_name_are_joined_in_one_pass(client: AsyncClient) -> None:
    cache = CacheASGI(Origin(lambda _: FRESH), client)
    fields = [(b"host", b"shop.example"), *[(b"x-a", b"1")] * 100_000]
    began_at = time.process_time()
    reply = await send_request(cache, headers=fields)
    assert time.process_time() - began_at < 2
    assert "long-field" in reply.cache_status


@pytest.mark.parametrize("has_all_chunks", [True, False])
async def test_chunks_live_as_long_as_the_record_that_a_validation_renews(
    client: AsyncClient, has_all_chunks: bool
) -> None:
    clock, chunk_count = Clock(time.time()), 3
    body = bytes(CHUNK_BYTES * chunk_count)

    def respond(call: Any) -> Any:
        headers = {"cache-control": "max-age=10", "etag": '"a"'}
        return (304, headers) if "if-none-match" in call["fields"] else (200, headers, body)

    origin = Origin(respond)
    cache = CacheASGI(origin, client)
    cache.shared.clock = clock
    await send_request(cache)
    key = key_of_url(cache.shared, "http://shop.example/")
    chunk_keys = chunk_keys_of(cache.shared, key, await client.get(key))[:chunk_count]
    for chunk_key in chunk_keys:
        assert await client.touch(chunk_key, 30)  # as if most of their life were over
    if not has_all_chunks:
        await client.delete(chunk_keys[-1])
    clock.now += 20
    assert (await send_request(cache)).status == 200
    await cache.settle()
    if has_all_chunks:
        record = decode(await client.get(key), bytes.fromhex(key.partition(":")[2]))
        assert isinstance(record, Entry)
        for chunk_key in chunk_keys:
            item = await client.get_with_meta(chunk_key)
            assert item is not None
            assert item.ttl is not None
            assert item.ttl > 3600
    else:
        assert await client.get(key) is None
        assert (await send_request(cache)).body == body
        assert (await send_request(cache)).body == body
        assert len(origin.calls) == 4  # with a 304, and a body for the client that it was for


async def test_a_body_longer_than_the_limit_leaves_nothing_in_the_spool(
    client: AsyncClient,
) -> None:
    origin = Origin(lambda _: (200, FRESH, [bytes(100_000)] * 30))
    cache = CacheASGI(origin, client, settings=CacheSettings(max_bytes=1_000_000))
    for _ in range(2):
        assert len((await send_request(cache)).body) == 3_000_000
    await cache.settle()
    assert (cache._spool._waiting_bytes, cache.counters["stored"]) == (0, 0)
    assert len(cache._single_flight) == 0
