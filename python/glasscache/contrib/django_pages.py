"""Views of Django whose responses are kept, with tags and one rendering at a time.

    @cached_page(60, stale=30, tags=lambda request, number: ["products", f"product-{number}"])
    def product(request, number): ...

    invalidate_tag("product-17")

Django's own `cache_page` has neither. A response is kept only if every visitor with the same URL, language
and `vary_on` headers may have it: status 200 to a GET, no cookie set, its Cache-Control permits it, it has
no Vary on another header. The view must not have used the visitor's session, user, cookies, messages or
CSRF token: Django adds their `Vary: Cookie` after the view has returned, so their use is looked at here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from django.core.cache import caches
from django.http import HttpResponse
from django.utils.translation import get_language

from glasscache._refresh import GetOrSetOptions
from glasscache._steps import carry_out
from glasscache.tags import tagged_key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from django.http import HttpRequest

    from glasscache import Client

__all__ = ["cached_page", "invalidate_tag"]

_UNCACHEABLE_S: Final = 10
"""So long requests for a response that could not be kept do not wait for each other."""
_UNCACHEABLE_KEYS_MAX: Final = 4096
_NO_CACHE_DIRECTIVES: Final = frozenset({"no-store", "no-cache", "private"})


class _Uncacheable(Exception):
    """Carries a response past the cache."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__("the response is not for everyone")
        self.response = response


class _RecentlyUncacheable:
    """Keys whose responses were not kept a moment ago."""

    def __init__(self) -> None:
        self._uncacheable_until: dict[str, float] = {}
        self._lock = threading.Lock()

    def __contains__(self, key: str) -> bool:
        return self._uncacheable_until.get(key, 0) > time.monotonic()

    def add(self, key: str) -> None:
        with self._lock:
            if len(self._uncacheable_until) >= _UNCACHEABLE_KEYS_MAX:
                self._uncacheable_until.clear()
            self._uncacheable_until[key] = time.monotonic() + _UNCACHEABLE_S


_recently_uncacheable = _RecentlyUncacheable()


def cached_page(
    ttl: float,
    *,
    stale: float = 0,
    early: bool | float = True,
    tags: Iterable[str] | Callable[..., Iterable[str]] = (),
    vary_on: Iterable[str] = (),
    cache: str = "default",
) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """Return a decorator of a view that keeps its responses.

    Args:
        ttl: seconds for which a response is fresh.
        stale: seconds beyond, in which one request renders it anew and the others get the old one.
        early: refresh popular responses before their end, by what rendering cost the last time.
        tags: by which `invalidate_tag` removes responses; a function of the view's arguments may make them.
        vary_on: request headers on which the response depends, such as "Accept-Language".
        cache: the name of a cache of this package in CACHES.

    Raises:
        TypeError: the view is a coroutine function: `glasscache.web.CacheASGI` keeps those.

    """
    vary_names = tuple(sorted(name.lower() for name in vary_on))
    options = GetOrSetOptions(ttl, stale=stale, early=early)

    def decorate(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        if inspect.iscoroutinefunction(view):
            raise TypeError(f"{view.__qualname__} is a coroutine function: use CacheASGI")

        @functools.wraps(view)
        def cached_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if request.method != "GET" or "Authorization" in request.headers:
                return view(request, *args, **kwargs)
            key = _page_key(view, request, vary_names)
            if key in _recently_uncacheable:
                return view(request, *args, **kwargs)
            view_tags = tags(request, *args, **kwargs) if callable(tags) else tags
            client = _client_of(cache)
            stored_key = carry_out(tagged_key(client, key, list(view_tags))) if view_tags else key
            rendered_responses: list[HttpResponse] = []

            def make() -> tuple[list[tuple[str, str]], bytes]:
                with _track_personal_data(request) as personal_data_use:
                    response: HttpResponse = _render(view(request, *args, **kwargs))
                if personal_data_use.is_used or not _is_shareable(response, vary_names):
                    _recently_uncacheable.add(key)
                    raise _Uncacheable(response)
                rendered_responses.append(response)
                return list(response.items()), response.content

            try:
                header_fields, body = client.get_or_set_by(stored_key, make, options)
            except _Uncacheable as uncacheable:
                return uncacheable.response
            return (
                rendered_responses[0]
                if rendered_responses
                else _build_response(header_fields, body)
            )

        return cached_view

    return decorate


def invalidate_tag(tag: str, *, cache: str = "default") -> None:
    """Throw away every response with a tag."""
    _client_of(cache).invalidate_tag(tag)


class _PersonalDataUse:
    """Whether a view used what belongs to one visitor."""

    is_used = False


class _TrackedCookies(dict[str, str]):
    """The cookies of a request, which note that they are read."""

    personal_data_use: _PersonalDataUse

    def __getitem__(self, name: str) -> str:
        self.personal_data_use.is_used = True
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.personal_data_use.is_used = True
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.personal_data_use.is_used = True
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self.personal_data_use.is_used = True
        return super().__iter__()

    def items(self) -> Any:
        self.personal_data_use.is_used = True
        return super().items()

    def values(self) -> Any:
        self.personal_data_use.is_used = True
        return super().values()


@contextlib.contextmanager
def _track_personal_data(request: HttpRequest) -> Generator[_PersonalDataUse]:
    """Note in the block whether the request's cookies, session, user, messages or CSRF token are used."""
    personal_data_use, cookies = _PersonalDataUse(), request.COOKIES
    tracked_cookies = _TrackedCookies(cookies)
    tracked_cookies.personal_data_use = personal_data_use
    request.COOKIES = tracked_cookies
    try:
        yield personal_data_use
    finally:
        request.COOKIES = cookies
        session: Any = getattr(request, "session", None)
        messages: Any = getattr(request, "_messages", None)
        personal_data_use.is_used |= (
            getattr(session, "accessed", False)
            or bool(request.META.get("CSRF_COOKIE_NEEDS_UPDATE"))
            or getattr(messages, "used", False)
            or getattr(messages, "added_new", False)
        )


def _render(response: Any) -> Any:
    """Return a response with its content: that of a template is rendered now."""
    return response if getattr(response, "is_rendered", True) else response.render()


def _client_of(cache_name: str) -> Client:
    backend: Any = caches[cache_name]
    try:
        client: Client = backend._cache.client  # noqa: SLF001 - the backend of this package
    except AttributeError:
        raise TypeError(
            f"CACHES[{cache_name!r}] is not glasscache.contrib.django.GlassCache: name one that is"
        ) from None
    return client


def _page_key(view: Callable[..., Any], request: HttpRequest, vary_names: tuple[str, ...]) -> str:
    """Return the key of a view's response to a request: its URL, the language, and the named headers."""
    parts = [
        f"{view.__module__}.{view.__qualname__}",
        request.build_absolute_uri(),
        get_language() or "",
        *(f"{name}={request.headers.get(name, '')}" for name in vary_names),
    ]
    hasher = hashlib.blake2b("\0".join(parts).encode(), digest_size=16)
    return f"page:{hasher.hexdigest()}"


def _is_shareable(response: HttpResponse, vary_names: tuple[str, ...]) -> bool:
    """Return whether a response may be kept for every request with the same key."""
    if response.status_code != 200 or response.streaming or response.cookies:  # noqa: PLR2004
        return False
    cache_directives = {
        part.split("=")[0].strip().lower() for part in response.get("Cache-Control", "").split(",")
    }
    if cache_directives & _NO_CACHE_DIRECTIVES:
        return False
    response_vary_names = {
        part.strip().lower() for part in response.get("Vary", "").split(",") if part.strip()
    }
    return (
        response_vary_names <= {*vary_names, "accept-encoding"}
        and "Content-Encoding" not in response
    )


def _build_response(header_fields: list[tuple[str, str]], body: bytes) -> HttpResponse:
    response = HttpResponse(body)
    del response["Content-Type"]
    for name, value in header_fields:
        response[name] = value
    return response
