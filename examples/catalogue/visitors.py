"""Visitors of the catalogue: from the subjects downwards, popular topics more often, over several processes.

Each process has an application of its own, which it calls as an ASGI server would.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import queue
import random
from typing import TYPE_CHECKING, Any

from catalogue_app import Pages, application, pages_from_environment

if TYPE_CHECKING:
    from collections.abc import Generator

PROCESS_COUNT = 3
STOP_PROBABILITY = 0.2
"""The probability that a visitor stays at a topic instead of opening one below it."""
POPULARITY_EXPONENT = 0.75
"""The exponent of the popularity of the topics below one: the lower, the more even."""


def visited_paths(pages: Pages, request_count: int, seed: int) -> Generator[str]:
    """Yield the paths of topics that visitors open."""
    rng = random.Random(seed)  # noqa: S311 - a load to repeat
    children: dict[str, list[str]] = {}
    for _ in range(request_count):
        path = ""
        while True:
            if path not in children:
                # Which of the topics below one are popular is drawn once, and the same in every process.
                children[path] = pages.catalogue.children_of(path)
                random.Random(path).shuffle(children[path])  # noqa: S311 - likewise
            if not children[path]:
                break
            rank = int(rng.paretovariate(POPULARITY_EXPONENT)) - 1
            path = children[path][min(rank, 10 * len(children[path])) % len(children[path])]
            if rng.random() < STOP_PROBABILITY:
                break
        yield path


async def request_page(app: Any, path: str) -> int:
    """Call an ASGI application for the page of a topic; return the status of its response."""
    status = 0

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": f"/topic/{path}", "headers": []}
    await app(scope, receive, send)
    return status


async def _visit_in_process(
    environment: dict[str, str], request_count: int, seed: int
) -> dict[str, Any]:
    pages = pages_from_environment(environment)
    app = application(pages)
    failed_count = 0
    for path in visited_paths(pages, request_count, seed):
        failed_count += await request_page(app, path) != 200  # noqa: PLR2004 - HTTP
    stats = pages.client.stats()
    calls = sum(row["calls"] for row in [*stats["by_size"], *stats["by_width"]])
    near_stats: Any = pages.client.near_stats() if "CATALOGUE_STRATEGY" in environment else {}
    await pages.client.close()
    pages.catalogue.close()
    return {
        "requests": request_count,
        "wrong": failed_count,
        "calls": calls,
        "queries": pages.catalogue.query_count,
        "missing": len(near_stats.get("missing_keys", [])),
        "near": near_stats,
    }


def _run_process(
    counters_queue: Any, environment: dict[str, str], request_count: int, seed: int
) -> None:
    counters_queue.put(asyncio.run(_visit_in_process(environment, request_count, seed)))


def visit_in_processes(
    environment: dict[str, str], request_count: int, seed: int
) -> list[dict[str, Any]]:
    """Make requests in processes of their own; return what each counted."""
    context = multiprocessing.get_context("spawn")
    counters_queue = context.Queue()
    processes = [
        context.Process(
            target=_run_process,
            args=(
                counters_queue,
                environment,
                request_count // PROCESS_COUNT,
                seed * PROCESS_COUNT + number,
            ),
        )
        for number in range(PROCESS_COUNT)
    ]
    for process in processes:
        process.start()
    counters: list[dict[str, Any]] = []
    while len(counters) < len(processes):
        if any(process.exitcode for process in processes):
            raise SystemExit("a process of the catalogue failed")
        with contextlib.suppress(queue.Empty):
            counters.append(counters_queue.get(timeout=1))
    for process in processes:
        process.join()
    return counters
