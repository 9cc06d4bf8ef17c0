"""asyncio: everything a page needs in one multi-get instead of one fetch after another.

Usage: python examples/one_request.py [HOST:PORT]; without an address it starts a server of its own.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack

from glasscache import AsyncClient, Server

KEYS = [f"example:block:{number}" for number in range(30)]


async def main(address: str) -> None:
    """Compare thirty gets with one multi-get of thirty keys."""
    async with AsyncClient(address, timeout=1) as cache:
        await cache.set_many({key: {"html": "<p>" + key * 20} for key in KEYS}, ttl=60)
        started_at = time.perf_counter()
        for key in KEYS:
            await cache.get(key)
        single_gets_s = time.perf_counter() - started_at
        started_at = time.perf_counter()
        values = await cache.get_many(KEYS)
        multi_get_s = time.perf_counter() - started_at
        print(f"{len(values)} values, one by one: {single_gets_s * 1000:.2f} ms")
        print(f"{len(values)} values, one multi-get: {multi_get_s * 1000:.2f} ms")
        await cache.delete_many(KEYS)


if __name__ == "__main__":
    with ExitStack() as stack:
        address = sys.argv[1] if len(sys.argv) > 1 else stack.enter_context(Server()).address
        asyncio.run(main(address))
