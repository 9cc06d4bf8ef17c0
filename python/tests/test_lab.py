"""The lab's commands as functions: results as dicts, errors as exceptions with what was found before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from glasscache import Codec, lab

if TYPE_CHECKING:
    from pathlib import Path

    from glasscache import Server


def test_results_of_the_measuring_commands_are_dicts(server: Server, tmp_path: Path) -> None:
    short_run_options = {"calls": 200, "sizes": [10, 100], "widths": [1, 2]}
    result = lab.profile(server.address, latency_out=tmp_path / "latency.json", **short_run_options)
    assert [row["bytes"] for row in result["by_size"]] == [10, 100]
    assert (tmp_path / "latency.json").exists()
    result = lab.bench(
        server.address, for_="200ms", warm_up="50ms", keys=100, connections=2, protocol="meta"
    )
    assert result["wrong_values"] == 0
    assert result["run"]["arguments"][0] == "bench"
    samples_file = tmp_path / "values.jsonl"
    samples_file.write_text('{"a": [1, 2]}\n' * 20)
    result = lab.codec(samples_file, server=server.address, network="as-measured")
    assert result["client"] == "Python's Client"
    assert Codec(**result["recommended"]["arguments"]).encode([1])
    assert result["before"]["codec"] == "Codec()"
    codec = Codec(objects="msgpack", level=3)
    result = lab.codec(samples_file, server=server.address, codec=codec)
    assert result["before"]["codec"] == repr(codec)
    assert result["before"]["serialiser"] == "Codec msgpack"


def test_commands_on_files_and_a_report_of_their_results(tmp_path: Path) -> None:
    trace_file, log_folder = tmp_path / "t.csv", tmp_path / "site"
    assert lab.generate("zipf", trace_file, requests=2000, keys=100)["requests"] == 2000
    rows = lab.curve(trace_file, policies=["lru", "fifo"], capacities=[10, 50])["results"]
    assert {row["policy"] for row in rows} == {"LRU", "FIFO"}
    assert lab.inspect(trace_file)["requests"] == 2000
    assert lab.slabs()["chunk_sizes"][0] == 96
    lab.generate("topic-tree", log_folder, requests=2000, items=500)
    result = lab.simulate(log_folder, strategies=["remote", "lru:20"])
    assert set(result["strategies"]) == {"remote", "lru:20"}
    assert lab.run("config check", memory_limit=64, user="root")["ok"] is True
    with pytest.raises(lab.LabError, match="no result of a command") as error_info:
        lab.report(tmp_path)
    assert (error_info.value.kind, error_info.value.exit_code) == ("bad-data", 4)


def test_a_strategy_is_replayed_and_compared_with_its_forecast(
    server: Server, tmp_path: Path
) -> None:
    log_folder, strategy_file = tmp_path / "site", tmp_path / "best.strategy"
    lab.generate("topic-tree", log_folder, requests=400, items=200)
    lab.simulate(log_folder, strategies=["fixed:20+children"], save=strategy_file)
    result = lab.replay(log_folder, target=server.address, strategy=strategy_file, fill=True)
    assert result["strategy"] == "fixed:20+children"
    assert result["error"]["all"]["calls"] == result["error"]["all"]["bytes"] == 0
    assert result["forecast"]["second_half"]["requests"] == 200


def test_errors_have_their_kind_and_a_message_of_the_command() -> None:
    with pytest.raises(lab.LabError, match="cannot open no-such-file") as error_info:
        lab.curve("no-such-file")
    assert (error_info.value.kind, error_info.value.exit_code, error_info.value.result) == (
        "unreachable",
        3,
        None,
    )
    with pytest.raises(lab.LabError, match="--no-such-flag"):
        lab.inspect("t.csv", no_such_flag=True)
    with pytest.raises(lab.LabError, match=r"-t\.csv"):
        lab.inspect("-t.csv")


def test_a_warning_of_the_command_becomes_a_python_warning() -> None:
    from glasscache import Server

    with Server(memory="4M") as small_server, pytest.warns(UserWarning, match="most gets missed"):
        lab.bench(
            small_server.address,
            for_="200ms",
            warm_up="50ms",
            keys=20_000,
            size=1000,
            connections=2,
        )
