"""Early refresh under load: requests for one value that takes 50 ms to compute, for a minute.

Usage: early_refresh.py [--seconds 60] [--rate 500] [--ttl 2] [--cost-ms 50] [--constant SECONDS | --off]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from glasscache import AsyncClient, Server, leases
from glasscache._steps import Sleep

WAITS: list[float] = []
"""Each wait of a request for the value of another."""


def record_wait(seconds: float) -> Sleep:
    WAITS.append(seconds)
    return Sleep(seconds)


class Load:
    """The requests, and the counters of the computations of the value."""

    def __init__(self, client: AsyncClient, options: argparse.Namespace) -> None:
        self.client, self.options = client, options
        self.running_computations = self.running_computations_max = self.computation_count = 0
        self.latencies_s: list[float] = []

    async def compute_value(self) -> float:
        self.running_computations += 1
        self.computation_count += 1
        self.running_computations_max = max(
            self.running_computations_max, self.running_computations
        )
        await asyncio.sleep(self.options.cost_ms / 1000)
        self.running_computations -= 1
        return time.time()

    async def request(self) -> None:
        has_computed = False

        async def compute_value() -> float:
            nonlocal has_computed
            has_computed = True
            return await self.compute_value()

        started_at = time.perf_counter()
        early_option = False if self.options.off else self.options.constant or True
        await self.client.get_or_set("value", compute_value, self.options.ttl, early=early_option)
        latency_s = time.perf_counter() - started_at
        if not has_computed:
            self.latencies_s.append(latency_s)

    async def send_requests(self) -> None:
        await self.request()
        tasks, started_at = [], time.perf_counter()
        for number in range(int(self.options.seconds * self.options.rate)):
            await asyncio.sleep(
                max(0.0, started_at + number / self.options.rate - time.perf_counter())
            )
            tasks.append(asyncio.create_task(self.request()))
        await asyncio.gather(*tasks)


async def measure(options: argparse.Namespace) -> int:
    with Server() as server:
        async with AsyncClient(server.address, timeout=5) as client:
            load = Load(client, options)
            await load.send_requests()
    latencies_s = sorted(load.latencies_s)
    computations_max = 1.15 * options.seconds / options.ttl
    print(
        f"{len(latencies_s) + load.computation_count} requests, {load.computation_count} computations "
        f"(at most {computations_max:.1f} allowed), "
        f"{load.running_computations_max} at once; {len(WAITS)} waits for the value of another; "
        f"p50 {latencies_s[len(latencies_s) // 2] * 1e3:.2f} ms, "
        f"p99 {latencies_s[int(len(latencies_s) * 0.99)] * 1e3:.2f} ms"
    )
    return (
        0
        if options.off
        or (
            load.computation_count <= computations_max + 1
            and load.running_computations_max == 1
            and not WAITS
        )
        else 1
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--ttl", type=float, default=2)
    parser.add_argument("--cost-ms", type=float, default=50)
    parser.add_argument("--constant", type=float, help="seconds instead of the measured cost")
    parser.add_argument("--off", action="store_true", help="without early refresh, for comparison")
    leases.Sleep = record_wait
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
