"""The cache type for Flask-Caching.

app.config["CACHE_TYPE"] = "glasscache.contrib.flask.flask_cache"
app.config["CACHE_GLASSCACHE_SERVERS"] = "127.0.0.1:11211"
"""

from __future__ import annotations

from typing import Any

from glasscache.contrib.cachelib import GlassCache

__all__ = ["flask_cache"]


def flask_cache(
    app: Any, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]
) -> GlassCache:
    """Return the cache of a Flask application: what Flask-Caching calls for `CACHE_TYPE`.

    It reads `CACHE_GLASSCACHE_SERVERS` (or `CACHE_MEMCACHED_SERVERS`), `CACHE_GLASSCACHE_OPTIONS`,
    `CACHE_KEY_PREFIX`, `CACHE_DEFAULT_TIMEOUT` and `CACHE_OPTIONS`.
    """
    del app, args
    servers = (
        config.get("CACHE_GLASSCACHE_SERVERS")
        or config.get("CACHE_MEMCACHED_SERVERS")
        or "127.0.0.1:11211"
    )
    options: dict[str, Any] = {
        "default_timeout": config.get("CACHE_DEFAULT_TIMEOUT", 300),
        "key_prefix": config.get("CACHE_KEY_PREFIX") or "",
        **(config.get("CACHE_GLASSCACHE_OPTIONS") or {}),
        **kwargs,
    }
    return GlassCache(servers, **options)
