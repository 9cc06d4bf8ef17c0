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

import asyncio
import logging
import weakref
from typing import TYPE_CHECKING, Any, Final, cast

from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.memcached import BaseMemcachedCache

from glasscache import Client, RequestRefused, ValueTooLarge
from glasscache.leases import Lease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import ModuleType

    from glasscache import AsyncClient

_log = logging.getLogger("glasscache.django")

_LEASE_WORDS: Final = ("stale", "lease", "wait", "early", "stale_if_error")
_MISSING: Final = object()


def _stored(store: Callable[[], bool]) -> bool:
    """Run a write; a value over the limit is a warning, not the end of a request; its old value is gone."""
    try:
        return store()
    except (ValueTooLarge, RequestRefused) as error:
        return _not_cached(error)


def _not_cached(error: ValueTooLarge | RequestRefused) -> bool:
    if isinstance(error, RequestRefused) and "too large" not in str(error):
        raise error
    _log.warning("not cached: %s", error)
    return False


def _counted(count: Callable[[], int | None]) -> int | None:
    try:
        return count()
    except RequestRefused as error:
        raise _not_a_number(error) from error


def _not_a_number(error: RequestRefused) -> Exception:
    """Django wants a TypeError for adding to what is no number."""
    return TypeError(str(error)) if "non-numeric" in str(error) else error


class DjangoClient:
    """`glasscache.Client` under the names that Django's memcached backends call."""

    def __init__(self, servers: Iterable[str], **options: Any) -> None:
        """Make a client of Django's list of servers."""
        self.client = Client([server.removeprefix("unix:") for server in servers], **options)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under key, or default."""
        return self.client.get(key, default)

    def set(self, key: str, value: Any, timeout: float) -> bool:
        """Store a value; whether it was stored."""
        return _stored(lambda: self.client.set(key, value, timeout))

    def add(self, key: str, value: Any, timeout: float) -> bool:
        """Store a value if there is none; whether it was stored."""
        return _stored(lambda: self.client.add(key, value, timeout))

    def touch(self, key: str, timeout: float) -> bool:
        """Give a key another timeout; whether it was there."""
        return self.client.touch(key, timeout)

    def delete(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return self.client.delete(key)

    def incr(self, key: str, delta: int = 1) -> int | None:
        """Add to a number; None when there is none, TypeError when it is no number."""
        return _counted(lambda: self.client.incr(key, delta))

    def decr(self, key: str, delta: int = 1) -> int | None:
        """Subtract from a number, not below 0; None when there is none, TypeError when it is no number."""
        return _counted(lambda: self.client.decr(key, delta))

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


class GlassCache(BaseMemcachedCache):
    """A Django cache on memcached or glasscache servers."""

    # Django's own, which its stubs do not have.
    _cache: DjangoClient
    _options: dict[str, Any]

    def __init__(self, server: str | list[str], params: dict[str, Any]) -> None:
        """Take what Django hands a backend."""
        options = dict(params.get("OPTIONS") or {})
        self._lease_options = {word: options.pop(word) for word in _LEASE_WORDS if word in options}
        options.setdefault("codec", "pickle")
        super().__init__(
            server,
            {**params, "OPTIONS": options},
            library=cast("ModuleType", _Library),
            value_not_found_exception=KeyError,
        )
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> int:
        """Return seconds from now as our client counts them: 0 for ever, -1 expired at once."""
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        if timeout is None:
            return 0
        return int(timeout) if int(timeout) > 0 else -1

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

    def _lease(self, timeout: Any) -> Lease | None:
        """How `get_or_set` refills; None for a timeout that expires at once."""
        ttl = self.get_backend_timeout(timeout)
        return None if ttl < 0 else Lease(ttl or None, **self._lease_options)

    # The asyncio half.

    @property
    def _async(self) -> AsyncClient:
        """The client of the running loop."""
        from glasscache import AsyncClient  # noqa: PLC0415 - asyncio only for those who use it

        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop)
        if client is None:
            servers = [server.removeprefix("unix:") for server in self.client_servers]
            client = self._by_loop[loop] = AsyncClient(servers, **self._options)
        return client

    def _key(self, key: str, version: int | None) -> str:
        made: str = self.make_and_validate_key(key, version=version)
        return made

    async def aadd(
        self,
        key: str,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's word
        version: int | None = None,
    ) -> bool:
        """As `add`, awaited."""
        return await _astored(
            self._async.add(self._key(key, version), value, self.get_backend_timeout(timeout))
        )

    async def aget(self, key: str, default: Any = None, version: int | None = None) -> Any:
        """As `get`, awaited."""
        return await self._async.get(self._key(key, version), default)

    async def aset(
        self,
        key: str,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's word
        version: int | None = None,
    ) -> None:
        """As `set`, awaited."""
        key = self._key(key, version)
        if not await _astored(self._async.set(key, value, self.get_backend_timeout(timeout))):
            await self._async.delete(key)

    async def atouch(
        self,
        key: str,
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's word
        version: int | None = None,
    ) -> bool:
        """As `touch`, awaited."""
        return bool(
            await self._async.touch(self._key(key, version), self.get_backend_timeout(timeout))
        )

    async def adelete(self, key: str, version: int | None = None) -> bool:
        """As `delete`, awaited."""
        return bool(await self._async.delete(self._key(key, version)))

    async def aget_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        """As `get_many`, awaited."""
        names: dict[str | bytes, str] = {self._key(key, version): key for key in keys}
        found = await self._async.get_many(list(names))
        return {names[key]: value for key, value in found.items()}

    async def aset_many(
        self,
        data: Mapping[str, Any],
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's word
        version: int | None = None,
    ) -> list[str]:
        """As `set_many`, awaited."""
        names: dict[str | bytes, str] = {self._key(key, version): key for key in data}
        values = {made: data[key] for made, key in names.items()}
        failed = await self._async.set_many(values, self.get_backend_timeout(timeout))
        return [names[key] for key in failed]

    async def adelete_many(self, keys: Iterable[str], version: int | None = None) -> None:
        """As `delete_many`, awaited."""
        await self._async.delete_many([self._key(key, version) for key in keys])

    async def aincr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """As `incr`, awaited."""
        made = self._key(key, version)
        call = self._async.decr(made, -delta) if delta < 0 else self._async.incr(made, delta)
        try:
            number = await call
        except RequestRefused as error:
            raise _not_a_number(error) from error
        if number is None:
            raise ValueError(f"Key '{made}' not found")
        return int(number)

    async def adecr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """As `decr`, awaited."""
        return await self.aincr(key, -delta, version)

    async def ahas_key(self, key: str, version: int | None = None) -> bool:
        """As `has_key`, awaited."""
        return await self._async.get(self._key(key, version), _MISSING) is not _MISSING

    async def aget_or_set(
        self,
        key: str,
        default: Any,
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's word
        version: int | None = None,
    ) -> Any:
        """As `get_or_set`, awaited; `default` may be a coroutine function as well."""
        lease = self._lease(timeout)
        if callable(default) and lease is not None:
            return await self._async.get_or_set_by(self._key(key, version), default, lease)
        value = await self.aget(key, _MISSING, version)
        if value is not _MISSING:
            return value
        made: Any = default() if callable(default) else default
        if callable(default) and hasattr(made, "__await__"):
            made = await made
        await self.aadd(key, made, timeout, version)
        # Another may have been quicker.
        return await self.aget(key, made, version)

    async def aincr_version(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """As `incr_version`, awaited."""
        version = self.version if version is None else version
        value = await self.aget(key, _MISSING, version)
        if value is _MISSING:
            raise ValueError(f"Key '{key}' not found")
        await self.aset(key, value, version=version + delta)
        await self.adelete(key, version)
        return int(version + delta)

    async def adecr_version(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """As `decr_version`, awaited."""
        return await self.aincr_version(key, -delta, version)

    async def aclear(self) -> None:
        """As `clear`, awaited."""
        await self._async.flush()

    async def aclose(self, **kwargs: Any) -> None:
        """Keep the connections: they serve the next request."""


async def _astored(store: Awaitable[bool]) -> bool:
    try:
        return await store
    except (ValueTooLarge, RequestRefused) as error:
        return _not_cached(error)


class _Library:
    """What Django's base class asks of a client library."""

    Client = DjangoClient
