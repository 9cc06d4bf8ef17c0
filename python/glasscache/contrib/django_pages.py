"""Views of Django whose responses are kept, with tags and one rendering at a time.

    @cached_page(60, stale=30, tags=lambda request, number: ["products", f"product-{number}"])
    def product(request, number): ...

    invalidate_tag("product-17")

Django's own `cache_page` has neither. A response is kept only if every visitor with the same URL, language,
time zone and `vary_on` headers may have it: status 200 to a GET, no cookie set, its Cache-Control permits it,
it has no Vary on another header. A visitor with cookies or another credential gets a kept page only if the
response says `public` or `s-maxage`, or the decorator says `public=True`. The view must not have used the
visitor's session, user, cookies, messages or CSRF token: Django adds their `Vary: Cookie` after the view has
returned, so their use is looked at here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import threading
import time
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from asgiref.sync import iscoroutinefunction
from django.conf import settings as django_settings
from django.core.cache import caches
from django.http import HttpResponse
from django.utils.functional import LazyObject, empty
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import get_language

from glasscache._refresh import GetOrSetOptions
from glasscache._steps import carry_out
from glasscache.tags import tagged_key
from glasscache.web._message import Request, Settings
from glasscache.web._policy import response_directives, vary_names_of
from glasscache.web._sharing import FOR_EVERYONE, find_refusal, unkeyed_credential

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from django.http import HttpRequest

    from glasscache import Client

__all__ = ["cached_page", "invalidate_tag"]

_UNCACHEABLE_S: Final = 10
"""So long requests for a response that could not be kept do not wait for each other."""
_UNCACHEABLE_KEYS_MAX: Final = 4096


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
    public: bool = False,
    cache: str = "default",
) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """Return a decorator of a view that keeps its responses.

    Args:
        ttl: seconds for which a response is fresh.
        stale: seconds beyond, in which one request renders it anew and the others get the old one.
        early: refresh popular responses before their end, by what rendering cost the last time.
        tags: by which `invalidate_tag` removes responses; a function of the view's arguments may make them.
        vary_on: request headers on which the response depends, such as "Accept-Language".
        public: the response is the same for every visitor, those with cookies included.
        cache: the name of a cache of this package in CACHES.

    Raises:
        TypeError: the view is a coroutine function: `glasscache.web.CacheASGI` keeps those.

    """
    vary_names = tuple(sorted(name.lower() for name in vary_on))
    options = GetOrSetOptions(ttl, stale=stale, early=early)

    def decorate(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        # Also that of a class, which only asgiref recognises.
        if iscoroutinefunction(view):  # pyright: ignore[reportDeprecated]
            raise TypeError(f"{view.__qualname__} is a coroutine function: use CacheASGI")

        @functools.wraps(view)
        def cached_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            page = _PageRequest(request, vary_names, is_public=public)
            key = _page_key(view, request, vary_names, page.keyed_fields)
            uncacheable_key = f"{key} {page.credential}"
            if page.is_bypassed or uncacheable_key in _recently_uncacheable:
                return view(request, *args, **kwargs)
            view_tags = tags(request, *args, **kwargs) if callable(tags) else tags
            client = _client_of(cache)
            stored_key = carry_out(tagged_key(client, key, list(view_tags))) if view_tags else key
            rendered_responses: list[HttpResponse] = []

            def make() -> tuple[list[tuple[str, str]], bytes]:
                with _track_personal_data(request) as personal_data_use:
                    response: HttpResponse = _render(view(request, *args, **kwargs))
                if personal_data_use.is_used or not page.may_share(response):
                    _recently_uncacheable.add(uncacheable_key)
                    raise _Uncacheable(response)
                rendered_responses.append(response)
                return list(response.items()), response.content

            try:
                header_fields, body = client.get_or_set_by(stored_key, make, options)
            except _Uncacheable as uncacheable:
                return uncacheable.response
            if rendered_responses:
                return rendered_responses[0]
            if not page.may_have(header_fields):
                return view(request, *args, **kwargs)
            return _build_response(header_fields, body)

        return cached_view

    return decorate


def invalidate_tag(tag: str, *, cache: str = "default") -> bool:
    """Throw away every response with a tag; whether it was done, with `on_error="miss"` too."""
    return _client_of(cache).invalidate_tag(tag)


class _PersonalDataUse:
    """Whether a view used what belongs to one visitor."""

    is_used = False


class _TrackedCookies(dict[str, str]):
    """The cookies of a request, which note that they are read, in whichever way."""

    personal_data_use: _PersonalDataUse


def _tracked(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    @functools.wraps(method)
    def call_and_note(cookies: _TrackedCookies, *args: Any, **kwargs: Any) -> Any:
        cookies.personal_data_use.is_used = True
        return method(cookies, *args, **kwargs)

    return call_and_note


for _name in (
    "__contains__", "__eq__", "__getitem__", "__iter__", "__len__", "__or__", "__repr__", "__reversed__",
    "__ror__", "copy", "get", "items", "keys", "pop", "popitem", "setdefault", "values",
):  # fmt: skip
    setattr(_TrackedCookies, _name, _tracked(_name))


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
        personal_data_use.is_used |= _has_user(request)
        messages: Any = getattr(request, "_messages", None)
        personal_data_use.is_used |= (
            getattr(session, "accessed", False)
            or bool(request.META.get("CSRF_COOKIE_NEEDS_UPDATE"))
            or getattr(messages, "used", False)
            or getattr(messages, "added_new", False)
        )


def _render(response: Any) -> Any:
    """Return a response with its content: that of a template is rendered now."""
    if inspect.isawaitable(response):
        close = getattr(response, "close", None)
        if close is not None:
            close()
        raise TypeError("the view returned a coroutine: use CacheASGI")
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


def _page_key(
    view: Callable[..., Any],
    request: HttpRequest,
    vary_names: tuple[str, ...],
    keyed_fields: list[tuple[bytes, bytes]],
) -> str:
    """Return the key of a view's response to a request: URL, language, time zone, and the named headers.

    The fields in which proxies say what the URL is are in it, too, whatever Django makes of them.
    """
    parts = [
        f"{view.__module__}.{view.__qualname__}",
        request.build_absolute_uri(),
        get_language() or "",
        get_current_timezone_name() if django_settings.USE_TZ else "",
        *(f"{name}={request.headers.get(name)}" for name in vary_names),
        *(repr(pair) for pair in keyed_fields),
    ]
    hasher = hashlib.blake2b("\0".join(parts).encode(), digest_size=16)
    return f"page:{hasher.hexdigest()}"


def _has_user(request: HttpRequest) -> bool:
    """Return whether a middleware or the view has found out that the visitor is somebody."""
    user: Any = getattr(request, "user", None)
    if isinstance(user, LazyObject) and user.__dict__.get("_wrapped", empty) is empty:
        return False  # nobody has asked yet
    return bool(getattr(cast("Any", user), "is_authenticated", False))


class _PageRequest:
    """What of a request decides whether its page is everyone's, as `glasscache.web` decides it."""

    def __init__(
        self, request: HttpRequest, vary_names: tuple[str, ...], *, is_public: bool
    ) -> None:
        fields = [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in request.headers.items()
        ]
        path, query = request.path.encode(), request.META.get("QUERY_STRING", "").encode()
        self._head = Request("GET", request.scheme or "http", quote(path).encode(), query, fields)
        self._head.is_identified = _has_user(request) or bool(request.META.get("REMOTE_USER"))
        self._settings = Settings(vary_on=tuple(f"header:{name}" for name in vary_names))
        self._vary_names = {name.encode() for name in vary_names}
        self._is_public = is_public
        self.is_bypassed = (
            request.method != "GET" or "Authorization" in request.headers or self._head.is_ambiguous
        )
        self.keyed_fields = self._head.keyed_fields()
        self.credential = unkeyed_credential(self._head, self._settings, ())
        """What stands for a visitor and is not in the key; empty if nothing does."""

    def may_have(self, header_fields: list[tuple[str, str]]) -> bool:
        """Return whether a kept page may be sent in reply to this request."""
        if not self.credential or self._is_public:
            return True
        directives, _ = response_directives(_encoded_fields(header_fields))
        return not FOR_EVERYONE.isdisjoint(directives)

    def may_share(self, response: HttpResponse) -> bool:
        """Return whether a response may be kept for every request with the same key."""
        if response.status_code != 200 or response.streaming:  # noqa: PLR2004
            return False
        fields = _encoded_fields(list(response.items()))
        fields += [(b"set-cookie", name.encode()) for name in response.cookies]
        directives, _ = response_directives(fields)
        response_vary_names = {*vary_names_of(fields)} - {b"accept-encoding"}
        if (
            "no-cache" in directives
            or "Content-Encoding" in response
            or not response_vary_names <= self._vary_names
        ):
            return False
        if self._is_public:
            directives = {**directives, "public": None}
        refusal = find_refusal(self._head, self._settings, 200, fields, directives, ())
        return refusal is None


def _encoded_fields(header_fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in header_fields
    ]


def _build_response(header_fields: list[tuple[str, str]], body: bytes) -> HttpResponse:
    response = HttpResponse(body)
    del response["Content-Type"]
    for name, value in header_fields:
        response[name] = value
    return response
