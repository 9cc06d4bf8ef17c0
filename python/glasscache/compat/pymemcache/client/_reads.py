"""The calls that read values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glasscache.compat._flagged import ttl_of
from glasscache.compat.pymemcache.client._core import Core, Key
from glasscache.compat.pymemcache.exceptions import translated

if TYPE_CHECKING:
    from collections.abc import Iterable


class Reads(Core):
    """`get` and its kin."""

    @translated
    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value under key, or default."""

        def read() -> Any:
            client, name = self._of(key)
            found = client.get(name)
            return default if found is None else self._value(key, found)

        return self._or(default, read)

    @translated
    def gets(self, key: Key, default: Any = None, cas_default: Any = None) -> tuple[Any, Any]:
        """Return the value under key and its CAS unique as bytes, or both defaults."""

        def read() -> tuple[Any, Any]:
            client, name = self._of(key)
            found = client.gets(name)
            return (
                (default, cas_default)
                if found is None
                else (self._value(key, found[0]), b"%d" % found[1])
            )

        return self._or((default, cas_default), read)

    @translated
    def get_many(self, keys: Iterable[Key]) -> dict[Key, Any]:
        """Return the values of those keys that have one."""
        keys = list(keys)

        def read() -> dict[Key, Any]:
            values: dict[Key, Any] = {}
            for client, names in self._grouped(keys):
                found = client.get_many(list(names))
                values.update(
                    {names[name]: self._value(names[name], item) for name, item in found.items()}
                )
            return values

        return self._or({}, read) if keys else {}

    get_multi = get_many

    @translated
    def gets_many(self, keys: Iterable[Key]) -> dict[Key, tuple[Any, Any]]:
        """Return value and CAS unique, as bytes, of those keys that have one."""
        keys = list(keys)

        def read() -> dict[Key, tuple[Any, Any]]:
            values: dict[Key, tuple[Any, Any]] = {}
            for client, names in self._grouped(keys):
                for name, (item, cas) in client.gets_many(list(names)).items():
                    values[names[name]] = (self._value(names[name], item), b"%d" % cas)
            return values

        return self._or({}, read) if keys else {}

    @translated
    def gat(self, key: Key, expire: int = 0, default: Any = None) -> Any:
        """Return the value under key and give it another expiry."""

        def read() -> Any:
            client, name = self._of(key)
            found = client.gat(name, ttl_of(expire))
            return default if found is None else self._value(key, found)

        return self._or(default, read)
