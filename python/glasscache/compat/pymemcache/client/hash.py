"""`HashClient`: many servers by pymemcache's rendezvous hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import glasscache
from glasscache import _native
from glasscache.compat.pymemcache.client.base import (
    Client,
    Key,
    PooledClient,
    address,
    normalize_server_spec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        self._servers = [normalize_server_spec(server) for server in servers]
        if not self._servers:
            raise ValueError("servers: a client needs at least one")
        self._by_server: dict[str, glasscache.Client] = {}
        super().__init__(self._servers[0], serde, **kwargs)

    def _connect(self, addresses: list[str]) -> glasscache.Client:  # noqa: ARG002 - pymemcache's word
        return super()._connect([address(server) for server in self._servers])

    def _of(self, key: Any) -> tuple[glasscache.Client, bytes]:
        if not isinstance(key, tuple):
            return super()._of(key)
        routing, key = cast("tuple[Any, Any]", key)
        names = [address(server) for server in self._servers]
        (place,) = _native.server_of("rendezvous", names, [self.check_key(routing, b"")])
        chosen = names[place]
        if chosen not in self._by_server:
            self._by_server[chosen] = Client._connect(self, [chosen])  # noqa: SLF001
        return self._by_server[chosen], self.check_key(key)

    def add_server(self, server: Any, port: int | None = None) -> None:
        """Add a server: a pair, a text, or host and port."""
        self._change(
            [*self._servers, normalize_server_spec(server if port is None else (server, port))]
        )

    def remove_server(self, server: Any, port: int | None = None) -> None:
        """Remove a server."""
        gone = normalize_server_spec(server if port is None else (server, port))
        self._change([server for server in self._servers if server != gone])

    def _change(self, servers: list[Any]) -> None:
        self._servers = servers
        self.close()

    def get_multi(self, keys: Iterable[Key], gets: bool = False) -> dict[Key, Any]:
        """Return the values of those keys that have one, with their CAS uniques if `gets`."""
        return self.gets_many(keys) if gets else self.get_many(keys)

    def quit(self) -> None:
        """Close the connections."""
        self.close()
