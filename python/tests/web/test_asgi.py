"""The HTTP cache as ASGI middleware, over a real server."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, GlasscacheError
from glasscache.web import CacheASGI, CacheSettings, Rules
from glasscache.web._core import PIECE_BYTES
from glasscache.web._entry import Entry, decode
from glasscache.web._urls import key_of_url
from glasscache.web.purge import AsyncPurger

from web.harness import Clock, Origin, Reply, send_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from glasscache import Client, Server


@pytest.fixture
def play(glasscache_client: Client, glasscache_server: Server) -> Any:
    """Return a function that runs a coroutine function with a client."""

    def run(story: Callable[[AsyncClient], Awaitable[None]]) -> None:
        async def main() -> None:
            async with AsyncClient(glasscache_server.address, timeout=5) as client:
                await story(client)

        asyncio.run(main())

    return run


def test_a_fresh_response_is_sent_from_the_store(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        origin = Origin()
        cache = CacheASGI(origin, client)
        first, second = await send_request(cache, "/a"), await send_request(cache, "/a")
        assert (first.body, second.body) == (b"body 1", b"body 1")
        assert "fwd=uri-miss" in first.cache
        assert second.cache.startswith("glasscache; hit; ttl=")
        assert second["age"] == "0"
        assert (await send_request(cache, "/b")).body == b"body 2"
        assert (await send_request(cache, "/a", fields={"host": "other.example"})).body == b"body 3"
        assert cache.counters["hits"] == 1

    play(story)


@pytest.mark.parametrize(
    "headers",
    [
        {"cache-control": "no-store"},
        {"cache-control": "private, max-age=60"},
        {"cache-control": "max-age=60", "vary": "*"},
        {},
        {"cache-control": "max-age=60", "vary": ", ".join(f"x-{n}" for n in range(40))},
        {"cache-control": "max-age=60", "content-length": "99"},
    ],
)
def test_what_may_not_be_stored_is_fetched_each_time(play: Any, headers: dict[str, str]) -> None:
    async def story(client: AsyncClient) -> None:
        origin = Origin(lambda _: headers)
        cache = CacheASGI(origin, client)
        assert (await send_request(cache)).body != (await send_request(cache)).body
        assert len(origin.calls) == 2

    play(story)


def test_a_response_to_credentials_is_stored_only_if_it_is_public(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        user = {"authorization": "Bearer a"}
        for control, is_shared in (
            ("max-age=60", False),
            ("max-age=60, public", True),
            ("s-maxage=9", True),
        ):
            origin = Origin(lambda _, control=control: {"cache-control": control})
            cache = CacheASGI(origin, client, settings=CacheSettings(version=control))
            await send_request(cache, fields=user)
            assert ((await send_request(cache)).body == b"body 1") is is_shared, control

    play(story)


def test_a_cookie_is_never_stored_by_heuristics(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        changed = {"last-modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        for headers, request, is_stored in (
            (changed, {}, True),
            ({**changed, "set-cookie": "id=7"}, {}, False),
            (changed, {"cookie": "id=7"}, False),
            ({"set-cookie": "id=7", "cache-control": "max-age=60"}, {}, True),
        ):
            origin = Origin(lambda _, headers=headers: headers)
            cache = CacheASGI(
                origin, client, settings=CacheSettings(version=str((headers, request)))
            )
            await send_request(cache, fields=request)
            await send_request(cache, fields=request)
            assert (len(origin.calls) == 1) is is_stored, headers

    play(story)


def test_a_stale_response_is_validated_and_keeps_its_body(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        def response(call: Any) -> Any:
            if call["fields"].get("if-none-match") == '"v1"':
                return 304, {"etag": '"v1"', "cache-control": "max-age=0", "x-new": "1"}, b""
            return {"etag": '"v1"', "cache-control": "max-age=0"}

        origin = Origin(response)
        cache = CacheASGI(origin, client)
        await send_request(cache)
        again = await send_request(cache)
        assert (again.status, again.body, again["x-new"]) == (200, b"body 1", "1")
        assert "fwd=stale; fwd-status=304" in again.cache
        assert (await send_request(cache, fields={"if-none-match": '"v1"'})).status == 304

    play(story)


def test_ranges_heads_and_conditions_are_served_from_the_store(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        headers = {
            "cache-control": "max-age=60",
            "etag": '"v"',
            "last-modified": "Mon, 01 Jan 2024 00:00:00 GMT",
        }
        origin = Origin(lambda _: (200, headers, b"0123456789"))
        cache = CacheASGI(origin, client)
        await send_request(cache)
        for requested, status, body in (
            ("bytes=2-4", 206, b"234"),
            ("bytes=7-", 206, b"789"),
            ("bytes=-3", 206, b"789"),
            ("bytes=20-", 416, b""),
            ("bytes=1-2,4-5", 200, b"0123456789"),
            ("bytes=5-2", 200, b"0123456789"),
        ):
            reply = await send_request(cache, fields={"range": requested})
            assert (reply.status, reply.body) == (status, body), requested
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

    play(story)


def test_unsafe_requests_remove_their_url_and_what_their_response_names(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        def response(call: Any) -> Any:
            if call["method"] == "POST":
                return 201, {"location": "/made", "content-location": "http://evil.example/other"}
            return {"cache-control": "max-age=60"}

        origin = Origin(response)
        cache = CacheASGI(origin, client)
        for url in ("/list", "/made", "/other"):
            await send_request(cache, url)
        other = {"host": "evil.example"}
        await send_request(cache, "/other", fields=other)
        await send_request(cache, "/list", method="POST")
        before = len(origin.calls)
        await send_request(cache, "/list")
        await send_request(cache, "/made")
        assert len(origin.calls) == before + 2
        await send_request(cache, "/other")
        await send_request(cache, "/other", fields=other)
        assert len(origin.calls) == before + 2

    play(story)


def test_a_write_during_a_fetch_keeps_the_old_response_out(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        origin = Origin()
        cache = CacheASGI(origin, client)
        origin.delay = 0.2
        fetch = asyncio.create_task(send_request(cache, "/a"))
        await asyncio.sleep(0.1)
        origin.delay = 0
        await send_request(cache, "/a", method="DELETE")
        await fetch
        assert (await send_request(cache, "/a")).body == b"body 3"
        assert cache.counters["not_stored"] == 1

    play(story)


def test_variants_are_kept_apart(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        origin = Origin(lambda _: {"cache-control": "max-age=60", "vary": "accept-language"})
        cache = CacheASGI(origin, client)
        german, english = {"accept-language": "de"}, {"accept-language": "en"}
        assert (await send_request(cache, fields=german)).body == b"body 1"
        assert (await send_request(cache, fields=english)).body == b"body 2"
        assert (await send_request(cache, fields=german)).body == b"body 1"
        assert (await send_request(cache, fields={"accept-language": " EN "})).body == b"body 2"
        assert (await send_request(cache)).body == b"body 3"

    play(story)


@pytest.mark.parametrize("count", [50])
def test_many_misses_of_one_url_fetch_once(play: Any, count: int) -> None:
    async def story(client: AsyncClient) -> None:
        origin = Origin()
        origin.delay = 0.1
        caches = [CacheASGI(origin, client) for _ in range(4)]  # as four processes would
        replies = await asyncio.gather(*(send_request(caches[n % 4], "/a") for n in range(count)))
        assert {reply.body for reply in replies} == {b"body 1"}
        assert len(origin.calls) == 1

    play(story)


def test_requests_for_what_cannot_be_stored_do_not_wait_for_each_other(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        running = most = 0

        class Slow(Origin):
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.05)
                await super().__call__(scope, receive, send)
                running -= 1

        cache = CacheASGI(Slow(lambda _: {"cache-control": "no-store"}), client)
        await send_request(cache, "/a")
        await asyncio.gather(*(send_request(cache, "/a") for _ in range(20)))
        assert most > 10

    play(story)


def test_a_stale_response_is_sent_while_one_request_refreshes_it(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        clock = Clock(time.time())
        origin = Origin(lambda _: {"cache-control": "max-age=10, stale-while-revalidate=60"})
        cache = CacheASGI(origin, client)
        cache.core.clock = clock
        await send_request(cache)
        clock.now += 20
        origin.delay = 0.05
        replies = [await send_request(cache) for _ in range(5)]
        assert {reply.body for reply in replies} == {b"body 1"}
        assert all("detail=stale" in reply.cache for reply in replies)
        await cache.settle()
        assert len(origin.calls) == 2
        assert (await send_request(cache)).body == b"body 2"

    play(story)


def test_a_failing_application_is_replaced_by_a_stale_response_that_allows_it(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        for control, stands_in in (
            ("max-age=10, stale-if-error=60", True),
            ("max-age=10, must-revalidate", False),
        ):
            clock, is_down = Clock(time.time()), False
            origin = Origin(lambda _, c=control: (503, {}) if is_down else {"cache-control": c})  # noqa: B023
            cache = CacheASGI(origin, client, settings=CacheSettings(version=control))
            cache.core.clock = clock
            await send_request(cache)
            clock.now, is_down = clock.now + 20, True
            reply = await send_request(cache)
            assert (reply.status == 200) is stands_in, control
            origin.respond = lambda _: OSError("no database")
            if stands_in:
                assert (await send_request(cache)).body == b"body 1"
            else:
                with pytest.raises(OSError, match="no database"):
                    await send_request(cache)

    play(story)


def test_large_bodies_are_stored_in_pieces_and_a_lost_piece_is_a_miss(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        body = [bytes([n]) * (PIECE_BYTES // 2 + 7) for n in range(9)]
        origin = Origin(lambda _: (200, {"cache-control": "max-age=60"}, body))
        cache = CacheASGI(origin, client)
        whole = b"".join(body)
        assert (await send_request(cache)).body == whole
        assert (await send_request(cache)).body == whole
        reply = await send_request(
            cache, fields={"range": f"bytes={PIECE_BYTES - 5}-{2 * PIECE_BYTES + 5}"}
        )
        assert reply.body == whole[PIECE_BYTES - 5 : 2 * PIECE_BYTES + 6]
        assert len(origin.calls) == 1
        await client.delete((await _pieces(client, cache.core))[2])
        assert (await send_request(cache)).body == whole
        assert len(origin.calls) == 2

    play(story)


async def _pieces(client: AsyncClient, core: Any) -> list[str]:
    """Return the keys of the pieces of the root page's body."""
    key = key_of_url(core, "http://shop.example/")
    entry = decode(await client.get(key), bytes.fromhex(key.partition(":")[2]))
    assert isinstance(entry, Entry)
    return [core.piece_key(entry.write_id, n) for n in range(4)]


def test_a_body_that_is_cut_short_is_not_stored(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        class Cut(Origin):
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                self.calls.append(scope)
                fields = [(b"cache-control", b"max-age=60")]
                await send({"type": "http.response.start", "status": 200, "headers": fields})
                await send({"type": "http.response.body", "body": b"half", "more_body": True})
                if len(self.calls) == 1:
                    raise OSError("cut")

        origin = Cut()
        cache = CacheASGI(origin, client)
        with pytest.raises(OSError, match="cut"):
            await send_request(cache)
        await cache.settle()
        begin = time.monotonic()
        await send_request(cache)
        assert len(origin.calls) == 2
        assert time.monotonic() - begin < 5  # the lease was given back

    play(story)


def test_parts_are_sent_as_they_come(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        seen: list[bytes] = []
        reply = Reply()

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
                seen.append(sent[-1])
            await send({"type": "http.response.body", "body": b""})

        sent: list[bytes] = []

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        cache = CacheASGI(stream, client)
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        await cache(scope, None, send)  # type: ignore[arg-type]
        assert seen == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]
        assert reply.parts == []

    play(story)


def test_websockets_and_lifespans_pass_through(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        seen = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["type"])

        cache = CacheASGI(app, client)
        for kind in ("websocket", "lifespan"):
            await cache({"type": kind}, None, None)  # type: ignore[arg-type]
        assert seen == ["websocket", "lifespan"]

    play(story)


def test_fields_that_pass_for_the_url_do_not_poison_others(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        def response(call: Any) -> Any:
            host = call["fields"].get("x-forwarded-host", "-")
            return 200, {"cache-control": "max-age=60"}, host.encode()

        origin = Origin(response)
        cache = CacheASGI(origin, client)
        assert (
            await send_request(cache, fields={"x-forwarded-host": "evil.example"})
        ).body == b"evil.example"
        assert (await send_request(cache)).body == b"-"
        odd = ({"content-length": "3"}, {"transfer-encoding": "chunked"})
        for fields in odd:  # a GET with a body
            assert "odd-request" in (await send_request(cache, fields=fields)).cache
        assert "odd-request" in (await send_request(cache, "/?" + "q" * 9000)).cache

    play(story)


def test_an_unreadable_entry_is_a_miss_and_replaced(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        origin = Origin()
        cache = CacheASGI(origin, client)
        await send_request(cache)
        stored = key_of_url(cache.core, "http://shop.example/")
        data = await client.get(stored)
        for damaged in (data[:-1], data[:40] + b"X" + data[41:], b"", "text", b"GCW1" + bytes(80)):
            await client.set(stored, damaged)
            before = len(origin.calls)
            assert (await send_request(cache)).body == f"body {before + 1}".encode()
            assert (await send_request(cache)).body == f"body {before + 1}".encode()

    play(story)


class Failing:
    """A client that fails, or lies, now and then."""

    def __init__(self, client: Any, mood: Callable[[str], Any]) -> None:
        self._client, self._mood = client, mood

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            mood = self._mood(name)
            if isinstance(mood, Exception):
                raise mood
            if mood is not None:
                return mood
            return await getattr(self._client, name)(*arguments, **options)

        return call


@pytest.mark.parametrize("name", ["get_many", "get", "gets", "add", "cas", "set", "delete"])
def test_a_store_that_fails_never_fails_a_response(play: Any, name: str) -> None:
    async def story(client: AsyncClient) -> None:
        def mood(called: str) -> Any:
            return GlasscacheError("down") if called == name else None

        origin = Origin()
        cache = CacheASGI(origin, Failing(client, mood), settings=CacheSettings(wait=0.2))  # type: ignore[arg-type]
        for _ in range(3):
            assert (await send_request(cache)).status == 200
        assert (await send_request(cache, method="POST")).status == 200
        if name in {"get_many", "add", "cas"}:
            assert cache.counters["store_errors"]

    play(story)


def test_purges_by_url_prefix_and_tag(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        rules = Rules.from_text(
            '[[rule]]\nwhen = { path = "/p/**" }\nthen = { tag_field = "Tags" }'
        )
        origin = Origin(
            lambda call: {"cache-control": "max-age=60", "tags": f"all, {call['path'][-1]}"}
        )
        cache = CacheASGI(origin, client, rules)
        purger = AsyncPurger(client, rules)

        async def all_three() -> list[bool]:
            before = [await send_request(cache, f"/p/{name}") for name in "abc"]
            await cache.settle()
            return ["hit" in reply.cache and "stale" not in reply.cache for reply in before]

        await all_three()
        assert await all_three() == [True] * 3
        assert await purger.url("http://shop.example/p/a")
        assert await all_three() == [False, True, True]
        await purger.tag("b")
        assert await all_three() == [True, False, True]
        await purger.prefix("shop.example/p/c")
        assert await all_three() == [True, True, False]
        await purger.tag("all")
        assert await all_three() == [False] * 3
        assert await all_three() == [True] * 3
        assert await purger.url("http://shop.example/p/a", soft=True)
        await purger.tag("b", soft=True)
        await purger.prefix("http://shop.example/p/c", soft=True)
        assert await all_three() == [False] * 3
        assert await all_three() == [True] * 3

    play(story)


def test_a_soft_purge_serves_the_old_response_while_one_refreshes(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        rules = Rules.from_text('[[rule]]\nthen = { tags = ["t"], grace = 60 }')
        origin = Origin()
        cache = CacheASGI(origin, client, rules)
        await send_request(cache)
        await AsyncPurger(client, rules).tag("t", soft=True)
        stale = await send_request(cache)
        assert stale.body == b"body 1"
        assert "stale" in stale.cache
        await cache.settle()
        assert (await send_request(cache)).body == b"body 2"

    play(story)


def test_a_lost_record_of_purges_means_misses(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        rules = Rules.from_text('[[rule]]\nthen = { tags = ["t"] }')
        origin = Origin()
        cache = CacheASGI(origin, client, rules)
        for lost in (cache.core.site_key, cache.core.tag_key(b"t")):
            await send_request(cache)
            before = len(origin.calls)
            await send_request(cache)
            assert len(origin.calls) == before
            await client.delete(lost)
            await send_request(cache)
            assert len(origin.calls) == before + 1

    play(story)


def test_purge_requests_need_the_token(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        cache = CacheASGI(Origin(), client, settings=CacheSettings(purge_token="secret"))  # noqa: S106 - a test's own
        await send_request(cache, "/a")
        assert (await send_request(cache, "/a", method="PURGE")).status == 403
        allowed = {"authorization": "Bearer secret"}
        assert (
            b'"was_stored": true'
            in (await send_request(cache, "/a", method="PURGE", fields=allowed)).body
        )
        assert (await send_request(cache, "/a")).body == b"body 2"
        await send_request(
            cache, "/", method="PURGE", fields={**allowed, "purge-prefix": "shop.example/"}
        )
        assert (await send_request(cache, "/a")).body == b"body 3"

    play(story)


def test_a_dear_response_is_refreshed_before_its_end(play: Any) -> None:
    async def story(client: AsyncClient) -> None:
        clock = Clock(time.time())
        origin = Origin()
        cache = CacheASGI(origin, client)
        cache.core.clock = clock

        def slowly(_: Any) -> Any:
            clock.now += 5
            return {"cache-control": "max-age=60"}

        origin.respond = slowly
        await send_request(cache)
        clock.now += 54.9
        for _ in range(200):
            assert (await send_request(cache)).body in {b"body 1", b"body 2"}
            await cache.settle()
        assert len(origin.calls) >= 2

    play(story)
