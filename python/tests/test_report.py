"""The costs of calls for people: `report()`, `explain(key)` and `explain_value(value)`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client
from glasscache._report import Explanation, Report

if TYPE_CHECKING:
    from glasscache import Server

WIDTH_MAX = 80

HEADER_WORDS = [
    "calls",
    "us",
    "a",
    "call",
    "serial.",
    "compr.",
    "wait",
    "network",
    "decomp.",
    "deser.",
]


def fits_width(text: str) -> bool:
    return all(len(line) <= WIDTH_MAX for line in text.splitlines())


def row_of(report: Report, name: str) -> list[str]:
    """Return the cells of the row that begins with a name."""
    (row,) = [line for line in str(report).splitlines() if line.startswith(name)]
    return row[len(name) :].split()


def test_a_report_has_a_row_for_each_kind_of_call_that_was_made(client: Client) -> None:
    client.set("a", {"x": list(range(3000))})
    client.get("a")
    client.get("a")
    client.get_many(["a", "b"])
    report = client.report()
    assert str(report).splitlines()[2].split() == HEADER_WORDS
    (write_line,) = [line for line in str(report).splitlines() if line.startswith("write")]
    size_text = " ".join(write_line.split()[1:3])
    write_cells, read_cells = (
        row_of(report, f"write {size_text}"),
        row_of(report, f"read {size_text}"),
    )
    assert (write_cells[0], read_cells[0]) == ("1", "2")
    assert row_of(report, "bulk 2+ keys")[0] == "1"
    assert write_cells[2] != "-", "serialising is timed"
    assert read_cells[2] == "-", "a read does not serialise"
    assert fits_width(str(report))
    assert repr(report) == str(report)


def test_a_row_has_the_mean_of_each_part_and_their_sum() -> None:
    cost_parts = ("serialise", "compress", "wait", "network+server", "decompress", "deserialise")
    seconds = dict(zip(cost_parts, (8e-6, 0, 2e-6, 0.012, 0.9, 48), strict=True))
    row = {"operation": "read", "bytes_from": 1000, "calls": 4, "seconds": seconds}
    report = Report({"by_size": [row], "by_width": [], "misses_by_error": 7, "servers": {}})
    (line,) = [line for line in str(report).splitlines() if line.startswith("read")]
    assert line.split() == "read 1+ kB 4 12 s 2.0 - 0.5 3,000 0.23 s 12 s".split()  # noqa: SIM905
    assert str(report).startswith("4 calls, 7 misses by error\n")


def test_a_report_without_calls_names_the_servers(server: Server) -> None:
    with Client(server.address) as client:
        text = str(client.report())
    assert "No call has been counted." in text
    assert f"{server.address}: up" in text


def test_a_report_fits_eighty_columns_whatever_it_counts() -> None:
    cost_parts = ("serialise", "compress", "wait", "network+server", "decompress", "deserialise")
    row = {"calls": 9_999_999, "seconds": dict.fromkeys(cost_parts, 9_999_999 * 0.009_999)}
    rows_by_size = [
        {**row, "operation": "write", "bytes_from": 10**exponent if exponent else 0}
        for exponent in range(9)
    ]
    rows_by_width = [{**row, "keys_from": 1 << exponent} for exponent in range(11)]
    text = str(
        Report(
            {
                "by_size": rows_by_size,
                "by_width": rows_by_width,
                "misses_by_error": 0,
                "servers": {},
            }
        )
    )
    assert fits_width(text), text
    assert text.count("9,999,999") == 20
    for size in ("< 10 B", "100+ B", "10+ kB", "1+ MB", "100+ MB"):
        assert f"write {size} " in text


def test_an_explanation_reads_as_lines_and_as_a_table_of_a_notebook(client: Client) -> None:
    client.set("<user>", {"name": "Ada"})
    explanation = client.explain("<user>")
    assert repr(explanation) == str(explanation)
    assert "\n  read, median of 20" in repr(explanation)
    assert "\\n" not in repr(explanation)
    assert explanation.seconds["serialise"] > 0
    html = explanation._repr_html_()
    assert html.startswith("<table>")
    assert "&lt;user&gt;" in html
    assert "<user>" not in html
    assert "<table>" in client.report()._repr_html_()


def test_an_explanation_names_the_unit_of_each_time_once() -> None:
    explanation = Explanation("a slow read", {"first read": 0.15, "second read": 12e-6})
    assert [line.split()[2:] for line in str(explanation).splitlines()[1:]] == [
        ["0.15", "s"],
        ["12.0", "us"],
    ]


def test_explain_takes_a_text_as_key_and_explain_value_as_value(client: Client) -> None:
    client.set("text", "x")
    assert "never expires" in client.explain("text").title
    assert client.explain_value("hello world").title.startswith("str: 11 bytes on the wire")


@pytest.mark.parametrize("value", [{"x": 1}, [1, 2], 5, None])
def test_a_value_where_a_key_is_expected_names_explain_value(server: Server, value: Any) -> None:
    async def run_asyncio_call() -> None:
        async with AsyncClient(server.address) as client:
            await client.explain(value)

    with (
        Client(server.address) as client,
        pytest.raises(TypeError, match=r"explain_value\(value\)"),
    ):
        client.explain(value)
    with pytest.raises(TypeError, match=r"explain_value\(value\)"):
        asyncio.run(run_asyncio_call())


async def test_the_asyncio_client_reports_and_explains_too(server: Server) -> None:
    async with AsyncClient(server.address, timeout=5) as client:
        await client.set("k", [1, 2, 3])
        await client.get("k")
        assert "read" in str(client.report())
        assert fits_width(str(client.report()))
        assert "median of 20" in str(await client.explain("k"))
        assert "list: 4 bytes" in client.explain_value([1, 2, 3]).title
