"""Middleware: each HTTP request is a request of a client, which runs its strategy and records it.

    app = RequestASGI(app, client)

`glasscache.contrib.django.request_middleware` does the same in Django.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from contextlib import AbstractContextManager

    from glasscache._types import Key

__all__ = ["RequestASGI", "RequestWSGI"]


class SupportsRequests(Protocol):
    """A client or a recorder."""

    def request(
        self, page: Key | None = None, route: str | None = None
    ) -> AbstractContextManager[None]:
        """Make what happens inside the block one request."""
        ...

    def set_route(self, route: str) -> None:
        """Name the kind of the current request."""
        ...


class RequestASGI:
    """ASGI middleware that makes each HTTP request a request of a client.

    Args:
        app: the application.
        client: whose strategy the request runs, and whose recorder records it; a `Recorder` alone will do.
        page: returns the key of the item that the request is about, or None, given the scope.
        route: returns the kind of request, given the scope; the default is the path of the route that
            Starlette or FastAPI found, or None.

    """

    def __init__(  # noqa: D107 - the class has it
        self,
        app: Callable[..., Awaitable[None]],
        client: SupportsRequests,
        *,
        page: Callable[[MutableMapping[str, Any]], Key | None] | None = None,
        route: Callable[[MutableMapping[str, Any]], str | None] | None = None,
    ) -> None:
        self._app = app
        self._client = client
        self._page = page
        self._route = route or _asgi_route

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Run the application, within a request of the client if it is an HTTP request."""
        if scope.get("type") != "http":
            return await self._app(scope, receive, send)
        page = self._page(scope) if self._page else None
        with self._client.request(page=page):
            try:
                await self._app(scope, receive, send)
            finally:
                # The router has found the route only now.
                if route := self._route(scope):
                    self._client.set_route(route)


def _asgi_route(scope: MutableMapping[str, Any]) -> str | None:
    return cast("str | None", getattr(scope.get("route"), "path", None))


class RequestWSGI:
    """WSGI middleware that makes each HTTP request a request of a client, until its body has been read.

    Args:
        app: the application.
        client: whose strategy the request runs, and whose recorder records it; a `Recorder` alone will do.
        page: returns the key of the item that the request is about, or None, given the environment.
        route: returns the kind of request, given the environment; None by default.

    """

    def __init__(  # noqa: D107 - the class has it
        self,
        app: Callable[..., Iterable[bytes]],
        client: SupportsRequests,
        *,
        page: Callable[[dict[str, Any]], Key | None] | None = None,
        route: Callable[[dict[str, Any]], str | None] | None = None,
    ) -> None:
        self._app = app
        self._client = client
        self._page = page
        self._route = route

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Run the application within a request of the client."""
        page = self._page(environ) if self._page else None
        with self._client.request(page=page):
            body = self._app(environ, start_response)
            try:
                yield from body
            finally:
                if close := getattr(body, "close", None):
                    close()
                if self._route and (route := self._route(environ)):
                    self._client.set_route(route)
