"""Early refresh under load: requests for one value that takes 50 ms to make, for a minute, on a real server.

Usage: early_refresh.py [--seconds 60] [--rate 500] [--ttl 2] [--cost-ms 50] [--constant SECONDS | --off]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from glasscache import AsyncClient, Server, leases
from glasscache._plans import Sleep

PAUSES: list[float] = []
"""Each pause of a request that waits for another's value."""


def counted(seconds: float) -> Sleep:
    PAUSES.append(seconds)
    return Sleep(seconds)


class Load:
    """The requests, and what making the value did."""

    def __init__(self, client: AsyncClient, options: argparse.Namespace) -> None:
        self.client, self.options = client, options
        self.making = self.most_making = self.made = 0
        self.took: list[float] = []

    async def make(self) -> float:
        self.making += 1
        self.made += 1
        self.most_making = max(self.most_making, self.making)
        await asyncio.sleep(self.options.cost_ms / 1000)
        self.making -= 1
        return time.time()

    async def request(self) -> None:
        has_made = False

        async def make() -> float:
            nonlocal has_made
            has_made = True
            return await self.make()

        begin = time.perf_counter()
        early = False if self.options.off else self.options.constant or True
        await self.client.get_or_set("value", make, self.options.ttl, early=early)
        took = time.perf_counter() - begin
        if not has_made:
            self.took.append(took)

    async def run(self) -> None:
        await self.request()
        tasks, begin = [], time.perf_counter()
        for number in range(int(self.options.seconds * self.options.rate)):
            await asyncio.sleep(max(0.0, begin + number / self.options.rate - time.perf_counter()))
            tasks.append(asyncio.create_task(self.request()))
        await asyncio.gather(*tasks)


async def measure(options: argparse.Namespace) -> int:
    with Server() as server:
        async with AsyncClient(server.address, timeout=5) as client:
            load = Load(client, options)
            await load.run()
    took = sorted(load.took)
    most = 1.15 * options.seconds / options.ttl
    print(
        f"{len(took) + load.made} requests, {load.made} times made (at most {most:.1f} wanted), "
        f"{load.most_making} at once; {len(PAUSES)} pauses to wait for another's value; "
        f"p50 {took[len(took) // 2] * 1e3:.2f} ms, p99 {took[int(len(took) * 0.99)] * 1e3:.2f} ms"
    )
    return (
        0 if options.off or (load.made <= most + 1 and load.most_making == 1 and not PAUSES) else 1
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--ttl", type=float, default=2)
    parser.add_argument("--cost-ms", type=float, default=50)
    parser.add_argument("--constant", type=float, help="seconds in place of the measured cost")
    parser.add_argument("--off", action="store_true", help="without early refresh, for comparison")
    leases.Sleep = counted
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
