"""`HashClient`: many servers by pymemcache's rendezvous hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import glasscache
from glasscache import _native
from glasscache.compat.pymemcache.client.base import (
    Client,
    Key,
    PooledClient,
    address,
    normalize_server_spec,
)
from glasscache.compat.pymemcache.exceptions import MemcacheError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_NOWHERE: Final = ("127.0.0.1", 0)
"""Stands for a server while there is none; it is never asked."""


def _one_server(server: Any, port: int | None) -> Any:
    if port is not None and not isinstance(server, str):
        raise TypeError("with a port the server is a str")
    return normalize_server_spec(server if port is None else (server, port))


class HashClient(PooledClient):
    """pymemcache's client of many servers.

    A key may be a tuple (routing key, key): the first chooses the server.
    """

    def __init__(
        self,
        servers: Iterable[Any],
        hasher: Any = None,
        serde: Any = None,
        *,
        retry_attempts: int = 2,  # noqa: ARG002 - pymemcache's word
        retry_timeout: float = 1,  # noqa: ARG002 - pymemcache's word
        dead_timeout: float | None = 60,  # noqa: ARG002 - pymemcache's word
        use_pooling: bool = False,  # noqa: ARG002 - pymemcache's word
        **kwargs: Any,
    ) -> None:
        """Take pymemcache's words; how dead servers are retried is our client's own rule."""
        if hasher is not None:
            raise ValueError("hasher: the placement is pymemcache's rendezvous hash")
        self._options = {"serde": serde, **kwargs}
        self.clients: dict[str, Client] = {}
        self._take(servers)
        server = next(iter(self.clients.values())).server if self.clients else _NOWHERE
        super().__init__(server, serde, **kwargs)

    def _take(self, servers: Iterable[Any]) -> None:
        """Hold a client of its own for each server, which connects when it alone is asked."""
        given = {address(server): normalize_server_spec(server) for server in servers}
        gone = [client for name, client in self.clients.items() if name not in given]
        self.clients = {
            name: self.clients.get(name) or Client(server, **self._options)
            for name, server in given.items()
        }
        for client in gone:
            client.close()

    def _connect(self, addresses: list[str]) -> glasscache.Client:  # noqa: ARG002 - those of `clients`
        return super()._connect(list(self.clients) or [address(_NOWHERE)])

    def _get_client(self, key: Any) -> Client | None:
        names = list(self.clients)
        if not names:
            if self.ignore_exc:
                return None
            raise MemcacheError("All servers seem to be down right now")
        (place,) = _native.server_of("rendezvous", names, [self.check_key(key, b"")])
        return self.clients[names[place]]

    def _of(self, key: Any) -> tuple[glasscache.Client, bytes]:
        if not self.clients:
            raise MemcacheError("All servers seem to be down right now")
        if not isinstance(key, tuple):
            return super()._of(key)
        routing, key = cast("tuple[Any, Any]", key)
        chosen = self._get_client(routing)
        return super()._of(key) if chosen is None else chosen._of(key)  # noqa: SLF001 - our own

    def _store(
        self, word: str, key: Key, value: Any, expire: int, noreply: bool | None, flags: int | None
    ) -> bool:
        if self.ignore_exc and not self.clients:
            return False
        return super()._store(word, key, value, expire, noreply, flags)

    def set_many(
        self,
        values: Mapping[Key, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Key]:
        """Store many values, all servers at once; the keys that were not stored."""
        if self.ignore_exc and not self.clients:
            return list(values)
        return super().set_many(values, expire, noreply, flags)

    set_multi = set_many

    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Remove everything from all servers, after `delay` seconds."""
        return super().flush_all(delay, noreply) if self.clients else True

    def add_server(self, server: Any, port: int | None = None) -> None:
        """Add a server: a pair, a text, or host and port."""
        self._change([*self._servers(), _one_server(server, port)])

    def remove_server(self, server: Any, port: int | None = None) -> None:
        """Remove a server."""
        gone = _one_server(server, port)
        self._change([server for server in self._servers() if server != gone])

    def _servers(self) -> list[Any]:
        return [client.server for client in self.clients.values()]

    def _change(self, servers: list[Any]) -> None:
        self._take(servers)
        if self.clients:
            self._client.set_servers(list(self.clients))
        else:
            self.close()

    def get_multi(self, keys: Iterable[Key], gets: bool = False) -> dict[Key, Any]:
        """Return the values of those keys that have one, with their CAS uniques if `gets`."""
        return self.gets_many(keys) if gets else self.get_many(keys)

    def close(self) -> None:
        """Close the connections; the next call makes new ones."""
        for client in self.clients.values():
            client.close()
        super().close()

    disconnect_all = close

    def quit(self) -> None:
        """Close the connections."""
        self.close()
