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

SECONDS = 30.0


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Start two servers."""
    with Server() as one, Server() as other:
        yield [one.address, other.address]


def test_clear_drops_the_namespace_on_every_server_and_nothing_else(addresses: list[str]) -> None:
    with (
        Client(addresses, namespace="shop:", timeout=SECONDS) as shop,
        Client(addresses, namespace="shop", timeout=SECONDS) as other,
    ):
        values = {f"key{number}": number for number in range(50)}
        assert shop.set_many(values) == {}
        assert other.set("s", "kept")
        assert shop.clear() == dict.fromkeys(addresses, True)
        assert shop.get_many(list(values)) == {}
        assert other.get("s") == "kept"
        assert shop.add("key1", "new")
        assert shop.get("key1") == "new"


def test_clear_is_sent_as_base64_where_the_namespace_is_not_plain(addresses: list[str]) -> None:
    with Client(addresses, namespace="a b:", keys="base64", timeout=SECONDS) as client:
        assert client.set("key", 1)
        assert set(client.clear().values()) == {True}
        assert client.get("key") is None


def test_an_asyncio_client_clears_its_namespace(addresses: list[str]) -> None:
    async def use() -> None:
        async with AsyncClient(addresses, namespace="web:", timeout=SECONDS) as client:
            assert await client.set("key", 1)
            assert await client.clear() == dict.fromkeys(addresses, True)
            assert await client.get("key") is None

    asyncio.run(use())


def test_clear_without_a_namespace_is_refused(addresses: list[str]) -> None:
    reason = "clear failed: the client has no namespace"

    async def use() -> None:
        async with AsyncClient(addresses, timeout=SECONDS) as client:
            with pytest.raises(BadSetting, match=reason):
                await client.clear()

    with Client(addresses, timeout=SECONDS) as client, pytest.raises(BadSetting, match=reason):
        client.clear()
    asyncio.run(use())


def test_clear_is_seen_at_once_by_a_client_with_a_near_cache(
    addresses: list[str], tmp_path: Path
) -> None:
    strategy = tmp_path / "near.strategy"
    strategy.write_text("glasscache-strategy 1\nstrategy lru:100\n")
    with Client(
        addresses, namespace="n:", strategy=str(strategy), timeout=SECONDS, codec="raw"
    ) as client:
        for _ in range(3):
            assert client.set("key", b"old")
            assert client.get("key") == b"old"
            assert client.get("key") == b"old"
            client.clear()
            assert client.get("key") is None
        assert client.near_stats()["near_hits"] >= 0


def test_clear_reports_that_a_server_forbids_flushes() -> None:
    with (
        Server(arguments=("-F",)) as server,
        Client(server.address, namespace="n:", timeout=SECONDS) as client,
    ):
        (outcome,) = client.clear().values()
        assert "flush_prefix not allowed" in str(outcome)
