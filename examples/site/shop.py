"""The shop's database: SQLite in memory, whose queries take as long as those of a server on the network."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from typing import Any

PRODUCTS = 500
CATEGORIES = 20

Row = dict[str, Any]


class Shop:
    """Products, categories and reviews; `query_count` counts the queries of the database."""

    def __init__(self, query_seconds: float) -> None:
        """Fill a database with the same shop each time."""
        self.query_count = 0
        self._query_seconds = query_seconds
        self._database = sqlite3.connect(":memory:")
        self._database.row_factory = sqlite3.Row
        rng = random.Random(1)  # noqa: S311 - the same shop each time
        self._database.executescript(
            "create table product (id integer primary key, category int, name text, price int, version int);"
            "create table review (product int, stars int, text text);"
            "create index by_category on product (category); create index by_product on review (product);"
        )
        self._database.executemany(
            "insert into product values (?, ?, ?, ?, 1)",
            [
                (number, number % CATEGORIES, f"Lamp & shade {number}", rng.randrange(900, 9900))
                for number in range(PRODUCTS)
            ],
        )
        self._database.executemany(
            "insert into review values (?, ?, ?)",
            [
                (number, rng.randrange(1, 6), "Bright. " * 20)
                for number in range(PRODUCTS)
                for _ in range(5)
            ],
        )

    async def _query(self, sql: str, *parameters: Any) -> list[Row]:
        self.query_count += 1
        if self._query_seconds:
            await asyncio.sleep(self._query_seconds)
        return [dict(row) for row in self._database.execute(sql, parameters)]

    async def products(self, numbers: list[int]) -> list[Row]:
        """Return products by one query."""
        placeholders = ",".join("?" * len(numbers))
        return await self._query(f"select * from product where id in ({placeholders})", *numbers)  # noqa: S608

    async def in_category(self, category: int) -> list[int]:
        """Return the numbers of a category's products."""
        rows = await self._query("select id from product where category = ? limit 24", category)
        return [row["id"] for row in rows]

    async def reviews(self, product: int) -> list[Row]:
        """Return a product's reviews."""
        return await self._query("select stars, text from review where product = ?", product)

    async def change_price(self, product: int) -> int:
        """Change a price; return the product's new version."""
        sql = "update product set price = price + 1, version = version + 1 where id = ? returning version"
        return int((await self._query(sql, product))[0]["version"])
