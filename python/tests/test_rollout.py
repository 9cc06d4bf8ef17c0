"""A strategy in a share of the requests: both groups are reported, and a bad one disables itself.

Whether one is good is what the control group shows: of a forecast it is only said whether it came true.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from glasscache import AsyncClient, Client, lab
from glasscache.middleware import RequestASGI, RequestWSGI
from glasscache.server import find_command
from scripted_server import Relay

if TYPE_CHECKING:
    from collections.abc import Callable

    SaveStrategy = Callable[[str], str]

DOCS = Path(__file__).parents[2] / "docs/reference"
KEYS = ("a", "b", "c")
BAD_STRATEGY = "strategy subtree:1\nforecast calls 9 8 9.5\n"
"""It fetches the children of the page first, of which `request_of_bad_strategy` reads none."""
MISSED_STRATEGY = "strategy lru:1\nforecast calls 0.5 0.4 0.6\nforecast keys 0.5 0.4 0.6\n"
GOOD_STRATEGY = "strategy lru:100\nforecast calls 0.1 0 0.2\nforecast added_ms_p50 0 0 0.1\n"


@pytest.fixture
def settings(server: Any) -> dict[str, Any]:
    """Arguments of clients that share a namespace with the three values."""
    settings: dict[str, Any] = {
        "servers": server.address,
        "namespace": f"{uuid.uuid4()}:",
        "timeout": 30,
    }
    with Client(**settings) as writer:
        writer.set_many({key: key.upper() for key in KEYS})
    return settings


def new_client_of_bad_strategy(
    settings: dict[str, Any], save_strategy: SaveStrategy, share: float
) -> Client:
    """Return a client under a strategy that needs two calls where one is enough."""
    strategy = save_strategy(BAD_STRATEGY)
    return Client(**settings, strategy=strategy, share=share, children_of=lambda _key: ["b"])


def make_requests_of_bad_strategy(client: Client, request_count_max: int) -> int:
    """Make requests until the strategy is disabled; return how many."""
    for number in range(1, request_count_max + 1):
        with client.request(page="page", route=f"/{number % 2}"):
            assert client.get_many(["a", "c"]) == {"a": "A", "c": "C"}
        if client.near_stats()["disabled"]:
            return number
    return request_count_max


def make_requests(client: Client, request_count_max: int) -> int:
    """Make requests until the strategy is disabled; return how many."""
    for number in range(1, request_count_max + 1):
        with client.request():
            assert [client.get(key) for key in KEYS] == ["A", "B", "C"]
        if client.near_stats()["disabled"]:
            return number
    return request_count_max


def report_of(client: Client | AsyncClient) -> dict[str, Any]:
    """Return the report, checked against its schema."""
    document: dict[str, Any] = json.loads(client.report(json=True))
    schema = json.loads((DOCS / "report.schema.json").read_text())
    jsonschema.validate(document, schema)
    return document


def run_rollout_command(
    *report_files: Path, exit_code: int = 0, flags: tuple[str, ...] = ("--json",)
) -> subprocess.CompletedProcess[str]:
    """Run the command; it ends with this exit code."""
    completed = subprocess.run(
        [find_command(), "rollout", *map(str, report_files), *flags],
        capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "80"},
    )  # fmt: skip
    assert completed.returncode == exit_code, completed.stdout + completed.stderr
    return completed


def test_a_bad_strategy_disables_itself_within_2000_requests_and_logs_that_once(
    settings: dict[str, Any], save_strategy: SaveStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "glasscache"):
        client = new_client_of_bad_strategy(settings, save_strategy, 0.1)
        assert make_requests_of_bad_strategy(client, 2000) <= 2000
        for _ in range(3):
            with client.request():
                assert client.get_many(KEYS) == {"a": "A", "b": "B", "c": "C"}
    (record,) = [record for record in caplog.records if record.name == "glasscache"]
    assert "the strategy subtree:1 has disabled itself: calls 1.00 -> 2.00" in record.getMessage()
    assert client.near_stats()["near_items"] == 0
    groups = report_of(client)["rollout"]["groups"]
    assert groups["strategy"]["calls"] == 2 * groups["strategy"]["requests"] > 0


def test_a_strategy_that_misses_its_forecast_and_is_not_worse_is_kept(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    client = Client(**settings, strategy=save_strategy(MISSED_STRATEGY), share=0.5)
    assert make_requests(client, 2000) == 2000
    assert report_of(client)["rollout"]["disabled"] is None
    report_file = tmp_path / "stats.json"
    report_file.write_text(client.report(json=True))
    result = json.loads(run_rollout_command(report_file).stdout)["result"]
    assert result["recommendation"] in {"continue", "wait"}
    assert result["forecast_statement"].startswith("The forecast was 0.500 (calls)")


def test_both_groups_and_the_command_have_the_time_of_decoding(
    server: Any, save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    """A near hit is decoded as a fetched value is, so a strategy changes nothing of it."""
    lines = "strategy lru:9\nforecast decode_ms_mean 1000 900 1100\n"
    big = {f"{number}": [number] * 20 for number in range(50)}
    settings: dict[str, Any] = {"servers": server.address, "namespace": f"{uuid.uuid4()}:"}
    client = Client(**settings, codec="json", strategy=save_strategy(lines), share=0.5, timeout=30)
    client.set_many({"big": big, "text": "short", "bytes": b"x" * 5000})
    for _ in range(600):
        with client.request():
            assert client.get("big") == big
            assert len(client.get_many(["big", "text", "bytes"])) == 3
    document = report_of(client)
    groups = document["rollout"]["groups"]
    for group in groups.values():
        assert group["decode_ns"] > group["requests"] > 0
        assert sum(group["decode_ns_of_blocks"]) == group["decode_ns"]
    report_file = tmp_path / "stats.json"
    report_file.write_text(client.report(json=True))
    result = json.loads(run_rollout_command(report_file).stdout)["result"]
    (figure,) = [row for row in result["figures"] if row["figure"] == "decode_ms_mean"]
    strategy = groups["strategy"]
    measured_ms = strategy["decode_ns"] / strategy["requests"] / 1e6
    assert figure["strategy"]["value"] == pytest.approx(measured_ms)
    assert figure["forecast"]["value"] == 1000
    assert "decode_ms_mean" in result["forecast_statement"]
    text = run_rollout_command(report_file, flags=()).stdout
    assert "decode ms mean" in text

    # Reports of an earlier version do not have it.
    for group in groups.values():
        del group["decode_ns"], group["decode_ns_of_blocks"]
    report_file.write_text(json.dumps(document))
    assert "decode ms mean" not in run_rollout_command(report_file, flags=()).stdout


def test_requests_of_the_asyncio_client_count_the_time_of_decoding(
    server: Any, save_strategy: SaveStrategy
) -> None:
    big = {f"{number}": [number] * 20 for number in range(50)}
    namespace = f"{uuid.uuid4()}:"
    with Client(server.address, namespace=namespace, codec="json") as writer:
        writer.set_many({"big": big, "bytes": b"x" * 500})

    async def make_requests(client: AsyncClient) -> dict[str, Any]:
        for _ in range(300):
            with client.request():
                assert await client.get("bytes") is not None
        only_bytes = report_of(client)["rollout"]["groups"]["strategy"]
        assert only_bytes["decode_ns"] == 0 < only_bytes["requests"]
        for _ in range(300):
            with client.request():
                assert await client.get("big") == big
                assert await client.get_many(["big"]) == {"big": big}
        strategy: dict[str, Any] = report_of(client)["rollout"]["groups"]["strategy"]
        return strategy

    async def run() -> dict[str, Any]:
        strategy = save_strategy("strategy lru:9\n")
        settings: dict[str, Any] = {"namespace": namespace, "codec": "json", "timeout": 30}
        async with AsyncClient(server.address, **settings, strategy=strategy) as client:
            return await make_requests(client)

    assert asyncio.run(run())["decode_ns"] > 0


def test_a_good_strategy_is_kept(settings: dict[str, Any], save_strategy: SaveStrategy) -> None:
    client = Client(**settings, strategy=save_strategy(GOOD_STRATEGY), share=0.5, near_ttl=None)
    assert make_requests(client, 2000) == 2000
    document = report_of(client)
    assert document["rollout"]["disabled"] is None
    groups = document["rollout"]["groups"]
    strategy_group, control_group = groups["strategy"], groups["control"]
    counted_requests = strategy_group["requests"] + control_group["requests"]
    assert counted_requests + document["rollout"]["warm_up_requests"] == 2000
    assert control_group["calls"] == 3 * control_group["requests"]
    assert strategy_group["calls"] < strategy_group["requests"]
    assert document["near"]["disabled"] is None


def test_the_asyncio_client_and_both_middlewares_roll_out_alike(
    settings: dict[str, Any], save_strategy: SaveStrategy
) -> None:
    client = Client(**settings, strategy=save_strategy(GOOD_STRATEGY), share=0.5, near_ttl=None)

    def wsgi(_environ: Any, _start: Any) -> list[bytes]:
        return [client.get(key).encode() for key in KEYS]

    app = RequestWSGI(wsgi, client)
    for _ in range(100):
        assert b"".join(app({}, None)) == b"ABC"

    async def run() -> dict[str, Any]:
        async_client = AsyncClient(
            **settings, strategy=save_strategy(GOOD_STRATEGY), share=0.5, near_ttl=None
        )

        async def asgi(_scope: Any, _receive: Any, _send: Any) -> None:
            assert [await async_client.get(key) for key in KEYS] == ["A", "B", "C"]
            assert await async_client.get_many(KEYS) == {"a": "A", "b": "B", "c": "C"}

        for _ in range(20):
            app = RequestASGI(asgi, async_client)
            await asyncio.gather(*(app({"type": "http"}, None, None) for _ in range(5)))
        report = report_of(async_client)
        await async_client.close()
        return report

    for document, calls in ((report_of(client), 3), (asyncio.run(run()), 4)):
        # The near cache grows at first, and whether it still does is looked at after 100 requests.
        assert document["rollout"]["warm_up_requests"] == 100
        assert document["near"]["calls"] < 50 * calls
        assert document["near"]["reads"] > 0


def test_a_request_that_raises_is_counted(
    settings: dict[str, Any], save_strategy: SaveStrategy
) -> None:
    client = Client(**settings, strategy=save_strategy("strategy lru:1"), share=1)
    with pytest.raises(ZeroDivisionError), client.request():
        client.get("a")
        client.get("b")
        raise ZeroDivisionError
    groups = report_of(client)["rollout"]["groups"]
    assert (groups["strategy"]["requests"], groups["strategy"]["calls"]) == (1, 2)


def test_a_report_of_a_client_without_strategy_has_its_counters(settings: dict[str, Any]) -> None:
    client = Client(**settings)
    client.get("a")
    document = report_of(client)
    assert document["near"] is document["rollout"] is None
    assert document["stats"]["by_size"][0]["calls"] == 1
    assert document["pid"] == os.getpid()


def test_rollout_compares_the_groups_of_several_processes(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    strategy_file = save_strategy("strategy lru:2\nforecast calls 1 0.9 1.1\n")
    report_files: list[Path] = []
    for number in range(2):
        client = Client(**settings, strategy=strategy_file, share=0.5, near_ttl=None)
        for request_number in range(300):
            with client.request():
                assert client.get("a") == "A"
                assert client.get(KEYS[request_number % 3]) == "ABC"[request_number % 3]
        report_files.append(tmp_path / f"{number}.json")
        report = client.report(json=True)
        report_files[-1].write_text(f"{report}\n{report}\n")  # of a process the last report counts
    document = json.loads(run_rollout_command(*report_files).stdout)
    jsonschema.validate(document, json.loads((DOCS / "json.schema.json").read_text()))
    result = document["result"]
    assert result["processes"] == 2
    assert result["recommendation"] in {"continue", "wait"}  # wait, if times of this machine jump
    calls_figure = result["figures"][0]
    assert calls_figure["control"]["value"] == 2
    assert calls_figure["strategy"]["low"] <= calls_figure["strategy"]["value"] <= 1.1
    assert calls_figure["difference"]["high"] < 0
    assert result == lab.rollout(*report_files)
    text = run_rollout_command(*report_files, flags=()).stdout
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert text.startswith(f"Recommendation: {result['recommendation']}. ")
    assert " ".join(text.split("\n\n")[0].split()) == result["sentence"]
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "rollout.json").write_text(json.dumps(document))
    page = subprocess.run(
        [find_command(), "report", tmp_path / "results"], capture_output=True, text=True, check=True
    )
    assert result["sentence"] in " ".join(page.stdout.split())


PROCESSES_PROGRAM = """
import os, sys
from glasscache import Client
address, namespace, strategy, folder, children = sys.argv[1:]
client = Client(
    address, namespace=namespace, timeout=60, strategy=strategy, near_ttl=None,
    share=0.25, share_by="process",
)
def make_requests(count):
    for _ in range(count):
        with client.request():
            assert [client.get(key) for key in "aab"] == ["A", "A", "B"]
for number in range(int(children)):
    if number == 10:
        make_requests(2)  # a server that forks may have read before
    child = os.fork()
    if child == 0:
        make_requests(30)
        with open(os.path.join(folder, f"{os.getppid()}-{number}.json"), "w") as file:
            file.write(client.report(json=True))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_about_the_share_of_the_processes_runs_the_strategy_and_rollout_compares_them(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    strategy_file = save_strategy("strategy lru:1\nforecast calls 2 1.9 2.1\n")
    arguments = [settings["servers"], settings["namespace"], strategy_file, str(tmp_path), "25"]
    command = [sys.executable, "-W", "ignore", "-c", PROCESSES_PROGRAM, *arguments]
    parents = [subprocess.Popen(command) for _ in range(4)]
    assert [parent.wait(timeout=300) for parent in parents] == [0] * 4
    reports = [json.loads(report_file.read_text()) for report_file in tmp_path.glob("*.json")]
    assert len({report["rollout"]["process"] for report in reports}) == len(reports) == 100
    request_counts = [
        [report["rollout"]["groups"][group]["requests"] for group in ("strategy", "control")]
        for report in reports
    ]
    assert all(
        (strategy_requests == 0) != (control_requests == 0)
        for strategy_requests, control_requests in request_counts
    )
    strategy_process_count = sum(strategy_requests > 0 for strategy_requests, _ in request_counts)
    # Twenty-five, within five standard deviations: chance is beyond them once in a million runs.
    assert 4 <= strategy_process_count <= 46
    # A time that differs by chance is exit code 1; here the counts are compared.
    completed = subprocess.run(
        [find_command(), "rollout", *map(str, tmp_path.glob("*.json")), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode in {0, 1}, completed.stderr
    result = json.loads(completed.stdout)["result"]
    assert (result["share_by"], result["processes"]) == ("process", 100)
    for index, group in enumerate(("strategy", "control")):
        assert result["groups"][group]["requests"] == sum(row[index] for row in request_counts)
    calls_figure = result["figures"][0]
    assert calls_figure["strategy"]["value"] == pytest.approx(2, abs=0.1)
    assert calls_figure["control"]["value"] == 3
    assert calls_figure["difference"]["high"] < 0


def test_a_route_whose_requests_wait_longer_is_named(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    client = Client(**settings, strategy=save_strategy("strategy lru:9"), share=0.5)
    for number in range(900):
        with client.request(route="/first"):
            client.get("a")
            client.set_route("/second" if number % 3 else "/first")
    document = report_of(client)
    routes = {route["route"]: route for route in document["rollout"]["routes"]}
    assert sorted(routes) == ["/first", "/second"]
    # Requests, added ns and the squares of added ms; a route of the control group has slow requests.
    document["rollout"]["routes"] = [
        {
            "route": '/sl"ow',
            "strategy": [200, 400_000_000, 900.0],
            "control": [200, 200_000_000, 220.0],
        }
    ]
    report_file = tmp_path / "stats.json"
    report_file.write_text(json.dumps(document))
    completed = run_rollout_command(report_file, exit_code=1)
    result = json.loads(completed.stdout)["result"]
    assert result["recommendation"] == "roll back"
    assert '/sl"ow (1.00 -> 2.00 ms)' in result["reason"]
    (route,) = result["routes"]
    assert route["is_slower"]
    assert route["difference"]["low"] > 0
    text = run_rollout_command(report_file, exit_code=1, flags=()).stdout
    assert "slower" in text
    assert all(len(line) <= 80 for line in text.splitlines()), text

    (slow_route,) = document["rollout"]["routes"]
    document["rollout"]["routes"] = [slow_route | {"route": f"/{number}"} for number in range(8)]
    report_file.write_text(json.dumps(document))
    text = run_rollout_command(report_file, exit_code=1, flags=()).stdout
    assert sum(line.endswith("slower") for line in text.splitlines()) == 6
    assert "\n--json has 2 more routes that lose less.\n" in text
    assert "\n\n\n" not in text


def test_values_are_compared_with_those_of_the_server(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    client = Client(**settings, strategy=save_strategy("strategy lru:9"), share=1, near_check=1)
    other = Client(**settings)
    for number in range(200):
        with client.request():
            client.get("a")
        if number % 40 == 0:
            other.set("a", number)
    document = report_of(client)
    checks = document["rollout"]["value_checks"]
    assert checks["compared"] >= 3
    assert (checks["wrong"], document["rollout"]["disabled"]) == (0, None)
    # A single value that is wrong is enough, however few requests there are.
    document["rollout"]["value_checks"] |= {"wrong": 1, "bound_ms": 10_000}
    report_file = tmp_path / "stats.json"
    report_file.write_text(json.dumps(document))
    result = json.loads(run_rollout_command(report_file, exit_code=1).stdout)["result"]
    assert result["reason"].startswith(
        "it served 1 value that had been replaced longer than 10000 ms"
    )


def pass_without_reports(chunk: bytes, is_request: bool) -> bytes:
    """Pass everything on, except what the server reports of changed keys."""
    if is_request:
        return chunk
    reports_change = re.compile(rb"ts=\S+ gid=\d+ type=(item|deleted)")
    lines = chunk.splitlines(keepends=True)
    return b"".join(line for line in lines if not reports_change.match(line))


def test_a_process_that_serves_values_past_the_bound_of_a_coherent_cache_disables_the_strategy(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    relay = Relay(settings["servers"], pass_without_reports)
    through_relay: dict[str, Any] = settings | {"servers": relay.address, "coherent": True}
    strategy = save_strategy("strategy lru:9")
    client = Client(**through_relay, near_ttl=3600, strategy=strategy, share=0.5)
    writer = Client(**settings)
    deadline = time.monotonic() + 60
    while not client.near_stats()["disabled"] and time.monotonic() < deadline:
        writer.set("a", time.monotonic())
        for _ in range(20):
            with client.request(route="/"):
                client.get("a")
            time.sleep(0.005)
    disabled = client.near_stats()["disabled"]
    assert disabled is not None
    assert "replaced longer than 50 ms ago" in disabled
    report_file = tmp_path / "stats.json"
    report_file.write_text(client.report(json=True))
    client.close()
    relay.close()
    result = json.loads(run_rollout_command(report_file, exit_code=1).stdout)["result"]
    assert (result["recommendation"], result["value_checks"]["wrong"]) == ("roll back", 1)


def test_a_report_that_a_killed_process_left_in_the_middle_is_left_out_and_counted(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    client = Client(**settings, strategy=save_strategy("strategy lru:2"), share=0.5)
    make_requests(client, 10)
    report = client.report(json=True)
    whole, appended, cut_off = (tmp_path / name for name in ("whole", "appended", "cut_off"))
    whole.write_text(report)
    appended.write_text(f"{report}\n{report[:200]}")
    cut_off.write_text(report[:300])
    result = json.loads(run_rollout_command(whole, appended, cut_off).stdout)["result"]
    assert (result["processes"], result["cut_off_reports"]) == (1, 2)
    assert "too few requests" in result["reason"]
    assert "ends within" in run_rollout_command(cut_off, exit_code=4).stderr


def test_rollout_recommends_to_roll_back_a_bad_strategy(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    client = new_client_of_bad_strategy(settings, save_strategy, 0.5)
    make_requests_of_bad_strategy(client, 2000)
    report_file = tmp_path / "stats.json"
    report_file.write_text(client.report(json=True))
    document = json.loads(run_rollout_command(report_file, exit_code=1).stdout)
    assert document["result"]["recommendation"] == "roll back"
    assert document["result"]["disabled_processes"] == 1
    assert document["error"] is None
    text = run_rollout_command(report_file, exit_code=1, flags=()).stdout
    assert "Recommendation: roll back. Calls 1.00 -> 2.00" in text
    assert "Disabled in a process: calls 1.00 -> 2.00" in " ".join(text.split())


def test_rollout_refuses_what_is_no_report(
    settings: dict[str, Any], save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    report_file, other_file = tmp_path / "stats.json", tmp_path / "other.json"
    assert "cannot open" in run_rollout_command(report_file, exit_code=3).stderr
    for text, reason in (
        ("", "no report"),
        ("{", "not a report"),
        ('{"schema": 9, "rollout": null}', "version 9"),
        (Client(**settings).report(json=True), "runs no strategy"),
    ):
        report_file.write_text(text)
        assert reason in run_rollout_command(report_file, exit_code=4).stderr
    report_file.write_text("")  # by a process that was killed
    other_file.write_text(
        Client(**settings, strategy=save_strategy("strategy lru:1")).report(json=True)
    )
    assert (
        "stats.json: no report" in run_rollout_command(other_file, report_file, exit_code=4).stderr
    )
    for path, lines in ((report_file, "strategy lru:1"), (other_file, "strategy lru:2")):
        path.write_text(Client(**settings, strategy=save_strategy(lines)).report(json=True))
    assert (
        "different strategies: lru:"
        in run_rollout_command(report_file, other_file, exit_code=4).stderr
    )
