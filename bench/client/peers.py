"""The Python clients that are compared, each in its careful setting, and the words each has for a call.

A client that is not installed is left out and named on stderr.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import glasscache

if TYPE_CHECKING:
    from collections.abc import Callable

GET_MANY = {
    "pylibmc": "get_multi",
    "python-memcached": "get_multi",
    "meta-memcache": "multi_get",
}
"""What a client calls its `get_many`, where it has another word."""

SET_MANY = {"pylibmc": "set_multi", "python-memcached": "set_multi"}
"""What a client calls its `set_many`, where it has another word; meta-memcache has none."""


def installed(name: str) -> Any:
    """Return a module, or None with a word on stderr."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed and left out", file=sys.stderr)
        return None


def host_and_port(address: str) -> tuple[str, int]:
    """Return the two parts of an address, which most peers take apart."""
    host, port = address.rsplit(":", 1)
    return host, int(port)


def open_clients(address: str) -> dict[str, Any]:
    """Return each client: waiting for replies, TCP_NODELAY where it has the knob. Ours is the first."""
    server = host_and_port(address)
    clients: dict[str, Any] = {
        "glasscache": glasscache.Client(
            address, timeout=5, codec=glasscache.Codec("pylibmc", objects="pickle")
        )
    }
    if pylibmc := installed("pylibmc"):
        clients["pylibmc"] = pylibmc.Client([address], behaviors={"tcp_nodelay": True})
    if installed("pymemcache"):
        from pymemcache import HashClient, serde
        from pymemcache.client.base import Client

        options = {"no_delay": True, "serde": serde.pickle_serde, "default_noreply": False}
        clients["pymemcache"] = Client(server, timeout=5, **options)
        clients["pymemcache-hash"] = HashClient([server], timeout=5, **options)
    if memcache := installed("memcache"):
        clients["python-memcached"] = memcache.Client([address])
    if installed("meta_memcache"):
        from meta_memcache import CacheClient
        from meta_memcache.configuration import ServerAddress, connection_pool_factory_builder

        clients["meta-memcache"] = CacheClient.cache_client_from_servers(
            servers=[ServerAddress(*server)],
            connection_pool_factory_fn=connection_pool_factory_builder(),
        )
    return clients


def setter(name: str, client: Any) -> Callable[[str, Any], Any]:
    """Return a client's set with its usual arguments."""
    if name == "meta-memcache":
        return lambda key, value: client.set(key, value, ttl=0)
    return client.set


def prepare(client_name: str, call: Callable[[], Any]) -> None:
    """Store what a row reads; a client that cannot is named, and no reason to stop."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        print(f"{client_name} failed before its row: {error!r}", file=sys.stderr)
