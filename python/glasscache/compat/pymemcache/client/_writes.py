"""The calls that change values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import glasscache
from glasscache.compat._flagged import ttl_from_exptime
from glasscache.compat.pymemcache.client._base_client import ClientBase, Key, checked_integer
from glasscache.compat.pymemcache.exceptions import (
    MemcacheClientError,
    MemcacheIllegalInputError,
    translate_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _checked_amount(amount: Any) -> int:
    """Return what is added to a number, or refuse what servers refuse, by their error."""
    checked_amount: int = checked_integer(amount, "value")
    if not 0 <= checked_amount < 1 << 64:
        raise MemcacheClientError(f"invalid numeric delta argument {amount}: from 0 to 2**64 - 1")
    return checked_amount


class Writes(ClientBase):
    """`set`, `delete`, `incr` and their kin."""

    def _store(
        self,
        method_name: str,
        key: Key,
        value: Any,
        expire: int,
        noreply: bool | None,
        flags: int | None,
    ) -> bool:
        if not self._routes_first:
            checked_integer(expire, "expire")
        client, full_key = self._client_and_full_key(key)
        expire = checked_integer(expire, "expire")
        store = getattr(client, method_name)
        return bool(
            store(
                full_key,
                self._to_flagged(key, value, flags),
                ttl_from_exptime(expire),
                noreply=self._uses_noreply(noreply),
            )
        )

    def _concatenate(
        self,
        method_name: str,
        key: Key,
        value: Any,
        expire: int,
        noreply: bool | None,
        flags: int | None,
    ) -> bool:
        checked_integer(expire, "expire")
        client, full_key = self._client_and_full_key(key)
        concatenate = getattr(client, method_name)
        _, body = self._to_flagged(key, value, flags)
        return bool(concatenate(full_key, body, noreply=self._uses_noreply(noreply)))

    @translate_errors
    def set(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Store a value; whether it was stored."""
        return self._store("set", key, value, expire, noreply, flags)

    @translate_errors
    def add(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Store a value if there is none; whether it was stored."""
        return self._store("add", key, value, expire, noreply, flags)

    @translate_errors
    def replace(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Store a value if there is one; whether it was stored."""
        return self._store("replace", key, value, expire, noreply, flags)

    @translate_errors
    def append(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Put bytes behind a value; whether there was one. The server ignores expiry and flags."""
        return self._concatenate("append", key, value, expire, noreply, flags)

    @translate_errors
    def prepend(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Put bytes before a value; whether there was one. The server ignores expiry and flags."""
        return self._concatenate("prepend", key, value, expire, noreply, flags)

    @translate_errors
    def cas(
        self,
        key: Key,
        value: Any,
        cas: Any,
        expire: int = 0,
        noreply: bool = False,
        flags: int | None = None,
    ) -> bool | None:
        """Store a value if its CAS unique is still this one: True, False, or None when there is none."""
        cas_text = cas.decode("ascii", "replace") if isinstance(cas, bytes) else str(cas)
        if not (cas_text.isascii() and cas_text.isdigit()):
            raise MemcacheIllegalInputError(f"cas must be a number: {cas!r}")
        expire = checked_integer(expire, "expire")
        client, full_key = self._client_and_full_key(key)
        return client.cas(
            full_key,
            self._to_flagged(key, value, flags),
            int(cas_text),
            ttl_from_exptime(expire),
            noreply=noreply,
        )

    @translate_errors
    def set_many(
        self,
        values: Mapping[Key, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Key]:
        """Store many values in one round trip; the keys that were not stored."""
        expire = checked_integer(expire, "expire")
        failed_keys: list[Key] = []
        for client, keys_by_full_key in self._keys_grouped_by_client(values):
            flagged_values = {
                full_key: self._to_flagged(key, values[key], flags)
                for full_key, key in keys_by_full_key.items()
            }
            if self._uses_noreply(noreply):
                for full_key, flagged_value in flagged_values.items():
                    client.set(full_key, flagged_value, ttl_from_exptime(expire), noreply=True)
                continue
            for full_key, error in client.set_many(
                flagged_values, ttl_from_exptime(expire)
            ).items():
                if not isinstance(error, glasscache.NotStored):
                    if not self.ignore_exc:
                        raise error
                    self._record_failure(error)
                failed_keys.append(keys_by_full_key[full_key])
        return failed_keys

    set_multi = set_many

    @translate_errors
    def touch(self, key: Key, expire: int = 0, noreply: bool | None = None) -> bool:
        """Give a key another expiry; whether it was there."""
        client, full_key = self._client_and_full_key(key)
        expire = checked_integer(expire, "expire")
        return bool(
            client.touch(full_key, ttl_from_exptime(expire), noreply=self._uses_noreply(noreply))
        )

    @translate_errors
    def delete(self, key: Key, noreply: bool | None = None) -> bool:
        """Remove a key; whether it was there."""
        client, full_key = self._client_and_full_key(key)
        return bool(client.delete(full_key, noreply=self._uses_noreply(noreply)))

    @translate_errors
    def delete_many(self, keys: Iterable[Key], noreply: bool | None = None) -> bool:  # noqa: ARG002 - pymemcache's argument
        """Remove many keys."""
        for client, keys_by_full_key in self._keys_grouped_by_client(keys):
            client.delete_many(list(keys_by_full_key))
        return True

    delete_multi = delete_many

    @translate_errors
    def incr(self, key: Key, value: int, noreply: bool | None = False) -> int | None:
        """Add to a number and return it, or None when there is none."""
        client, full_key = self._client_and_full_key(key)
        return client.incr(full_key, _checked_amount(value), noreply=bool(noreply))

    @translate_errors
    def decr(self, key: Key, value: int, noreply: bool | None = False) -> int | None:
        """Subtract from a number, not below 0, and return it, or None when there is none."""
        client, full_key = self._client_and_full_key(key)
        return client.decr(full_key, _checked_amount(value), noreply=bool(noreply))
