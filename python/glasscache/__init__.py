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

from typing import TYPE_CHECKING

from glasscache._native import __version__
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
from glasscache.tls import TLS
from glasscache.values import Codec, RawJSON

if TYPE_CHECKING:
    from typing import Any

    from glasscache.aio import AsyncClient
    from glasscache.server import Server

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

_LAZY_MODULES = {"AsyncClient": "glasscache.aio", "Server": "glasscache.server"}


def __dir__() -> list[str]:
    """Return every public name, those that are imported lazily too."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import asyncio and subprocess only when they are used: importing stays below 40 ms."""
    if name in _LAZY_MODULES:
        import importlib  # noqa: PLC0415

        return getattr(importlib.import_module(_LAZY_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
