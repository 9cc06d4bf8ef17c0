"""Recorded requests: each item as issued, with sizes and parents, from threads, tasks and HTTP servers."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from glasscache import AsyncClient, Client, sim
from glasscache.errors import BadSetting
from glasscache.middleware import RequestASGI, RequestWSGI
from glasscache.migration import MigratingClient
from glasscache.recording import Recorder
from glasscache.server import find_command
from glasscache.telemetry import log_slow_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def read_log(folder: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return the requests in order, and the items by key, of a log of JSON lines."""
    rows: list[dict[str, Any]] = []
    items: dict[str, dict[str, Any]] = {}
    for requests_file in sorted(folder.glob("requests-*.jsonl")):
        rows += [json.loads(line) for line in requests_file.read_text().splitlines()]
        for line in (
            (folder / requests_file.name.replace("requests", "items")).read_text().splitlines()
        ):
            item = json.loads(line)
            first_item_of_key = items.setdefault(item["key"], item)
            first_item_of_key["size"] = item["size"] or first_item_of_key["size"]
    return sorted(rows, key=lambda row: row["request"]), items


def test_a_log_has_each_read_in_order_with_sizes_and_parents(server: Any, tmp_path: Path) -> None:
    client = Client(server.address)
    recorder = client.recorder(tmp_path, parent_of="course:{id}/lesson:{n}", format="jsonl")
    client.set("a", b"x" * 700)
    client.set_many({"b": b"12", "course:1/lesson:2": b"123"})
    with recorder.request(page="course:1/lesson:2", route="lesson"):
        client.get("a")
        client.get_many(iter(["b", "course:1/lesson:2", "absent"]))
        client.gets("a")
        client.set("a", b"new")
        assert client.get(b"a", default="d") == b"new"
    with recorder.request():
        client.get_or_set("made", lambda: b"1234", ttl=60)
    client.get("a")
    client.close()
    rows, items = read_log(tmp_path)
    assert rows[0]["items"][:6] == [
        "a",
        "b",
        "course:1/lesson:2",
        "absent",
        "a",
        "a",
    ]
    assert set(rows[1]["items"]) == {"made"}
    assert rows[0]["page"] == "course:1/lesson:2"
    assert rows[0]["route"] == "lesson"
    assert len(rows) == 2
    assert items["a"]["size"] in {3, 700}
    assert items["b"]["size"] == 2
    assert items["absent"]["size"] is None
    assert items["course:1/lesson:2"]["parent"] == "course:1"
    assert json.loads((tmp_path / "meta.json").read_text())["instances"]["0"]["writes"] >= 1
    stats = recorder.stats()
    assert (stats["requests"], stats["recorded"], stats["dropped"]) == (2, 2, 0)


def test_a_log_has_the_keys_of_each_call_and_what_the_request_waited_and_decoded(
    server: Any, tmp_path: Path
) -> None:
    client = Client(server.address, codec="json", timeout=30)
    recorder = client.recorder(tmp_path, format="jsonl")
    big = {f"{number}": [number] * 20 for number in range(2000)}
    client.set("big", big)
    client.set_many({"a": 1, "b": 2})
    started_at = time.perf_counter()
    with recorder.request():
        assert client.get("big") == big
        client.get_many(["a", "b", "absent"])
        client.set("a", 3)
        time.sleep(0.05)  # no call: not waited for
    request_us = 1e6 * (time.perf_counter() - started_at)
    with recorder.request():
        pass
    client.close()
    rows, _ = read_log(tmp_path)
    assert [(row["calls"], row["writes"]) for row in rows] == [([1, 3], 1), ([], 0)]
    assert 0 < rows[0]["decode_us"] < rows[0]["wait_us"] <= request_us - 50_000
    assert rows[0]["base_us"] >= 50_000
    assert rows[1]["decode_us"] == rows[1]["wait_us"] == 0
    inspected = subprocess.run(
        [find_command(), "inspect", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert inspected.stdout.startswith("Today: 1.5 calls, ")


def test_the_forecast_of_every_strategy_has_the_recorded_time_of_decoding(
    server: Any, tmp_path: Path
) -> None:
    client = Client(server.address, codec="json", timeout=30)
    recorder = client.recorder(tmp_path, format="jsonl")
    client.set("big", {f"{number}": [number] * 20 for number in range(200)})
    for _ in range(800):
        with recorder.request():
            assert client.get("big") is not None
    client.close()
    rows, _ = read_log(tmp_path)
    (tmp_path / "latency.json").write_text(
        '{"unit":"us","single_us":[[1,100]],"batch_us":[[1,100]]}'
    )
    saved = tmp_path / "best.strategy"
    outcomes = sim.simulate(tmp_path, ["remote", "lru:5"])
    for name in ("remote", "lru:5"):
        figures = outcomes[name]["all"]
        decode_ns = 1000 * sum(row["decode_us"] for row in rows)
        assert figures["decode_ns"] == decode_ns > 0
        assert figures["cache_ns"] == figures["added_ns"] + decode_ns
    subprocess.run(
        [find_command(), "simulate", tmp_path, "--strategies", "lru:5", "--save", saved],
        capture_output=True, check=True,
    )  # fmt: skip
    lines = [line.split() for line in saved.read_text().splitlines()]
    (forecast_ms,) = [float(line[2]) for line in lines if line[1:2] == ["decode_ms_mean"]]
    second_half = [row["decode_us"] for row in rows[400:]]
    assert forecast_ms == pytest.approx(sum(second_half) / 400 / 1000, abs=1e-6)


def test_threads_and_tasks_record_their_own_requests(server: Any, tmp_path: Path) -> None:
    with Client(server.address) as client:
        recorder = client.recorder(tmp_path / "threads", format="jsonl")

        def record_requests(thread_number: int) -> None:
            for number in range(50):
                with recorder.request(route=f"{thread_number}"):
                    for read_number in range(number % 4):
                        client.get(f"{thread_number}:{number}:{read_number}")

        threads = [threading.Thread(target=record_requests, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def run_tasks() -> None:
        async with AsyncClient(server.address) as client:
            recorder = client.recorder(tmp_path / "tasks", format="jsonl")

            async def task(number: int) -> None:
                with recorder.request(route=f"{number}"):
                    await client.get(f"{number}:0")
                    await client.get_many([f"{number}:1", f"{number}:2"])
                    await asyncio.sleep(0)
                    await client.get(f"{number}:3")

            await client.set("7:3", b"x" * 30)
            await asyncio.gather(*(task(number) for number in range(100)))

    asyncio.run(run_tasks())
    rows, _ = read_log(tmp_path / "threads")
    assert len(rows) == 200
    for row in rows:
        numbers = {key.rsplit(":", 1)[0] for key in row["items"]}
        assert len(numbers) <= 1
        assert [key.rsplit(":", 1)[1] for key in row["items"]] == [
            str(read_number) for read_number in range(len(row["items"]))
        ]
        assert all(key.split(":")[0] == row["route"] for key in row["items"])
    rows, items = read_log(tmp_path / "tasks")
    assert len(rows) == 100
    for row in rows:
        assert row["items"] == [f"{row['route']}:{read_number}" for read_number in range(4)]
    assert items["7:3"]["size"] == 30


def test_the_calls_by_which_a_value_is_made_are_recorded(server: Any, tmp_path: Path) -> None:
    """The read that misses; to store, the reservation, the look whose it is, and the value."""

    def call_count(client: Client) -> int:
        stats = client.stats()
        return sum(row["calls"] for row in [*stats["by_size"], *stats["by_width"]])

    def make() -> int:
        time.sleep(0.05)  # no call: not waited for
        return 1

    key = f"{uuid.uuid4()}"
    with Client(server.address, timeout=30) as client:
        recorder = client.recorder(tmp_path, format="jsonl")
        calls_before = call_count(client)
        with recorder.request():
            client.get_or_set(key, make, ttl=64)
        calls_of_client = call_count(client) - calls_before

    async def main() -> None:
        async with AsyncClient(server.address, timeout=30) as client:
            recorder = client.recorder(tmp_path / "async", format="jsonl")
            with recorder.request():
                await client.get_or_set(f"{key}-async", make, ttl=64)

    asyncio.run(main())
    assert calls_of_client == 4
    for folder in (tmp_path, tmp_path / "async"):
        (row,), items = read_log(folder)
        assert (row["calls"], row["writes"]) == ([1], 3)
        assert row["base_us"] >= 50_000
        (item,) = items.values()
        assert item["ttl_s"] == 64
        assert "changed" not in json.loads((folder / "meta.json").read_text())


def test_the_ttl_with_which_a_key_is_stored_is_recorded(server: Any, tmp_path: Path) -> None:
    def fill(client: Any) -> list[Any]:
        return [
            client.get_many(["set", "positional", "many", "touched", "for_ever", "delta", "wrong"]),
            client.set("set", 1, ttl=60),
            client.set("positional", 1, 61.5),
            client.set_many({"many": 1, "never_read": 2}, ttl=62),
            client.touch("touched", 63),
            client.set("for_ever", 1, ttl=0),
            client.set("delta", 1, ttl=timedelta(minutes=2)),
            client.delete("made"),
            client.get_or_set("made", lambda: 1, ttl=64),
        ]

    with Client(server.address) as client:
        recorder = client.recorder(tmp_path, format="jsonl")
        with recorder.request():
            fill(client)
            with pytest.raises(TypeError):
                client.set("wrong", 1, ttl="x")  # type: ignore[arg-type]
            with client.pipeline() as pipeline:
                pipeline.get("in_a_pipeline")
                pipeline.set("in_a_pipeline", 1, 65)

    async def main() -> None:
        async with AsyncClient(server.address) as client:
            recorder = client.recorder(tmp_path / "async", format="jsonl")
            with recorder.request():
                for call in fill(client):
                    await call

    asyncio.run(main())
    expected = {
        "set": 60, "positional": 62, "many": 62, "touched": 63, "for_ever": None, "delta": 120,
        "wrong": None, "made": 64,
    }  # fmt: skip
    _, items = read_log(tmp_path)
    assert items.pop("in_a_pipeline")["ttl_s"] == 65
    assert {key: item.get("ttl_s") for key, item in items.items()} == expected
    _, items = read_log(tmp_path / "async")
    assert {key: item.get("ttl_s") for key, item in items.items()} == expected


def test_calls_of_pipelines_are_recorded_in_order_with_sizes(server: Any, tmp_path: Path) -> None:
    with Client(server.address) as client:
        recorder = client.recorder(
            tmp_path, format="jsonl", parent_of=lambda key: "ab" if key == "abc" else None
        )
        client.set_many({"ab": b"x" * 700, "abc": b"12", "d": b"123"})
        with client.pipeline() as pipeline:
            pipeline.get("outside")
        with recorder.request():
            with client.pipeline() as pipeline:
                pipeline.get("d")
                pipeline.set("new", b"1")
                pipeline.get_many(["abc", "absent"])
                pipeline.gets("ab")
                pipeline.incr("number")
                pipeline.gat("d", 60)
            assert pipeline.results[0] == pipeline.results[-1] == b"123"
            with client.pipeline() as pipeline:
                pipeline.delete("new")
            with pytest.raises(TypeError), client.pipeline() as pipeline:
                pipeline.get(7)  # type: ignore[arg-type]

    async def main() -> None:
        async with AsyncClient(server.address) as client:
            recorder = client.recorder(tmp_path / "async", format="jsonl")
            with recorder.request():
                async with client.pipeline() as pipeline:
                    pipeline.get("d")
                    pipeline.get_many(["abc", "absent"])
                    pipeline.gets("ab")

    asyncio.run(main())
    rows, items = read_log(tmp_path)
    assert [row["items"] for row in rows] == [["d", "abc", "absent", "ab", "d"]]
    assert {key: item["size"] for key, item in items.items()} == {
        "d": 3, "abc": 2, "ab": 700, "absent": None,
    }  # fmt: skip
    assert items["abc"]["parent"] == "ab"
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert meta["instances"]["0"]["writes"] == 3
    rows, _ = read_log(tmp_path / "async")
    assert [row["items"] for row in rows] == [["d", "abc", "absent", "ab"]]


def test_calls_of_a_request_that_is_not_recorded_belong_to_none_around_it(
    server: Any, tmp_path: Path
) -> None:
    with Client(server.address) as client:
        recorder = client.recorder(tmp_path / "log", format="jsonl", sample=0.5)
        for number in range(100):
            outer, inner = f"outer{number}", f"inner{number}"
            with recorder.request(route=outer):
                client.get(outer)
                with pytest.raises(ZeroDivisionError), recorder.request(route=inner):
                    client.get(inner)
                    client.get_many([inner])
                    _ = 1 / 0
                client.gets(outer)
            client.get("after")
    rows, _ = read_log(tmp_path / "log")
    assert 0 < len(rows) < 200
    assert [row["items"] for row in rows] == [[row["route"]] * 2 for row in rows]


def test_blocks_of_requests_that_are_not_recorded_are_entered_in_every_way(
    server: Any, tmp_path: Path
) -> None:
    with Client(server.address) as client:
        recorder = client.recorder(tmp_path / "none", sample=0.0)
        assert recorder.request() is recorder.request(page="k", route="page")
        with ExitStack() as stack:
            assert stack.enter_context(client.request(route="page")) is None
            stack.enter_context(recorder.request())
            client.get("k")
        with pytest.raises(ZeroDivisionError), recorder.request():
            _ = 1 / 0
        assert recorder.stats()["requests"] == 5
    with Client(server.address) as client:
        recorder = client.recorder(tmp_path / "all", format="jsonl")
        with ExitStack() as stack:
            stack.enter_context(recorder.request(route="first"))
            client.get("a")
            block = stack.enter_context(ExitStack()).enter_context(client.request())
            assert block is None
            client.get("b")
        block_of_two_requests = recorder.request()
        for key in ("c", "d"):
            with block_of_two_requests:
                client.get(key)
        client.get("outside")
    rows, _ = read_log(tmp_path / "all")
    assert [row["items"] for row in rows] == [["a"], ["b"], ["c"], ["d"]]


def test_the_size_of_a_value_is_recorded_whatever_stands_before_the_client(
    server: Any, tmp_path: Path
) -> None:
    text = "".join(chr(0x4E00 + number * number % 20_000) for number in range(2000))
    with Client(server.address) as client:
        text_bytes = len(client.encode(text)[1])
        client.set_many({"short": "x" * 7, "long": text, "nested": b"123"})
        recorder = client.recorder(tmp_path / "plain", format="jsonl")
        with recorder.request():
            assert client.get("long") == text
            assert client.get_many(["short", "nested"]) == {"short": "x" * 7, "nested": b"123"}
            assert client.get("absent") is None
        client.get("short")
    moved = Client("127.0.0.1:1", gutter=server.address)
    recorder = Recorder(tmp_path / "moved", format="jsonl")
    recorder.attach(moved)
    with recorder.request():
        assert moved.get("long") == text
        assert moved.get("nested") == b"123"
    moved.close()
    _, items = read_log(tmp_path / "plain")
    expected = {"long": text_bytes, "short": 7, "nested": 3, "absent": None}
    assert {key: item["size"] for key, item in items.items()} == expected
    _, items = read_log(tmp_path / "moved")
    assert {key: item["size"] for key, item in items.items()} == {
        "long": text_bytes,
        "nested": 3,
    }


def test_every_awaited_read_is_recorded_while_other_tasks_record_nothing(
    server: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as client:
            recorder = client.recorder(tmp_path, format="jsonl")

            async def read_all() -> None:
                await client.get("get")
                await client.get_many(iter(["many", "many"]))
                await client.gets("gets")
                await client.gat("gat", 60)
                await client.get_with_meta(key="meta")
                await client.gets_many(["gets_many"])

            async def record_request() -> None:
                with recorder.request():
                    await read_all()

            await asyncio.gather(read_all(), record_request(), read_all(), record_request())

    asyncio.run(main())
    rows, _ = read_log(tmp_path)
    expected = ["get", "many", "many", "gets", "gat", "meta", "gets_many"]
    assert [row["items"] for row in rows] == [expected, expected]


def test_http_requests_are_recorded(server: Any, tmp_path: Path) -> None:
    with Client(server.address) as client:
        client.recorder(tmp_path, format="jsonl")

        def application(environ: dict[str, Any], start_response: Any) -> Any:
            client.get("wsgi")
            start_response("200 OK", [])
            yield b"one"
            client.get("while-streaming")

        wsgi = RequestWSGI(application, client, route=lambda environ: environ["PATH_INFO"])
        assert list(wsgi({"PATH_INFO": "/w"}, lambda *_: None)) == [b"one"]

        async def app(scope: Any, _receive: Any, _send: Any) -> None:
            client.get(scope["type"])

        asgi = RequestASGI(app, client, page=lambda _: "p", route=lambda _: "/a")
        asyncio.run(asgi({"type": "http"}, None, None))
        asyncio.run(asgi({"type": "lifespan"}, None, None))
    rows, _ = read_log(tmp_path)
    assert [(row["route"], row["items"]) for row in rows] == [
        ("/w", ["wsgi", "while-streaming"]),
        ("/a", ["http"]),
    ]
    assert rows[1]["page"] == "p"


def test_a_request_that_is_not_recorded_is_the_application_s_own_and_its_route_is_not_named(
    server: Any, tmp_path: Path
) -> None:
    named: list[Any] = []
    body = [b"one"]

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        client.get("asgi")

    with Client(server.address) as client:
        for sample in (None, 0.0):
            recorder = None if sample is None else client.recorder(tmp_path, sample=sample)
            assert RequestWSGI(lambda *_: body, client, route=named.append)({}, None) is body
            asyncio.run(RequestASGI(app, client, route=named.append)({"type": "http"}, None, None))
        assert recorder is not None
        assert (recorder.stats()["requests"], recorder.stats()["recorded"]) == (2, 0)
    assert named == []


WORKERS_PROGRAM = """
import multiprocessing, sys
from glasscache import Client
address, folder = sys.argv[1:]
def work():
    client = Client(address, timeout=5)
    client.recorder(folder, format="jsonl")
    with client.request():
        client.get("k")
workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""


def test_a_worker_of_multiprocessing_that_ends_completes_its_log(
    server: Any, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", WORKERS_PROGRAM, server.address, str(tmp_path)]
    subprocess.run(command, check=True, timeout=60)
    rows, _ = read_log(tmp_path)
    assert [row["items"] for row in rows] == [["k"], ["k"]]


@pytest.mark.parametrize(
    "name_function", [lambda _: 1 / 0, lambda _: 5, lambda _: "not a key " * 30]
)
def test_a_page_or_route_function_that_fails_fails_no_request(
    server: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name_function: Callable[[Any], Any],
) -> None:
    strategy_file = tmp_path / "best.strategy"
    strategy_file.write_text("glasscache-strategy 1\nstrategy lru:10\n")
    with Client(server.address, strategy=strategy_file) as client:
        client.recorder(tmp_path / "log", format="jsonl")

        def application(_environ: dict[str, Any], _start_response: Any) -> Any:
            yield str(client.get("absent")).encode()

        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            client.get("absent")

        wsgi = RequestWSGI(application, client, page=name_function, route=name_function)
        asgi = RequestASGI(app, client, page=name_function, route=name_function)
        for _ in range(3):
            assert list(wsgi({}, None)) == [b"None"]
            asyncio.run(asgi({"type": "http"}, None, None))
    rows, _ = read_log(tmp_path / "log")
    assert [row["items"] for row in rows] == [["absent"]] * 6
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(set(messages)) * 2 <= 4, "each middleware logs each function once"


DJANGO_PROGRAM = """
import asyncio, sys
from django.conf import settings
address, folder, other_folder = sys.argv[1:]
def cache_of(folder):
    options = {"timeout": 5, "recorder": {"folder": folder, "format": "jsonl"}}
    backend = "glasscache.contrib.django.GlassCache"
    return {"BACKEND": backend, "LOCATION": address, "OPTIONS": options}
settings.configure(
    SECRET_KEY="s", ALLOWED_HOSTS=["*"], ROOT_URLCONF="__main__",
    MIDDLEWARE=["glasscache.contrib.django.request_middleware"],
    CACHES={"default": cache_of(folder), "other": cache_of(other_folder)},
)
import django
django.setup()
from django.core.cache import cache, caches
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

def view(request):
    found = cache.get("k"), caches["other"].get("o"), cache.get_many(["l", "k"])
    return HttpResponse(str(found))

async def aview(request):
    found = await cache.aget("k"), await caches["other"].aget("o"), await cache.aget("m")
    return HttpResponse(str(found))

urlpatterns = [path("page", view), path("apage", aview)]
cache.set("k", "text")
assert Client().get("/page").status_code == 200
async def awaited():
    for _ in range(2):
        assert (await AsyncClient().get("/apage")).status_code == 200
asyncio.run(awaited())
asyncio.run(awaited())
assert Client().get("/page").status_code == 200
"""


def test_a_django_site_records_by_its_options_and_middleware_each_cache_in_its_own_log(
    server: Any, tmp_path: Path
) -> None:
    pytest.importorskip("django")
    folders = [tmp_path / "default", tmp_path / "other"]
    command = [sys.executable, "-c", DJANGO_PROGRAM, server.address, *map(str, folders)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert completed.returncode == 0, completed.stderr
    rows, items = read_log(folders[0])
    page_row, awaited_row = ("page", [":1:k", ":1:l", ":1:k"]), ("apage", [":1:k", ":1:m"])
    assert [(row["route"], row["items"]) for row in rows] == [
        page_row,
        *[awaited_row] * 4,
        page_row,
    ]
    assert items[":1:k"]["size"] == 4
    rows, _ = read_log(folders[1])
    routes = ["page", *["apage"] * 4, "page"]
    assert [(row["route"], row["items"]) for row in rows] == [(route, [":1:o"]) for route in routes]


@pytest.mark.parametrize("sample", [0.0, 1.0])
def test_two_recorders_record_the_gets_of_their_own_clients(
    server: Any, tmp_path: Path, sample: float
) -> None:
    def check_logs(kind: str) -> None:
        first_rows, second_rows = (read_log(tmp_path / kind / name)[0] for name in ("one", "two"))
        assert [(row["route"], row["items"]) for row in first_rows] == [("outer", ["a", "b", "c"])]
        expected_inner_rows = [("inner", ["x", "y"])] if sample else []
        assert [(row["route"], row["items"]) for row in second_rows] == expected_inner_rows

    with Client(server.address) as first_client, Client(server.address) as second_client:
        first_recorder = first_client.recorder(tmp_path / "blocking" / "one", format="jsonl")
        second_recorder = second_client.recorder(
            tmp_path / "blocking" / "two", format="jsonl", sample=sample
        )
        with first_recorder.request():
            with second_recorder.request(route="inner"):
                first_client.get("a")
                second_client.get("x")
                first_client.get_many(["b"])
                second_client.get_many(["y"])
            first_client.get("c")
            second_client.get("outside")
            first_recorder.set_route("outer")
    check_logs("blocking")

    async def run() -> None:
        async with (
            AsyncClient(server.address) as first_client,
            AsyncClient(server.address) as second_client,
        ):
            first_recorder = first_client.recorder(tmp_path / "async" / "one", format="jsonl")
            second_recorder = second_client.recorder(
                tmp_path / "async" / "two", format="jsonl", sample=sample
            )
            with first_recorder.request():
                with second_recorder.request(route="inner"):
                    await asyncio.gather(first_client.get("a"), second_client.get("x"))
                    await asyncio.gather(
                        first_client.get_many(["b"]), second_client.get_many(["y"])
                    )
                await first_client.get("c")
                await second_client.get("outside")
                first_recorder.set_route("outer")

    asyncio.run(run())
    check_logs("async")


def test_a_folder_that_cannot_be_written_warns_once_and_fails_no_request(
    server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with Client(server.address) as client, caplog.at_level(logging.WARNING, "glasscache"):
        recorder = client.recorder(tmp_path / "file")
        for _ in range(20):
            with recorder.request():
                assert client.get("absent") is None
    warnings = [record for record in caplog.records if "recording into" in record.getMessage()]
    assert len(warnings) == 1
    stats = recorder.stats()
    assert stats["dropped"] + stats["recorded"] == 20
    assert stats["recorded"] == 0


def test_invalid_settings_of_a_recorder_are_refused(server: Any, tmp_path: Path) -> None:
    for wrong_settings in (
        {"sample": 2},
        {"format": "csv"},
        {"parent_of": "no-slash"},
        {"rotate_seconds": 0},
        {"rotate_seconds": -1},
    ):
        with pytest.raises(BadSetting):
            Recorder(tmp_path / "log", **wrong_settings)  # type: ignore[arg-type]
    with Client(server.address) as client:
        client.recorder(tmp_path / "log")
        with pytest.raises(BadSetting):
            client.recorder(tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_a_parent_function_that_fails_is_left_out(server: Any, tmp_path: Path) -> None:
    with Client(server.address) as client:
        recorder = client.recorder(
            tmp_path, format="jsonl", parent_of=lambda key: key[:-1] if len(key) > 1 else None
        )
        with recorder.request():
            client.get("ab")
            client.get(b"raw")
    rows, items = read_log(tmp_path)
    assert rows[0]["items"] == ["ab", "raw"]
    assert items["ab"]["parent"] == "a"
    assert items["raw"]["parent"] == "ra"


def test_an_error_of_the_iterator_of_keys_reaches_the_caller(server: Any, tmp_path: Path) -> None:
    def failing_keys(error: type[Exception]) -> Iterator[str]:
        yield "a"
        raise error("of the caller")

    with Client(server.address) as client:
        recorder = client.recorder(tmp_path, format="jsonl")
        client.set("a", b"1")
        with recorder.request():
            for error in (KeyError, TypeError, ValueError):
                with pytest.raises(error, match="of the caller"):
                    client.get_many(failing_keys(error))
            assert client.get_many(iter(["a"])) == {"a": b"1"}
            with pytest.raises(TypeError):
                client.get_many([1])  # type: ignore[type-var]


@pytest.mark.parametrize("parent", [7, "no UTF-8: \udcff"])
def test_a_parent_function_that_returns_no_key_is_left_out(
    server: Any, tmp_path: Path, parent: Any
) -> None:
    with Client(server.address) as client:
        recorder = client.recorder(tmp_path, format="jsonl", parent_of=lambda _key: parent)
        with recorder.request():
            client.get("a")
            client.get_many(["b"])
    rows, items = read_log(tmp_path)
    assert rows[0]["items"] == ["a", "b"]
    assert items["a"]["parent"] is None


def parent_before_slash(key: str) -> str | None:
    return key.rpartition("/")[0] or None


@pytest.mark.parametrize("parent_of", ["{a}/{b}", parent_before_slash])
def test_a_parent_that_a_call_names_comes_before_parent_of(
    server: Any, tmp_path: Path, parent_of: str | Callable[[str], str | None]
) -> None:
    with Client(server.address) as client:
        recorder = client.recorder(tmp_path / "sync", format="jsonl", parent_of=parent_of)
        client.get("p/3", parent="unrecorded")
        with recorder.request():
            client.get("p/1")
            client.get("p/1", parent="course")
            assert client.get("p/2", "d", deadline=5, parent=b"course") == "d"
            client.get("p/2")
            client.get("p/3", parent=None)
            client.get_many(iter(["p/4", "other"]), parent="course")
            client.get_many(keys=["p/5"])
        client.get("p/3", parent="unrecorded")

    async def main() -> None:
        async with AsyncClient(server.address) as client:
            recorder = client.recorder(tmp_path / "async", format="jsonl", parent_of=parent_of)
            await client.get("p/3", parent="unrecorded")
            with recorder.request():
                await client.get("p/1")
                await client.get("p/1", parent="course")
                assert await client.get("p/2", "d", deadline=5, parent=b"course") == "d"
                await client.get("p/2")
                await client.get("p/3", parent=None)
                await client.get_many(iter(["p/4", "other"]), parent="course")
                await client.get_many(keys=["p/5"])
            await client.get("p/3", parent="unrecorded")

    asyncio.run(main())
    for client_kind in ("sync", "async"):
        rows, items = read_log(tmp_path / client_kind)
        expected_keys = ["p/1", "p/1", "p/2", "p/2", "p/3", "p/4", "other", "p/5"]
        assert [row["items"] for row in rows] == [expected_keys]
        assert {key: item["parent"] for key, item in items.items()} == {
            "p/1": "course", "p/2": "course", "p/3": "p", "p/4": "course", "other": "course", "p/5": "p",
            "course": None, "p": None,
        }  # fmt: skip
        assert items["course"]["size"] is None


def test_what_cannot_be_a_parent_is_refused_recorded_or_not(server: Any, tmp_path: Path) -> None:
    refusal = "a parent is a key, str or bytes, or None, not"
    number_as_parent, list_as_parent = cast("Any", 7), cast("Any", ["p"])

    def read_with_parents(client: Client) -> None:
        with pytest.raises(TypeError, match=f"{refusal} int"):
            client.get("a", parent=number_as_parent)
        with pytest.raises(TypeError, match=f"{refusal} list"):
            client.get_many(["a"], parent=list_as_parent)
        client.get("b")

    with Client(server.address) as client:
        read_with_parents(client)
        recorder = client.recorder(tmp_path / "sync", format="jsonl")
        read_with_parents(client)
        with recorder.request():
            read_with_parents(client)

    async def read_async(client: AsyncClient) -> None:
        with pytest.raises(TypeError, match=f"{refusal} int"):
            await client.get("a", parent=number_as_parent)
        with pytest.raises(TypeError, match=f"{refusal} list"):
            await client.get_many(["a"], parent=list_as_parent)
        await client.get("b")

    async def main() -> None:
        async with AsyncClient(server.address) as client:
            await read_async(client)
            recorder = client.recorder(tmp_path / "async", format="jsonl")
            await read_async(client)
            with recorder.request():
                await read_async(client)

    asyncio.run(main())
    for client_kind in ("sync", "async"):
        rows, _ = read_log(tmp_path / client_kind)
        assert [row["items"] for row in rows] == [["b"]]


def test_what_wraps_a_client_passes_a_parent_on(server: Any, tmp_path: Path) -> None:
    (tmp_path / "best.strategy").write_text("glasscache-strategy 1\nstrategy lru:10\n")
    clients = {
        "moved": Client("127.0.0.1:1", gutter=server.address),
        "near": Client(server.address, strategy=tmp_path / "best.strategy"),
        "migrating": MigratingClient(server.address, old={"placement": "modula"}),
        "slow": Client(server.address),
    }
    for name, client in clients.items():
        if name == "slow":
            log_slow_calls(client, threshold=60)
        recorder = Recorder(tmp_path / name, format="jsonl")
        recorder.attach(client)
        client.set("k", b"v")
        with recorder.request():
            assert client.get("k", parent="p") == b"v"
            assert client.get_many(["k", "l"], parent="p") == {"k": b"v"}
            assert client.tagged("t").get("m", parent="p") is None
        client.close()
        _, items = read_log(tmp_path / name)
        children = {key for key, item in items.items() if item["parent"] == "p"}
        assert {"k", "l"} < children, name
        assert len(children) == 3, name


def test_a_page_that_is_no_key_is_refused_recorded_or_not(server: Any, tmp_path: Path) -> None:
    for sample in (0.0, 1.0):
        with Client(server.address) as client:
            recorder = client.recorder(tmp_path / str(sample), sample=sample)
            with pytest.raises(TypeError, match="a key is str or bytes"):
                recorder.request(page=5)  # type: ignore[arg-type]


def test_a_request_left_in_another_context_is_written_all_the_same(
    server: Any, tmp_path: Path
) -> None:
    with Client(server.address) as client:
        recorder = client.recorder(tmp_path / "log")
        request_block = recorder.request(route="page")
        context = contextvars.copy_context()
        context.run(request_block.__enter__)
        context.run(client.get, "k")
        request_block.__exit__(None, None, None)
        recorder.close()
        assert recorder.stats()["recorded"] == 1


def test_the_costs_of_recording_are_measured(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "bench" / "recording.py"
    command = [sys.executable, str(script), "--rounds", "1", "--requests", "100"]
    completed = subprocess.run(
        [*command, "--keep", str(tmp_path / "figures.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    assert len(json.loads((tmp_path / "figures.json").read_text())) > 0


def test_a_log_without_its_requests_is_not_complete(server: Any, tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    with Client(server.address) as client:
        recorder = client.recorder(not_a_folder)
        for _ in range(3):
            with recorder.request():
                client.get("k")
            time.sleep(0.01)
        assert recorder.close() is False
        assert recorder.stats()["dropped"] > 0
    with Client(server.address) as client:
        recorder = client.recorder(tmp_path / "log")
        with recorder.request():
            client.get("k")
        assert recorder.close() is True


def test_the_size_of_the_first_read_of_a_connection_is_recorded(
    server: Any, tmp_path: Path
) -> None:
    with Client(server.address) as writer:
        writer.set("first", "x" * 700)
        writer.set("second", "x" * 800)
    folder = tmp_path / "log"

    async def read_both() -> None:
        async with AsyncClient(server.address, timeout=10) as client:
            recorder = client.recorder(folder, format="jsonl")
            for key in ("first", "second"):
                with recorder.request():
                    await asyncio.gather(client.get(key), client.get("none"))
            assert recorder.close()

    asyncio.run(read_both())
    text = "".join(path.read_text() for path in folder.iterdir())
    assert "700" in text
    assert "800" in text
