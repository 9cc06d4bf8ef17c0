"""`Client` and `PooledClient`: one server, or what `HashClient` makes of many."""

from __future__ import annotations

from typing import Any

import glasscache
from glasscache.compat._flagged import FlaggedCodec
from glasscache.compat.pymemcache.client._admin import Admin
from glasscache.compat.pymemcache.client._core import Key
from glasscache.compat.pymemcache.client._reads import Reads
from glasscache.compat.pymemcache.client._specs import (
    KeepaliveOpts,
    address,
    check_key_helper,
    normalize_server_spec,
)
from glasscache.compat.pymemcache.client._writes import Writes

__all__ = [
    "Client",
    "KeepaliveOpts",
    "Key",
    "PooledClient",
    "address",
    "check_key_helper",
    "normalize_server_spec",
]


class Client(Reads, Writes, Admin):
    """pymemcache's client over ours, safe to share between threads."""

    def gats(
        self, key: Key, expire: int = 0, default: Any = None, cas_default: Any = None
    ) -> tuple[Any, Any]:
        """Return value and CAS unique, and give the key another expiry."""
        found = self.gets(key, default, cas_default)
        if found[1] is not cas_default:
            self.touch(key, expire)
        return found

    def __setitem__(self, key: Key, value: Any) -> None:
        """Store a value."""
        self.set(key, value)

    def __getitem__(self, key: Key) -> Any:
        """Return the value under key, or raise KeyError."""
        value = self.get(key)
        if value is None:
            raise KeyError
        return value

    def __delitem__(self, key: Key) -> None:
        """Remove a key."""
        self.delete(key)


class PooledClient(Client):
    """The same: every client here shares its connections among threads."""

    def __init__(
        self,
        server: Any,
        *args: Any,
        max_pool_size: Any = None,
        pool_idle_timeout: float = 0,  # noqa: ARG002 - pymemcache's word
        lock_generator: Any = None,  # noqa: ARG002 - pymemcache's word
        **kwargs: Any,
    ) -> None:
        """Take the pool's words; only `max_pool_size` means something, as most connections."""
        if max_pool_size is not None and (not isinstance(max_pool_size, int) or max_pool_size < 0):
            raise ValueError('"max_size" must be a positive integer')
        self._connections_max = max_pool_size or 32
        super().__init__(server, *args, **kwargs)

    def _connect(self, addresses: list[str]) -> glasscache.Client:
        return glasscache.Client(
            addresses, timeout=self._timeout, placement="rendezvous", codec=FlaggedCodec(),
            connections_max=self._connections_max,
        )  # fmt: skip
