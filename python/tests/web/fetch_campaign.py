"""One process of the campaign of `test_fetch_campaign`: requests of random clients to random applications.

    fetch_campaign.py STORE asgi|wsgi SEED REQUESTS WAIT

Clients are slow, are cancelled, or leave; applications are slow, fail in every step, or cannot be stored. At
the end it prints as JSON: for how long requests waited until the application was called or a response began,
the fetches that are left, and the keys that it wrote to the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import sys
import threading
import time
from typing import Any

from glasscache import AsyncClient, Client
from glasscache.web import CacheASGI, CacheSettings, CacheWSGI

REQUESTS_PER_URL = 10
"""Of a process; the others ask for the same URLs at about the same time."""
CONCURRENT_REQUESTS = 6
BODY = bytes(20_000)
HEADS = [
    [("cache-control", "max-age=1")],
    [("cache-control", "max-age=1"), ("vary", "x-variant")],
    [("cache-control", "max-age=0, stale-while-revalidate=1, stale-if-error=2"), ("etag", '"a"')],
    [("cache-control", "max-age=0, must-revalidate"), ("etag", '"a"')],
    [("cache-control", "no-store")],
    [("content-type", "text/event-stream"), ("cache-control", "no-cache")],
    [("cache-control", "max-age=1"), ("content-length", "7")],
]
APPLICATION_ENDS = ["", "", "", "", "before the head", "after the head", "in the body", "no head"]
CLIENT_ENDS = ["", "", "", "slow", "cancelled", "cancelled", "leaves"]


class BrokenApplicationError(BaseException):
    """What no `except Exception` catches."""


class Recorder:
    """Notes the keys that a client writes."""

    def __init__(self, client: Any) -> None:
        """Wrap a client."""
        self._client, self.written_keys = client, set[str]()

    def __getattr__(self, name: str) -> Any:
        """Return a method of the client."""
        method = getattr(self._client, name)
        if name not in {"add", "set", "cas"}:
            return method

        def write(key: str, *arguments: Any, **options: Any) -> Any:
            self.written_keys.add(key)
            return method(key, *arguments, **options)

        return write


class Request:
    """One request of the campaign: what its client and its application do, and how long it waited."""

    def __init__(self, random_source: random.Random, number: int) -> None:
        """Choose."""
        url_number = number // (4 * REQUESTS_PER_URL) * 4 + random_source.randrange(4)
        self.path = f"/{url_number}"
        self.variant = random_source.choice("ab")
        self.client_end = random_source.choice(CLIENT_ENDS)
        self.client_s = random_source.expovariate(40)
        self.app_end = random_source.choice(APPLICATION_ENDS)
        self.app_s = random_source.expovariate(60)
        self.error_class = random_source.choice([ValueError, OSError, BrokenApplicationError])
        self.head = HEADS[url_number % len(HEADS)]
        if random_source.randrange(10) == 0:
            self.head = random_source.choice(HEADS)
        self.status = random_source.choice([200, 200, 200, 304, 404, 500, 503])
        self.part_count = random_source.choice([1, 1, 3, 12])
        self.began_at = time.monotonic()
        self.waited_s: float | None = None

    def note_progress(self) -> None:
        """Note that the request waits no longer."""
        if self.waited_s is None:
            self.waited_s = time.monotonic() - self.began_at

    def fail_at(self, step: str) -> None:
        """Raise where the application is to fail."""
        if self.app_end == step:
            raise self.error_class(step)


async def asgi_app(scope: Any, receive: Any, send: Any) -> None:
    """Do what the request of this scope has chosen."""
    request: Request = scope["campaign"]
    request.note_progress()
    await asyncio.sleep(request.app_s)
    request.fail_at("before the head")
    if request.app_end == "no head":
        return
    fields = [(name.encode(), value.encode()) for name, value in request.head]
    await send({"type": "http.response.start", "status": request.status, "headers": fields})
    request.fail_at("after the head")
    for _ in range(request.part_count):
        await send({"type": "http.response.body", "body": BODY, "more_body": True})
    request.fail_at("in the body")
    await send({"type": "http.response.body", "body": b""})
    await asyncio.sleep(request.app_s / 4)


async def send_asgi(cache: CacheASGI, request: Request) -> None:
    """Send a request as its client does."""
    scope = {
        "type": "http", "method": "GET", "path": request.path, "raw_path": request.path.encode(),
        "scheme": "http", "query_string": b"", "http_version": "1.1", "extensions": {},
        "headers": [(b"host", b"shop.example"), (b"x-variant", request.variant.encode())],
        "campaign": request,
    }  # fmt: skip

    async def send(message: Any) -> None:
        request.note_progress()
        if request.client_end == "slow":
            await asyncio.sleep(request.client_s)
        if request.client_end == "leaves" and message["type"] == "http.response.body":
            raise OSError("the client has left")

    running = asyncio.ensure_future(cache(scope, asyncio.Event().wait, send))
    if request.client_end == "cancelled":
        await asyncio.wait([running], timeout=request.client_s)
        running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _ignore_broken_applications(loop: asyncio.AbstractEventLoop) -> None:
    loop.set_exception_handler(lambda _loop, _context: None)


async def run_asgi(address: str, settings: CacheSettings, requests: list[Request]) -> Any:
    """Send the requests, some at a time."""
    _ignore_broken_applications(asyncio.get_running_loop())
    async with AsyncClient(address, timeout=10) as client:
        recorder = Recorder(client)
        cache = CacheASGI(asgi_app, recorder, settings=settings)  # type: ignore[arg-type]
        waiting = iter(requests)

        async def send_requests() -> None:
            for request in waiting:
                request.began_at = time.monotonic()
                await send_asgi(cache, request)

        await asyncio.gather(*(send_requests() for _ in range(CONCURRENT_REQUESTS)))
        await cache.settle()
        return cache, recorder


def wsgi_app(environ: Any, start_response: Any) -> Any:
    """Do what the request of this environ has chosen."""
    request: Request = environ["campaign"]
    request.note_progress()
    time.sleep(request.app_s)
    request.fail_at("before the head")
    if request.app_end == "no head":
        return []
    start_response(
        f"{request.status} Chosen", [(name.title(), value) for name, value in request.head]
    )
    request.fail_at("after the head")
    return _wsgi_body(request)


def _wsgi_body(request: Request) -> Any:
    for _ in range(request.part_count):
        yield BODY
    request.fail_at("in the body")


def send_wsgi(cache: CacheWSGI, request: Request) -> None:
    """Send a request as its client does; one that is cancelled is one that leaves after a while."""
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": request.path, "QUERY_STRING": "", "SCRIPT_NAME": "",
        "HTTP_HOST": "shop.example", "HTTP_X_VARIANT": request.variant, "wsgi.url_scheme": "http",
        "campaign": request,
    }  # fmt: skip

    def start_response(*arguments: Any) -> Any:
        request.note_progress()
        if request.client_end == "cancelled":
            raise BrokenApplicationError("the worker stops")
        return lambda _data: None

    parts: Any = ()
    try:
        parts = cache(environ, start_response)
        for _ in parts:
            if request.client_end == "slow":
                time.sleep(request.client_s * 4)
            if request.client_end == "leaves":
                break
    except BaseException:  # noqa: BLE001 - whatever was chosen
        request.note_progress()
    finally:
        with contextlib.suppress(BaseException):
            parts.close()


def run_wsgi(address: str, settings: CacheSettings, requests: list[Request]) -> Any:
    """Send the requests from some threads."""
    recorder = Recorder(Client(address, timeout=10))
    cache = CacheWSGI(wsgi_app, recorder, settings=settings)  # type: ignore[arg-type]
    waiting, lock = iter(requests), threading.Lock()

    def send_requests() -> None:
        while True:
            with lock:
                request = next(waiting, None)
            if request is None:
                return
            request.began_at = time.monotonic()
            send_wsgi(cache, request)

    threads = [threading.Thread(target=send_requests) for _ in range(CONCURRENT_REQUESTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.settle()
    return cache, recorder


def main() -> None:
    """Run the campaign of one process."""
    address, kind, seed, request_count, wait = sys.argv[1:]
    logging.disable()
    random_source = random.Random(int(seed))
    requests = [Request(random_source, number) for number in range(int(request_count))]
    settings = CacheSettings(lease=float(wait), wait=float(wait))
    if kind == "asgi":
        cache, recorder = asyncio.run(run_asgi(address, settings, requests))
    else:
        cache, recorder = run_wsgi(address, settings, requests)
    json.dump({
        "waits": [request.waited_s for request in requests if request.waited_s is not None],
        "fetches_left": len(cache._single_flight) + len(cache._refreshes),
        "keys": sorted(recorder.written_keys),
        "counters": dict(cache.counters),
    }, sys.stdout)  # fmt: skip


if __name__ == "__main__":
    main()
