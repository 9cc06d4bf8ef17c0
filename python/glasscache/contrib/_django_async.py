"""The `a*` methods of Django's caches, which await the wire instead of borrowing a thread."""

from __future__ import annotations

import asyncio
import atexit
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.memcached import BaseMemcachedCache

from glasscache import RequestRefused
from glasscache._native import is_session_key
from glasscache._refresh import GetOrSetOptions
from glasscache.contrib._django_client import (
    MISSING,
    DjangoClient,
    checked_client_options,
    raise_if_absent,
    to_django_error,
)
from glasscache.contrib._django_settings import without_blocking_options
from glasscache.recording import Recorder

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable, Mapping

    from glasscache import AsyncClient, Client
    from glasscache.contrib._django_settings import CacheSettings


class SharedClients(NamedTuple):
    """What the backends of one cache share in a process: its settings and its clients."""

    given_options: dict[str, Any]
    """As they were given: kept alive, so that the identity of what is shared stays unique."""
    cache_settings: CacheSettings
    blocking_client_cell: list[DjangoClient]
    """At most one: the client of all threads, once it was needed."""
    clients_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient]
    recorder_cell: list[Recorder]
    """At most one: the recorder of all clients, once there is a client whose calls are recorded."""

    def blocking_client(self) -> DjangoClient:
        """Return the client of all threads."""
        if not self.blocking_client_cell:
            # Two threads may make one each at first: both work, and the second is dropped.
            new_client = DjangoClient(self.cache_settings)
            self.record_calls(new_client.client)
            self.blocking_client_cell.append(new_client)
        return self.blocking_client_cell[0]

    def record_calls(self, client: Client | AsyncClient) -> None:
        """Record the calls of a new client, if the settings say so."""
        recorder_options = self.cache_settings.recorder_options
        if recorder_options is None:
            return
        if not self.recorder_cell:
            recorder = Recorder(**recorder_options)
            # No one closes the client of a site, and what is not written yet is written by `close`.
            atexit.register(recorder.close)
            self.recorder_cell.append(recorder)
        self.recorder_cell[0].attach(client)


class AsyncCacheMethods(BaseMemcachedCache):
    """A backend's asyncio half; the client is made once for each event loop."""

    _shared: SharedClients

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> int:
        """Return seconds from now as our client counts them: 0 for ever, -1 expired at once."""
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        if timeout is None:
            return 0
        return int(timeout) if int(timeout) > 0 else -1

    def _get_or_set_options(self, timeout: Any) -> GetOrSetOptions | None:
        """How `get_or_set` refills; None for a timeout that expires at once."""
        ttl = self.get_backend_timeout(timeout)
        return (
            None
            if ttl < 0
            else GetOrSetOptions(ttl or None, **self._shared.cache_settings.lease_options)
        )

    @property
    def _async_client(self) -> AsyncClient:
        """The client of the running loop."""
        from glasscache import AsyncClient  # noqa: PLC0415 - asyncio only when it is used

        loop = asyncio.get_running_loop()
        client = self._shared.clients_by_loop.get(loop)
        if client is None:
            client_options = checked_client_options(self._shared.cache_settings)
            async_options = without_blocking_options(client_options)
            client = AsyncClient(self._shared.cache_settings.servers, **async_options)
            self._shared.record_calls(client)
            self._shared.clients_by_loop[loop] = client
        return client

    def clients(self, is_async: bool) -> list[Any]:
        """Return the process's client, and with `is_async` the client of the running loop too."""
        blocking_client = self._shared.blocking_client().client
        return [blocking_client, self._async_client] if is_async else [blocking_client]

    def _full_key(self, key: str, version: int | None) -> str:
        full_key: str = self.make_and_validate_key(key, version=version)
        return full_key

    async def aadd(
        self,
        key: str,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's argument
        version: int | None = None,
    ) -> bool:
        """As `add`, awaited."""
        full_key = self._full_key(key, version)
        was_added = await self._async_client.add(full_key, value, self.get_backend_timeout(timeout))
        if not was_added and is_session_key(full_key):
            raise_if_absent(await self._async_client.get(full_key, MISSING))
        return was_added

    async def aget(self, key: str, default: Any = None, version: int | None = None) -> Any:
        """As `get`, awaited."""
        return await self._async_client.get(self._full_key(key, version), default)

    async def aset(
        self,
        key: str,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's argument
        version: int | None = None,
    ) -> None:
        """As `set`, awaited."""
        full_key = self._full_key(key, version)
        if not await self._async_client.set(full_key, value, self.get_backend_timeout(timeout)):
            await self._async_client.delete(full_key)

    async def atouch(
        self,
        key: str,
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's argument
        version: int | None = None,
    ) -> bool:
        """As `touch`, awaited."""
        return bool(
            await self._async_client.touch(
                self._full_key(key, version), self.get_backend_timeout(timeout)
            )
        )

    async def adelete(self, key: str, version: int | None = None) -> bool:
        """As `delete`, awaited."""
        return bool(await self._async_client.delete(self._full_key(key, version)))

    async def aget_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        """As `get_many`, awaited."""
        keys_by_full_key: dict[str | bytes, str] = {
            self._full_key(key, version): key for key in keys
        }
        values = await self._async_client.get_many(list(keys_by_full_key))
        return {keys_by_full_key[full_key]: value for full_key, value in values.items()}

    async def aset_many(
        self,
        data: Mapping[str, Any],
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's argument
        version: int | None = None,
    ) -> list[str]:
        """As `set_many`, awaited."""
        keys_by_full_key: dict[str | bytes, str] = {
            self._full_key(key, version): key for key in data
        }
        values = {full_key: data[key] for full_key, key in keys_by_full_key.items()}
        failures = await self._async_client.set_many(values, self.get_backend_timeout(timeout))
        return [keys_by_full_key[full_key] for full_key in failures]

    async def adelete_many(self, keys: Iterable[str], version: int | None = None) -> None:
        """As `delete_many`, awaited."""
        await self._async_client.delete_many([self._full_key(key, version) for key in keys])

    async def aincr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """As `incr`, awaited."""
        full_key = self._full_key(key, version)
        arithmetic_call = (
            self._async_client.decr(full_key, -delta)
            if delta < 0
            else self._async_client.incr(full_key, delta)
        )
        try:
            number = await arithmetic_call
        except RequestRefused as error:
            raise to_django_error(error) from error
        if number is None:
            raise ValueError(f"Key '{full_key}' not found")
        return int(number)

    async def adecr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """As `decr`, awaited."""
        return await self.aincr(key, -delta, version)

    async def ahas_key(self, key: str, version: int | None = None) -> bool:
        """As `has_key`, awaited."""
        return await self._async_client.get(self._full_key(key, version), MISSING) is not MISSING

    async def aget_or_set(
        self,
        key: str,
        default: Any,
        timeout: Any = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - Django's argument
        version: int | None = None,
    ) -> Any:
        """As `get_or_set`, awaited; `default` may be a coroutine function as well."""
        get_or_set_options = self._get_or_set_options(timeout)
        if callable(default) and get_or_set_options is not None:
            return await self._async_client.get_or_set_by(
                self._full_key(key, version), default, get_or_set_options
            )
        value = await self.aget(key, MISSING, version)
        if value is not MISSING:
            return value
        default_value: Any = default() if callable(default) else default
        if callable(default) and hasattr(default_value, "__await__"):
            default_value = await default_value
        await self.aadd(key, default_value, timeout, version)
        # Another may have been quicker.
        return await self.aget(key, default_value, version)

    async def aincr_version(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """As `incr_version`, awaited."""
        version = self.version if version is None else version
        value = await self.aget(key, MISSING, version)
        if value is MISSING:
            raise ValueError(f"Key '{key}' not found")
        await self.aset(key, value, version=version + delta)
        await self.adelete(key, version)
        return int(version + delta)

    async def adecr_version(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """As `decr_version`, awaited."""
        return await self.aincr_version(key, -delta, version)

    async def aclear(self) -> None:
        """As `clear`, awaited."""
        await self._async_client.flush()

    async def aclose(self, **kwargs: Any) -> None:
        """Keep the connections: they serve the next request."""
