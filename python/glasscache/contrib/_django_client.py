"""`glasscache.Client` as Django's memcached backends call a client library."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from glasscache import BadSetting, Client, RequestRefused, UnreadableValue, ValueTooLarge
from glasscache._native import is_session_key
from glasscache._settings import miss_rule_of
from glasscache.contrib._django_checks import session_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from glasscache import GlasscacheError
    from glasscache.contrib._django_settings import CacheSettings

_log = logging.getLogger("glasscache.django")

_logged_warning_ids: set[str] = set()
"""Identifiers of the warnings that this process has logged."""


def _warn_once(warning_id: str, sentence: str, *arguments: object) -> None:
    if warning_id not in _logged_warning_ids:
        _logged_warning_ids.add(warning_id)
        _log.warning(sentence, *arguments)


def django_miss_rule(on_error: Any) -> Callable[[GlasscacheError], bool]:
    """Return which errors are counted misses.

    They are those of `on_error`, entries that cannot be read and values above the limit.
    """
    configured_rule = miss_rule_of(on_error)

    def is_miss(error: GlasscacheError) -> bool:
        if isinstance(error, UnreadableValue):
            _warn_once("unreadable", _UNREADABLE_WARNING, error)
            return True
        if isinstance(error, ValueTooLarge):
            # A warning, not the end of a request; the old value is gone.
            _log.warning("not cached: %s", error)
            return True
        return configured_rule is not None and configured_rule(error)

    return is_miss


_UNREADABLE_WARNING = (
    "an entry counts as a miss, for it cannot be read: %s. If another backend wrote it, set "
    'OPTIONS["like"] to "pymemcache" or "pylibmc". Others are only counted, in stats()["misses_by_error"]'
)


def checked_client_options(cache_settings: CacheSettings) -> dict[str, Any]:
    """Return the keywords of the settings' client, or raise their errors."""
    if cache_settings.refusals:
        raise BadSetting("; ".join(cache_settings.refusals))
    for sentence in cache_settings.advice:
        _warn_once(sentence, "%s", sentence)
    return {
        **cache_settings.client_options,
        **_never_of_sessions(cache_settings.client_options),
        "on_error": django_miss_rule(cache_settings.client_options.get("on_error", "raise")),
    }


def _never_of_sessions(client_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `near_never` with the site's sessions, whatever they are called."""
    if client_options.get("strategy") is None or (prefix := session_prefix()) is None:
        return {}
    return {"near_never": (*client_options.get("near_never", ()), prefix)}


def _run_arithmetic(arithmetic_call: Callable[[], int | None]) -> int | None:
    try:
        return arithmetic_call()
    except RequestRefused as error:
        raise to_django_error(error) from error


def to_django_error(error: RequestRefused) -> Exception:
    """Django expects a TypeError for adding to a value that is not a number."""
    return TypeError(str(error)) if "non-numeric" in str(error) else error


MISSING: Final = object()


def raise_if_absent(session: object) -> None:
    """Raise Django's error if a session could not be added although there was none, for `session` is missing.

    Django would try 10,000 other identifiers (`django.contrib.sessions.backends.cache`).
    """
    if session is MISSING:
        raise RuntimeError(
            "Unable to create a new session key. It is likely that the cache is unavailable."
        )


class DjangoClient:
    """`glasscache.Client` under the names that Django's memcached backends call."""

    def __init__(self, cache_settings: CacheSettings) -> None:
        """Make the client of these settings."""
        self.client = Client(cache_settings.servers, **checked_client_options(cache_settings))

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under key, or default."""
        return self.client.get(key, default)

    def set(self, key: str, value: Any, timeout: float) -> bool:
        """Store a value; whether it was stored."""
        return self.client.set(key, value, timeout)

    def add(self, key: str, value: Any, timeout: float) -> bool:
        """Store a value if there is none; whether it was stored."""
        was_added = self.client.add(key, value, timeout)
        if not was_added and is_session_key(key):
            raise_if_absent(self.client.get(key, MISSING))
        return was_added

    def touch(self, key: str, timeout: float) -> bool:
        """Give a key another timeout; whether it was there."""
        return self.client.touch(key, timeout)

    def delete(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return self.client.delete(key)

    def incr(self, key: str, delta: int = 1) -> int | None:
        """Add to a number; None when there is none, TypeError when it is not a number."""
        return _run_arithmetic(lambda: self.client.incr(key, delta))

    def decr(self, key: str, delta: int = 1) -> int | None:
        """Subtract from a number, not below 0; None when there is none, TypeError when it is not a number."""
        return _run_arithmetic(lambda: self.client.decr(key, delta))

    def get_multi(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values of those keys that have one."""
        return self.client.get_many(list(keys))

    def set_multi(self, data: Mapping[str, Any], timeout: float) -> list[str]:
        """Store many values; the keys that were not stored."""
        return list(self.client.set_many(dict(data), timeout))

    def delete_multi(self, keys: Iterable[str]) -> None:
        """Remove many keys."""
        self.client.delete_many(list(keys))

    def flush_all(self) -> None:
        """Remove everything on all servers."""
        self.client.flush()

    def disconnect_all(self) -> None:
        """Close the client for good; the backend never does between requests."""
        self.client.close()


class ClientLibrary:
    """Stands for a client library; the backend makes its client itself."""

    Client = DjangoClient
