"""What a call costs, as a small table for people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glasscache.aio import AsyncClient
    from glasscache.client import Client, Item, Key

_REPEATS = 20


def explain(client: Client, key_or_value: Any) -> str:
    """Return the table of `Client.explain`."""
    if isinstance(key_or_value, str | bytes):
        return _of_key(client, key_or_value)
    return _of_value(client, key_or_value)


async def explain_async(client: AsyncClient, key_or_value: Any) -> str:
    """Return the table of `AsyncClient.explain`."""
    if not isinstance(key_or_value, str | bytes):
        return _of_value(client, key_or_value)
    begin = time.perf_counter()
    item = await client.get_with_meta(key_or_value)
    first = time.perf_counter() - begin
    walls: list[float] = []
    for _ in range(_REPEATS if item else 0):
        begin = time.perf_counter()
        await client.get(key_or_value)
        walls.append(time.perf_counter() - begin)
    return _of_reads(client, key_or_value, item, first, walls)


def _of_key(client: Client, key: Key) -> str:
    begin = time.perf_counter()
    item = client.get_with_meta(key)
    first = time.perf_counter() - begin
    walls: list[float] = []
    for _ in range(_REPEATS if item else 0):
        begin = time.perf_counter()
        client.get(key)
        walls.append(time.perf_counter() - begin)
    return _of_reads(client, key, item, first, walls)


def _of_reads(
    client: Client | AsyncClient, key: Key, item: Item | None, first: float, walls: list[float]
) -> str:
    server = client.server_of(key)
    if item is None:
        return _table(f"{key!r}: a miss at {server}", [("first read", first)])
    ttl = "never expires" if item.ttl is None else f"{item.ttl} s left"
    title = f"{key!r}: {item.value_bytes} bytes at {server}, {ttl}"
    rows = [("first read, with its metadata", first), ("read, median of 20", sorted(walls)[10])]
    return _table(title, rows + _encoding(client, item.value))


def _of_value(client: Client | AsyncClient, value: Any) -> str:
    flags, body = client.encode(value)
    title = f"{type(value).__name__}: {len(body)} bytes on the wire, flags {flags:#x}"
    return _table(title, _encoding(client, value))


def _encoding(client: Client | AsyncClient, value: Any) -> list[tuple[str, float]]:
    serialise, compress, plain_bytes, wire_bytes = client.codec.cost_of(value)
    flags, body = client.encode(value)
    begin = time.perf_counter()
    client.codec.decode(flags, body)
    reading = time.perf_counter() - begin
    saved = f" ({plain_bytes} to {wire_bytes} bytes)" if wire_bytes != plain_bytes else ""
    return [
        ("serialise", serialise),
        (f"compress{saved}", compress),
        ("decompress and deserialise", reading),
    ]


def _table(title: str, rows: list[tuple[str, float]]) -> str:
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {seconds * 1e6:>12,.1f} us" for name, seconds in rows]
    return "\n".join([title, *lines])
