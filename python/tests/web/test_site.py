"""The shop of `examples/site`: every layer gives the same pages, and a driver reports what each brings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient

from .harness import send_request

if TYPE_CHECKING:
    from glasscache import Server

FOLDER = Path(__file__).parents[3] / "examples" / "site"
LAYERS = ("http", "page", "action", "fragment", "object")


@pytest.fixture
def app_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the shop as its folder does."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import app

    return app


async def read_pages(app: Any, server: Server, layers: frozenset[str]) -> tuple[list[bytes], Any]:
    """Return pages before and after a price changes, each read twice, and the shop."""
    async with AsyncClient(server.address, timeout=5) as client:
        await client.flush()
        site = app.Site(app.Pages(app.Shop(0), client, layers))
        front_application: Any = site
        if "http" in layers:
            site.cache = front_application = app.CacheASGI(
                site, client, app.Rules.from_toml(app.RULES_FILE)
            )
        paths = ["/product/1", "/category/1"]
        page_bodies = [
            (await send_request(front_application, path)).body for path in paths for _ in range(2)
        ]
        reply_to_change = await send_request(front_application, "/product/1", "POST")
        assert reply_to_change.body == b"2"
        page_bodies.append((await send_request(front_application, "/product/1")).body)
        assert (await send_request(front_application, "/product/100000")).status == 404
        if "http" in layers:
            await front_application.settle()
        return page_bodies, site


@pytest.mark.parametrize("layers", [(), *[(layer,) for layer in LAYERS], LAYERS])
def test_layers_give_the_pages_of_the_database(
    app_module: Any, glasscache_server: Server, layers: tuple[str, ...]
) -> None:
    uncached_pages, uncached_site = asyncio.run(
        read_pages(app_module, glasscache_server, frozenset())
    )
    cached_pages, cached_site = asyncio.run(
        read_pages(app_module, glasscache_server, frozenset(layers))
    )
    assert cached_pages == uncached_pages  # a changed product's own page is new at once
    counters = cached_site.counters()
    for layer in layers:
        if len(layers) == 1:
            assert counters[f"{layer} hits"] > 0, counters
    if layers:
        is_rendering = layers == ("fragment",)
        assert (counters["queries"] < uncached_site.counters()["queries"]) != is_rendering


def test_the_driver_prints_a_table_and_writes_a_page(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    page_file = tmp_path / "shop.html"
    options = ["--seconds", "0.4", "--setups", "no cache,all layers", "--page", str(page_file)]
    command = [sys.executable, str(FOLDER / "drive.py"), *options]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert completed.returncode == 0, completed.stderr
    header, first_row, second_row, *_ = completed.stdout.splitlines()
    assert header.split()[:2] == ["cached", "requests/s"]
    assert first_row.startswith("no cache")
    assert second_row.startswith("all layers")
    assert "<svg" in page_file.read_text(encoding="utf-8")
