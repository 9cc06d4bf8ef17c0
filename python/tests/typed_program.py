"""The documented features as a strictly typed program writes them; `test_types.py` checks it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, assert_type

from glasscache.cached import cached

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from glasscache import AsyncClient, Client
    from glasscache.cached import AsyncCached, Cached


def use_blocking_client(client: Client) -> None:
    @client.cached(ttl=60, tags=["prices"])
    def price(item: str, *, net: bool = False) -> float:
        return 1.0 if net else 2.0

    assert_type(price("tea"), float)
    assert_type(price("tea", net=True), float)
    assert_type(price.refresh("tea"), float)
    assert_type(price.invalidate("tea"), bool)
    assert_type(price.cache_info().hits, int)
    assert_type(price.cache_key("tea"), str)
    price.__wrapped__("tea")
    as_callable: Callable[[str], float] = price
    as_callable("tea")

    @cached(client, ttl=dt.timedelta(minutes=1))
    def name(number: int) -> str:
        return str(number)

    assert_type(name(1), str)
    as_cached: Cached[[int], str] = name
    as_cached.invalidate(1)

    class Shop:
        @client.cached(ttl=60, ignore=["self"])
        def stock(self, item: str) -> int:
            return len(item)

    assert_type(Shop().stock("tea"), int)
    Shop.stock.cache_info()

    assert_type(client.get_or_set("k", lambda: 5, ttl=60), int)
    assert_type(client.get("k", 3), Any | int)
    number: int = client.get("k", 3)
    assert_type(client.get_many(["a", "b"]), dict[str, Any])
    assert_type(client.get_many({b"a"}), dict[bytes, Any])
    assert_type(client.gets_many(["a"]), dict[str, tuple[Any, int]])
    for key, value in client.get_many(key for key in ("a", "b")).items():
        client.set(key.upper(), value, ttl=number)
    print(client.report(), client.explain("a"), client.explain_value([1]).seconds)  # noqa: T201
    assert_type(client.report().stats, dict[str, Any])


async def use_async_client(client: AsyncClient) -> None:
    async def load() -> int:
        return 5

    assert_type(await client.get_or_set("k", load, ttl=3), int)
    assert_type(await client.get_or_set("k", lambda: 5, ttl=3), int)
    computed = await client.get_or_set("k", load)
    assert_type(computed, int)

    @client.cached(ttl=60)
    async def price(item: str) -> float:
        return float(len(item))

    assert_type(await price("tea"), float)
    assert_type(await price.refresh("tea"), float)
    assert_type(await price.invalidate("tea"), bool)
    assert_type(price.cache_info().fills, int)
    as_callable: Callable[[str], Coroutine[Any, Any, float]] = price
    await as_callable("tea")
    as_cached: AsyncCached[[str], float] = price
    as_cached.cache_key("tea")

    class Shop:
        @client.cached(ttl=60)
        async def stock(self, item: str) -> int:
            return len(item)

    assert_type(await Shop().stock("tea"), int)
    assert_type(await client.get("k", 3), Any | int)
    assert_type(await client.get_many(["a"]), dict[str, Any])
    assert_type(await client.gets_many([b"a"]), dict[bytes, tuple[Any, int]])
    print(client.report(), await client.explain("a"), client.explain_value([1]))  # noqa: T201
