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
    normalize_server_spec,
)
from glasscache.compat.pymemcache.exceptions import MemcacheError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_BULK: Final = frozenset(
    {"get_many", "get_multi", "gets_many", "set_many", "set_multi", "delete_many", "delete_multi"}
)

_ALL_DOWN: Final = "All servers seem to be down right now"

_NOWHERE: Final = ("127.0.0.1", 1)
"""Stands for a server while there is none; it is never asked."""


def _one_server(server: Any, port: int | None) -> Any:
    if port is not None and not isinstance(server, str):
        raise TypeError("with a port the server is a str")
    return normalize_server_spec(server if port is None else (server, port))


class HashClient(PooledClient):
    """pymemcache's client of many servers.

    A key may be a tuple (routing key, key): the first chooses the server. A server that stays out
    of reach is left out for a while, its keys belonging to the others. With a `client_class` of the
    program's own each server has a client of it, whose methods are the calls.
    """

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
        self._options = {"serde": serde, **kwargs}
        self.use_pooling = use_pooling
        self._failover = Failover(retry_attempts, retry_timeout, dead_timeout)
        self._changing = threading.RLock()
        self.clients: dict[str, Client] = {}
        self._take(servers)
        server = next(iter(self.clients.values())).server if self.clients else _NOWHERE
        super().__init__(server, serde, ignore_exc=ignore_exc, **kwargs)

    # Servers.

    def _take(self, servers: Iterable[Any]) -> None:
        """Hold a client for each server, which connects when it is used alone."""
        given = {address(server): server for server in servers}
        gone = [client for name, client in self.clients.items() if name not in given]
        self.clients = {
            name: self.clients.get(name) or self._client_for(server)
            for name, server in given.items()
        }
        for client in gone:
            client.close()

    def _client_for(self, server: Any) -> Client:
        if not self.use_pooling:
            return self.client_class(server, **self._options)
        pooled = PooledClient(server, **self._options)
        pooled.client_class = self.client_class
        return pooled

    def _connect(self, addresses: list[str]) -> glasscache.Client:  # noqa: ARG002 - those of `clients`
        return super()._connect(list(self.clients) or [address(_NOWHERE)])

    def add_server(self, server: Any, port: int | None = None) -> None:
        """Add a server: a pair, a text, or host and port."""
        self._change([*self._servers(), _one_server(server, port)])

    def remove_server(self, server: Any, port: int | None = None) -> None:
        """Remove a server."""
        self._leave_out(_one_server(server, port))

    def _leave_out(self, gone: Any) -> None:
        self._change([server for server in self._servers() if server != gone])

    def _servers(self) -> list[Any]:
        return [client.server for client in self.clients.values()]

    def _change(self, servers: list[Any]) -> None:
        with self._changing:
            self._take(servers)
            if self.clients:
                self._client.set_servers(list(self.clients))
            else:
                self.close()

    def _get_client(self, key: Any) -> Client | None:
        names = list(self._present())
        if not names:
            if self.ignore_exc:
                return None
            raise MemcacheError(_ALL_DOWN)
        (index,) = _native.server_of("rendezvous", names, [self.check_key(key, b"")])
        return self.clients[names[index]]

    # Failures.

    @property
    def _dead_clients(self) -> dict[Any, float]:
        return self._failover.dead

    def _noticed(self, error: glasscache.GlasscacheError) -> None:
        if isinstance(error, glasscache.ServerUnavailable | glasscache.DeadlineExceeded):
            client = self.clients.get(error.server)
            if client is not None:
                self._failed(client.server)

    def _failed(self, server: Any) -> None:
        if self._failover.failed(server):
            self._leave_out(server)

    def _present(self) -> dict[str, Client]:
        """Return the servers' clients, with those servers whose time of being dead is over."""
        for server in self._failover.risen():
            self.add_server(server)
        return self.clients

    # Calls.

    def _of(self, key: Any) -> tuple[glasscache.Client, bytes]:
        if not self._present():
            raise MemcacheError(_ALL_DOWN)
        if not isinstance(key, tuple):
            return super()._of(key)
        routing, key = cast("tuple[Any, Any]", key)
        chosen = self._get_client(routing)
        return super()._of(key) if chosen is None else chosen._of(key)  # noqa: SLF001 - our own

    def _grouped(self, keys: Iterable[Key]) -> list[tuple[glasscache.Client, dict[bytes, Key]]]:
        if self.ignore_exc and not self._present():
            return []
        return super()._grouped(keys)

    def _by_own_class(self, word: str, *args: Any, **kwargs: Any) -> Any:
        if word in _BULK:
            return self._bulk_by_own_class(word, *args, **kwargs)
        key, *rest = args
        routing, key = cast("tuple[Any, Any]", key) if isinstance(key, tuple) else (key, key)
        client = self._get_client(routing)
        if client is None:
            raise MemcacheError(_ALL_DOWN)
        try:
            return getattr(client, word)(key, *rest, **kwargs)
        except OSError:
            self._failed(client.server)
            raise

    def _bulk_by_own_class(self, word: str, keys: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a call about many keys, one server after the other."""
        shares: dict[Any, list[Any]] = {}
        for key in keys:
            shares.setdefault(self._get_client(key), []).append(key)
        results: list[Any] = []
        for client, share in shares.items():
            if client is not None:
                part = {key: keys[key] for key in share} if word.startswith("set") else share
                results.append(getattr(client, word)(part, *args, **kwargs))
        if word.startswith("set"):
            return [key for failed in results for key in failed]
        if word.startswith("delete"):
            return all(results)
        return {key: value for found in results for key, value in found.items()}

    def _guarded(self, word: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call; with `ignore_exc` one that fails is a miss."""
        try:
            result = call(self, *args, **kwargs)
        except Exception:
            if not self.ignore_exc:
                raise
            return _miss_of(word, args, kwargs)
        if not self._failover.is_quiet:
            client = self._get_client(args[0])
            if client is not None:
                self._failover.note_success(client.server)
        return result

    def set_many(
        self,
        values: Mapping[Key, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Key]:
        """Store many values, all servers at once; the keys that were not stored."""
        if self.ignore_exc and not self._present():
            return list(values)
        return super().set_many(values, expire, noreply, flags)

    set_multi = set_many

    def get_multi(self, keys: Iterable[Key], gets: bool = False) -> dict[Key, Any]:
        """Return the values of those keys that have one, with their CAS uniques if `gets`."""
        return self.gets_many(keys) if gets else self.get_many(keys)

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


def _miss_of(word: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a call gives when there is nothing: its default, or False."""
    if word in {"gets", "gats"}:
        return kwargs.get("default"), kwargs.get("cas_default")
    index = {"get": 1, "gat": 2}.get(word)
    if index is None:
        return False
    return args[index] if len(args) > index else kwargs.get("default")


def _watched(word: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded(self: HashClient, *args: Any, **kwargs: Any) -> Any:
        return self._guarded(word, call, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return guarded


for _word in CALLS:
    if _word not in _BULK:
        setattr(HashClient, _word, _watched(_word, getattr(PooledClient, _word)))
