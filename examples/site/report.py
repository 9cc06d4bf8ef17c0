"""The table and the page of `drive.py`: text, and one HTML file that contains its chart."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from layers import LAYERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drive import Result

HEADER = (
    "cached", "requests/s", "p50 ms", "p95 ms", "cache calls", "queries", *LAYERS, "stale pages", "oldest s",
)  # fmt: skip
NOTE = (
    "Cache calls and queries are those of one page read; http to object are hit ratios in percent; stale "
    "pages show a product of which a newer version was committed, the oldest by so many seconds."
)
STYLE = (
    "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem .6rem;"
    "text-align:right;border-bottom:1px solid #8884}td:first-child,th:first-child{text-align:left}"
    "svg{width:100%}text{font:14px system-ui;fill:currentColor}"
)


def result_cells(result: Result) -> list[str]:
    """Return the row of a result."""
    counters, latencies_s = result.counters, sorted(result.latencies_s)
    request_count = max(1, result.requests)
    ratios = [_hit_ratio_percent(counters, layer) for layer in LAYERS]
    stale_ages_s = [age for age in result.ages_s if age > 0]
    return [
        result.setup,
        f"{request_count / result.seconds:,.0f}",
        f"{_quantile_ms(latencies_s, 0.5):.1f}",
        f"{_quantile_ms(latencies_s, 0.95):.1f}",
        f"{counters.get('cache calls', 0) / request_count:.2f}",
        f"{counters.get('queries', 0) / request_count:.2f}",
        *ratios,
        f"{100 * len(stale_ages_s) / request_count:.1f} %",
        f"{max(stale_ages_s, default=0):.1f}",
    ]


def _quantile_ms(latencies_s: Sequence[float], quantile: float) -> float:
    return (
        latencies_s[min(len(latencies_s) - 1, int(quantile * len(latencies_s)))] * 1e3
        if latencies_s
        else 0
    )


def _hit_ratio_percent(counters: dict[str, int], layer: str) -> str:
    hits, misses = counters.get(f"{layer} hits", 0), counters.get(f"{layer} misses", 0)
    return f"{100 * hits / (hits + misses):.0f}" if hits + misses else "-"


def render_table(results: Sequence[Result]) -> str:
    """Return the results as text."""
    rows = [list(HEADER), *(result_cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([*lines, "", NOTE])


def render_page(results: Sequence[Result], query_ms: float) -> str:
    """Return the results as a page with a chart."""
    header_cells = "".join(f"<th>{html.escape(column_name)}</th>" for column_name in HEADER)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in result_cells(result)) + "</tr>"
        for result in results
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>A shop, layer by layer</title>'
        f"<style>{STYLE}</style><h1>A shop, layer by layer</h1>"
        f"<p>Page reads a second with each layer of the cache alone, and with all. A query of the database "
        f"takes {query_ms:g} ms.</p>{_bar_chart(results)}"
        f"<table><tr>{header_cells}</tr>{rows}</table><p>{NOTE}</p></html>"
    )


def _bar_chart(results: Sequence[Result]) -> str:
    requests_per_s = [result.requests / result.seconds for result in results]
    rate_max, elements = max(requests_per_s, default=1) or 1, []
    for bar_index, (result, rate) in enumerate(zip(results, requests_per_s, strict=True)):
        top, width = bar_index * 30, 560 * rate / rate_max
        elements.append(
            f'<text x="90" y="{top + 19}" text-anchor="end">{html.escape(result.setup)}</text>'
            f'<rect x="100" y="{top + 4}" width="{width:.0f}" height="20" rx="2" fill="#2a9d8f"/>'
            f'<text x="{108 + width:.0f}" y="{top + 19}">{rate:,.0f}</text>'
        )
    return f'<svg viewBox="0 0 760 {30 * len(requests_per_s)}" role="img">{"".join(elements)}</svg>'
