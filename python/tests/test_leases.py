"""One filler for a cold key, stale values for the rest, and the decorator and tags built on it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from glasscache import AsyncClient, Client, Server
from glasscache._refresh import GetOrSetOptions
from glasscache._steps import CallFunction, Sleep, carry_out_async
from glasscache._types import Item
from glasscache.cached import cached
from glasscache.leases import lease_key
from glasscache.tags import Tagged, invalidate_tag

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache._steps import Steps


CALLS: list[object] = []
"""The calls of a test's cached functions: a function that has them in a closure is refused."""


def _get_or_set_in_process(
    address: str, log_file: str, results_queue: multiprocessing.Queue[object]
) -> None:
    def fill() -> dict[str, list[int]]:
        with Path(log_file).open("a") as log_stream:
            log_stream.write("x")
        time.sleep(0.2)
        return {"made": [1]}

    with Client(address, timeout=10) as client:
        results_queue.put(client.get_or_set("cold", fill, ttl=60, lease=30))


def test_of_many_processes_one_fills(
    glasscache_client: Client, glasscache_server: Server, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    log_file, results_queue = str(tmp_path / "fills"), context.Queue()
    arguments = (glasscache_server.address, log_file, results_queue)
    process_count = int(os.environ.get("GLASSCACHE_TEST_PROCESSES", "8"))
    processes = [
        context.Process(target=_get_or_set_in_process, args=arguments) for _ in range(process_count)
    ]
    for process in processes:
        process.start()
    results = [results_queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert results == [{"made": [1]}] * process_count
    assert Path(log_file).read_text() == "x"


def test_while_one_refills_the_others_take_the_stale_value(glasscache_client: Client) -> None:
    client = glasscache_client
    # A life of 10 s of which 20 would be stale: stale from the start.
    client.set("k", "old", ttl=10)
    is_filling, may_finish = threading.Event(), threading.Event()

    def compute_slowly() -> str:
        is_filling.set()
        may_finish.wait(10)
        return "new"

    get_or_set_arguments = {"ttl": 60, "stale": 20, "lease": 30}
    filler = threading.Thread(
        target=lambda: client.get_or_set("k", compute_slowly, **get_or_set_arguments)
    )
    filler.start()
    assert is_filling.wait(10)
    assert client.get_or_set("k", lambda: "other", **get_or_set_arguments) == "old"
    may_finish.set()
    filler.join()
    assert client.get_or_set("k", lambda: "other", **get_or_set_arguments) == "new"


def test_a_failed_fill_releases_its_lease(glasscache_client: Client) -> None:
    def fail() -> None:
        raise RuntimeError("no database")

    with pytest.raises(RuntimeError, match="no database"):
        glasscache_client.get_or_set("k", fail, ttl=60)
    assert glasscache_client._reservation("k") is None
    assert glasscache_client.add("k", "free")
    assert glasscache_client.delete("k")
    assert glasscache_client.get_or_set("k", lambda: "made", ttl=60) == "made"


def test_a_stale_value_may_stand_in_for_an_error(glasscache_client: Client) -> None:
    def fail() -> None:
        raise RuntimeError("no database")

    glasscache_client.set("k", "old", ttl=10)
    get_or_set_arguments = {"ttl": 60, "stale": 20, "stale_if_error": True}
    assert glasscache_client.get_or_set("k", fail, **get_or_set_arguments) == "old"


def test_a_none_is_kept_for_none_ttl(glasscache_client: Client) -> None:
    assert glasscache_client.get_or_set("a", lambda: None, ttl=60) is None
    assert glasscache_client.get_or_set("a", lambda: 1, ttl=60) is None
    assert glasscache_client.get_or_set("b", lambda: None, ttl=60, none_ttl=0) is None
    assert glasscache_client.get_or_set("b", lambda: 1, ttl=60) == 1


def test_a_caller_that_waited_too_long_makes_the_value_itself(glasscache_client: Client) -> None:
    token = bytes(12) + (60).to_bytes(4, "big")
    glasscache_client._reserve("k", token, 60)
    assert glasscache_client.get_or_set("k", lambda: "own", ttl=60, wait=0.05) == "own"
    assert glasscache_client.get("k") is None  # whoever holds the lease will store


def test_an_expired_lease_is_taken_by_a_waiting_caller(glasscache_client: Client) -> None:
    token = bytes(12) + (60).to_bytes(4, "big")
    glasscache_client._reserve("k", token, 60 - 7)  # as if it had begun seven seconds ago
    assert glasscache_client.get_or_set("k", lambda: "own", ttl=60, lease=5, wait=0.05) == "own"
    assert glasscache_client.get("k") == "own"


def test_a_value_becomes_stale_at_the_end_of_its_ttl() -> None:
    options = GetOrSetOptions(ttl=60, stale=20)
    item = Item("v", 1, 21, 0, True, False, 1)
    assert not options.is_due_for_refresh(options.fresh_seconds_left(item, 0), random_fraction=1)
    assert options.is_due_for_refresh(
        options.fresh_seconds_left(item._replace(ttl=20), 0), random_fraction=1
    )
    assert not options.is_due_for_refresh(
        options.fresh_seconds_left(item._replace(ttl=None), 0), random_fraction=1
    )
    early_options = GetOrSetOptions(ttl=60, early=2)
    assert early_options.is_due_for_refresh(3, random_fraction=0.1)
    assert not early_options.is_due_for_refresh(3, random_fraction=0.9)


def test_a_lease_of_a_long_key_has_a_name_that_fits() -> None:
    assert lease_key("k") == "~lease:k"
    assert len(lease_key("k" * 250)) < 60
    assert lease_key("k" * 250) != lease_key("k" * 249)


def test_tasks_of_one_loop_fill_once(glasscache_client: Client, glasscache_server: Server) -> None:
    fill_count = 0

    async def fill() -> str:
        nonlocal fill_count
        fill_count += 1
        await asyncio.sleep(0.05)
        return "made"

    async def main() -> list[str]:
        async with AsyncClient(glasscache_server.address, timeout=5) as client:
            get_or_set_calls = [client.get_or_set("cold", fill, ttl=60) for _ in range(50)]
            return await asyncio.gather(*get_or_set_calls)

    assert set(asyncio.run(main())) == {"made"}
    assert fill_count == 1


def test_a_decorated_function_distinguishes_the_types_of_its_arguments(
    glasscache_client: Client,
) -> None:
    CALLS.clear()

    @cached(glasscache_client, ttl=60)
    def list_arguments(number: float, by: float = 2) -> float:
        CALLS.append(number)
        return [number, by]

    assert list_arguments(1) == list_arguments(1, by=2) == list_arguments(number=1) == [1, 2]
    assert list_arguments(True) == [True, 2]
    assert CALLS == [1, True]
    assert list_arguments.cache_info() == (4, 2)
    assert list_arguments.invalidate(1)
    list_arguments(1)
    assert CALLS == [1, True, 1]


def test_functions_whose_long_names_end_alike_have_keys_of_their_own(
    glasscache_client: Client,
) -> None:
    def price(name: str) -> str:
        return name

    keys: list[str] = []
    for package in ("first", "second"):
        price.__module__ = package + "." + "nested." * 20 + "prices"
        keys.append(cached(glasscache_client, ttl=60)(price).cache_key("a"))
    assert keys[0] != keys[1]
    assert {len(key) for key in keys} == {120 + 1 + 32}


def test_a_coroutine_function_needs_an_asyncio_client(glasscache_client: Client) -> None:
    with pytest.raises(TypeError, match="AsyncClient"):

        @cached(glasscache_client, ttl=60)
        async def compute_later() -> None:
            return 1


def test_an_invalidated_tag_takes_its_values_along(glasscache_client: Client) -> None:
    client = glasscache_client
    tagged_with_both, tagged_with_one = (
        Tagged(client, "user:7", "prices"),
        Tagged(client, "user:7"),
    )
    tagged_with_both.set("k", 1, ttl=60)
    tagged_with_one.set("k", 2, ttl=60)
    assert (tagged_with_both.get("k"), tagged_with_one.get("k")) == (1, 2)
    invalidate_tag(client, "prices")
    assert (tagged_with_both.get("k"), tagged_with_one.get("k")) == (None, 2)
    assert tagged_with_both.get_or_set("k", lambda: 3, ttl=60) == 3


def test_the_results_of_a_tagged_function_go_with_the_tag(
    glasscache_client: Client, glasscache_server: Server
) -> None:
    CALLS.clear()

    @glasscache_client.cached(ttl=60, tags=["prices"])
    def price(item: str) -> str:
        CALLS.append(item)
        return item

    assert price("a") == price("a") == "a"
    glasscache_client.invalidate_tag("prices")
    assert price("a") == "a"
    assert CALLS == ["a", "a"]
    assert price.invalidate("a")

    async def main() -> None:
        async with AsyncClient(glasscache_server.address, timeout=5) as client:

            @client.cached(ttl=60, tags=["prices"])
            async def compute_later(item: str) -> str:
                CALLS.append(item)
                return item

            assert await compute_later("b") == await compute_later("b") == "b"
            await client.invalidate_tag("prices")
            assert await compute_later("b") == "b"
            assert await compute_later.refresh("b") == "b"
            assert compute_later.cache_info() == (3, 2)
            tagged = client.tagged("prices")
            assert await tagged.set("k", 1)
            assert await tagged.get("k") == 1

    asyncio.run(main())
    assert CALLS == ["a", "a", "b", "b", "b"]


def test_a_decorated_function_refreshes_early_and_keeps_a_none_for_none_ttl(
    glasscache_client: Client,
) -> None:
    CALLS.clear()

    @glasscache_client.cached(ttl=10, early=1e6, none_ttl=0)
    def compute_or_none(number: int) -> int | None:
        CALLS.append(number)
        return number or None

    assert (
        compute_or_none(1) == compute_or_none(1) == 1
    )  # the second call refills: its value's end is near
    assert compute_or_none(0) is None
    assert compute_or_none(0) is None
    assert CALLS == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "exception_class", [GeneratorExit, KeyboardInterrupt, SystemExit, StopIteration]
)
def test_the_lease_is_released_whatever_the_function_raises(
    client: Client, exception_class: type[BaseException]
) -> None:
    def compute_value() -> int:
        raise exception_class

    with pytest.raises((exception_class, RuntimeError)) as error_info:
        client.get_or_set("raises", compute_value, ttl=60)
    assert (error_info.type is RuntimeError) == (exception_class is StopIteration)
    started_at = time.monotonic()
    assert client.get_or_set("raises", lambda: 7, ttl=60) == 7
    assert time.monotonic() - started_at < 1


def test_steps_whose_coroutine_is_discarded_end_quietly() -> None:
    class NeverReady:
        def __await__(self) -> Generator[None]:
            yield

    def inner_steps() -> Steps[None]:
        try:
            yield CallFunction(NeverReady)
        finally:
            yield Sleep(0)

    def outer_steps() -> Steps[None]:
        yield from inner_steps()

    carried_out_steps = carry_out_async(outer_steps())
    carried_out_steps.send(None)
    carried_out_steps.close()
