"""pylibmc's module over this package's client: `from glasscache.compat import pylibmc`.

Server strings, behaviors, exceptions, flags and both ketamas are pylibmc's. What differs: a client
may be shared by threads and survives a fork, a timeout bounds the whole call, bulk writes are one
round trip, a value over the server's limit raises `TooBig` and leaves no old value behind. There is
no UDP. `binary=True` is the binary protocol, which a login (`username`, `password`) uses by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from glasscache.compat.pylibmc._base_client import (
    FLAG_INTEGER,
    FLAG_LONG,
    FLAG_PICKLE,
    FLAG_TEXT,
    FLAG_ZLIB,
    Key,
)
from glasscache.compat.pylibmc._calls import client
from glasscache.compat.pylibmc._errors import (
    BadKeyProvided,
    CacheMiss,
    ClientError,
    ConnectionError,  # noqa: A004 - pylibmc's name
    Error,
    Failure,
    HostLookupError,
    NoServers,
    NotFound,
    NotStored,
    ProtocolError,
    ServerDead,
    ServerDown,
    ServerError,
    TooBig,
)
from glasscache.compat.pylibmc._pools import ClientPool, ThreadMappedPool
from glasscache.compat.pylibmc._settings import (
    BehaviorDict,
    all_behaviors,
    distributions,
    hashers,
    server_type_tcp,
    server_type_udp,
    server_type_unix,
    translate_server_spec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "FLAG_INTEGER",
    "FLAG_LONG",
    "FLAG_PICKLE",
    "FLAG_TEXT",
    "FLAG_ZLIB",
    "BadKeyProvided",
    "BehaviorDict",
    "CacheMiss",
    "Client",
    "ClientError",
    "ClientPool",
    "ConnectionError",
    "Error",
    "Failure",
    "HostLookupError",
    "Key",
    "NoServers",
    "NotFound",
    "NotStored",
    "ProtocolError",
    "ServerDead",
    "ServerDown",
    "ServerError",
    "ThreadMappedPool",
    "TooBig",
    "all_behaviors",
    "client",
    "distributions",
    "hashers",
    "libmemcached_version_hex",
    "server_type_tcp",
    "server_type_udp",
    "server_type_unix",
    "support_compression",
    "support_sasl",
    "translate_server_spec",
]

__version__: Final = "1.6.3"
"""The version whose interface this is."""

# What pylibmc's C module exports and programs read.
libmemcached_version_hex: Final = 0x01001004
support_compression: Final = True
support_sasl: Final = False

_MISSING: Final = object()


class Client(client):
    """pylibmc's `Client`: the calls, the mapping interface and behaviors."""

    def __init__(
        self,
        servers: Iterable[str],
        behaviors: Mapping[str, Any] | None = None,
        binary: bool = False,
        username: str | None = None,
        password: str | None = None,
        **settings: Any,
    ) -> None:
        """Make a client; `settings` are those of `glasscache.Client` that pylibmc has no name for."""
        self.binary = binary
        self.addresses = list(servers)
        super().__init__(self.addresses, binary, username, password, behaviors, **settings)

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
        clone_client: Client = super().clone()
        clone_client.addresses, clone_client.binary = list(self.addresses), self.binary
        return clone_client
