"""A memcached-compatible cache that you can see through.

>>> from glasscache import Client, Server
>>> with Server() as server, Client(server.address) as cache:
...     cache.set("k", [1, 2, 3], ttl=60)
...     cache.get("k")
True
[1, 2, 3]

`Server` is a server of this program's own; to use one that runs, write `Client("127.0.0.1:11211")`.
"""

from __future__ import annotations

from glasscache._native import __version__

TYPE_CHECKING = False
"""As `typing` has it, which a program that only imports the package does not load."""

if TYPE_CHECKING:
    from typing import Any

    from glasscache.aio import AsyncClient
    from glasscache.client import Client, Item
    from glasscache.errors import (
        BadKey,
        BadSetting,
        BadTrace,
        ClientClosed,
        DeadlineExceeded,
        GlasscacheError,
        LoginRefused,
        NotStored,
        ProtocolBroken,
        RequestRefused,
        ServerUnavailable,
        UnreadableValue,
        Unsupported,
        UnwritableValue,
        ValueTooLarge,
    )
    from glasscache.server import Server
    from glasscache.tls import TLS
    from glasscache.values import Codec, RawJSON

__all__ = [
    "TLS",
    "AsyncClient",
    "BadKey",
    "BadSetting",
    "BadTrace",
    "Client",
    "ClientClosed",
    "Codec",
    "DeadlineExceeded",
    "GlasscacheError",
    "Item",
    "LoginRefused",
    "NotStored",
    "ProtocolBroken",
    "RawJSON",
    "RequestRefused",
    "Server",
    "ServerUnavailable",
    "UnreadableValue",
    "Unsupported",
    "UnwritableValue",
    "ValueTooLarge",
    "__version__",
]

_MODULES = {
    "TLS": "tls",
    "AsyncClient": "aio",
    "Client": "client",
    "Codec": "values",
    "Item": "client",
    "RawJSON": "values",
    "Server": "server",
}
"""Where the names are; those that are not here are errors."""

_SUBMODULES = ("client", "errors", "leases", "tls", "values")
"""What can be read as an attribute without an import of its own."""


def __dir__() -> list[str]:
    """Return every public name, those that are not imported yet too."""
    return sorted({*globals(), *__all__, *_SUBMODULES})


def __getattr__(name: str) -> Any:
    """Import what a name stands for when it is first used."""
    import importlib  # noqa: PLC0415 - likewise

    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
    value = globals()[name] = getattr(module, name)
    return value
