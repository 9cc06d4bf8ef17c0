"""What every call of a client needs: its settings, full keys, the bytes of values."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import glasscache
from glasscache._client_settings import check_given, settings_apart_from
from glasscache.compat._flagged import FlaggedCodec
from glasscache.compat.pymemcache.client._specs import (
    address,
    check_key_helper,
    normalize_server_spec,
)
from glasscache.compat.pymemcache.exceptions import MemcacheIllegalInputError
from glasscache.compat.pymemcache.serde import LegacyWrappingSerde, Serde

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CLIENT_SETTINGS: Final = settings_apart_from(
    "timeout", "placement", "codec", "dialect", "namespace", "keys", "on_error", "connections_max"
)

T = TypeVar("T")
Key = str | bytes

_DEFAULT_TIMEOUT_S: Final = 1.0
"""The bound of a call when the program gives none; pymemcache would wait for ever."""


class ClientBase:
    """The part of a client that knows no command."""

    _routes_first: ClassVar[bool] = False
    """Whether a key is checked before the other arguments of a store, as pymemcache's HashClient does."""

    def __init__(
        self,
        server: Any,
        serde: Serde | None = None,
        serializer: Callable[[Any, Any], tuple[Any, int]] | None = None,
        deserializer: Callable[[Any, bytes, int], Any] | None = None,
        connect_timeout: float | None = None,
        timeout: float | None = None,
        no_delay: bool = False,  # noqa: ARG002 - pymemcache's argument
        ignore_exc: bool = False,
        socket_module: Any = socket,  # noqa: ARG002 - pymemcache's argument
        socket_keepalive: Any = None,  # noqa: ARG002 - pymemcache's argument
        key_prefix: Any = b"",
        default_noreply: bool | None = None,
        allow_unicode_keys: bool = False,
        encoding: str = "ascii",
        tls_context: Any = None,
        **settings: Any,
    ) -> None:
        """Take pymemcache's arguments.

        `no_delay`, `socket_module` and `socket_keepalive` are taken and change nothing: the first
        is always on. A call waits for its reply unless it has `noreply=True` or, explicitly,
        `default_noreply=True` was given here. `tls_context` may be a `glasscache.TLS`, too. The settings
        of `glasscache.Client` that are not about these (`user`, `password`, `protocol`, `costs`, ...) are
        taken under their names.
        """
        if tls_context is not None:
            if "tls" in settings:
                raise glasscache.BadSetting("tls= is given twice; leave tls_context= out")
            settings["tls"] = tls_context
        check_given(type(self).__name__, _CLIENT_SETTINGS, settings)
        self._settings = settings
        if isinstance(key_prefix, str):
            key_prefix = key_prefix.encode("ascii")
        if not isinstance(key_prefix, bytes):
            raise TypeError("key_prefix should be bytes.")
        self.server = normalize_server_spec(server)
        self.serde: Serde = serde or LegacyWrappingSerde(serializer, deserializer)
        self.ignore_exc, self.key_prefix = ignore_exc, key_prefix
        self.allow_unicode_keys, self.encoding = allow_unicode_keys, encoding
        self.default_noreply = bool(default_noreply)
        self._timeout = sum(filter(None, (connect_timeout, timeout))) or _DEFAULT_TIMEOUT_S
        self._client = self._new_client([address(server)])

    def _new_client(self, addresses: list[str]) -> glasscache.Client:
        return glasscache.Client(
            addresses,
            timeout=self._timeout,
            placement="rendezvous",
            codec=FlaggedCodec(),
            **self._settings,
        )

    def _uses_noreply(self, noreply: bool | None) -> bool:
        return self.default_noreply if noreply is None else noreply

    # Keys and values.

    def check_key(self, key: Key, key_prefix: bytes | None = None) -> bytes:
        """Return the key's bytes with the prefix, or raise for one that cannot be sent."""
        prefix = self.key_prefix if key_prefix is None else key_prefix
        return check_key_helper(key, self.allow_unicode_keys, prefix)

    def _client_and_full_key(self, key: Key) -> tuple[glasscache.Client, bytes]:
        """Return the client of this key, and the key with its prefix."""
        return self._client, self.check_key(key)

    def _to_flagged(self, key: Key, value: Any, flags: int | None) -> tuple[int, bytes]:
        serialized, serde_flags = self.serde.serialize(key, value)
        if not isinstance(serialized, bytes):
            try:
                serialized = str(serialized).encode(self.encoding)
            except UnicodeEncodeError as error:
                raise MemcacheIllegalInputError(
                    f"Data values must be binary-safe: {error}"
                ) from error
        return serde_flags if flags is None else flags, serialized

    def _from_flagged(self, key: Key, flagged_value: tuple[int, bytes]) -> Any:
        flags, body = flagged_value
        return self.serde.deserialize(key, body, flags)

    def _read_or_default(self, default: T, read: Callable[[], T]) -> T:
        """Return what `read` gives, or with `ignore_exc` the default when it fails."""
        if not self.ignore_exc:
            return read()
        try:
            return read()
        except glasscache.GlasscacheError as error:
            self._record_failure(error)
        except Exception:  # noqa: BLE001, S110 - whatever a serde raises: ignoring it is configured
            pass
        return default

    def _record_failure(self, error: glasscache.GlasscacheError) -> None:
        """Learn of a call that failed; a client of many servers counts them."""

    def _keys_grouped_by_client(
        self, keys: Iterable[Key]
    ) -> list[tuple[glasscache.Client, dict[bytes, Key]]]:
        """Return the keys by their client, each under its full key."""
        groups: dict[int, tuple[glasscache.Client, dict[bytes, Key]]] = {}
        for key in keys:
            client, full_key = self._client_and_full_key(key)
            groups.setdefault(id(client), (client, {}))[1][full_key] = key
        return list(groups.values())

    def quit(self) -> None:
        """Close the connections; the next call makes new ones."""
        self.close()

    def close(self) -> None:
        """Close the connections; the next call makes new ones."""
        old_client, self._client = self._client, self._new_client(self._addresses())
        old_client.close()

    disconnect_all = close

    def _addresses(self) -> list[str]:
        return [address(self.server)]


def checked_integer(number: Any, name: str) -> int:
    """Return a whole number, or refuse what is none in pymemcache's words."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise MemcacheIllegalInputError(f"{name} must be integer, got bad value: {number!r}")
    return number
