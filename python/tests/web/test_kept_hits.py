"""Hits by a decision that an earlier one has kept: they are what a decision from the beginning makes."""

from __future__ import annotations

import os
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import GlasscacheError
from glasscache.web import CacheASGI, CacheSettings, CacheWSGI, Rules
from glasscache.web._entry import Entry
from glasscache.web._kept_hits import KEPT_BYTES_MAX, KeptHit, KeptHits
from glasscache.web._lookup import Lookup
from glasscache.web._message import KEYED_FIELDS, NO_SETTINGS, decision_key_of
from glasscache.web._urls import request_of_url
from glasscache.web.purge import AsyncPurger, Purger

from web.harness import Clock, FailingClient, Origin, Reply, send_request
from web.random_requests import asgi_scope, random_head, random_rules, wsgi_environ

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import AsyncClient, Client

NOW = 1_800_000_000.0
REQUEST_COUNT = int(os.environ.get("GLASSCACHE_TEST_REQUESTS", "1500"))
RULES_REQUESTS = 100
"""Requests after which there are other rules."""
RESPONSES: list[list[tuple[str, str]]] = [
    [("Cache-Control", "public, max-age=60")],
    [("Cache-Control", "public, max-age=60"), ("Vary", "X-Plan")],
    [("Cache-Control", "max-age=60")],
    [("Cache-Control", "max-age=60, must-revalidate"), ("ETag", '"v"')],
    [("Cache-Control", "s-maxage=5, stale-while-revalidate=20"), ("Cache-Tag", "shop")],
    [("Cache-Control", "max-age=60"), ("Set-Cookie", "lang=de")],
    [("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")],
    [("Cache-Control", "no-store")],
]


class Twins:
    """The same cache twice, each with responses of its own in the store: one of them keeps no decisions."""

    def __init__(self, make_cache: Callable[[CacheSettings], Any]) -> None:
        self.clock = Clock(NOW)
        self.caches = [
            make_cache(CacheSettings(namespace=name, early=False)) for name in ("kept", "anew")
        ]
        for cache in self.caches:
            cache.shared.clock = self.clock
        self.caches[1].shared._keeps_hits = False

    @property
    def kept_count(self) -> int:
        return len(kept_by(self.caches[0]))


def kept_by(cache: Any) -> dict[bytes, KeptHit]:
    """Return the decisions that a cache has kept."""
    kept_hits: KeptHits = cache.shared._kept_hits
    return kept_hits._hits.entries


def respond_by(choices: random.Random, environ_or_scope: dict[str, Any]) -> Any:
    """Return fields and a body that say what the application has read."""
    if "headers" in environ_or_scope:
        fields = sorted(environ_or_scope["headers"])
        url = (environ_or_scope["path"], environ_or_scope["query_string"])
    else:
        url = (environ_or_scope["PATH_INFO"], environ_or_scope["QUERY_STRING"])
        fields = sorted(item for item in environ_or_scope.items() if item[0].startswith("HTTP_"))
    return choices.choice(RESPONSES), repr((url, fields, choices.random())).encode()


def asgi_cache(
    client: AsyncClient, rules: Rules | None, seed: int, settings: CacheSettings
) -> CacheASGI:
    choices = random.Random(seed)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        fields, body = respond_by(choices, scope)
        encoded = [(name.lower().encode(), value.encode()) for name, value in fields]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    return CacheASGI(app, client, rules, settings)


def wsgi_cache(
    client: Client, rules: Rules | None, seed: int, settings: CacheSettings
) -> CacheWSGI:
    choices = random.Random(seed)

    def app(environ: Any, start_response: Any) -> list[bytes]:
        fields, body = respond_by(choices, environ)
        start_response("200 OK", fields)
        return [body]

    return CacheWSGI(app, client, rules, settings)


def random_pool(rng: random.Random) -> list[tuple[bytes, bytes, list[tuple[bytes, bytes]]]]:
    """Return heads of which many are sent often, and many differ in a value only."""
    pool = [random_head(rng) for _ in range(3)]
    for path in (b"/", b"/shop/lamps"):
        host = (b"host", b"shop.example")
        pool += [(path, b"", [host]), (path, b"q=1", [host, (b"x-other", b"a")])]
        for name, values in {
            b"cookie": [b"lang=de", b"lang=en", b"", b"sessionid=1"], b"x-plan": [b"gold", b"silver"],
            b"authorization": [b"Basic YTpi"], b"user-agent": [b"Mozilla", b"Mobile"],
            b"x-user": [b"ann", b"bob"], b"range": [b"bytes=0-1"], b"if-none-match": [b'"v"', b"*"],
            b"cache-control": [b"no-cache"], b"if-match": [b"*"],
        }.items():  # fmt: skip
            pool += [(path, b"", [host, (name, value)]) for value in values]
    return rng.sample(pool, 10)


async def test_a_hit_of_a_kept_decision_is_one_of_a_new_decision_over_asgi(
    client: AsyncClient,
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201 - shown if the test fails
    rng, kept_count = random.Random(seed), 0
    for round_number in range(max(1, REQUEST_COUNT // RULES_REQUESTS)):
        rules = random_rules(rng) if rng.random() < 0.7 else None

        await client.flush()
        twins, pool = Twins(partial(asgi_cache, client, rules, seed)), random_pool(rng)
        for _ in range(RULES_REQUESTS):
            twins.clock.now += rng.choice([0, 0, 0, 1, 30])
            scope = asgi_scope(rng, *rng.choice(pool))
            scope |= rng.choice(
                [{}, {}, {"session": {"user": 1}}, {"root_path": "", "user": "ann"}]
            )
            if rng.random() < 0.1:
                urls, is_soft = (
                    ["http://shop.example/", "http://shop.example/shop/lamps"],
                    rng.random() < 0.5,
                )
                for cache in twins.caches:
                    purger = AsyncPurger(client, rules, cache.shared.cache_settings)
                    await purger.url(urls[round_number % 2], soft=is_soft)
                    await purger.tag("shop", soft=is_soft)
            replies = [await send_scope(cache, scope) for cache in twins.caches]
            assert seen_of(replies[0]) == seen_of(replies[1]), scope
            counts = [cache.counters["hits"] for cache in twins.caches]
            assert counts[0] == counts[1], scope
        kept_count += twins.kept_count
    assert kept_count > REQUEST_COUNT // 200


def test_a_hit_of_a_kept_decision_is_one_of_a_new_decision_over_wsgi(
    glasscache_client: Client,
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201 - likewise
    rng, kept_count = random.Random(seed), 0
    for _ in range(max(1, REQUEST_COUNT // RULES_REQUESTS)):
        rules = random_rules(rng) if rng.random() < 0.7 else None

        glasscache_client.flush()
        make_cache = partial(wsgi_cache, glasscache_client, rules, seed)
        twins, pool = Twins(make_cache), random_pool(rng)
        for _ in range(RULES_REQUESTS):
            twins.clock.now += rng.choice([0, 0, 0, 1, 30])
            environ = wsgi_environ(rng, *rng.choice(pool))
            environ |= rng.choice([{}, {}, {"REMOTE_USER": "ann"}, {"REMOTE_USER": ""}])
            if rng.random() < 0.1:
                for cache in twins.caches:
                    purger = Purger(glasscache_client, rules, cache.shared.cache_settings)
                    purger.url("http://shop.example/shop/lamps")
            replies = [send_environ(cache, environ) for cache in twins.caches]
            assert seen_of(replies[0]) == seen_of(replies[1]), environ
            counts = [cache.counters["hits"] for cache in twins.caches]
            assert counts[0] == counts[1], environ
        kept_count += twins.kept_count
    assert kept_count > REQUEST_COUNT // 200


async def send_scope(cache: CacheASGI, scope: dict[str, Any]) -> Reply:
    reply = Reply()

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.fields = message["status"], list(message["headers"])
        else:
            reply.parts.append(message.get("body", b""))

    await cache({**scope, "headers": list(scope["headers"])}, receive, send)
    await cache.settle()
    return reply


def send_environ(cache: CacheWSGI, environ: dict[str, Any]) -> Reply:
    reply = Reply()

    def start_response(status: str, fields: list[tuple[str, str]], exc_info: Any = None) -> None:
        reply.status = int(status[:3])
        reply.fields = [(name.lower().encode(), value.encode()) for name, value in fields]

    body: Any = cache(dict(environ), start_response)
    reply.parts = list(body)
    if hasattr(body, "close"):
        body.close()
    cache.settle()
    return reply


def seen_of(reply: Reply) -> tuple[Any, ...]:
    return reply.status, sorted(reply.fields), reply.body


# ---- what a decision is made from ---------------------------------------------------------------------

HOST = (b"host", b"shop.example")


def key_of_fields(
    *fields: tuple[bytes, bytes], path: str = "/", query: bytes = b""
) -> bytes | None:
    return decision_key_of("http", path, path.encode(), query, list(fields))


def test_values_of_ordinary_fields_are_not_in_the_key_of_a_decision() -> None:
    plain = key_of_fields(HOST, (b"user-agent", b"a"), (b"cookie", b"a=1"))
    assert plain is not None
    assert plain == key_of_fields(HOST, (b"user-agent", b"b"), (b"cookie", b"b=2"))
    others = [
        key_of_fields(HOST),
        key_of_fields((b"host", b"www.shop.example"), (b"user-agent", b"a"), (b"cookie", b"a=1")),
        key_of_fields(HOST, (b"user-agent", b"a"), (b"cookie", b"a=1"), path="/a"),
        key_of_fields(HOST, (b"user-agent", b"a"), (b"cookie", b"a=1"), query=b"a"),
        decision_key_of("https", "/", b"/", b"", [HOST, (b"user-agent", b"a"), (b"cookie", b"a=1")]),
    ]  # fmt: skip
    assert len({plain, *others}) == 6
    assert None not in others


@pytest.mark.parametrize(
    "name",
    [
        *sorted(KEYED_FIELDS), b"range", b"if-range", b"if-none-match", b"if-modified-since", b"if-match",
        b"if-unmodified-since", b"upgrade", b"cache-control", b"pragma", b"content-length",
        b"transfer-encoding", b"x-http-method-override", b"user_agent", b"host",
    ],
)  # fmt: skip
def test_a_request_with_a_field_whose_value_counts_has_no_key(name: bytes) -> None:
    assert key_of_fields(HOST, (name, b"1")) is None


def test_a_head_that_needs_a_closer_look_has_no_key() -> None:
    assert key_of_fields() is None
    assert key_of_fields((b"host", b"")) is None
    assert key_of_fields(HOST, path="/a//b") is None
    assert key_of_fields(HOST, path="/a%2fb") is None
    assert key_of_fields(HOST, query=b"\n") is None
    assert key_of_fields(HOST, (b"x", b"a\nb")) is None
    assert key_of_fields(HOST, (b"x", b"a" * 8192)) is None
    assert key_of_fields(HOST, *((b"x%d" % number, b"") for number in range(40))) is None
    assert key_of_fields(HOST, ["x", b"a"]) is None  # type: ignore[arg-type]
    assert decision_key_of("http", "/b", b"/a", b"", [HOST]) is None
    assert decision_key_of("ws", "/a", b"/a", b"", [HOST]) is None
    assert decision_key_of("http", "/\ud800", b"/a", b"", [HOST]) is None


# ---- when it no longer holds --------------------------------------------------------------------------


async def test_a_kept_decision_ends_when_the_response_is_stale(client: AsyncClient) -> None:
    origin = Origin(lambda _: {"cache-control": "max-age=60"})
    cache, clock = CacheASGI(origin, client, settings=CacheSettings(early=False)), Clock(NOW)
    cache.shared.clock = clock
    for _ in range(3):
        await send_request(cache)
    assert len(kept_by(cache)) == 1
    clock.now += 59
    reply = await send_request(cache)
    assert (reply["age"], reply.cache_status) == ("59", "glasscache; hit; ttl=1")
    clock.now += 1
    assert "fwd=stale" in (await send_request(cache)).cache_status
    assert (await send_request(cache)).cache_status == "glasscache; hit; ttl=60"
    assert (cache.counters["hits"], len(origin.calls)) == (4, 2)


async def test_a_decision_is_kept_until_the_response_may_be_refreshed_early(
    client: AsyncClient,
) -> None:
    origin, clock = Origin(), Clock(NOW)
    cache = CacheASGI(origin, client, settings=CacheSettings(early=1.0))
    cache.shared.clock = clock
    await send_request(cache)
    await send_request(cache)
    (kept_hit,) = kept_by(cache).values()
    values = await client.get_many(kept_hit.keys)
    # Twenty costs before the end of the 60 s.
    assert kept_hit.fields_at(values, NOW + 39.9) is not None
    assert kept_hit.fields_at(values, NOW + 40) is None
    for _ in range(100):
        clock.now = NOW + 59.9
        await send_request(cache)
        await cache.settle()
    assert len(origin.calls) > 1


async def test_a_kept_decision_does_not_know_what_a_refresh_stores(client: AsyncClient) -> None:
    lookup = Lookup(
        CacheASGI(Origin(), client).shared, request_of_url("http://a.example/"), NO_SETTINGS
    )
    lookup.add_values(["a"], {"a": b"1"})
    entry: Any = Entry(b"", NOW, 60, 0, 0, 200, 0, 0, 0, 0, 0, [])
    kept_hit = lookup.kept_hit(entry)
    lookup.remember_stored(b"2")
    assert kept_hit.fields_at({"a": b"1"}, NOW) is not None
    assert kept_hit.fields_at(lookup._values, NOW) is None


async def test_a_response_that_varies_is_kept_for_each_value(client: AsyncClient) -> None:
    def respond(call: dict[str, Any]) -> Any:
        fields = {"cache-control": "public, max-age=60", "vary": "x-plan, accept-language"}
        return 200, fields, repr(call["fields"].get("x-plan")).encode()

    cache = CacheASGI(Origin(respond), client)
    for plan in ["gold", "silver", "", None] * 4:
        reply = await send_request(cache, fields={} if plan is None else {"x-plan": plan})
        assert reply.body == repr(plan).encode()
    assert cache.counters["hits"] == 12
    assert len(kept_by(cache)) == 4


@pytest.mark.parametrize(
    "condition", ["header = { x-plan = 'gold' }", "cookie = { plan = 'gold' }"]
)
async def test_a_decision_of_rules_that_read_fields_is_not_kept(
    client: AsyncClient, condition: str
) -> None:
    rules = Rules.from_text(
        f'[[rule]]\nname = "a"\nwhen = {{ {condition} }}\nthen = {{ bypass = true }}\n'
        '[[rule]]\nname = "b"\nthen = { ttl = 60 }'
    )
    cache = CacheASGI(Origin(lambda _: {"cache-control": "public"}), client, rules)
    for plan in ["silver", "silver", "silver", "gold"]:
        reply = await send_request(cache, fields={"x-plan": plan, "cookie": f"plan={plan}"})
    assert "detail=rule" in reply.cache_status
    assert not kept_by(cache)


async def test_rules_of_another_class_are_applied_to_each_request(client: AsyncClient) -> None:
    class OwnRules(Rules):
        def decide(self, request: Any) -> Any:
            settings = super().decide(request)
            settings.bypass = request.headers.get(b"x-debug") == b"1"
            return settings

    rules = OwnRules.from_text('[[rule]]\nname = "all"\nthen = { ttl = 60 }')
    cache = CacheASGI(Origin(), client, rules)
    for _ in range(3):
        reply = await send_request(cache, fields={"x-debug": "0"})
    assert "hit" in reply.cache_status
    assert "bypass" in (await send_request(cache, fields={"x-debug": "1"})).cache_status


async def test_a_store_that_fails_makes_a_request_with_a_kept_decision_an_ordinary_one(
    client: AsyncClient,
) -> None:
    failure: list[GlasscacheError] = []
    origin = Origin()
    failing_client: Any = FailingClient(client, lambda _: failure[0] if failure else None)
    cache = CacheASGI(origin, failing_client)
    for _ in range(3):
        await send_request(cache)
    assert kept_by(cache)
    failure.append(GlasscacheError("no server"))
    reply = await send_request(cache)
    assert (reply.status, len(origin.calls)) == (200, 2)
    assert "store-failed" in reply.cache_status


def test_kept_decisions_are_bounded_in_bytes() -> None:
    kept_hits, entry = KeptHits(), None
    for number in range(4000):
        values = {"a": b"purges", "b": bytes(10_000 if number % 2 else 10)}
        names = (b"x" * 100,) if number % 4 else ()
        kept_hit = KeptHit(["a", "b"], values, entry, NOW)  # type: ignore[arg-type]
        kept_hits.keep(b"%d" % number, names, [(name, bytes(1000)) for name in names], kept_hit)
    kept_bytes = sum(hit.kept_bytes for hit in kept_hits._hits.entries.values())
    assert KEPT_BYTES_MAX // 2 < kept_bytes <= KEPT_BYTES_MAX
    assert len(kept_hits._vary_names.entries) < 4000
