"""Results of FastAPI and Starlette endpoints kept in the cache, with stampede protection and tags.

    @app.get("/lamps/{number}")
    @cached_response(client, ttl=60, stale=30, tags=["lamps"])
    async def lamp(number: int): ...

The key is the endpoint and its arguments, except responses and background tasks. An endpoint that takes the
request says what of it belongs to the key, `vary=lambda request: request.headers.get("x-plan")`, or that
nothing does, `ignore=["request"]`. A whole response with headers belongs to `glasscache.web.CacheASGI`; this
keeps what the function returns.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import typing
from typing import TYPE_CHECKING, Any

try:
    from starlette.background import BackgroundTasks
    from starlette.concurrency import run_in_threadpool
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
    vary: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator of an endpoint that keeps what it returns, as JSON has it.

    A `def` endpoint runs in Starlette's thread pool, as without the decorator.

    Args:
        client: an `AsyncClient`.
        ttl: seconds for which a result is fresh; None for ever.
        stale: seconds beyond, in which one request makes it anew and the others get the old one.
        tags: tags by which `client.invalidate_tag` removes results.
        ignore: arguments that do not belong to the key, such as a database session.
        vary: returns what of the request the result depends on, as text, numbers or lists of them.
        options: others of `client.cached`.

    The decorated endpoint has `invalidate`, `refresh` and `cache_info`, as functions of `client.cached`.

    Raises:
        TypeError: the endpoint takes the request, and nothing says what of it belongs to the key; at a call,
            if it returns a `Response`: that is for `CacheASGI`.

    """

    def decorate(endpoint: Callable[..., Any]) -> Any:
        requests = _arguments_of_types(endpoint, (HTTPConnection,), ("Request", "HTTPConnection"))
        if vary is None and "key" not in options and not set(requests) <= set(ignore):
            raise TypeError(_unkeyed_request_text(endpoint, requests[0]))
        others = _arguments_of_types(
            endpoint, (Response, BackgroundTasks), ("Response", "BackgroundTasks")
        )
        ignored = [*ignore, *requests, *others]
        call_endpoint = (
            endpoint
            if inspect.iscoroutinefunction(endpoint)
            else functools.partial(run_in_threadpool, endpoint)
        )

        @functools.wraps(endpoint)
        async def json_endpoint(*args: Any, **kwargs: Any) -> Any:
            value = await call_endpoint(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            if isinstance(value, Response):
                name = getattr(endpoint, "__qualname__", "endpoint")
                raise TypeError(f"{name} returned a Response: glasscache.web.CacheASGI keeps those")
            return _as_json(value)

        if vary is not None:
            options["key"] = _varied_key(client, json_endpoint, ignored, requests, vary)
        return client.cached(ttl=ttl, stale=stale, tags=list(tags), ignore=ignored, **options)(
            json_endpoint
        )

    return decorate


def _unkeyed_request_text(endpoint: Callable[..., Any], argument: str) -> str:
    name = getattr(endpoint, "__qualname__", "endpoint")
    return (
        f"{name} takes the request as {argument!r}, and nothing of it is in the key: every client would get "
        "what the first one's request made; write vary=lambda request: ... with what the result depends on, "
        f"or ignore=[{argument!r}] if it depends on nothing of it"
    )


def _varied_key(
    client: AsyncClient,
    endpoint: Callable[..., Any],
    ignored: list[str],
    requests: list[str],
    vary: Callable[[Any], Any],
) -> Callable[..., str]:
    """Return a function that makes the key of a call, with what `vary` finds in its requests."""
    keyed_endpoint: Any = client.cached(ttl=0, ignore=ignored)(endpoint)
    signature = inspect.signature(endpoint)

    def make_key(*args: Any, **kwargs: Any) -> str:
        arguments = signature.bind(*args, **kwargs).arguments
        values = [vary(arguments[name]) for name in requests if name in arguments]
        digest = hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=12)
        return f"{keyed_endpoint.cache_key(*args, **kwargs)}:{digest.hexdigest()}"

    return make_key


def _arguments_of_types(
    endpoint: Callable[..., Any], types: tuple[type, ...], type_names: tuple[str, ...]
) -> list[str]:
    """Return the names of arguments of some types, by their annotations, which may be texts."""
    try:
        hints = typing.get_type_hints(endpoint)
    except (NameError, TypeError):
        hints = {}
    names: list[str] = []
    for name, parameter in inspect.signature(endpoint).parameters.items():
        annotation = hints.get(name, parameter.annotation)
        if annotation is inspect.Parameter.empty:
            is_meant = name == "request" and "Request" in type_names
        elif isinstance(annotation, str):
            is_meant = not set(re.findall(r"\w+", annotation)).isdisjoint(type_names)
        else:
            members = typing.get_args(annotation) or (annotation,)
            is_meant = any(
                inspect.isclass(member) and issubclass(member, types) for member in members
            )
        if is_meant:
            names.append(name)
    return names


def _as_json(value: Any) -> Any:
    try:
        from fastapi.encoders import jsonable_encoder  # noqa: PLC0415 - Starlette has none
    except ImportError:
        return value
    return jsonable_encoder(value)
