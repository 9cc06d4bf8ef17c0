"""Requests and responses made to poison the cache, to end a field early, or to fill it.

What a gateway and an application may read differently goes past the cache; what an application takes for a
part of the URL is in the key; bytes that could end a field or a record early are not stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from glasscache.web import CacheASGI, CacheSettings, CacheWSGI
from glasscache.web._message import KEYED_FIELDS

from web.harness import Origin, Reply, send_request
from web.test_wsgi import Origin as WSGIOrigin
from web.test_wsgi import send_request as send_wsgi_request

if TYPE_CHECKING:
    from glasscache import AsyncClient, Client

FRESH = {"cache-control": "max-age=60"}


async def send_raw(app: Any, fields: list[tuple[bytes, bytes]], path: bytes = b"/") -> Reply:
    """Send a GET with exactly these fields, repeated ones included."""
    return await send_request(app, path.decode("latin-1"), headers=fields, raw_path=path)


HOST = (b"host", b"shop.example")


@pytest.mark.parametrize("field_name", sorted(KEYED_FIELDS))
async def test_a_field_that_applications_take_for_the_url_is_in_the_key(
    client: AsyncClient, field_name: bytes
) -> None:
    origin = Origin(
        lambda call: (200, FRESH, call["fields"].get(field_name.decode(), "-").encode())
    )
    cache = CacheASGI(origin, client)
    poisoned_reply = await send_raw(cache, [HOST, (field_name, b"evil.example")])
    assert poisoned_reply.body == b"evil.example"
    assert (await send_raw(cache, [HOST])).body == b"-"
    other_fields = [HOST, (field_name, b"other.example"), (field_name, b"evil.example")]
    assert (await send_raw(cache, other_fields)).body != b"evil.example, other.example"
    assert (await send_raw(cache, [HOST])).body == b"-"


@pytest.mark.parametrize(
    "fields",
    [
        [HOST, (b"host", b"evil.example")],
        [HOST, (b"content-length", b"0"), (b"content-length", b"5")],
        [HOST, (b"content-length", b"5")],
        [HOST, (b"content-length", b"+0")],
        [HOST, (b"transfer-encoding", b"chunked")],
        [HOST, (b"transfer-encoding", b"xchunked"), (b"content-length", b"0")],
        [HOST, (b"x_forwarded_host", b"evil.example")],
        [HOST, (b"x-forwarded_host", b"evil.example")],
        [HOST, (b"transfer_encoding", b"chunked")],
        [HOST, (b"accept_language", b"de")],
    ],
)
async def test_a_request_that_gateways_read_differently_bypasses_the_cache(
    client: AsyncClient, fields: list[tuple[bytes, bytes]]
) -> None:
    origin = Origin(lambda _: FRESH)
    cache = CacheASGI(origin, client)
    assert "ambiguous-request" in (await send_raw(cache, fields)).cache_status
    assert (await send_raw(cache, [HOST])).body == b"body 2"
    assert (await send_raw(cache, fields)).body == b"body 3"
    assert (await send_raw(cache, [HOST])).body == b"body 2"


@pytest.mark.parametrize(
    "path",
    [b"/a\0b", b"/" + b"p" * 9000, b"/?" + b"&".join(b"q%d=1" % number for number in range(2000))],
)
async def test_a_path_or_query_without_a_bound_is_not_stored(
    client: AsyncClient, path: bytes
) -> None:
    cache = CacheASGI(Origin(lambda _: FRESH), client)
    path_only, _, query = path.partition(b"?")
    replies = [
        await send_request(cache, headers=[HOST], path="/", raw_path=path_only, query_string=query)
        for _ in range(2)
    ]
    assert [reply.body for reply in replies] == [b"body 1", b"body 2"]
    assert not cache.counters["stored"]


@pytest.mark.parametrize(
    "fields",
    [
        {"x-reflected": "a\r\nset-cookie: session=evil"},
        {"x-reflected": "a\nset-cookie: session=evil"},
        {"x-reflected": "a\0set-cookie\0session=evil"},
        {"x-a\r\nset-cookie": "session=evil"},
        {"x-a\0set-cookie": "session=evil"},
    ],
)
async def test_a_response_whose_field_would_end_early_is_not_stored(
    client: AsyncClient, fields: dict[str, str]
) -> None:
    origin = Origin(lambda call: {**FRESH, **(fields if call["fields"].get("x-evil") else {})})
    cache = CacheASGI(origin, client)
    assert "malformed-field" in (await send_request(cache, fields={"x-evil": "1"})).cache_status
    reply = await send_request(cache)
    assert (reply.body, reply["set-cookie"]) == (b"body 2", None)


async def test_a_response_of_two_lengths_is_not_stored(client: AsyncClient) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        fields = [(b"content-length", b"4"), (b"content-length", b"40")]
        await send({
            "type": "http.response.start", "status": 200,
            "headers": [*fields, (b"cache-control", b"max-age=60")],
        })  # fmt: skip
        await send({"type": "http.response.body", "body": b"four"})

    cache = CacheASGI(app, client)
    assert "two-lengths" in (await send_request(cache)).cache_status
    assert not cache.counters["stored"]


@pytest.mark.parametrize(
    ("vary", "is_stored"),
    [
        ("*", False),
        (", ".join(f"x-{number}" for number in range(17)), False),
        ("x-a, *", False),
        ("x-a", True),
    ],
)
async def test_a_vary_without_a_bound_is_not_stored(
    client: AsyncClient, vary: str, is_stored: bool
) -> None:
    cache = CacheASGI(Origin(lambda _: {**FRESH, "vary": vary}), client)
    await send_request(cache)
    assert ("hit" in (await send_request(cache)).cache_status) is is_stored


@pytest.mark.parametrize("ending", ["error", "no last part", "short", "long", "cancelled"])
async def test_a_body_that_is_truncated_is_never_stored(client: AsyncClient, ending: str) -> None:
    call_count = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal call_count
        call_count += 1
        fields = [(b"cache-control", b"max-age=60"), (b"content-length", b"8")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        body = b"whole 12345" if ending == "long" and call_count == 1 else b"whole 12"
        is_cut = call_count == 1 and ending != "long"
        part = {"type": "http.response.body", "body": body[:4] if is_cut else body}
        await send({**part, "more_body": is_cut and ending != "short"})
        if call_count == 1 and ending == "error":
            raise OSError("cut")
        if call_count == 1 and ending == "cancelled":
            await asyncio.sleep(3600)

    cache = CacheASGI(app, client, settings=CacheSettings(wait=0.5))
    first_request = asyncio.create_task(send_request(cache))
    await asyncio.wait([first_request], timeout=0.2)
    first_request.cancel()
    await asyncio.gather(first_request, return_exceptions=True)
    await cache.settle()
    assert not cache.counters["stored"]
    assert (await send_request(cache)).body == b"whole 12"
    assert call_count == 2


@pytest.mark.parametrize("parts", [[b"whole"], [b"whole 12", b"345"]])
def test_a_wsgi_body_of_another_length_than_stated_is_never_stored(
    glasscache_client: Client, parts: list[bytes]
) -> None:
    headers = {"Cache-Control": "max-age=60", "Content-Length": "8"}
    origin = WSGIOrigin(lambda _: ("200 OK", headers, parts))
    cache = CacheWSGI(origin, glasscache_client)
    send_wsgi_request(cache)
    send_wsgi_request(cache)
    assert (origin.calls, cache.counters["stored"]) == (2, 0)


def test_a_wsgi_body_whose_iterator_raises_is_never_stored(glasscache_client: Client) -> None:
    def broken_body() -> Any:
        yield b"half"
        raise OSError("cut")

    origin = WSGIOrigin(lambda _: ("200 OK", {"Cache-Control": "max-age=60"}, broken_body()))
    cache = CacheWSGI(origin, glasscache_client)
    for _ in range(2):
        with pytest.raises(OSError, match="cut"):
            send_wsgi_request(cache)
    assert (origin.calls, cache.counters["stored"]) == (2, 0)
