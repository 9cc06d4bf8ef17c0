"""`Client` and `PooledClient`: one server, or what `HashClient` makes of many."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final, TypeVar

import glasscache
from glasscache.compat._flagged import FlaggedCodec, each_of, ttl_of
from glasscache.compat.pymemcache.exceptions import (
    MemcacheClientError,
    MemcacheIllegalInputError,
    MemcacheServerError,
    MemcacheUnknownCommandError,
    MemcacheUnknownError,
    translated,
)
from glasscache.compat.pymemcache.serde import LegacyWrappingSerde, Serde

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
Key = str | bytes

_TIMEOUT_S: Final = 1.0
"""The bound of a call when the program gives none; pymemcache would wait for ever."""

_KEY_BYTES_MAX: Final = 250


def check_key_helper(key: Any, allow_unicode_keys: bool, key_prefix: bytes = b"") -> bytes:
    """Return the key's bytes with the prefix before them, or raise for one that cannot be sent."""
    if isinstance(key, str):
        try:
            raw = key.encode("utf8" if allow_unicode_keys else "ascii")
        except UnicodeEncodeError as error:
            raise MemcacheIllegalInputError(f"Non-ASCII key: {key!r}") from error
    elif isinstance(key, bytes):
        raw = key
    else:
        raise TypeError(f"a key is str or bytes, not {type(key).__name__}")
    raw = key_prefix + raw
    if len(raw) > _KEY_BYTES_MAX:
        raise MemcacheIllegalInputError(f"Key is too long: {raw!r}")
    if len(raw.split()) > 1 or (raw and raw.split() != [raw]):
        raise MemcacheIllegalInputError(f"Key contains whitespace: {raw!r}")
    if b"\0" in raw:
        raise MemcacheIllegalInputError(f"Key contains null: {raw!r}")
    return raw


class KeepaliveOpts:
    """Seconds idle, seconds between probes and probes, as pymemcache's `socket_keepalive` takes them."""

    __slots__ = ("cnt", "idle", "intvl")

    def __init__(self, idle: int = 1, intvl: int = 1, cnt: int = 5) -> None:
        """Refuse what is below 1."""
        if min(idle, intvl, cnt) < 1:
            raise ValueError("idle, intvl and cnt must be greater or equal to 1")
        self.idle, self.intvl, self.cnt = idle, intvl, cnt


def normalize_server_spec(server: Any) -> Any:
    """Return (host, port), or the path of a unix socket, of any way to write a server.

    >>> normalize_server_spec("localhost")
    ('localhost', 11211)
    >>> normalize_server_spec("unix:/run/memcached.sock")
    '/run/memcached.sock'
    """
    spec: Any = server
    if isinstance(server, tuple):
        return spec
    if isinstance(server, list):
        return tuple(spec)
    if not isinstance(server, str):
        raise ValueError(f"Unsupported server specification: {server!r}")  # noqa: TRY004 - as pymemcache
    if server.startswith("unix:"):
        return server[5:]
    if server.startswith("/"):
        return server
    if ":" not in server or server.endswith("]"):
        host, port = server, "11211"
    else:
        host, port = server.rsplit(":", 1)
    return (host.strip("[]") if host.startswith("[") else host, int(port))


def address(server: Any) -> str:
    """Return a server as this package writes it."""
    server = normalize_server_spec(server)
    if isinstance(server, str):
        return server
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Client:
    """pymemcache's client over ours, safe to share between threads."""

    def __init__(
        self,
        server: Any,
        serde: Serde | None = None,
        serializer: Callable[[Any, Any], tuple[Any, int]] | None = None,
        deserializer: Callable[[Any, bytes, int], Any] | None = None,
        connect_timeout: float | None = None,
        timeout: float | None = None,
        no_delay: bool = False,  # noqa: ARG002 - pymemcache's word
        ignore_exc: bool = False,
        socket_module: Any = socket,  # noqa: ARG002 - pymemcache's word
        socket_keepalive: Any = None,  # noqa: ARG002 - pymemcache's word
        key_prefix: Any = b"",
        default_noreply: bool | None = None,
        allow_unicode_keys: bool = False,
        encoding: str = "ascii",
        tls_context: Any = None,
    ) -> None:
        """Take pymemcache's words.

        `no_delay`, `socket_module` and `socket_keepalive` are taken and change nothing: the first
        is always on. A call waits for its reply unless it says `noreply=True` or, by name,
        `default_noreply=True` was said here. `tls_context` raises.
        """
        if tls_context is not None:
            raise ValueError("tls_context: this client has no TLS")
        if isinstance(key_prefix, str):
            key_prefix = key_prefix.encode("ascii")
        if not isinstance(key_prefix, bytes):
            raise TypeError("key_prefix should be bytes.")
        self.server = normalize_server_spec(server)
        self.serde: Serde = serde or LegacyWrappingSerde(serializer, deserializer)
        self.ignore_exc, self.key_prefix = ignore_exc, key_prefix
        self.allow_unicode_keys, self.encoding = allow_unicode_keys, encoding
        self.default_noreply = bool(default_noreply)
        self._timeout = sum(filter(None, (connect_timeout, timeout))) or _TIMEOUT_S
        self._client = self._connect([address(server)])

    def _connect(self, addresses: list[str]) -> glasscache.Client:
        return glasscache.Client(
            addresses, timeout=self._timeout, placement="rendezvous", codec=FlaggedCodec()
        )

    def _is_quiet(self, noreply: bool | None) -> bool:
        return self.default_noreply if noreply is None else noreply

    # Keys and values.

    def check_key(self, key: Key, key_prefix: bytes | None = None) -> bytes:
        """Return the key's bytes with the prefix, or raise for one that cannot be sent."""
        prefix = self.key_prefix if key_prefix is None else key_prefix
        return check_key_helper(key, self.allow_unicode_keys, prefix)

    def _of(self, key: Key) -> tuple[glasscache.Client, bytes]:
        """Return the client that asks for this key, and its name there."""
        return self._client, self.check_key(key)

    def _flagged(self, key: Key, value: Any, flags: int | None) -> tuple[int, bytes]:
        made, own_flags = self.serde.serialize(key, value)
        if not isinstance(made, bytes):
            try:
                made = str(made).encode(self.encoding)
            except UnicodeEncodeError as error:
                raise MemcacheIllegalInputError(
                    f"Data values must be binary-safe: {error}"
                ) from error
        return own_flags if flags is None else flags, made

    def _value(self, key: Key, found: tuple[int, bytes]) -> Any:
        flags, body = found
        return self.serde.deserialize(key, body, flags)

    def _or(self, default: T, read: Callable[[], T]) -> T:
        """Return what `read` gives, or with `ignore_exc` the default when it fails."""
        if not self.ignore_exc:
            return read()
        with contextlib.suppress(Exception):
            return read()
        return default

    # Reading.

    @translated
    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value under key, or default."""

        def read() -> Any:
            client, name = self._of(key)
            found = client.get(name)
            return default if found is None else self._value(key, found)

        return self._or(default, read)

    @translated
    def gets(self, key: Key, default: Any = None, cas_default: Any = None) -> tuple[Any, Any]:
        """Return the value under key and its CAS unique as bytes, or both defaults."""

        def read() -> tuple[Any, Any]:
            client, name = self._of(key)
            found = client.gets(name)
            return (
                (default, cas_default)
                if found is None
                else (self._value(key, found[0]), b"%d" % found[1])
            )

        return self._or((default, cas_default), read)

    @translated
    def get_many(self, keys: Iterable[Key]) -> dict[Key, Any]:
        """Return the values of those keys that have one."""
        keys = list(keys)

        def read() -> dict[Key, Any]:
            values: dict[Key, Any] = {}
            for client, names in self._grouped(keys):
                found = client.get_many(list(names))
                values.update(
                    {names[name]: self._value(names[name], item) for name, item in found.items()}
                )
            return values

        return self._or({}, read) if keys else {}

    get_multi = get_many

    @translated
    def gets_many(self, keys: Iterable[Key]) -> dict[Key, tuple[Any, Any]]:
        """Return value and CAS unique, as bytes, of those keys that have one."""
        keys = list(keys)

        def read() -> dict[Key, tuple[Any, Any]]:
            values: dict[Key, tuple[Any, Any]] = {}
            for client, names in self._grouped(keys):
                for name, (item, cas) in client.gets_many(list(names)).items():
                    values[names[name]] = (self._value(names[name], item), b"%d" % cas)
            return values

        return self._or({}, read) if keys else {}

    @translated
    def gat(self, key: Key, expire: int = 0, default: Any = None) -> Any:
        """Return the value under key and give it another expiry."""

        def read() -> Any:
            client, name = self._of(key)
            found = client.gat(name, ttl_of(expire))
            return default if found is None else self._value(key, found)

        return self._or(default, read)

    def gats(
        self, key: Key, expire: int = 0, default: Any = None, cas_default: Any = None
    ) -> tuple[Any, Any]:
        """Return value and CAS unique, and give the key another expiry."""
        found = self.gets(key, default, cas_default)
        if found[1] is not cas_default:
            self.touch(key, expire)
        return found

    def _grouped(self, keys: Iterable[Key]) -> list[tuple[glasscache.Client, dict[bytes, Key]]]:
        """Return the keys by the client that asks for them, each under its name there."""
        groups: dict[int, tuple[glasscache.Client, dict[bytes, Key]]] = {}
        for key in keys:
            client, name = self._of(key)
            groups.setdefault(id(client), (client, {}))[1][name] = key
        return list(groups.values())

    # Writing.

    def _store(
        self, word: str, key: Key, value: Any, expire: int, noreply: bool | None, flags: int | None
    ) -> bool:
        client, name = self._of(key)
        expire = _whole(expire, "expire")
        store = getattr(client, word)
        return bool(
            store(
                name,
                self._flagged(key, value, flags),
                ttl_of(expire),
                noreply=self._is_quiet(noreply),
            )
        )

    @translated
    def set(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Store a value; whether it was stored."""
        return self._store("set", key, value, expire, noreply, flags)

    @translated
    def add(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Store a value if there is none; whether it was stored."""
        return self._store("add", key, value, expire, noreply, flags)

    @translated
    def replace(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Store a value if there is one; whether it was stored."""
        return self._store("replace", key, value, expire, noreply, flags)

    @translated
    def append(
        self,
        key: Key,
        value: Any,
        expire: int = 0,  # noqa: ARG002 - pymemcache's word
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Put bytes behind a value; whether there was one. The server ignores expiry and flags."""
        client, name = self._of(key)
        return bool(
            client.append(
                name, self._flagged(key, value, flags)[1], noreply=self._is_quiet(noreply)
            )
        )

    @translated
    def prepend(
        self,
        key: Key,
        value: Any,
        expire: int = 0,  # noqa: ARG002 - pymemcache's word
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Put bytes before a value; whether there was one. The server ignores expiry and flags."""
        client, name = self._of(key)
        return bool(
            client.prepend(
                name, self._flagged(key, value, flags)[1], noreply=self._is_quiet(noreply)
            )
        )

    @translated
    def cas(
        self,
        key: Key,
        value: Any,
        cas: Any,
        expire: int = 0,
        noreply: bool = False,
        flags: int | None = None,
    ) -> bool | None:
        """Store a value if its CAS unique is still this one: True, False, or None when there is none."""
        client, name = self._of(key)
        text = cas.decode("ascii", "replace") if isinstance(cas, bytes) else str(cas)
        if not (text.isascii() and text.isdigit()):
            raise MemcacheIllegalInputError(f"cas must be a number: {cas!r}")
        return client.cas(
            name, self._flagged(key, value, flags), int(text), ttl_of(expire), noreply=noreply
        )

    @translated
    def set_many(
        self,
        values: Mapping[Key, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Key]:
        """Store many values in one round trip; the keys that were not stored."""
        failed: list[Key] = []
        for client, names in self._grouped(values):
            made = {name: self._flagged(key, values[key], flags) for name, key in names.items()}
            if self._is_quiet(noreply):
                for name, value in made.items():
                    client.set(name, value, ttl_of(expire), noreply=True)
                continue
            for name, error in client.set_many(made, ttl_of(expire)).items():
                if not self.ignore_exc and not isinstance(error, glasscache.NotStored):
                    raise error
                failed.append(names[name])
        return failed

    set_multi = set_many

    @translated
    def touch(self, key: Key, expire: int = 0, noreply: bool | None = None) -> bool:
        """Give a key another expiry; whether it was there."""
        client, name = self._of(key)
        return bool(client.touch(name, ttl_of(expire), noreply=self._is_quiet(noreply)))

    @translated
    def delete(self, key: Key, noreply: bool | None = None) -> bool:
        """Remove a key; whether it was there."""
        client, name = self._of(key)
        return bool(client.delete(name, noreply=self._is_quiet(noreply)))

    @translated
    def delete_many(self, keys: Iterable[Key], noreply: bool | None = None) -> bool:  # noqa: ARG002 - pymemcache's word
        """Remove many keys."""
        for client, names in self._grouped(keys):
            client.delete_many(list(names))
        return True

    delete_multi = delete_many

    @translated
    def incr(self, key: Key, value: int, noreply: bool | None = False) -> int | None:
        """Add to a number and return it, or None when there is none."""
        client, name = self._of(key)
        return client.incr(name, _whole(value, "value"), noreply=bool(noreply))

    @translated
    def decr(self, key: Key, value: int, noreply: bool | None = False) -> int | None:
        """Subtract from a number, not below 0, and return it, or None when there is none."""
        client, name = self._of(key)
        return client.decr(name, _whole(value, "value"), noreply=bool(noreply))

    # The server.

    @translated
    def stats(self, *args: Key) -> dict[bytes, Any]:
        """Return the server's counters, numbers as numbers."""
        words = " ".join(arg.decode() if isinstance(arg, bytes) else str(arg) for arg in args)
        if words.startswith("cachedump"):
            return self._items(words)
        counters: dict[bytes, Any] = {}
        for each in each_of(self._client.server_stats(words)).values():
            for name, value in each.items():
                counters[_bytes(name)] = _number(_bytes(name), value)
        return counters

    def _items(self, words: str) -> dict[bytes, Any]:
        """Return the rows of `stats cachedump`, which are `ITEM key [bytes; time]`."""
        rows = self.raw_command(f"stats {words}", b"END\r\n").splitlines()
        pairs = (row.removeprefix(b"ITEM ").partition(b" ") for row in rows)
        return {key: what for key, _, what in pairs}

    @translated
    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Remove everything, after `delay` seconds; whether the server said OK. With noreply True."""
        is_heard = not self._is_quiet(noreply)
        try:
            each_of(self._client.flush(delay))
        except glasscache.ProtocolBroken:
            return not is_heard  # an answer that is not OK, as pymemcache tells it
        except glasscache.GlasscacheError:
            if is_heard:
                raise
        return True

    def version(self) -> bytes:
        """Return the server's version."""
        kind, _, version = self.raw_command(b"version").partition(b" ")
        if kind != b"VERSION":
            raise MemcacheUnknownError(f"Received unexpected response: {kind!r}")
        return version

    def cache_memlimit(self, memlimit: int) -> bool:
        """Change the server's memory limit, in megabytes."""
        self.raw_command(b"cache_memlimit %d" % _whole(memlimit, "memlimit"))
        return True

    def shutdown(self, graceful: bool = False) -> None:
        """Stop a server that allows it."""
        with contextlib.suppress(ConnectionError):
            self.raw_command(b"shutdown graceful" if graceful else b"shutdown")

    def raw_command(self, command: Key, end_tokens: Key = b"\r\n") -> bytes:
        """Send a command by a connection of its own; return its reply without the end token."""
        command, end = (
            part.encode() if isinstance(part, str) else part for part in (command, end_tokens)
        )
        if isinstance(self.server, str):
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(self._timeout)
            peer.connect(self.server)
        else:
            peer = socket.create_connection(self.server, self._timeout)
        with peer:
            peer.sendall(command + b"\r\n")
            reply = b""
            while end not in reply:
                piece = peer.recv(65536)
                if not piece:
                    raise ConnectionError(f"{self.server}: closed the connection")
                reply += piece
                _raise_for(reply)
        return reply.partition(end)[0]

    def quit(self) -> None:
        """Close the connections; the next call makes new ones."""
        self.close()

    def close(self) -> None:
        """Close the connections; the next call makes new ones."""
        made, self._client = self._client, self._connect(self._addresses())
        made.close()

    disconnect_all = close

    def _addresses(self) -> list[str]:
        return [address(self.server)]

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
    """The same: every client here shares its connections among threads."""

    def __init__(
        self,
        server: Any,
        *args: Any,
        max_pool_size: Any = None,
        pool_idle_timeout: float = 0,  # noqa: ARG002 - pymemcache's word
        lock_generator: Any = None,  # noqa: ARG002 - pymemcache's word
        **kwargs: Any,
    ) -> None:
        """Take the pool's words; only `max_pool_size` means something, as most connections."""
        if max_pool_size is not None and (not isinstance(max_pool_size, int) or max_pool_size < 0):
            raise ValueError('"max_size" must be a positive integer')
        self._connections_max = max_pool_size or 32
        super().__init__(server, *args, **kwargs)

    def _connect(self, addresses: list[str]) -> glasscache.Client:
        return glasscache.Client(
            addresses, timeout=self._timeout, placement="rendezvous", codec=FlaggedCodec(),
            connections_max=self._connections_max,
        )  # fmt: skip


def _whole(number: Any, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise MemcacheIllegalInputError(f"{name} must be integer, got bad value: {number!r}")
    return number


def _bytes(text: Key) -> bytes:
    return text.encode() if isinstance(text, str) else text


_NUMBERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    **dict.fromkeys((b"version", b"inter", b"stat_key_prefix"), bytes),
    **dict.fromkeys((b"rusage_user", b"rusage_system", b"growth_factor"), float),
    **dict.fromkeys(
        (
            b"hash_is_expanding", b"slab_reassign_running", b"detail_enabled", b"cas_enabled",
            b"maxconns_fast", b"slab_reassign", b"slab_automove",
        ),
        lambda text: int(text) != 0,
    ),
    b"umask": lambda text: int(text, 8),
    b"auth_enabled_sasl": lambda text: text == b"yes",
}  # fmt: skip
"""What pymemcache makes of a server's counters; the others are whole numbers where they can be."""


def _number(name: bytes, value: Key) -> Any:
    text = _bytes(value)
    with contextlib.suppress(ValueError):
        return _NUMBERS.get(name, int)(text)
    return text


def _raise_for(reply: bytes) -> None:
    if not reply.endswith(b"\r\n"):
        return
    if reply.startswith(b"ERROR"):
        raise MemcacheUnknownCommandError(reply.decode(errors="replace").strip())
    if reply.startswith(b"CLIENT_ERROR"):
        raise MemcacheClientError(reply.decode(errors="replace").strip())
    if reply.startswith(b"SERVER_ERROR"):
        raise MemcacheServerError(reply.decode(errors="replace").strip())
