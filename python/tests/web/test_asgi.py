"""The HTTP cache as ASGI middleware, over a real server: the responses that are stored and sent."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache._chunks import CHUNK_BYTES, CHUNKS_PER_READ
from glasscache.web import CacheASGI, CacheSettings, Rules

from web.harness import Origin, chunk_keys_of, key_of_url, send_request

if TYPE_CHECKING:
    from glasscache import AsyncClient


async def test_a_fresh_response_is_sent_from_the_store(client: AsyncClient) -> None:
    origin = Origin()
    cache = CacheASGI(origin, client)
    first_reply, second_reply = await send_request(cache, "/a"), await send_request(cache, "/a")
    assert (first_reply.body, second_reply.body) == (b"body 1", b"body 1")
    assert "fwd=uri-miss" in first_reply.cache_status
    assert second_reply.cache_status.startswith("glasscache; hit; ttl=")
    assert second_reply["age"] == "0"
    assert (await send_request(cache, "/b")).body == b"body 2"
    assert (await send_request(cache, "/a", fields={"host": "other.example"})).body == b"body 3"
    assert cache.counters["hits"] == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"cache-control": "no-store"},
        {"cache-control": "private, max-age=60"},
        {"cache-control": "max-age=60", "vary": "*"},
        {},
        {"cache-control": "max-age=60", "vary": ", ".join(f"x-{number}" for number in range(40))},
        {"cache-control": "max-age=60", "content-length": "99"},
    ],
)
async def test_what_may_not_be_stored_is_fetched_each_time(
    client: AsyncClient, headers: dict[str, str]
) -> None:
    origin = Origin(lambda _: headers)
    cache = CacheASGI(origin, client)
    assert (await send_request(cache)).body != (await send_request(cache)).body
    assert len(origin.calls) == 2


async def test_a_response_to_credentials_is_stored_only_if_it_is_public(
    client: AsyncClient,
) -> None:
    credentials = {"authorization": "Bearer a"}
    for cache_control, is_shared in (
        ("max-age=60", False),
        ("max-age=60, public", True),
        ("s-maxage=9", True),
    ):
        origin = Origin(lambda _, cache_control=cache_control: {"cache-control": cache_control})
        cache = CacheASGI(origin, client, settings=CacheSettings(version=cache_control))
        await send_request(cache, fields=credentials)
        assert ((await send_request(cache)).body == b"body 1") is is_shared, cache_control


async def test_a_cookie_is_never_stored_unless_the_response_is_public(client: AsyncClient) -> None:
    last_modified = {"last-modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    for headers, request_fields, is_stored in (
        (last_modified, {}, True),
        ({**last_modified, "set-cookie": "id=7"}, {}, False),
        (last_modified, {"cookie": "id=7"}, False),
        ({"set-cookie": "id=7", "cache-control": "max-age=60"}, {}, False),
        ({"cache-control": "max-age=60"}, {"cookie": "id=7"}, False),
        ({"cache-control": "max-age=60, public"}, {"cookie": "id=7"}, True),
        ({"cache-control": "s-maxage=60"}, {"cookie": "id=7"}, True),
    ):
        origin = Origin(lambda _, headers=headers: headers)
        cache = CacheASGI(
            origin, client, settings=CacheSettings(version=str((headers, request_fields)))
        )
        await send_request(cache, fields=request_fields)
        await send_request(cache, fields=request_fields)
        assert (len(origin.calls) == 1) is is_stored, headers


async def test_a_stale_response_is_validated_and_keeps_its_body(client: AsyncClient) -> None:
    def respond(call: Any) -> Any:
        if call["fields"].get("if-none-match") == '"v1"':
            return 304, {"etag": '"v1"', "cache-control": "max-age=0", "x-new": "1"}, b""
        return {"etag": '"v1"', "cache-control": "max-age=0"}

    origin = Origin(respond)
    cache = CacheASGI(origin, client)
    await send_request(cache)
    validated_reply = await send_request(cache)
    assert (validated_reply.status, validated_reply.body, validated_reply["x-new"]) == (
        200,
        b"body 1",
        "1",
    )
    assert "fwd=stale; fwd-status=304" in validated_reply.cache_status
    assert (await send_request(cache, fields={"if-none-match": '"v1"'})).status == 304


async def test_ranges_heads_and_conditions_are_served_from_the_store(client: AsyncClient) -> None:
    headers = {
        "cache-control": "max-age=60",
        "etag": '"v"',
        "last-modified": "Mon, 01 Jan 2024 00:00:00 GMT",
    }
    origin = Origin(lambda _: (200, headers, b"0123456789"))
    cache = CacheASGI(origin, client)
    await send_request(cache)
    for range_header, status, body in (
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=20-", 416, b""),
        ("bytes=1-2,4-5", 200, b"0123456789"),
        ("bytes=5-2", 200, b"0123456789"),
    ):
        reply = await send_request(cache, fields={"range": range_header})
        assert (reply.status, reply.body) == (status, body), range_header
    assert (
        await send_request(cache, fields={"range": "bytes=2-4", "if-range": '"old"'})
    ).status == 200
    head = await send_request(cache, method="HEAD")
    assert (head.status, head.body, head["content-length"]) == (200, b"", "10")
    for field, value in (
        ("if-none-match", 'W/"v"'),
        ("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ):
        assert (await send_request(cache, fields={field: value})).status == 304
    assert len(origin.calls) == 1


async def test_unsafe_requests_remove_their_url_and_what_their_response_names(
    client: AsyncClient,
) -> None:
    def respond(call: Any) -> Any:
        if call["method"] == "POST":
            return 201, {"location": "/made", "content-location": "http://evil.example/other"}
        return {"cache-control": "max-age=60"}

    origin = Origin(respond)
    cache = CacheASGI(origin, client)
    for url in ("/list", "/made", "/other"):
        await send_request(cache, url)
    other_host = {"host": "evil.example"}
    await send_request(cache, "/other", fields=other_host)
    await send_request(cache, "/list", method="POST")
    calls_before = len(origin.calls)
    await send_request(cache, "/list")
    await send_request(cache, "/made")
    assert len(origin.calls) == calls_before + 2
    await send_request(cache, "/other")
    await send_request(cache, "/other", fields=other_host)
    assert len(origin.calls) == calls_before + 2


async def test_an_unsafe_request_of_one_user_removes_the_variants_of_others(
    client: AsyncClient,
) -> None:
    rules = Rules.from_text('[[rule]]\nthen = { vary_on = ["cookie:currency"] }')
    origin = Origin()
    cache = CacheASGI(origin, client, rules)
    for currency in ("eur", "usd"):
        await send_request(cache, "/p", fields={"cookie": f"currency={currency}"})
    await send_request(cache, "/p", method="POST", fields={"cookie": "currency=eur"})
    assert len(origin.calls) == 3
    for currency in ("eur", "usd"):
        reply = await send_request(cache, "/p", fields={"cookie": f"currency={currency}"})
        assert "hit" not in reply.cache_status
    assert len(origin.calls) == 5


async def test_a_write_during_a_fetch_keeps_the_old_response_out(client: AsyncClient) -> None:
    origin = Origin()
    cache = CacheASGI(origin, client)
    origin.delay_s = 0.2
    fetch_task = asyncio.create_task(send_request(cache, "/a"))
    await asyncio.sleep(0.1)
    origin.delay_s = 0
    await send_request(cache, "/a", method="DELETE")
    await fetch_task
    assert (await send_request(cache, "/a")).body == b"body 3"
    assert cache.counters["not_stored"] == 1


async def test_variants_are_kept_apart(client: AsyncClient) -> None:
    origin = Origin(lambda _: {"cache-control": "max-age=60", "vary": "accept-language"})
    cache = CacheASGI(origin, client)
    german, english = {"accept-language": "de"}, {"accept-language": "en"}
    assert (await send_request(cache, fields=german)).body == b"body 1"
    assert (await send_request(cache, fields=english)).body == b"body 2"
    assert (await send_request(cache, fields=german)).body == b"body 1"
    assert (await send_request(cache, fields={"accept-language": " EN "})).body == b"body 2"
    assert (await send_request(cache)).body == b"body 3"


async def test_large_bodies_are_stored_in_chunks_and_a_lost_chunk_is_a_miss(
    client: AsyncClient,
) -> None:
    body_parts = [bytes([number]) * (CHUNK_BYTES // 2 + 7) for number in range(9)]
    origin = Origin(lambda _: (200, {"cache-control": "max-age=60"}, body_parts))
    cache = CacheASGI(origin, client)
    whole_body = b"".join(body_parts)
    assert (await send_request(cache)).body == whole_body
    assert (await send_request(cache)).body == whole_body
    reply = await send_request(
        cache, fields={"range": f"bytes={CHUNK_BYTES - 5}-{2 * CHUNK_BYTES + 5}"}
    )
    assert reply.body == whole_body[CHUNK_BYTES - 5 : 2 * CHUNK_BYTES + 6]
    assert len(origin.calls) == 1
    await client.delete((await _chunk_keys(client, cache.shared))[2])
    assert (await send_request(cache)).body == whole_body
    assert len(origin.calls) == 2


async def test_a_chunk_that_is_lost_while_the_body_is_sent_breaks_one_reply_only(
    client: AsyncClient,
) -> None:
    body = bytes(CHUNKS_PER_READ * CHUNK_BYTES + 7)
    origin = Origin(lambda _: (200, {"cache-control": "max-age=60"}, [body]))
    cache = CacheASGI(origin, client)
    assert (await send_request(cache)).body == body
    await client.delete((await _chunk_keys(client, cache.shared))[CHUNKS_PER_READ])
    with pytest.raises(RuntimeError, match=r"a chunk .* was evicted"):
        await send_request(cache)
    assert (await send_request(cache)).body == body
    assert len(origin.calls) == 2
    assert cache.shared.counters["lost_chunks"] == 1


async def _chunk_keys(client: AsyncClient, shared: Any) -> list[str]:
    """Return the keys of the pieces of the root page's body."""
    key = key_of_url(shared, "http://shop.example/")
    return chunk_keys_of(shared, key, await client.get(key))


async def test_a_body_that_is_truncated_is_not_stored(client: AsyncClient) -> None:
    class TruncatingOrigin(Origin):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            self.calls.append(scope)
            fields = [(b"cache-control", b"max-age=60")]
            await send({"type": "http.response.start", "status": 200, "headers": fields})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            if len(self.calls) == 1:
                raise OSError("cut")

    origin = TruncatingOrigin()
    cache = CacheASGI(origin, client)
    with pytest.raises(OSError, match="cut"):
        await send_request(cache)
    await cache.settle()
    started_at = time.monotonic()
    await send_request(cache)
    assert len(origin.calls) == 2
    assert time.monotonic() - started_at < 5  # the lease was given back


async def test_parts_are_sent_as_they_come(client: AsyncClient) -> None:
    received_parts: list[bytes] = []

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        fields = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for number in range(3):
            await send(
                {
                    "type": "http.response.body",
                    "body": b"data: %d\n\n" % number,
                    "more_body": True,
                }
            )
            received_parts.append(sent[-1])
        await send({"type": "http.response.body", "body": b""})

    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    cache = CacheASGI(stream, client)
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    await cache(scope, None, send)  # type: ignore[arg-type]
    assert received_parts == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


async def test_websockets_and_lifespans_pass_through(client: AsyncClient) -> None:
    scope_types = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope_types.append(scope["type"])

    cache = CacheASGI(app, client)
    for scope_type in ("websocket", "lifespan"):
        await cache({"type": scope_type}, None, None)  # type: ignore[arg-type]
    assert scope_types == ["websocket", "lifespan"]


async def test_fields_that_pass_for_the_url_do_not_poison_others(client: AsyncClient) -> None:
    def respond(call: Any) -> Any:
        host = call["fields"].get("x-forwarded-host", "-")
        return 200, {"cache-control": "max-age=60"}, host.encode()

    origin = Origin(respond)
    cache = CacheASGI(origin, client)
    assert (
        await send_request(cache, fields={"x-forwarded-host": "evil.example"})
    ).body == b"evil.example"
    assert (await send_request(cache)).body == b"-"
    framing_fields = ({"content-length": "3"}, {"transfer-encoding": "chunked"})
    for fields in framing_fields:  # a GET with a body
        assert "ambiguous-request" in (await send_request(cache, fields=fields)).cache_status
    assert "ambiguous-request" in (await send_request(cache, "/?" + "q" * 9000)).cache_status
    # Short as it was sent, long as it is in the key.
    assert "ambiguous-request" in (await send_request(cache, "/" + "ä" * 2000)).cache_status


async def test_an_unreadable_entry_is_a_miss_and_replaced(client: AsyncClient) -> None:
    origin = Origin()
    cache = CacheASGI(origin, client)
    await send_request(cache)
    stored_key = key_of_url(cache.shared, "http://shop.example/")
    record = await client.get(stored_key)
    for damaged_record in (
        record[:-1],
        record[:40] + b"X" + record[41:],
        b"",
        "text",
        b"GCW2" + bytes(80),
    ):
        await client.set(stored_key, damaged_record)
        calls_before = len(origin.calls)
        assert (await send_request(cache)).body == f"body {calls_before + 1}".encode()
        assert (await send_request(cache)).body == f"body {calls_before + 1}".encode()
