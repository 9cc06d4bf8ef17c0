"""The synchronous client: safe to share between threads, and good again after a fork."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from glasscache import _at_exit, _native, values
from glasscache._caching import SyncCaching
from glasscache._near import RequestMethods, Share, strategy_of
from glasscache._types import Item, Key
from glasscache.errors import BadSetting, is_counted_as_miss
from glasscache.tls import normal_tls

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator
    from types import TracebackType
    from typing import Self, Unpack

    from glasscache._near import ChildrenOf, ShareBy
    from glasscache._pipeline import Pipeline
    from glasscache._report import Explanation, Report
    from glasscache._types import Login, OnError, Password, Servers
    from glasscache.errors import GlasscacheError
    from glasscache.recording import Recorder
    from glasscache.recording import Settings as RecorderSettings
    from glasscache.tls import TLS

__all__ = ["Client", "Item"]

_TIMEOUT_MAX_S = 60
"""Above this a timeout was meant as milliseconds, more likely than not."""


def normal_servers(servers: Any) -> list[str]:
    """Return a list of addresses as texts, given one or an iterable: texts or (host, port)."""
    match servers:
        case str():
            return [servers]
        case (str(), int(port)) if not isinstance(port, bool):
            return [_address(servers)]
        case bytes() | bytearray() | memoryview() | Mapping() | AbstractSet():
            # Of a set each process has another order, and some placements go by it.
            kind = type(cast("object", servers)).__name__
            raise BadSetting(f"servers: {_SERVER_FORMS}, not a {kind}")
        case _ if not hasattr(servers, "__iter__"):
            raise BadSetting(f"servers: {_SERVER_FORMS}, not {servers!r}")
        case _:
            return [_address(server) for server in servers]


_SERVER_FORMS = '"host:port", ("host", port) or a list of them'


def _address(server: Any) -> str:
    match server:
        case str():
            return server
        case (str(host), int(port)) if not isinstance(port, bool):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case _:
            raise BadSetting(f"server {server!r}: write {_SERVER_FORMS}")


def normal_namespace(namespace: Any) -> bytes:
    """Return the prefix of each key."""
    match namespace:
        case str():
            return namespace.encode()
        case bytes():
            return namespace
        case _:
            raise BadSetting(f"a namespace is str or bytes, not {type(namespace).__name__}")


def miss_rule_of(on_error: Any) -> Callable[[GlasscacheError], bool] | None:
    """Return the function that decides which errors are counted misses; None if there are none."""
    if on_error == "raise":
        return None
    if on_error == "miss":
        return is_counted_as_miss
    if not callable(on_error):
        raise BadSetting(f'on_error={on_error!r}: "raise", "miss" or a function of the error')
    return cast("Callable[[GlasscacheError], bool]", on_error)


def is_binary(protocol: Any) -> bool:
    """Return whether the binary protocol is used with all servers."""
    if protocol not in {"auto", "binary"}:
        raise BadSetting(f'protocol={protocol!r}: "auto" or "binary"')
    return cast("bool", protocol == "binary")


def check_settings(keys: str, timeout: Any) -> None:
    """Refuse arguments that would silently mean the default, and warn of milliseconds."""
    if keys not in {"refuse", "base64"}:
        raise BadSetting(f'keys={keys!r}: "refuse" or "base64"')
    if isinstance(timeout, int | float) and _TIMEOUT_MAX_S < timeout < float("inf"):
        import warnings  # noqa: PLC0415 - few programs need it

        warnings.warn(
            f"timeout={timeout} is in seconds, and a call may take all of them; 250 ms is timeout=0.25",
            stacklevel=3,
        )


def normal_login(user: Key | None, password: Password | None) -> Login | None:
    """Return the user and the password as bytes, or as the function that provides it."""
    if user is None and password is None:
        return None
    if user is None or password is None:
        raise BadSetting("user= and password= are needed together")
    if isinstance(user, str):
        user = user.encode()
    return user, password.encode() if isinstance(password, str) else password


def _with_gutter(kind: type[Any]) -> Any:
    from glasscache._gutter import SyncGutter, with_gutter  # noqa: PLC0415 - few programs need it

    return with_gutter(kind, SyncGutter)


class Client(SyncCaching, RequestMethods, _native.Client):
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
            strategy, near_ttl, coherent, children_of, Share(share, share_by)
        )
        counts_as_miss = miss_rule_of(on_error)
        settings = normal_tls(tls)
        kind: type[Self] = cls if gutter is None else _with_gutter(cls)
        client = super().__new__(
            kind,
            normal_servers(servers),
            codec,
            timeout=timeout,
            placement=placement,
            namespace=normal_namespace(namespace),
            counts_as_miss=counts_as_miss if gutter is None else None,
            value_bytes_max=value_bytes_max,
            connections_max=connections_max,
            base64_keys=keys == "base64",
            binary=is_binary(protocol),
            login=normal_login(user, password),
            tls=None if settings is None else settings.files(),
            costs=costs,
            strategy=native_strategy,
        )
        if scopes is not None:
            client._scopes = scopes
        _at_exit.clients.add(client)
        if gutter is not None:
            gutter_client = Client(
                gutter, timeout=timeout, placement=placement, namespace=namespace, codec=codec,
                on_error=on_error, keys=keys, value_bytes_max=value_bytes_max,
                connections_max=connections_max, protocol=protocol, user=user, password=password,
                tls=settings, costs=costs,
            )  # fmt: skip
            cast("Any", client)._open_gutter(gutter_client, gutter_ttl, timeout, counts_as_miss)
        return client

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Generator[None]:
        """Give all calls of this thread inside the block this many seconds together.

        >>> with client.deadline(0.05):
        ...     _ = client.get("a"), client.get("b")
        """
        self._open_deadline(seconds)
        try:
            yield
        finally:
            self._close_deadline()

    def get_with_meta(self, key: Key, *, deadline: float | None = None) -> Item | None:
        """Return the value under key with its TTL, last access and CAS unique, or None on a miss.

        >>> client.set("k", "v", ttl=100)
        True
        >>> client.get_with_meta("k").ttl
        100
        """
        item_fields = self._inspect(key, deadline=deadline)
        if item_fields is None:
            return None
        item = Item(*item_fields)
        return item._replace(ttl=None) if item.ttl == -1 else item

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
        self._change_servers(normal_servers(servers))

    def stats(self) -> dict[str, Any]:
        """Return this client's counters: what its calls cost and how each server is. No network.

        `by_size` has a row for each kind of call and size decade, `by_width` one for each width of
        bulk calls and pipelines; `seconds` gives the parts of their time. `near_hits` are the keys
        that a strategy read without a call. See `server_stats` for the servers' own.

        >>> client.stats()["misses_by_error"]
        0
        """
        return self._counters()

    @overload
    def report(self, *, json: Literal[False] = False) -> Report: ...

    @overload
    def report(self, *, json: Literal[True]) -> str: ...

    def report(self, *, json: bool = False) -> Report | str:
        """Return what this client's calls have cost, by kind and size, as a table to print. No network.

        Args:
            json: return a JSON document instead, with the strategy's counters and the two groups of its
                roll-out; `glasscache rollout` compares those of several processes.

        >>> print(client.report())  # doctest: +SKIP
        4,120 calls, 0 misses by error
        <BLANKLINE>
                            calls us a call serial. compr.   wait network decomp. deser.
        read 10+ B          2,050      49.9       -      -      -    39.5     0.2   10.1
        write 10+ B         2,050      79.2    24.3    0.8    0.2    53.9       -      -
        bulk 64+ keys          20       624       -      -      -     212       -    413
        ...

        """
        from glasscache._report import Report, document  # noqa: PLC0415 - few programs need it

        if json:
            return document(self.stats(), self._near_stats(), self._rollout_json())
        return Report(self.stats())

    def explain(self, key: Key) -> Explanation:
        """Return what reading this key costs, and where, as a table to print; the key is read."""
        from glasscache._report import explain  # noqa: PLC0415 - likewise

        return explain(self, key)

    def explain_value(self, value: Any) -> Explanation:
        """Return what storing and reading this value would cost the process. No network.

        >>> client.explain_value([1, 2, 3]).title
        'list: 4 bytes on the wire, flags 0x9c000006'
        """
        from glasscache._report import explain_value  # noqa: PLC0415 - likewise

        return explain_value(self, value)

    def recorder(
        self, folder: str | os.PathLike[str], **settings: Unpack[RecorderSettings]
    ) -> Recorder:
        """Return a recorder of what each request reads, and record this client's calls with it.

        See `glasscache.recording` for the settings and for HTTP middleware.

        >>> recorder = client.recorder("log/", sample=0.5)  # doctest: +SKIP
        >>> with recorder.request(route="front page"):  # doctest: +SKIP
        ...     _ = client.get("headlines")
        """
        from glasscache.recording import Recorder  # noqa: PLC0415 - few programs need it

        recorder = Recorder(folder, **settings)
        recorder.attach(self)
        return recorder

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise for a name that another client has; the error names ours."""
            from glasscache._suggestions import unknown_name  # noqa: PLC0415 - on the way to an error

            raise unknown_name(self, name)

    def __enter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()
