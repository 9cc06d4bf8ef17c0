"""Measures the HTTP cache under uvicorn: misses at once, stale responses, a large stream, soft purges, peers.

Usage: measure.py [misses] [stream] [purge] [peers] [hits]; without a name all but hits. Starts its own
cache server and uvicorn. What uvicorn alone takes for the same requests is printed with it; `peers` compares
a hit's CPU, `hits` compares it with a bare read, and with that of another checkout, whose folder is in OLD.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from http.client import HTTPConnection
from statistics import median
from typing import Any

import hits
import peers
from glasscache import AsyncClient, Client, Server
from glasscache.web import CacheASGI, CacheSettings, Rules
from glasscache.web.purge import AsyncPurger
from load import Connections, Latencies
from processes import uvicorn_processes

GIB = 1 << 30
CHUNK = bytes(64 << 10)
FIRST_BYTE_BYTES = 4 << 20
FIRST_BYTE_ROUNDS = int(os.environ.get("FIRST_BYTE_ROUNDS", "120"))
FIRST_BYTE_MS_MAX = 5.0
STREAM_MIB_MAX = 16.0
TAGGED_URLS = int(os.environ.get("TAGGED_URLS", "100000"))
ROUNDS = 5


async def origin(scope: Any, receive: Any, send: Any) -> None:
    """The application: /slow takes 200 ms and counts its runs in the store, /big and /body stream a body."""
    if scope["type"] != "http":
        return
    path = scope["path"]
    headers = [(b"content-type", b"text/html"), (b"etag", b'"v1"')]
    body = b""
    if path.startswith("/slow"):
        async with AsyncClient(os.environ["STORE"], timeout=5) as client:
            await client.incr(f"runs:{path}", initial=1)
        await asyncio.sleep(0.2)
        headers.append((b"cache-control", b"max-age=2, stale-while-revalidate=600"))
        body = b"slow"
    elif path.startswith(("/big", "/body")):
        length = GIB if path.startswith("/big") else FIRST_BYTE_BYTES
        headers += [(b"content-length", b"%d" % length), (b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(length // len(CHUNK)):
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def cached_origin() -> Any:
    """Return the application with the cache."""
    client = AsyncClient(os.environ["STORE"], timeout=5)
    return CacheASGI(origin, client, settings=CacheSettings(max_bytes=2 << 30))


def figures_of_best_round(rounds: list[Latencies]) -> str:
    """Return the figures of the round with the shortest tail: other processes lengthen the rest."""
    shortest = min(rounds, key=lambda latencies: latencies.quantile_ms(0.99))
    return f"p50 {shortest.quantile_ms(0.5):.1f} ms, p99 {shortest.quantile_ms(0.99):.1f} ms"


def measure_misses(store_address: str) -> None:
    """200 requests at once over 4 processes: for a cold URL, for a stale one, and without a cache."""
    with (
        uvicorn_processes("measure:cached_origin()", 4, STORE=store_address) as processes,
        Client(store_address, timeout=5) as client,
        Connections([process.port for process in processes], 200) as connections,
    ):
        paths = [f"/slow/{number}" for number in range(ROUNDS)]
        cold_rounds = [connections.request_many(path, 200) for path in paths]
        runs_by_path = [client.get(f"runs:{path}") for path in paths]
        print(
            f"200 misses over 4 processes, origin 200 ms: {runs_by_path} runs, "
            f"{figures_of_best_round(cold_rounds)}"
        )
        time.sleep(2.5)
        stale_rounds = [connections.request_many(path, 200) for path in paths]
        print(f"200 requests at once for the stale response: {figures_of_best_round(stale_rounds)}")
        time.sleep(0.5)
        runs_by_path = [client.get(f"runs:{path}") for path in paths]
        print(f"runs after the refreshes: {runs_by_path}")
    with (
        uvicorn_processes("measure:origin", 4, STORE=store_address) as processes,
        Connections([process.port for process in processes], 200) as connections,
    ):
        uncached_rounds = [connections.request_many("/empty", 200) for _ in range(ROUNDS)]
        print(
            f"200 requests at once for an empty response, no cache: {figures_of_best_round(uncached_rounds)}"
        )


def first_byte_ms(connection: HTTPConnection, path: str) -> float:
    """Return the milliseconds to the first byte of a response, and read the rest."""
    started_at = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    response.read(1)
    first_byte_s = time.perf_counter() - started_at
    while response.read(1 << 20):
        pass
    return first_byte_s * 1000


def measure_first_bytes(store_address: str) -> None:
    """The first byte of a streamed response with and without the cache, alternately.

    Each path is requested twice from the cache: the first request stores it, the second is a hit.
    """
    with (
        uvicorn_processes("measure:origin") as (plain_process,),
        uvicorn_processes("measure:cached_origin()", STORE=store_address) as (cached_process,),
    ):
        direct_connection = HTTPConnection("127.0.0.1", plain_process.port)
        cached_connection = HTTPConnection("127.0.0.1", cached_process.port)
        added_ms: dict[str, list[float]] = {"a miss": [], "a hit": []}
        for number in range(-5, FIRST_BYTE_ROUNDS):
            path = f"/body/{number}"
            base_ms = first_byte_ms(direct_connection, path)
            first_bytes_ms = [first_byte_ms(cached_connection, path) for _ in added_ms]
            base_ms = (base_ms + first_byte_ms(direct_connection, path)) / 2
            if number >= 0:  # the first rounds open connections and import modules
                for name, first_byte_ms_of_response in zip(added_ms, first_bytes_ms, strict=True):
                    added_ms[name].append(first_byte_ms_of_response - base_ms)
        direct_connection.close()
        cached_connection.close()
    for name, times_ms in added_ms.items():
        times_ms.sort()
        low, high = times_ms[len(times_ms) // 20], times_ms[-1 - len(times_ms) // 20]
        print(f"first byte of {FIRST_BYTE_BYTES >> 20} MiB, {name}: {median(times_ms):+.2f} ms more than "
              "without a cache, "
              f"nine in ten from {low:+.2f} to {high:+.2f}, "
              f"all from {times_ms[0]:+.2f} to {times_ms[-1]:+.2f} "
              f"({len(times_ms)} alternating rounds; at most {FIRST_BYTE_MS_MAX} ms)")  # fmt: skip


def measure_stream(store_address: str) -> None:
    """The first byte of a streamed response, and the memory that 1 GiB takes, with and without the cache."""
    measure_first_bytes(store_address)
    for application in ("measure:origin", "measure:cached_origin()"):
        with uvicorn_processes(application, STORE=store_address) as (process,):
            with Connections([process.port], 1):
                pass
            peak_before = process.peak_bytes
            connection = HTTPConnection("127.0.0.1", process.port)
            first_bytes_ms = sorted(
                first_byte_ms(connection, f"/big/{number}") for number in range(3)
            )
            connection.close()
            growth_mib = (process.peak_bytes - peak_before) / (1 << 20)
            print(f"{application}: first byte of 1 GiB {first_bytes_ms[0]:.1f} to "
                  f"{first_bytes_ms[2]:.1f} ms, "
                  f"peak memory +{growth_mib:.1f} MiB (at most {STREAM_MIB_MAX:.0f})")  # fmt: skip


async def measure_purge(store_address: str) -> None:
    """Purge a tag softly; then each URL is served stale once while one request refreshes it."""
    rules = Rules.from_text('[[rule]]\nthen = { ttl = 3600, grace = 600, tags = ["all"] }')
    async with AsyncClient(store_address, timeout=5) as client:
        cache = CacheASGI(origin, client, rules)
        cache_statuses: dict[bytes, int] = {}

        async def request(number: int) -> None:
            path = f"/tagged/{number}"
            scope = {
                "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
                "scheme": "http", "query_string": b"", "headers": [(b"host", b"shop.example")],
            }  # fmt: skip

            async def send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    status = dict(message["headers"])[b"cache-status"].split(b"; ttl")[0]
                    cache_statuses[status] = cache_statuses.get(status, 0) + 1

            await cache(scope, None, send)  # type: ignore[arg-type]

        async def request_all(url_count: int = TAGGED_URLS) -> dict[bytes, int]:
            cache_statuses.clear()
            for first_number in range(0, url_count, 100):
                await asyncio.gather(*(request(first_number + offset) for offset in range(100)))
            await cache.settle()
            return dict(cache_statuses)

        print(f"{TAGGED_URLS} URLs of one tag: {await request_all()}")
        purger = AsyncPurger(client, rules)
        purges_ms = []
        for _ in range(20):
            started_at = time.perf_counter()
            await purger.tag("all", soft=True)
            purges_ms.append((time.perf_counter() - started_at) * 1000)
        purges_ms.sort()
        print(
            f"a soft purge of the tag: p50 {purges_ms[10]:.2f} ms, longest of 20 {purges_ms[-1]:.2f} ms"
        )
        print(f"the next request for each: {await request_all()}")
        print(f"the one after: {await request_all()}")


def main() -> int:
    scenario_names = sys.argv[1:] or ["misses", "stream", "purge", "peers"]
    exit_code = 0
    with Server(memory="3072M") as server:
        for scenario in scenario_names:
            match scenario:
                case "misses":
                    measure_misses(server.address)
                case "stream":
                    measure_stream(server.address)
                case "purge":
                    asyncio.run(measure_purge(server.address))
                case "peers":
                    exit_code |= peers.run_comparison()
                case "hits":
                    for kind in ("one", "eight", "varied"):
                        hits.run_rounds(os.environ.get("OLD") or None, kind)
                case _:
                    raise SystemExit(
                        f"measuring {scenario!r} failed: write misses, stream, purge, peers or hits"
                    )
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
