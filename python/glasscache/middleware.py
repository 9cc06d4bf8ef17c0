"""Middleware: each HTTP request is a request of a client, which runs its strategy and records it.

    app = RequestASGI(app, client)

`glasscache.contrib.django.request_middleware` does the same in Django.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol, cast

from glasscache._native import UnrecordedBlock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from contextlib import AbstractContextManager

    from glasscache._types import Key

__all__ = ["RequestASGI", "RequestWSGI"]

_log = logging.getLogger("glasscache")


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


class _RequestNaming:
    """The functions of an application that name the page and the route of each request.

    Where one of them fails, or what it returns cannot be a name, the request goes on without it.
    That is logged once.
    """

    def __init__(
        self,
        client: SupportsRequests,
        page: Callable[[Any], Key | None] | None,
        route: Callable[[Any], str | None] | None,
    ) -> None:
        self._client = client
        self._page_of = page
        self._route_of = route
        self._logged_arguments: set[str] = set()

    def begin_request(self, http_request: Any) -> AbstractContextManager[None] | None:
        """Return the block of a request, given its scope or environment; None if nobody notes it."""
        block = self._client.request() if self._page_of is None else self._begin_page(http_request)
        # Most requests are not recorded: entering a block and naming its route takes longer than this.
        return None if block.__class__ is UnrecordedBlock else block

    def _begin_page(self, http_request: Any) -> AbstractContextManager[None]:
        if self._page_of is not None:
            try:
                return self._client.request(page=self._page_of(http_request))
            except Exception:  # noqa: BLE001 - neither a function of the user's nor a page may fail a request
                self._log_once("page")
        return self._client.request()

    def set_route(self, http_request: Any) -> None:
        """Name the route of the current request, given its scope or environment."""
        if self._route_of is not None:
            try:
                if route := self._route_of(http_request):
                    self._client.set_route(route)
            except Exception:  # noqa: BLE001 - likewise
                self._log_once("route")

    def _log_once(self, argument: str) -> None:
        if argument not in self._logged_arguments:
            self._logged_arguments.add(argument)
            _log.exception("%s= of the middleware failed; requests go on without it", argument)


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
        self._request_naming = _RequestNaming(client, page, route or _asgi_route)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Run the application, within a request of the client if it is an HTTP request."""
        if scope.get("type") != "http":
            return await self._app(scope, receive, send)
        block = self._request_naming.begin_request(scope)
        if block is None:
            return await self._app(scope, receive, send)
        with block:
            try:
                await self._app(scope, receive, send)
            finally:
                # The router has found the route only now.
                self._request_naming.set_route(scope)


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
        self._request_naming = _RequestNaming(client, page, route)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Run the application within a request of the client."""
        block = self._request_naming.begin_request(environ)
        if block is None:
            return self._app(environ, start_response)
        return self._body_within(block, environ, start_response)

    def _body_within(
        self, block: AbstractContextManager[None], environ: dict[str, Any], start_response: Any
    ) -> Iterable[bytes]:
        with block:
            body = self._app(environ, start_response)
            try:
                yield from body
            finally:
                if close := getattr(body, "close", None):
                    close()
                self._request_naming.set_route(environ)
