"""The drop-in module for pymemcache over real servers: failover, and client classes of the program's own."""

from __future__ import annotations

from typing import Any

import pytest
from glasscache import Server
from glasscache.compat.pymemcache import (
    Client,
    HashClient,
    MemcacheServerError,
    PooledClient,
)


class UppercasingClient(Client):
    """Returns values in capitals."""

    def get(self, key: Any, default: Any = None) -> Any:
        value = super().get(key, default)
        return value.upper() if isinstance(value, bytes) else value


def test_the_keys_of_a_dead_server_move_to_the_others_and_return_with_it() -> None:
    with Server() as first_server, Server() as second_server:
        client = HashClient(
            [first_server.address, second_server.address],
            retry_attempts=1,
            retry_timeout=0,
            dead_timeout=0.2,
        )
        keys = [f"k{number}" for number in range(40)]
        client.set_many(dict.fromkeys(keys, "v"))
        keys_of_first_server = [
            key for key in keys if _server_of(client, key) == _host_and_port(first_server)
        ]
        first_server.stop()
        raised_count = 0
        for key in keys_of_first_server:
            try:
                client.set(key, "moved")
            except (OSError, MemcacheServerError):
                raised_count += 1
        assert raised_count == 2
        assert client.get_many(keys).keys() >= set(keys_of_first_server[2:])
        with Server(port=_port(first_server)):
            client._failover.dead[_host_and_port(first_server)] -= 1
            client.set(keys_of_first_server[0], "home")
            assert _server_of(client, keys_of_first_server[0]) == _host_and_port(first_server)
            assert client.get(keys_of_first_server[0]) == b"home"


def test_with_ignore_exc_only_the_lost_servers_keys_are_misses() -> None:
    with Server() as first_server, Server() as second_server:
        client = HashClient([first_server.address, second_server.address], ignore_exc=True)
        keys = [f"k{number}" for number in range(40)]
        client.set_many(dict.fromkeys(keys, "v"))
        keys_of_second_server = {
            key for key in keys if _server_of(client, key) == _host_and_port(second_server)
        }
        first_server.stop()
        assert client.get_many(keys).keys() == keys_of_second_server
        assert client.get(next(iter(set(keys) - keys_of_second_server)), default="?") == "?"
        assert client.delete(next(iter(set(keys) - keys_of_second_server))) is False


def test_after_a_failure_a_named_key_and_a_routing_key_find_their_server() -> None:
    with Server() as first_server, Server() as second_server:
        servers = [first_server.address, second_server.address]
        client = HashClient(servers, ignore_exc=True, retry_attempts=5)
        keys = [f"k{number}" for number in range(40)]
        key_of_first_server, key_of_second_server = (
            next(key for key in keys if _server_of(client, key) == _host_and_port(server))
            for server in (first_server, second_server)
        )
        first_server.stop()
        assert client.get(key_of_first_server) is None
        assert client.set(key=key_of_second_server, value="named")
        assert client.get(key=key_of_second_server) == b"named"
        assert client.set((key_of_second_server, "routed"), "value")
        assert client.get((key_of_second_server, "routed")) == b"value"
        assert client.get(key=key_of_first_server, default="?") == "?"


def test_with_ignore_exc_a_failed_call_of_the_programs_class_is_its_miss() -> None:
    client = HashClient([], ignore_exc=True, timeout=0.2)
    client.client_class = UppercasingClient
    client.add_server(("127.0.0.1", 1))
    assert client.get("k") is None
    assert client.get("k", "?") == client.get("k", default="?") == "?"
    assert client.gets("k") == (None, None)
    assert client.set("k", 1) is False


@pytest.mark.parametrize("pooled", [False, True])
def test_get_is_called_on_the_client_class_of_the_program(
    glasscache_server: Server, pooled: bool
) -> None:
    client = HashClient([], use_pooling=pooled)
    client.client_class = UppercasingClient
    client.add_server(glasscache_server.address)
    client.set_many({"a": "x", "b": "y"})
    assert client.get("a") == b"X"
    assert client.get_many(["a", "b"]) == {"a": b"x", "b": b"y"}


def test_a_pool_creates_clients_of_the_configured_class(glasscache_server: Server) -> None:
    client = PooledClient(glasscache_server.address)
    client.client_class = UppercasingClient
    client.set("a", "x")
    assert client.get("a") == b"X"
    with client.client_pool.get_and_release() as pooled_client:
        assert client.client_pool.used == (pooled_client,)
    assert client.client_pool.free == (pooled_client,)


def _server_of(client: HashClient, key: str) -> object:
    return client._get_client(key).server


def _host_and_port(server: Server) -> tuple[str, int]:
    return "127.0.0.1", _port(server)


def _port(server: Server) -> int:
    return int(server.address.rpartition(":")[2])
