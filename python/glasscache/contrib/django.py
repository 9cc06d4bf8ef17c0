"""Django's cache backend, with `a*` methods that await the wire instead of borrowing a thread.

    CACHES = {
        "default": {
            "BACKEND": "glasscache.contrib.django.GlassCache",
            "LOCATION": "cache1:11211,cache2:11211",
            "OPTIONS": {"on_error": "miss", "timeout": 0.25, "stale": 30, "lease": 5},
        }
    }

OPTIONS are the settings of `glasscache.Client`, of `get_or_set` (`stale`, `lease`, `wait`, `early`,
`stale_if_error`), those of the backend that the project comes from, which are translated or refused by
`manage.py check`, and `like`: "pymemcache" or "pylibmc" reads and writes entries as that backend does, key by
key on the same server. Without it the keys have a prefix of their own, so that the entries of an old backend
and of this one never meet.

Values other than text, bytes and numbers are pickled, as every backend of Django does, because templates,
responses and sessions hold objects; `"codec": "json"` turns that off. An entry that cannot be read is a
counted miss. One client serves all threads of the process; its connections stay open between requests.
The asyncio client is made once for each event loop. With `"strategy": "best.strategy"` and the middleware
`glasscache.contrib.django.request_middleware` each HTTP request runs a strategy of `glasscache simulate`;
with `"recorder": {"folder": "requests/", "sample": 0.01}` and the middleware one request in a hundred is
recorded for it (`glasscache.recording.Recorder` has the settings).
"""

from __future__ import annotations

import hashlib
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, cast, overload

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from glasscache.contrib._django_async import AsyncCacheMethods, SharedClients
from glasscache.contrib._django_checks import raise_if_too_late_to_check, register_check
from glasscache.contrib._django_client import ClientLibrary, DjangoClient
from glasscache.contrib._django_requests import request_middleware
from glasscache.contrib._django_settings import OWN_PREFIX, translate_settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import ModuleType

    from glasscache._near import NearStats
    from glasscache._report import Explanation, Report

__all__ = ["DjangoClient", "GlassCache", "request_middleware"]

_KEY_BYTES_MAX: Final = 250
_PLAIN_KEY_CHARS_MAX: Final = 60
"""Characters of a key that has at most 250 bytes with any prefix of ours, whatever they are."""

_shared_by_settings: dict[str, SharedClients] = {}
"""What the backends of each LOCATION and OPTIONS share: Django makes a backend for each thread."""


def _shared_clients_for(server: Any, options: dict[str, Any]) -> SharedClients:
    settings_repr = repr((server, sorted(options.items())))
    if settings_repr not in _shared_by_settings:
        shared = SharedClients(
            options, translate_settings(server, options), [], weakref.WeakKeyDictionary(), []
        )
        return _shared_by_settings.setdefault(settings_repr, shared)
    return _shared_by_settings[settings_repr]


class GlassCache(AsyncCacheMethods):
    """A Django cache on memcached or glasscache servers."""

    def __init__(self, server: str | list[str], params: dict[str, Any]) -> None:
        """Take what Django hands a backend; settings that make no sense raise with the first call."""
        options = dict(params.get("OPTIONS") or {})
        super().__init__(
            server,
            {**params, "OPTIONS": options},
            library=cast("ModuleType", ClientLibrary),
            value_not_found_exception=KeyError,
        )
        self._shared = _shared_clients_for(server, options)
        raise_if_too_late_to_check(server, options, self._shared.cache_settings)

    @property
    def _cache(self) -> DjangoClient:
        return self._shared.blocking_client()

    def make_and_validate_key(self, key: str, version: int | None = None) -> str:
        """Return the key with prefix and version; one that our own prefix makes too long is hashed."""
        full_key: str = super().make_and_validate_key(key, version=version)
        if len(full_key) <= _PLAIN_KEY_CHARS_MAX or not self._shared.cache_settings.has_own_prefix:
            return full_key
        key_bytes_left = _KEY_BYTES_MAX - len(OWN_PREFIX)
        key_bytes = full_key.encode()
        return (
            full_key
            if len(key_bytes) <= key_bytes_left
            else f"{full_key[:20]}~{hashlib.sha256(key_bytes).hexdigest()}"
        )

    def close(self, **kwargs: Any) -> None:
        """Keep the connections: they serve the next request."""

    def stats(self) -> dict[str, Any]:
        """Return the counters of the process's client; see `glasscache.Client.stats`. No network."""
        return self._cache.client.stats()

    @overload
    def report(self, *, json: Literal[False] = False) -> Report: ...

    @overload
    def report(self, *, json: Literal[True]) -> str: ...

    def report(self, *, json: bool = False) -> Report | str:
        """Return what the calls of this process have cost; with `json` for `glasscache rollout`."""
        return self._cache.client.report(json=True) if json else self._cache.client.report()

    def explain(self, key: str, version: int | None = None) -> Explanation:
        """Return what reading a key costs, and where; the key is read. See `glasscache.Client.explain`."""
        return self._cache.client.explain(self.make_and_validate_key(key, version=version))

    def near_stats(self) -> NearStats:
        """Return the counters of the strategy; see `glasscache.Client.near_stats`. No network."""
        return self._cache.client.near_stats()

    def request(
        self, page: str | None = None, route: str | None = None, version: int | None = None
    ) -> AbstractContextManager[None]:
        """Make the reads inside the block one request, as the middleware does for each HTTP request."""
        full_page = None if page is None else self.make_and_validate_key(page, version=version)
        return self._cache.client.request(full_page, route)

    def get_or_set(
        self, key: str, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """Return the value under key, or make it with `default`, in one process at a time."""
        get_or_set_options = self._get_or_set_options(timeout)
        if not callable(default) or get_or_set_options is None:
            return super().get_or_set(key, default, timeout, version)
        return self._cache.client.get_or_set_by(
            self.make_and_validate_key(key, version=version), default, get_or_set_options
        )


register_check(GlassCache, translate_settings)
