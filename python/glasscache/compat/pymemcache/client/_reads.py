"""The calls that read values."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import glasscache
from glasscache.compat._flagged import ttl_from_exptime
from glasscache.compat.pymemcache.client._base_client import ClientBase, Key
from glasscache.compat.pymemcache.exceptions import translate_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MISSING: Final = object()


class Reads(ClientBase):
    """`get` and its kin."""

    @translate_errors
    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value under key, or default."""
        client, full_key = self._client_and_full_key(key)

        def read() -> Any:
            flagged_value = client.get(full_key)
            return default if flagged_value is None else self._from_flagged(key, flagged_value)

        return self._read_or_default(default, read)

    @translate_errors
    def gets(self, key: Key, default: Any = None, cas_default: Any = None) -> tuple[Any, Any]:
        """Return the value under key and its CAS unique as bytes, or both defaults."""
        client, full_key = self._client_and_full_key(key)

        def read() -> tuple[Any, Any]:
            value_and_cas = client.gets(full_key)
            return (
                (default, cas_default)
                if value_and_cas is None
                else (self._from_flagged(key, value_and_cas[0]), b"%d" % value_and_cas[1])
            )

        return self._read_or_default((default, cas_default), read)

    @translate_errors
    def get_many(self, keys: Iterable[Key]) -> dict[Key, Any]:
        """Return the values of those keys that have one."""
        return self._read_many("get_many", keys, self._from_flagged)

    get_multi = get_many

    @translate_errors
    def gets_many(self, keys: Iterable[Key]) -> dict[Key, tuple[Any, Any]]:
        """Return value and CAS unique, as bytes, of those keys that have one."""
        return self._read_many(
            "gets_many",
            keys,
            lambda key, value_and_cas: (
                self._from_flagged(key, value_and_cas[0]),
                b"%d" % value_and_cas[1],
            ),
        )

    def _read_many(
        self, method_name: str, keys: Iterable[Key], convert: Callable[[Key, Any], Any]
    ) -> dict[Key, Any]:
        """Read from all servers at once; with `ignore_exc` what a failed one had is missing."""
        values: dict[Key, Any] = {}
        for client, keys_by_full_key in self._keys_grouped_by_client(keys):
            try:
                found_values = getattr(client, method_name)(list(keys_by_full_key))
            except glasscache.GlasscacheError as error:
                if not self.ignore_exc:
                    raise
                self._record_failure(error)
                found_values = error.arrived
            for full_key, found_value in found_values.items():
                key = keys_by_full_key[full_key]
                value = self._read_or_default(
                    _MISSING, functools.partial(convert, key, found_value)
                )
                if value is not _MISSING:
                    values[key] = value
        return values

    @translate_errors
    def gat(self, key: Key, expire: int = 0, default: Any = None) -> Any:
        """Return the value under key and give it another expiry."""
        client, full_key = self._client_and_full_key(key)

        def read() -> Any:
            flagged_value = client.gat(full_key, ttl_from_exptime(expire))
            return default if flagged_value is None else self._from_flagged(key, flagged_value)

        return self._read_or_default(default, read)
