"""Purges by URL, prefix and tag, of the HTTP cache as ASGI middleware."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from glasscache.web import CacheASGI, CacheSettings, Rules
from glasscache.web.purge import AsyncPurger

from web.harness import Origin, send_request

if TYPE_CHECKING:
    from glasscache import AsyncClient


async def test_purges_by_url_prefix_and_tag_make_only_their_responses_misses(
    client: AsyncClient,
) -> None:
    rules = Rules.from_text('[[rule]]\nwhen = { path = "/p/**" }\nthen = { tag_field = "Tags" }')
    origin = Origin(
        lambda call: {"cache-control": "max-age=60", "tags": f"all, {call['path'][-1]}"}
    )
    cache = CacheASGI(origin, client, rules)
    purger = AsyncPurger(client, rules)

    async def are_fresh_hits() -> list[bool]:
        replies = [await send_request(cache, f"/p/{page_name}") for page_name in "abc"]
        await cache.settle()
        return [
            "hit" in reply.cache_status and "stale" not in reply.cache_status for reply in replies
        ]

    await are_fresh_hits()
    assert await are_fresh_hits() == [True] * 3
    assert await purger.url("http://shop.example/p/a")
    assert await are_fresh_hits() == [False, True, True]
    await purger.tag("b")
    assert await are_fresh_hits() == [True, False, True]
    await purger.prefix("shop.example/p/c")
    assert await are_fresh_hits() == [True, True, False]
    await purger.tag("all")
    assert await are_fresh_hits() == [False] * 3
    assert await are_fresh_hits() == [True] * 3
    assert await purger.url("http://shop.example/p/a", soft=True)
    await purger.tag("b", soft=True)
    await purger.prefix("http://shop.example/p/c", soft=True)
    assert await are_fresh_hits() == [False] * 3
    assert await are_fresh_hits() == [True] * 3


@pytest.mark.parametrize("is_soft", [False, True])
async def test_a_purge_of_a_url_reaches_responses_whose_keys_have_fields_in_them(
    client: AsyncClient, is_soft: bool
) -> None:
    rules = Rules.from_text('[[rule]]\nthen = { vary_on = ["cookie:currency"], grace = 60 }')
    variants = [
        {"cookie": "currency=eur"},
        {"cookie": "currency=usd", "x-forwarded-proto": "https"},
        {},
    ]
    cache = CacheASGI(Origin(), client, rules)

    async def are_hits(path: str) -> list[bool]:
        replies = [await send_request(cache, path, fields=fields) for fields in variants]
        await cache.settle()
        return [
            "; hit;" in reply.cache_status and "stale" not in reply.cache_status
            for reply in replies
        ]

    for path in ("/a", "/b"):
        assert await are_hits(path) == [False] * 3
        assert await are_hits(path) == [True] * 3
    purger = AsyncPurger(client, rules)
    assert await purger.url("http://shop.example/a", soft=is_soft)
    assert await are_hits("/b") == [True] * 3
    assert await are_hits("/a") == [False] * 3
    assert await are_hits("/a") == [True] * 3
    assert not await purger.url("http://shop.example/never", soft=is_soft)


@pytest.mark.parametrize("invalidation", ["purge", "POST"])
async def test_a_purge_during_the_first_fetch_of_a_url_keeps_its_response_out(
    client: AsyncClient, invalidation: str
) -> None:
    behind_proxy = {"x-forwarded-proto": "https"}
    origin = Origin()
    cache = CacheASGI(origin, client)
    origin.delay_s = 0.5
    fetch_task = asyncio.ensure_future(send_request(cache, "/a", fields=behind_proxy))
    while not origin.calls:  # noqa: ASYNC110 - until the fetch has reached the application
        await asyncio.sleep(0.01)
    origin.delay_s = 0.0
    if invalidation == "POST":
        await send_request(cache, "/a", method="POST")
    else:
        await AsyncPurger(client).url("http://shop.example/a")
    await fetch_task
    calls_before = len(origin.calls)
    await send_request(cache, "/a", fields=behind_proxy)
    assert len(origin.calls) == calls_before + 1


async def test_a_soft_purge_serves_the_old_response_while_one_refreshes(
    client: AsyncClient,
) -> None:
    rules = Rules.from_text('[[rule]]\nthen = { tags = ["t"], grace = 60 }')
    origin = Origin()
    cache = CacheASGI(origin, client, rules)
    await send_request(cache)
    await AsyncPurger(client, rules).tag("t", soft=True)
    stale_reply = await send_request(cache)
    assert stale_reply.body == b"body 1"
    assert "stale" in stale_reply.cache_status
    await cache.settle()
    assert (await send_request(cache)).body == b"body 2"


async def test_a_lost_record_of_purges_means_misses(client: AsyncClient) -> None:
    rules = Rules.from_text('[[rule]]\nthen = { tags = ["t"] }')
    origin = Origin()
    cache = CacheASGI(origin, client, rules)
    for lost_key in (cache.shared.purge_log_key, cache.shared.tag_key(b"t")):
        await send_request(cache)
        calls_before = len(origin.calls)
        await send_request(cache)
        assert len(origin.calls) == calls_before
        await client.delete(lost_key)
        await send_request(cache)
        assert len(origin.calls) == calls_before + 1


async def test_purge_requests_need_the_token(client: AsyncClient) -> None:
    cache = CacheASGI(Origin(), client, settings=CacheSettings(purge_token="secret"))  # noqa: S106 - a test's own
    await send_request(cache, "/a")
    assert (await send_request(cache, "/a", method="PURGE")).status == 403
    token_fields = {"authorization": "Bearer secret"}
    assert (
        b'"was_stored": true'
        in (await send_request(cache, "/a", method="PURGE", fields=token_fields)).body
    )
    assert (await send_request(cache, "/a")).body == b"body 2"
    await send_request(
        cache, "/", method="PURGE", fields={**token_fields, "purge-prefix": "shop.example/"}
    )
    assert (await send_request(cache, "/a")).body == b"body 3"
