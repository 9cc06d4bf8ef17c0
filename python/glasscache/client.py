"""The synchronous client: safe to share between threads, and good again after a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from glasscache import _at_exit, _native, values
from glasscache._caching import SyncCaching
from glasscache._contexts import deadline_block
from glasscache._greenlets import greenlet_waits
from glasscache._local_methods import LocalMethods
from glasscache._near import ShareSettings, strategy_of
from glasscache._settings import check_settings, miss_rule_of, native_state, normalise_servers
from glasscache._types import Item, Key, item_of
from glasscache.tls import normalise_tls

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from glasscache._near import ChildrenOf, ShareBy
    from glasscache._pipeline import Pipeline
    from glasscache._report import Explanation
    from glasscache._types import OnError, Password, Servers
    from glasscache.tls import TLS

__all__ = ["Client", "Item"]


def _with_gutter(client_class: type[Any]) -> Any:
    from glasscache._gutter import SyncGutter, with_gutter  # noqa: PLC0415 - few programs need it

    return with_gutter(client_class, SyncGutter)


class Client(SyncCaching, LocalMethods, _native.Client):
    """A client of one or more servers.

    Args:
        servers: "host:port", ("host", port), "host:port*2" or "host:port:2" with a weight,
            "[::1]:11211", "memcached://host:port", "/path/of.sock"; several in one text with commas
            between, or a list.
        timeout: seconds that a call may take, connecting and a retry included; 250 ms is 0.25.
        placement: which server a key belongs to: "ketama" (as libmemcached), "modula", "rendezvous"
            (as pymemcache), "crc", "jump" and more.
        namespace: the prefix of each key on the wire.
        codec: a `Codec`, or "json", "msgpack", "pickle" for the form of dicts and lists.
        dialect: the client whose form of values is used, such as "pymemcache"; see `Codec`.
        on_error: "raise", or "miss" to make a failed read a miss and a failed write False; each such
            miss is counted in `stats()`. A function is called with each error and returns whether it
            is such a miss.
        keys: "refuse" keys with spaces or control characters, or send them as "base64".
        value_bytes_max: longer values are neither sent nor received.
        connections_max: most connections to one server; a call beyond waits for one.
        protocol: "auto" is meta and text, as the first connection finds the server; "binary" is for servers
            that understand nothing else, such as MemCachier's.
        user: the user as whom each new connection logs in (memcached's `-Y`; in binary by SASL), if the
            servers require it.
        password: its password, or a function without arguments that returns it for each new connection.
        tls: True to encrypt every connection and to verify the servers' certificates by the system's
            authorities, or a `TLS` with files and names of your own.
        costs: whether the cost of each call is counted.
        gutter: servers that take the keys of a failed one, until it is back.
        gutter_ttl: seconds that an item may live there.
        strategy: a file that `glasscache simulate --save` wrote: what is kept in the process and fetched
            together, within `request` blocks.
        near_ttl: seconds that a value may be served from the process after another process has replaced it;
            None: until its TTL. Own writes are seen at once.
        coherent: follow the changes of other clients by watching the servers, in a thread for each: with a
            glasscache server a value is served no longer than 50 ms after a change, and with a memcached
            (1.6.20) as soon as it reports a store or a delete. What a server does not report is bounded by
            `near_ttl`, and logged once.
        children_of: a function from a key to the keys of its children, in place of the file's.
        share: the share of the requests that run the strategy, from 0 to 1; the others are the control
            group. The strategy disables itself if its requests miss the forecast of its file.
        share_by: "request" divides the requests of each process, "process" the processes.

    >>> client.set("greeting", {"text": "hello", "to": ["you"]}, ttl=60)
    True
    >>> client.get("greeting")
    {'text': 'hello', 'to': ['you']}

    """

    def __new__(  # noqa: D102 - the class documents the arguments
        cls,
        servers: Servers = "127.0.0.1:11211",
        *,
        timeout: float = 0.25,
        placement: str = "ketama",
        namespace: Key = b"",
        codec: values.Codec | str | None = None,
        dialect: str | None = None,
        on_error: OnError = "raise",
        keys: Literal["refuse", "base64"] = "refuse",
        value_bytes_max: int = 64 << 20,
        connections_max: int = 32,
        protocol: Literal["auto", "binary"] = "auto",
        user: Key | None = None,
        password: Password | None = None,
        tls: TLS | bool | None = None,
        costs: bool = True,
        gutter: Servers | None = None,
        gutter_ttl: float = 10.0,
        strategy: str | os.PathLike[str] | None = None,
        near_ttl: float | None = 10.0,
        coherent: bool = False,
        children_of: ChildrenOf | None = None,
        share: float | None = None,
        share_by: ShareBy = "request",
    ) -> Self:
        codec = values.resolve_codec(codec, dialect)
        check_settings(keys, timeout)
        native_strategy, scopes = strategy_of(
            strategy, near_ttl, coherent, children_of, ShareSettings(share, share_by)
        )
        settings: Any = {
            "timeout": timeout, "placement": placement, "namespace": namespace, "codec": codec,
            "on_error": on_error, "keys": keys, "value_bytes_max": value_bytes_max,
            "connections_max": connections_max, "protocol": protocol, "user": user,
            "password": password, "costs": costs,
        }  # fmt: skip
        has_gutter, tls = gutter is not None, normalise_tls(tls)
        state = native_state(
            normalise_servers(servers), tls, native_strategy, has_gutter,
            greenlet_waits=greenlet_waits(), **settings,
        )  # fmt: skip
        client_class: type[Self] = _with_gutter(cls) if has_gutter else cls
        client = super().__new__(client_class, state)
        client._state = state
        if scopes is not None:
            client._scopes = scopes
        _at_exit.clients.add(client)
        if gutter is not None:
            gutter_client = Client(gutter, tls=tls, **settings)
            counts_as_miss = miss_rule_of(on_error)
            cast("Any", client)._open_gutter(gutter_client, gutter_ttl, timeout, counts_as_miss)
        return client

    def deadline(self, seconds: float) -> AbstractContextManager[None]:
        """Give all calls of this thread, task or greenlet inside the block this many seconds together.

        >>> with client.deadline(0.05):
        ...     _ = client.get("a"), client.get("b")
        """
        return deadline_block(self, seconds)

    def get_with_meta(self, key: Key, *, deadline: float | None = None) -> Item | None:
        """Return the value under key with its TTL, last access and CAS unique, or None on a miss.

        >>> client.set("k", "v", ttl=100)
        True
        >>> client.get_with_meta("k").ttl
        100
        """
        return item_of(self._inspect(key, deadline=deadline))

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

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()
