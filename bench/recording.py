"""What recording adds to the requests of an application: CPU of the client, and time of a request.

A request reads 30 items, each by a call of its own or all by one. Blocks of requests alternate between a
client without recorder, one that records 1 % of the requests and one that records all. What a round's
requests take more is the median over its blocks, each compared with the block without recorder of the same
round, so that a block in which another program evicted the caches does not decide. To it comes all the CPU
of the thread that writes the log, up to the end of the log. The time added to a request is measured with
calls that take none, so that neither server nor network is in it. The cache is a server of ours on the same
machine, so that a request costs the client as little as it can: nothing else makes the share of recording
small.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import glasscache
from glasscache.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    ReadItems = Callable[[Any, list[str]], Awaitable[None]]

KEYS_PER_REQUEST = 30
ITEMS = 2000
VALUE = b"x" * 300
BLOCK_REQUESTS = 50
BLOCKS_OF_SHORT_REQUESTS = 10
"""For each block of the others, so that these requests take about as long in all."""
RECORDED_SHARES = {"without": None, "1 %": 0.01, "100 %": 1.0}
"""The variants, each with its share of recorded requests."""

CLOCK_OF_THREAD = 6
"""In the number of a clock of Linux: the CPU time of one thread, whose id stands above these three bits."""


async def read_by_gets(client: glasscache.Client, keys: list[str]) -> None:
    """Read each item by a call of its own."""
    for key in keys:
        client.get(key)


async def read_by_awaited_gets(client: glasscache.AsyncClient, keys: list[str]) -> None:
    """Read each item by an awaited call of its own."""
    for key in keys:
        await client.get(key)


async def read_by_get_many(client: glasscache.Client, keys: list[str]) -> None:
    """Read all items by one call."""
    client.get_many(keys)


@dataclass
class Variant:
    """A client with one share of recorded requests, in one round."""

    client: Any
    recorder: Any
    writer_thread_id: int | None
    blocks_cpu_s: list[float] = field(default_factory=list)
    """Of each block, without any thread that writes a log."""
    writer_cpu_s: float = 0.0
    """What the thread that writes the log took."""
    request_count: int = 0

    @property
    def cpu_s(self) -> float:
        """What the requests and the log took."""
        return sum(self.blocks_cpu_s) + self.writer_cpu_s

    @classmethod
    def open(cls, client: Any, folder: Path, sample: float | None) -> Variant:
        """Attach a recorder, unless there is no share, and find its thread."""
        threads_before = set(thread_ids())
        recorder = None if sample is None else client.recorder(folder, sample=sample)
        new_threads = set(thread_ids()) - threads_before
        return cls(client, recorder, max(new_threads, default=None))

    async def run_block(self, read_items: ReadItems, key_lists: list[list[str]]) -> None:
        """Make requests, recorded or not."""
        self.request_count += len(key_lists)
        if self.recorder is None:
            for keys in key_lists:
                await read_items(self.client, keys)
            return
        for keys in key_lists:
            with self.recorder.request(route="page"):
                await read_items(self.client, keys)


class StubClient:
    """A client whose calls take no time: the time of a request is what recording adds."""

    def get(
        self,
        key: str,
        default: Any = None,
        *,
        deadline: float | None = None,
        parent: Any = None,
    ) -> Any:
        """Return at once."""

    def get_many(
        self, keys: Iterable[str], *, deadline: float | None = None, parent: Any = None
    ) -> Any:
        """Return at once."""

    def close(self) -> None:
        """Do nothing."""


class AsyncStubClient(StubClient):
    """The same for asyncio."""

    async def get(
        self,
        key: str,
        default: Any = None,
        *,
        deadline: float | None = None,
        parent: Any = None,
    ) -> Any:
        """Return at once."""


WAYS_TO_READ: dict[str, tuple[type[Any], type[Any], ReadItems]] = {
    "30 gets": (glasscache.Client, StubClient, read_by_gets),
    "30 awaited gets": (glasscache.AsyncClient, AsyncStubClient, read_by_awaited_gets),
    "get_many of 30": (glasscache.Client, StubClient, read_by_get_many),
}
"""How a request reads its items: the client, one whose calls take no time, and the calls."""


def thread_ids() -> list[int]:
    """Return the threads of this process."""
    return [int(thread.name) for thread in Path("/proc/self/task").iterdir()]


def thread_cpu_s(thread_id: int) -> float:
    """Return the CPU time of a thread of this process; 0 if it has ended."""
    try:
        return time.clock_gettime((~thread_id << 3) | CLOCK_OF_THREAD)
    except OSError:
        return 0.0


def writers_cpu_s(variants: Iterable[Variant]) -> float:
    """Return the CPU time of the threads that write the logs of these variants."""
    writer_thread_ids = (variant.writer_thread_id for variant in variants)
    return sum(thread_cpu_s(thread_id) for thread_id in writer_thread_ids if thread_id is not None)


async def measure_round(
    way_to_read: str, address: str, block_count: int, folder: Path, round_number: int
) -> dict[str, Variant]:
    """Run blocks of requests of each variant alternately, then complete the logs."""
    client_type, _, read_items = WAYS_TO_READ[way_to_read]
    variants = {
        variant_name: Variant.open(client_type(address, timeout=60), folder / str(index), sample)
        for index, (variant_name, sample) in enumerate(RECORDED_SHARES.items())
    }
    for variant in variants.values():
        await read_items(variant.client, item_keys(0))
    variant_names = list(variants)
    if way_to_read == "get_many of 30":
        block_count *= BLOCKS_OF_SHORT_REQUESTS
    for block in range(block_count):
        first_index = (block + round_number) % len(variant_names)
        first_request_number = (round_number * block_count + block) * BLOCK_REQUESTS
        key_lists = [
            item_keys(first_request_number + request_offset)
            for request_offset in range(BLOCK_REQUESTS)
        ]
        for variant_name in variant_names[first_index:] + variant_names[:first_index]:
            cpu_s_before, writers_cpu_s_before = (
                time.process_time(),
                writers_cpu_s(variants.values()),
            )
            await variants[variant_name].run_block(read_items, key_lists)
            writers_s = writers_cpu_s(variants.values()) - writers_cpu_s_before
            variants[variant_name].blocks_cpu_s.append(
                time.process_time() - cpu_s_before - writers_s
            )
    for variant in variants.values():
        complete_log(
            variant,
            [other_variant for other_variant in variants.values() if other_variant is not variant],
        )
        if (close_call := variant.client.close()) is not None:
            await close_call
    return variants


def complete_log(variant: Variant, other_variants: list[Variant]) -> None:
    """Add what the log took: on the thread that writes it until now, and here until it is complete."""
    if variant.recorder is None:
        return
    variant.writer_cpu_s = writers_cpu_s([variant])
    cpu_s_before, others_cpu_s_before = time.process_time(), writers_cpu_s(other_variants)
    if not variant.recorder.close():
        raise SystemExit("the log was not complete within a second")
    # The thread has ended, and its clock with it; what it took meanwhile is in the time of the process.
    others_s = writers_cpu_s(other_variants) - others_cpu_s_before
    variant.writer_cpu_s += time.process_time() - cpu_s_before - others_s


def item_keys(request_number: int) -> list[str]:
    """Return the items of a request: a few that every request reads, the others spread over all."""
    rarely_shared = [
        f"item:{(request_number * 37 + index * index * 11) % ITEMS}"
        for index in range(KEYS_PER_REQUEST - 5)
    ]
    return [f"common:{index}" for index in range(5)] + rarely_shared


async def added_times_s(
    way_to_read: str, sample: float, request_count: int, folder: Path
) -> dict[str, list[float]]:
    """Return, ascending, what recording takes in each of some requests: all but the calls themselves.

    Once by the clock, and once by the thread's CPU time, in which other programs on the processor are not.
    """
    _, client_type, read_items = WAYS_TO_READ[way_to_read]
    client = client_type()
    recorder = Recorder(folder, sample=sample)
    recorder.attach(client)
    clock, cpu_clock = time.perf_counter, time.thread_time
    added_s: dict[str, list[float]] = {"clock": [], "cpu": []}
    for number in range(request_count):
        keys = item_keys(number)
        started_at, started_at_cpu_s = clock(), cpu_clock()
        with recorder.request(route="page"):
            await read_items(client, keys)
        added_s["cpu"].append(cpu_clock() - started_at_cpu_s)
        added_s["clock"].append(clock() - started_at)
    recorder.close()
    return {name: sorted(times_s) for name, times_s in added_s.items()}


def percentile(sorted_values: list[float], percent: float) -> float:
    """Return the value of the nearest rank."""
    rank = -(-len(sorted_values) * percent // 100)
    return sorted_values[max(0, int(rank) - 1)]


def added_cpu_percent(variant: Variant, unrecorded: Variant) -> float:
    """Return what a variant takes more, in percent of a client without recorder."""
    blocks = zip(variant.blocks_cpu_s, unrecorded.blocks_cpu_s, strict=True)
    block_ratio_minus_1 = (
        statistics.median(block_s / unrecorded_block_s for block_s, unrecorded_block_s in blocks)
        - 1
    )
    return 100 * (block_ratio_minus_1 + variant.writer_cpu_s / unrecorded.cpu_s)


def summarise_rounds(
    variants_by_round: list[dict[str, Variant]],
    added_s_by_round: list[dict[str, dict[str, list[float]]]],
    variant_name: str,
) -> dict[str, Any]:
    """Return what a variant adds to a request without recorder: median, least and most of the rounds."""
    added_percent = [
        added_cpu_percent(variants[variant_name], variants["without"])
        for variants in variants_by_round
    ]
    request_us = [
        1e6 * variants["without"].cpu_s / variants["without"].request_count
        for variants in variants_by_round
    ]
    writer_percent = [
        100 * variants[variant_name].writer_cpu_s / variants["without"].cpu_s
        for variants in variants_by_round
    ]
    figures: dict[str, Any] = {
        "request_cpu_us": statistics.median(request_us),
        "added_cpu_percent": statistics.median(added_percent),
        "added_cpu_percent_min": min(added_percent),
        "added_cpu_percent_max": max(added_percent),
        "writer_cpu_percent": statistics.median(writer_percent),
    }
    for percent, clock, label in (
        (50, "clock", "p50"),
        (99.9, "clock", "p999"),
        (99.9, "cpu", "cpu_p999"),
    ):
        added_us = [
            1e6 * percentile(times_s[variant_name][clock], percent) for times_s in added_s_by_round
        ]
        figures[f"added_us_{label}"] = statistics.median(added_us)
        figures[f"added_us_{label}_min"] = min(added_us)
        figures[f"added_us_{label}_max"] = max(added_us)
    return figures


async def measure(
    way_to_read: str, address: str, round_count: int, request_count: int
) -> dict[str, Any]:
    """Return what each share of recorded requests adds to requests that read in this way."""
    variants_by_round, added_s_by_round = [], []
    shares = {
        variant_name: sample
        for variant_name, sample in RECORDED_SHARES.items()
        if sample is not None
    }
    for round_number in range(round_count):
        print(
            f"{way_to_read}, round {round_number + 1} of {round_count}",
            end="\r",
            file=sys.stderr,
            flush=True,
        )
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            block_count = max(1, request_count // BLOCK_REQUESTS)
            variants_by_round.append(
                await measure_round(way_to_read, address, block_count, Path(folder), round_number)
            )
            added_s_by_round.append(
                {
                    variant_name: await added_times_s(
                        way_to_read, sample, request_count, Path(folder) / f"added {variant_name}"
                    )
                    for variant_name, sample in shares.items()
                }
            )
    return {
        variant_name: summarise_rounds(variants_by_round, added_s_by_round, variant_name)
        for variant_name in shares
    }


def store_all_items(address: str) -> None:
    """Store every item that requests read."""
    all_keys = {key for number in range(2 * ITEMS) for key in item_keys(number)}
    with glasscache.Client(address, timeout=5) as client:
        client.set_many(dict.fromkeys(all_keys, VALUE))


def print_rows(way_to_read: str, figures_by_variant: dict[str, Any]) -> None:
    """Print what each share of recorded requests adds."""
    for variant_name, figures in figures_by_variant.items():
        print(
            f"{way_to_read:16}{variant_name:>6}"
            f"  CPU {figures['added_cpu_percent']:+6.2f} %"
            f" ({figures['added_cpu_percent_min']:+.2f} to {figures['added_cpu_percent_max']:+.2f})"
            f" of {figures['request_cpu_us']:.1f} us, the log's thread {figures['writer_cpu_percent']:.2f} %;"
            f" time added p50 {figures['added_us_p50']:.1f} us, p99.9 {figures['added_us_p999']:.1f} us"
            f" ({figures['added_us_p999_min']:.1f} to {figures['added_us_p999_max']:.1f}),"
            f" of CPU {figures['added_us_cpu_p999']:.1f} us"
            f" ({figures['added_us_cpu_p999_min']:.1f} to {figures['added_us_cpu_p999_max']:.1f})",
            flush=True,
        )


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="rounds of each row")
    parser.add_argument("--requests", type=int, default=3000, help="of each variant in a round")
    parser.add_argument("--keep", type=Path, help="where the figures are kept")
    arguments = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:1])
    with glasscache.Server() as server:
        os.sched_setaffinity(0, cpus)
        store_all_items(server.address)
        print(f"{arguments.rounds} rounds of {arguments.requests} requests: median (least to most)")
        figures: dict[str, dict[str, Any]] = {}
        for way_to_read in WAYS_TO_READ:
            figures[way_to_read] = asyncio.run(
                measure(way_to_read, server.address, arguments.rounds, arguments.requests)
            )
            print_rows(way_to_read, figures[way_to_read])
    if arguments.keep:
        record = {
            "name": "recording",
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
            "load": os.getloadavg()[0],
            "rounds": arguments.rounds,
            "requests": arguments.requests,
            "keys": KEYS_PER_REQUEST,
            "figures": figures,
        }
        arguments.keep.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
