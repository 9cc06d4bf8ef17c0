"""`on_error="miss"` in every integration: no server, a server that never replies, a value above the limit.

Each test of the table returns what the program made, in the time of a few calls of its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import secrets
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client, Server
from scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMEOUT_S = 0.1
CALLS_MAX = 12
"""The most calls of a client, one after the other, that an integration makes for what a program does once."""
SLACK_S = 20.0
"""What the interpreter, values of six megabytes and other work of the machine may take."""
DEADLINE_S = CALLS_MAX * TIMEOUT_S + SLACK_S

SMALL_TEXT = "made"
LARGE_TEXT = secrets.token_hex(3 << 20)
"""Above 1 MiB however it is compressed."""


@pytest.fixture(scope="module")
def silent_address() -> Iterator[str]:
    """The address of a server that accepts connections and never replies."""
    with ScriptedServer() as server:
        yield server.address


@pytest.fixture(params=["no server", "a silent server", "a large value"])
def condition(
    request: pytest.FixtureRequest, silent_address: str, glasscache_server: Server
) -> tuple[str, str]:
    """Return the address of a server, and the text that the program makes."""
    match request.param:
        case "no server":
            return "127.0.0.1:1", SMALL_TEXT
        case "a silent server":
            return silent_address, SMALL_TEXT
        case _:
            return glasscache_server.address, LARGE_TEXT


def _client(address: str) -> Client:
    return Client(address, timeout=TIMEOUT_S, on_error="miss", namespace=secrets.token_hex(8))


def _run_async(address: str, use: Callable[[AsyncClient], Any]) -> None:
    async def main() -> None:
        async with AsyncClient(
            address, timeout=TIMEOUT_S, on_error="miss", namespace=secrets.token_hex(8)
        ) as client:
            await use(client)

    asyncio.run(main())


def use_client(address: str, text: str) -> None:
    with _client(address) as client:
        assert client.set("key", text) is False
        assert client.get("key", "default") == "default"
        assert client.add("key", text) is False
        assert client.get_many(["key", "other"]) == {}
        assert client.stats()["misses_by_error"]


def use_async_client(address: str, text: str) -> None:
    async def use(client: AsyncClient) -> None:
        assert await client.set("key", text) is False
        assert await client.get("key", "default") == "default"
        assert await client.add("key", text) is False
        assert await client.get_many(["key", "other"]) == {}

    _run_async(address, use)


def use_get_or_set(address: str, text: str) -> None:
    with _client(address) as client:
        assert client.get_or_set("key", lambda: text, 60) == text
        assert client.get_or_set("key", lambda: text, 60, stale=30, early=True) == text


def use_async_get_or_set(address: str, text: str) -> None:
    async def make() -> str:
        return text

    async def use(client: AsyncClient) -> None:
        assert await client.get_or_set("key", make, 60, stale=30) == text

    _run_async(address, use)


TEXTS: list[str] = []
"""The text that the functions of this module return."""


def make_text() -> str:
    return TEXTS[-1]


async def make_text_later() -> str:
    return TEXTS[-1]


def use_cached(address: str, text: str) -> None:
    TEXTS.append(text)
    with _client(address) as client:
        cached_function = client.cached(ttl=60, tags=["texts"])(make_text)
        assert cached_function() == text
        assert cached_function.refresh() == text
        assert cached_function.invalidate() in {True, False}


def use_async_cached(address: str, text: str) -> None:
    TEXTS.append(text)

    async def use(client: AsyncClient) -> None:
        cached_function = client.cached(ttl=60)(make_text_later)
        assert await cached_function() == text
        assert await cached_function.refresh() == text

    _run_async(address, use)


def use_jinja(address: str, text: str) -> None:
    jinja2 = pytest.importorskip("jinja2")
    from glasscache.contrib.jinja import FragmentExtension, prefetch

    environment = jinja2.Environment(extensions=[FragmentExtension])
    with _client(address) as client:
        environment.glasscache = client
        template = environment.from_string("{% cache 'text', 60 %}{{ text }}{% endcache %}")
        for _ in range(2):
            with prefetch(client, "page"):
                assert template.render(text=text) == text


def use_dogpile(address: str, text: str) -> None:
    dogpile_cache = pytest.importorskip("dogpile.cache")
    dogpile_cache.register_backend("glasscache", "glasscache.contrib.dogpile", "GlassCacheBackend")
    arguments = {
        "url": address, "timeout": TIMEOUT_S, "on_error": "miss", "lock_timeout": 1,
        "namespace": secrets.token_hex(8),
    }  # fmt: skip
    region = dogpile_cache.make_region().configure("glasscache", 60, arguments=arguments)
    assert region.get_or_create("key", lambda: text) == text
    region.delete("key")
    assert region.get_or_create("key", lambda: text) == text


def use_flask_caching(address: str, text: str) -> None:
    flask = pytest.importorskip("flask")
    flask_caching = pytest.importorskip("flask_caching")
    app = flask.Flask("shop")
    app.config["CACHE_TYPE"] = "glasscache.contrib.flask.flask_cache"
    app.config["CACHE_GLASSCACHE_SERVERS"] = address
    app.config["CACHE_GLASSCACHE_OPTIONS"] = {"timeout": TIMEOUT_S, "on_error": "miss"}
    cache = flask_caching.Cache(app)

    @app.route("/text")
    @cache.cached(timeout=60, key_prefix=secrets.token_hex(8))
    def page() -> str:
        return text

    with app.test_client() as browser:
        for _ in range(2):
            assert browser.get("/text").text == text


def use_cachelib(address: str, text: str) -> None:
    pytest.importorskip("cachelib")
    from glasscache.contrib.cachelib import GlassCache

    cache = GlassCache(_client(address), key_prefix="prefix:")
    assert cache.set("key", text) is False
    assert cache.get("key") is None
    assert cache.delete("key") in {True, False}


def use_requests_cache(address: str, text: str) -> None:
    requests_cache = pytest.importorskip("requests_cache")
    from glasscache.contrib.requests_cache import GlassCacheBackend

    class TextHandler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), TextHandler) as site, _client(address) as client:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        session = requests_cache.CachedSession(
            backend=GlassCacheBackend(client, "test"), expire_after=60
        )
        assert session.get(f"http://127.0.0.1:{site.server_port}/text").text == text
        site.shutdown()


def use_hishel(address: str, text: str) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("hishel")
    from glasscache.contrib.hishel import Storage
    from hishel.httpx import CacheTransport

    def respond(_request: Any) -> Any:
        return httpx.Response(200, text=text, headers={"Cache-Control": "max-age=60"})

    with _client(address) as client:
        transport = CacheTransport(httpx.MockTransport(respond), storage=Storage(client))
        with httpx.Client(transport=transport) as browser:
            for _ in range(2):
                assert browser.get("http://shop.example/text").text == text


def use_wsgi(address: str, text: str) -> None:
    httpx = pytest.importorskip("httpx")
    from glasscache.web import CacheWSGI

    def application(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Cache-Control", "max-age=60"), ("Content-Type", "text/plain")])
        return [text.encode()]

    with _client(address) as client:
        transport = httpx.WSGITransport(app=CacheWSGI(application, client))
        with httpx.Client(transport=transport, base_url="http://shop") as browser:
            for _ in range(2):
                assert browser.get("/text").text == text


def use_asgi(address: str, text: str) -> None:
    httpx = pytest.importorskip("httpx")
    from glasscache.web import CacheASGI

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"cache-control", b"max-age=60"), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def use(client: AsyncClient) -> None:
        transport = httpx.ASGITransport(app=CacheASGI(application, client))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
            for _ in range(2):
                assert (await browser.get("/text")).text == text

    _run_async(address, use)


def use_fastapi(address: str, text: str) -> None:
    fastapi = pytest.importorskip("fastapi")
    httpx = pytest.importorskip("httpx")
    from glasscache.contrib.fastapi import cached_response

    TEXTS.append(text)

    async def use(client: AsyncClient) -> None:
        app = fastapi.FastAPI()
        app.get("/later")(cached_response(client, ttl=60)(make_text_later))
        app.get("/text")(cached_response(client, ttl=60, tags=["texts"])(make_text))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
            assert (await browser.get("/text")).json() == text
            assert (await browser.get("/later")).json() == text

    _run_async(address, use)


INTEGRATIONS: list[Callable[[str, str], None]] = [
    use_client, use_async_client, use_get_or_set, use_async_get_or_set, use_cached, use_async_cached,
    use_jinja, use_dogpile, use_flask_caching, use_cachelib, use_requests_cache, use_hishel, use_wsgi,
    use_asgi, use_fastapi,
]  # fmt: skip


@pytest.mark.parametrize(
    "use_integration", INTEGRATIONS, ids=lambda use: use.__name__.removeprefix("use_")
)
def test_an_integration_returns_what_the_program_made(
    condition: tuple[str, str], use_integration: Callable[[str, str], None]
) -> None:
    began_at = time.monotonic()
    with contextlib.ExitStack():
        use_integration(*condition)
    assert time.monotonic() - began_at < DEADLINE_S


@pytest.mark.parametrize(
    "use_integration", [use_get_or_set, use_jinja, use_requests_cache], ids=lambda use: use.__name__
)
def test_a_value_above_the_limit_is_no_error_of_what_made_it(
    glasscache_server: Server,
    use_integration: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        globals(),
        "_client",
        lambda address: Client(address, timeout=5, namespace=secrets.token_hex(8)),
    )
    use_integration(glasscache_server.address, LARGE_TEXT)


DJANGO_PROGRAM = """
    import asyncio, json, sys, time
    import django
    from django.conf import settings
    address, text, timeout = sys.argv[1], sys.stdin.read(), float(sys.argv[2])
    settings.configure(
        SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=["django.contrib.sessions"],
        CACHES={"default": {"BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": address,
                            "KEY_PREFIX": sys.argv[3], "OPTIONS": {"on_error": "miss", "timeout": timeout}}},
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates",
                    "OPTIONS": {"libraries": {"fragments": "glasscache.contrib.django_fragments"}}}],
    )
    django.setup()
    urlpatterns = []
    from django.core.cache import cache
    from django.core.management import call_command
    from django.http import HttpResponse
    from django.template import engines
    from django.test import RequestFactory
    from importlib import import_module
    from glasscache.contrib.django import GlassCache
    from glasscache.contrib.django_pages import cached_page
    call_command("migrate", verbosity=0)
    seconds = {}

    def timed(use):
        began_at = time.monotonic()
        use()
        seconds[use.__name__] = time.monotonic() - began_at

    def use_sync():
        cache.set("key", text)
        assert cache.get("key", "default") == "default"
        assert cache.add("key", text) is False
        assert cache.get_many(["key"]) == {}
        assert cache.get_or_set("made", lambda: text) == text
        assert cache.get_or_set("given", text) == text

    async def use_async_methods():
        await cache.aset("key", text)
        assert await cache.aget("key", "default") == "default"
        assert await cache.aadd("key", text) is False
        assert await cache.aget_or_set("made", lambda: text) == text

    def use_async():
        asyncio.run(use_async_methods())

    @cached_page(60)
    def page(request):
        return HttpResponse(text)

    def use_cached_page():
        for _ in range(2):
            assert page(RequestFactory().get("/")).content.decode() == text

    def use_fragments():
        template = engines["django"].from_string(
            "{% load fragments %}{% glasscache 60 'text' %}{{ text }}{% endglasscache %}")
        assert template.render({"text": text}) == text

    def new_session(name):
        session = import_module(f"django.contrib.sessions.backends.{name}").SessionStore()
        session["text"] = text
        return session

    tries = []

    def use_cache_session():
        add = GlassCache.add
        GlassCache.add = lambda *arguments, **options: tries.append(1) or add(*arguments, **options)
        try:
            new_session("cache").create()
        except RuntimeError as error:
            assert "Unable to create a new session key" in str(error), error
        else:
            raise AssertionError("a session was created without a cache")
        assert len(tries) == 1, len(tries)

    def use_async_cache_session():
        async def create():
            await new_session("cache").acreate()
        try:
            asyncio.run(create())
        except RuntimeError as error:
            assert "Unable to create a new session key" in str(error), error
        else:
            raise AssertionError("a session was created without a cache")

    def use_cached_db_session():
        session = new_session("cached_db")
        session.create()
        session.save()
        assert import_module("django.contrib.sessions.backends.cached_db").SessionStore(
            session.session_key).get("text") == text

    for use in (use_sync, use_async, use_cached_page, use_fragments, use_cache_session,
                use_cached_db_session):
        timed(use)
    if django.VERSION >= (5, 1):
        timed(use_async_cache_session)
    print(json.dumps(seconds))
"""


def test_django_returns_what_the_program_made(condition: tuple[str, str]) -> None:
    pytest.importorskip("django")
    address, text = condition
    program, key_prefix = textwrap.dedent(DJANGO_PROGRAM), secrets.token_hex(8)
    completed = subprocess.run(
        [sys.executable, "-c", program, address, str(TIMEOUT_S), key_prefix],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr[-3000:]
    seconds = json.loads(completed.stdout)
    assert {name: time_s for name, time_s in seconds.items() if time_s > DEADLINE_S} == {}
