"""pylibmc's module over this package's client: `from glasscache.compat import pylibmc`.

Server strings, behaviors, exceptions, flags and both ketamas are pylibmc's. What differs: a client
may be shared by threads and survives a fork, a timeout bounds the whole call, bulk writes are one
round trip, a value over the server's limit raises `TooBig` and leaves no old value behind. The
binary protocol and UDP are gone (their keys, with any bytes in them, are not); SASL raises.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import queue
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, NoReturn, Self, TypeVar

import glasscache
from glasscache.compat._flagged import Flagged, FlaggedCodec, each_of, ttl_of

__version__: Final = "1.6.3"
"""The version whose interface this is."""

Key = str | bytes
C = TypeVar("C", bound=Callable[..., Any])

# What pylibmc's C module exports and programs look at.
server_type_tcp: Final = 1
server_type_udp: Final = 2
server_type_unix: Final = 4
libmemcached_version_hex: Final = 0x01001004
support_compression: Final = True
support_sasl: Final = False

FLAG_PICKLE: Final = 1
FLAG_INTEGER: Final = 2
FLAG_LONG: Final = 4
FLAG_ZLIB: Final = 8
FLAG_TEXT: Final = 16


class Error(Exception):
    """The base of this module's errors."""


class CacheMiss(Error):
    """Raised by a `deserialize` to make a value a miss."""


class Failure(Error):
    """Something failed of which no more is known."""


class HostLookupError(Error):
    """A host name has no address."""


class ConnectionError(Error):  # noqa: A001 - pylibmc's name
    """No connection to the server."""


class ProtocolError(Error):
    """The server's reply did not fit."""


class ClientError(Error):
    """The server calls the request wrong."""


class ServerError(Error):
    """The server reports a fault of its own."""


class ServerDown(Error):
    """The server cannot be reached, or did not answer in time."""


class ServerDead(ServerDown):
    """The server is left alone for a while."""


class TooBig(Error):
    """The value has more bytes than the server takes."""


class BadKeyProvided(Error):
    """The key cannot be sent."""


class NotFound(Error):
    """There is no such item."""


class NotStored(Error):
    """The condition of a store did not hold."""


class NoServers(Error):
    """The client has no servers."""


def _translated(call: C) -> C:
    """Give this package's errors as pylibmc's."""

    @functools.wraps(call)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except glasscache.GlasscacheError as error:
            _raise(error)

    return translated  # type: ignore[return-value]


def _raise(error: glasscache.GlasscacheError) -> NoReturn:
    kinds: dict[type[Exception], type[Exception]] = {
        glasscache.ServerUnavailable: ServerDown,
        glasscache.DeadlineExceeded: ServerDown,
        glasscache.ValueTooLarge: TooBig,
        glasscache.ProtocolBroken: ProtocolError,
        glasscache.BadKey: ValueError,
    }
    kind = next((ours for theirs, ours in kinds.items() if isinstance(error, theirs)), None)
    if kind is None:
        is_clients = isinstance(error, glasscache.RequestRefused) and error.blame == "client"
        kind = ClientError if is_clients else Failure
    raise kind(str(error)) from error


hashers: Final = (
    "default",
    "md5",
    "crc",
    "fnv1_64",
    "fnv1a_64",
    "fnv1_32",
    "fnv1a_32",
    "murmur",
    "hsieh",
)
distributions: Final = ("modula", "consistent", "consistent_ketama", "consistent ketama")

_BEHAVIORS: Final[dict[str, Any]] = {
    "auto_eject": 0, "buffer_requests": 0, "cas": 0, "connect_timeout": 4000, "dead_timeout": 0,
    "distribution": "modula", "failure_limit": 5, "hash": "default", "ketama": 0, "ketama_hash": 0,
    "ketama_weighted": 0, "no_block": 0, "num_replicas": 0, "pickle_protocol": -1,
    "receive_timeout": 0, "remove_failed": 0, "retry_timeout": 2, "send_timeout": 0,
    "tcp_keepalive": 0, "tcp_nodelay": 1, "verify_keys": 0,
}  # fmt: skip
"""pylibmc's behaviors and their values at the start; `tcp_nodelay` is always on here."""

all_behaviors: Final = tuple(_BEHAVIORS)


class BehaviorDict(dict[str, Any]):
    """A client's behaviors; a change goes to the client."""

    def __init__(self, client: client, behaviors: Mapping[str, Any]) -> None:
        """Hold the behaviors of a client."""
        super().__init__(behaviors)
        self._client = client

    def __setitem__(self, name: str, value: Any) -> None:
        """Set one behavior."""
        super().__setitem__(name, value)
        self._client.set_behaviors({name: value})

    def update(self, behaviors: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Set several behaviors."""
        super().update(behaviors)
        self._client.set_behaviors(dict(behaviors))


def translate_server_spec(
    server: str, port: int = 11211, weight: int = 1
) -> tuple[int, str, int, int]:
    """Return (type, host or path, port, weight) of "host:port:weight", "udp:...", "[v6]:port" or a path.

    >>> translate_server_spec("127.0.0.1:1234:2")
    (1, '127.0.0.1', 1234, 2)
    >>> translate_server_spec("/run/memcached.sock")
    (4, '/run/memcached.sock', 0, 1)
    """
    if server.startswith("/"):
        return server_type_unix, server, 0, weight
    kind = server_type_udp if server.startswith("udp:") else server_type_tcp
    spec = server.removeprefix("udp:")
    if spec.startswith("["):
        host, closing, rest = spec[1:].partition("]")
        if not closing:
            raise ValueError(server)
        rest = rest.removeprefix(":")
    else:
        host, _, rest = spec.partition(":")
    port_text, _, weight_text = rest.partition(":")
    return kind, host, int(port_text or port), int(weight_text or weight)


def _address(server: str | tuple[Any, ...]) -> str:
    spec: tuple[Any, ...] = server if isinstance(server, tuple) else translate_server_spec(server)
    kind, host, port, *rest = spec
    weight = rest[0] if rest else 1
    if kind == server_type_udp:
        raise Error(f"{host}: there is no UDP in this client")
    place = (
        host
        if kind == server_type_unix
        else f"[{host}]:{port}"
        if ":" in host
        else f"{host}:{port}"
    )
    return place if weight == 1 else f"{place}*{weight}"


def _placement(behaviors: Mapping[str, Any]) -> str:
    """Return the placement that libmemcached's behaviors amount to."""
    if behaviors["ketama_weighted"]:
        return "ketama"
    if behaviors["ketama"] or str(behaviors["distribution"]).startswith("consistent"):
        return "ketama-oneatatime"
    match behaviors["hash"]:
        case "default" | 0:
            return "modula"
        case "crc":
            return "crc"
        case other:
            raise Error(
                f"hash {other!r} with distribution {behaviors['distribution']!r} has no placement here"
            )


class client:  # noqa: N801 - the name of pylibmc's C class
    """The calls of `_pylibmc.client`."""

    def __init__(
        self,
        servers: Iterable[str | tuple[Any, ...]],
        binary: bool = False,  # noqa: ARG002 - pylibmc's word; there is one protocol here
        username: str | None = None,
        password: str | None = None,
        behaviors: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a client of servers such as "10.0.0.1", "10.0.0.1:11211:2" or a socket's path."""
        self._servers = list(servers)
        if not self._servers:
            raise Error("empty server list")
        if username is not None or password is not None:
            raise Error("SASL needs the binary protocol, which this client does not speak")
        self._addresses = [_address(server) for server in self._servers]
        self._behaviors = dict(_BEHAVIORS)
        self._lock = threading.Lock()
        self._made: glasscache.Client | None = None
        self.set_behaviors(dict(behaviors or {}))

    @property
    def _client(self) -> glasscache.Client:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made

    def _make(self) -> glasscache.Client:
        behaviors = self._behaviors
        # libmemcached's timeouts are milliseconds for connecting, microseconds for the rest; ours
        # is for the call.
        timeout = max(0.25, behaviors["connect_timeout"] / 1e3, behaviors["receive_timeout"] / 1e6)
        return glasscache.Client(
            self._addresses,
            timeout=timeout,
            placement=_placement(behaviors),
            codec=FlaggedCodec(),
            keys="base64",
        )

    # Behaviors.

    def get_behaviors(self) -> dict[str, Any]:
        """Return the behaviors."""
        return dict(self._behaviors)

    def set_behaviors(self, behaviors: Mapping[str, Any]) -> None:
        """Change behaviors; those that choose servers hold from the next call on."""
        behaviors = {
            "retry_timeout" if name == "_retry_timeout" else name: b
            for name, b in behaviors.items()
        }
        unknown = {
            name for name in behaviors if name not in _BEHAVIORS and not name.startswith("_")
        }
        if unknown:
            raise ValueError(f"unknown behavior names: {', '.join(sorted(unknown))}")
        changed = {**self._behaviors, **behaviors}
        _placement(changed)
        self._behaviors = changed
        self._made = None

    # Values.

    def serialize(self, value: Any) -> tuple[bytes, int]:
        """Return the bytes and flags of a value."""
        if isinstance(value, bytes):
            return value, 0
        if isinstance(value, str):
            return value.encode(), FLAG_TEXT
        if isinstance(value, bool):
            return b"%d" % value, FLAG_INTEGER
        if isinstance(value, int):
            return b"%d" % value, FLAG_LONG
        return pickle.dumps(value, self._behaviors["pickle_protocol"]), FLAG_PICKLE

    def deserialize(self, bytes_: bytes, flags: int) -> Any:
        """Return the value of bytes under flags."""
        match flags:
            case 0:
                return bytes_
            case 16:
                return bytes_.decode()
            case 2 | 4:
                return int(bytes_)
            case 1:
                # pylibmc's own form; whoever imports this module asks for pickles by name.
                return pickle.loads(bytes_)  # noqa: S301
            case _:
                raise Error(f"unknown flags {flags:#x}: another client's value")

    def _flagged(self, value: Any, min_compress_len: int, compress_level: int) -> Flagged:
        made = self.serialize(value)
        match made:
            case (body, int(flags)):
                pass
            case _:
                raise ValueError("serialize() must return (bytes, flags)")
        if 0 < min_compress_len <= len(body):
            packed = zlib.compress(body, compress_level)
            if len(packed) < len(body):
                return flags | FLAG_ZLIB, packed
        return flags, body

    def _value(self, found: Flagged) -> Any:
        flags, body = found
        if flags & FLAG_ZLIB:
            body, flags = zlib.decompress(body), flags & ~FLAG_ZLIB
        return self.deserialize(body, flags)

    # Reading.

    @_translated
    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value under key, or default."""
        found = self._client.get(key) if key else None
        if found is None:
            return default
        try:
            return self._value(found)
        except CacheMiss:
            return default

    @_translated
    def gets(self, key: Key) -> tuple[Any, int | None]:
        """Return the value under key and its CAS unique, or (None, None)."""
        found = self._client.gets(key)
        if found is None:
            return None, None
        try:
            return self._value(found[0]), found[1]
        except CacheMiss:
            return None, None

    @_translated
    def get_multi(self, keys: Iterable[Key], key_prefix: Key | None = None) -> dict[Key, Any]:
        """Return the values of those keys that have one."""
        names = {_joined(key_prefix, key): key for key in keys if key}
        values: dict[Key, Any] = {}
        for name, found in self._client.get_many(list(names)).items():
            with contextlib.suppress(CacheMiss):
                values[names[name]] = self._value(found)
        return values

    # Writing.

    @_translated
    def set(
        self,
        key: Key,
        value: Any,
        time: float = 0,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> bool:
        """Store a value; whether it was stored."""
        return self._client.set(
            key, self._flagged(value, min_compress_len, compress_level), ttl_of(time)
        )

    @_translated
    def add(
        self,
        key: Key,
        value: Any,
        time: float = 0,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> bool:
        """Store a value if there is none; whether it was stored."""
        return self._client.add(
            key, self._flagged(value, min_compress_len, compress_level), ttl_of(time)
        )

    @_translated
    def replace(
        self,
        key: Key,
        value: Any,
        time: float = 0,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> bool:
        """Store a value if there is one; whether it was stored."""
        return self._client.replace(
            key, self._flagged(value, min_compress_len, compress_level), ttl_of(time)
        )

    @_translated
    def append(self, key: Key, value: Any) -> bool:
        """Put bytes or text behind a value; whether there was one."""
        return self._client.append(key, self.serialize(value)[0])

    @_translated
    def prepend(self, key: Key, value: Any) -> bool:
        """Put bytes or text before a value; whether there was one."""
        return self._client.prepend(key, self.serialize(value)[0])

    @_translated
    def cas(self, key: Key, value: Any, cas: int, time: float = 0) -> bool:
        """Store a value if its CAS unique is still this one; whether it was stored."""
        done = self._client.cas(key, self._flagged(value, 0, -1), cas, ttl_of(time))
        if done is None:
            raise NotFound(f"cas of {key!r}: no such item")
        return done

    @_translated
    def set_multi(
        self,
        mapping: Mapping[Key, Any],
        time: float = 0,
        key_prefix: Key | None = None,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> list[Key]:
        """Store many values in one round trip; the keys that were not stored."""
        names = {_joined(key_prefix, key): key for key in mapping}
        values = {
            name: self._flagged(mapping[key], min_compress_len, compress_level)
            for name, key in names.items()
        }
        return [names[name] for name in self._client.set_many(values, ttl_of(time))]

    def add_multi(
        self,
        mapping: Mapping[Key, Any],
        time: float = 0,
        key_prefix: Key | None = None,
        min_compress_len: int = 0,
        compress_level: int = -1,
    ) -> list[Key]:
        """Store those values whose keys have none; the other keys."""
        options = (time, min_compress_len, compress_level)
        return [
            key for key in mapping if not self.add(_joined(key_prefix, key), mapping[key], *options)
        ]

    @_translated
    def touch(self, key: Key, time: float) -> bool:
        """Give a key another exptime; whether it was there."""
        return self._client.touch(key, ttl_of(time))

    @_translated
    def delete(self, key: Key) -> bool:
        """Remove a key; whether it was there."""
        return bool(key) and self._client.delete(key)

    @_translated
    def delete_multi(self, keys: Iterable[Key], key_prefix: Key | None = None) -> bool:
        """Remove many keys; whether all were there."""
        names = [_joined(key_prefix, key) for key in keys]
        with self._client.pipeline() as pipeline:
            for name in names:
                pipeline.delete(name)
        for result in pipeline.results:
            if isinstance(result, BaseException):
                raise result
        return all(pipeline.results)

    # Numbers.

    @_translated
    def incr(self, key: Key, delta: int = 1) -> int:
        """Add to a number and return it; NotFound when there is none."""
        return _number(key, self._client.incr(key, delta))

    @_translated
    def decr(self, key: Key, delta: int = 1) -> int:
        """Subtract from a number, not below 0, and return it; NotFound when there is none."""
        return _number(key, self._client.decr(key, delta))

    def incr_multi(
        self, keys: Iterable[Key], key_prefix: Key | None = None, delta: int = 1
    ) -> None:
        """Add to many numbers; NotFound when one of them is none."""
        for key in keys:
            self.incr(_joined(key_prefix, key), delta)

    # Servers.

    @_translated
    def get_stats(self, args: str = "") -> list[tuple[str, dict[str, str]]]:
        """Return each server's name and counters."""
        stats = each_of(self._client.server_stats(args))
        return [
            (f"{name} ({i})", dict(counters)) for i, (name, counters) in enumerate(stats.items())
        ]

    @_translated
    def flush_all(self, time: int = 0) -> bool:
        """Remove everything on all servers."""
        each_of(self._client.flush(time))
        return True

    def disconnect_all(self) -> None:
        """Close the connections; the next call makes new ones."""
        made, self._made = self._made, None
        if made is not None:
            made.close()

    def clone(self) -> Any:
        """Return another client of the same servers and behaviors."""
        twin = self.__class__.__new__(self.__class__)
        client.__init__(twin, self._servers, behaviors=self._behaviors)
        return twin


class Client(client):
    """pylibmc's `Client`: the calls, the mapping interface and behaviors."""

    def __init__(
        self,
        servers: Iterable[str],
        behaviors: Mapping[str, Any] | None = None,
        binary: bool = False,
        username: str | None = None,
        password: str | None = None,
    ) -> None:
        """Make a client; `binary` is taken and changes nothing but the name."""
        self.binary = binary
        self.addresses = list(servers)
        super().__init__(self.addresses, binary, username, password, behaviors)

    def __repr__(self) -> str:
        """Return the form that makes it."""
        return f"{type(self).__name__}({self.addresses!r}, binary={self.binary!r})"

    def __str__(self) -> str:
        """Return a name for logs."""
        return f"<{type(self).__name__} for {', '.join(map(str, self.addresses))}, binary={self.binary!r}>"

    def __getitem__(self, key: Key) -> Any:
        """Return the value under key, or raise KeyError."""
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Any) -> None:
        """Store a value, or raise KeyError."""
        if not self.set(key, value):
            raise KeyError(f"failed setting {key!r}")

    def __delitem__(self, key: Key) -> None:
        """Remove a key, or raise KeyError."""
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: Key) -> bool:
        """Whether there is a value under key."""
        return self.get(key, _MISSING) is not _MISSING

    @property
    def behaviors(self) -> BehaviorDict:
        """The behaviors; assigning changes those that are named."""
        return BehaviorDict(self, self.get_behaviors())

    @behaviors.setter
    def behaviors(self, behaviors: Mapping[str, Any]) -> None:
        self.set_behaviors(behaviors)

    def clone(self) -> Client:
        """Return another client of the same servers and behaviors."""
        twin: Client = super().clone()
        twin.addresses, twin.binary = list(self.addresses), self.binary
        return twin


_MISSING: Final = object()


def _joined(prefix: Key | None, key: Key) -> Key:
    """Return the prefix and the key as one, bytes if either is."""
    if not prefix:
        return key
    if isinstance(prefix, str) and isinstance(key, str):
        return prefix + key
    return b"".join(part.encode() if isinstance(part, str) else part for part in (prefix, key))


def _number(key: Key, number: int | None) -> int:
    if number is None:
        raise NotFound(f"{key!r}: no such item")
    return number


class ClientPool(queue.Queue[Any]):
    """A number of clients, one at a time for each user; here they could share one."""

    def __init__(self, mc: client | None = None, n_slots: int = 0) -> None:
        """Make a pool of `n_slots` clones of `mc`."""
        super().__init__(n_slots)
        if mc is not None and n_slots:
            self.fill(mc, n_slots)

    @contextlib.contextmanager
    def reserve(self, block: bool = False) -> Generator[Any]:
        """Lend a client; queue.Empty when all are lent and block is false."""
        mc = self.get(block)
        try:
            yield mc
        finally:
            self.put(mc)

    def fill(self, mc: client, n_slots: int) -> None:
        """Put in so many clones."""
        for _ in range(n_slots):
            self.put(mc.clone())


class ThreadMappedPool(dict[int, Any]):
    """A client for each thread; here they could share one."""

    def __new__(cls, master: client) -> Self:  # noqa: ARG004, D102 - `__init__` takes it
        return super().__new__(cls)

    def __init__(self, master: client) -> None:
        """Make a pool of clones of `master`."""
        super().__init__()
        self.master = master

    @property
    def current_key(self) -> int:
        """The thread's identity."""
        return threading.get_ident()

    @contextlib.contextmanager
    def reserve(self) -> Generator[Any]:
        """Lend this thread's client."""
        key = self.current_key
        mc = self.pop(key, None)
        if mc is None:
            mc = self.master.clone()
        try:
            yield mc
        finally:
            self[key] = mc

    def relinquish(self) -> Any:
        """Give up this thread's client."""
        return self.pop(self.current_key, None)
