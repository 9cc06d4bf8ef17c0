"""HTTP caching for ASGI and WSGI applications, over a client of this package.

`CacheASGI` and `CacheWSGI` are shared caches by RFC 9111: responses stream while they are stored, one
request a key fetches while the others wait or get the stale response, and `Rules` decide what the RFC
leaves to a site. `Purger` and `AsyncPurger` remove, or make stale, what is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glasscache.web.asgi import CacheASGI
    from glasscache.web.purge import AsyncPurger, Purger
    from glasscache.web.rules import Rules
    from glasscache.web.settings import CacheSettings
    from glasscache.web.wsgi import CacheWSGI

__all__ = ["AsyncPurger", "CacheASGI", "CacheSettings", "CacheWSGI", "Purger", "Rules"]

_LAZY_MODULES = {
    "AsyncPurger": "glasscache.web.purge",
    "CacheASGI": "glasscache.web.asgi",
    "CacheSettings": "glasscache.web.settings",
    "CacheWSGI": "glasscache.web.wsgi",
    "Purger": "glasscache.web.purge",
    "Rules": "glasscache.web.rules",
}


def __getattr__(name: str) -> Any:
    """Import asyncio only for those who use it."""
    if name in _LAZY_MODULES:
        import importlib  # noqa: PLC0415

        return getattr(importlib.import_module(_LAZY_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
