"""`HashClient`: many servers by pymemcache's rendezvous hash."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Final, cast

import glasscache
from glasscache import _native
from glasscache.compat.pymemcache.client._failover import Failover
from glasscache.compat.pymemcache.client.base import (
    CALLS,
    Client,
    Key,
    PooledClient,
    address,
    miss_of,
    normalize_server_spec,
)
from glasscache.compat.pymemcache.exceptions import MemcacheError, MemcacheIllegalInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_BULK_METHODS: Final = frozenset(
    {"get_many", "get_multi", "gets_many", "set_many", "set_multi", "delete_many", "delete_multi"}
)

_ALL_DOWN: Final = "All servers seem to be down right now"

_POOL_OPTIONS: Final = frozenset({"max_pool_size", "pool_idle_timeout", "lock_generator"})
"""Without pooling they mean nothing."""

_PLACEHOLDER_SERVER: Final = ("127.0.0.1", 1)
"""Stands for a server while there is none; it is never asked."""


def _split_routing_key(key: Any) -> tuple[Any, Any]:
    """Return the key that chooses the server and the key on it; a pair gives both."""
    return cast("tuple[Any, Any]", key) if isinstance(key, tuple) else (key, key)


def _server_spec(server: Any, port: int | None) -> Any:
    if port is not None and not isinstance(server, str):
        raise TypeError("with a port the server is a str")
    return normalize_server_spec(server if port is None else (server, port))


class HashClient(PooledClient):
    """pymemcache's client of many servers.

    A key may be a tuple (routing key, key): the first chooses the server. A server that stays out
    of reach is left out for a while, its keys belonging to the others. With a `client_class` of the
    program's own each server has a client of it, whose methods are the calls.
    """

    _routes_first = True

    def __init__(
        self,
        servers: Iterable[Any],
        hasher: Any = None,
        serde: Any = None,
        *,
        retry_attempts: int = 2,
        retry_timeout: float = 1,
        dead_timeout: float | None = 60,
        use_pooling: bool = False,
        ignore_exc: bool = False,
        **kwargs: Any,
    ) -> None:
        """Take pymemcache's arguments."""
        if hasher is not None:
            raise ValueError("hasher: the placement is pymemcache's rendezvous hash")
        self._client_options = {"serde": serde, **kwargs}
        self.use_pooling = use_pooling
        self._failover = Failover(retry_attempts, retry_timeout, dead_timeout)
        self._servers_lock = threading.RLock()
        self.clients: dict[str, Client] = {}
        self._set_clients(servers)
        server = next(iter(self.clients.values())).server if self.clients else _PLACEHOLDER_SERVER
        super().__init__(server, serde, ignore_exc=ignore_exc, **kwargs)

    # Servers.

    def _set_clients(self, servers: Iterable[Any]) -> None:
        """Hold a client for each server, which connects when it is used alone."""
        servers_by_address = {address(server): server for server in servers}
        removed_clients = [
            client
            for server_address, client in self.clients.items()
            if server_address not in servers_by_address
        ]
        self.clients = {
            server_address: self.clients.get(server_address) or self._client_for(server)
            for server_address, server in servers_by_address.items()
        }
        for client in removed_clients:
            client.close()

    def _client_for(self, server: Any) -> Client:
        if not self.use_pooling:
            options = self._client_options.items()
            return self.client_class(
                server, **{name: value for name, value in options if name not in _POOL_OPTIONS}
            )
        pooled_client = PooledClient(server, **self._client_options)
        pooled_client.client_class = self.client_class
        return pooled_client

    def _new_client(self, addresses: list[str]) -> glasscache.Client:  # noqa: ARG002 - those of `clients`
        return super()._new_client(list(self.clients) or [address(_PLACEHOLDER_SERVER)])

    def add_server(self, server: Any, port: int | None = None) -> None:
        """Add a server: a pair, a text, or host and port."""
        self._replace_servers([*self._servers(), _server_spec(server, port)])

    def remove_server(self, server: Any, port: int | None = None) -> None:
        """Remove a server."""
        self._remove_server(_server_spec(server, port))

    def _remove_server(self, removed_server: Any) -> None:
        self._replace_servers([server for server in self._servers() if server != removed_server])

    def _servers(self) -> list[Any]:
        return [client.server for client in self.clients.values()]

    def _replace_servers(self, servers: list[Any]) -> None:
        with self._servers_lock:
            self._set_clients(servers)
            if self.clients:
                self._client.set_servers(list(self.clients))
            else:
                self.close()

    def _get_client(self, key: Any) -> Client | None:
        server_addresses = list(self._live_clients())
        if not server_addresses:
            if self.ignore_exc:
                return None
            raise MemcacheError(_ALL_DOWN)
        routing_key, _ = _split_routing_key(key)
        routing_bytes = self.check_key(routing_key, b"")
        if isinstance(routing_key, bytes):
            routing_bytes = repr(routing_key).encode()
        (server_index,) = _native.server_of("rendezvous", server_addresses, [routing_bytes])
        return self.clients[server_addresses[server_index]]

    # Failures.

    @property
    def _dead_clients(self) -> dict[Any, float]:
        return self._failover.dead

    def _record_failure(self, error: glasscache.GlasscacheError) -> None:
        if isinstance(error, glasscache.ServerUnavailable | glasscache.DeadlineExceeded):
            client = self.clients.get(error.server)
            if client is not None:
                self._count_failure(client.server)

    def _count_failure(self, server: Any) -> None:
        if self._failover.count_failure(server):
            self._remove_server(server)

    def _live_clients(self) -> dict[str, Client]:
        """Return the servers' clients, with those servers whose time of being dead is over."""
        for server in self._failover.pop_revived():
            self.add_server(server)
        return self.clients

    # Calls.

    def _client_and_full_key(self, key: Any) -> tuple[glasscache.Client, bytes]:
        if not self._live_clients():
            raise MemcacheError(_ALL_DOWN)
        if isinstance(key, str) and not self.key_prefix:
            return super()._client_and_full_key(key)
        # pymemcache places a key without its prefix, and bytes by their repr.
        routed_client = self._get_client(key)
        _, key = _split_routing_key(cast("Any", key))
        return (
            super()._client_and_full_key(key)
            if routed_client is None
            else routed_client._client_and_full_key(key)  # noqa: SLF001 - our own
        )

    def _keys_grouped_by_client(
        self, keys: Iterable[Key]
    ) -> list[tuple[glasscache.Client, dict[bytes, Key]]]:
        if self.ignore_exc and not self._live_clients():
            return []
        return super()._keys_grouped_by_client(keys)

    def _call_custom_class(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        if method_name in _BULK_METHODS:
            return self._bulk_call_custom_class(method_name, *args, **kwargs)
        key, *other_args = args
        client = self._get_client(key)
        if client is None:
            raise MemcacheError(_ALL_DOWN)
        _, key = _split_routing_key(key)
        try:
            return getattr(client, method_name)(key, *other_args, **kwargs)
        except OSError:
            self._count_failure(client.server)
            raise

    def _bulk_call_custom_class(
        self, method_name: str, keys: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Make a call about many keys, one server after the other."""
        keys_by_client: dict[Any, list[Any]] = {}
        for key in keys:
            keys_by_client.setdefault(self._get_client(key), []).append(key)
        results: list[Any] = []
        for client, client_keys in keys_by_client.items():
            if client is not None:
                keys_or_items = (
                    {key: keys[key] for key in client_keys}
                    if method_name.startswith("set")
                    else client_keys
                )
                results.append(getattr(client, method_name)(keys_or_items, *args, **kwargs))
        if method_name.startswith("set"):
            return [key for failed_keys in results for key in failed_keys]
        if method_name.startswith("delete"):
            return all(results)
        return {key: value for values_by_key in results for key, value in values_by_key.items()}

    def _call_or_miss(
        self, method_name: str, method: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Make a call; with `ignore_exc` one that fails is a miss."""
        if not args and "key" in kwargs:
            args = (kwargs.pop("key"),)  # the key chooses the server, however it was passed
        if args:
            self.check_key(_split_routing_key(args[0])[1])  # as there, raised in any case
        try:
            result = method(self, *args, **kwargs)
        except Exception:
            if not self.ignore_exc:
                raise
            return miss_of(method_name, args, kwargs)
        if not self._failover.has_no_failures:
            client = self._get_client(args[0])
            if client is not None:
                self._failover.record_success(client.server)
        return result

    def set_many(
        self,
        values: Mapping[Key, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Key]:
        """Store many values, all servers at once; the keys that were not stored."""
        if not values:
            return []  # the other arguments are not checked then, by the original either
        if self.ignore_exc and not self._live_clients():
            return list(values)
        try:
            return super().set_many(values, expire, noreply, flags)
        except MemcacheIllegalInputError:
            if not self.ignore_exc:
                raise
            return list(values)

    set_multi = set_many

    def get_many(self, keys: Iterable[Key], gets: bool = False) -> dict[Key, Any]:
        """Return the values of those keys that have one, with their CAS uniques if `gets`."""
        return self.gets_many(keys) if gets else super().get_many(keys)

    get_multi = get_many

    def gets_multi(self, keys: Iterable[Key]) -> dict[Key, Any]:
        """Return values and CAS uniques, as `gets_many`."""
        return self.gets_many(keys)

    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Remove everything from all servers, after `delay` seconds."""
        return super().flush_all(delay, noreply) if self.clients else True

    def close(self) -> None:
        """Close the connections; the next call makes new ones."""
        for client in self.clients.values():
            client.close()
        super().close()

    disconnect_all = close

    def quit(self) -> None:
        """Close the connections."""
        self.close()


def _error_ignoring_method(method_name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: HashClient, *args: Any, **kwargs: Any) -> Any:
        return self._call_or_miss(method_name, method, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return wrapper


for _method_name in CALLS:
    if _method_name not in _BULK_METHODS:
        setattr(
            HashClient,
            _method_name,
            _error_ignoring_method(_method_name, getattr(PooledClient, _method_name)),
        )
