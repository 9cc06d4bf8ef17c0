"""What calls cost, as small tables for people: of one key or value, and of all calls of a client."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from glasscache import _native

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glasscache._near import NearStats
    from glasscache._types import Item, Key

__all__ = ["Explanation", "Report", "document", "explain", "explain_async", "explain_value"]

_REPEATS = 20

_SCHEMA = 1
"""The version of the form of a report in JSON."""


class Explanation:
    """What reading a key or storing a value costs, step by step; print it, or read `seconds`."""

    def __init__(self, title: str, seconds: Mapping[str, float]) -> None:
        """Make a report of measurements."""
        self.title = title
        """The subject of the report."""
        self.seconds = dict(seconds)
        """Seconds by step."""

    def __repr__(self) -> str:
        """Return the title and a line for each step."""
        width = max(map(len, self.seconds))
        lines = [f"  {name:<{width}}  {_us(each):>10} us" for name, each in self.seconds.items()]
        return "\n".join([self.title, *lines])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = [[name, f"{_us(each)} us"] for name, each in self.seconds.items()]
        return _html(self.title, ["step", "time"], rows)


class Report:
    """What the calls of a client have cost since it was made; print it, or read `stats`."""

    def __init__(self, stats: Mapping[str, Any]) -> None:
        """Make one of a client's `stats()`."""
        self.stats = dict(stats)
        """The counters as `stats()` has them."""
        self._rows = _rows(self.stats)

    def __repr__(self) -> str:
        """Return a table of at most 80 columns: a line for each kind and size of call."""
        if not self._rows:
            return "\n".join([self._title(), "No call has been counted.", *self._servers()])
        head = f"{'':15}" + "".join(f"{name:>{width}}" for name, width in _COLUMNS)
        lines = [
            f"{name:<15}"
            + "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
            for name, cells in self._rows
        ]
        return "\n".join([self._title(), "", head, *lines, "", *_NOTE, *self._servers()])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = [[name, *cells] for name, cells in self._rows]
        return _html(self._title(), ["", *(name for name, _ in _COLUMNS)], rows)

    def _title(self) -> str:
        calls = sum(row["calls"] for table in _TABLES for row in self.stats[table])
        near = self.stats.get("near_hits")
        without = f", {near:,} reads without a call" if near else ""
        return f"{calls:,} calls{without}, {self.stats['misses_by_error']:,} misses by error"

    def _servers(self) -> list[str]:
        return [_server(name, row) for name, row in self.stats["servers"].items()]


_TABLES = ("by_size", "by_width")

_PARTS = {
    "serialise": "serial.",
    "compress": "compr.",
    "wait": "wait",
    "network+server": "network",
    "decompress": "decomp.",
    "deserialise": "deser.",
}
"""The parts of a call as `stats()` names them, and as the columns are headed."""

_COLUMNS = [
    ("calls", 10),
    ("us a call", 10),
    *((name, max(7, len(name) + 1)) for name in _PARTS.values()),
]

_NOTE = (
    "us a call: mean microseconds, the sum of the columns behind it. wait: for a",
    "connection; network: network and server. Sizes are those on the wire.",
)


def _rows(stats: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the name and the cells of each kind of call that was made."""
    named = [(f"{row['operation']} {_size(row['bytes_from'])}", row) for row in stats["by_size"]]
    named += [(f"bulk {row['keys_from']}+ keys", row) for row in stats["by_width"]]
    return [(name, _cells(row)) for name, row in named if row["calls"]]


def _cells(row: Mapping[str, Any]) -> list[str]:
    calls, seconds = row["calls"], row["seconds"]
    parts = [seconds[part] / calls for part in _PARTS]
    return [_count(calls), _us(sum(parts)), *(_us(part) if part else "-" for part in parts)]


def _us(seconds: float) -> str:
    """Return a time in microseconds, with a decimal below 100 of them; above 0.1 s in seconds."""
    us = seconds * 1e6
    if us < 100:  # noqa: PLR2004 - three digits either way
        return f"{us:.1f}"
    if seconds < 0.1:  # noqa: PLR2004 - five digits and a comma are what a column holds
        return f"{us:,.0f}"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - likewise


def _count(number: int) -> str:
    return f"{number:,}" if number < 10_000_000 else f"{number / 1e6:,.0f} M"  # noqa: PLR2004


def _size(bytes_from: int) -> str:
    """Return a size decade as text."""
    if not bytes_from:
        return "< 10 B"
    for unit in ("B", "kB", "MB"):
        if bytes_from < 1000:  # noqa: PLR2004 - a thousand of one unit is one of the next
            return f"{bytes_from}+ {unit}"
        bytes_from //= 1000
    return f"{bytes_from}+ GB"


def _server(name: str, row: Mapping[str, Any]) -> str:
    state = "down" if row.get("is_down") else "up"
    opened = f", connections: {row['connections']}" if "connections" in row else ""
    faults, down = row.get("faults", 0), row.get("times_down", 0)
    return f"{name}: {state}{opened}, faults: {faults}, times down: {down}"


def _html(title: str, head: list[str], rows: list[list[str]]) -> str:
    import html  # noqa: PLC0415 - for notebooks

    def cells(tag: str, row: list[str]) -> str:
        return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    caption = f"<caption>{html.escape(title)}</caption>"
    return (
        f"<table>{caption}<thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"
    )


def document(stats: Mapping[str, Any], near: NearStats | None, rollout_json: str | None) -> str:
    """Return the report of a client as JSON (docs/reference/json.md)."""
    fields = {
        "schema": _SCHEMA,
        "version": _native.__version__,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "stats": stats,
        "near": near,
        "rollout": None if rollout_json is None else json.loads(rollout_json),
    }
    return json.dumps(fields)


def explain(client: Any, key: Key) -> Explanation:
    """Read a key and return what that costs."""
    _check_key(key)
    begin = time.perf_counter()
    item = client.get_with_meta(key)
    first = time.perf_counter() - begin
    walls: list[float] = []
    for _ in range(_REPEATS if item else 0):
        begin = time.perf_counter()
        client.get(key)
        walls.append(time.perf_counter() - begin)
    return _of_reads(client, key, item, first, walls)


async def explain_async(client: Any, key: Key) -> Explanation:
    """Read a key and return what that costs."""
    _check_key(key)
    begin = time.perf_counter()
    item = await client.get_with_meta(key)
    first = time.perf_counter() - begin
    walls: list[float] = []
    for _ in range(_REPEATS if item else 0):
        begin = time.perf_counter()
        await client.get(key)
        walls.append(time.perf_counter() - begin)
    return _of_reads(client, key, item, first, walls)


def explain_value(client: Any, value: Any) -> Explanation:
    """Encode and decode a value and return what that costs."""
    flags, body = client.encode(value)
    title = f"{type(value).__name__}: {len(body)} bytes on the wire, flags {flags:#x}"
    return Explanation(title, _encoding(client, value))


def _check_key(key: Any) -> None:
    if not isinstance(key, str | bytes):
        raise TypeError(
            f"explain takes a key, str or bytes, not {type(key).__name__}: write explain_value(value) "
            "for what a value costs"
        )


def _of_reads(
    client: Any, key: Key, item: Item | None, first: float, walls: list[float]
) -> Explanation:
    server = client.server_of(key)
    if item is None:
        return Explanation(f"{key!r}: a miss at {server}", {"first read": first})
    ttl = "never expires" if item.ttl is None else f"{item.ttl} s left"
    title = f"{key!r}: {item.value_bytes} bytes at {server}, {ttl}"
    reads = {
        "first read, with its metadata": first,
        f"read, median of {_REPEATS}": sorted(walls)[_REPEATS // 2],
    }
    return Explanation(title, reads | _encoding(client, item.value))


def _encoding(client: Any, value: Any) -> dict[str, float]:
    serialise, compress, plain_bytes, wire_bytes = client.codec.cost_of(value)
    flags, body = client.encode(value)
    begin = time.perf_counter()
    client.codec.decode(flags, body)
    reading = time.perf_counter() - begin
    saved = f" ({plain_bytes} to {wire_bytes} bytes)" if wire_bytes != plain_bytes else ""
    return {
        "serialise": serialise,
        f"compress{saved}": compress,
        "decompress and deserialise": reading,
    }
