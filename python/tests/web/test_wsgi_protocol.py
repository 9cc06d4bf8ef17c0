"""PEP 3333 to the letter: `exc_info`, a second head, `write`, closing; and fetches that always end."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from glasscache.web import CacheSettings, CacheWSGI

from web.harness import Clock, key_of_url
from web.test_fetch_owners import AT_ONCE_S
from web.test_wsgi import Origin, send_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glasscache import Client

FRESH = [("Content-Type", "text/plain"), ("Cache-Control", "max-age=60")]
SETTINGS = CacheSettings(lease=5)
ERROR = [("Content-Type", "text/html")]


class WSGIServer:
    """The server's side of PEP 3333: sends a head with its first bytes, and raises for a second one."""

    def __init__(self) -> None:
        self.head: tuple[str, list[tuple[str, str]]] | None = None
        self.sent: list[bytes] = []

    def start_response(self, status: str, fields: Any, exc_info: Any = None) -> Callable[..., Any]:
        if exc_info:
            if self.sent:
                raise exc_info[1].with_traceback(exc_info[2])
        elif self.head is not None:
            raise AssertionError("a second head")
        if any("\n" in value for _, value in fields):
            raise ValueError("invalid header")
        self.head = status, fields
        return self._send

    def _send(self, data: bytes) -> None:
        assert self.head is not None
        if data:
            self.sent.append(data)

    def run(self, app: Any, path: str = "/") -> tuple[str, bytes]:
        parts = app(environ_of(path), self.start_response)
        try:
            for part in parts:
                self._send(part)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        assert self.head is not None
        return self.head[0], b"".join(self.sent)


def environ_of(path: str) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": "", "SCRIPT_NAME": "",
        "HTTP_HOST": "shop.example", "wsgi.url_scheme": "http",
    }  # fmt: skip


def failing_app(when: str) -> Any:
    def replace_head(start_response: Any) -> None:
        try:
            1 / 0  # noqa: B018 - the database goes away
        except ZeroDivisionError:
            start_response("500 Internal Server Error", ERROR, sys.exc_info())

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", FRESH)
        if when == "before the body":
            replace_head(start_response)
            yield b"error page"
        elif when == "after an empty block":
            yield b""
            replace_head(start_response)
            yield b"error page"
        else:
            yield b"first half"
            replace_head(start_response)
            yield b"error page"

    return app


@pytest.mark.parametrize("when", ["before the body", "after an empty block", "in the body"])
def test_an_error_page_replaces_the_head_or_ends_the_response_as_without_the_cache(
    glasscache_client: Client, when: str
) -> None:
    cache = CacheWSGI(failing_app(when), glasscache_client, settings=SETTINGS)
    for _ in range(2):
        outcomes: list[Any] = []
        for app in (failing_app(when), cache):
            try:
                outcomes.append(WSGIServer().run(app))
            except ZeroDivisionError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
    assert (cache.counters["stored"], len(cache._single_flight)) == (0, 0)


def test_a_second_head_without_an_error_is_refused(glasscache_client: Client) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", FRESH)
        start_response("404 Not Found", FRESH)
        return [b"which?"]

    cache = CacheWSGI(app, glasscache_client, settings=SETTINGS)
    with pytest.raises(AssertionError, match="exc_info"):
        WSGIServer().run(cache)
    assert (cache.counters["stored"], len(cache._single_flight)) == (0, 0)


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_block_that_is_written_is_sent_at_once(
    glasscache_client: Client, is_stored: bool
) -> None:
    server, sent_after_writes = WSGIServer(), []
    call_count = 0

    def app(environ: Any, start_response: Any) -> list[bytes]:
        nonlocal call_count
        call_count += 1
        write = start_response("200 OK", FRESH if is_stored else ERROR)
        write(b"one, ")
        sent_after_writes.append(b"".join(server.sent))
        write(b"two, ")
        sent_after_writes.append(b"".join(server.sent))
        return [b"three"]

    cache = CacheWSGI(app, glasscache_client, settings=SETTINGS)
    assert server.run(cache) == ("200 OK", b"one, two, three")
    assert sent_after_writes == [b"one, ", b"one, two, "]
    assert WSGIServer().run(cache) == ("200 OK", b"one, two, three")
    assert call_count == (1 if is_stored else 2)


def test_a_written_response_is_replaced_where_a_stored_one_is_sent(
    glasscache_client: Client,
) -> None:
    clock, status = Clock(time.time()), "200 OK"

    def app(environ: Any, start_response: Any) -> list[bytes]:
        headers = [("Cache-Control", "max-age=10, stale-if-error=600")]
        start_response(status, headers if status[0] == "2" else [])(b"written ")
        return [b"and returned"]

    cache = CacheWSGI(app, glasscache_client, settings=SETTINGS)
    cache.shared.clock = clock
    whole = WSGIServer().run(cache)
    clock.now, status = clock.now + 20, "503 Service Unavailable"
    assert WSGIServer().run(cache) == whole == ("200 OK", b"written and returned")


def test_an_application_that_fails_in_its_first_block_is_replaced_by_a_stored_response(
    glasscache_client: Client,
) -> None:
    clock, fails = Clock(time.time()), False

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Cache-Control", "max-age=10, stale-if-error=600")])
        if fails:
            raise OSError("no database")
        yield b"whole"

    cache = CacheWSGI(app, glasscache_client, settings=SETTINGS)
    cache.shared.clock = clock
    assert WSGIServer().run(cache)[1] == b"whole"
    clock.now, fails = clock.now + 20, True
    assert WSGIServer().run(cache) == ("200 OK", b"whole")


class WorkerStops(BaseException):
    """As gevent.Timeout, or what a worker raises that is told to stop a request."""


@pytest.mark.parametrize("raised_class", [WorkerStops, SystemExit, KeyboardInterrupt, ValueError])
@pytest.mark.parametrize(
    "where", ["application", "head", "first block", "block", "server", "client", "close"]
)
def test_however_a_request_ends_the_next_does_not_wait(
    glasscache_client: Client, where: str, raised_class: type[BaseException]
) -> None:
    is_broken = True

    def break_at(position: str) -> None:
        if is_broken and where == position:
            raise raised_class

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            break_at("first block")
            yield b"first "
            break_at("block")
            yield b"second"

        def close(self) -> None:
            break_at("close")

    def app(environ: Any, start_response: Any) -> Body:
        break_at("application")
        bad_field = [("X-A", "a\nb")] if is_broken and where == "head" else []
        start_response("200 OK", [*FRESH, *bad_field])
        return Body()

    class BrokenServer(WSGIServer):
        def start_response(self, *arguments: Any) -> Any:
            break_at("server")
            return super().start_response(*arguments)

        def _send(self, data: bytes) -> None:
            break_at("client")
            super()._send(data)

    cache = CacheWSGI(app, glasscache_client, settings=SETTINGS)
    with pytest.raises((raised_class, ValueError)):
        BrokenServer().run(cache)
    assert len(cache._single_flight) == 0
    is_broken = False
    began_at = time.monotonic()
    assert WSGIServer().run(cache) == ("200 OK", b"first second")
    assert time.monotonic() - began_at < AT_ONCE_S


@pytest.mark.parametrize("kind", ["generator", "list", "length"])
def test_a_client_that_does_not_read_delays_no_other(glasscache_client: Client, kind: str) -> None:
    part, part_count = bytes(50_000), 1 if kind == "length" else 20
    call_count = 0

    def app(environ: Any, start_response: Any) -> Any:
        nonlocal call_count
        call_count += 1
        length = [("Content-Length", str(len(part)))] if kind == "length" else []
        start_response("200 OK", [*FRESH, *length])
        parts = [part] * part_count
        return parts if kind == "list" else iter(parts)

    cache = CacheWSGI(app, glasscache_client, settings=SETTINGS)
    slow = cache(environ_of("/a"), WSGIServer().start_response)
    slow_parts = iter(slow)
    received = next(slow_parts)
    for number in range(3):
        began_at = time.monotonic()
        assert WSGIServer().run(cache, "/a") == ("200 OK", part * part_count)
        assert time.monotonic() - began_at < AT_ONCE_S, number
    assert call_count == (2 if kind == "generator" else 1)
    assert received + b"".join(slow_parts) == part * part_count
    slow.close()  # type: ignore[attr-defined]
    assert len(cache._single_flight) == 0


def test_a_response_that_is_not_stored_is_waited_for_up_to_its_head(
    glasscache_client: Client,
) -> None:
    may_end = threading.Event()
    headed = threading.Semaphore(0)

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        time.sleep(0.05)
        start_response("200 OK", [("Cache-Control", "no-store")])

        def body() -> Iterator[bytes]:
            yield b"first"
            may_end.wait(30)
            yield b"last"

        return body()

    cache = CacheWSGI(app, glasscache_client, settings=SETTINGS)

    class Client(WSGIServer):
        def _send(self, data: bytes) -> None:
            headed.release()

    threads = [threading.Thread(target=Client().run, args=(cache, "/d")) for _ in range(5)]
    for thread in threads:
        thread.start()
    try:
        assert all(headed.acquire(timeout=AT_ONCE_S) for _ in threads)
    finally:
        may_end.set()
        for thread in threads:
            thread.join()


def test_the_time_of_a_client_is_no_cost_of_a_response(glasscache_client: Client) -> None:
    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", FRESH)
        yield b"first "
        yield b"second"

    class SlowClient(WSGIServer):
        def _send(self, data: bytes) -> None:
            time.sleep(0.04)
            super()._send(data)

    cache = CacheWSGI(app, glasscache_client)
    SlowClient().run(cache)
    key = key_of_url(cache.shared, "http://shop.example/")
    record = cache.shared.decode_record(
        key, glasscache_client.get(key), bytes.fromhex(key.partition(":")[2])
    )
    assert record.cost_ms < 40  # type: ignore[union-attr]


def test_a_replaced_response_is_closed_after_the_stored_one_was_sent(
    glasscache_client: Client,
) -> None:
    clock, origin = Clock(time.time()), Origin()
    origin.respond = lambda _: {"Cache-Control": "max-age=10, stale-if-error=600", "ETag": '"a"'}
    cache = CacheWSGI(origin, glasscache_client)
    cache.shared.clock = clock
    send_request(cache)
    clock.now += 20
    origin.respond = lambda _: ("304 Not Modified", {}, [])
    parts = cache(environ_of("/"), WSGIServer().start_response)
    assert list(parts) == [b"body 1"]
    assert origin.closed_body_count == 1
    parts.close()  # type: ignore[attr-defined]
    assert origin.closed_body_count == 2
