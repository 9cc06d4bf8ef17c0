"""What an application reads, changes and writes back is kept by no strategy."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import stat
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, BadSetting, Client
from glasscache.cached import cached
from glasscache.server import find_command
from glasscache.tags import Tagged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from glasscache import Server

    SaveStrategy = Callable[[str], str]

PROCESSES = int(os.environ.get("NEVER_KEPT_PROCESSES", "3"))
REQUESTS = int(os.environ.get("NEVER_KEPT_REQUESTS", "900"))

CHANGES: dict[str, Callable[[Client, str], Any]] = {
    "add": lambda client, key: client.add(key, 1),
    "add noreply": lambda client, key: client.add(key, 1, noreply=True),
    "cas": lambda client, key: client.cas(key, 1, 1),
    "incr": lambda client, key: client.incr(key),
    "incr initial": lambda client, key: client.incr(key, initial=1),
    "decr": lambda client, key: client.decr(key),
    "append": lambda client, key: client.append(key, "x"),
    "prepend": lambda client, key: client.prepend(key, "x"),
    "gets": lambda client, key: client.gets(key),
    "gets_many": lambda client, key: client.gets_many([key]),
    "pipeline": lambda client, key: _incr_in_pipeline(client, key),
}


def _incr_in_pipeline(client: Client, key: str) -> None:
    with client.pipeline() as pipeline:
        pipeline.incr(key)


def _is_kept(client: Client, other_client: Client, key: str) -> bool:
    """Whether a read returns what was there before another process changed it."""
    other_client.set(key, "first")
    client.get(key)
    other_client.set(key, "second")
    return bool(client.get(key) == "first")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rules", ["lru:100", "fixed:1\nkey counter"])
def test_a_key_that_a_process_changes_is_not_kept_from_then_on(
    server: Server,
    save_strategy: SaveStrategy,
    namespace: str,
    other_client: Client,
    rules: str,
    change: str,
) -> None:
    strategy_file = save_strategy(f"strategy {rules}")
    client = Client(server.address, namespace=namespace, strategy=strategy_file)
    assert _is_kept(client, other_client, "counter")
    other_client.set("counter", "text" if "pend" in change else 1)
    CHANGES[change](client, "counter")
    assert not _is_kept(client, other_client, "counter")
    with client.request():
        assert not _is_kept(client, other_client, "counter")
    if "lru" in rules:
        assert _is_kept(client, other_client, "page")


def test_eight_keys_of_one_pattern_stand_for_all_of_it(
    server: Server, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    client = Client(server.address, namespace=namespace, strategy=save_strategy("strategy lru:100"))
    for number in range(7):
        client.incr(f"views:{number}")
    assert _is_kept(client, other_client, "views:99")
    client.incr("views:7")
    assert client.get("views:99") == "second"
    assert not _is_kept(client, other_client, "views:99")
    assert _is_kept(client, other_client, "page:99")


def test_what_the_package_stores_for_an_application_is_kept(
    server: Server, save_strategy: SaveStrategy, namespace: str
) -> None:
    client = Client(server.address, namespace=namespace, strategy=save_strategy("strategy lru:999"))

    @cached(client, ttl=60, stale=30)
    def double(number: int) -> int:
        return 2 * number

    for number in range(20):
        client.get_or_set(f"made:{number}", lambda: 1, ttl=60, lease=5)
        client.get_or_set(f"stale:{number}", lambda: 1, ttl=60, stale=30, lease=5)
        Tagged(client, "prices").set(f"tagged:{number}", 1)
        double(number)
    for key in ("made:3", "stale:3", "made:99"):
        client.set(key, 1)
        client.get(key)
        hits_before = client.near_stats()["near_hits"]
        client.get(key)
        assert client.near_stats()["near_hits"] == hits_before + 1, key


def test_an_asyncio_client_learns_of_its_own_calls_and_not_of_the_packages(
    server: Server, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    async def main() -> None:
        client = AsyncClient(
            server.address, namespace=namespace, strategy=save_strategy("strategy lru:999")
        )

        async def is_kept(key: str) -> bool:
            other_client.set(key, "first")
            await client.get(key)
            other_client.set(key, "second")
            return bool(await client.get(key) == "first")

        async def fill(number: int) -> None:
            await client.get_or_set(f"made:{number}", lambda: 1, ttl=60, lease=5)
            await client.get_or_set(f"stale:{number}", lambda: 1, ttl=60, stale=30)

        async def count(number: int) -> None:
            await client.incr(f"views:{number}", initial=1)
            await client.append("list", "x")
            await client.gets_many([f"stock:{number}"])

        # Side by side, so that the calls of one are made between those of the other.
        await asyncio.gather(*map(fill, range(20)), *map(count, range(20)))
        for key, expected in {
            "made:3": True,
            "stale:3": True,
            "views:3": False,
            "views:99": False,
            "list": False,
            "stock:3": False,
        }.items():
            assert await is_kept(key) == expected, key
        await client.close()

    asyncio.run(main())


def test_prefixes_that_are_named_decide_and_the_longest_one_first(
    server: Server, save_strategy: SaveStrategy, namespace: str, other_client: Client
) -> None:
    client = Client(
        server.address,
        namespace=namespace,
        strategy=save_strategy("strategy lru:100\nnever lock\nnever stock:*\nnever-prefix cart:"),
        near_never=("user:",),
        near_allow=["user:public:", "views:", "session:demo"],
    )
    client.incr("views:7")
    for key, expected in {
        "user:7": False,
        "user:public:7": True,
        ":1:user:7": False,
        "views:7": True,
        "session:demo7": True,
        "session:other": False,
        "lock": False,
        "stock:7": False,
        "cart:7": False,
        "page:7": True,
    }.items():
        assert _is_kept(client, other_client, key) == expected, key


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"near_never": "cart:"}, "a tuple of the texts"),
        ({"near_allow": ("",)}, "a tuple of the texts"),
        ({"near_never": (b"cart:",)}, "a tuple of the texts"),
        ({"near_never": ("a:",), "near_allow": ("a:",)}, "leave it out of one of them"),
    ],
)
def test_prefixes_that_mean_nothing_are_refused(
    server: Server, save_strategy: SaveStrategy, settings: Any, expected: str
) -> None:
    with pytest.raises(BadSetting, match=expected):
        Client(server.address, strategy=save_strategy("strategy lru:1"), **settings)
    with pytest.raises(BadSetting, match="near_never= needs strategy="):
        Client(server.address, near_never=("cart:",))


def test_a_log_has_the_changed_keys_and_its_strategy_keeps_none_of_them(
    server: Server, namespace: str, tmp_path: Path
) -> None:
    client = Client(server.address, namespace=namespace)
    folder = tmp_path / "log"
    recorder = client.recorder(folder, format="jsonl", salt_prefixes=("token:",))
    client.set_many({"list": "x", "count": 1, "token:secret": 1, "cart:1": 1})
    for number in range(60):
        with recorder.request(page=f"page:{number % 5}"):
            client.get_or_set(f"page:{number % 5}", lambda: "page", ttl=600)
            client.get_or_set("menu", lambda: "menu", ttl=600, stale=60)
            client.get_many(["list", "count", "token:secret", "cart:1"])
            client.incr("count")
            client.append("list", "x")
            client.add(f"rate:{number}", 1)
            client.gets("stock")
    recorder.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    lines = [line for path in folder.glob("items*") for line in path.read_text().splitlines()]
    keys = {json.loads(line)["key"] for line in lines}
    assert "count" in keys
    assert not [key for key in keys if "secret" in key or "rate" in key]
    changed = set(json.loads((folder / "meta.json").read_text())["changed"])
    assert {"count", "list", "stock", "rate:*"} <= changed
    assert not {"menu", "page:1", "cart:1", "rate:7"} & changed
    (folder / "latency.json").write_text(
        json.dumps({"unit": "us", "single_us": [[1, 100]], "batch_us": [[1, 100], [10, 140]]})
    )
    strategy_file = tmp_path / "best.strategy"
    command = [find_command(), "simulate", str(folder), "--strategies", "fixed:50+together:50"]
    command += ["--never", "cart:", "--save", str(strategy_file)]
    subprocess.run(command, check=True, capture_output=True)
    lines = strategy_file.read_text().splitlines()
    never = {line for line in lines if line.startswith("never")}
    assert {"never count", "never list", "never stock", "never rate:*"} <= never
    assert {"never-prefix cart:", "never-prefix token:"} <= never
    kept = [line for line in lines if line.startswith(("key ", "together"))]
    assert "key menu" in kept
    assert not [line for line in kept if "count" in line or "list" in line or "token" in line]
    deployed = Client(server.address, namespace=namespace, strategy=strategy_file)
    assert deployed.get("count") == 61
    client.incr("count")
    assert deployed.get("count") == 62


def _count_requests(
    address: str, namespace: str, strategy_file: str, near: Any, number: int
) -> int:
    """Be a process of a site: count, read the counter, and compare and swap a shared list."""
    client = Client(address, namespace=namespace, strategy=strategy_file, **near, timeout=10)
    too_old = 0
    for request in range(REQUESTS // PROCESSES):
        with client.request(page="page"):
            client.get_many(["page", "visits", "orders"])
            counted = client.incr("visits", initial=1)
            printed = client.get("visits")
            too_old += counted is None or printed < counted
            while True:
                value, unique = client.gets("orders")
                if client.cas("orders", value + 1, unique):
                    break
            too_old += client.get("orders") < value + 1
            client.append("log", f"{number}.{request},")
    return too_old


@pytest.mark.parametrize("near", [{"near_ttl": 10}, {"coherent": True}], ids=str)
@pytest.mark.parametrize(
    "rules",
    [
        "lru:100",
        "fixed:4\nkey page\nkey visits\nkey orders\nkey log",
        "lru:9+together:50\ntogether page visits orders",
    ],
)
def test_no_count_of_several_processes_is_lost_or_old(
    server: Server,
    save_strategy: SaveStrategy,
    namespace: str,
    other_client: Client,
    rules: str,
    near: dict[str, Any],
) -> None:
    other_client.set_many({"orders": 0, "log": "", "page": "page"})
    arguments = (server.address, namespace, save_strategy(f"strategy {rules}"), near)
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        too_old = pool.starmap(
            _count_requests, [(*arguments, number) for number in range(PROCESSES)]
        )
    requests = REQUESTS // PROCESSES * PROCESSES
    assert too_old == [0] * PROCESSES
    assert other_client.get("visits") == requests
    assert other_client.get("orders") == requests
    assert len(other_client.get("log").split(",")) - 1 == requests
