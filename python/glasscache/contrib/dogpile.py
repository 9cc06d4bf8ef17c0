"""dogpile.cache over this package: a backend for regions, a mutex by lease, and a region for asyncio.

    region = make_region().configure("glasscache", arguments={"servers": "127.0.0.1:11211"})
    region = AsyncRegion().configure("glasscache.async", expiration_time=300)

Values are serialised by the region (pickle unless it is given others) and stored as bytes. The mutex is an
item that is added, and removed only by the one that added it, so it holds among all processes of the cache.
"""

from __future__ import annotations

import hashlib
import inspect
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, cast

try:
    from dogpile.cache.api import NO_VALUE, BytesBackend, CachedValue
    from dogpile.cache.region import CacheRegion
except ImportError as error:  # pragma: no cover
    raise ImportError("glasscache.contrib.dogpile needs the package dogpile.cache") from error

from glasscache._key_lease import KeyLease
from glasscache._steps import carry_out
from glasscache.client import Client
from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import Self

    from glasscache.aio import AsyncClient

__all__ = ["AsyncGlassCacheBackend", "AsyncRegion", "GlassCacheBackend"]

_BACKEND_ARGUMENTS: Final[tuple[str, ...]] = ("client", "ttl", "distributed_lock", "lock_timeout")
_OWN_NAMES: Final = {"url": "servers", "memcached_expire_time": "ttl"}
"""Arguments of dogpile's own memcached backends, and what they are here."""
_KEY_CHARS_MAX: Final = 200
"""A lock has a longer name than its key, and a namespace may stand before both."""
_POLL_FIRST_S: Final = 0.002
_POLL_LAST_S: Final = 0.05


def _make_server_key(key: str) -> str:
    """Return a key that servers take: dogpile's own have spaces, and any length."""
    is_valid_key = (
        len(key) <= _KEY_CHARS_MAX and key.isascii() and key.isprintable() and " " not in key
    )
    return key if is_valid_key else hashlib.sha256(key.encode()).hexdigest()


class GlassCacheBackend(BytesBackend):
    """The backend `glasscache`.

    Arguments of the region's `arguments`: `servers` (dogpile's `url`) and every keyword of `Client`, or
    `client`; `ttl` (dogpile's `memcached_expire_time`), seconds after which the store forgets values
    (dogpile's own expiration time belongs below it);
    `distributed_lock` (True), whether the region's mutex holds among processes; `lock_timeout` (60),
    seconds after which a lock that was not released ends.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Make the backend; no connection is opened yet."""
        arguments, client_options = _split_arguments(arguments, Client)
        self.ttl: float | None = arguments.get("ttl")
        self.distributed_lock: bool = arguments.get("distributed_lock", True)
        self.lock_timeout: float = arguments.get("lock_timeout", 60)
        client = arguments.get("client")
        self.client: Client = Client(**client_options) if client is None else client

    def has_lock_timeout(self) -> bool:
        """Whether locks end by themselves."""
        return self.distributed_lock and bool(self.lock_timeout)

    def get_mutex(self, key: str) -> Any:
        """Return a lock of all processes, or None for dogpile's own among threads."""
        return (
            _Mutex(self.client, _make_server_key(key), self.lock_timeout)
            if self.distributed_lock
            else None
        )

    def get_serialized(self, key: str) -> Any:
        """Return the bytes under key, or NO_VALUE."""
        return self.client.get(_make_server_key(key), NO_VALUE)

    def get_serialized_multi(self, keys: Iterable[str]) -> Sequence[Any]:
        """Return the bytes under each of the keys, or NO_VALUE, by one request a server."""
        server_keys = [_make_server_key(key) for key in keys]
        values = self.client.get_many(server_keys) if server_keys else {}
        return [values.get(server_key, NO_VALUE) for server_key in server_keys]

    def set_serialized(self, key: str, value: bytes) -> None:
        """Store bytes under key."""
        self.client.set(_make_server_key(key), value, ttl=self.ttl)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        """Store bytes under keys, by one request a server."""
        if mapping:
            values_by_server_key = {_make_server_key(key): value for key, value in mapping.items()}
            _raise_first(self.client.set_many(values_by_server_key, ttl=self.ttl))

    def delete(self, key: str) -> None:
        """Remove key."""
        self.client.delete(_make_server_key(key))

    def delete_multi(self, keys: Iterable[str]) -> None:
        """Remove keys, by one request a server."""
        _raise_first(self.client.delete_many([_make_server_key(key) for key in keys]))


def _split_arguments(
    arguments: Mapping[str, Any], client_class: type[Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the backend's arguments of a configuration, and the client's.

    Raises:
        BadSetting: one is of neither, or is given twice.

    """
    client_options = [name for name in inspect.signature(client_class).parameters if name != "cls"]
    by_name: dict[str, Any] = {}
    for given_name, value in arguments.items():
        name = _OWN_NAMES.get(given_name, given_name)
        if name not in _BACKEND_ARGUMENTS and name not in client_options:
            accepted = ", ".join([*_BACKEND_ARGUMENTS, *_OWN_NAMES, *client_options])
            raise BadSetting(f"arguments: {given_name!r} is not among {accepted}")
        if name in by_name:
            raise BadSetting(f"arguments: {name!r} is given twice; leave {given_name!r} out")
        by_name[name] = value
    backend_arguments = {name: by_name.pop(name) for name in _BACKEND_ARGUMENTS if name in by_name}
    if backend_arguments.get("client") is not None and by_name:
        raise BadSetting(
            f"arguments: {', '.join(by_name)} are settings of a new client; leave them or 'client' out"
        )
    return backend_arguments, by_name


def _raise_first(errors: Mapping[Any, Exception]) -> None:
    for error in errors.values():
        raise error


class _Mutex:
    """A lock under a key of its own; it belongs to whoever added its token.

    A cache that is down locks nothing, and a lock is waited for as long as it may be held at most: the value
    is then created without it, as it would be without a cache.
    """

    def __init__(self, client: Client, server_key: str, lock_timeout: float) -> None:
        self._client, self._lock_key = client, _make_lock_key(server_key)
        self._lock_timeout = lock_timeout or None
        self._lease: KeyLease | None = None

    def acquire(self, wait: bool = True) -> bool:
        """Take the lock; without `wait`, whether it was free."""
        began_at, pause_s = time.monotonic(), _POLL_FIRST_S
        lease = KeyLease(self._client, self._lock_key, self._lock_timeout)
        while not (is_acquired := carry_out(lease.acquire_or_skip())):
            if is_acquired is None:
                return True
            if not wait:
                return False
            if self._lock_timeout and time.monotonic() - began_at >= self._lock_timeout:
                return True
            time.sleep(pause_s * (0.5 + secrets.randbelow(1000) / 1000))
            pause_s = min(2 * pause_s, _POLL_LAST_S)
        self._lease = lease
        return True

    def release(self) -> None:
        """Give the lock back, unless it ended and is another's by now."""
        lease, self._lease = self._lease, None
        if lease is not None:
            carry_out(lease.release())

    def locked(self) -> bool:
        """Whether anybody holds the lock."""
        return self._client.get(self._lock_key) is not None


def _make_lock_key(server_key: str) -> str:
    return f"~lock:{server_key}"


class AsyncGlassCacheBackend(BytesBackend):
    """The backend `glasscache.async` of an `AsyncRegion`; the arguments are those of `GlassCacheBackend`."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Make the backend; no connection is opened yet."""
        from glasscache.aio import AsyncClient  # noqa: PLC0415 - only asyncio programs pay for it

        arguments, client_options = _split_arguments(arguments, AsyncClient)
        self.ttl: float | None = arguments.get("ttl")
        self.lock_timeout: float = arguments.get("lock_timeout", 60)
        client = arguments.get("client")
        self.client: AsyncClient = AsyncClient(**client_options) if client is None else client


class AsyncRegion:
    """A region for asyncio, with the methods of dogpile's `CacheRegion`.

    It takes `configure`'s arguments and a region's (`function_key_generator`, `key_mangler`, `serializer`,
    ...). Of many tasks and processes that miss one key, one runs the creator and the others wait for its
    value; when a value has expired, the others get the old one meanwhile.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a region, with the arguments of `CacheRegion`."""
        self._region: Any = CacheRegion(*args, **kwargs)

    def configure(self, backend: str = "glasscache.async", **options: Any) -> Self:
        """Configure the region, as `CacheRegion.configure`; the backend is `glasscache.async`."""
        self._region.configure(backend, **options)
        if not isinstance(self._region.backend, AsyncGlassCacheBackend):
            raise TypeError(f"an AsyncRegion needs the backend glasscache.async, not {backend!r}")
        return self

    @property
    def _backend(self) -> AsyncGlassCacheBackend:
        backend: AsyncGlassCacheBackend = self._region.actual_backend
        return backend

    def _server_key(self, key: str) -> str:
        """Return the server's key for one of the region's."""
        key_mangler = self._region.key_mangler
        return _make_server_key(key_mangler(key) if key_mangler else key)

    def _parse_cached_value(
        self, serialized: Any, expiration_time: float | None
    ) -> tuple[Any, bool]:
        """Return a cached value (or NO_VALUE) and whether it has expired or was invalidated softly."""
        cached_value: Any = (
            NO_VALUE
            if serialized is NO_VALUE
            else self._region._parse_serialized_from_backend(serialized)
        )
        if cached_value is NO_VALUE:
            return NO_VALUE, True
        lifetime_s = self._region.expiration_time if expiration_time is None else expiration_time
        invalidator: Any = self._region.region_invalidator
        created_at: float = cached_value.metadata["ct"]
        if invalidator.is_hard_invalidated(created_at):
            return NO_VALUE, True
        is_too_old = (
            lifetime_s is not None and lifetime_s >= 0 and time.time() - created_at > lifetime_s
        )
        return cached_value, is_too_old or bool(invalidator.is_soft_invalidated(created_at))

    async def get(
        self, key: str, expiration_time: float | None = None, *, ignore_expiration: bool = False
    ) -> Any:
        """Return the value under key, or NO_VALUE."""
        serialized = await self._backend.client.get(self._server_key(key), NO_VALUE)
        cached_value, is_expired = self._parse_cached_value(serialized, expiration_time)
        return (
            NO_VALUE
            if cached_value is NO_VALUE or (is_expired and not ignore_expiration)
            else cached_value.payload
        )

    async def get_multi(
        self,
        keys: Iterable[str],
        expiration_time: float | None = None,
        *,
        ignore_expiration: bool = False,
    ) -> list[Any]:
        """Return the values under keys, or NO_VALUE, by one request a server."""
        server_keys = [self._server_key(key) for key in keys]
        serialized_by_key = await self._backend.client.get_many(server_keys) if server_keys else {}
        payloads: list[Any] = []
        for server_key in server_keys:
            cached_value, is_expired = self._parse_cached_value(
                serialized_by_key.get(server_key, NO_VALUE), expiration_time
            )
            is_missing = cached_value is NO_VALUE or (is_expired and not ignore_expiration)
            payloads.append(NO_VALUE if is_missing else cached_value.payload)
        return payloads

    def _serialize(self, value: Any) -> bytes:
        cached_value: Any = CachedValue(value, {"ct": time.time(), "v": 2})
        serialized: bytes = self._region._serialize_cached_value_elements(
            value, cached_value.metadata
        )
        return serialized

    async def set(self, key: str, value: Any) -> None:
        """Store a value under key."""
        await self._backend.client.set(
            self._server_key(key), self._serialize(value), ttl=self._backend.ttl
        )

    async def set_multi(self, mapping: Mapping[str, Any]) -> None:
        """Store values under keys, by one request a server."""
        if mapping:
            serialized_by_key = {
                self._server_key(key): self._serialize(value) for key, value in mapping.items()
            }
            _raise_first(
                await self._backend.client.set_many(serialized_by_key, ttl=self._backend.ttl)
            )

    async def delete(self, key: str) -> None:
        """Remove key."""
        await self._backend.client.delete(self._server_key(key))

    async def delete_multi(self, keys: Iterable[str]) -> None:
        """Remove keys, by one request a server."""
        _raise_first(
            await self._backend.client.delete_many([self._server_key(key) for key in keys])
        )

    def invalidate(self, hard: bool = True) -> None:
        """Stop using all values made up to now, in this process, as `CacheRegion.invalidate`."""
        self._region.invalidate(hard)

    async def get_or_create(
        self,
        key: str,
        creator: Callable[..., Awaitable[Any]],
        expiration_time: float | None = None,
        should_cache_fn: Callable[[Any], bool] | None = None,
        creator_args: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
    ) -> Any:
        """Return the value under key, or create it, store it and return it."""
        import asyncio  # noqa: PLC0415 - as above

        client, server_key = self._backend.client, self._server_key(key)
        lock_key, token, pause_s = (
            _make_lock_key(server_key),
            secrets.token_bytes(12),
            _POLL_FIRST_S,
        )
        while True:
            cached_value, is_expired = self._parse_cached_value(
                await client.get(server_key, NO_VALUE), expiration_time
            )
            if cached_value is not NO_VALUE and not is_expired:
                return cached_value.payload
            if await client.add(lock_key, token, ttl=self._backend.lock_timeout or None):
                break
            if cached_value is not NO_VALUE:
                return cached_value.payload  # old, while another creates the new one
            await asyncio.sleep(pause_s * (0.5 + secrets.randbelow(1000) / 1000))
            pause_s = min(2 * pause_s, _POLL_LAST_S)
        try:
            # Between the look and the lock another may have stored it.
            cached_value, is_expired = self._parse_cached_value(
                await client.get(server_key, NO_VALUE), expiration_time
            )
            if cached_value is not NO_VALUE and not is_expired:
                return cached_value.payload
            creator_arguments, creator_keywords = creator_args or ((), {})
            created_value = await creator(*creator_arguments, **creator_keywords)
            if should_cache_fn is None or should_cache_fn(created_value):
                await self.set(key, created_value)
            return created_value
        finally:
            value_and_cas = await client.gets(lock_key)
            if value_and_cas is not None and value_and_cas[0] == token:
                await client.cas(lock_key, b"", value_and_cas[1], ttl=-1)

    def cache_on_arguments(
        self,
        namespace: str | None = None,
        expiration_time: float | None = None,
        should_cache_fn: Callable[[Any], bool] | None = None,
        function_key_generator: Callable[..., Any] | None = None,
    ) -> Callable[[Callable[..., Awaitable[Any]]], Any]:
        """Return a decorator that keeps a coroutine function's results by its arguments.

        The decorated function has `invalidate`, `refresh`, `set` and `get`, to be awaited, and `original`.
        """
        import functools  # noqa: PLC0415 - as above

        make_key_generator = function_key_generator or self._region.function_key_generator

        def decorate(function: Callable[..., Awaitable[Any]]) -> Any:
            key_generator: Callable[..., str] = make_key_generator(namespace, function)

            @functools.wraps(function)
            async def cached(*args: Any, **kwargs: Any) -> Any:
                return await self.get_or_create(
                    key_generator(*args, **kwargs),
                    function,
                    expiration_time,
                    should_cache_fn,
                    (args, kwargs),
                )

            async def invalidate(*args: Any, **kwargs: Any) -> None:
                await self.delete(key_generator(*args, **kwargs))

            async def refresh(*args: Any, **kwargs: Any) -> Any:
                value = await function(*args, **kwargs)
                await self.set(key_generator(*args, **kwargs), value)
                return value

            async def set_value(value: Any, *args: Any, **kwargs: Any) -> None:
                await self.set(key_generator(*args, **kwargs), value)

            async def get_cached(*args: Any, **kwargs: Any) -> Any:
                return await self.get(key_generator(*args, **kwargs), expiration_time)

            decorated = cast("Any", cached)
            decorated.invalidate, decorated.refresh, decorated.set, decorated.get = (
                invalidate,
                refresh,
                set_value,
                get_cached,
            )
            decorated.original, decorated.key_generator = function, key_generator
            return decorated

        return decorate
