"""`Client` and `PooledClient`: one server, or what `HashClient` makes of many."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import glasscache
from glasscache.compat._flagged import FlaggedCodec
from glasscache.compat.pymemcache.client._admin import Admin
from glasscache.compat.pymemcache.client._base_client import Key
from glasscache.compat.pymemcache.client._pool import ClientPool
from glasscache.compat.pymemcache.client._reads import Reads
from glasscache.compat.pymemcache.client._specs import (
    KeepaliveOpts,
    address,
    check_key_helper,
    normalize_server_spec,
)
from glasscache.compat.pymemcache.client._writes import Writes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CALLS",
    "Client",
    "KeepaliveOpts",
    "Key",
    "PooledClient",
    "address",
    "check_key_helper",
    "miss_of",
    "normalize_server_spec",
]

CALLS: Final = (
    "get", "gets", "get_many", "get_multi", "gets_many", "gat", "gats", "set", "add", "replace",
    "append", "prepend", "cas", "set_many", "set_multi", "touch", "delete", "delete_many",
    "delete_multi", "incr", "decr",
)  # fmt: skip
"""The calls about keys, which a class of the program's own may override."""


_READS: Final = frozenset({"get", "gets", "get_many", "get_multi", "gets_many", "gat", "gats"})
"""The calls that a pool with `ignore_exc` answers by a miss, whatever they raise."""


def miss_of(method_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a call gives when there is nothing: its default, an empty dict, or False."""
    if method_name in {"gets", "gats"}:
        return kwargs.get("default"), kwargs.get("cas_default")
    if method_name in {"get_many", "get_multi", "gets_many"}:
        return {}
    default_index = {"get": 1, "gat": 2}.get(method_name)
    if default_index is None:
        return False
    return args[default_index] if len(args) > default_index else kwargs.get("default")


class Client(Reads, Writes, Admin):
    """pymemcache's client over ours, safe to share between threads."""

    def gats(
        self, key: Key, expire: int = 0, default: Any = None, cas_default: Any = None
    ) -> tuple[Any, Any]:
        """Return value and CAS unique, and give the key another expiry."""
        value, cas = self.gets(key, default, cas_default)
        if cas is not cas_default:
            self.touch(key, expire)
        return value, cas

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
    """The same: every client here shares its connections among threads.

    With a `client_class` of the program's own, each call goes through a client of that class that
    `client_pool` lends for as long.
    """

    client_class: type[Client] = Client
    """Whose methods the calls are."""

    def __init__(
        self,
        server: Any,
        *args: Any,
        max_pool_size: Any = None,
        pool_idle_timeout: float = 0,  # noqa: ARG002 - pymemcache's argument
        lock_generator: Any = None,  # noqa: ARG002 - pymemcache's argument
        **kwargs: Any,
    ) -> None:
        """Take the pool's arguments; only `max_pool_size` means something, as most connections."""
        if max_pool_size is not None and (not isinstance(max_pool_size, int) or max_pool_size < 0):
            raise ValueError('"max_size" must be a positive integer')
        self._connections_max = max_pool_size or 32
        super().__init__(server, *args, **kwargs)
        self.client_pool = ClientPool(lambda: self.client_class(server, *args, **kwargs))

    def _new_client(self, addresses: list[str]) -> glasscache.Client:
        return glasscache.Client(
            addresses, timeout=self._timeout, placement="rendezvous", codec=FlaggedCodec(),
            connections_max=self._connections_max, **self._settings,
        )  # fmt: skip

    def _call_custom_class(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Make a call by a client of the program's class."""
        with self.client_pool.get_and_release(destroy_on_fail=True) as client:
            return getattr(client, method_name)(*args, **kwargs)


def _dispatching_method(method_name: str, default_method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(default_method)
    def call(self: PooledClient, *args: Any, **kwargs: Any) -> Any:
        if self.client_class is Client:
            try:
                return default_method(self, *args, **kwargs)
            except Exception:
                if not self.ignore_exc or method_name not in _READS:
                    raise
                return miss_of(method_name, args, kwargs)
        return self._call_custom_class(method_name, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return call


for _method_name in CALLS:
    setattr(
        PooledClient, _method_name, _dispatching_method(_method_name, getattr(Client, _method_name))
    )
