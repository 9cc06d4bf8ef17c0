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

from catalogue_app import Pages, application, pages_of

if TYPE_CHECKING:
    from collections.abc import Generator

PROCESSES = 3
STOP = 0.2
"""How often a visitor who has opened a topic stays there."""
SKEW = 0.75
"""The exponent of the popularity of the topics below one: the lower, the closer the first ones."""


def visits(pages: Pages, count: int, seed: int) -> Generator[str]:
    """Yield the paths of topics that visitors open."""
    draw = random.Random(seed)  # noqa: S311 - a load to repeat
    below: dict[str, list[str]] = {}
    for _ in range(count):
        path = ""
        while True:
            if path not in below:
                # Which of the topics below one are popular is drawn once, and the same in every process.
                below[path] = pages.catalogue.below(path)
                random.Random(path).shuffle(below[path])  # noqa: S311 - likewise
            if not below[path]:
                break
            rank = int(draw.paretovariate(SKEW)) - 1
            path = below[path][min(rank, 10 * len(below[path])) % len(below[path])]
            if draw.random() < STOP:
                break
        yield path


async def visit(app: Any, path: str) -> int:
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


async def _drive(environment: dict[str, str], count: int, seed: int) -> dict[str, Any]:
    pages = pages_of(environment)
    app = application(pages)
    wrong = 0
    for path in visits(pages, count, seed):
        wrong += await visit(app, path) != 200  # noqa: PLR2004 - HTTP
    stats = pages.client.stats()
    calls = sum(row["calls"] for row in [*stats["by_size"], *stats["by_width"]])
    near: Any = pages.client.near_stats() if "CATALOGUE_STRATEGY" in environment else {}
    await pages.client.close()
    pages.catalogue.close()
    return {
        "requests": count,
        "wrong": wrong,
        "calls": calls,
        "queries": pages.catalogue.queries,
        "missing": len(near.get("missing_keys", [])),
        "near": near,
    }


def _process(results: Any, environment: dict[str, str], count: int, seed: int) -> None:
    results.put(asyncio.run(_drive(environment, count, seed)))


def drive(environment: dict[str, str], requests: int, seed: int) -> list[dict[str, Any]]:
    """Make requests in processes of their own; return what each counted."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(
            target=_process,
            args=(results, environment, requests // PROCESSES, seed * PROCESSES + number),
        )
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    found: list[dict[str, Any]] = []
    while len(found) < len(processes):
        if any(process.exitcode for process in processes):
            raise SystemExit("a process of the catalogue failed")
        with contextlib.suppress(queue.Empty):
            found.append(results.get(timeout=1))
    for process in processes:
        process.join()
    return found
