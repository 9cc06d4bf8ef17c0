"""The HTTP cache as WSGI middleware, over a real server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
from glasscache._chunks import CHUNK_BYTES, CHUNKS_PER_READ
from glasscache.web import CacheSettings, CacheWSGI, Rules

from web.harness import Clock, Reply, chunk_keys_of, key_of_url

if TYPE_CHECKING:
    from glasscache import Client


class Origin:
    """A WSGI application that counts its calls."""

    def __init__(self, respond: Any = None) -> None:
        self.respond = respond or (lambda environ: {"Cache-Control": "max-age=60"})
        self.calls = 0
        self.delay_s = 0.0
        self.closed_body_count = 0
        self._lock = threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        with self._lock:
            self.calls += 1
            number = self.calls
        time.sleep(self.delay_s)
        outcome = self.respond(environ)
        if isinstance(outcome, Exception):
            raise outcome
        status_line, headers, parts = (
            outcome
            if isinstance(outcome, tuple)
            else ("200 OK", outcome, [f"body {number}".encode()])
        )
        start_response(status_line, list(headers.items()))
        return StreamedBody(self, parts)


class StreamedBody:
    def __init__(self, origin: Origin, parts: Any) -> None:
        self._origin, self._parts = origin, parts

    def __iter__(self) -> Any:
        return iter(self._parts)

    def close(self) -> None:
        self._origin.closed_body_count += 1


def send_request(
    app: Any,
    url: str = "/",
    method: str = "GET",
    fields: dict[str, str] | None = None,
    **environ_entries: Any,
) -> Reply:
    path, _, query = url.partition("?")
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "SCRIPT_NAME": "",
        "SERVER_NAME": "shop.example", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": BytesIO(), "wsgi.errors": BytesIO(),
        "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
        "HTTP_HOST": "shop.example",
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in (fields or {}).items()},
        **environ_entries,
    }  # fmt: skip
    reply = Reply()

    def start_response(status_line: str, headers: Any, error: Any = None) -> Any:
        reply.status = int(status_line[:3])
        reply.fields = [(name.encode(), value.encode("latin-1")) for name, value in headers]

    parts = app(environ, start_response)
    try:
        reply.parts = list(parts)
    finally:
        if hasattr(parts, "close"):
            parts.close()
    return reply


def test_a_fresh_response_is_sent_from_the_store(glasscache_client: Client) -> None:
    origin = Origin()
    cache = CacheWSGI(origin, glasscache_client)
    assert send_request(cache, "/a").body == b"body 1"
    hit_reply = send_request(cache, "/a")
    assert (hit_reply.body, origin.calls, origin.closed_body_count) == (b"body 1", 1, 1)
    assert hit_reply.cache_status.startswith("glasscache; hit")
    assert send_request(cache, "/a", "POST").body == b"body 2"
    assert send_request(cache, "/a").body == b"body 3"
    assert send_request(cache, "/a", "HEAD").body == b""


def test_the_middleware_follows_the_wsgi_specification(glasscache_client: Client) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain"), ("Cache-Control", "max-age=60")])
        return [b"whole"]

    cache = validator(CacheWSGI(validator(app), glasscache_client))
    for _ in range(2):
        environ: dict[str, Any] = {}
        setup_testing_defaults(environ)
        environ["QUERY_STRING"] = ""
        parts = cache(environ, lambda status, headers, error=None: lambda data: None)
        assert list(parts) == [b"whole"]
        parts.close()


def test_many_misses_of_one_url_fetch_once(glasscache_client: Client) -> None:
    origin = Origin()
    origin.delay_s = 0.1
    caches = [CacheWSGI(origin, glasscache_client) for _ in range(2)]
    with ThreadPoolExecutor(20) as pool:
        bodies = {
            reply.body
            for reply in pool.map(lambda number: send_request(caches[number % 2], "/a"), range(20))
        }
    assert (bodies, origin.calls) == ({b"body 1"}, 1)


def test_a_stale_response_is_sent_while_a_thread_refreshes_it(glasscache_client: Client) -> None:
    clock = Clock(time.time())
    origin = Origin(lambda _: {"Cache-Control": "max-age=10, stale-while-revalidate=60"})
    cache = CacheWSGI(origin, glasscache_client)
    cache.shared.clock = clock
    send_request(cache)
    clock.now += 20
    assert send_request(cache).body == b"body 1"
    cache.settle()
    assert (send_request(cache).body, origin.calls) == (b"body 2", 2)


def test_a_failing_application_is_replaced_by_a_stale_response(glasscache_client: Client) -> None:
    clock = Clock(time.time())
    origin = Origin(lambda _: {"Cache-Control": "max-age=10, stale-if-error=60"})
    cache = CacheWSGI(origin, glasscache_client)
    cache.shared.clock = clock
    send_request(cache)
    clock.now += 20
    origin.respond = lambda _: OSError("no database")
    assert send_request(cache).body == b"body 1"
    with pytest.raises(OSError, match="no database"):
        send_request(cache, "/other")


def test_large_bodies_stream_and_are_stored_in_pieces(glasscache_client: Client) -> None:
    parts = [bytes([number]) * (CHUNK_BYTES // 2 + 7) for number in range(9)]
    origin = Origin(lambda _: ("200 OK", {"Cache-Control": "max-age=60"}, parts))
    cache = CacheWSGI(origin, glasscache_client)
    assert send_request(cache).parts == parts
    assert send_request(cache).body == b"".join(parts)
    reply = send_request(cache, fields={"Range": f"bytes={CHUNK_BYTES - 2}-{CHUNK_BYTES + 1}"})
    assert reply.body == b"".join(parts)[CHUNK_BYTES - 2 : CHUNK_BYTES + 2]
    assert origin.calls == 1


def test_a_chunk_that_is_lost_while_the_body_is_sent_breaks_one_reply_only(
    glasscache_client: Client,
) -> None:
    body = bytes(CHUNKS_PER_READ * CHUNK_BYTES + 7)
    origin = Origin(lambda _: ("200 OK", {"Cache-Control": "max-age=60"}, [body]))
    cache = CacheWSGI(origin, glasscache_client)
    path = "/a-chunk-is-lost"
    assert send_request(cache, path).body == body
    key = key_of_url(cache.shared, f"http://shop.example{path}")
    stored_record = glasscache_client.get(key)
    glasscache_client.delete(chunk_keys_of(cache.shared, key, stored_record)[CHUNKS_PER_READ])
    with pytest.raises(RuntimeError, match=r"a chunk .* was evicted"):
        send_request(cache, path)
    assert send_request(cache, path).body == body
    assert origin.calls == 2
    assert cache.shared.counters["lost_chunks"] == 1


def test_a_body_that_is_not_read_to_its_end_is_not_stored(glasscache_client: Client) -> None:
    origin = Origin(lambda _: ("200 OK", {"Cache-Control": "max-age=60"}, [b"a", b"b"]))
    cache = CacheWSGI(origin, glasscache_client)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "HTTP_HOST": "shop.example"}
    parts = cache(environ, lambda *_: None)
    assert next(iter(parts)) == b"a"
    parts.close()  # type: ignore[attr-defined]
    send_request(cache)
    assert origin.calls == 2


def test_rules_and_purges_are_those_of_asgi(glasscache_client: Client) -> None:
    rules = Rules.from_text('[[rule]]\nwhen = { path = "/admin/**" }\nthen = { bypass = true }')
    cache = CacheWSGI(Origin(), glasscache_client, rules, settings=CacheSettings(purge_token="t"))  # noqa: S106 - a test's own
    assert send_request(cache, "/admin/x").body != send_request(cache, "/admin/x").body
    first_body = send_request(cache, "/a").body
    assert send_request(cache, "/a").body == first_body
    assert send_request(cache, "/a", "PURGE", {"Authorization": "Bearer t"}).status == 200
    assert send_request(cache, "/a").body != first_body
