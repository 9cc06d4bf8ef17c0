"""Serves the shop with each layer of its cache, drives it with visitors, and prints what each layer brings.

Usage: python examples/site/drive.py [--seconds 5] [--visitors 16] [--page build/shop.html]
       python examples/site/drive.py --serve http,page    (serves until Ctrl-C; needs uvicorn)

A visitor reads pages without pause, popular ones more often; one request in fifty changes a price. The age of
a page follows from the versions of its products: the seconds since a newer version was committed, of the
oldest product.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from glasscache import Server
from layers import LAYERS
from report import render_page, render_table
from shop import CATEGORIES, PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Generator

FOLDER = Path(__file__).parent
SETUPS = {"no cache": (), **{layer: (layer,) for layer in reversed(LAYERS)}, "all layers": LAYERS}
WRITE_SHARE = 0.02
DISPLAYED_VERSION = re.compile(rb'data-product="(\d+)" data-version="(\d+)"')


class Result(NamedTuple):
    """What the visitors of one setup saw."""

    setup: str
    requests: int
    seconds: float
    latencies_s: list[float]
    ages_s: list[float]
    counters: dict[str, int]


@contextlib.contextmanager
def serve_site(layers: tuple[str, ...], cache_address: str, query_ms: float) -> Generator[int]:
    """Serve the shop with uvicorn; the value is its port."""
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        port = reserved_socket.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:site", "--factory", "--port", str(port)]
    settings = {
        "SHOP_LAYERS": ",".join(layers),
        "SHOP_CACHE": cache_address,
        "SHOP_QUERY_MS": str(query_ms),
    }
    process = subprocess.Popen(  # noqa: S603 - our own application
        [*command, "--log-level", "error", "--no-access-log"],
        env={**os.environ, **settings},
        cwd=FOLDER,
    )
    try:
        _wait_until_listening(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise SystemExit("serving the shop failed: uvicorn did not start; pip install uvicorn")


class Visitors:
    """Readers in a closed loop over connections of their own."""

    def __init__(self, port: int, seed: int) -> None:
        """Drive the shop at a port."""
        self._port, self._rng = port, random.Random(seed)  # noqa: S311 - a load to repeat
        self._superseded_at: dict[tuple[int, int], float] = {}
        self.latencies_s: list[float] = []
        self.ages_s: list[float] = []

    def _draw_popular(self, count: int) -> int:
        return min(int(self._rng.paretovariate(0.8)) - 1, count * 10) % count

    async def _request(self, connection: Any, method: str, path: str) -> bytes:
        reader, writer = connection
        request = f"{method} {path} HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 0\r\n\r\n"
        writer.write(request.encode())
        header = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", header, re.IGNORECASE)
        assert length is not None, header  # noqa: S101 - the shop states it
        assert header.startswith(b"HTTP/1.1 200"), header  # noqa: S101 - no request may fail
        return bytes(await reader.readexactly(int(length[1])))

    async def visit(self, deadline: float) -> None:
        """Read pages and change prices until the time is over."""
        connection = await asyncio.open_connection("127.0.0.1", self._port)
        while time.monotonic() < deadline:
            product = self._draw_popular(PRODUCTS)
            if self._rng.random() < WRITE_SHARE:
                version = int(await self._request(connection, "POST", f"/product/{product}"))
                self._superseded_at[product, version - 1] = time.monotonic()
                continue
            is_listing = self._rng.random() < 0.3  # noqa: PLR2004 - a share of the visits
            path = (
                f"/category/{self._draw_popular(CATEGORIES)}"
                if is_listing
                else f"/product/{product}"
            )
            started_at = time.monotonic()
            body = await self._request(connection, "GET", path)
            self.latencies_s.append(time.monotonic() - started_at)
            displayed_versions = [
                (int(product), int(version)) for product, version in DISPLAYED_VERSION.findall(body)
            ]
            self.ages_s.append(
                max(
                    started_at - self._superseded_at.get(product_version, started_at)
                    for product_version in displayed_versions
                )
            )
        connection[1].close()

    async def counters(self) -> dict[str, int]:
        """Return the shop's counters."""
        connection = await asyncio.open_connection("127.0.0.1", self._port)
        counters = json.loads(await self._request(connection, "GET", "/counters"))
        connection[1].close()
        return dict(counters)


async def drive_setup(setup: str, port: int, options: argparse.Namespace) -> Result:
    """Return what visitors saw after a short warm-up."""
    visitors = Visitors(port, seed=1)

    async def visit_for(duration_s: float) -> None:
        deadline = time.monotonic() + duration_s
        await asyncio.gather(*(visitors.visit(deadline) for _ in range(options.visitors)))

    await visit_for(options.seconds / 4)
    counters_before = await visitors.counters()
    visitors.latencies_s.clear()
    visitors.ages_s.clear()
    started_at = time.monotonic()
    await visit_for(options.seconds)
    duration_s = time.monotonic() - started_at
    counters_after = await visitors.counters()
    counters = {
        name: count - counters_before.get(name, 0) for name, count in counters_after.items()
    }
    return Result(
        setup,
        len(visitors.latencies_s),
        duration_s,
        visitors.latencies_s,
        visitors.ages_s,
        counters,
    )


def main() -> None:
    """Drive each setup, print the table, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=5, help="of each setup")
    parser.add_argument("--visitors", type=int, default=16)
    parser.add_argument("--query-ms", type=float, default=1, help="that each query takes")
    parser.add_argument("--setups", help="names with commas between, such as 'no cache,page'")
    parser.add_argument("--page", type=Path, help="file of the page to write")
    parser.add_argument("--serve", metavar="LAYERS", help="serve with these layers until Ctrl-C")
    options = parser.parse_args()
    with Server() as server:
        if options.serve is not None:
            layers = tuple(filter(None, options.serve.split(",")))
            with serve_site(layers, server.address, options.query_ms) as port:
                print(f"http://127.0.0.1:{port}/product/1 and /category/1; Ctrl-C ends")
                with contextlib.suppress(KeyboardInterrupt):
                    time.sleep(10**8)
            return
        results: list[Result] = []
        for setup in options.setups.split(",") if options.setups else SETUPS:
            with serve_site(SETUPS[setup], server.address, options.query_ms) as port:
                results.append(asyncio.run(drive_setup(setup, port, options)))
    print(render_table(results))
    if options.page:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(render_page(results, options.query_ms), encoding="utf-8")
        print(f"written: {options.page}")


if __name__ == "__main__":
    main()
