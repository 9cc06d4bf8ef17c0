"""Which request fetches, and what the others receive: single flight, stale responses and failures."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from glasscache import AsyncClient, GlasscacheError
from glasscache.web import CacheASGI, CacheSettings

from web.harness import Clock, FailingClient, Origin, key_of_url, send_request


@pytest.mark.parametrize("request_count", [50])
async def test_many_misses_of_one_url_fetch_once(client: AsyncClient, request_count: int) -> None:
    origin = Origin()
    origin.delay_s = 0.1
    caches = [CacheASGI(origin, client) for _ in range(4)]  # as four processes would
    replies = await asyncio.gather(
        *(send_request(caches[number % 4], "/a") for number in range(request_count))
    )
    assert {reply.body for reply in replies} == {b"body 1"}
    assert len(origin.calls) == 1


async def test_requests_for_what_cannot_be_stored_do_not_wait_for_each_other(
    client: AsyncClient,
) -> None:
    running_count = running_max = 0

    class SlowOrigin(Origin):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            nonlocal running_count, running_max
            running_count += 1
            running_max = max(running_max, running_count)
            await asyncio.sleep(0.05)
            await super().__call__(scope, receive, send)
            running_count -= 1

    cache = CacheASGI(SlowOrigin(lambda _: {"cache-control": "no-store"}), client)
    await send_request(cache, "/a")
    await asyncio.gather(*(send_request(cache, "/a") for _ in range(20)))
    assert running_max > 10


async def test_a_stale_response_is_sent_while_one_request_refreshes_it(client: AsyncClient) -> None:
    clock = Clock(time.time())
    origin = Origin(lambda _: {"cache-control": "max-age=10, stale-while-revalidate=60"})
    cache = CacheASGI(origin, client)
    cache.shared.clock = clock
    await send_request(cache)
    clock.now += 20
    origin.delay_s = 0.05
    replies = [await send_request(cache) for _ in range(5)]
    assert {reply.body for reply in replies} == {b"body 1"}
    assert all("detail=stale" in reply.cache_status for reply in replies)
    await cache.settle()
    assert len(origin.calls) == 2
    assert (await send_request(cache)).body == b"body 2"


async def test_concurrent_requests_try_once_to_lease_a_stale_response(client: AsyncClient) -> None:
    clock, add_count = Clock(time.time()), 0

    def count_adds(name: str) -> None:
        nonlocal add_count
        add_count += name == "add"

    origin = Origin(lambda _: {"cache-control": "max-age=10, stale-while-revalidate=60"})
    cache = CacheASGI(origin, FailingClient(client, count_adds))  # type: ignore[arg-type]
    cache.shared.clock = clock
    await send_request(cache)
    lease_key = key_of_url(cache.shared, "http://shop.example/") + ":l"
    await client.set(lease_key, b"of another process", ttl=60)
    clock.now, add_count = clock.now + 20, 0
    replies = await asyncio.gather(*(send_request(cache) for _ in range(20)))
    assert {reply.body for reply in replies} == {b"body 1"}
    assert add_count == 1
    await client.delete(lease_key)
    clock.now += 1
    await send_request(cache)
    await cache.settle()
    assert (await send_request(cache)).body == b"body 2"


async def test_a_failing_application_is_replaced_by_a_stale_response_that_allows_it(
    client: AsyncClient,
) -> None:
    for cache_control, is_stale_sent in (
        ("max-age=10, stale-if-error=60", True),
        ("max-age=10, must-revalidate", False),
    ):
        clock, is_down = Clock(time.time()), False
        headers = {"cache-control": cache_control}
        origin = Origin(lambda _, headers=headers: (503, {}) if is_down else headers)  # noqa: B023
        cache = CacheASGI(origin, client, settings=CacheSettings(version=cache_control))
        cache.shared.clock = clock
        await send_request(cache)
        clock.now, is_down = clock.now + 20, True
        reply = await send_request(cache)
        assert (reply.status == 200) is is_stale_sent, cache_control
        origin.respond = lambda _: OSError("no database")
        if is_stale_sent:
            assert (await send_request(cache)).body == b"body 1"
        else:
            with pytest.raises(OSError, match="no database"):
                await send_request(cache)


@pytest.mark.parametrize("method", ["get_many", "get", "gets", "add", "cas", "set", "delete"])
async def test_a_store_that_fails_never_fails_a_response(client: AsyncClient, method: str) -> None:
    def fail_named_method(called_name: str) -> Any:
        return GlasscacheError("down") if called_name == method else None

    origin = Origin()
    cache = CacheASGI(
        origin, FailingClient(client, fail_named_method), settings=CacheSettings(wait=0.2)
    )  # type: ignore[arg-type]
    for _ in range(3):
        assert (await send_request(cache)).status == 200
    assert (await send_request(cache, method="POST")).status == 200
    if method in {"get_many", "add", "cas"}:
        assert cache.counters["store_errors"]


async def test_an_expensive_response_is_refreshed_before_its_end(client: AsyncClient) -> None:
    clock = Clock(time.time())
    origin = Origin()
    cache = CacheASGI(origin, client)
    cache.shared.clock = clock

    def respond_after_five_seconds(_: Any) -> Any:
        clock.now += 5
        return {"cache-control": "max-age=60"}

    origin.respond = respond_after_five_seconds
    await send_request(cache)
    clock.now += 54.9
    for _ in range(200):
        assert (await send_request(cache)).body in {b"body 1", b"body 2"}
        await cache.settle()
    assert len(origin.calls) >= 2
