"""Django's cache backend, with `a*` methods that await the wire instead of borrowing a thread.

    CACHES = {
        "default": {
            "BACKEND": "glasscache.contrib.django.GlassCache",
            "LOCATION": "cache1:11211,cache2:11211",
            "OPTIONS": {"timeout": 0.25, "stale": 30, "lease": 5},
        }
    }

OPTIONS are the words of `glasscache.Client`, and of `get_or_set` (`stale`, `lease`, `wait`,
`early`, `stale_if_error`). Values other than text, bytes and numbers are pickled, as every backend
of Django does, because templates, responses and sessions hold objects; `"codec": "json"` turns that
off. One client serves the process, whichever thread asks; its connections stay open between
requests. The asyncio client is made once for each event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from glasscache.contrib._django_async import AsyncHalf
from glasscache.contrib._django_client import DjangoClient, Library

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["DjangoClient", "GlassCache"]

_LEASE_WORDS: Final = ("stale", "lease", "wait", "early", "stale_if_error")


class GlassCache(AsyncHalf):
    """A Django cache on memcached or glasscache servers."""

    # Django's own, which its stubs do not have.
    _cache: DjangoClient

    def __init__(self, server: str | list[str], params: dict[str, Any]) -> None:
        """Take what Django hands a backend."""
        options = dict(params.get("OPTIONS") or {})
        self._lease_options = {word: options.pop(word) for word in _LEASE_WORDS if word in options}
        options.setdefault("codec", "pickle")
        super().__init__(
            server,
            {**params, "OPTIONS": options},
            library=cast("ModuleType", Library),
            value_not_found_exception=KeyError,
        )

    def close(self, **kwargs: Any) -> None:
        """Keep the connections: they serve the next request."""

    def get_or_set(
        self, key: str, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """Return the value under key, or make it with `default`, in one process at a time."""
        lease = self._lease(timeout)
        if not callable(default) or lease is None:
            return super().get_or_set(key, default, timeout, version)
        return self._cache.client.get_or_set_by(
            self.make_and_validate_key(key, version=version), default, lease
        )
