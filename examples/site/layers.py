"""The layers of the shop's cache below HTTP: page, action, fragment, object. Each can be switched off.

On a miss a layer reads from the one below it, and the last reads from the database:

    page      the whole HTML of a page
    action    the data of a page before it is rendered: the work of a controller
    fragment  the HTML of a product's card; those of a page are read by one multi-get
    object    a product; those of a page are read by one multi-get
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
PAGE_TTL_S = 3
ACTION_TTL_S = 10
OBJECT_TTL_S = 600


class Pages:
    """The shop's pages, made through the layers that are on."""

    def __init__(self, shop: Shop, client: AsyncClient, layers: frozenset[str]) -> None:
        """Bind the database and the cache."""
        self.shop, self.client, self.layers = shop, client, layers
        self.counters: Counter[str] = Counter()

    async def product_page(self, number: int) -> str:
        """Return the page of a product."""
        return await self._page(f"product:{number}", lambda: self._product_data(number))

    async def category_page(self, number: int) -> str:
        """Return the page of a category."""
        return await self._page(f"category:{number}", lambda: self._category_data(number))

    async def change_price(self, number: int) -> int:
        """Change a price, and delete the entries of this product from the cache.

        Listings that show it too are as old as their TTL; fragments have the version in their key.
        """
        version = await self.shop.change_price(number)
        keys = [f"object:{number}", f"action:product:{number}", f"page:product:{number}"]
        await self.client.delete_many(keys)
        return version

    # ---- page and action ----------------------------------------------------------------------------

    async def _page(self, page_name: str, load_data: Callable[[], Awaitable[Row]]) -> str:
        async def render() -> str:
            data = await self._get_or_compute("action", page_name, ACTION_TTL_S, load_data)
            return _render_layout(data, await self._cards(data["products"]))

        return await self._get_or_compute("page", page_name, PAGE_TTL_S, render)

    async def _get_or_compute(
        self, layer: str, name: str, ttl: float, compute: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return the value of a layer; one request computes it if it is missing, and refreshes it early."""
        if layer not in self.layers:
            return await compute()
        was_computed = False

        async def compute_and_note() -> Any:
            nonlocal was_computed
            was_computed = True
            return await compute()

        value = await self.client.get_or_set(f"{layer}:{name}", compute_and_note, ttl, early=True)
        self.counters[f"{layer} {'misses' if was_computed else 'hits'}"] += 1
        return value

    async def _product_data(self, number: int) -> Row:
        related, reviews = await asyncio.gather(
            self.shop.in_category(number % 20), self.shop.reviews(number)
        )
        products = await self._products(
            [
                number,
                *(related_number for related_number in related[:8] if related_number != number),
            ]
        )
        return {"title": products[0]["name"], "products": products, "reviews": reviews}

    async def _category_data(self, number: int) -> Row:
        numbers = await self.shop.in_category(number)
        products = await self._products(numbers)
        return {"title": f"Category {number}", "products": products, "reviews": []}

    # ---- fragments and objects: many by one request -------------------------------------------------

    async def _cards(self, products: list[Row]) -> list[str]:
        keys = [f"fragment:{product['id']}:{product['version']}" for product in products]
        cached_values = await self._get_many("fragment", keys)
        rendered_cards = {
            key: _render_card(product)
            for key, product in zip(keys, products, strict=True)
            if key not in cached_values
        }
        if rendered_cards and "fragment" in self.layers:
            await self.client.set_many(rendered_cards, OBJECT_TTL_S)
        return [cached_values[key] if key in cached_values else rendered_cards[key] for key in keys]

    async def _products(self, numbers: list[int]) -> list[Row]:
        key_by_number = {number: f"object:{number}" for number in numbers}
        cached_values = await self._get_many("object", list(key_by_number.values()))
        missing_numbers = [
            number for number, key in key_by_number.items() if key not in cached_values
        ]
        rows = (
            {row["id"]: row for row in await self.shop.products(missing_numbers)}
            if missing_numbers
            else {}
        )
        if rows and "object" in self.layers:
            await self.client.set_many(
                {key_by_number[number]: row for number, row in rows.items()}, OBJECT_TTL_S
            )
        return [
            rows[number] if number in rows else cached_values[key_by_number[number]]
            for number in numbers
        ]

    async def _get_many(self, layer: str, keys: list[str]) -> dict[str, Any]:
        if layer not in self.layers:
            return {}
        values = await self.client.get_many(keys)
        self.counters[f"{layer} hits"] += len(values)
        self.counters[f"{layer} misses"] += len(keys) - len(values)
        return values


def _render_card(product: Row) -> str:
    product_name, price = html.escape(product["name"]), f"{product['price'] / 100:.2f}"
    data_attributes = f'data-product="{product["id"]}" data-version="{product["version"]}"'
    return f'<li {data_attributes}><a href="/product/{product["id"]}">{product_name}</a> <b>{price}</b></li>'


def _render_layout(data: Row, cards: list[str]) -> str:
    reviews = "".join(
        f"<p>{'*' * review['stars']} {html.escape(review['text'])}</p>"
        for review in data["reviews"]
    )
    title = html.escape(data["title"])
    return (
        f"<!doctype html><title>{title}</title><h1>{title}</h1><ul>{''.join(cards)}</ul>{reviews}"
    )
