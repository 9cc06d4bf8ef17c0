"""Endpoints, fragments and requests: FastAPI, Jinja2, Django, Flask-Caching, requests-cache."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client

if TYPE_CHECKING:
    from glasscache import Server


CALLS: list[str] = []
"""The requests that an endpoint has seen."""


class CountingClient:
    """A client that counts its calls."""

    def __init__(self, client: Client) -> None:
        self._client, self.calls = client, []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            return getattr(self._client, name)(*arguments, **options)

        return call


def test_a_page_of_jinja_fragments_is_read_by_one_request(glasscache_client: Client) -> None:
    jinja2 = pytest.importorskip("jinja2", reason="jinja2 is not installed")
    from glasscache.contrib.jinja import FragmentExtension, prefetch

    environment = jinja2.Environment(extensions=[FragmentExtension], autoescape=True)
    client: Any = CountingClient(glasscache_client)
    environment.glasscache = client
    rendered_numbers: list[int] = []
    template = environment.from_string(
        "{% for n in range(40) %}{% cache 'row', 300, n %}<b>{{ draw(n) }}</b>{% endcache %}{% endfor %}"
    )

    def render_fragment(number: int) -> str:
        rendered_numbers.append(number)
        return f"<{number}>"

    def render_page() -> str:
        with prefetch(client, "rows"):
            return str(template.render(draw=render_fragment))

    first_page = render_page()
    assert first_page.startswith("<b>&lt;0&gt;</b>")
    client.calls.clear()
    assert render_page() == first_page
    assert (client.calls, len(rendered_numbers)) == (["get_many"], 40)
    environment.glasscache = None
    assert render_page() == first_page


DJANGO_PROGRAM = """
    import sys
    import django
    from django.conf import settings
    settings.configure(
        CACHES={"default": {"BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": sys.argv[1]}},
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates",
                    "OPTIONS": {"libraries": {"fragments": "glasscache.contrib.django_fragments"}}}],
    )
    django.setup()
    from django.core.cache import cache
    from django.template import engines
    from glasscache.contrib.django_fragments import prefetch_fragments
    calls = []
    for name in ("get_many", "get_or_set"):
        def counted(*arguments, name=name, own=getattr(cache, name), **options):
            calls.append(name)
            return own(*arguments, **options)
        setattr(cache, name, counted)
    row = "{% glasscache 300 'row' n %}<i>{{ n }}</i>{% endglasscache %}"
    text = "{% load fragments %}{% for n in rows %}" + row + "{% endfor %}"
    template = engines["django"].from_string(text)
    def page():
        with prefetch_fragments("rows"):
            return template.render({"rows": range(40)})
    first = page()
    calls.clear()
    assert page() == first and first.startswith("<i>0</i><i>1</i>"), first
    print(",".join(calls))
"""


def test_a_tag_of_an_asyncio_environment_is_refused_when_the_template_is_read() -> None:
    jinja2 = pytest.importorskip("jinja2", reason="jinja2 is not installed")
    from glasscache.contrib.jinja import FragmentExtension

    environment = jinja2.Environment(extensions=[FragmentExtension], enable_async=True)
    with pytest.raises(jinja2.TemplateSyntaxError, match="enable_async"):
        environment.from_string("one\n{% cache 'row', 300 %}two{% endcache %}")
    assert environment.from_string("{{ 1 }}").render() == "1"


def test_a_plain_endpoint_leaves_the_event_loop_free(glasscache_server: Server) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    from fastapi import FastAPI
    from glasscache.contrib.fastapi import cached_response

    def slow(number: int) -> int:
        time.sleep(0.5)
        return number

    async def health() -> str:
        return "ok"

    async def main() -> float:
        async with AsyncClient(glasscache_server.address, timeout=20) as client:
            app = FastAPI()
            app.get("/slow/{number}")(cached_response(client, ttl=60)(slow))
            app.get("/health")(health)
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
                began_at = time.monotonic()
                tasks = [asyncio.create_task(browser.get(f"/slow/{number}")) for number in range(6)]
                await asyncio.sleep(0.05)
                await browser.get("/health")
                health_s = time.monotonic() - began_at
                replies = await asyncio.gather(*tasks)
                assert [reply.json() for reply in replies] == list(range(6))
                return health_s

    # One after the other in the loop they take three seconds.
    assert asyncio.run(main()) < 1.5


def test_a_page_of_django_fragments_is_read_by_one_request(glasscache_server: Server) -> None:
    pytest.importorskip("django", reason="django is not installed")
    command = [sys.executable, "-c", textwrap.dedent(DJANGO_PROGRAM), glasscache_server.address]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == "get_many"


async def test_an_endpoint_runs_once_for_requests_at_the_same_time(
    glasscache_server: Server,
) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    from fastapi import FastAPI, Request, Response
    from glasscache.contrib.fastapi import cached_response

    async with AsyncClient(glasscache_server.address, timeout=5) as client:
        app = FastAPI()
        CALLS.clear()

        async def lamp(number: int, request: Request) -> dict[str, Any]:
            CALLS.append(request.url.path)
            await asyncio.sleep(0.05)
            return {"number": number}

        async def whole_response(make_response: Any = Response) -> Response:
            return make_response("x")

        # Annotations of a function in a function are texts that FastAPI cannot resolve.
        lamp.__annotations__ = {"number": int, "request": Request}
        whole_response.__annotations__ = {}
        with pytest.raises(TypeError, match="lamp takes the request as 'request'"):
            cached_response(client, ttl=60)(lamp)
        options: Any = {"ttl": 60, "tags": ["lamps"], "ignore": ["request"]}
        cached_endpoint = cached_response(client, **options)(lamp)
        app.get("/lamps/{number}")(cached_endpoint)
        app.get("/whole")(cached_response(client, ttl=60)(whole_response))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
            replies = await asyncio.gather(*(browser.get("/lamps/7") for _ in range(20)))
            assert {reply.text for reply in replies} == {'{"number":7}'}
            assert len(CALLS) == 1
            await client.invalidate_tag("lamps")
            await browser.get("/lamps/7")
            assert len(CALLS) == 2
            with pytest.raises(TypeError, match="CacheASGI"):
                await browser.get("/whole")


async def test_an_endpoint_declares_what_of_the_request_is_in_its_key(
    glasscache_server: Server,
) -> None:
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    starlette_requests = pytest.importorskip("starlette.requests", reason="starlette is needed")
    from glasscache.contrib.fastapi import cached_response
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse

    async with AsyncClient(glasscache_server.address, timeout=5) as client:

        async def visitor_of(request) -> Any:  # type: ignore[no-untyped-def] # noqa: ANN001 - as many write it
            return {"who": request.cookies.get("session")}

        async def annotated(connection: Any) -> None: ...

        annotated.__annotations__ = {"connection": starlette_requests.HTTPConnection | None}

        async def in_texts(connection: Any, other: Any) -> None: ...

        in_texts.__annotations__ = {
            "connection": "Annotated[Request, 1] | None",
            "other": "Local",
        }
        for endpoint in (visitor_of, annotated, in_texts):
            with pytest.raises(TypeError, match="nothing of it is in the key"):
                cached_response(client, ttl=60)(endpoint)
        cached_visitor = cached_response(
            client, ttl=60, vary=lambda request: request.cookies.get("session")
        )(visitor_of)

        async def page(request: Any) -> JSONResponse:
            return JSONResponse(await cached_visitor(request))

        app = Starlette()
        app.add_route("/who", page)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
            for session in ("a", "b", "a", "b"):
                reply = await browser.get("/who", headers={"cookie": f"session={session}"})
                assert reply.json() == {"who": session}
        assert cached_visitor.cache_info().fills == 2


def test_flask_caching_takes_the_backend(glasscache_server: Server) -> None:
    flask = pytest.importorskip("flask", reason="flask is not installed")
    flask_caching = pytest.importorskip("flask_caching", reason="flask_caching is not installed")
    app = flask.Flask("shop")
    app.config["CACHE_TYPE"] = "glasscache.contrib.flask.flask_cache"
    app.config["CACHE_GLASSCACHE_SERVERS"] = glasscache_server.address
    app.config["CACHE_KEY_PREFIX"] = "flask:"
    cache = flask_caching.Cache(app)
    calls = []

    @app.route("/lamp")
    @cache.cached(timeout=60)
    def lamp() -> str:
        calls.append(1)
        return "lamp"

    @cache.memoize(60)
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    with app.test_client() as browser:
        assert [browser.get("/lamp").data for _ in range(3)] == [b"lamp"] * 3
    with app.app_context():
        assert [double(4), double(4)] == [8, 8]
        cache.delete_memoized(double, 4)
        assert double(4) == 8
        assert calls == [1, 4, 4]
        cache.clear()
        assert double(4) == 8


def test_requests_cache_keeps_responses_without_listing_keys(glasscache_server: Server) -> None:
    requests_cache = pytest.importorskip("requests_cache", reason="requests-cache is not installed")
    from glasscache.contrib.requests_cache import GlassCacheBackend

    with Client(glasscache_server.address, timeout=5) as client:
        backend = GlassCacheBackend(client, "test")
        responses = backend.responses
        responses["a"] = requests_cache.CachedResponse(status_code=200, content=b"hello")
        responses["b"] = requests_cache.CachedResponse(status_code=404)
        backend.redirects["r"] = "a"
        assert responses["a"].content == b"hello"
        assert "a" in responses
        assert "c" not in responses
        assert backend.redirects["r"] == "a"
        assert {
            key: response.status_code for key, response in backend.get_responses("abc").items()
        } == {
            "a": 200,
            "b": 404,
        }
        del responses["a"]
        with pytest.raises(KeyError):
            responses["a"]
        with pytest.raises(KeyError):
            del responses["a"]
        responses.bulk_delete(["b", "c"])
        responses["d"] = requests_cache.CachedResponse()
        responses.clear()
        assert responses.get("d") is None
        for listing_function in (iter, len):
            with pytest.raises(NotImplementedError, match="cannot list"):
                listing_function(responses)


def test_requests_cache_with_an_unreachable_server_has_misses() -> None:
    pytest.importorskip("requests_cache", reason="requests-cache is not installed")
    from glasscache.contrib.requests_cache import GlassCacheBackend

    with Client("127.0.0.1:1", timeout=0.2, on_error="miss") as client:
        redirects = GlassCacheBackend(client, "test").redirects
        redirects["r"] = "a"
        assert "r" not in redirects
        assert redirects.get_many(["r", "s"]) == {}
        redirects.bulk_delete(["r"])
