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
    with Server() as first, Server() as second:
        yield [first.address, second.address]


def _old_client(servers: list[str]) -> Client:
    return Client(servers, timeout=5, **OLD_SETTINGS)


def _moving_client(servers: list[str]) -> MigratingClient:
    return MigratingClient(servers, old=OLD_SETTINGS, codec="pickle", timeout=5)


def test_a_value_of_the_old_client_is_found_on_either_ring(servers: list[str]) -> None:
    with _old_client(servers) as old, _moving_client(servers) as cache:
        values = {key: [key, "é", 1, True, {"n": None}][n % 5] for n, key in enumerate(KEYS)}
        old.set_many(values, 100)
        moved = [key for key in KEYS if cache.old.server_of(key) != cache.new.server_of(key)]
        assert 5 < len(moved) < 35
        assert cache.get_many(KEYS) == values
        assert cache.get("never", "?") == "?"
        for key in KEYS:
            assert cache.get(key) == values[key]
            assert type(cache.get(key)) is type(values[key])
        for key in moved:
            copied = cache.new.get_with_meta(key)
            assert (copied.value, 95 < copied.ttl <= 100) == (values[key], True)


def test_an_old_value_never_comes_back(servers: list[str]) -> None:
    with _old_client(servers) as old, _moving_client(servers) as cache:
        old.set_many(dict.fromkeys(KEYS, "old"))
        assert cache.set_many(dict.fromkeys(KEYS[:20], "new")) == {}
        for key in KEYS[20:]:
            assert cache.set(key, "new")
        assert cache.get_many(KEYS) == dict.fromkeys(KEYS, "new")
        cache.new.delete_many(KEYS)  # as if they were evicted
        assert cache.get_many(KEYS) == {}
        old.set_many(dict.fromkeys(KEYS, "old"))
        assert cache.delete(KEYS[0])
        assert cache.delete_many(KEYS[1:]) == {}
        assert old.get_many(KEYS) == cache.get_many(KEYS) == {}


def test_every_other_call_begins_with_the_old_item(servers: list[str]) -> None:
    with _old_client(servers) as old, _moving_client(servers) as cache:
        for key in KEYS[:8]:
            old.flush()
            old.set(key, 5, 100)
            assert cache.add(key, 1) is False
            assert cache.incr(key) == 6
            assert cache.decr(key, 2) == 4
            old.flush()
            old.set(key, "b", 100)
            assert cache.append(key, "c")
            assert cache.prepend(key, "a")
            assert cache.gat(key, 50) == "abc"
            old.flush()
            old.set(key, "v", 100)
            value, unique = cache.gets(key)
            assert cache.cas(key, value + "w", unique)
            assert cache.cas(key, "x", unique) is False
            assert cache.touch(key, 70)
            assert cache.get_with_meta(key).ttl == 70
            old.flush()
            old.set(key, "v", 100)
            assert cache.replace(key, "w")
            assert cache.get(key, deadline=1) == "w"
            assert cache.incr("nothing") is None
            assert cache.touch("nothing", 1) is False


def test_leases_and_the_decorator_work_over_both(servers: list[str]) -> None:
    with _old_client(servers) as old, _moving_client(servers) as cache:
        old.set("k", "kept")
        assert cache.get_or_set("k", lambda: "made", ttl=60) == "kept"
        assert cache.get_or_set("l", lambda: "made", ttl=60) == "made"

        @cached(cache, ttl=60)
        def double(number: int) -> int:
            return 2 * number

        assert double(2) == double(2) == 4
        assert double.cache_info().fills == 1  # type: ignore[attr-defined]


def test_two_foreign_dialects_are_refused() -> None:
    with pytest.raises(BadSetting, match="writes own or pylibmc"):
        MigratingClient("127.0.0.1:1", old=OLD_SETTINGS, dialect="dalli")


def test_the_asyncio_client_moves_alike(servers: list[str]) -> None:
    async def run() -> None:
        async with AsyncMigratingClient(
            servers, old=OLD_SETTINGS, codec="pickle", timeout=5
        ) as cache:
            assert await asyncio.gather(*map(cache.get, KEYS)) == ["old"] * len(KEYS)
            assert await cache.get_many(KEYS) == dict.fromkeys(KEYS, "old")
            assert await cache.incr("n") == 6
            assert await cache.set_many(dict.fromkeys(KEYS, "new")) == {}
            await cache.new.delete_many(KEYS)
            assert await cache.get_many(KEYS) == {}
            assert await cache.get_or_set("l", lambda: "made", ttl=60) == "made"

    with _old_client(servers) as old:
        old.set_many(dict.fromkeys(KEYS, "old"))
        old.set("n", 5)
        asyncio.run(run())
