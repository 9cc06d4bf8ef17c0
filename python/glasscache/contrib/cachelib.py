"""A cachelib backend; `glasscache.contrib.flask` has the type for Flask-Caching.

    cache = GlassCache("127.0.0.1:11211", default_timeout=300)

Values are those of the client's codec: no pickle unless it is chosen by `codec="pickle"`. `clear` removes
every item of the servers unless `key_prefix` is given: then it starts a new generation of the prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

try:
    from cachelib.base import BaseCache
except ImportError as error:  # pragma: no cover
    raise ImportError("glasscache.contrib.cachelib needs the package cachelib") from error

from glasscache._generations import read_generation, start_generation
from glasscache.client import Client
from glasscache.errors import BadKey, BadSetting

if TYPE_CHECKING:
    import datetime as dt

__all__ = ["GlassCache"]

_MISSING: Final = object()
_CAS_ATTEMPTS_MAX: Final = 100
"""How often `inc` tries again because another writer of the key came first."""


class GlassCache(BaseCache):
    """A cachelib cache.

    Args:
        servers: as of `Client`; or a `Client`.
        default_timeout: seconds, or a timedelta; 0 never expires.
        key_prefix: stands before each key.
        ignore_delete_many_errors: as of cachelib.
        check_connection: ask each server now whether it is there.
        options: keywords of `Client`.

    """

    def __init__(
        self,
        servers: Any = "127.0.0.1:11211",
        default_timeout: int | dt.timedelta = 300,
        key_prefix: str = "",
        *,
        ignore_delete_many_errors: bool = True,
        check_connection: bool = False,
        **options: Any,
    ) -> None:
        """Make the cache; no connection is opened yet, unless it is to be checked.

        Raises:
            RuntimeError: `check_connection`, and a server does not reply.

        """
        super().__init__(default_timeout, ignore_delete_many_errors)
        if isinstance(servers, Client) and options:
            names = ", ".join(options)
            raise BadSetting(f"{names}: settings of a new client; leave them out, or give servers")
        self.client: Client = servers if isinstance(servers, Client) else Client(servers, **options)
        self.key_prefix = key_prefix
        if check_connection:
            self._check_connection()

    def _check_connection(self) -> None:
        for server, reply in self.client.server_stats().items():
            if isinstance(reply, Exception):
                message = f"could not connect to memcached server {server}: {reply}"
                raise RuntimeError(message) from reply  # noqa: TRY004 - as cachelib's own backends

    def _full_key(self, key: str) -> str:
        """Return the key of the store; with a prefix it holds the prefix's generation."""
        return f"{self.key_prefix}{self._generation_prefix()}{key}"

    @property
    def _generation_key(self) -> str:
        return f"~generation:{self.key_prefix}"

    def _generation_prefix(self) -> str:
        if not self.key_prefix:
            return ""
        return f"{read_generation(self.client, self._generation_key)}:"

    def _ttl_of(self, timeout: int | dt.timedelta | None) -> int | None:
        seconds = self._normalize_timeout(timeout)
        # For cachelib 0 is for ever, and below 0 over at once.
        return seconds or None

    def get(self, key: str) -> Any:
        """Return the value under key, or None; a key that no server takes is a miss."""
        try:
            return self.client.get(self._full_key(key))
        except BadKey:
            return None

    def get_many(self, *keys: str) -> list[Any]:
        """Return the values under keys, or None for those that missed, by one request a server."""
        values = self._stored_values(keys)
        return [values.get(key) for key in keys]

    def get_dict(self, *keys: str) -> dict[str, Any]:
        """Return the values under keys, with None for those that missed."""
        values = self._stored_values(keys)
        return {key: values.get(key) for key in keys}

    def _stored_values(self, keys: tuple[str, ...]) -> dict[str, Any]:
        full_prefix = f"{self.key_prefix}{self._generation_prefix()}"
        stored_values = self.client.get_many([full_prefix + key for key in keys])
        return {full_key[len(full_prefix) :]: value for full_key, value in stored_values.items()}

    def set(self, key: str, value: Any, timeout: int | dt.timedelta | None = None) -> bool:
        """Store value under key; whether it was stored."""
        return self.client.set(self._full_key(key), value, ttl=self._ttl_of(timeout))

    def add(self, key: str, value: Any, timeout: int | dt.timedelta | None = None) -> bool:
        """Store value if there is none under key; whether it was stored."""
        return self.client.add(self._full_key(key), value, ttl=self._ttl_of(timeout))

    def set_many(
        self, mapping: dict[str, Any], timeout: int | dt.timedelta | None = None
    ) -> list[Any]:
        """Store a mapping's values, by one request a server; return the keys that were stored."""
        full_prefix = f"{self.key_prefix}{self._generation_prefix()}"
        failures = self.client.set_many(
            {full_prefix + key: value for key, value in mapping.items()}, ttl=self._ttl_of(timeout)
        )
        return [key for key in mapping if full_prefix + key not in failures]

    def delete(self, key: str) -> bool:
        """Remove key; whether it was there."""
        try:
            return self.client.delete(self._full_key(key))
        except BadKey:
            return False

    def delete_many(self, *keys: str) -> list[Any]:
        """Remove keys, by one request a server; return those that are gone."""
        full_prefix = f"{self.key_prefix}{self._generation_prefix()}"
        failures = self.client.delete_many([full_prefix + key for key in keys])
        if failures and not self.ignore_delete_many_errors:
            raise RuntimeError(f"delete_many failed: {', '.join(map(str, failures))}")
        return [key for key in keys if full_prefix + key not in failures]

    def has(self, key: str) -> bool:
        """Whether there is a value under key."""
        try:
            return self.client.get(self._full_key(key), _MISSING) is not _MISSING
        except BadKey:
            return False

    def clear(self) -> bool:
        """Remove everything, or with a `key_prefix` everything of it."""
        if self.key_prefix:
            return start_generation(self.client, self._generation_key)
        return not any(isinstance(reply, Exception) for reply in self.client.flush().values())

    def inc(self, key: str, delta: int = 1) -> int | None:
        """Add to the number under key, which begins at 0; return the sum, or None if it failed."""
        full_key, ttl = self._full_key(key), self._ttl_of(None)
        for _ in range(_CAS_ATTEMPTS_MAX):
            value_and_cas = self.client.gets(full_key)
            if value_and_cas is None:
                if self.client.add(full_key, delta, ttl=ttl):
                    return delta
                continue
            total = int(value_and_cas[0] or 0) + delta
            if self.client.cas(full_key, total, value_and_cas[1], ttl=ttl):
                return total
        return None

    def dec(self, key: str, delta: int = 1) -> int | None:
        """Subtract from the number under key; return what is left, or None if it failed."""
        return self.inc(key, -delta)
