"""The calls that change values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import glasscache
from glasscache.compat._flagged import ttl_of
from glasscache.compat.pymemcache.client._core import Core, Key, whole
from glasscache.compat.pymemcache.exceptions import MemcacheIllegalInputError, translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Writes(Core):
    """`set`, `delete`, `incr` and their kin."""

    def _store(
        self, word: str, key: Key, value: Any, expire: int, noreply: bool | None, flags: int | None
    ) -> bool:
        client, name = self._of(key)
        expire = whole(expire, "expire")
        store = getattr(client, word)
        return bool(
            store(
                name,
                self._flagged(key, value, flags),
                ttl_of(expire),
                noreply=self._is_quiet(noreply),
            )
        )

    def _join(
        self, word: str, key: Key, value: Any, noreply: bool | None, flags: int | None
    ) -> bool:
        client, name = self._of(key)
        join = getattr(client, word)
        _, body = self._flagged(key, value, flags)
        return bool(join(name, body, noreply=self._is_quiet(noreply)))

    @translated
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

    @translated
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

    @translated
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

    @translated
    def append(
        self,
        key: Key,
        value: Any,
        expire: int = 0,  # noqa: ARG002 - pymemcache's argument
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Put bytes behind a value; whether there was one. The server ignores expiry and flags."""
        return self._join("append", key, value, noreply, flags)

    @translated
    def prepend(
        self,
        key: Key,
        value: Any,
        expire: int = 0,  # noqa: ARG002 - pymemcache's argument
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Put bytes before a value; whether there was one. The server ignores expiry and flags."""
        return self._join("prepend", key, value, noreply, flags)

    @translated
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
        client, name = self._of(key)
        text = cas.decode("ascii", "replace") if isinstance(cas, bytes) else str(cas)
        if not (text.isascii() and text.isdigit()):
            raise MemcacheIllegalInputError(f"cas must be a number: {cas!r}")
        return client.cas(
            name, self._flagged(key, value, flags), int(text), ttl_of(expire), noreply=noreply
        )

    @translated
    def set_many(
        self,
        values: Mapping[Key, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Key]:
        """Store many values in one round trip; the keys that were not stored."""
        failed: list[Key] = []
        for client, names in self._grouped(values):
            made = {name: self._flagged(key, values[key], flags) for name, key in names.items()}
            if self._is_quiet(noreply):
                for name, value in made.items():
                    client.set(name, value, ttl_of(expire), noreply=True)
                continue
            for name, error in client.set_many(made, ttl_of(expire)).items():
                if not isinstance(error, glasscache.NotStored):
                    if not self.ignore_exc:
                        raise error
                    self._noticed(error)
                failed.append(names[name])
        return failed

    set_multi = set_many

    @translated
    def touch(self, key: Key, expire: int = 0, noreply: bool | None = None) -> bool:
        """Give a key another expiry; whether it was there."""
        client, name = self._of(key)
        return bool(client.touch(name, ttl_of(expire), noreply=self._is_quiet(noreply)))

    @translated
    def delete(self, key: Key, noreply: bool | None = None) -> bool:
        """Remove a key; whether it was there."""
        client, name = self._of(key)
        return bool(client.delete(name, noreply=self._is_quiet(noreply)))

    @translated
    def delete_many(self, keys: Iterable[Key], noreply: bool | None = None) -> bool:  # noqa: ARG002 - pymemcache's argument
        """Remove many keys."""
        for client, names in self._grouped(keys):
            client.delete_many(list(names))
        return True

    delete_multi = delete_many

    @translated
    def incr(self, key: Key, value: int, noreply: bool | None = False) -> int | None:
        """Add to a number and return it, or None when there is none."""
        client, name = self._of(key)
        return client.incr(name, whole(value, "value"), noreply=bool(noreply))

    @translated
    def decr(self, key: Key, value: int, noreply: bool | None = False) -> int | None:
        """Subtract from a number, not below 0, and return it, or None when there is none."""
        client, name = self._of(key)
        return client.decr(name, whole(value, "value"), noreply=bool(noreply))
