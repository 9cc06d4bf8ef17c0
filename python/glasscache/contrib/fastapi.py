"""Results of FastAPI and Starlette endpoints kept in the cache, with stampede protection and tags.

    @app.get("/lamps/{number}")
    @cached_response(client, ttl=60, stale=30, tags=["lamps"])
    async def lamp(number: int): ...

The key is the endpoint and its arguments, except requests, responses and background tasks. A whole response
with headers belongs to `glasscache.web.CacheASGI`; this keeps what the function returns.
"""

from __future__ import annotations

import functools
import inspect
import typing
from typing import TYPE_CHECKING, Any

try:
    from starlette.background import BackgroundTasks
    from starlette.requests import HTTPConnection
    from starlette.responses import Response
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "glasscache.contrib.fastapi needs the package starlette or fastapi"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glasscache.aio import AsyncClient

__all__ = ["cached_response"]


def cached_response(
    client: AsyncClient,
    *,
    ttl: float | None,
    stale: float = 0,
    tags: Sequence[str] = (),
    ignore: Sequence[str] = (),
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator of an endpoint that keeps what it returns, as JSON has it.

    Args:
        client: an `AsyncClient`.
        ttl: seconds for which a result is fresh; None for ever.
        stale: seconds beyond, in which one request makes it anew and the others get the old one.
        tags: tags by which `client.invalidate_tag` removes results.
        ignore: arguments that do not belong to the key, such as a database session.
        options: others of `client.cached`.

    The decorated endpoint has `invalidate`, `refresh` and `cache_info`, as functions of `client.cached`.

    Raises:
        TypeError: at a call, if the endpoint returns a `Response`: that is for `CacheASGI`.

    """

    def decorate(endpoint: Callable[..., Any]) -> Any:
        ignored = [*ignore, *_request_arguments(endpoint)]

        @functools.wraps(endpoint)
        async def json_endpoint(*args: Any, **kwargs: Any) -> Any:
            value = endpoint(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            if isinstance(value, Response):
                name = getattr(endpoint, "__qualname__", "endpoint")
                raise TypeError(f"{name} returned a Response: glasscache.web.CacheASGI keeps those")
            return _as_json(value)

        return client.cached(ttl=ttl, stale=stale, tags=list(tags), ignore=ignored, **options)(
            json_endpoint
        )

    return decorate


def _request_arguments(endpoint: Callable[..., Any]) -> list[str]:
    """Return the names of arguments that differ from request to request."""
    try:
        hints = typing.get_type_hints(endpoint)
    except (NameError, TypeError):
        hints = {}
    request_types = (HTTPConnection, Response, BackgroundTasks)
    return [
        name
        for name, annotation in hints.items()
        if name != "return"
        and inspect.isclass(annotation)
        and issubclass(annotation, request_types)
    ]


def _as_json(value: Any) -> Any:
    try:
        from fastapi.encoders import jsonable_encoder  # noqa: PLC0415 - Starlette has none
    except ImportError:
        return value
    return jsonable_encoder(value)
