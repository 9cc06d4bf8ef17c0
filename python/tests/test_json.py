"""Every command's JSON against the schema in docs/reference, over real servers and with real failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from glasscache import Codec, Server
from glasscache.server import find_command

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = Path(__file__).parents[2] / "docs/reference/json.schema.json"
COMMAND = find_command()


def run_for_envelope(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    """Run a command with --json, and return its only document, checked against the schema."""
    completed = subprocess.run(
        [COMMAND, *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert completed.returncode == exit_code, completed.stderr
    document: dict[str, Any] = json.loads(completed.stdout)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert (document["error"] is None) == (exit_code in {0, 1}), document
    return document


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server of this binary on a free port."""
    with Server() as server:
        yield server.address


def test_stop_prints_what_became_of_the_server() -> None:
    user_options = ["-u", "root"] if os.getuid() == 0 else []
    server = subprocess.Popen(
        [COMMAND, "serve", "-p", "-1", *user_options], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr
    assert "listens on" in server.stderr.readline()
    result = run_for_envelope("stop", "--pid", str(server.pid))["result"]
    assert (result["pid"], result["signal"], result["ended"]) == (server.pid, "SIGTERM", True)
    assert result["saved"] is None
    assert server.wait() == 0
    server.stderr.close()
    refusal = run_for_envelope("stop", "--pid", str(os.getpid()), exit_code=3)
    assert "is not a glasscache server" in refusal["error"]["message"]


def test_small_commands_print_lists_and_objects(address: str) -> None:
    assert run_for_envelope("set", "a", "x", "-s", address)["result"]["stored"] is True
    result_of_get = run_for_envelope("get", "a", "b", "-s", address, exit_code=1)
    assert [row["value"] for row in result_of_get["result"]] == ["x", None]
    assert [row["key"] for row in run_for_envelope("keys", "-s", address)["result"]] == ["a"]
    assert run_for_envelope("ping", "-s", address)["result"][0]["server"] == address
    assert run_for_envelope("stats", "-s", address)["result"][0]["rows"]["curr_items"] == 1
    assert run_for_envelope("delete", "a", "-s", address)["result"] == [
        {"key": "a", "deleted": True}
    ]
    assert run_for_envelope("keys", "-s", address)["result"] == []


def test_findings_rows_of_servers_and_the_live_curve() -> None:
    # A server of its own: what other tests store in theirs may be a finding.
    with Server() as server:
        address = server.address
        doctor = run_for_envelope("doctor", address, "--seconds", "0.2")["result"]
        assert (doctor["findings"], doctor["servers"][0]["server"]) == ([], address)
        rows = run_for_envelope("top", address, "localhost:1", "--once", "--interval", "0.2")[
            "result"
        ]
        assert rows[0]["server"] == address
        assert rows[0]["error"] is None
        assert rows[1]["fill"] is None
        curve = run_for_envelope("curve", address, "--live", exit_code=1)["result"]
        assert curve["server"] == address
        assert curve["state"] in {"too_few", "warming"}


def test_profile_prints_its_figures(address: str, tmp_path: Path) -> None:
    latency_file = tmp_path / "l.json"
    short_run_options = [
        "--calls",
        "200",
        "--sizes",
        "10,100",
        "--widths",
        "1,2",
        "--latency-out",
        str(latency_file),
    ]
    result = run_for_envelope("profile", address, "--vs", address, *short_run_options)["result"]
    assert [row["bytes"] for row in result["by_size"]] == [10, 100]
    assert result["wrong_values"] == 0
    assert "ratio" in result
    assert "single_us" in json.loads(latency_file.read_text())


def test_bench_prints_its_figures(address: str) -> None:
    short_run_options = [
        "--for",
        "300ms",
        "--warm-up",
        "100ms",
        "--keys",
        "100",
        "--connections",
        "2",
    ]
    result = run_for_envelope("bench", address, "--vs", address, *short_run_options)["result"]
    assert result["wrong_values"] == 0
    assert result["ratio"]["50"]["low"] <= result["ratio"]["50"]["high"]


def test_codec_measures_the_serialisers_of_python(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSCACHE_PYTHON", sys.executable)
    samples_file = tmp_path / "values.jsonl"
    samples_file.write_text(
        "".join(f'{{"id": {number}, "tags": ["a", "b"]}}\n' for number in range(30))
    )
    result = run_for_envelope("codec", str(samples_file), "--server", address)["result"]
    codec_names = {row["codec"] for row in result["candidates"]}
    assert {"Codec", "pickle", "json + zlib 6", "msgspec + lz4"} <= codec_names
    assert result["client"] == "Python's Client"
    assert any(reason.startswith("packed (TypeError") for reason in result["left_out"])
    recommended = result["recommended"]
    parts_us_sum = sum(recommended["get"].values())
    assert parts_us_sum > recommended["get"]["deserialise_us"] > 0
    assert recommended["measured"]["wrong"] == 0 == result["wrong_values"]
    assert Codec(**recommended["arguments"]).encode({"a": 1})

    samples_file.write_text(
        "".join(f"[{number}, {number + 1}, {number + 5}]\n" for number in range(30))
    )
    result = run_for_envelope("codec", str(samples_file), "--server", address)["result"]
    assert "packed" in {row["codec"] for row in result["candidates"]}
    assert run_for_envelope("keys", "-s", address)["result"] == []


def test_warm_prints_what_it_copied_also_where_it_fails(address: str) -> None:
    failure_document = run_for_envelope(
        "warm", "--from", "127.0.0.1:1", "--to", address, exit_code=3
    )
    assert (failure_document["result"], failure_document["error"]["kind"]) == (None, "unreachable")
    with Server() as old_server:
        run_for_envelope("set", "warmed", "x", "-s", old_server.address)
        result = run_for_envelope("warm", "--from", old_server.address, "--to", address)["result"]
        assert (result["copied_items"], result["end"]) == (1, "complete")
        assert run_for_envelope("get", "warmed", "-s", address)["result"][0]["value"] == "x"
        run_for_envelope("delete", "warmed", "-s", address)


def test_web_prints_what_the_http_cache_stores(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSCACHE_PYTHON", sys.executable)
    url = "http://shop.example/lamps"
    lines = run_for_envelope("web", "explain", url, "-H", "Cookie: a=b", "-s", address)["result"]
    assert {"name": "request", "value": f"GET {url}"} in lines
    assert {"name": "stored", "value": "nothing: a miss"} in lines
    purge_result = run_for_envelope("web", "purge", "--url", url, "-s", address)["result"]
    assert purge_result == {"is_purged": False, "soft": False}
    listing = run_for_envelope("web", "tag", "lamps", "-s", address)["result"]
    assert (listing["urls"], listing["is_complete"]) == ([], True)
    assert (
        run_for_envelope("web", "explain", "/lamps", "-s", address, exit_code=2)["error"]["kind"]
        == "usage"
    )
    failure_document = run_for_envelope("web", "tag", "lamps", "-s", "127.0.0.1:1", exit_code=3)
    assert failure_document["error"]["kind"] == "unreachable"


@pytest.mark.long
def test_commands_on_files_print_their_figures(tmp_path: Path) -> None:
    trace_file, log_folder = str(tmp_path / "t.csv"), str(tmp_path / "site")
    generated = run_for_envelope(
        "generate", "zipf", trace_file, "--requests", "5000", "--keys", "300"
    )
    assert generated["result"]["requests"] == 5000
    assert run_for_envelope("curve", trace_file)["result"]["results"]
    assert run_for_envelope("inspect", trace_file)["command"] == "inspect"
    sized_trace_file = str(tmp_path / "s.csv")
    run_for_envelope(
        "generate", "zipf", sized_trace_file, "--requests", "5000", "--keys", "300", "--size", "500"
    )
    cost_options = ("--cost-per-gb", "60", "--miss-cost-ms", "5")
    curve_over_memory = run_for_envelope(
        "curve", sized_trace_file, "--server", "--capacities", "4m,64m", *cost_options
    )["result"]
    assert [row["m_bytes"] for row in curve_over_memory["server"]] == [4 << 20, 64 << 20]
    assert (
        run_for_envelope("generate", "topic-tree", log_folder)["command"] == "generate topic-tree"
    )
    assert "log" in run_for_envelope("simulate", log_folder)["result"]
    assert run_for_envelope("slabs")["result"]["chunk_sizes"][0] == 96
    assert run_for_envelope("config", "show")["result"]["settings"]
    assert run_for_envelope("config", "check", "-u", "root", "-m", "64")["result"]["ok"] is True


@pytest.mark.parametrize(
    ("arguments", "exit_code", "error_kind", "command"),
    [
        (["ping", "-s", "127.0.0.1:1"], 3, "unreachable", "ping"),
        (["get"], 2, "usage", "get"),
        (["config", "show", "--no-such-flag"], 2, "usage", "config show"),
        (["nonsense"], 2, "usage", None),
        (["simulate", "log", "--memory", "8M"], 2, "usage", "simulate"),
        (["completions", "bash"], 2, "usage", "completions"),
        (["slabs", "--memory", "1g"], 2, "usage", "slabs"),
        (["curve", "no-such-file"], 3, "unreachable", "curve"),
    ],
)
def test_a_failure_is_printed_as_an_envelope(
    arguments: list[str], exit_code: int, error_kind: str, command: str | None
) -> None:
    document = run_for_envelope(*arguments, exit_code=exit_code)
    assert document["command"] == command
    assert document["result"] is None
    assert (document["error"]["kind"], document["error"]["exit"]) == (error_kind, exit_code)


def test_help_and_version_are_no_envelope() -> None:
    for flag in ("--help", "--version"):
        completed = subprocess.run(
            [COMMAND, "ping", flag, "--json"], capture_output=True, text=True, check=True
        )
        assert not completed.stdout.startswith("{")
