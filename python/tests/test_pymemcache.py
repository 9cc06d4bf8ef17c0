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
    """Says it in capitals."""

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        return found.upper() if isinstance(found, bytes) else found


def test_the_keys_of_a_dead_server_move_to_the_others_and_return_with_it() -> None:
    with Server() as first, Server() as second:
        client = HashClient(
            [first.address, second.address], retry_attempts=1, retry_timeout=0, dead_timeout=0.2
        )
        keys = [f"k{number}" for number in range(40)]
        client.set_many(dict.fromkeys(keys, "v"))
        lost = [key for key in keys if _index_of_server(client, key) == _server(first)]
        first.stop()
        raised = 0
        for key in lost:
            try:
                client.set(key, "moved")
            except (OSError, MemcacheServerError):
                raised += 1
        assert raised == 2
        assert client.get_many(keys).keys() >= set(lost[2:])
        with Server(port=_port(first)):
            client._failover.dead[_server(first)] -= 1
            client.set(lost[0], "home")
            assert _index_of_server(client, lost[0]) == _server(first)
            assert client.get(lost[0]) == b"home"


def test_with_ignore_exc_only_the_lost_servers_keys_are_misses() -> None:
    with Server() as first, Server() as second:
        client = HashClient([first.address, second.address], ignore_exc=True)
        keys = [f"k{number}" for number in range(40)]
        client.set_many(dict.fromkeys(keys, "v"))
        kept = {key for key in keys if _index_of_server(client, key) == _server(second)}
        first.stop()
        assert client.get_many(keys).keys() == kept
        assert client.get(next(iter(set(keys) - kept)), default="?") == "?"
        assert client.delete(next(iter(set(keys) - kept))) is False


def test_with_ignore_exc_a_failed_call_of_the_programs_class_is_its_miss() -> None:
    client = HashClient([], ignore_exc=True, timeout=0.2)
    client.client_class = UppercasingClient
    client.add_server(("127.0.0.1", 1))
    assert client.get("k") is None
    assert client.get("k", "?") == client.get("k", default="?") == "?"
    assert client.gets("k") == (None, None)
    assert client.set("k", 1) is False


@pytest.mark.parametrize("pooled", [False, True])
def test_a_client_class_of_the_program_has_the_calls(
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


def _index_of_server(client: HashClient, key: str) -> object:
    return client._get_client(key).server


def _server(server: Server) -> tuple[str, int]:
    return "127.0.0.1", _port(server)


def _port(server: Server) -> int:
    return int(server.address.rpartition(":")[2])
