"""What every call of a client needs: its servers and behaviors, and the forms of values."""

from __future__ import annotations

import pickle
import threading
import zlib
from typing import TYPE_CHECKING, Any, Final

import glasscache
from glasscache._client_settings import check_given, settings_apart_from
from glasscache.compat._flagged import FlaggedCodec, FlagsAndBytes, decompress_zlib
from glasscache.compat.pylibmc._errors import Error, NotFound
from glasscache.compat.pylibmc._settings import BEHAVIORS, address_of, placement_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CLIENT_SETTINGS: Final = settings_apart_from(
    "timeout", "placement", "codec", "dialect", "namespace", "keys", "protocol", "user", "password"
)

Key = str | bytes

FLAG_PICKLE: Final = 1
FLAG_INTEGER: Final = 2
FLAG_LONG: Final = 4
FLAG_ZLIB: Final = 8
FLAG_TEXT: Final = 16

_FLAG_TYPES: Final = FLAG_PICKLE | FLAG_INTEGER | FLAG_LONG | FLAG_TEXT


class ClientBase:
    """A client that knows no command."""

    def __init__(
        self,
        servers: Iterable[str | tuple[Any, ...]],
        binary: bool = False,
        username: str | None = None,
        password: str | None = None,
        behaviors: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Make a client of servers such as "10.0.0.1", "10.0.0.1:11211:2" or a socket's path.

        The settings of `glasscache.Client` that are not about these or behaviors (`tls`, `costs`, ...) are
        taken under their names.
        """
        self._servers = list(servers)
        if not self._servers:
            raise Error("empty server list")
        check_given(type(self).__name__, _CLIENT_SETTINGS, settings)
        self._settings = settings
        self._binary = binary or username is not None  # where libmemcached has logins
        self._login = username, password
        self._addresses = [address_of(server) for server in self._servers]
        self._behaviors = dict(BEHAVIORS)
        self._lock = threading.Lock()
        self._open_client: glasscache.Client | None = None
        self.set_behaviors(dict(behaviors or {}))
        self._open_client = self._new_client()  # which says now what is wrong with the settings

    @property
    def _client(self) -> glasscache.Client:
        if self._open_client is None:
            with self._lock:
                if self._open_client is None:
                    self._open_client = self._new_client()
        return self._open_client

    def _new_client(self) -> glasscache.Client:
        behaviors = self._behaviors
        # libmemcached's timeouts are milliseconds for connecting, microseconds for the rest; ours
        # is for the call.
        timeout = max(0.25, behaviors["connect_timeout"] / 1e3, behaviors["receive_timeout"] / 1e6)
        return glasscache.Client(
            self._addresses,
            timeout=timeout,
            placement=placement_of(behaviors),
            codec=FlaggedCodec(),
            keys="base64",
            protocol="binary" if self._binary else "auto",
            user=self._login[0],
            password=self._login[1],
            **self._settings,
        )

    # Behaviors.

    def get_behaviors(self) -> dict[str, Any]:
        """Return the behaviors."""
        return dict(self._behaviors)

    def set_behaviors(self, behaviors: Mapping[str, Any]) -> None:
        """Change behaviors; those that choose servers hold from the next call on."""
        behaviors = {
            "retry_timeout" if name == "_retry_timeout" else name: setting
            for name, setting in behaviors.items()
        }
        unknown = {name for name in behaviors if name not in BEHAVIORS and not name.startswith("_")}
        if unknown:
            raise ValueError(f"unknown behavior names: {', '.join(sorted(unknown))}")
        new_behaviors = {**self._behaviors, **behaviors}
        placement_of(new_behaviors)
        self._behaviors = new_behaviors
        self._open_client = None

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
        """Return the value of bytes under flags; other bits than those of pylibmc's types mean nothing."""
        match flags & _FLAG_TYPES:
            case 0:
                return bytes_
            case 16:
                return bytes_.decode()
            case 2 | 4:
                return int(bytes_)
            case 1:
                # pylibmc's own form; importing this module enables pickles.
                return pickle.loads(bytes_)  # noqa: S301
            case _:
                raise Error(f"unknown flags {flags:#x}: another client's value")

    def _to_flagged(self, value: Any, min_compress_len: int, compress_level: int) -> FlagsAndBytes:
        serialized = self.serialize(value)
        match serialized:
            case (body, int(flags)):
                pass
            case _:
                raise ValueError("serialize() must return (bytes, flags)")
        if 0 < min_compress_len <= len(body):
            compressed = zlib.compress(body, compress_level)
            if len(compressed) < len(body):
                return flags | FLAG_ZLIB, compressed
        return flags, body

    def _from_flagged(self, flagged_value: FlagsAndBytes) -> Any:
        flags, body = flagged_value
        if flags & FLAG_ZLIB:
            try:
                body, flags = decompress_zlib(body), flags & ~FLAG_ZLIB
            except zlib.error as error:
                raise Error(f"decompressing a value failed: {error}") from error
        return self.deserialize(body, flags)

    def disconnect_all(self) -> None:
        """Close the connections; the next call makes new ones."""
        client, self._open_client = self._open_client, None
        if client is not None:
            client.close()

    def clone(self) -> Any:
        """Return another client of the same servers and behaviors."""
        clone_client = self.__class__.__new__(self.__class__)
        vars(clone_client).update(vars(self))
        ClientBase.__init__(
            clone_client,
            self._servers,
            self._binary,
            *self._login,
            behaviors=self._behaviors,
            **self._settings,
        )
        return clone_client


def prefixed_key(prefix: Key | None, key: Key) -> Key:
    """Return the prefix and the key as one, bytes if either is."""
    if not prefix:
        return key
    if isinstance(prefix, str) and isinstance(key, str):
        return prefix + key
    return b"".join(part.encode() if isinstance(part, str) else part for part in (prefix, key))


def number_or_raise(key: Key, number: int | None) -> int:
    if number is None:
        raise NotFound(f"{key!r}: no such item")
    return number
