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

__all__ = ["Explanation", "Report", "explain", "explain_async", "explain_value", "format_json"]

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
        lines = [
            f"  {step:<{width}}  {_format_time_with_unit(step_s):>13}"
            for step, step_s in self.seconds.items()
        ]
        return "\n".join([self.title, *lines])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = [[step, _format_time_with_unit(step_s)] for step, step_s in self.seconds.items()]
        return _html_table(self.title, ["step", "time"], rows)


class Report:
    """What the calls of a client have cost since it was made; print it, or read `stats`."""

    def __init__(self, stats: Mapping[str, Any]) -> None:
        """Make one of a client's `stats()`."""
        self.stats = dict(stats)
        """The counters as `stats()` has them."""
        self._rows = _format_rows(self.stats)

    def __repr__(self) -> str:
        """Return a table of at most 80 columns: a line for each kind and size of call."""
        if not self._rows:
            return "\n".join([self._title(), "No call has been counted.", *self._server_lines()])
        header = f"{'':15}" + "".join(f"{name:>{width}}" for name, width in _COLUMNS)
        lines = [
            f"{name:<15}"
            + "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
            for name, cells in self._rows
        ]
        return "\n".join(
            [self._title(), "", header, *lines, "", *_COLUMN_NOTES, *self._server_lines()]
        )

    __str__ = __repr__

    def prometheus(self, labels: Mapping[str, str] | None = None) -> str:
        """Return the counters in the text format of Prometheus, version 0.0.4.

        Args:
            labels: labels of every sample, for example of the process.

        """
        from glasscache._metrics import format_prometheus  # noqa: PLC0415 - few programs need it

        return format_prometheus(self.stats, labels or {})

    def _repr_html_(self) -> str:
        rows = [[name, *cells] for name, cells in self._rows]
        return _html_table(self._title(), ["", *(name for name, _ in _COLUMNS)], rows)

    def _title(self) -> str:
        call_count = sum(row["calls"] for table in _TABLES for row in self.stats[table])
        near_hits = self.stats.get("near_hits")
        near_text = f", {near_hits:,} reads without a call" if near_hits else ""
        return f"{call_count:,} calls{near_text}, {self.stats['misses_by_error']:,} misses by error"

    def _server_lines(self) -> list[str]:
        return [_format_server(name, row) for name, row in self.stats["servers"].items()]


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

_COLUMN_NOTES = (
    "us a call: mean microseconds, the sum of the columns after it. wait: for a",
    "connection; network: network and server. Sizes are those on the wire.",
)


def _format_rows(stats: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the name and the cells of each kind of call that was made."""
    named_rows = [
        (f"{row['operation']} {_format_size(row['bytes_from'])}", row) for row in stats["by_size"]
    ]
    named_rows += [(f"bulk {row['keys_from']}+ keys", row) for row in stats["by_width"]]
    return [(name, _format_cells(row)) for name, row in named_rows if row["calls"]]


def _format_cells(row: Mapping[str, Any]) -> list[str]:
    call_count, seconds_by_part = row["calls"], row["seconds"]
    seconds_per_call = [seconds_by_part[part] / call_count for part in _PARTS]
    return [
        _format_count(call_count),
        _format_time(sum(seconds_per_call)),
        *(_format_time(part_s) if part_s else "-" for part_s in seconds_per_call),
    ]


def _format_time(seconds: float) -> str:
    """Return a time in microseconds, with a decimal below 100 of them; above 0.1 s in seconds."""
    us = seconds * 1e6
    if us < 100:  # noqa: PLR2004 - three digits either way
        return f"{us:.1f}"
    if seconds < 0.1:  # noqa: PLR2004 - five digits and a comma are what a column holds
        return f"{us:,.0f}"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - likewise


def _format_time_with_unit(seconds: float) -> str:
    text = _format_time(seconds)
    return text if text.endswith("s") else f"{text} us"


def _format_count(number: int) -> str:
    return f"{number:,}" if number < 10_000_000 else f"{number / 1e6:,.0f} M"  # noqa: PLR2004


def _format_size(bytes_from: int) -> str:
    """Return a size decade as text."""
    if not bytes_from:
        return "< 10 B"
    for unit in ("B", "kB", "MB"):
        if bytes_from < 1000:  # noqa: PLR2004 - a thousand of one unit is one of the next
            return f"{bytes_from}+ {unit}"
        bytes_from //= 1000
    return f"{bytes_from}+ GB"


def _format_server(name: str, row: Mapping[str, Any]) -> str:
    state = "down" if row.get("is_down") else "up"
    connections = f", connections: {row['connections']}" if "connections" in row else ""
    faults, times_down = row.get("faults", 0), row.get("times_down", 0)
    return f"{name}: {state}{connections}, faults: {faults}, times down: {times_down}"


def _html_table(title: str, header: list[str], rows: list[list[str]]) -> str:
    import html  # noqa: PLC0415 - for notebooks

    def html_cells(tag: str, cell_texts: list[str]) -> str:
        return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cell_texts)

    body = "".join(f"<tr>{html_cells('td', cell_texts)}</tr>" for cell_texts in rows)
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{html_cells('th', header)}</tr></thead><tbody>{body}</tbody></table>"


def subtract_stats(stats: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counters of the calls between two `stats()` of one client; servers are as they are now."""
    difference = dict(stats)
    for table in _TABLES:
        pairs = zip(stats[table], earlier[table], strict=True)
        difference[table] = [_subtract_row(row, earlier_row) for row, earlier_row in pairs]
    for name, value in stats.items():
        if isinstance(value, int):
            difference[name] = value - earlier[name]
    return difference


def _subtract_row(row: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "calls": row["calls"] - earlier["calls"],
        "bytes": row["bytes"] - earlier["bytes"],
        "seconds": {
            part: value - earlier["seconds"][part] for part, value in row["seconds"].items()
        },
        "latency_us_log2": [
            count - earlier_count
            for count, earlier_count in zip(
                row["latency_us_log2"], earlier["latency_us_log2"], strict=True
            )
        ],
    }


def format_json(
    stats: Mapping[str, Any], near_stats: NearStats | None, rollout_json: str | None
) -> str:
    """Return the report of a client as JSON (docs/reference/json.md)."""
    fields = {
        "schema": _SCHEMA,
        "version": _native.__version__,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "stats": stats,
        "near": near_stats,
        "rollout": None if rollout_json is None else json.loads(rollout_json),
    }
    return json.dumps(fields)


def explain(client: Any, key: Key) -> Explanation:
    """Read a key and return what that costs."""
    _check_key(key)
    started_at = time.perf_counter()
    item = client.get_with_meta(key)
    first_read_s = time.perf_counter() - started_at
    read_times_s: list[float] = []
    for _ in range(_REPEATS if item else 0):
        started_at = time.perf_counter()
        client.get(key)
        read_times_s.append(time.perf_counter() - started_at)
    return _explain_reads(client, key, item, first_read_s, read_times_s)


async def explain_async(client: Any, key: Key) -> Explanation:
    """Read a key and return what that costs."""
    _check_key(key)
    started_at = time.perf_counter()
    item = await client.get_with_meta(key)
    first_read_s = time.perf_counter() - started_at
    read_times_s: list[float] = []
    for _ in range(_REPEATS if item else 0):
        started_at = time.perf_counter()
        await client.get(key)
        read_times_s.append(time.perf_counter() - started_at)
    return _explain_reads(client, key, item, first_read_s, read_times_s)


def explain_value(client: Any, value: Any) -> Explanation:
    """Encode and decode a value and return what that costs."""
    flags, body = client.encode(value)
    title = f"{type(value).__name__}: {len(body)} bytes on the wire, flags {flags:#x}"
    return Explanation(title, _codec_costs(client, value))


def _check_key(key: Any) -> None:
    if not isinstance(key, str | bytes):
        raise TypeError(
            f"explain takes a key, str or bytes, not {type(key).__name__}: write explain_value(value) "
            "for what a value costs"
        )


def _explain_reads(
    client: Any, key: Key, item: Item | None, first_read_s: float, read_times_s: list[float]
) -> Explanation:
    server = client.server_of(key)
    if item is None:
        return Explanation(f"{key!r}: a miss at {server}", {"first read": first_read_s})
    ttl = "never expires" if item.ttl is None else f"{item.ttl} s left"
    title = f"{key!r}: {item.value_bytes} bytes at {server}, {ttl}"
    reads = {
        "first read, with its metadata": first_read_s,
        f"read, median of {_REPEATS}": sorted(read_times_s)[_REPEATS // 2],
    }
    return Explanation(title, reads | _codec_costs(client, item.value))


def _codec_costs(client: Any, value: Any) -> dict[str, float]:
    serialise_s, compress_s, plain_bytes, wire_bytes = client.codec.encoding_costs(value)
    flags, body = client.encode(value)
    started_at = time.perf_counter()
    client.codec.decode(flags, body)
    decode_s = time.perf_counter() - started_at
    size_change = f" ({plain_bytes} to {wire_bytes} bytes)" if wire_bytes != plain_bytes else ""
    return {
        "serialise": serialise_s,
        f"compress{size_change}": compress_s,
        "decompress and deserialise": decode_s,
    }
