"""Whether a response is everyone's: what is stored under a rule's `ttl`, and what never is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from glasscache import BadSetting, Client
from glasscache.web import AsyncPurger, CacheASGI, CacheSettings, CacheWSGI, Purger, Rules

from web.harness import Clock, Origin, send_request
from web.random_requests import GUIDE_TABLES
from web.test_wsgi import Origin as WSGIOrigin
from web.test_wsgi import send_request as send_wsgi_request

if TYPE_CHECKING:
    from glasscache import AsyncClient

TTL = "[[rule]]\nthen = { ttl = 60 }"
TRACKING = '[[rule]]\nthen = { ttl = 60, store_set_cookie = ["t_*"] }'
KEYED = '[[rule]]\nthen = { ttl = 60, vary_on = ["cookie:a"] }'
PASSING = "[[rule]]\nthen = { pass_cookies = ['s'] }\n"
TLS_CLIENT = {"extensions": {"tls": {"client_cert_name": "CN=a"}}}


@pytest.mark.parametrize(
    ("rules", "status", "headers", "fields", "detail"),
    [
        (TTL, 200, {}, {}, "hit"),
        (TTL, 404, {}, {}, "hit"),
        (TTL, 308, {"location": "/elsewhere"}, {}, "hit"),
        (TTL, 500, {}, {}, "detail=no-lifetime"),
        (TTL, 302, {"location": "/elsewhere"}, {}, "detail=no-lifetime"),
        (TTL, 500, {"cache-control": "max-age=60"}, {}, "hit"),
        ("[[rule]]\nthen = { ttl = { 500 = 5 } }", 500, {}, {}, "hit"),
        ("[[rule]]\nwhen = { status = '5xx' }\nthen = { ttl = 5 }", 503, {}, {}, "hit"),
        (TTL, 200, {"set-cookie": "a=b"}, {}, "detail=set-cookie"),
        (TTL, 200, {"set-cookie": "a=b", "cache-control": "public, max-age=9"}, {}, "detail=set-cookie"),
        ("[[rule]]\nthen = { ttl = 60, strip_cookies = true }", 200, {"set-cookie": "a=b"}, {}, "hit"),
        ('[[rule]]\nthen = { ttl = 60, store_set_cookie = ["a"] }', 200, {"set-cookie": "a=b"}, {}, "hit"),
        (TRACKING, 200, {"set-cookie": "t_1=b"}, {}, "hit"),
        (TRACKING, 200, {"set-cookie": "a=b"}, {}, "set-cookie"),
        (TTL, 200, {}, {"cookie": "a=b"}, "detail=cookie"),
        (TTL, 200, {"cache-control": "public"}, {"cookie": "a=b"}, "hit"),
        (TTL, 200, {"vary": "Cookie"}, {"cookie": "a=b"}, "hit"),
        ("[[rule]]\nthen = { ttl = 60, pass_cookies = [] }", 200, {}, {"cookie": "a=b"}, "hit"),
        (KEYED, 200, {}, {"cookie": "a=b"}, "hit"),
        (KEYED, 200, {}, {"cookie": "a=b; c=d"}, "detail=cookie"),
        (TTL, 200, {}, {"x-remote-user": "root"}, "detail=credentials"),
        (TTL, 200, {"vary": "X-Remote-User"}, {"x-remote-user": "root"}, "hit"),
        (TTL, 200, {}, {"authorization": "Basic x"}, "detail=authorization"),
        (TTL, 200, {"cache-control": "private"}, {}, "detail=private"),
        (TTL, 200, {"cache-control": "no-cache", "etag": '"a"'}, {}, "fwd=stale"),
    ],
)  # fmt: skip
def test_a_rules_ttl_replaces_the_lifetime_and_nothing_else(
    run_async: Any, glasscache_client: Client, rules: str, status: int, headers: dict[str, str],
    fields: dict[str, str], detail: str,
) -> None:  # fmt: skip
    async def scenario(client: AsyncClient) -> None:
        cache = CacheASGI(Origin(lambda _: (status, headers)), client, Rules.from_text(rules))
        replies = [await send_request(cache, "/asgi", fields=fields) for _ in range(2)]
        assert any(detail in reply.cache_status for reply in replies), replies[1].cache_status
        is_hit = "hit" in replies[1].cache_status
        assert is_hit is (detail == "hit")

    run_async(scenario)
    cache = CacheWSGI(
        WSGIOrigin(lambda _: (f"{status} x", headers, [b"x"])),
        glasscache_client,
        Rules.from_text(rules),
    )
    replies = [send_wsgi_request(cache, "/wsgi", fields=fields) for _ in range(2)]
    assert ("hit" in replies[1].cache_status) is (detail == "hit")


async def test_what_was_stored_for_visitors_is_not_sent_to_a_request_with_a_cookie(
    client: AsyncClient,
) -> None:
    cache = CacheASGI(Origin(lambda _: {}), client, Rules.from_text(TTL))
    for fields in ({"cookie": "session=1"}, {"x-api-key": "k"}, {"authorization": "x"}):
        visitor_reply = await send_request(cache)
        assert (await send_request(cache, fields=fields)).body != visitor_reply.body
        assert (await send_request(cache)).body == visitor_reply.body


@pytest.mark.parametrize("scope_entries", [{"user": "a"}, {"session": {"user": 1}}, TLS_CLIENT])
def test_a_user_known_to_an_outer_middleware_gets_an_own_response(
    run_async: Any, glasscache_client: Client, scope_entries: dict[str, Any]
) -> None:
    async def scenario(client: AsyncClient) -> None:
        cache = CacheASGI(Origin(), client)
        for number in (1, 2):
            assert (await send_request(cache, **scope_entries)).body == b"body %d" % number

    run_async(scenario)
    cache = CacheWSGI(WSGIOrigin(), glasscache_client)
    for name in ("alice", "bob"):
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/user",
            "HTTP_HOST": "a",
            "REMOTE_USER": name,
        }
        list(cache(environ, lambda *_: None))
    assert cache.counters["stored"] == 0


def append_slash(call: dict[str, Any]) -> Any:
    """Respond as a site that wants a slash at the end of its URLs."""
    path = call["path"]
    return (200, {}) if path.endswith("/") else (301, {"location": path + "/"})


@pytest.mark.parametrize("canonicalise", ['trailing_slash = "strip"', 'host = "www.shop.example"'])
def test_no_redirect_leads_to_itself(
    run_async: Any, glasscache_client: Client, canonicalise: str
) -> None:
    rules = Rules.from_text(
        f"[[rule]]\nthen = {{ ttl = {{ 200 = 300, 301 = 3600 }}, canonicalise = {{ {canonicalise} }} }}"
    )

    async def scenario(client: AsyncClient) -> None:
        cache = CacheASGI(Origin(append_slash), client, rules)
        for start in ("/lamps", "/lamps/", "/lamps", "/lamps/"):
            url, status = start, 0
            for _ in range(2):
                reply = await send_request(cache, url)
                status = reply.status
                assert url != reply["location"], (start, reply.fields)
                url = reply["location"] or ""
            assert status == 200 or start == "/lamps/", (start, reply.fields)
            await cache.settle()

    run_async(scenario)

    def append_slash_wsgi(environ: Any) -> Any:
        outcome = append_slash({"path": environ["PATH_INFO"]})
        return f"{outcome[0]} x", outcome[1], [b"x"]

    cache = CacheWSGI(WSGIOrigin(append_slash_wsgi), glasscache_client, rules)
    for _ in range(2):
        assert send_wsgi_request(cache, "/lamps/").status == 200
        assert send_wsgi_request(cache, "/lamps")["location"] == "/lamps/"


async def test_a_write_invalidates_what_rules_for_get_have_stored(client: AsyncClient) -> None:
    rules = Rules.from_text("""
        [[rule]]
        name = "pages"
        when = { method = "GET", header = { x-debug = false } }
        then = { ttl = 300, canonicalise = { query_drop = ["utm_*"], host = "www.shop.example" } }
    """)
    cache = CacheASGI(Origin(lambda _: {}), client, rules)
    for write_fields in ({}, {"x-debug": "1"}):
        old_reply = await send_request(cache, "/a?utm_x=1")
        await send_request(cache, "/a", "POST", write_fields)
        assert (await send_request(cache, "/a")).body != old_reply.body


async def test_purges_find_every_spelling(client: AsyncClient, glasscache_client: Client) -> None:
    rules = Rules.from_text('[[rule]]\nthen = { ttl = 300, tags = ["front page"] }')
    spellings = ("http://shop.example/a%40b", "http://SHOP.example.:80/%61@b")
    cache = CacheASGI(Origin(lambda _: {}), client, rules)
    purger = AsyncPurger(client, rules)
    purges: list[Any] = [lambda url=url: purger.url(url) for url in spellings]
    purges += [
        lambda: purger.tag("front page"),
        lambda: purger.prefix("Shop.Example:80/%61%40"),
    ]
    for purge in purges:
        old_reply = await send_request(cache, "/a@b")
        assert (await send_request(cache, "/a@b")).body == old_reply.body
        await purge()
        assert (await send_request(cache, "/a@b")).body != old_reply.body
    with pytest.raises(TypeError, match=r"write glasscache.web.AsyncPurger\(client\)"):
        Purger(client)
    with pytest.raises(TypeError, match=r"write glasscache.web.Purger\(client\)"):
        AsyncPurger(glasscache_client)


async def test_the_application_and_caches_downstream_get_what_a_rule_varies_on(
    client: AsyncClient,
) -> None:
    selectors = '["language", "device", "cookie:lang", "header:X-Plan"]'
    rules = Rules.from_text(f"[[rule]]\nthen = {{ ttl = 60, vary_on = {selectors} }}")

    def echo(call: dict[str, Any]) -> Any:
        fields = call["fields"]
        text = f"{fields.get('accept-language')} {fields.get('user-agent')}"
        return 200, {"vary": "Accept", "etag": '"a"'}, text.encode()

    cache = CacheASGI(Origin(echo), client, rules)
    first, second = [
        await send_request(cache, fields={"accept-language": language, "user-agent": agent})
        for language, agent in (("de, fr;q=0.9", "Mobile A"), ("DE-AT,en", "Android B"))
    ]
    for reply in (first, second):
        assert reply["vary"] == "Accept, accept-language, user-agent, cookie, x-plan"
        assert reply.body.startswith(b"de Mozilla")
    assert "hit" in second.cache_status
    fields = {"accept-language": "de", "user-agent": "Mobile", "if-none-match": '"a"'}
    not_modified = await send_request(cache, fields=fields)
    assert (not_modified.status, not_modified["vary"]) == (304, first["vary"])


def test_a_stale_response_replaces_an_exception_only_where_the_response_allows_it(
    run_async: Any, glasscache_client: Client
) -> None:
    starlette = pytest.importorskip("starlette.applications", reason="starlette is not installed")
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def scenario(client: AsyncClient) -> None:
        is_failing = False

        async def page(request: Any) -> PlainTextResponse:
            if is_failing:
                raise OSError("no database")
            lifetime = request.path_params["lifetime"]
            return PlainTextResponse("page", headers={"cache-control": f"max-age=1{lifetime}"})

        app = starlette.Starlette(routes=[Route("/p{lifetime:path}", page)])
        clock = Clock(time.time())
        cache = CacheASGI(app, client, settings=CacheSettings(early=False))
        cache.shared.clock = clock
        paths = ["/p", "/p,stale-if-error=60"]
        for path in paths:
            assert (await send_request(cache, path)).body == b"page"
        is_failing = True
        clock.now += 5
        with pytest.raises(OSError, match="no database"):
            await send_request(cache, paths[0])
        reply = await send_request(cache, paths[1])
        assert (reply.status, reply.body) == (200, b"page")
        assert "stale-if-error" in reply.cache_status
        await cache.settle()

    run_async(scenario)
    clock = Clock(time.time())
    origin = WSGIOrigin(lambda _: {"Cache-Control": "max-age=1"})
    cache = CacheWSGI(origin, glasscache_client, settings=CacheSettings(early=False))
    cache.shared.clock = clock
    send_wsgi_request(cache, "/failing")
    clock.now += 5
    origin.respond = lambda _: OSError("no database")
    with pytest.raises(OSError, match="no database"):
        send_wsgi_request(cache, "/failing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\nname = 'a'\nthen = { ttl = 5, pass_cookies = ['s'] }",
         r"rule 'a' \(line 1\): pass_cookies = \['s'\] and ttl contradict each other.*cookie:s"),
        ("[[rule]]\nthen = { ttl = 5, pass_cookies = ['s', 't'], vary_on = ['cookie:s'] }",
         r"\['t'\] and ttl"),
        (PASSING + "[[rule]]\nname = 'b'\nwhen = { path = '/p/**' }\nthen = { ttl = 5 }",
         r"rule 'b' \(line 3\): ttl and pass_cookies = \['s'\] of rule '1' \(line 1\) contradict"),
        ("[[rule]]\nthen = { ttl = 5 }\n" + PASSING.replace("then", "when = { host = 'a' }\nthen"),
         r"rule '1' \(line 1\): ttl and pass_cookies"),
        ("[[rule]]\nwhen = { path = '/a//b' }\nthen = { ttl = 5 }", r"line 1\): path .* cannot match"),
        ("[[rule]]\nwhen = { path_regex = '/caf%C3%A9' }\nthen = { ttl = 5 }", "write '/caf\u00e9'"),
        ("[[rule]]\nthen = { canonicalise = { host = 'http://a' } }", r"line 1\): host = 'http://a'"),
        ("[[rule]]\nthen = { store_set_cookie = true }", "wrong type"),
        ("[[rule]]\nthen = { store_set_cookie = ['a b'] }", "not a cookie's name"),
        ("[[rule]]\nthen = { tags = [' '] }", "write a name"),
    ],
)  # fmt: skip
def test_rules_that_would_share_too_much_or_never_match_are_refused(
    text: str, message: str
) -> None:
    with pytest.raises(BadSetting, match=message):
        Rules.from_text(text)


@pytest.mark.parametrize(
    "text",
    [
        PASSING + "[[rule]]\nwhen = { cookie = { s = false } }\nthen = { ttl = 5 }",
        "[[rule]]\nwhen = { cookie = { s = true } }\nthen = { bypass = true }\n" + PASSING + TTL,
        PASSING + "[[rule]]\nthen = { ttl = 5, vary_on = ['cookie:s'] }",
        "[[rule]]\nwhen = { path = '/p/**' }\nthen = { pass_cookies = [] }\n"
        + PASSING + "[[rule]]\nwhen = { path = '/p/x' }\nthen = { ttl = 5 }",
    ],
)  # fmt: skip
def test_a_cookie_that_is_passed_may_be_keyed_by_another_rule(text: str) -> None:
    assert Rules.from_text(text).rules


ATTACKS: list[tuple[str, dict[str, str]]] = [
    ("/shop/p", {"cookie": "session=ATTACK"}), ("/shop/p", {"cookie": "sessionid =ATTACK"}),
    ("/shop/p", {"cookie": "lang=ATTACK"}), ("/shop/p", {"cookie": "currency=ATTACK; currency=eur"}),
    ("/shop/p", {"authorization": "ATTACK"}), ("/shop/p", {"x-forwarded-host": "ATTACK.example"}),
    ("/shop/p", {"host": "ATTACK.example"}), ("/shop/p?utm_x=ATTACK", {}),
    ("/shop/%70", {"x-user": "ATTACK"}),
    ("/%61dmin/p", {"cookie": "a=ATTACK"}), ("/shop/p", {"host": "shop.example:80", "cookie": "x=ATTACK"}),
    ("/shop/p", {"accept-language": "de, ATTACK"}), ("/shop/p", {"user-agent": "Mobile ATTACK"}),
]  # fmt: skip


@pytest.mark.parametrize("table", GUIDE_TABLES, ids=range(len(GUIDE_TABLES)))
def test_no_table_of_the_guides_gives_a_visitor_what_an_attacker_sent(
    run_async: Any, glasscache_client: Client, table: str
) -> None:
    rules = Rules.from_text(table + '\n[[rule]]\nname = "the rest"\nthen = { grace = 60 }')
    visits: list[tuple[str, dict[str, str]]] = [
        ("/shop/p", {}), ("/shop/p", {"host": "www.shop.example"}), ("/admin/p", {}),
        ("/shop/p", {"accept-language": "de"}), ("/shop/p", {"user-agent": "Mobile"}),
        ("/shop/p", {"cookie": "currency=eur"}),
    ]  # fmt: skip

    def echo(call: dict[str, Any]) -> Any:
        cookie = call["fields"].get("cookie", "")
        headers = {"set-cookie": cookie} if cookie else {}
        return 200, headers, repr((call["path"], call["query"], call["fields"])).encode()

    def wsgi_echo(environ: Any) -> Any:
        cookie = environ.get("HTTP_COOKIE", "")
        headers = {"Set-Cookie": cookie} if cookie else {}
        return "200 OK", headers, [repr(sorted(environ.items(), key=str)).encode()]

    async def scenario(client: AsyncClient) -> None:
        cache = CacheASGI(Origin(echo), client, rules)
        for url, fields in ATTACKS * 2:
            await send_request(cache, url, fields=fields, path=unquote(url.partition("?")[0]))
        for url, fields in visits:
            reply = await send_request(cache, url, fields=fields)
            assert b"ATTACK" not in reply.body, (url, fields, reply.body)
            assert "ATTACK" not in (reply["set-cookie"] or "")
        await cache.settle()

    run_async(scenario)
    cache = CacheWSGI(WSGIOrigin(wsgi_echo), glasscache_client, rules)
    for url, fields in ATTACKS * 2:
        path, _, query = unquote(url).partition("?")
        send_wsgi_request(cache, path + ("?" + query if query else ""), fields=fields)
    for url, fields in visits:
        assert b"ATTACK" not in send_wsgi_request(cache, url, fields=fields).body
    cache.settle()
