"""dogpile.cache over this package: a backend for regions, and a mutex by lease.

    region = make_region().configure("glasscache", arguments={"servers": "127.0.0.1:11211"})

Values are serialised by the region (pickle unless it is given others) and stored as bytes. The mutex is an
item that is added, and removed only by the one that added it, so it holds among all processes of the cache.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

try:
    from dogpile.cache.api import NO_VALUE, BytesBackend
except ImportError as error:  # pragma: no cover
    raise ImportError("glasscache.contrib.dogpile needs the package dogpile.cache") from error

from glasscache._client_settings import CLIENT_SETTINGS, hint_at
from glasscache._key_lease import KeyLease
from glasscache._steps import carry_out
from glasscache.client import Client
from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


__all__ = ["GlassCacheBackend"]

_BACKEND_ARGUMENTS: Final[tuple[str, ...]] = ("client", "ttl", "distributed_lock", "lock_timeout")
_OWN_NAMES: Final = {
    "url": "servers",
    "memcached_expire_time": "ttl",
    "username": "user",
    "socket_timeout": "timeout",
    "tls_context": "tls",
}
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
        arguments, client_options = _split_arguments(arguments)
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


def _split_arguments(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the backend's arguments of a configuration, and the client's.

    Raises:
        BadSetting: one is of neither, or is given twice.

    """
    client_options = ["servers", *CLIENT_SETTINGS]
    by_name: dict[str, Any] = {}
    for given_name, value in arguments.items():
        name = _OWN_NAMES.get(given_name, given_name)
        if name not in _BACKEND_ARGUMENTS and name not in client_options:
            accepted = ", ".join([*_BACKEND_ARGUMENTS, *_OWN_NAMES, *client_options])
            hint = hint_at(given_name, accepted.split(", "))
            raise BadSetting(f"arguments: {given_name!r} is not among {accepted}{hint}")
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
