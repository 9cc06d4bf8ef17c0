"""The synchronous client: safe to share between threads, and good again after a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from glasscache import _at_exit, _native
from glasscache._caching import SyncCaching
from glasscache._client_settings import (
    CLIENT_SETTINGS,
    DEFAULT_SERVERS,
    ClientSettings,
    SettingsDocumentation,
    SettingsSignature,
)
from glasscache._greenlets import greenlet_waits
from glasscache._local_methods import LocalMethods
from glasscache._near import strategy_of
from glasscache._settings import (
    gutter_settings,
    native_state,
    normalise_servers,
    prepare_settings,
    tls_of,
)
from glasscache._types import Item, Key, item_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Self, Unpack

    from glasscache._pipeline import Pipeline
    from glasscache._report import Explanation
    from glasscache._types import Servers

__all__ = ["Client", "Item"]


def _with_gutter(client_class: type[Any]) -> Any:
    from glasscache._gutter import SyncGutter, with_gutter  # noqa: PLC0415 - few programs need it

    return with_gutter(client_class, SyncGutter)


class Client(SyncCaching, LocalMethods, _native.Client):
    """A client of one or more servers.

    >>> client.set("greeting", {"text": "hello", "to": ["you"]}, ttl=60)
    True
    >>> client.get("greeting")
    {'text': 'hello', 'to': ['you']}

    """

    __doc__ = cast("Any", SettingsDocumentation(__doc__, ClientSettings))
    __signature__ = SettingsSignature(ClientSettings)

    def __new__(  # noqa: D102 - the class documents the arguments
        cls, servers: Servers = DEFAULT_SERVERS, **given: Unpack[ClientSettings]
    ) -> Self:
        settings = prepare_settings(cls, CLIENT_SETTINGS, given)
        native_strategy, scopes = strategy_of(settings)
        state = native_state(
            normalise_servers(servers),
            tls_of(settings["tls"]),
            native_strategy,
            settings,
            greenlet_waits(),
        )
        gutter = settings["gutter"]
        client_class: type[Self] = cls if gutter is None else _with_gutter(cls)
        client = super().__new__(client_class, state)
        client._state = state
        if scopes is not None:
            client._scopes = scopes
        _at_exit.clients.add(client)
        if gutter is not None:
            gutter_client = Client(gutter, **gutter_settings(settings, CLIENT_SETTINGS))
            cast("Any", client)._open_gutter(gutter_client, settings)
        return client

    def deadline(self, seconds: float) -> AbstractContextManager[None]:
        """Give all calls of this thread, task or greenlet inside the block this many seconds together.

        >>> with client.deadline(0.05):
        ...     _ = client.get("a"), client.get("b")
        """
        from glasscache._contexts import deadline_block  # noqa: PLC0415 - few programs need it

        return deadline_block(self, seconds)

    def get_with_meta(self, key: Key, *, deadline: float | None = None) -> Item | None:
        """Return the value under key with its TTL, last access and CAS unique, or None on a miss.

        >>> client.set("k", "v", ttl=100)
        True
        >>> client.get_with_meta("k").ttl
        100
        """
        return item_of(self._inspect(key, deadline=deadline))

    def server_stats(self, argument: str = "", *, deadline: float | None = None) -> dict[str, Any]:
        """Return every server's own counters by its name; the exception of one that failed."""
        return self._call_all_servers("server_stats", argument, 0, deadline)

    def version(self, *, deadline: float | None = None) -> dict[str, Any]:
        """Return every server's version by its name; the exception of one that failed."""
        return self._call_all_servers("version", "", 0, deadline)

    def flush(self, delay: int = 0, *, deadline: float | None = None) -> dict[str, Any]:
        """Drop every item of every server, after delay seconds; return True or an exception for each name."""
        return self._call_all_servers("flush", "", delay, deadline)

    def clear(self, *, deadline: float | None = None) -> dict[str, Any]:
        """Drop every item of the client's namespace, at once; return True or an exception for each name."""
        return self._call_all_servers("clear", "", 0, deadline)

    def pipeline(self) -> Pipeline:
        """Return a block whose calls are sent together when it ends.

        >>> with client.pipeline() as p:
        ...     p.set("a", 1)
        ...     p.incr("a", 5)
        ...     p.get("a")
        >>> p.results
        [True, 6, 6]
        """
        from glasscache._pipeline import Pipeline  # noqa: PLC0415 - few programs need it

        return Pipeline(self)

    def set_servers(self, servers: Servers) -> None:
        """Change the servers for all calls to come; a call in flight ends where it began.

        Connections to servers that stay are kept, those to others are closed. Safe while other
        threads call. `glasscache.discovery` does this by DNS or a cluster's endpoint.
        """
        self._change_servers(normalise_servers(servers))

    def explain(self, key: Key) -> Explanation:
        """Return what reading this key costs, and where, as a table to print; the key is read."""
        from glasscache._report import explain  # noqa: PLC0415 - likewise

        return explain(self, key)

    def __enter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()
