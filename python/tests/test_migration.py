"""Two rings over two real servers: values of the old client are found, and deleted ones never come back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import BadSetting, Client, Server
from glasscache.cached import cached
from glasscache.migration import AsyncMigratingClient, MigratingClient

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = [f"key{number}" for number in range(40)]
OLD_SETTINGS: dict[str, Any] = {
    "placement": "ketama-oneatatime",
    "dialect": "pylibmc",
    "codec": "pickle",
}


@pytest.fixture
def servers() -> Iterator[list[str]]:
    with Server() as first_server, Server() as second_server:
        yield [first_server.address, second_server.address]


def _old_client(servers: list[str]) -> Client:
    return Client(servers, timeout=5, **OLD_SETTINGS)


def _migrating_client(servers: list[str]) -> MigratingClient:
    return MigratingClient(servers, old=OLD_SETTINGS, codec="pickle", timeout=5)


def test_a_value_of_the_old_client_is_found_on_either_ring(servers: list[str]) -> None:
    with _old_client(servers) as old_client, _migrating_client(servers) as migrating_client:
        values = {
            key: [key, "é", 1, True, {"n": None}][number % 5] for number, key in enumerate(KEYS)
        }
        old_client.set_many(values, 100)
        moved_keys = [
            key
            for key in KEYS
            if migrating_client.old.server_of(key) != migrating_client.new.server_of(key)
        ]
        assert 5 < len(moved_keys) < 35
        assert migrating_client.get_many(KEYS) == values
        assert migrating_client.get("never", "?") == "?"
        for key in KEYS:
            assert migrating_client.get(key) == values[key]
            assert type(migrating_client.get(key)) is type(values[key])
        for key in moved_keys:
            copied_item = migrating_client.new.get_with_meta(key)
            assert (copied_item.value, 95 < copied_item.ttl <= 100) == (values[key], True)


def test_an_old_value_never_comes_back(servers: list[str]) -> None:
    with _old_client(servers) as old_client, _migrating_client(servers) as migrating_client:
        old_client.set_many(dict.fromkeys(KEYS, "old"))
        assert migrating_client.set_many(dict.fromkeys(KEYS[:20], "new")) == {}
        for key in KEYS[20:]:
            assert migrating_client.set(key, "new")
        assert migrating_client.get_many(KEYS) == dict.fromkeys(KEYS, "new")
        migrating_client.new.delete_many(KEYS)  # as if they were evicted
        assert migrating_client.get_many(KEYS) == {}
        old_client.set_many(dict.fromkeys(KEYS, "old"))
        assert migrating_client.delete(KEYS[0])
        assert migrating_client.delete_many(KEYS[1:]) == {}
        assert old_client.get_many(KEYS) == migrating_client.get_many(KEYS) == {}


def test_every_other_call_begins_with_the_old_item(servers: list[str]) -> None:
    with _old_client(servers) as old_client, _migrating_client(servers) as migrating_client:
        for key in KEYS[:8]:
            old_client.flush()
            old_client.set(key, 5, 100)
            assert migrating_client.add(key, 1) is False
            assert migrating_client.incr(key) == 6
            assert migrating_client.decr(key, 2) == 4
            old_client.flush()
            old_client.set(key, "b", 100)
            assert migrating_client.append(key, "c")
            assert migrating_client.prepend(key, "a")
            assert migrating_client.gat(key, 50) == "abc"
            old_client.flush()
            old_client.set(key, "v", 100)
            value, unique = migrating_client.gets(key)
            assert migrating_client.cas(key, value + "w", unique)
            assert migrating_client.cas(key, "x", unique) is False
            assert migrating_client.touch(key, 70)
            assert migrating_client.get_with_meta(key).ttl == 70
            old_client.flush()
            old_client.set(key, "v", 100)
            assert migrating_client.replace(key, "w")
            assert migrating_client.get(key, deadline=1) == "w"
            assert migrating_client.incr("nothing") is None
            assert migrating_client.touch("nothing", 1) is False


def test_get_or_set_and_cached_work_over_both_rings(servers: list[str]) -> None:
    with _old_client(servers) as old_client, _migrating_client(servers) as migrating_client:
        old_client.set("k", "kept")
        assert migrating_client.get_or_set("k", lambda: "made", ttl=60) == "kept"
        assert migrating_client.get_or_set("l", lambda: "made", ttl=60) == "made"

        @cached(migrating_client, ttl=60)
        def double(number: int) -> int:
            return 2 * number

        assert double(2) == double(2) == 4
        assert double.cache_info().fills == 1  # type: ignore[attr-defined]


def test_two_foreign_dialects_are_refused() -> None:
    with pytest.raises(BadSetting, match="writes own or pylibmc"):
        MigratingClient("127.0.0.1:1", old=OLD_SETTINGS, dialect="dalli")


def test_the_asyncio_client_migrates_in_the_same_way(servers: list[str]) -> None:
    async def run() -> None:
        async with AsyncMigratingClient(
            servers, old=OLD_SETTINGS, codec="pickle", timeout=5
        ) as migrating_client:
            assert await asyncio.gather(*map(migrating_client.get, KEYS)) == ["old"] * len(KEYS)
            assert await migrating_client.get_many(KEYS) == dict.fromkeys(KEYS, "old")
            assert await migrating_client.incr("n") == 6
            assert await migrating_client.set_many(dict.fromkeys(KEYS, "new")) == {}
            await migrating_client.new.delete_many(KEYS)
            assert await migrating_client.get_many(KEYS) == {}
            assert await migrating_client.get_or_set("l", lambda: "made", ttl=60) == "made"

    with _old_client(servers) as old_client:
        old_client.set_many(dict.fromkeys(KEYS, "old"))
        old_client.set("n", 5)
        asyncio.run(run())
