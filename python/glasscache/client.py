"""The synchronous client: safe to share between threads, and good again after a fork."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from glasscache import _leaving, _native, values
from glasscache._report import explain
from glasscache.errors import BadSetting
from glasscache.leases import SyncLeases

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import TracebackType
    from typing import Self

    from glasscache._pipeline import Pipeline

__all__ = ["Client", "Item"]

OnError = Literal["raise", "miss"]
Key = str | bytes


class Item(NamedTuple):
    """A value and what the server knows of it."""

    value: Any
    """The value."""
    cas: int | None
    """Its CAS unique."""
    ttl: int | None
    """Seconds left; None never expires."""
    last_access: int | None
    """Seconds since it was read or written before this call."""
    was_hit: bool | None
    """Whether it was read before this call."""
    is_stale: bool
    """Whether it is kept past its worth."""
    value_bytes: int
    """Bytes of the value on the wire."""


def normal_servers(servers: str | Iterable[str]) -> list[str]:
    """Return a list of addresses, given one text or many."""
    return [servers] if isinstance(servers, str) else [str(server) for server in servers]


def normal_namespace(namespace: Any) -> bytes:
    """Return the bytes that stand before each key."""
    match namespace:
        case str():
            return namespace.encode()
        case bytes():
            return namespace
        case _:
            raise BadSetting(f"a namespace is str or bytes, not {type(namespace).__name__}")


def check_words(on_error: str, keys: str) -> None:
    """Refuse words that would silently mean the default."""
    if on_error not in {"raise", "miss"}:
        raise BadSetting(f'on_error={on_error!r}: "raise" or "miss"')
    if keys not in {"refuse", "base64"}:
        raise BadSetting(f'keys={keys!r}: "refuse" or "base64"')


def _with_gutter(kind: type[Any]) -> Any:
    from glasscache._gutter import SyncGutter, with_gutter  # noqa: PLC0415 - few programs need it

    return with_gutter(kind, SyncGutter)


class Client(SyncLeases, _native.Client):
    """A client of one or more servers.

    Args:
        servers: "host:port", "host:port*2" with a weight, "/path/of.sock", "[::1]:11211"; several in
            one text with commas between, or a list.
        timeout: seconds that a call may take, connecting and a retry included.
        placement: which server a key belongs to: "ketama" (as libmemcached), "modula", "rendezvous"
            (as pymemcache), "crc", "jump" and more.
        namespace: stands before each key on the wire.
        codec: a `Codec`, or "json", "msgpack", "pickle" for what is done with dicts and lists.
        dialect: whose values are read and written, such as "pymemcache"; see `Codec`.
        on_error: "raise", or "miss" to make a failed read a miss and a failed write False; each such
            miss is counted in `stats()`.
        keys: "refuse" keys with spaces or control characters, or send them as "base64".
        value_bytes_max: longer values are neither sent nor received.
        connections_max: most connections to one server; a call beyond waits for one.
        costs: whether the cost of each call is counted.
        gutter: servers that take the keys of a failed one, until it is back.
        gutter_ttl: seconds that an item may live there.

    >>> client.set("greeting", {"text": "hello", "to": ["you"]}, ttl=60)
    True
    >>> client.get("greeting")
    {'text': 'hello', 'to': ['you']}

    """

    def __new__(  # noqa: D102 - the class says what the words mean
        cls,
        servers: str | Iterable[str] = "127.0.0.1:11211",
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
        costs: bool = True,
        gutter: str | Iterable[str] | None = None,
        gutter_ttl: float = 10.0,
    ) -> Self:
        codec = values.named(codec, dialect)
        check_words(on_error, keys)
        kind: type[Self] = cls if gutter is None else _with_gutter(cls)
        client = super().__new__(
            kind,
            normal_servers(servers),
            codec,
            timeout=timeout,
            placement=placement,
            namespace=normal_namespace(namespace),
            errors_are_misses=on_error == "miss" and gutter is None,
            value_bytes_max=value_bytes_max,
            connections_max=connections_max,
            base64_keys=keys == "base64",
            costs=costs,
        )
        _leaving.clients.add(client)
        if gutter is not None:
            spare = Client(
                gutter, timeout=timeout, placement=placement, namespace=namespace, codec=codec,
                on_error=on_error, keys=keys, value_bytes_max=value_bytes_max,
                connections_max=connections_max, costs=costs,
            )  # fmt: skip
            cast("Any", client).open_gutter(spare, gutter_ttl, timeout, on_error)
        return client

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Generator[None]:
        """Give all calls of this thread inside the block so many seconds together.

        >>> with client.deadline(0.05):
        ...     _ = client.get("a"), client.get("b")
        """
        self.open_deadline(seconds)
        try:
            yield
        finally:
            self.close_deadline()

    def get_with_meta(self, key: Key, *, deadline: float | None = None) -> Item | None:
        """Return the value under key with its TTL, last access and CAS unique, or None on a miss.

        >>> client.set("k", "v", ttl=100)
        True
        >>> client.get_with_meta("k").ttl
        100
        """
        found = self.inspect(key, deadline=deadline)
        if found is None:
            return None
        value, cas, ttl, last_access, was_hit, is_stale, value_bytes = found
        ttl = None if ttl == -1 else ttl
        return Item(value, cas, ttl, last_access, was_hit, is_stale, value_bytes)

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

    def set_servers(self, servers: str | Iterable[str]) -> None:
        """Change the servers for all calls to come; a call in flight ends where it began.

        Connections to servers that stay are kept, those to others are closed. Safe while other
        threads call. See `glasscache.discovery` for who does this by DNS or a cluster's endpoint.
        """
        self.change_servers(normal_servers(servers))

    def stats(self) -> dict[str, Any]:
        """Return this client's counters: what its calls cost and how each server is. No network.

        `by_size` has a row for each kind of call and size decade, `by_width` one for each width of
        bulk calls and pipelines; `seconds` gives the parts of their time. See `server_stats` for the
        servers' own.

        >>> sorted(client.stats())
        ['by_size', 'by_width', 'fills_not_stored', 'misses_by_error', 'servers']
        """
        return self.counters()

    def explain(self, key_or_value: Any) -> str:
        """Return a small table: what reading this key, or writing this value, costs and where.

        A `str` or `bytes` is a key, which is read once; anything else is a value, which is encoded.
        """
        return explain(self, key_or_value)

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
