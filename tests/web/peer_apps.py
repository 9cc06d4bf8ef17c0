"""The same page of 2,000 bytes under each HTTP cache that is compared, as factories for uvicorn.

For each cache there is also its framework without the cache, so that the cache alone can be compared. `/runs`
responds with how often the page was made, which must be once.
"""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PAGE = "x" * 2000
TTL_S = 600
_page_render_count = 0


async def empty(scope: Any, receive: Any, send: Any) -> None:
    """Respond to `/page` with the page, which may be stored."""
    global _page_render_count  # noqa: PLW0603 - one process, one counter
    if scope["type"] != "http":
        return
    fields = [(b"content-type", b"text/html")]
    body = b""
    if scope["path"] == "/page":
        _page_render_count += 1
        fields.append((b"cache-control", b"max-age=%d" % TTL_S))
        body = PAGE.encode()
    elif scope["path"] == "/runs":
        fields.append((b"cache-control", b"no-store"))
        body = b"%d" % _page_render_count
    fields.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def glasscache() -> Any:
    """Return the application with the cache of this package."""
    from glasscache import AsyncClient
    from glasscache.web import CacheASGI

    return CacheASGI(empty, AsyncClient(os.environ["STORE"], timeout=5))


def bare_read() -> Any:
    """Return the page after a read of two keys by a plain protocol, the least that a cache needs."""
    import asyncio

    from glasscache import Client

    host, _, port = os.environ["STORE"].rpartition(":")
    with Client(os.environ["STORE"]) as client:
        client.set_many({"floor:purges": b"p" * 65, "floor:page": b"r" * 200})

    class Reads(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.received = transport, b""

        def read(self) -> asyncio.Future[bytes]:
            self.reply, self.received = asyncio.get_running_loop().create_future(), b""
            self.transport.write(b"get floor:purges floor:page\r\n")
            return self.reply

        def data_received(self, data: bytes) -> None:
            self.received += data
            if self.received.endswith(b"END\r\n"):
                self.reply.set_result(self.received)

    connections: list[Reads] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if not connections:
            loop = asyncio.get_running_loop()
            connections.append((await loop.create_connection(Reads, host, int(port)))[1])
        await connections[0].read()
        fields = [
            (b"content-type", b"text/html"), (b"cache-control", b"max-age=%d" % TTL_S),
            (b"content-length", b"2000"), (b"age", b"1"),
            (b"cache-status", b"glasscache; hit; ttl=599"),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b"x" * 2000})

    return app


def hishel_redis() -> Any:
    """Return the application with the cache of hishel, over Redis."""
    from hishel import AsyncRedisStorage
    from hishel.asgi import ASGICacheMiddleware
    from redis.asyncio import Redis

    logging.getLogger("hishel").setLevel(
        logging.CRITICAL
    )  # it warns when requests store the same at once
    storage = AsyncRedisStorage(Redis(port=int(os.environ["REDIS"])))
    return ASGICacheMiddleware(empty, storage=storage)


def fastapi() -> Any:
    """Return the page as an endpoint of FastAPI."""
    return _fastapi(lambda: None)


def fastapi_cache_redis() -> Any:
    """Return the endpoint under fastapi-cache, over Redis."""

    def backend() -> Any:
        from fastapi_cache.backends.redis import RedisBackend
        from redis.asyncio import Redis

        return RedisBackend(Redis(port=int(os.environ["REDIS"])))

    return _fastapi(backend)


def fastapi_cache_memcached() -> Any:
    """Return the endpoint under fastapi-cache, over memcached."""

    def backend() -> Any:
        import aiomcache
        from fastapi_cache.backends.memcached import MemcachedBackend

        return MemcachedBackend(aiomcache.Client("127.0.0.1", int(os.environ["MEMCACHED"])))

    return _fastapi(backend)


def _fastapi(make_backend: Any) -> Any:
    from fastapi import FastAPI
    from fastapi_cache import FastAPICache
    from fastapi_cache.decorator import cache

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        backend = make_backend()
        if backend is not None:
            FastAPICache.init(backend)
        yield

    app = FastAPI(lifespan=lifespan)

    async def page() -> str:
        global _page_render_count  # noqa: PLW0603 - likewise
        _page_render_count += 1
        return PAGE

    async def respond_with_render_count() -> int:
        return _page_render_count

    async def respond_empty() -> str:
        return ""

    is_cached = make_backend() is not None
    app.get("/page")(cache(expire=TTL_S)(page) if is_cached else page)
    app.get("/runs")(respond_with_render_count)
    app.get("/empty")(respond_empty)
    return app


def django() -> Any:
    """Return the page as a view of Django."""
    return _django([])


def django_memcached() -> Any:
    """Return the view under Django's cache middleware, over memcached."""
    return _django(
        [
            "django.middleware.cache.UpdateCacheMiddleware",
            "django.middleware.cache.FetchFromCacheMiddleware",
        ]
    )


def _django(middleware: list[str]) -> Any:
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="peer_apps",
        MIDDLEWARE=middleware,
        CACHE_MIDDLEWARE_SECONDS=TTL_S,
        CACHES={
            "default": {
                "BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
                "LOCATION": f"127.0.0.1:{os.environ['MEMCACHED']}",
            }
        },
    )
    from django.core.asgi import get_asgi_application
    from django.http import HttpResponse
    from django.urls import path
    from django.views.decorators.cache import never_cache

    async def page(_: Any) -> Any:
        global _page_render_count  # noqa: PLW0603 - likewise
        _page_render_count += 1
        return HttpResponse(PAGE)

    @never_cache
    async def respond_with_render_count(_: Any) -> Any:
        return HttpResponse(str(_page_render_count))

    @never_cache
    async def respond_empty(_: Any) -> Any:
        return HttpResponse(b"")

    urlpatterns.extend(
        [path("page", page), path("runs", respond_with_render_count), path("empty", respond_empty)]
    )
    return get_asgi_application()


urlpatterns: list[Any] = []
"""Django's routes, which it reads from this module."""
