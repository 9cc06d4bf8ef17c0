"""A client with a strategy: what it serves from the process, what a request fetches, and how fresh it is."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from faulty_server import FaultyServer, value_of
from glasscache import AsyncClient, Client, _split
from glasscache.cached import cached
from glasscache.errors import BadSetting, RequestRefused, ServerUnavailable
from glasscache.middleware import RequestASGI, RequestWSGI
from glasscache.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    SaveStrategy = Callable[[str], str]


def test_a_value_from_the_process_is_made_anew_for_each_read(
    server: Any, save_strategy: SaveStrategy, namespace: str
) -> None:
    client = Client(server.address, namespace=namespace, strategy=save_strategy("strategy lru:10"))
    values = {
        "dict": {"a": [1]},
        "list": [1, {2: 3}],
        "bytes": b"b",
        "str": "s",
        "int": 7,
        "none": None,
    }
    client.set_many(values)
    for key, value in values.items():
        first_copy = client.get(key)
        assert first_copy == value
        if isinstance(first_copy, dict):
            first_copy["a"].append(2)
        elif isinstance(first_copy, list):
            first_copy[1].clear()
        second_copy = client.get(key)
        assert second_copy == value
        assert type(second_copy) is type(value)
    stats = client.near_stats()
    assert (stats["calls"], stats["near_hits"], stats["near_items"]) == (6, 6, 6)
    assert client.stats()["near_hits"] == 6
    assert client.get("nobody", "default") == "default"
    assert client.get_many(["dict", "nobody"]) == {"dict": {"a": [1]}}


def test_own_writes_are_seen_at_once_and_those_of_others_after_near_ttl(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    strategy_file = save_strategy("strategy s3fifo:10")
    client = Client(server.address, namespace=namespace, strategy=strategy_file, near_ttl=0.2)
    client.set("k", "old")
    assert client.get("k") == "old"
    client.set("k", "own")
    assert client.get("k") == "own"
    other_client.set("k", "other's")
    assert client.get("k") == "own"
    pause = threading.Event()
    while client.get("k") != "other's":
        pause.wait(0.01)
    client.delete("k")
    assert client.get("k") is None


def test_a_request_fetches_what_belongs_together_and_no_key_twice(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    other_client.set_many({key: key.upper() for key in "abcdef"})
    lines = "strategy fixed:1+subtree:1+children\nkey f\nchild a b\nchild a c\nchild c d\n"
    client = Client(server.address, namespace=namespace, strategy=save_strategy(lines))
    with client.request(page="a"):
        assert [client.get(key) for key in "abcdefa"] == list("ABCDEFA")
        assert client.get_many(["b", "nobody"]) == {"b": "B"}
        client.set("a", "own")
        assert client.get("a") == "own"
    stats = client.near_stats()
    # "a b c"; "d" with c, which is held; "e"; "nobody"; and "a" after the write, whose children are held.
    assert (stats["calls"], stats["keys"], stats["kept_calls"]) == (5, 7, 1)
    assert stats["fixed_hits"] == 1
    calls_before = client.near_stats()["calls"]
    client.get("a")
    client.get("a")
    assert client.near_stats()["calls"] == calls_before + 2, "outside a request nothing is held"


def test_a_strategy_over_binary_warns_once_that_it_keeps_nothing(
    server: Any, save_strategy: SaveStrategy, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "namespace": namespace,
        "protocol": "binary",
        "strategy": save_strategy("strategy lru:10"),
    }
    client = Client(server.address, **settings)
    client.set("k", 1)
    assert [client.get("k") for _ in range(3)] == [1, 1, 1]

    async def read() -> list[int | None]:
        async with AsyncClient(server.address, **settings) as async_client:
            return [await async_client.get("k") for _ in range(3)]

    assert asyncio.run(read()) == [1, 1, 1]
    assert client.near_stats()["near_hits"] == 0
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2, "one of each client"
    assert all("without their TTLs" in warning for warning in warnings)


def test_children_are_those_that_the_application_names(
    server: Any,
    save_strategy: SaveStrategy,
    namespace: str,
    other_client: Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other_client.set_many({"a": 1, "b": 2, "c": 3})

    def children_of(key: str) -> list[str]:
        return {"a": ["b"]}[key]

    client = Client(
        server.address,
        namespace=namespace,
        strategy=save_strategy("strategy children"),
        children_of=children_of,
    )
    with client.request():
        assert (client.get("a"), client.get("b")) == (1, 2)
        assert client.near_stats()["calls"] == 1
        assert client.get("c") == 3
    assert "children_of failed" in caplog.text


@pytest.mark.parametrize(
    "children_of", [lambda _: 1 / 0, lambda _: None, lambda _: [5], lambda _: "abc"]
)
def test_a_children_function_that_fails_is_logged_once_and_fails_no_read(
    server: Any,
    save_strategy: SaveStrategy,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
    children_of: Any,
) -> None:
    client = Client(
        server.address,
        namespace=namespace,
        strategy=save_strategy("strategy children"),
        children_of=children_of,
    )
    for _ in range(2):
        with client.request():
            assert client.get_many(["k", "l"]) == {}
    assert client.near_stats()["keys"] == 4
    assert [record.getMessage() for record in caplog.records] == [
        "children_of failed; the key is fetched without children"
    ]


async def test_threads_and_tasks_have_requests_of_their_own(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    other_client.set("k", 1)
    client = Client(server.address, namespace=namespace, strategy=save_strategy("strategy remote"))

    def read() -> None:
        with client.request():
            assert client.get("k") == client.get("k") == 1

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.near_stats()["calls"] == 8
    async_client = AsyncClient(
        server.address, namespace=namespace, strategy=save_strategy("strategy remote")
    )

    async def read_twice() -> None:
        with async_client.request():
            assert await async_client.get("k") == 1
            await asyncio.sleep(0)
            assert await async_client.get("k") == 1

    await asyncio.gather(*(read_twice() for _ in range(8)))
    assert async_client.near_stats()["calls"] == 8
    await async_client.close()


async def test_the_asyncio_client_runs_the_same_strategy(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    other_client.set_many({key: [key] for key in "abcdef"})
    lines = "strategy fixed:1+lru:10+subtree:1+children\nkey f\nchild a b\nchild a c\nchild c d\n"
    async with AsyncClient(
        server.address, namespace=namespace, strategy=save_strategy(lines)
    ) as client:
        with client.request(page="a"):
            assert [await client.get(key) for key in "abcdef"] == [[key] for key in "abcdef"]
            assert await client.get_many(["b", "nobody"]) == {"b": ["b"]}
        stats = client.near_stats()
        assert (stats["calls"], stats["keys"], stats["kept_calls"]) == (4, 6, 1)
        value = await client.get("a")
        value.append("changed")
        assert await client.get("a") == ["a"]
        assert client.near_stats()["calls"] == 4
        await client.set("a", "own")
        assert await client.get("a") == "own"
        await client.delete_many(["a", "b"])
        assert await client.get("a", "gone") == "gone"
        assert client.stats()["near_hits"] > 0


class KeyRecordingReader:
    """Reads requests, and remembers the key of the last `mg`."""

    def __init__(self, reader: Any) -> None:
        self.read = reader.read
        self._readline = reader.readline
        self.key = b""

    def readline(self) -> bytes:
        line: bytes = self._readline()
        words = line.split()
        self.key = words[1] if words[:1] == [b"mg"] else b""
        return line


class OneKeyRefusingServer(FaultyServer):
    """Replies to the request for one key by an error line, and begins only after `delay_s`."""

    refused_key = b"-"
    delay_s = 0.0

    def _replies(self, reader: Any) -> Iterator[tuple[bytes, bool]]:
        key_recording_reader = KeyRecordingReader(reader)
        for reply, applies_mode in super()._replies(key_recording_reader):
            time.sleep(self.delay_s)
            self.delay_s = 0.0
            is_refused = key_recording_reader.key == self.refused_key
            found_reply = reply.replace(b" f0", b" f0 t-1", 1)
            yield (b"SERVER_ERROR busy\r\n" if is_refused else found_reply), applies_mode


@pytest.mark.parametrize("refused_key_index", range(5))
def test_an_error_line_among_the_replies_to_a_fetch_gives_no_key_the_value_of_another(
    save_strategy: SaveStrategy, refused_key_index: int
) -> None:
    servers = OneKeyRefusingServer(), OneKeyRefusingServer()
    keys = [f"k{number}" for number in range(12)]
    for server in servers:
        for key in keys:
            server.put(key.encode(), value_of(key.encode()))
    addresses = [server.address for server in servers]
    with Client(addresses) as client_without_strategy:
        keys_of_first_server = [
            key for key in keys if client_without_strategy.server_of(key) == addresses[0]
        ]
    servers[0].refused_key = keys_of_first_server[
        refused_key_index % len(keys_of_first_server)
    ].encode()
    expected_values = {key: value_of(key.encode()) for key in keys}
    wrong_values: list[tuple[str, Any]] = []

    def compare(values: dict[str, Any]) -> None:
        wrong_values.extend(
            (key, value) for key, value in values.items() if value != expected_values[key]
        )

    async def run() -> None:
        async with AsyncClient(
            addresses, strategy=save_strategy("strategy lru:50"), timeout=5
        ) as client:
            servers[1].delay_s = 0.2
            with pytest.raises(RequestRefused):
                await client.get_many(keys)
            for key in keys:
                with contextlib.suppress(RequestRefused):
                    compare({key: await client.get(key)})

    with Client(addresses, strategy=save_strategy("strategy lru:50"), timeout=5) as client:
        with pytest.raises(RequestRefused):
            client.get_many(keys)
        for key in keys:
            with contextlib.suppress(RequestRefused):
                compare({key: client.get(key)})
    asyncio.run(run())
    for server in servers:
        server.close()
    assert wrong_values == []


def test_the_pieces_of_a_value_get_what_its_read_left_of_the_deadline(
    server: Any, save_strategy: SaveStrategy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_split, "PIECE_BYTES", 1000)
    value = os.urandom(5000)
    remaining_deadlines: list[float] = []
    original_read_many_async = _split.read_many_async

    async def record_deadline(
        client: Any, values: dict[Any, Any], deadline: float
    ) -> dict[Any, Any]:
        remaining_deadlines.append(deadline)
        return await original_read_many_async(client, values, deadline)

    monkeypatch.setattr(_split, "read_many_async", record_deadline)

    async def main() -> None:
        async with AsyncClient(
            server.address,
            namespace=namespace,
            strategy=save_strategy("strategy remote"),
            timeout=5,
        ) as client:
            await client.set("k", value, split=True)
            run_bulk = client._run_bulk

            async def delayed_run_bulk(bulk: Any) -> dict[Any, Any]:
                await asyncio.sleep(0.05)
                return await run_bulk(bulk)

            monkeypatch.setattr(client, "_run_bulk", delayed_run_bulk)
            assert await client.get("k", deadline=30) == value

    asyncio.run(main())
    assert len(remaining_deadlines) == 1
    assert remaining_deadlines[0] <= 30 - 0.05


def test_keys_that_the_server_lacks_are_reported_and_warned_of_once(
    server: Any, save_strategy: SaveStrategy, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    strategy_file = save_strategy("strategy fixed:2\nkey a\nkey b\n")
    client = Client(server.address, namespace=namespace, strategy=strategy_file, near_ttl=0.1)
    client.set("a", 1)
    with caplog.at_level(logging.WARNING, "glasscache"):
        assert client.get("a") == 1
        threading.Event().wait(0.15)
        assert client.get("a") == 1
    assert client.near_stats()["missing_keys"] == ["b"]
    assert len(caplog.records) == 1
    assert "1 of its 2 keys" in caplog.text


def test_a_process_that_starts_while_the_server_is_down_loads_the_fixed_set_later(
    save_strategy: SaveStrategy,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved_socket:
        port = reserved_socket.getsockname()[1]
    address = f"127.0.0.1:{port}"
    client = Client(address, strategy=save_strategy("strategy fixed:1\nkey a\n"))
    with pytest.raises(ServerUnavailable):
        client.get("a")
    with Server(port=port):
        Client(address, timeout=5).set("a", 1)
        pause = threading.Event()
        while not client.near_stats()["fixed_loaded"]:
            pause.wait(0.05)
            try:
                assert client.get("a") == 1
            except ServerUnavailable:
                continue
        assert client.get("a") == 1
        assert client.near_stats()["fixed_hits"] >= 1


def test_a_forked_child_has_a_near_cache_and_counters_of_its_own(
    server: Any, save_strategy: SaveStrategy, namespace: str
) -> None:
    client = Client(server.address, namespace=namespace, strategy=save_strategy("strategy lru:10"))
    client.set("k", 1)
    client.get("k")
    child_pid = os.fork()
    if child_pid == 0:
        is_expected = client.near_stats()["reads"] == 0 and client.get("k") == 1
        os._exit(0 if is_expected and client.near_stats()["calls"] == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child_pid, 0)[1]) == 0
    assert client.get("k") == 1
    assert client.near_stats()["calls"] == 1


def test_a_child_that_is_forked_within_a_request_sees_its_own_writes(
    server: Any, save_strategy: SaveStrategy, namespace: str
) -> None:
    strategy_file = save_strategy("strategy lru:10")
    for write_count in range(3):
        client = Client(server.address, namespace=namespace, strategy=strategy_file)
        for _ in range(write_count):
            client.set("k", "old")
        with client.request():
            client.get("k")
            child_pid = os.fork()
            if child_pid == 0:
                # As many as the parent's, so that both have counted as many changes of the key.
                for _ in range(write_count):
                    client.set("k", "new")
                is_expected = client.get("k") == ("new" if write_count else None)
                os._exit(0 if is_expected else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child_pid, 0)[1]) == 0
        client.close()


def test_a_request_that_is_left_in_another_context_ends_all_the_same(
    server: Any, save_strategy: SaveStrategy, tmp_path: Path, namespace: str
) -> None:
    strategy_file = save_strategy("strategy remote")
    client = Client(server.address, namespace=namespace, strategy=strategy_file, share=1.0)
    recorder = client.recorder(tmp_path / "log")
    request_block = client.request()
    context = contextvars.copy_context()
    context.run(request_block.__enter__)
    context.run(client.get, "k")
    request_block.__exit__(None, None, None)
    groups = json.loads(client.report(json=True))["rollout"]["groups"]
    assert groups["strategy"]["requests"] == 1
    recorder.close()
    assert recorder.stats()["recorded"] == 1


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("strategy lru:10\nbefore a b\n", "unknown rule `before`"),
        ("strategy lfu:10\n", "unknown strategy `lfu:10`"),
        ("strategy fixed:1\nkey a b\n", "a b"),
    ],
)
def test_a_strategy_that_cannot_be_run_is_refused_at_start(
    save_strategy: SaveStrategy, lines: str, reason: str
) -> None:
    strategy_file = save_strategy(lines)
    with pytest.raises(Exception, match=reason):
        Client(strategy=strategy_file)


def test_invalid_settings_of_a_strategy_are_refused(
    save_strategy: SaveStrategy, tmp_path: Path
) -> None:
    other_version_file = tmp_path / "v2.strategy"
    other_version_file.write_text("glasscache-strategy 2\nstrategy lru:1\n")
    strategy_file = save_strategy("strategy lru:1")
    for settings, reason in (
        ({"strategy": str(other_version_file)}, "version `2` is unknown"),
        ({"strategy": str(tmp_path / "absent")}, "simulate --save"),
        ({"strategy": strategy_file, "near_ttl": 0}, "near_ttl=0"),
        ({"strategy": strategy_file, "children_of": 3}, "children_of=3"),
        ({"children_of": str}, "strategy="),
        ({"share": 0.5}, "share= needs strategy="),
        ({"strategy": strategy_file, "share": 1.5}, "share=1.5"),
        ({"strategy": strategy_file, "share": "half"}, "share='half'"),
        ({"strategy": strategy_file, "share": 0.5, "share_by": "host"}, "share_by"),
        ({"coherent": True}, "coherent=True needs strategy="),
        ({"strategy": strategy_file, "coherent": True, "protocol": "binary"}, "has no watch"),
    ):
        for client_class in (Client, AsyncClient):
            with pytest.raises(BadSetting, match=reason):
                client_class(**settings)
    with pytest.raises(BadSetting, match="strategy"):
        Client().near_stats()
    with Client().request(page="p", route="r"):
        pass


def test_get_or_set_and_cached_read_from_the_process(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    strategy_file = save_strategy("strategy lru:10+children\nchild a b\n")
    client = Client(server.address, namespace=namespace, strategy=strategy_file)
    computed_values: list[str] = []

    def compute_value() -> str:
        computed_values.append("made")
        return "A"

    double = cached(client, ttl=60, key=lambda number: f"double:{number}")(
        lambda number: computed_values.append("doubled") or 2 * number
    )
    for _ in range(3):
        assert client.get_or_set("a", compute_value, ttl=60) == "A"
        assert double(4) == 8
    assert computed_values == ["made", "doubled"]
    # Each key was fetched twice: in vain before its value was made, and once to keep it.
    assert (client.near_stats()["calls"], client.near_stats()["near_hits"]) == (4, 2)
    other_client.set("b", "B")
    client.delete("a")
    with client.request():
        assert client.get_or_set("a", compute_value, ttl=60) == "A"
        assert client.get_or_set("b", compute_value, ttl=60) == "B"
    assert computed_values == ["made", "doubled", "made"]
    assert client.near_stats()["calls"] == 5  # the child came with its parent

    async def run_with_async_client() -> None:
        async with AsyncClient(
            server.address, namespace=namespace, strategy=strategy_file
        ) as client:
            for _ in range(3):
                assert await client.get_or_set("a", compute_value, ttl=60) == "A"
            assert client.near_stats()["calls"] == 1

    asyncio.run(run_with_async_client())


def test_what_moved_to_the_gutter_is_not_served_from_the_process(
    save_strategy: SaveStrategy,
) -> None:
    strategy_file = save_strategy("strategy fixed:1+lru:10\nkey kept\n")
    old_values = {"near": "old", "kept": "old", "many": "old", "counter": 1}
    with Server() as lost_server, Server() as gutter_server:
        settings: Any = {"gutter": gutter_server.address, "strategy": strategy_file, "timeout": 5}
        client = Client(lost_server.address, **settings)
        client.set_many(old_values)
        event_loop = asyncio.new_event_loop()
        async_client = AsyncClient(lost_server.address, **settings)
        for key, value in old_values.items():
            assert client.get(key) == event_loop.run_until_complete(async_client.get(key)) == value
        lost_server.stop()
        assert (
            client.get("near") == event_loop.run_until_complete(async_client.get("near")) == "old"
        )
        assert client.set("near", "new")
        assert client.set("kept", "new")
        assert client.set_many({"many": "new"}) == {}
        assert client.add("counter", 7)
        assert client.get_many(["near", "kept", "many", "counter"]) == {
            "near": "new", "kept": "new", "many": "new", "counter": 7,
        }  # fmt: skip
        assert event_loop.run_until_complete(async_client.delete("many"))
        assert event_loop.run_until_complete(async_client.get("many")) is None
        assert client.get("many") is None
        assert client.near_stats()["near_items"] == 0  # nothing of the gutter is kept
        event_loop.run_until_complete(async_client.close())
        event_loop.close()
        client.close()


async def test_middleware_opens_a_request_for_each_http_request(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    other_client.set("k", "v")
    strategy_file = save_strategy("strategy remote")
    client = Client(server.address, namespace=namespace, strategy=strategy_file)

    def application(_environ: Any, _start: Any) -> Any:
        client.get("k")
        yield str(client.get("k")).encode()

    wsgi = RequestWSGI(application, client)
    assert [list(wsgi({}, lambda *_: None)) for _ in range(3)] == [[b"v"]] * 3
    assert client.near_stats()["calls"] == 3
    async_client = AsyncClient(server.address, namespace=namespace, strategy=strategy_file)

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        assert await async_client.get("k") == await async_client.get("k") == "v"

    asgi = RequestASGI(app, async_client, page=lambda _: "k")
    for _ in range(3):
        await asgi({"type": "http"}, None, None)
    assert async_client.near_stats()["calls"] == 3
    await async_client.close()


DJANGO_PROGRAM = """
import asyncio, json, os, sys
from django.conf import settings
address, strategy, coherent = sys.argv[1:]
settings.configure(
    SECRET_KEY="s", ALLOWED_HOSTS=["*"], ROOT_URLCONF="__main__",
    MIDDLEWARE=["glasscache.contrib.django.request_middleware"],
    CACHES={"default": {
        "BACKEND": "glasscache.contrib.django.GlassCache", "LOCATION": address,
        "OPTIONS": {
            "timeout": 5, "strategy": strategy, "near_ttl": 5, "coherent": bool(coherent),
            "share": 1, "share_by": "process",
        },
    }},
)
import django
django.setup()
from django.core.cache import cache
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

def view(request):
    return HttpResponse(str(cache.get("k")) + str(cache.get("k")) + str(cache.get("k")))

async def aview(request):
    return HttpResponse(str(await cache.aget("k")) + str(await cache.aget("k")))

urlpatterns = [path("page", view), path("apage", aview)]
cache.set("k", 1)
assert Client().get("/page").content == b"111"
assert Client().get("/page").content == b"111"
async def awaited():
    assert (await AsyncClient().get("/apage")).content == b"11"
    print(cache._async_client.near_stats()["calls"])
print(cache._cache.client.near_stats()["calls"])
asyncio.run(awaited())
"""


def test_a_django_site_runs_a_strategy_by_its_options_and_middleware(
    server: Any, save_strategy: SaveStrategy
) -> None:
    pytest.importorskip("django")
    for coherent in ("", "coherent"):
        command = [
            sys.executable,
            "-c",
            DJANGO_PROGRAM,
            server.address,
            save_strategy("strategy remote"),
            coherent,
        ]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        calls = [int(count) for count in completed.stdout.split()]
        # A request that is under way when the watch begins may fetch a key again.
        expected = [2, 1] if not coherent else [max(2, calls[0]), max(1, calls[1])]
        assert calls == expected, completed.stdout + completed.stderr


@pytest.mark.parametrize(
    "options", [{"stale": 30}, {"early": True}, {"stale": 30, "early": 0.5}], ids=str
)
@pytest.mark.parametrize("in_request", [False, True])
def test_values_with_a_stale_time_are_served_by_the_process_while_they_are_fresh(
    server: Any,
    save_strategy: Callable[[str], str],
    namespace: str,
    options: dict[str, Any],
    in_request: bool,
) -> None:
    rules = "remote" if in_request else "lru:100"
    client = Client(
        server.address, namespace=namespace, strategy=save_strategy(f"strategy {rules}")
    )
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    with client.request() if in_request else contextlib.nullcontext():
        for _ in range(2):
            assert client.get_or_set("k", make, ttl=600, lease=5, **options) == 1
        calls_before = client.near_stats()["calls"]
        for _ in range(5):
            assert client.get_or_set("k", make, ttl=600, lease=5, **options) == 1
        stats = client.near_stats()
    assert stats["calls"] == calls_before
    assert stats["near_hits"] + stats["held_hits"] >= 5
    assert client.stats()["near_hits"] >= 5


def test_a_value_that_the_process_holds_and_that_is_due_is_refilled_by_what_the_server_has(
    server: Any, save_strategy: Callable[[str], str], namespace: str, other_client: Client
) -> None:
    client = Client(server.address, namespace=namespace, strategy=save_strategy("strategy lru:9"))
    options: dict[str, Any] = {"ttl": 600, "stale": 30, "lease": 5}
    other_client.set("stale", "old", ttl=20)
    other_client.set("gone", "old", ttl=20)
    other_client.set("renewed", "old", ttl=20)
    for key in ("stale", "gone", "renewed"):
        assert client.get(key) == "old"
    other_client.delete("gone")
    other_client.set("renewed", "by another", ttl=500)
    assert client.get_or_set("stale", lambda: "new", **options) == "new"
    assert client.get_or_set("gone", lambda: "new", **options) == "new"
    assert client.get_or_set("renewed", lambda: "new", **options) == "by another"
    for key in ("stale", "gone"):
        assert other_client.get(key) == "new"


def test_a_key_that_is_never_kept_is_read_once_for_get_or_set(
    server: Any, save_strategy: Callable[[str], str], namespace: str
) -> None:
    client = Client(
        server.address,
        namespace=namespace,
        strategy=save_strategy("strategy lru:9"),
        near_never=("cart:",),
    )
    for expected_reads in range(1, 4):
        client.get_or_set("cart:1", lambda: 1, ttl=600, stale=30, lease=5)
        assert client.near_stats()["reads"] == 0, expected_reads


def test_an_asyncio_client_serves_values_with_a_stale_time_from_the_process(
    server: Any, save_strategy: Callable[[str], str], namespace: str
) -> None:
    async def main() -> None:
        client = AsyncClient(
            server.address, namespace=namespace, strategy=save_strategy("strategy lru:9")
        )
        for _ in range(7):
            assert await client.get_or_set("k", lambda: 1, ttl=600, stale=30, lease=5) == 1
        assert client.near_stats()["near_hits"] >= 5
        await client.close()

    asyncio.run(main())


def test_the_memory_of_rules_is_counted_and_is_about_that_of_their_file(
    server: Any, save_strategy: Callable[[str], str]
) -> None:
    rules = [" ".join(f"c:{rule}:{key}f" for key in range(10)) for rule in range(3000)]
    together = save_strategy(
        "\n".join(["strategy together:60", *(f"together {rule}" for rule in rules)])
    )
    fixed = save_strategy("strategy fixed:3\nkey a\nkey b\nkey c")
    client = Client(server.address, strategy=together)
    assert 0.9 < client.near_stats()["rules_bytes"] / sum(map(len, rules)) < 1.4
    client = Client(server.address, strategy=fixed)
    assert 3 * 50 < client.near_stats()["rules_bytes"] < 3 * 1000
    assert client.near_stats()["fixed_bytes"] == 0
    client.set("a", "x" * 1000)
    client.get("a")
    assert client.near_stats()["fixed_bytes"] >= 1000


LOAD_SCRIPT = """
import sys
from pathlib import Path
from glasscache import Client

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

address, namespace, strategy = sys.argv[1:]
with Client(address, namespace=namespace, timeout=20) as plain:
    plain.get_many([f"k{number}" for number in range(100)])
bytes_before = resident_bytes()
client = Client(address, namespace=namespace, timeout=20, strategy=strategy)
client.get("nobody")
stats = client.near_stats()
assert stats["kept_keys"] == 4000, stats
print(resident_bytes() - bytes_before - stats["fixed_bytes"] - stats["rules_bytes"])
"""


def test_a_loaded_fixed_set_takes_little_more_than_it_counts(
    server: Any, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    """What a call for 4,000 keys allocates besides their values stays with the process."""
    names = [f"k{number}" for number in range(4000)]
    for start in range(0, len(names), 500):
        other_client.set_many({name: os.urandom(1000) for name in names[start : start + 500]})
    lines = "".join(f"key {name}\n" for name in names)
    strategy_file = save_strategy(f"strategy fixed:4000\n{lines}")
    command = [sys.executable, "-c", LOAD_SCRIPT, server.address, namespace, strategy_file]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(completed.stdout) < 9 << 18, f"{int(completed.stdout):,} bytes"
