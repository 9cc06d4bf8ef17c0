"""The gutter over real sockets, with a server that is killed and comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from glasscache import AsyncClient, Client, Server, ServerUnavailable
from glasscache.telemetry import log_slow_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = [f"key{number}" for number in range(60)]


class Servers:
    """Two servers and one of the gutter."""

    def __init__(self) -> None:
        self.kept_server, self.lost_server, self.gutter_server = Server(), Server(), Server()

    @property
    def main_addresses(self) -> list[str]:
        return [self.kept_server.address, self.lost_server.address]

    def stop(self) -> None:
        for server in (self.kept_server, self.lost_server, self.gutter_server):
            server.stop()


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.stop()


def _keys_of_lost_server(client: Client, servers: Servers) -> list[str]:
    return [key for key in KEYS if client.server_of(key) == servers.lost_server.address]


def test_the_keys_of_a_killed_server_live_in_the_gutter_for_a_short_time(servers: Servers) -> None:
    with Client(
        servers.main_addresses, timeout=5, gutter=servers.gutter_server.address, gutter_ttl=7
    ) as client:
        assert isinstance(client, Client)
        assert client.set_many(dict.fromkeys(KEYS, "old")) == {}
        lost_keys = _keys_of_lost_server(client, servers)
        servers.lost_server.stop()
        assert client.get(lost_keys[0], "gone") == "gone"
        assert client.set(lost_keys[0], "new", ttl=3600)
        assert client.get(lost_keys[0]) == "new"
        assert client.get_with_meta(lost_keys[0]).ttl == 7
        assert client.add(lost_keys[1], 1)
        assert client.incr(lost_keys[1]) == 2
        value, unique = client.gets(lost_keys[1])
        assert client.cas(lost_keys[1], value + 1, unique)
        assert client.touch(lost_keys[1], 3)
        assert client.gat(lost_keys[1], 100) == 3
        assert client.delete(lost_keys[1])
        assert client.get_or_set(lost_keys[2], lambda: "made", ttl=60) == "made"
        values = client.get_many(KEYS)
        assert values == {key: "old" for key in KEYS if key not in lost_keys} | {
            lost_keys[0]: "new",
            lost_keys[2]: "made",
        }
        assert client.set_many(dict.fromkeys(KEYS, "all"), ttl=60) == {}
        assert client.get_many(KEYS) == dict.fromkeys(KEYS, "all")
        assert client.gets_many(lost_keys).keys() == set(lost_keys)
        assert client.delete_many(KEYS) == {}
        assert client.get_many(KEYS) == {}
        assert client.stats()["gutter"]["calls"] > 0


async def test_quiet_writes_of_many_keys_reach_the_gutter(servers: Servers) -> None:
    values = dict.fromkeys(KEYS, "quiet")
    with Client(servers.main_addresses, timeout=5, gutter=servers.gutter_server.address) as client:
        lost_keys = _keys_of_lost_server(client, servers)
        servers.lost_server.stop()
        assert client.get(lost_keys[0]) is None  # from now on it is known to be down
        assert client.set_many(values, noreply=True) == {}
        assert client.get_many(KEYS) == values
        with Client(servers.gutter_server.address, timeout=5) as gutter_client:
            assert gutter_client.get_many(KEYS).keys() == set(lost_keys)
        assert client.delete_many(KEYS, noreply=True) == {}
        assert client.get_many(KEYS) == {}
    async with AsyncClient(
        servers.main_addresses, timeout=5, gutter=servers.gutter_server.address
    ) as client:
        assert await client.get(lost_keys[0]) is None
        assert await client.set_many(values, noreply=True) == {}
        assert await client.get_many(KEYS) == values
        assert await client.delete_many(KEYS, noreply=True) == {}
        assert await client.get_many(KEYS) == {}


def test_the_gutter_is_left_when_the_server_is_back(servers: Servers) -> None:
    port = int(servers.lost_server.address.rpartition(":")[2])
    with Client(
        servers.main_addresses, timeout=5, gutter=[servers.gutter_server.address]
    ) as client:
        key = _keys_of_lost_server(client, servers)[0]
        servers.lost_server.stop()
        client.set(key, "in the gutter")
        with (
            Server(port=port) as restarted_server,
            Client(restarted_server.address, timeout=5) as direct_client,
        ):
            direct_client.set(key, "home")
            values_seen = {client.get(key)}
            while "home" not in values_seen:
                values_seen.add(client.get(key))
            assert values_seen <= {"in the gutter", "home"}
            assert client.get(key) == "home"


def test_without_a_gutter_or_without_its_servers_the_failure_is_raised(servers: Servers) -> None:
    with Client(servers.main_addresses, timeout=5, gutter=servers.gutter_server.address) as client:
        key = _keys_of_lost_server(client, servers)[0]
        servers.lost_server.stop()
        servers.gutter_server.stop()
        with pytest.raises(ServerUnavailable):
            client.get(key)
        with pytest.raises(ServerUnavailable):
            client.get_many(KEYS)
        assert client.set_many({key: 1}).keys() == {key}
    with Client(
        servers.main_addresses, timeout=5, gutter=servers.gutter_server.address, on_error="miss"
    ) as client:
        assert client.get(key, "miss") == "miss"
        assert client.set(key, 1) is False
        assert client.get_many(KEYS) == {}
        assert client.stats()["gutter"]["misses_by_error"] > 0


def test_slow_calls_of_a_client_with_a_gutter_are_logged(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(servers.main_addresses, timeout=5, gutter=servers.gutter_server.address) as client:
        log_slow_calls(client, threshold=0)
        client.get("k")
    assert "slow call: get" in caplog.text


async def test_the_asyncio_client_moves_to_the_gutter_as_well(servers: Servers) -> None:
    async with AsyncClient(
        servers.main_addresses, timeout=5, gutter=servers.gutter_server.address, gutter_ttl=7
    ) as client:
        with Client(servers.main_addresses) as blocking_client:
            lost_keys = _keys_of_lost_server(blocking_client, servers)
        assert await client.set_many(dict.fromkeys(KEYS, "old")) == {}
        assert await client.gets_many(KEYS[:3]) == {key: await client.gets(key) for key in KEYS[:3]}
        servers.lost_server.stop()
        assert await client.get(lost_keys[0], "gone") == "gone"
        assert await client.set(lost_keys[0], "new", ttl=3600)
        item = await client.get_with_meta(lost_keys[0])
        assert item is not None
        assert (item.value, item.ttl) == ("new", 7)
        assert await client.get_or_set(lost_keys[2], lambda: "made", ttl=60) == "made"
        assert set(await client.get_many(lost_keys)) == {lost_keys[0], lost_keys[2]}
        assert set(await client.gets_many(lost_keys)) == {lost_keys[0], lost_keys[2]}
        assert await client.set_many(dict.fromkeys(KEYS, "all")) == {}
        assert await asyncio.gather(*map(client.get, KEYS)) == ["all"] * len(KEYS)
        assert await client.delete_many(KEYS) == {}
        assert await client.get_many(KEYS) == {}
        assert client.stats()["gutter"]["calls"] > 0
