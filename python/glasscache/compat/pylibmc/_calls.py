"""The calls of `_pylibmc.client`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from glasscache.compat._flagged import all_or_raise, ttl_from_exptime
from glasscache.compat.pylibmc._base_client import ClientBase, Key, number_or_raise, prefixed_key
from glasscache.compat.pylibmc._errors import CacheMiss, NotFound, translate_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class client(ClientBase):  # noqa: N801 - the name of pylibmc's C class
    """Reads, writes, counters, and requests to the servers."""

    # Reading.

    @translate_errors
    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value under key, or default."""
        is_sent = bool(key) or key is None  # pyright: ignore[reportUnnecessaryComparison]
        flagged_value = self._client.get(key) if is_sent else None
        if flagged_value is None:
            return default
        try:
            return self._from_flagged(flagged_value)
        except CacheMiss:
            return default

    @translate_errors
    def gets(self, key: Key) -> tuple[Any, int | None]:
        """Return the value under key and its CAS unique, or (None, None)."""
        value_and_cas = self._client.gets(key)
        if value_and_cas is None:
            return None, None
        flagged_value, cas_unique = value_and_cas
        try:
            return self._from_flagged(flagged_value), cas_unique
        except CacheMiss:
            return None, None

    @translate_errors
    def get_multi(self, keys: Iterable[Key], key_prefix: Key | None = None) -> dict[Key, Any]:
        """Return the values of those keys that have one."""
        keys_by_full_key = {
            prefixed_key(key_prefix, key): key for key in keys if key not in {"", b""}
        }
        values: dict[Key, Any] = {}
        for full_key, flagged_value in self._client.get_many(list(keys_by_full_key)).items():
            with contextlib.suppress(CacheMiss):
                values[keys_by_full_key[full_key]] = self._from_flagged(flagged_value)
        return values

    # Writing.

    @translate_errors
    def set(
        self,
        key: Key,
        value: Any,
        time: float = 0,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> bool:
        """Store a value; whether it was stored."""
        return self._client.set(
            key, self._to_flagged(value, min_compress_len, compress_level), ttl_from_exptime(time)
        )

    @translate_errors
    def add(
        self,
        key: Key,
        value: Any,
        time: float = 0,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> bool:
        """Store a value if there is none; whether it was stored."""
        return self._client.add(
            key, self._to_flagged(value, min_compress_len, compress_level), ttl_from_exptime(time)
        )

    @translate_errors
    def replace(
        self,
        key: Key,
        value: Any,
        time: float = 0,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> bool:
        """Store a value if there is one; whether it was stored."""
        return self._client.replace(
            key, self._to_flagged(value, min_compress_len, compress_level), ttl_from_exptime(time)
        )

    @translate_errors
    def append(self, key: Key, value: Any) -> bool:
        """Put bytes or text behind a value; whether there was one."""
        return self._client.append(key, self.serialize(value)[0])

    @translate_errors
    def prepend(self, key: Key, value: Any) -> bool:
        """Put bytes or text before a value; whether there was one."""
        return self._client.prepend(key, self.serialize(value)[0])

    @translate_errors
    def cas(self, key: Key, value: Any, cas: int, time: float = 0) -> bool:
        """Store a value if its CAS unique is still this one; whether it was stored."""
        was_stored = self._client.cas(
            key, self._to_flagged(value, 0, -1), cas, ttl_from_exptime(time)
        )
        if was_stored is None:
            raise NotFound(f"cas of {key!r}: no such item")
        return was_stored

    @translate_errors
    def set_multi(
        self,
        mapping: Mapping[Key, Any],
        time: float = 0,
        key_prefix: Key | None = None,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> list[Key]:
        """Store many values in one round trip; the keys that were not stored."""
        keys_by_full_key = {prefixed_key(key_prefix, key): key for key in mapping}
        values = {
            full_key: self._to_flagged(mapping[key], min_compress_len, compress_level)
            for full_key, key in keys_by_full_key.items()
        }
        return [
            keys_by_full_key[full_key]
            for full_key in self._client.set_many(values, ttl_from_exptime(time))
        ]

    @translate_errors
    def add_multi(
        self,
        mapping: Mapping[Key, Any],
        time: float = 0,
        key_prefix: Key | None = None,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> list[Key]:
        """Store those values whose keys have none; the other keys."""
        full_keys = {key: prefixed_key(key_prefix, key) for key in mapping}
        for full_key in full_keys.values():
            # A key that cannot be sent is refused before any value is stored.
            self._client.server_of(full_key)
        store_arguments = (time, min_compress_len, compress_level)
        return [
            key
            for key, full_key in full_keys.items()
            if not self.add(full_key, mapping[key], *store_arguments)
        ]

    @translate_errors
    def touch(self, key: Key, time: float) -> bool:
        """Give a key another exptime; whether it was there."""
        return self._client.touch(key, ttl_from_exptime(time))

    @translate_errors
    def delete(self, key: Key) -> bool:
        """Remove a key; whether it was there."""
        is_sent = bool(key) or key is None  # pyright: ignore[reportUnnecessaryComparison]
        return self._client.delete(key) if is_sent else False

    @translate_errors
    def delete_multi(self, keys: Iterable[Key], key_prefix: Key | None = None) -> bool:
        """Remove many keys; whether all were there."""
        full_keys = [prefixed_key(key_prefix, key) for key in keys]
        with self._client.pipeline() as pipeline:
            for full_key in full_keys:
                pipeline.delete(full_key)
        for result in pipeline.results:
            if isinstance(result, BaseException):
                raise result
        return all(pipeline.results)

    # Numbers.

    @translate_errors
    def incr(self, key: Key, delta: int = 1) -> int:
        """Add to a number and return it; NotFound when there is none."""
        return number_or_raise(key, self._client.incr(key, delta))

    @translate_errors
    def decr(self, key: Key, delta: int = 1) -> int:
        """Subtract from a number, not below 0, and return it; NotFound when there is none."""
        return number_or_raise(key, self._client.decr(key, delta))

    @translate_errors
    def incr_multi(
        self, keys: Iterable[Key], key_prefix: Key | None = None, delta: int = 1
    ) -> None:
        """Add to all numbers that there are; the error of the last one that failed.

        What cannot be a key is refused before any number is changed.
        """
        full_keys = [prefixed_key(key_prefix, key) for key in keys]
        with self._client.pipeline() as pipeline:
            for full_key in full_keys:
                pipeline.incr(full_key, delta)
        for full_key, result in reversed(list(zip(full_keys, pipeline.results, strict=True))):
            if isinstance(result, BaseException):
                raise result
            number_or_raise(full_key, result)

    # Servers.

    @translate_errors
    def get_stats(self, args: str = "") -> list[tuple[str, dict[str, str]]]:
        """Return each server's name and counters."""
        stats = all_or_raise(self._client.server_stats(args))
        return [
            (f"{name} ({index})", dict(counters))
            for index, (name, counters) in enumerate(stats.items())
        ]

    @translate_errors
    def flush_all(self, time: int = 0) -> bool:
        """Remove everything on all servers."""
        all_or_raise(self._client.flush(time))
        return True
