"""What an attacker may spell differently, over ASGI and WSGI: a victim gets what its own request asks for."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest
from glasscache.web import Purger
from glasscache.web._message import KEYED_FIELDS

from web.sites import Seen, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glasscache import Client, Server

TTL = "[[rule]]\nthen = { ttl = 60 }\n"
SHARED = {"cache-control": "public"}
BY_LANGUAGE = '[[rule]]\nthen = { ttl = 60, vary_on = ["cookie:lang"] }'
ONLY_LANGUAGE = '[[rule]]\nthen = { ttl = 60, vary_on = ["cookie:lang"], pass_cookies = ["lang"] }'
SORTED = "[[rule]]\nthen = { ttl = 60, canonicalise = { query_sort = true } }"
LOWER = "[[rule]]\nthen = { ttl = 60, canonicalise = { lower_path = true } }"
TAGGED = '[[rule]]\nthen = { ttl = 60, tags = ["Stra\u00dfe"] }'
REDIRECTS = "[[rule]]\nthen = { ttl = { 301 = 60 }, canonicalise = { trailing_slash = 'strip' } }"


@pytest.fixture(params=["asgi", "wsgi"])
def make_site(
    request: pytest.FixtureRequest, glasscache_client: Client, glasscache_server: Server
) -> Iterator[Any]:
    """Return a function that makes a site: of a function that responds, and rules."""
    sites: list[Site] = []

    def make(respond: Callable[[Seen], Any], rules: str = TTL, **settings: Any) -> Site:
        sites.append(
            Site(
                request.param, glasscache_client, glasscache_server.address, respond, rules,
                namespace=f"w{len(sites)}", **settings,
            )
        )  # fmt: skip
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def is_hit(reply: Any) -> bool:
    return "; hit" in reply.cache_status


def standard_cookies(field: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(field).items()}
    except CookieError:
        return {}


def language_page(seen: Seen) -> Any:
    return 200, SHARED, f"{standard_cookies(seen.fields.get('cookie', '')).get('lang')}"


@pytest.mark.parametrize(
    "field",
    [
        "a=1;; lang=de", "; lang=de", "a=1; ;lang=de", "path=/; lang=de", "a=1; version=1; lang=de",
        "secure; lang=de",
        "Max-Age=1; lang=en", "$Version=1; lang=de", "lang=de; $lang=en", 'x="; lang=de; y="', 'lang="de"',
        "x=a lang=de", "lang=de,lang=en", "lang=de\xe9", "lang=\0", "=lang=de", "LANG=de",
        "[lang]=de; lang=en",
    ],
)  # fmt: skip
def test_a_cookie_in_any_spelling_fills_no_other_page(make_site: Any, field: str) -> None:
    for rules in (BY_LANGUAGE, ONLY_LANGUAGE):
        site = make_site(language_page, rules)
        site.get(fields=[("cookie", field)])
        for own_field in ("lang=de", "lang=en", ""):
            reply = site.get(fields=[("cookie", own_field)] if own_field else [])
            assert reply.body.decode() == str(standard_cookies(own_field).get("lang")), own_field


def test_an_ambiguous_cookie_does_not_dodge_a_bypass_of_a_url_that_is_moved(make_site: Any) -> None:
    rule = 'when = { path = "/ADMIN/**", cookie = { sessionid = true } }\nthen = { bypass = true }'
    site = make_site(lambda _: (200, SHARED, "x"), f"[[rule]]\n{rule}\n{LOWER}")
    replies = [site.get("/ADMIN/x", fields=[("cookie", "x=1 sessionid=S")]) for _ in range(2)]
    assert not is_hit(replies[1])


@pytest.mark.parametrize("raw_path", [b"", b"/other", b"/public?x", b"*"])
def test_a_raw_path_that_differs_from_the_path_poisons_no_page(
    make_site: Any, raw_path: bytes
) -> None:
    site = make_site(lambda seen: seen.path)
    for path, other_path in (("/secret", "/public"), ("/public", "/")):
        assert site.get(path, scope={"raw_path": raw_path}).body == path.encode()
        for own_path in (path, other_path, "/"):
            assert site.get(own_path).body == own_path.encode()


def test_a_path_that_is_no_text_needs_no_raw_path(make_site: Any) -> None:
    site = make_site(lambda _: "x")
    assert site.get(b"/%ff", scope={"path": "/\udcff", "raw_path": None}).status == 200


def test_an_application_under_two_mounts_has_two_pages_and_one_purge(
    make_site: Any, glasscache_client: Client
) -> None:
    site = make_site(lambda seen: seen.url_text)
    mounts = ("", "/a", "/a/b", "/a")
    replies = [site.get("/a/b/c", mount=mount) for mount in mounts]
    assert len({reply.body for reply in replies}) == 3
    assert is_hit(replies[3])
    Purger(glasscache_client, site.rules, site.settings).url("http://shop.example/a/b/c")
    assert [is_hit(site.get("/a/b/c", mount=mount)) for mount in mounts[:3]] == [False] * 3


@pytest.mark.parametrize("host", [None, ""])
def test_without_a_host_the_server_is_in_the_key(make_site: Any, host: Any) -> None:
    site = make_site(lambda seen: f"{seen.server} {seen.fields.get('host')}")
    replies = [
        site.get(host=host, server=name, fields=[("accept", "a"), ("accept", "b")])
        for name in ("10.0.0.1", "intra.local", "10.0.0.1")
    ]
    own_field = "None" if host is None else ""
    expected = [f"{name} {own_field}".encode() for name in ("10.0.0.1", "intra.local", "10.0.0.1")]
    assert [reply.body for reply in replies] == expected
    assert is_hit(replies[2])


@pytest.mark.parametrize("name", sorted(KEYED_FIELDS))
def test_a_field_of_a_proxy_about_the_url_is_in_the_key(make_site: Any, name: bytes) -> None:
    site = make_site(lambda seen: seen.fields.get(name.decode(), "none"))
    site.get(fields=[(name.decode(), "evil")])
    assert site.get().body == b"none"


def test_sorting_a_query_keeps_the_order_of_one_name(make_site: Any) -> None:
    site = make_site(lambda seen: seen.query, SORTED)
    for query in (b"b=0&a=1&%61=2", b"%61=1&a=2&b=0"):
        pairs = parse_qsl(site.get(query=query).body.decode())
        assert pairs == [("a", "1"), ("a", "2"), ("b", "0")]


def test_control_characters_forge_no_key(make_site: Any) -> None:
    rules = '[[rule]]\nthen = { ttl = 60, vary_on = ["header:x"] }'
    attacks: list[tuple[str, bytes, bytes, bytes]] = [
        (rules, b"a\nheader:x:1:1", b"9", b"1\nheader:x:1:9"),
        (rules, b"a", b"\0", b""),
        (TTL, b"a", b"\0", b""),
    ]
    for rule_text, query, value, own_value in attacks:
        site = make_site(lambda seen: (200, {"vary": "x"}, repr(seen.fields.get("x"))), rule_text)
        site.get(query=query, fields=[("x", value)])
        reply = site.get(query=b"a", fields=[("x", own_value)] if own_value else [])
        assert reply.body.decode() == repr(own_value.decode() or None)


def test_fields_that_are_sent_twice_are_one_field(make_site: Any) -> None:
    site = make_site(lambda seen: (200, {"vary": "x-plan"}, seen.fields.get("x-plan", "")))
    site.get(fields=[("x-plan", "a"), ("x-plan", "b")])
    assert site.get(fields=[("x-plan", "a, b")]).body.replace(b" ", b"") == b"a,b"


@pytest.mark.parametrize("method", ["get", "QUERY", "query", "head"])
def test_a_safe_method_invalidates_nothing(make_site: Any, method: str) -> None:
    site = make_site(lambda seen: seen.method)
    site.get()
    site.get(method=method)
    assert is_hit(site.get())


@pytest.mark.parametrize("name", ["x-http-method-override", "x-method-override", "x-http-method"])
def test_an_overridden_method_bypasses_the_cache(make_site: Any, name: str) -> None:
    site = make_site(lambda _: "x")
    replies = [site.get(fields=[(name, "DELETE")]) for _ in range(2)]
    assert [reply.cache_status for reply in replies] == [
        "glasscache; fwd=bypass; detail=ambiguous-method"
    ] * 2


def test_a_body_that_no_field_states_is_in_no_page(make_site: Any) -> None:
    site = make_site(lambda seen: b"body " + seen.body)
    site.get(body=b"evil")
    assert site.get().body == b"body "


@pytest.mark.parametrize("location", ["/caf\xc3\xa9", "/caf%c3%a9", "caf%C3%A9#x"])
def test_an_unsafe_request_invalidates_what_its_location_names(
    make_site: Any, location: str
) -> None:
    site = make_site(
        lambda seen: (200, {"location": location} if seen.method == "POST" else {}, "x")
    )
    site.get(b"/caf%C3%A9")
    site.get("/other", method="POST")
    assert not is_hit(site.get(b"/caf%C3%A9"))


@pytest.mark.parametrize("value", ["x a", "x-a;q=1", '"x-a"', "accept, x-a x-b", "*, accept"])
def test_a_vary_that_cannot_be_read_is_a_star(make_site: Any, value: str) -> None:
    site = make_site(lambda seen: (200, {"vary": value}, str(seen.fields.get("x-a"))))
    site.get(fields=[("x-a", "evil")])
    assert site.get().body == b"None"


@pytest.mark.parametrize(
    "value",
    [
        'private="x"', "private max-age=60", "private; max-age=60", "public; private", "max-age=60 private",
        "no-store;", "no-store max-age=9", "no-cache no-store",
        "max-age=5; no-store", 'x="a, private', "=,private",
    ],
)  # fmt: skip
def test_a_restriction_counts_however_it_is_misspelt(make_site: Any, value: str) -> None:
    site = make_site(lambda _: (200, {"cache-control": value}, "x"))
    assert [is_hit(site.get()) for _ in range(2)] == [False, False]


@pytest.mark.parametrize("value", ["max-age=0 must-revalidate", "max-age=60s", "max-age=0; public"])
def test_a_lifetime_that_cannot_be_read_is_over(make_site: Any, value: str) -> None:
    headers = {"cache-control": value, "last-modified": "Mon, 01 Jan 2001 00:00:00 GMT"}
    site = make_site(lambda _: (200, headers, "x"), "")
    assert [is_hit(site.get()) for _ in range(2)] == [False, False]


@pytest.mark.parametrize(
    "name",
    [
        "x-auth", "x-jwt", "x-authorization", "x-webauth-user", "x-consumer-username", "remote-email",
        "token", "dpop",
        "x-authentik-username", "tailscale-user-login", "ssl-client-s-dn", "x-csrf-token", "x-tenant-id",
        "client-cert",
    ],
)  # fmt: skip
def test_what_was_made_with_a_field_that_names_a_user_is_not_shared(
    make_site: Any, name: str
) -> None:
    site = make_site(lambda seen: seen.fields.get(name, "nobody"))
    site.get(fields=[(name, "alice")])
    assert [site.get(fields=[(name, "bob")]).body, site.get().body] == [b"bob", b"nobody"]


def test_what_every_browser_sends_names_no_user(make_site: Any) -> None:
    names = (
        "user-agent", "accept", "accept-language", "sec-fetch-user", "sec-fetch-mode", "sec-ch-ua", "dnt",
        "referer",
        "upgrade-insecure-requests", "priority", "te", "x-requested-with", "x-forwarded-for", "via",
        "traceparent",
        "x-request-id", "cdn-loop", "cf-ray", "x-real-ip", "if-none-match",
    )  # fmt: skip
    site = make_site(lambda _: "x")
    assert [is_hit(site.get(fields=[(name, "1") for name in names])) for _ in range(2)] == [
        False,
        True,
    ]


@pytest.mark.parametrize("value", ["abc", "-5", "5, 6", "+1", "0x1", ""])
def test_a_length_that_is_no_number_is_not_stored(make_site: Any, value: str) -> None:
    site = make_site(lambda _: (200, {"content-length": value}, "x"))
    assert [is_hit(site.get()) for _ in range(2)] == [False, False]


@pytest.mark.parametrize("location", ["", "#top", "?x=1", "/a/?x=1", "/caf%C3%A9", "/caf\xc3\xa9/"])
def test_a_redirect_to_its_own_url_is_not_stored(make_site: Any, location: str) -> None:
    path, query = (b"/caf%C3%A9", b"") if "caf" in location else (b"/a", b"x=1")
    site = make_site(lambda _: (301, {"location": location}, ""), REDIRECTS)
    assert [is_hit(site.get(path, query=query)) for _ in range(2)] == [False, False]


def test_only_if_cached_is_a_directive_that_a_rule_may_ignore(make_site: Any) -> None:
    fields = [("cache-control", "only-if-cached")]
    assert make_site(lambda _: "x").get(fields=fields).status == 504
    rules = "[[rule]]\nthen = { ttl = 60, ignore_request_directives = true }"
    assert make_site(lambda _: "x", rules).get(fields=fields).status == 200


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [
        ("gzip;Q=0", False), ("gzip;\tq=0", False), ("br, gzip;q=0.0", False), ("x-gzipped", False),
        ("*", False),
        ("GZIP", True), ("br, gzip;q=0.5", True), ("gzip;q=1.0", True),
    ],
)  # fmt: skip
def test_gzip_is_for_clients_that_take_it(make_site: Any, value: str, is_taken: bool) -> None:
    headers = {"content-type": " text/html", "cache-control": "max-age=60"}
    site = make_site(lambda _: (200, headers, "x" * 5000), "[[rule]]\nthen = { compress = true }")
    replies = [site.get(fields=[("accept-encoding", value)]) for _ in range(2)]
    assert is_hit(replies[1])
    assert (replies[1]["content-encoding"] == "gzip") is is_taken


@pytest.mark.parametrize(
    ("purge", "scheme"),
    [
        ("HTTP://shop.example/caf\u00e9/", "http"), ("shop.example:80/caf%c3%a9/", "http"),
        ("u@SHOP.example./", "http"),
        ("https://shop.example:443/", "https"), ("shop.example:443/", "https"), ("shop.exam", "http"),
        ("shop.example/CAF\u00c9/", "http"),
    ],
)  # fmt: skip
def test_a_prefix_is_purged_in_every_spelling(
    make_site: Any, glasscache_client: Client, purge: str, scheme: str
) -> None:
    site = make_site(lambda _: "x", LOWER)
    site.get("/caf%C3%A9/b", scheme=scheme)
    Purger(glasscache_client, site.rules, site.settings).prefix(purge)
    assert not is_hit(site.get("/caf%C3%A9/b", scheme=scheme))


def test_letters_beyond_ascii_are_purged_as_they_are_written(
    make_site: Any, glasscache_client: Client
) -> None:
    site = make_site(lambda _: "x", TAGGED, purge_token="secret")  # noqa: S106 - of this test
    purger = Purger(glasscache_client, site.rules, site.settings)
    site.get("/s", query=b"q=%C3%A9")
    purger.url("http://shop.example/s?q=\u00e9")
    assert not is_hit(site.get("/s", query=b"q=%C3%A9"))
    fields = [("authorization", "Bearer secret"), ("purge-tag", "Stra\u00dfe".encode())]
    assert site.get(method="PURGE", fields=fields).status == 200
    assert not is_hit(site.get("/s", query=b"q=%C3%A9"))


def test_a_failure_keeps_what_can_still_be_validated(make_site: Any) -> None:
    def respond(seen: Seen) -> Any:
        if site.call_count == 2:
            return 500, {}, "failed"
        if seen.fields.get("if-none-match") == '"e"':
            return 304, {"etag": '"e"'}, ""
        return 200, {"cache-control": "no-cache", "etag": '"e"'}, "page"

    site = make_site(respond, "")
    replies = [site.get() for _ in range(3)]
    assert [reply.body for reply in replies] == [b"page", b"failed", b"page"]
    assert "fwd-status=304" in replies[2].cache_status
