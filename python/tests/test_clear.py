"""`clear()` of both clients: the items of the namespace go at once, from servers and from this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from glasscache import AsyncClient, BadSetting, Client
from glasscache.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Start two servers."""
    with Server() as first_server, Server() as second_server:
        yield [first_server.address, second_server.address]


def test_clear_drops_the_namespace_on_every_server_and_nothing_else(addresses: list[str]) -> None:
    with (
        Client(addresses, namespace="shop:", timeout=TIMEOUT_S) as shop_client,
        Client(addresses, namespace="shop", timeout=TIMEOUT_S) as client_of_similar_namespace,
    ):
        values = {f"key{number}": number for number in range(50)}
        assert shop_client.set_many(values) == {}
        assert client_of_similar_namespace.set("s", "kept")
        assert shop_client.clear() == dict.fromkeys(addresses, True)
        assert shop_client.get_many(list(values)) == {}
        assert client_of_similar_namespace.get("s") == "kept"
        assert shop_client.add("key1", "new")
        assert shop_client.get("key1") == "new"


def test_clear_is_sent_as_base64_where_the_namespace_is_not_plain(addresses: list[str]) -> None:
    with Client(addresses, namespace="a b:", keys="base64", timeout=TIMEOUT_S) as client:
        assert client.set("key", 1)
        assert set(client.clear().values()) == {True}
        assert client.get("key") is None


async def test_an_asyncio_client_clears_its_namespace(addresses: list[str]) -> None:
    async with AsyncClient(addresses, namespace="web:", timeout=TIMEOUT_S) as client:
        assert await client.set("key", 1)
        assert await client.clear() == dict.fromkeys(addresses, True)
        assert await client.get("key") is None


def test_clear_without_a_namespace_is_refused(addresses: list[str]) -> None:
    reason = "clear failed: the client has no namespace"

    async def use_async_client() -> None:
        async with AsyncClient(addresses, timeout=TIMEOUT_S) as client:
            with pytest.raises(BadSetting, match=reason):
                await client.clear()

    with Client(addresses, timeout=TIMEOUT_S) as client, pytest.raises(BadSetting, match=reason):
        client.clear()
    asyncio.run(use_async_client())


def test_clear_is_seen_at_once_by_a_client_with_a_near_cache(
    addresses: list[str], tmp_path: Path
) -> None:
    strategy_file = tmp_path / "near.strategy"
    strategy_file.write_text("glasscache-strategy 1\nstrategy lru:100\n")
    with Client(
        addresses, namespace="n:", strategy=str(strategy_file), timeout=TIMEOUT_S, codec="raw"
    ) as client:
        for _ in range(3):
            assert client.set("key", b"old")
            assert client.get("key") == b"old"
            assert client.get("key") == b"old"
            client.clear()
            assert client.get("key") is None
        assert client.near_stats()["near_hits"] == 3


def test_clear_reports_that_a_server_forbids_flushes() -> None:
    with (
        Server(arguments=("-F",)) as server,
        Client(server.address, namespace="n:", timeout=TIMEOUT_S) as client,
    ):
        (outcome,) = client.clear().values()
        assert "flush_prefix not allowed" in str(outcome)
