"""Django middleware: each HTTP request is a request of the caches' clients."""

from __future__ import annotations

import contextlib
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.core.cache import caches
from django.utils.decorators import sync_and_async_middleware

from glasscache._native import UnrecordedBlock
from glasscache.contrib._django_async import AsyncCacheMethods

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from contextlib import AbstractContextManager

__all__ = ["request_middleware"]


def _clients_of_all_caches(is_async: bool) -> Iterable[Any]:
    """Return the clients of every cache of ours; threads of an async request use the blocking ones."""
    for cache in caches.all(initialized_only=False):
        if isinstance(cache, AsyncCacheMethods):
            yield from cache.clients(is_async)


def _begin_requests(clients: list[Any]) -> list[AbstractContextManager[None]]:
    """Return the blocks of a request: of those clients that note anything of it."""
    blocks: list[AbstractContextManager[None]] = []
    recorders: list[Any] = []
    for client in clients:
        # The clients of one cache have one recorder, for which this is one request.
        is_request_begun = client._recorder in recorders  # noqa: SLF001 - of this package
        block = client._request_block() if is_request_begun else client.request()  # noqa: SLF001
        if not isinstance(block, UnrecordedBlock):
            blocks.append(block)
        if client._recorder is not None:  # noqa: SLF001
            recorders.append(client._recorder)  # noqa: SLF001
    return blocks


@contextlib.contextmanager
def _within(
    blocks: list[AbstractContextManager[None]], clients: list[Any], request: Any
) -> Generator[None]:
    with contextlib.ExitStack() as stack:
        for block in blocks:
            stack.enter_context(block)
        try:
            yield
        finally:
            # The view has been resolved only now.
            if (resolver_match := getattr(request, "resolver_match", None)) is not None:
                for client in clients:
                    client.set_route(resolver_match.route)


@sync_and_async_middleware
def request_middleware(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make each HTTP request a request of the clients, so that their strategies and recorders see it.

    What a streaming response reads while it is sent is not part of the request: `RequestASGI` or
    `RequestWSGI` around the whole application includes it.

    MIDDLEWARE = ["glasscache.contrib.django.request_middleware", ...]
    """
    if iscoroutinefunction(get_response):

        async def async_middleware(request: Any) -> Any:
            clients = list(_clients_of_all_caches(is_async=True))
            if not (blocks := _begin_requests(clients)):
                return await get_response(request)
            with _within(blocks, clients, request):
                return await get_response(request)

        return async_middleware

    def sync_middleware(request: Any) -> Any:
        clients = list(_clients_of_all_caches(is_async=False))
        if not (blocks := _begin_requests(clients)):
            return get_response(request)
        with _within(blocks, clients, request):
            return get_response(request)

    return sync_middleware
