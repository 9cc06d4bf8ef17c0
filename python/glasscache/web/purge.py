"""Purges: responses removed, or made stale, by URL, prefix or tag; and what a tag holds.

A soft purge makes responses stale: the next request is served the old one while one request refreshes it. No
purge by tag or prefix touches an entry, so its cost does not grow with their number (`_purge_log` says how).
"""

from __future__ import annotations

import hmac
import inspect
import json
from typing import TYPE_CHECKING, Any, Final

from glasscache._steps import package_call as call
from glasscache.web._entry import Entry, UnreadableRecord, VaryRecord, decode, encode_record
from glasscache.web._fields import text_of
from glasscache.web._message import NO_SETTINGS, tag_of
from glasscache.web._purge_log import PurgeLog, TagPurges, new_purge_log
from glasscache.web._run_steps import run_steps, run_steps_async
from glasscache.web._shared_state import DEFAULTS, SharedState
from glasscache.web._urls import request_of_url
from glasscache.web.listing import KEYS_MAX, URLS_MAX, TagListing, list_tag, list_tag_async

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._message import Request
    from glasscache.web._shared_state import RuleSet
    from glasscache.web.settings import CacheSettings

__all__ = ["AsyncPurger", "Purger"]

_ATTEMPTS_MAX: Final = 50
"""How often one purge tries again because another of the same namespace came first."""


class _PurgeSteps:
    """What both purgers do, as steps."""

    _is_async = False

    def __init__(
        self, client: Any, rules: RuleSet | None = None, settings: CacheSettings = DEFAULTS
    ) -> None:
        """Bind to a client; the class documents the arguments.

        Raises:
            TypeError: the client is for another kind of program than the purger.

        """
        is_async = inspect.iscoroutinefunction(getattr(client, "get_many", None))
        if is_async is not self._is_async:
            right, wrong = ("AsyncPurger", "Purger") if is_async else ("Purger", "AsyncPurger")
            raise TypeError(
                f"{wrong}({type(client).__name__}(...)): this client is for {right}; "
                f"write glasscache.web.{right}(client)"
            )
        self._client = client
        self._shared = SharedState(rules, settings)

    def _purge_url_steps(self, url: str, *, is_soft: bool) -> Generator[Any, Any, bool]:
        return purge_url(self._shared, self._client, url, is_soft=is_soft)

    def _purge_prefix_steps(self, prefix: str, *, is_soft: bool) -> Generator[Any, Any, None]:
        return purge_prefix(self._shared, self._client, prefix, is_soft=is_soft)

    def _purge_tag_steps(self, tag: str, *, is_soft: bool) -> Generator[Any, Any, None]:
        return purge_tag(self._shared, self._client, tag, is_soft=is_soft)


class Purger(_PurgeSteps):
    """Purges what a middleware with the same rules and settings stores.

    Args:
        client: a `Client` of the same servers.
        rules: those of the middleware, which decide the keys of URLs.
        settings: those of the middleware.

    """

    def url(self, url: str, *, soft: bool = False) -> bool:
        """Purge the responses of one absolute URL, all variants; whether there were any.

        Raises:
            ValueError: the URL is not absolute.

        """
        return run_steps(self._purge_url_steps(url, is_soft=soft))

    def prefix(self, prefix: str, *, soft: bool = False) -> None:
        """Purge each URL that begins with `prefix`, such as "shop.example/products/" (no scheme)."""
        run_steps(self._purge_prefix_steps(prefix, is_soft=soft))

    def tag(self, tag: str, *, soft: bool = False) -> None:
        """Purge each response with a tag."""
        run_steps(self._purge_tag_steps(tag, is_soft=soft))

    def list_tag(
        self, tag: str, *, keys_max: int = KEYS_MAX, urls_max: int = URLS_MAX
    ) -> TagListing:
        """Return which stored responses have a tag, by a bounded scan of the servers' keys.

        Raises:
            ServerUnavailable: a server cannot be reached, or does not list its keys.

        """
        return list_tag(self._shared, self._client, tag, keys_max=keys_max, urls_max=urls_max)


class AsyncPurger(_PurgeSteps):
    """`Purger` for an `AsyncClient`."""

    _is_async = True

    async def url(self, url: str, *, soft: bool = False) -> bool:
        """Purge the responses of one absolute URL, as `Purger.url`."""
        return await run_steps_async(self._purge_url_steps(url, is_soft=soft))

    async def prefix(self, prefix: str, *, soft: bool = False) -> None:
        """Purge each URL that begins with `prefix`, as `Purger.prefix`."""
        await run_steps_async(self._purge_prefix_steps(prefix, is_soft=soft))

    async def tag(self, tag: str, *, soft: bool = False) -> None:
        """Purge each response with a tag, as `Purger.tag`."""
        await run_steps_async(self._purge_tag_steps(tag, is_soft=soft))

    async def list_tag(
        self, tag: str, *, keys_max: int = KEYS_MAX, urls_max: int = URLS_MAX
    ) -> TagListing:
        """Return which stored responses have a tag, as `Purger.list_tag`."""
        bounds = {"keys_max": keys_max, "urls_max": urls_max}
        return await list_tag_async(self._shared, self._client, tag, **bounds)


def _advance_purge_log(
    shared: SharedState, client: Any, prefix_bytes: bytes | None, *, is_soft: bool
) -> Generator[Any, Any, PurgeLog]:
    """Move the clock on, with a purge of a prefix if one is given; return the record that was stored."""
    for _ in range(_ATTEMPTS_MAX):
        value_and_cas = yield call(client, "gets", shared.purge_log_key)
        purge_log = None if value_and_cas is None else PurgeLog.decode(value_and_cas[0])
        if value_and_cas is None:
            if (
                yield call(
                    client, "add", shared.purge_log_key, (new_log := new_purge_log()).encode()
                )
            ):
                return new_log  # what was stored before is gone with the lost record
            continue
        next_log = new_purge_log() if purge_log is None else (
            purge_log.with_clock_advanced() if prefix_bytes is None
            else purge_log.with_purge(prefix_bytes, is_soft=is_soft)
        )  # fmt: skip
        if (yield call(client, "cas", shared.purge_log_key, next_log.encode(), value_and_cas[1])):
            return next_log
    raise TimeoutError(f"the purge failed: {_ATTEMPTS_MAX} others came first; try again")


def purge_url(
    shared: SharedState, client: Any, url: str, *, is_soft: bool
) -> Generator[Any, Any, bool]:
    """Purge one URL: steps that return whether there was a response."""
    return (yield from purge_request(shared, client, request_of_url(url), is_soft=is_soft))


def purge_request(
    shared: SharedState, client: Any, request: Request, *, is_soft: bool
) -> Generator[Any, Any, bool]:
    """Purge the URL of a request: steps that return whether there was a response.

    The responses whose keys have fields in them are purged by the tag that they have in common, which exists
    if there are any: their keys cannot be listed.
    """
    was_stored = False
    for url in shared.urls_of(request.as_get()):
        was_stored |= yield from _purge_stored(
            shared, client, request.with_url(url), is_soft=is_soft
        )
    return was_stored


def _purge_stored(
    shared: SharedState, client: Any, request: Request, *, is_soft: bool
) -> Generator[Any, Any, bool]:
    """Purge a URL as keys have it (as steps); whether there was a response."""
    digest = request.url_digest(shared.version, NO_SETTINGS)
    url_tag = shared.url_tag(request, NO_SETTINGS)
    has_tag = (yield call(client, "get", shared.tag_key(url_tag))) is not None
    if has_tag:
        yield from _purge_encoded_tag(shared, client, url_tag, is_soft=is_soft)
    response_key = shared.key_of(digest)
    if not is_soft:
        return bool((yield call(client, "delete", response_key))) or has_tag
    return (yield from _make_stale(shared, client, response_key, digest)) or has_tag


def _make_stale(
    shared: SharedState, client: Any, response_key: str, digest: bytes
) -> Generator[Any, Any, bool]:
    """End the lifetime of the response at a key, or of its variants (as steps); whether there was one."""
    purge_log = yield from _advance_purge_log(shared, client, None, is_soft=True)
    for _ in range(_ATTEMPTS_MAX):
        value_and_cas = yield call(client, "gets", response_key)
        if value_and_cas is None:
            return False
        try:
            record = decode(value_and_cas[0], digest)
        except UnreadableRecord:
            return bool((yield call(client, "delete", response_key)))
        match record:
            case VaryRecord():
                record.stale_before = purge_log.seq
                record_bytes = encode_record(record)
            case Entry():
                # Its lifetime ends now.
                record.fresh_s = max(0, min(record.fresh_s, int(record.age(shared.clock()))))
                record_bytes = record.encode()
            case _:
                return bool((yield call(client, "delete", response_key)))
        ttl_s = yield from _remaining_ttl_s(client, response_key)
        if (yield call(client, "cas", response_key, record_bytes, value_and_cas[1], ttl=ttl_s)):
            return True
    raise TimeoutError(
        f"the purge of {response_key} failed: {_ATTEMPTS_MAX} others came first; try again"
    )


def _remaining_ttl_s(client: Any, key: str) -> Generator[Any, Any, int | None]:
    """Return the seconds that the store still keeps a key; None if it never expires."""
    item = yield call(client, "get_with_meta", key)
    if item is None:
        return 1
    return None if item.ttl is None else max(1, item.ttl)


def purge_prefix(
    shared: SharedState, client: Any, prefix: str, *, is_soft: bool
) -> Generator[Any, Any, None]:
    """Purge a prefix of host and path (as steps)."""
    for prefix_bytes in shared.url_prefixes(prefix):
        yield from _advance_purge_log(shared, client, prefix_bytes, is_soft=is_soft)


def purge_tag(
    shared: SharedState, client: Any, tag: str, *, is_soft: bool
) -> Generator[Any, Any, None]:
    """Purge a tag (as steps): one write for the clock and one for the tag."""
    yield from _purge_encoded_tag(shared, client, tag_of(tag).encode(), is_soft=is_soft)


def _purge_encoded_tag(
    shared: SharedState, client: Any, tag_bytes: bytes, *, is_soft: bool
) -> Generator[Any, Any, None]:
    purge_log = yield from _advance_purge_log(shared, client, None, is_soft=is_soft)
    tag_key = shared.tag_key(tag_bytes)
    for _ in range(_ATTEMPTS_MAX):
        value_and_cas = yield call(client, "gets", tag_key)
        known_tag_purges = None if value_and_cas is None else TagPurges.decode(value_and_cas[0])
        # Without a record of it, what was stored under the tag before is not trusted anyway.
        known_tag_purges = known_tag_purges or TagPurges(purge_log.seq, 0)
        new_tag_purges = (
            TagPurges(known_tag_purges.removed_before, purge_log.seq)
            if is_soft
            else TagPurges(purge_log.seq, known_tag_purges.stale_before)
        )
        is_stored = (
            (yield call(client, "add", tag_key, new_tag_purges.encode()))
            if value_and_cas is None
            else (yield call(client, "cas", tag_key, new_tag_purges.encode(), value_and_cas[1]))
        )
        if is_stored:
            return
    tag_name = tag_bytes.decode("latin-1")
    raise TimeoutError(
        f"the purge of the tag {tag_name!r} failed: {_ATTEMPTS_MAX} others came first; try again"
    )


def purge_by_request(
    shared: SharedState, client: Any, request: Request, bearer_token: str
) -> Generator[Any, Any, tuple[int, bytes]]:
    """Carry out an HTTP PURGE: steps that return a status and a JSON body.

    The URL is purged, or with the field `Purge-Tag` a tag, with `Purge-Prefix` a prefix of host and path;
    `Purge-Soft: 1` makes it soft. The bearer token must be the middleware's.
    """
    authorization = request.headers.get(b"authorization", b"")
    if not bearer_token or not hmac.compare_digest(
        authorization, b"Bearer " + bearer_token.encode()
    ):
        return 403, b'{"error": "PURGE needs the bearer token of the cache"}\n'
    is_soft = request.headers.get(b"purge-soft", b"") in {b"1", b"?1", b"true"}
    tag, prefix = request.headers.get(b"purge-tag"), request.headers.get(b"purge-prefix")
    if tag is not None:
        yield from purge_tag(shared, client, text_of(tag), is_soft=is_soft)
        purge_result: dict[str, Any] = {"tag": text_of(tag)}
    elif prefix is not None:
        yield from purge_prefix(shared, client, text_of(prefix), is_soft=is_soft)
        purge_result = {"prefix": text_of(prefix)}
    else:
        query = b"?" + request.query if request.query else b""
        url = (request.scheme.encode() + b"://" + request.host + request.path + query).decode(
            "latin-1"
        )
        purge_result = {
            "url": url,
            "was_stored": (yield from purge_url(shared, client, url, is_soft=is_soft)),
        }
    return 200, json.dumps({**purge_result, "soft": is_soft}).encode() + b"\n"
