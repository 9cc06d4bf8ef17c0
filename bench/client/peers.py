"""The Python clients that are compared, each with its careful settings, and the names of their methods.

A client that is not installed is left out and named on stderr.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import glasscache

if TYPE_CHECKING:
    from collections.abc import Callable

GET_MANY_NAMES = {
    "pylibmc": "get_multi",
    "python-memcached": "get_multi",
    "meta-memcache": "multi_get",
}
"""The name of the `get_many` of a client, where it is another one."""

SET_MANY_NAMES = {"pylibmc": "set_multi", "python-memcached": "set_multi"}
"""The name of the `set_many` of a client, where it is another one; meta-memcache has none."""


def import_if_installed(name: str) -> Any:
    """Return a module, or None with a message on stderr."""
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
    """Return each client: waiting for replies, TCP_NODELAY where it has the option. Ours is the first."""
    server = host_and_port(address)
    clients: dict[str, Any] = {
        "glasscache": glasscache.Client(
            address, timeout=5, codec=glasscache.Codec("pylibmc", objects="pickle")
        )
    }
    if pylibmc := import_if_installed("pylibmc"):
        clients["pylibmc"] = pylibmc.Client([address], behaviors={"tcp_nodelay": True})
    if import_if_installed("pymemcache"):
        from pymemcache import HashClient, serde
        from pymemcache.client.base import Client

        options = {"no_delay": True, "serde": serde.pickle_serde, "default_noreply": False}
        clients["pymemcache"] = Client(server, timeout=5, **options)
        clients["pymemcache-hash"] = HashClient([server], timeout=5, **options)
    if memcache := import_if_installed("memcache"):
        clients["python-memcached"] = memcache.Client([address])
    if import_if_installed("meta_memcache"):
        from meta_memcache import CacheClient
        from meta_memcache.configuration import ServerAddress, connection_pool_factory_builder

        clients["meta-memcache"] = CacheClient.cache_client_from_servers(
            servers=[ServerAddress(*server)],
            connection_pool_factory_fn=connection_pool_factory_builder(),
        )
    return clients


def choose_set_method(client_name: str, client: Any) -> Callable[[str, Any], Any]:
    """Return a client's set with its usual arguments."""
    if client_name == "meta-memcache":
        return lambda key, value: client.set(key, value, ttl=0)
    return client.set


def call_and_print_failure(client_name: str, call: Callable[[], Any]) -> None:
    """Make a call that stores what a row reads; print its failure, after which the run continues."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        print(f"{client_name} failed before its row: {error!r}", file=sys.stderr)
