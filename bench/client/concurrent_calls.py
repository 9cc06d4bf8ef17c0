"""Many callers at once: eight threads that share a client of ours, and 32 tasks of one event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import glasscache
from figures import row_record
from peers import host_and_port, import_if_installed
from rounds import rotate_calls

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS_ROW = "8 threads, get 1 KB"
ASYNCIO_ROWS = "asyncio, 32 tasks"


def threads_row(address: str, repetitions: int, scale: float) -> dict[str, Any]:
    """Return eight threads: one client of ours that they share, against a pylibmc client each."""
    shared_client = glasscache.Client(address, timeout=5)
    shared_client.set("one", os.urandom(1024))
    calls_per_thread = max(1, int(2000 * scale))
    get_factory_by_client: dict[str, Callable[[], Callable[[str], Any]]] = {
        "glasscache": lambda: shared_client.get
    }
    if pylibmc := import_if_installed("pylibmc"):
        get_factory_by_client["pylibmc"] = lambda: pylibmc.Client([address]).get
    rates_by_client: dict[str, list[float]] = {
        client_name: [] for client_name in get_factory_by_client
    }
    allowed_cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # on one CPU there is nothing to share
    for repetition in range(repetitions):
        for client_name, make_get in rotate_calls(get_factory_by_client, repetition):
            gets = [make_get() for _ in range(8)]
            threads = [
                threading.Thread(
                    target=lambda get=get: [get("one") for _ in range(calls_per_thread)]
                )
                for get in gets
            ]
            started_at = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rates_by_client[client_name].append(
                8 * calls_per_thread / (time.perf_counter() - started_at)
            )
    os.sched_setaffinity(0, allowed_cpus)
    return row_record(THREADS_ROW, rates_by_client, {})


async def asyncio_rows(address: str, repetitions: int, scale: float) -> list[dict[str, Any]]:
    """Return 32 tasks that get and set, on the loop that runs this."""
    clients = await open_async_clients(address)
    value = os.urandom(1024)
    await clients["glasscache"].set("one", b"x" * 40)
    calls_by_row = {
        f"{ASYNCIO_ROWS}, get 40 B": {
            client_name: lambda client=client, key=key_for(client_name, "one"): client.get(key)
            for client_name, client in clients.items()
        },
        f"{ASYNCIO_ROWS}, set 1 KB": {
            client_name: lambda client=client, key=key_for(client_name, "two"): client.set(
                key, value
            )
            for client_name, client in clients.items()
        },
    }
    calls_per_task = max(1, int(100 * scale))

    async def repeat_call(call: Callable[[], Any]) -> None:
        for _ in range(calls_per_task):
            await call()

    records = []
    for row_name, calls in calls_by_row.items():
        rates_by_client: dict[str, list[float]] = {client_name: [] for client_name in calls}
        for repetition in range(repetitions):
            for client_name, call in rotate_calls(calls, repetition):
                started_at = time.perf_counter()
                await asyncio.gather(*(repeat_call(call) for _ in range(32)))
                rates_by_client[client_name].append(
                    32 * calls_per_task / (time.perf_counter() - started_at)
                )
        records.append(row_record(row_name, rates_by_client, {}))
    for client in clients.values():
        await client.close()
    return records


async def open_async_clients(address: str) -> dict[str, Any]:
    """Return each client for asyncio; ours is the first."""
    host, port = host_and_port(address)
    clients: dict[str, Any] = {"glasscache": glasscache.AsyncClient(address, timeout=5)}
    if emcache := import_if_installed("emcache"):
        clients["emcache"] = await emcache.create_client([emcache.MemcachedHostAddress(host, port)])
    if aiomcache := import_if_installed("aiomcache"):
        clients["aiomcache"] = aiomcache.Client(host, port, pool_size=4)
    return clients


def key_for(client_name: str, key: str) -> str | bytes:
    """Return a key as a client takes it: the others want bytes."""
    return key if client_name == "glasscache" else key.encode()
