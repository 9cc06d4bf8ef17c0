"""The settings of a client: what users write, and what the native client takes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, cast

from glasscache import _native, values
from glasscache._client_settings import CLIENT_SETTINGS, complete_settings
from glasscache.errors import BadSetting, is_counted_as_miss

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from glasscache._client_settings import Setting
    from glasscache._types import Key, Login, Password
    from glasscache.errors import GlasscacheError
    from glasscache.tls import TLS, Files

__all__ = [
    "gutter_settings",
    "miss_rule_of",
    "native_state",
    "normalise_servers",
    "prepare_settings",
]

_DEFAULTS: Final = {name: row.default for name, row in CLIENT_SETTINGS.items()}
"""For the settings that only one of the clients has."""

_TIMEOUT_MAX_S = 60
"""Above this a timeout was meant as milliseconds, more likely than not."""


def normalise_servers(servers: Any) -> list[str]:
    """Return a list of addresses as texts, given one or an iterable: texts or (host, port)."""
    match servers:
        case str():
            return [servers]
        case (str(), int(port)) if not isinstance(port, bool):
            return [_format_address(servers)]
        case bytes() | bytearray() | memoryview() | Mapping() | AbstractSet():
            # Of a set each process has another order, and some placements go by it.
            type_name = type(cast("object", servers)).__name__
            raise BadSetting(f"servers: {_SERVER_FORMS}, not a {type_name}")
        case _ if not hasattr(servers, "__iter__"):
            raise BadSetting(f"servers: {_SERVER_FORMS}, not {_without_login(servers)}")
        case _:
            return [_format_address(server) for server in servers]


_SERVER_FORMS = '"host:port", ("host", port) or a list of them'


def _format_address(server: Any) -> str:
    match server:
        case str():
            return server
        case (str(host), int(port)) if not isinstance(port, bool):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case _:
            raise BadSetting(f"server {_without_login(server)}: write {_SERVER_FORMS}")


def _without_login(server: object) -> str:
    """Return what was given as a server, unless it may hold a password: errors go into logs."""
    text = repr(server)
    return f"of type {type(server).__name__}, with a user or a password" if "@" in text else text


def normalise_namespace(namespace: Any) -> bytes:
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


def warn_of_milliseconds(timeout: float) -> None:
    """Warn of a timeout that was meant as milliseconds, more likely than not."""
    if _TIMEOUT_MAX_S < timeout < float("inf"):
        import warnings  # noqa: PLC0415 - few programs need it

        warnings.warn(
            f"timeout={timeout} is in seconds, and a call may take all of them; 250 ms is timeout=0.25",
            stacklevel=4,
        )


def normalise_login(user: Key | None, password: Password | None) -> Login | None:
    """Return the user and the password as bytes, or as the function that provides it."""
    if user is None and password is None:
        return None
    if user is None or password is None:
        raise BadSetting("user= and password= are needed together")
    if isinstance(user, str):
        user = user.encode()
    return user, password.encode() if isinstance(password, str) else password


def prepare_settings(
    client_class: type[Any], rows: Mapping[str, Setting], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all settings of a client, checked, with one codec for `codec` and `dialect`."""
    settings = complete_settings(client_class.__name__, rows, given)
    warn_of_milliseconds(settings["timeout"])
    settings["codec"] = values.resolve_codec(settings["codec"], settings["dialect"])
    settings["dialect"] = None
    return settings


def gutter_settings(settings: Mapping[str, Any], rows: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the settings of the client of a gutter: those of its client without its strategy."""
    apart = {"gutter", "strategy"}
    return {
        name: value
        for name, value in settings.items()
        if name not in apart and rows[name].needs not in apart
    }


def tls_of(tls: Any) -> TLS | ssl.SSLContext | None:
    """Return the setting as `glasscache.tls.normalise_tls` has it."""
    if tls is None:
        return None
    from glasscache.tls import normalise_tls  # noqa: PLC0415 - few programs need it

    return normalise_tls(tls)


def _tls_files(tls: TLS | ssl.SSLContext | None) -> AbstractContextManager[Files | None]:
    if tls is None:
        return contextlib.nullcontext()
    from glasscache.tls import tls_files  # noqa: PLC0415 - likewise

    return tls_files(tls)


def native_state(
    servers: list[str],
    tls: TLS | ssl.SSLContext | None,
    strategy: _native.Strategy | None,
    settings: Mapping[str, Any],
    greenlet_waits: tuple[Callable[..., Any], Callable[[float], Any]] | None = None,
) -> _native.ClientState:
    """Return what both clients are made of; with a gutter, that decides which errors are misses."""
    counts_as_miss = miss_rule_of(settings["on_error"])
    with _tls_files(tls) as files:
        prepared = {
            "namespace": normalise_namespace(settings["namespace"]),
            "counts_as_miss": None if settings["gutter"] is not None else counts_as_miss,
            "login": normalise_login(settings["user"], settings["password"]),
            "tls": files,
            "strategy": strategy,
            "greenlet_waits": greenlet_waits,
        }
        return _native.ClientState(servers, {**_DEFAULTS, **settings, **prepared})
