"""The lab's commands as functions: results as dicts, errors as exceptions with what was found before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from glasscache import Codec, lab

if TYPE_CHECKING:
    from pathlib import Path

    from glasscache import Server


def test_results_of_the_measuring_commands_are_dicts(server: Server, tmp_path: Path) -> None:
    few = {"calls": 200, "sizes": [10, 100], "widths": [1, 2]}
    found = lab.profile(server.address, latency_out=tmp_path / "latency.json", **few)
    assert [row["bytes"] for row in found["by_size"]] == [10, 100]
    assert (tmp_path / "latency.json").exists()
    found = lab.bench(
        server.address, for_="200ms", warm_up="50ms", keys=100, connections=2, protocol="meta"
    )
    assert found["wrong_values"] == 0
    assert found["run"]["arguments"][0] == "bench"
    samples = tmp_path / "values.jsonl"
    samples.write_text('{"a": [1, 2]}\n' * 20)
    found = lab.codec(samples, server=server.address, network="as-measured")
    assert found["client"] == "Python's Client"
    assert Codec(**found["recommended"]["arguments"]).encode([1])


def test_commands_on_files_and_a_report_of_their_results(tmp_path: Path) -> None:
    trace, site = tmp_path / "t.csv", tmp_path / "site"
    assert lab.generate("zipf", trace, requests=2000, keys=100)["requests"] == 2000
    rows = lab.curve(trace, policies=["lru", "fifo"], capacities=[10, 50])["results"]
    assert {row["policy"] for row in rows} == {"LRU", "FIFO"}
    assert lab.inspect(trace)["requests"] == 2000
    assert lab.slabs()["chunk_sizes"][0] == 96
    lab.generate("topic-tree", site, requests=2000, items=500)
    found = lab.simulate(site, strategies=["remote", "lru:20"])
    assert set(found["strategies"]) == {"remote", "lru:20"}
    assert lab.run("config check", memory_limit=64)["ok"] is True
    with pytest.raises(lab.LabError, match="no result of a command") as caught:
        lab.report(tmp_path)
    assert (caught.value.kind, caught.value.exit_code) == ("bad-data", 4)


def test_a_strategy_is_replayed_and_compared_with_its_forecast(
    server: Server, tmp_path: Path
) -> None:
    site, strategy = tmp_path / "site", tmp_path / "best.strategy"
    lab.generate("topic-tree", site, requests=400, items=200)
    lab.simulate(site, strategies=["fixed:20+children"], save=strategy)
    found = lab.replay(site, target=server.address, strategy=strategy, fill=True)
    assert found["strategy"] == "fixed:20+children"
    assert found["error"]["all"]["calls"] == found["error"]["all"]["bytes"] == 0
    assert found["forecast"]["second_half"]["requests"] == 200


def test_errors_have_their_kind_and_a_message_of_the_command() -> None:
    with pytest.raises(lab.LabError, match="cannot open no-such-file") as caught:
        lab.curve("no-such-file")
    assert (caught.value.kind, caught.value.exit_code, caught.value.result) == (
        "unreachable",
        3,
        None,
    )
    with pytest.raises(lab.LabError, match="--no-such-flag"):
        lab.inspect("t.csv", no_such_flag=True)
    with pytest.raises(lab.LabError, match=r"-t\.csv"):
        lab.inspect("-t.csv")


def test_a_warning_of_the_command_is_a_warning() -> None:
    from glasscache import Server

    with Server(memory="4M") as small, pytest.warns(UserWarning, match="most gets missed"):
        lab.bench(
            small.address, for_="200ms", warm_up="50ms", keys=20_000, size=1000, connections=2
        )
