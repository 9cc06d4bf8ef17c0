"""A requests-cache backend: responses of `requests` kept in the cache with the TTLs of their servers.

    session = CachedSession(backend=GlassCacheBackend("127.0.0.1:11211"), cache_control=True)

An expired response stays for an hour (`ttl_offset`), so that it can be validated, which costs less than a
new one, and can be used when its server fails.

A memcached server cannot list keys, so what needs a list does nothing or is refused: `keys`, `values`,
`filter`, `len`. `clear` starts a new generation of the namespace.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

try:
    from requests_cache.backends.base import BaseCache, BaseStorage
    from requests_cache.serializers import pickle_serializer
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "glasscache.contrib.requests_cache needs the package requests-cache"
    ) from error

from glasscache._client_settings import CLIENT_SETTINGS
from glasscache._generations import read_generation, start_generation
from glasscache.client import Client
from glasscache.errors import BadSetting, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from glasscache.values import Codec

__all__ = ["GlassCacheBackend", "GlassCacheDict"]

TTL_OFFSET_S: Final = 3600
"""Seconds for which an expired response is kept; the default of requests-cache's Redis backend."""
_MISSING: Final = object()
_log = logging.getLogger("glasscache.requests_cache")
_NO_LIST: Final = "a memcached server cannot list keys"


class GlassCacheDict(BaseStorage[str, Any]):
    """A mapping whose values are in the cache; it has no list of its keys."""

    def __init__(
        self,
        namespace: str,
        client: Client,
        *,
        serializer: Any = None,
        ttl: float | None = None,
        ttl_offset: float = TTL_OFFSET_S,
        **options: Any,
    ) -> None:
        """Bind to a client.

        Args:
            namespace: stands before each key.
            client: a `Client`.
            serializer: of requests-cache; None stores values as they are.
            ttl: seconds for values that do not say when they expire.
            ttl_offset: seconds for which a response is kept after it has expired.
            options: of `BaseStorage`.

        """
        cast("Any", super()).__init__(serializer=serializer, **options)
        self._namespace, self._client = namespace, client
        self._generation_key = f"{namespace}:~generation"
        self._ttl, self._ttl_offset = ttl, ttl_offset

    def _key_prefix(self) -> str:
        """Return the prefix of all keys since the last `clear`; without a server, one that finds nothing."""
        return f"{self._namespace}:{read_generation(self._client, self._generation_key)}:"

    def _full_key(self, key: str) -> str:
        return self._key_prefix() + key

    def __getitem__(self, key: str) -> Any:
        """Return the value under key."""
        stored_value = self._client.get(self._full_key(key), _MISSING)
        if stored_value is _MISSING:
            raise KeyError(key)
        return cast("Any", self).deserialize(key, stored_value)

    def __setitem__(self, key: str, value: Any) -> None:
        """Store a value, a response for `ttl_offset` longer than it may be used without validation.

        A long one is stored in pieces; one that no server takes is not stored, and logged.
        """
        fresh_s: Any = getattr(value, "expires_delta", None)
        kept_s = 0.0 if fresh_s is None else fresh_s + self._ttl_offset
        full_key, serialized = self._full_key(key), self.serialize(value)
        ttl = kept_s if kept_s > 0 else self._ttl
        try:
            # Only this package's own dialect has a form for values in pieces.
            self._client.set(
                full_key,
                serialized,
                ttl=ttl,
                split=cast("Codec", self._client.codec).dialect == "own",
            )
        except ValueTooLarge as error:
            _log.warning("not cached: %s", error)

    def __delitem__(self, key: str) -> None:
        """Remove key."""
        if not self._client.delete(self._full_key(key)):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        """Whether there is a value under key."""
        return (
            isinstance(key, str) and self._client.get(self._full_key(key), _MISSING) is not _MISSING
        )

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values under keys, without those that missed, by one request a server."""
        key_prefix = self._key_prefix()
        keys_by_full_key = {key_prefix + key: key for key in keys}
        stored_values = self._client.get_many(list(keys_by_full_key))
        deserialize: Any = cast("Any", self).deserialize
        return {
            keys_by_full_key[full_key]: deserialize(keys_by_full_key[full_key], value)
            for full_key, value in stored_values.items()
        }

    def bulk_delete(self, keys: Iterable[str]) -> None:
        """Remove keys, by one request a server."""
        key_prefix = self._key_prefix()
        self._client.delete_many([key_prefix + key for key in keys])

    def clear(self) -> None:
        """Forget every value."""
        start_generation(self._client, self._generation_key)

    def __iter__(self) -> Iterator[str]:
        """Raise: there is no list of keys."""
        raise NotImplementedError(_NO_LIST)

    def __len__(self) -> int:
        """Raise: there is no list of keys."""
        raise NotImplementedError(_NO_LIST)

    def __bool__(self) -> bool:
        """Return True: whether there are values is not known."""
        return True

    def __str__(self) -> str:
        """Return where the values are."""
        return f"GlassCacheDict({self._namespace!r})"


class GlassCacheBackend(BaseCache):
    """The backend of a `CachedSession`.

    Args:
        servers: as of `Client`; or a `Client`.
        namespace: stands before each key.
        ttl: seconds for responses that never expire otherwise; None keeps them until they are evicted.
        ttl_offset: seconds for which a response is kept after it has expired.
        options: the settings of `Client`, and `serializer` and others of requests-cache.

    """

    def __init__(
        self,
        servers: Any = "127.0.0.1:11211",
        namespace: str = "http_cache",
        *,
        ttl: float | None = None,
        ttl_offset: float = TTL_OFFSET_S,
        **options: Any,
    ) -> None:
        """Make the backend; no connection is opened yet."""
        client_options = {name: options.pop(name) for name in CLIENT_SETTINGS if name in options}
        cast("Any", super()).__init__(cache_name=namespace, **options)
        if isinstance(servers, Client) and client_options:
            names = ", ".join(client_options)
            raise BadSetting(f"{names}: settings of a new client; leave them out, or give servers")
        client = servers if isinstance(servers, Client) else Client(servers, **client_options)
        serializer = options.pop("serializer", None) or pickle_serializer
        self.client = client
        self.responses: Any = GlassCacheDict(
            f"{namespace}:r", client, serializer=serializer, ttl=ttl, ttl_offset=ttl_offset
        )
        self.redirects: Any = GlassCacheDict(f"{namespace}:d", client, ttl=ttl)

    def get_responses(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the stored responses of many keys, by one request a server."""
        stored_responses: dict[str, Any] = self.responses.get_many(keys)
        return stored_responses
