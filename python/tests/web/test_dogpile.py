"""The dogpile backend and the region for asyncio; dogpile's own suites are those of `make dogpile-tests`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("dogpile.cache", reason="dogpile.cache is not installed")

from dogpile.cache import make_region, register_backend
from dogpile.cache.api import NO_VALUE
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
