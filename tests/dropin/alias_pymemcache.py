"""A pytest plugin: `pymemcache` and its modules are our drop-in modules.

The project's tests feed canned replies through a socket object of their own. Our client opens its
sockets itself, so their `make_client` gets a client of a server that plays those replies over TCP.
It closes the connection on a meta command, as a proxy does that knows only the classic ones: our
client then sends the commands that the replies belong to.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from canned_replies import CannedReplies
from glasscache import _native
from glasscache.compat import pymemcache
from glasscache.compat.pymemcache import client, exceptions, serde
from glasscache.compat.pymemcache.client import base, hash, retrying  # noqa: A004 - pymemcache's name

sys.modules.update({
    "pymemcache": pymemcache, "pymemcache.client": client, "pymemcache.client.base": base,
    "pymemcache.client.hash": hash, "pymemcache.client.retrying": retrying,
    "pymemcache.exceptions": exceptions, "pymemcache.serde": serde,
})  # fmt: skip

_UPSTREAM = Path(os.environ["PYMEMCACHE_HOME"])


def _load_upstream_module(name: str, file: str) -> types.ModuleType:
    """Load a module of the project that its tests import."""
    spec = importlib.util.spec_from_file_location(name, _UPSTREAM / file)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pymemcache.pool = _load_upstream_module("pymemcache.pool", "pool.py")
upstream_tests = sys.modules["pymemcache.test"] = types.ModuleType("pymemcache.test")
upstream_tests.__path__ = [str(_UPSTREAM / "test")]


def _reply_bytes(reply: object) -> object:
    """The reply of a server that causes an exception that their mocked socket would raise."""
    if isinstance(reply, exceptions.MemcacheClientError):
        return f"CLIENT_ERROR {reply}\r\n".encode()
    if isinstance(reply, exceptions.MemcacheUnknownError):
        return b"UNKNOWN\r\n"
    return reply


def _server_of_replies(replies: Any, *socket_path: str) -> CannedReplies:
    return CannedReplies([_reply_bytes(reply) for reply in replies], *socket_path)


def _client_with_recorded_requests(client_class: Any, server: CannedReplies, **kwargs: Any) -> Any:
    """A client of a scripted server whose `sock` has the requests that this server received."""
    recording_class = type(
        client_class.__name__, (client_class,), {"sock": property(lambda _: server.socket())}
    )
    return recording_class(server.pymemcache_address, **kwargs)


def _client_maker(client_class: Any, **fixed_arguments: Any) -> Any:
    def make_client(self: Any, mock_socket_values: Any, **kwargs: Any) -> Any:
        return _client_with_recorded_requests(
            client_class, _server_of_replies(mock_socket_values), **fixed_arguments, **kwargs
        )

    return make_client


def _base_client(self: Any, mock_socket_values: Any, **kwargs: Any) -> Any:
    return _client_with_recorded_requests(
        base.Client, _server_of_replies(mock_socket_values), **kwargs
    )


def _customized_client_maker(upstream: Any) -> Any:
    """Their `make_customized_client`, whose client overrides a private method of pymemcache's."""
    client_class = upstream.__globals__["CustomizedClient"]
    return lambda self, mock_socket_values, **kwargs: client_class(
        _server_of_replies(mock_socket_values).pymemcache_address, **kwargs
    )


def _is_expected_placement(addresses: list[Any]) -> bool:
    """Whether the tests' keys are placed as their `_get_client` expects: key3 first, key1 second."""
    names = [base.address(address) for address in addresses]
    return len(names) != 2 or _native.server_of("rendezvous", names, [b"key3", b"key1"]) == [0, 1]


def _hash_client(self: Any, *replies_by_server: Any, **kwargs: Any) -> Any:
    while True:
        servers = [_server_of_replies(replies) for replies in replies_by_server]
        addresses = [server.pymemcache_address for server in servers]
        if _is_expected_placement(addresses):
            return hash.HashClient(addresses, **kwargs)


def _unix_hash_client(self: Any, sockets: Any, *replies_by_server: Any, **kwargs: Any) -> Any:
    folder = tempfile.mkdtemp()
    for round_number in itertools.count():
        paths = [f"{folder}/{round_number}.{index}" for index in range(len(replies_by_server))]
        if _is_expected_placement(paths):
            break
    pairs = zip(replies_by_server, paths, strict=True)
    return hash.HashClient(
        [
            _server_of_replies(replies, socket_path).pymemcache_address
            for replies, socket_path in pairs
        ],
        **kwargs,
    )


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Replace the functions that make a client over a mocked socket."""
    makers = {
        "TestClient": _client_maker(base.Client),
        "TestPooledClient": _client_maker(base.PooledClient),
        "TestPooledClientIdleTimeout": _client_maker(base.PooledClient),
        "TestPrefixedClient": _client_maker(base.Client, key_prefix=b"xyz:"),
        "TestPrefixedPooledClient": _client_maker(base.PooledClient, key_prefix=b"xyz:"),
        "TestRetryOnEINTR": _client_maker(base.Client),
        "TestHashClient": _hash_client,
    }
    for item in items:
        if item.cls is not None and item.cls.__name__ in makers:
            item.cls.make_client = makers[item.cls.__name__]
        if (
            item.cls is not None
            and "CustomizedClient"
            in getattr(getattr(item.cls, "make_customized_client", None), "__globals__", {})
            and item.cls.make_customized_client.__name__ != "<lambda>"
        ):
            item.cls.make_customized_client = _customized_client_maker(
                item.cls.make_customized_client
            )
        if item.cls is not None and hasattr(item.cls, "make_unix_client"):
            item.cls.make_unix_client = _unix_hash_client
        if item.cls is not None and hasattr(item.cls, "make_base_client"):
            item.cls.make_base_client = _base_client
