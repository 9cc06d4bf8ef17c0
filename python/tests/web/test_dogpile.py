"""The dogpile backend and the region for asyncio; dogpile's own suites are those of `make dogpile-tests`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("dogpile.cache", reason="dogpile.cache is not installed")

from dogpile.cache import make_region, register_backend
from dogpile.cache.api import NO_VALUE
from glasscache import BadSetting, Client
from glasscache.contrib.dogpile import AsyncRegion

if TYPE_CHECKING:
    from glasscache import Server

register_backend("glasscache", "glasscache.contrib.dogpile", "GlassCacheBackend")
register_backend("glasscache.async", "glasscache.contrib.dogpile", "AsyncGlassCacheBackend")


def test_one_task_creates_a_value(glasscache_server: Server) -> None:
    async def main() -> None:
        region = AsyncRegion().configure(
            expiration_time=60, arguments={"servers": glasscache_server.address, "timeout": 5}
        )
        calls = []

        async def create() -> str:
            calls.append(1)
            await asyncio.sleep(0.02)
            return "made"

        created_values = await asyncio.gather(
            *(region.get_or_create("async-k", create) for _ in range(30))
        )
        assert (set(created_values), len(calls)) == ({"made"}, 1)
        assert await region.get("async-k") == "made"
        assert await region.get_multi(["async-k", "async-none"]) == ["made", NO_VALUE]
        await region.set_multi({"async-a": 1, "async-b": None})
        assert await region.get_multi(["async-a", "async-b"]) == [1, None]
        await region.delete("async-a")
        await region.delete_multi(["async-b"])
        assert await region.get("async-b") is NO_VALUE
        region.invalidate()
        assert await region.get("async-k") is NO_VALUE

        @region.cache_on_arguments()
        async def double(number: int) -> int:
            calls.append(number)
            return 2 * number

        assert [await double(4), await double(4), await double.get(4)] == [8, 8, 8]
        await double.invalidate(4)
        assert await double.get(4) is NO_VALUE
        assert await double.refresh(4) == 8

    asyncio.run(main())


def test_both_regions_share_values_and_a_region_needs_its_backend(
    glasscache_server: Server,
) -> None:
    arguments = {"servers": glasscache_server.address, "timeout": 5}
    blocking_region = make_region().configure("glasscache", arguments=arguments)
    blocking_region.set("shared-k", {"a": 1})

    async def main() -> None:
        region = AsyncRegion().configure("glasscache.async", arguments=arguments)
        assert await region.get("shared-k") == {"a": 1}
        await region.set("shared-k", 2)

    asyncio.run(main())
    assert blocking_region.get("shared-k") == 2
    with pytest.raises(TypeError, match=r"glasscache\.async"):
        AsyncRegion().configure("glasscache", arguments=arguments)


@pytest.mark.parametrize("is_list", [False, True])
def test_the_arguments_of_dogpiles_own_backends_are_accepted(
    glasscache_server: Server, is_list: bool
) -> None:
    address = glasscache_server.address
    arguments = {
        "url": [address] if is_list else address,
        "memcached_expire_time": 60,
        "timeout": 5,
        "distributed_lock": True,
    }
    region = make_region().configure("glasscache", arguments=arguments)
    region.set("by-url", "value")
    with Client(address, timeout=5) as client:
        item = client.get_with_meta("by-url")
        assert item is not None
        assert item.ttl is not None
        assert 50 < item.ttl <= 60
    configuration = {
        "cache.backend": "glasscache",
        "cache.arguments.url": address,
        "cache.arguments.memcached_expire_time": "60",
        "cache.arguments.timeout": "5",
    }
    configured_region = make_region().configure_from_config(configuration, "cache.")
    assert configured_region.get("by-url") == "value"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"urls": "a:1"}, "'urls' is not among client, ttl,.* url,.* servers,"),
        ({"url": "a:1", "dead_retry": 30}, "'dead_retry' is not among"),
        ({"url": "a:1", "servers": "b:1"}, "'servers' is given twice"),
        ({"url": "a:1", "ttl": 1, "memcached_expire_time": 2}, "'ttl' is given twice"),
        ({"client": Client("127.0.0.1:1"), "url": "b:1"}, "servers are settings of a new client"),
    ],
)
def test_an_argument_that_would_be_ignored_is_refused_by_name(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(BadSetting, match=message):
        make_region().configure("glasscache", arguments=arguments)
