"""The course catalogue of `examples/catalogue`: the whole loop, small, and its pages."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import Client, lab

if TYPE_CHECKING:
    from glasscache import Server

FOLDER = Path(__file__).parents[2] / "examples" / "catalogue"

ANY_ERROR_PERCENT = "1e15"
"""A tolerance that no error exceeds, even if the forecast is a nanosecond and the machine stops."""


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the catalogue as its folder does."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import catalogue
    import catalogue_app
    import visitors

    return catalogue_app, catalogue, visitors


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_loop_records_simulates_deploys_replays_and_checks(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    # No time decides: the counts of the replay must be those of the forecast.
    size_options = ["--topics", "400", "--requests", "240", "--within", *[ANY_ERROR_PERCENT] * 2]
    completed = subprocess.run(
        [sys.executable, str(FOLDER / "loop.py"), *size_options, "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    lines = [line.split(maxsplit=3) for line in completed.stdout.splitlines()]
    steps = [line[2] for line in lines if line[2].isalpha() and line[2] != "forecast"]
    assert steps == [
        "database",
        "record",
        "simulate",
        "deploy",
        "replay",
        "check",
        "page",
        "relay",
        "page",
    ]
    assert "0 wrong pages or missing keys" in completed.stdout
    assert completed.stdout.count("calls, keys, bytes and used keys are those of the forecast") == 2
    for page_file in ("replay.html", "replay-relay.html"):
        assert (folder / page_file).read_text().endswith("</html>\n")
    # Without the strategy, with it, and with it through the relay.
    assert len(list((folder / "log").glob("forecast-*.json"))) == 3


def test_a_relay_passes_everything_on_with_delays_of_the_table(
    modules: Any, server: Server
) -> None:
    import relay

    rng = random.Random(1)
    delays_ms = sorted(1e3 * relay.draw_delay_s(rng) for _ in range(10_001))
    for percent, expected_ms in relay.DELAY_MS_BY_PERCENT:
        assert delays_ms[percent * 100] == pytest.approx(expected_ms, rel=0.1)
    with (
        relay.Relay(server.address) as relay_between,
        Client(relay_between.address, timeout=60) as client,
    ):
        values = {f"relay:{number}": bytes(number) for number in (1, 1000, 500_000)}
        client.set_many(values)
        assert client.get_many(values) == values
        started_at = time.monotonic()
        assert client.get("relay:1") == bytes(1)
        assert time.monotonic() - started_at >= relay.DELAY_MS_BY_PERCENT[0][1] / 1e3


def test_a_relay_passes_the_end_of_a_connection_on_in_both_directions(modules: Any) -> None:
    import relay

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        port = listener.getsockname()[1]
        with relay.Relay(f"127.0.0.1:{port}") as relay_between:
            host, _, relay_port = relay_between.address.rpartition(":")
            for first_to_close in (0, 1):
                client = socket.create_connection((host, int(relay_port)), 60)
                upstream, _ = listener.accept()
                upstream.settimeout(60)
                sockets_in_closing_order = (
                    (client, upstream) if first_to_close == 0 else (upstream, client)
                )
                sockets_in_closing_order[0].close()
                assert sockets_in_closing_order[1].recv(1) == b""
                sockets_in_closing_order[1].close()


def test_a_page_shows_the_topics_above_and_below_and_is_the_same_under_a_strategy(
    modules: Any, server: Server, tmp_path: Path
) -> None:
    catalogue_app, catalogue, visitors = modules
    database_file, strategy_file = tmp_path / "c.db", tmp_path / "s.strategy"
    catalogue.create(database_file, 200)
    strategy_file.write_text(
        "glasscache-strategy 1\nstrategy lru:9+children\nchild topic:0 topic:0/0\n"
    )
    environment_without_strategy = {
        "CATALOGUE_FILE": str(database_file),
        "CATALOGUE_CACHE": server.address,
    }

    async def read_pages(environment: dict[str, str]) -> list[str | None]:
        topic_pages = catalogue_app.pages_from_environment(environment)
        paths = [*visitors.visited_paths(topic_pages, 20, seed=1), "0", "0/0"]
        statuses = [
            await visitors.request_page(catalogue_app.application(topic_pages), path)
            for path in [*paths, "0/x"]
        ]
        assert statuses == [200] * len(paths) + [404]
        page_texts = [await topic_pages._page(path) for path in paths]
        await topic_pages.client.close()
        topic_pages.catalogue.close()
        return page_texts

    pages_without_strategy = asyncio.run(read_pages(environment_without_strategy))
    assert (
        asyncio.run(
            read_pages({**environment_without_strategy, "CATALOGUE_STRATEGY": str(strategy_file)})
        )
        == pages_without_strategy
    )
    assert "<p>Topic 0<h1>Topic 0/0</h1>" in str(pages_without_strategy[-1])
    assert "<li>Topic 0/0: " in str(pages_without_strategy[-2])


DJANGO_PROGRAM = """
import sys
folder, file, server, log, strategy, *paths = sys.argv[1:]
sys.path.insert(0, folder)
from django.conf import settings
options = {"timeout": 5}
if strategy != "-":
    options |= {"strategy": strategy, "near_ttl": 3600}
settings.configure(
    SECRET_KEY="s", ALLOWED_HOSTS=["*"], ROOT_URLCONF="__main__",
    MIDDLEWARE=["glasscache.contrib.django.request_middleware"],
    CACHES={"default": {
        "BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": server, "OPTIONS": options,
    }},
)
import django
django.setup()
from catalogue import Catalogue, ancestors, key_of, parent_of
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client
from django.urls import path as route

topics = Catalogue(file)

def topic(path):
    return cache.get_or_set(key_of(path), lambda: topics.topic(path), 3600)

def view(request, path):
    shown = topic(path)
    above = [topic(each)["title"] for each in ancestors(path)]
    return HttpResponse(" / ".join([*above, *(topic(each)["title"] for each in shown["below"])]))

urlpatterns = [route("topic/<path:path>", view)]
client = cache._cache.client
if log != "-":
    client.recorder(log, format="jsonl", parent_of=parent_of)
for path in paths:
    assert Client().get(f"/topic/{path}").status_code == 200
if strategy != "-":
    print(client.near_stats()["calls"])
client.close()
"""


def test_a_django_site_of_the_catalogue_makes_the_calls_that_were_forecast(
    modules: Any, server: Server, tmp_path: Path
) -> None:
    pytest.importorskip("django")
    _, catalogue, _ = modules
    database_file, log_folder, strategy_file = (
        tmp_path / "c.db",
        tmp_path / "log",
        tmp_path / "s.strategy",
    )
    catalogue.create(database_file, 300)
    open_catalogue = catalogue.Catalogue(database_file)
    paths = ["0", "1", "0/1", "0/1", "2", "0/1/0", "0", "1/2", "3", "0/1/0", "2", "4"]

    def run_django_site(*files: Path | str) -> str:
        arguments = [
            str(argument) for argument in (FOLDER, database_file, server.address, *files, *paths)
        ]
        command = [sys.executable, "-c", DJANGO_PROGRAM, *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    run_django_site("-", "-")
    run_django_site(log_folder, "-")
    (log_part,) = log_folder.glob("requests-*.jsonl")
    rows = [json.loads(line) for line in log_part.read_text().splitlines()]

    def expected_items(path: str) -> list[str]:
        read_paths = [path, *catalogue.ancestors(path), *open_catalogue.children_of(path)]
        return [f":1:{catalogue.key_of(read_path)}" for read_path in read_paths]

    assert [row["items"] for row in rows] == [expected_items(path) for path in paths]
    assert {row["route"] for row in rows} == {"topic/<path:path>"}
    (log_folder / "latency.json").write_text('{"unit":"us","single_us":[[1,9]],"batch_us":[[1,9]]}')
    strategy_name = "fixed:3+lru:20+children"
    forecast = lab.simulate(log_folder, strategies=[strategy_name], save=strategy_file)[
        "strategies"
    ][strategy_name]["all"]
    assert int(run_django_site("-", strategy_file)) == forecast["calls"]
    assert forecast["calls"] < forecast["used_keys"]


def test_visitors_are_the_same_for_a_seed_and_prefer_some_topics(
    modules: Any, server: Server, tmp_path: Path
) -> None:
    catalogue_app, catalogue, visitors = modules
    catalogue.create(tmp_path / "c.db", 2000)
    environment = {"CATALOGUE_FILE": str(tmp_path / "c.db"), "CATALOGUE_CACHE": server.address}
    pages = catalogue_app.pages_from_environment(environment)
    paths = list(visitors.visited_paths(pages, 2000, seed=5))
    assert paths == list(visitors.visited_paths(pages, 2000, seed=5))
    assert paths != list(visitors.visited_paths(pages, 2000, seed=6))
    visit_counts = sorted((paths.count(path) for path in set(paths)), reverse=True)
    assert sum(visit_counts[:20]) > 2000 / 5  # a fifth of the visits are to one in a hundred topics
    assert {path.count("/") for path in paths} >= {0, 1, 2, 3}
    pages.catalogue.close()
