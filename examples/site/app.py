"""The shop as an ASGI application: `uvicorn app:site --factory`, with its layers set in the environment.

SHOP_LAYERS: names with commas between, of http, page, action, fragment, object. SHOP_CACHE: address of the
cache server. SHOP_QUERY_MS: milliseconds that each query of the database takes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from glasscache import AsyncClient
from glasscache.web import CacheASGI, Rules
from layers import LAYERS, Pages
from shop import CATEGORIES, PRODUCTS, Shop

RULES_FILE = Path(__file__).with_name("rules.toml")


class Site:
    """Routes requests to the shop's pages."""

    def __init__(self, pages: Pages) -> None:
        """Serve pages."""
        self.pages = pages
        self.request_count = 0
        self.cache: CacheASGI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - ASGI
        """Respond to one request."""
        if scope["type"] != "http":
            return
        status, content_type, body = await self._respond(scope["method"], scope["path"])
        headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, method: str, path: str) -> tuple[int, bytes, bytes]:
        self.request_count += 1
        page_kind, _, number_text = path.strip("/").partition("/")
        number = int(number_text) if number_text.isdecimal() else 0
        if path == "/counters":
            return 200, b"application/json", json.dumps(self.counters()).encode()
        if page_kind == "product" and number < PRODUCTS and method == "POST":
            version = await self.pages.change_price(number)
            return 200, b"text/plain", b"%d" % version
        if page_kind == "product" and number < PRODUCTS:
            return 200, b"text/html", (await self.pages.product_page(number)).encode()
        if page_kind == "category" and number < CATEGORIES:
            return 200, b"text/html", (await self.pages.category_page(number)).encode()
        return 404, b"text/plain", b"no such page"

    def counters(self) -> dict[str, int]:
        """Return what happened so far, by name."""
        stats = self.pages.client.stats()
        calls = sum(row["calls"] for row in [*stats["by_size"], *stats["by_width"]])
        counters = {
            "queries": self.pages.shop.query_count,
            "cache calls": calls,
            **self.pages.counters,
        }
        if self.cache is not None:
            http_counters = self.cache.counters
            counters["http hits"] = http_counters["hits"] + http_counters["stale"]
            counters["http misses"] = http_counters["misses"] + http_counters["passes"]
        return counters


def site() -> Any:
    """Return the application, set up from the environment."""
    layers = frozenset(filter(None, os.environ.get("SHOP_LAYERS", ",".join(LAYERS)).split(",")))
    if unknown := layers - set(LAYERS):
        raise SystemExit(f"SHOP_LAYERS: unknown {min(unknown)!r}; write {', '.join(LAYERS)}")
    client = AsyncClient(
        os.environ.get("SHOP_CACHE", "127.0.0.1:11211"), timeout=2, on_error="miss"
    )
    shop = Shop(float(os.environ.get("SHOP_QUERY_MS", "1")) / 1000)
    site_without_cache = Site(Pages(shop, client, layers))
    if "http" not in layers:
        return site_without_cache
    site_without_cache.cache = CacheASGI(site_without_cache, client, Rules.from_toml(RULES_FILE))
    return site_without_cache.cache
