"""The layers of the shop's cache below HTTP: page, action, fragment, object. Each can be switched off.

A layer asks the one below it for what it does not have, and the last asks the database:

    page      the whole HTML of a page
    action    what a page shows, before it is rendered: the work of a controller
    fragment  the HTML of a product's card, all of a page by one multi-get
    object    a product, all of a page by one multi-get
"""

from __future__ import annotations

import asyncio
import html
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from glasscache import AsyncClient
    from shop import Row, Shop

LAYERS = ("http", "page", "action", "fragment", "object")
PAGE_TTL = 3
ACTION_TTL = 10
OBJECT_TTL = 600


class Pages:
    """The shop's pages, made through the layers that are on."""

    def __init__(self, shop: Shop, client: AsyncClient, layers: frozenset[str]) -> None:
        """Bind the database and the cache."""
        self.shop, self.client, self.layers = shop, client, layers
        self.counters: Counter[str] = Counter()

    async def product(self, number: int) -> str:
        """Return the page of a product."""
        return await self._page(f"product:{number}", lambda: self._product_data(number))

    async def category(self, number: int) -> str:
        """Return the page of a category."""
        return await self._page(f"category:{number}", lambda: self._category_data(number))

    async def change_price(self, number: int) -> int:
        """Change a price, and remove what shows it under a key of its own.

        Listings that show it too are as old as their TTL; fragments have the version in their key.
        """
        version = await self.shop.change_price(number)
        names = [f"object:{number}", f"action:product:{number}", f"page:product:{number}"]
        await self.client.delete_many(names)
        return version

    # ---- page and action ----------------------------------------------------------------------------

    async def _page(self, name: str, load: Callable[[], Awaitable[Row]]) -> str:
        async def render() -> str:
            data = await self._cached("action", name, ACTION_TTL, load)
            return _layout(data, await self._cards(data["products"]))

        return await self._cached("page", name, PAGE_TTL, render)

    async def _cached(
        self, layer: str, name: str, ttl: float, make: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return what a layer has, or make it: one request makes it, and refreshes it before its end."""
        if layer not in self.layers:
            return await make()
        is_made = False

        async def noted() -> Any:
            nonlocal is_made
            is_made = True
            return await make()

        value = await self.client.get_or_set(f"{layer}:{name}", noted, ttl, early=True)
        self.counters[f"{layer} {'misses' if is_made else 'hits'}"] += 1
        return value

    async def _product_data(self, number: int) -> Row:
        related, reviews = await asyncio.gather(
            self.shop.in_category(number % 20), self.shop.reviews(number)
        )
        products = await self._products([number, *(one for one in related[:8] if one != number)])
        return {"title": products[0]["name"], "products": products, "reviews": reviews}

    async def _category_data(self, number: int) -> Row:
        numbers = await self.shop.in_category(number)
        products = await self._products(numbers)
        return {"title": f"Category {number}", "products": products, "reviews": []}

    # ---- fragments and objects: many by one request -------------------------------------------------

    async def _cards(self, products: list[Row]) -> list[str]:
        keys = [f"fragment:{one['id']}:{one['version']}" for one in products]
        found = await self._found("fragment", keys)
        made = {
            key: _card(one) for key, one in zip(keys, products, strict=True) if key not in found
        }
        if made and "fragment" in self.layers:
            await self.client.set_many(made, OBJECT_TTL)
        return [found[key] if key in found else made[key] for key in keys]

    async def _products(self, numbers: list[int]) -> list[Row]:
        keys = {number: f"object:{number}" for number in numbers}
        found = await self._found("object", list(keys.values()))
        missing = [number for number, key in keys.items() if key not in found]
        rows = {row["id"]: row for row in await self.shop.products(missing)} if missing else {}
        if rows and "object" in self.layers:
            await self.client.set_many({keys[n]: row for n, row in rows.items()}, OBJECT_TTL)
        return [rows[number] if number in rows else found[keys[number]] for number in numbers]

    async def _found(self, layer: str, keys: list[str]) -> dict[str, Any]:
        if layer not in self.layers:
            return {}
        found = await self.client.get_many(keys)
        self.counters[f"{layer} hits"] += len(found)
        self.counters[f"{layer} misses"] += len(keys) - len(found)
        return found


def _card(product: Row) -> str:
    name, price = html.escape(product["name"]), f"{product['price'] / 100:.2f}"
    mark = f'data-product="{product["id"]}" data-version="{product["version"]}"'
    return f'<li {mark}><a href="/product/{product["id"]}">{name}</a> <b>{price}</b></li>'


def _layout(data: Row, cards: list[str]) -> str:
    reviews = "".join(
        f"<p>{'*' * one['stars']} {html.escape(one['text'])}</p>" for one in data["reviews"]
    )
    title = html.escape(data["title"])
    return (
        f"<!doctype html><title>{title}</title><h1>{title}</h1><ul>{''.join(cards)}</ul>{reviews}"
    )
