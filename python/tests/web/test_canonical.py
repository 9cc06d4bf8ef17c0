"""Keys and applications read the same request: in every spelling, over ASGI and WSGI, under every rule."""

from __future__ import annotations

import os
import random
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from glasscache.web import CacheASGI, CacheWSGI, Rules
from glasscache.web._exchange import Exchange
from glasscache.web._lease import Fetch
from glasscache.web.asgi import _scope_for
from glasscache.web.asgi import request_of as asgi_request_of
from glasscache.web.wsgi import _environ_for
from glasscache.web.wsgi import request_of as wsgi_request_of

from web.random_requests import (
    BYPASSED_COOKIE,
    BYPASSED_HOST,
    BYPASSED_PATH,
    BYPASSES,
    asgi_scope,
    random_head,
    random_rules,
    wsgi_environ,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUEST_COUNT = int(os.environ.get("GLASSCACHE_TEST_REQUESTS", "2400"))
REQUESTS_PER_RULES = 400
COOKIE_NAMES = ("lang", "theme", "sessionid", "currency")


def last_cookies(text: str) -> dict[str, str]:
    """Return cookies as Django and Starlette read them: names stripped, the last of two counts."""
    cookies: dict[str, str] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if not equals:
            name, value = "", name
        if name.strip() or value.strip():
            cookies[name.strip()] = value.strip()
    return cookies


def standard_cookies(text: str) -> dict[str, str]:
    """Return cookies as frameworks read them that use the standard library."""
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(text).items()}
    except CookieError:
        return {}


class View:
    """What an application reads of the request that the cache hands it."""

    def __init__(
        self, path: str, raw_path: str, host: str, fields: dict[str, str], *rest: Any
    ) -> None:
        self.path, self.host, self.fields = path, host, fields
        cookie_field = fields.get("cookie", "")
        self.cookies = [last_cookies(cookie_field), standard_cookies(cookie_field)]
        self.url = (path, raw_path, host, *rest)

    def read_by(self, rules: Rules, exchange: Exchange) -> Any:
        """Return the URL and what the rules for it name of fields and cookies."""
        selectors = exchange.settings.vary_on
        names = {
            selector.removeprefix("header:") for selector in selectors if "header:" in selector
        }
        names |= {"accept-language"} if "language" in selectors else set()
        names |= {"user-agent"} if "device" in selectors else set()
        cookie_names = {selector[7:] for selector in selectors if selector.startswith("cookie:")}
        for rule in rules.rules:
            if not rule.matches_url(exchange.request):
                continue
            names |= rule.when.header.keys() - {"user-agent", "cookie"}
            cookie_names |= rule.when.cookie.keys()
        return (
            self.url,
            {name: self.fields.get(name) for name in names},
            [{name: read.get(name) for name in cookie_names} for read in self.cookies],
        )

    def should_bypass(self) -> bool:
        """Return whether the rules `BYPASSES` mean what the application reads."""
        name = self.host.lower().partition(":")[0].rstrip(".")
        has_cookie = any(BYPASSED_COOKIE in read for read in self.cookies)
        return self.path.startswith(BYPASSED_PATH) or name == BYPASSED_HOST or has_cookie


def asgi_view(scope: dict[str, Any]) -> View:
    fields: dict[str, str] = {}
    for name, value in scope["headers"]:
        fields.setdefault(name.decode(), value.decode("latin-1"))
    raw_path = unquote((scope.get("raw_path") or b"").decode())
    return View(
        scope["path"], raw_path or scope["path"], fields.get("host", ""), fields, scope["query_string"],
        scope["scheme"], scope["method"], scope["root_path"], fields.get("host") or scope["server"],
    )  # fmt: skip


def wsgi_view(environ: dict[str, Any]) -> View:
    fields = {
        name[5:].lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    return View(
        environ["SCRIPT_NAME"] + environ["PATH_INFO"], environ["PATH_INFO"], fields.get("host", ""), fields,
        environ["QUERY_STRING"], environ["wsgi.url_scheme"], environ["REQUEST_METHOD"],
        environ["SCRIPT_NAME"], fields.get("host") or environ["SERVER_NAME"],
    )  # fmt: skip


def exchanges(
    kind: str, cache: Any, rng: random.Random, count: int
) -> Iterator[tuple[Exchange, View, Any]]:
    """Yield random exchanges, what the application is handed, and the request as it was sent."""
    heads = [random_head(rng)]
    for _ in range(count):
        # An earlier one again, whose scheme, mount and server may be others: it often has the same key.
        head = rng.choice(heads) if rng.random() < 0.2 else random_head(rng)
        heads.append(head)
        path, query, fields = head
        request: Any
        if kind == "asgi":
            sent = asgi_scope(rng, path, query, fields)
            exchange = Exchange(cache.shared, None, asgi_request_of(sent))
            request = exchange.request
            yield exchange, asgi_view(_scope_for(sent, fetch_of(exchange), request)), sent
        else:
            sent = wsgi_environ(rng, path, query, fields)
            exchange = Exchange(cache.shared, None, wsgi_request_of(sent))
            request = exchange.request
            yield exchange, wsgi_view(_environ_for(sent, fetch_of(exchange), request)), sent


def fetch_of(exchange: Exchange) -> Fetch:
    is_bypassed = exchange.bypass_reason is not None
    return Fetch(b"", exchange.request.fields, "GET", may_store=True, is_as_sent=is_bypassed)


def cache_of(kind: str, rules: Rules) -> Any:
    client: Any = None
    app: Any = None
    return (CacheASGI if kind == "asgi" else CacheWSGI)(app, client, rules)


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_requests_with_one_key_are_one_request_for_the_application(kind: str) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    shared_key_count = 0
    for _ in range(-(-REQUEST_COUNT // REQUESTS_PER_RULES)):
        rules = random_rules(rng)
        views_by_key: dict[str, tuple[Any, Any]] = {}
        for exchange, view, sent in exchanges(kind, cache_of(kind, rules), rng, REQUESTS_PER_RULES):
            if exchange.bypass_reason is not None:
                continue
            key, read = exchange.lookup.primary_key, view.read_by(rules, exchange)
            first_read, first_sent = views_by_key.setdefault(key, (read, sent))
            shared_key_count += first_sent is not sent
            texts = [(rule.when, rule.then) for rule in rules.rules]
            assert read == first_read, (seed, texts, sent, first_sent)
    assert shared_key_count > REQUEST_COUNT // 200


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_no_spelling_dodges_a_rule_that_bypasses(kind: str) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    bypassed_count = 0
    for _ in range(-(-REQUEST_COUNT // REQUESTS_PER_RULES)):
        cache = cache_of(kind, random_rules(rng, BYPASSES))
        for exchange, view, sent in exchanges(kind, cache, rng, REQUESTS_PER_RULES):
            if exchange.bypass_reason is not None:
                bypassed_count += 1
                continue
            assert not view.should_bypass(), (seed, sent)
    assert 0 < bypassed_count < REQUEST_COUNT


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_a_bypassed_request_reaches_the_application_as_it_was_sent(kind: str) -> None:
    rng = random.Random(7)
    cache = cache_of(kind, Rules.from_text(BYPASSES))
    read_view: Any = asgi_view if kind == "asgi" else wsgi_view
    for exchange, view, sent in exchanges(kind, cache, rng, 500):
        if exchange.bypass_reason is not None:
            assert vars(view) == vars(read_view(sent))
