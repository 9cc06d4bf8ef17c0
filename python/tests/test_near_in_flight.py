"""Concurrent reads of one request under a strategy: the server gets one request for a key."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client
from glasscache.errors import DeadlineExceeded
from glasscache.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    SaveStrategy = Callable[[str], str]


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """Return a server whose counters nothing else changes."""
    with Server() as server:
        yield server


class GetCounter:
    """Counts the gets that a server has executed since the last time."""

    def __init__(self, server: Server, namespace: str) -> None:
        self._plain_client = Client(server.address, namespace=namespace)
        self._gets = 0
        self.take_count()

    def put(self, *keys: str) -> None:
        """Store a value under each key, as another process does."""
        self._plain_client.set_many({key: key.upper() for key in keys})

    def server_stat(self, stat_name: str) -> int:
        (stats,) = self._plain_client.server_stats().values()
        return int(stats[stat_name])

    def take_count(self) -> int:
        gets_before, self._gets = self._gets, self.server_stat("cmd_get")
        return self._gets - gets_before


@pytest.fixture
def get_counter(own_server: Server, namespace: str) -> GetCounter:
    return GetCounter(own_server, namespace)


@pytest.fixture
def connected_client(own_server: Server, namespace: str, save_strategy: SaveStrategy) -> Client:
    """Return a client under a strategy that keeps nothing, with a connection."""
    strategy_file = save_strategy("strategy remote")
    client = Client(own_server.address, namespace=namespace, strategy=strategy_file, timeout=30)
    client.set("connected", 1)
    return client


def is_stopped(thread_folder: Path) -> bool:
    """Return whether a thread of a process has stopped, by its folder in `/proc`."""
    state: str = (thread_folder / "stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


@contextlib.contextmanager
def paused(pid: int) -> Iterator[None]:
    """Stop a server for the time of the block: it takes requests and does not reply."""
    os.kill(pid, signal.SIGSTOP)
    try:
        while not all(map(is_stopped, Path(f"/proc/{pid}/task").iterdir())):
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def run(own_server: Server, namespace: str, save_strategy: SaveStrategy) -> Callable[..., Any]:
    """Return what runs a coroutine function with a connected client under a strategy."""

    def run_with(use_client: Callable[[AsyncClient], Any], lines: str = "strategy remote") -> None:
        async def main() -> None:
            async with AsyncClient(
                own_server.address, namespace=namespace, strategy=save_strategy(lines), timeout=30
            ) as client:
                await client.set("connected", 1)
                await use_client(client)

        asyncio.run(main())

    return run_with


def test_fifty_reads_of_one_key_are_one_get(
    run: Callable[..., Any], get_counter: GetCounter
) -> None:
    get_counter.put("k")

    async def use_client(client: AsyncClient) -> None:
        with client.request():
            values = await asyncio.gather(*(client.get("k") for _ in range(50)))
            assert values == ["K"] * 50
        stats = client.near_stats()
        assert (stats["reads"], stats["held_hits"], stats["calls"]) == (50, 49, 1)
        assert (stats["keys"], stats["used_keys"]) == (1, 1)
        assert client.stats()["near_hits"] == 49

    run(use_client)
    assert get_counter.take_count() == 1


def test_a_first_read_that_has_to_connect_is_waited_for(
    own_server: Server, namespace: str, save_strategy: SaveStrategy, get_counter: GetCounter
) -> None:
    get_counter.put("k")

    async def main() -> None:
        async with AsyncClient(
            own_server.address,
            namespace=namespace,
            strategy=save_strategy("strategy remote"),
            timeout=30,
        ) as client:
            with client.request():
                assert await asyncio.gather(*(client.get("k") for _ in range(9))) == ["K"] * 9

    asyncio.run(main())
    assert get_counter.take_count() == 1


def test_overlapping_bulk_reads_get_each_key_once(
    run: Callable[..., Any], get_counter: GetCounter
) -> None:
    keys = [f"k{number}" for number in range(20)]
    get_counter.put(*keys)

    async def use_client(client: AsyncClient) -> None:
        with client.request():
            key_groups = [keys[first_index : first_index + 8] for first_index in range(0, 20, 3)]
            found_values = await asyncio.gather(
                *(client.get_many([*bulk_keys, "nobody"]) for bulk_keys in key_groups),
                client.get("k9"),
            )
        for bulk_keys, values in zip(key_groups, found_values, strict=False):
            assert values == {key: key.upper() for key in bulk_keys}
        assert found_values[-1] == "K9"

    run(use_client)
    assert get_counter.take_count() == len(keys) + 1


def test_what_a_request_prefetches_is_not_fetched_by_its_other_tasks(
    run: Callable[..., Any], get_counter: GetCounter
) -> None:
    get_counter.put(*"abcdef")
    lines = "strategy subtree:1+children\nchild a b\nchild a c\nchild d e\n"

    async def use_client(client: AsyncClient) -> None:
        with client.request(page="a"):
            values = await asyncio.gather(*(client.get(key) for key in "abcdefbce"))
        assert values == list("ABCDEFBCE")

    run(use_client, lines)
    assert get_counter.take_count() == 6


def test_a_cancelled_read_leaves_its_key_to_one_of_those_that_wait(
    run: Callable[..., Any], get_counter: GetCounter
) -> None:
    get_counter.put("k")

    async def use_client(client: AsyncClient) -> None:
        with client.request():
            first_task, *other_tasks = (asyncio.create_task(client.get("k")) for _ in range(5))
            await asyncio.sleep(0)
            first_task.cancel()
            # The exception, and with it the frames of the first task, stay alive.
            outcomes = await asyncio.gather(first_task, *other_tasks, return_exceptions=True)
            assert isinstance(outcomes[0], asyncio.CancelledError)
            assert outcomes[1:] == ["K"] * 4
        assert client.near_stats()["calls"] == 1

    run(use_client)
    # That of the first, which had left already, and one more.
    assert get_counter.take_count() == 2


def test_a_read_that_waits_keeps_its_own_deadline(
    run: Callable[..., Any], get_counter: GetCounter
) -> None:
    get_counter.put("k", "l")
    pid = get_counter.server_stat("pid")

    async def use_client(client: AsyncClient) -> None:
        with client.request():
            await client.get("l")
            with paused(pid):
                first_task = asyncio.create_task(client.get("k"))
                last_task = asyncio.create_task(client.get_many(["l", "k"]))
                await asyncio.sleep(0)
                started_at = time.monotonic()
                with pytest.raises(DeadlineExceeded) as error:
                    await client.get_many(["l", "k"], deadline=0.2)
                with client.deadline(0.1), pytest.raises(DeadlineExceeded):
                    await client.get("k")
                assert 0.3 <= time.monotonic() - started_at < 5
            assert error.value.unanswered == ["k"]
            assert error.value.arrived == {"l": "L"}
            assert (error.value.phase, error.value.retry_is_safe) == ("read", True)
            assert await first_task == "K"
            assert await last_task == {"l": "L", "k": "K"}

    run(use_client)
    assert get_counter.take_count() == 2


def test_a_deadline_that_counts_as_a_miss_does_so_for_a_read_that_waits(
    own_server: Server, namespace: str, save_strategy: SaveStrategy, get_counter: GetCounter
) -> None:
    get_counter.put("k")
    pid = get_counter.server_stat("pid")

    async def main() -> None:
        strategy_file = save_strategy("strategy remote")
        async with AsyncClient(
            own_server.address,
            namespace=namespace,
            strategy=strategy_file,
            timeout=30,
            on_error="miss",
        ) as client:
            await client.set("connected", 1)
            with client.request():
                with paused(pid):
                    first_task = asyncio.create_task(client.get("k"))
                    await asyncio.sleep(0)
                    assert await client.get("k", "none", deadline=0.1) == "none"
                assert await first_task == "K"
            assert client.stats()["misses_by_error"] == 1

    asyncio.run(main())
    assert get_counter.take_count() == 1


def test_ten_reads_of_a_key_without_a_value_are_one_get_and_the_next_read_is_another(
    run: Callable[..., Any], get_counter: GetCounter
) -> None:
    async def use_client(client: AsyncClient) -> None:
        with client.request():
            values = await asyncio.gather(*(client.get("nobody", "none") for _ in range(10)))
            assert values == ["none"] * 10
            assert get_counter.take_count() == 1
            get_counter.put("nobody")
            assert await client.get("nobody") == "NOBODY"
            assert get_counter.take_count() == 1

    run(use_client)


def test_a_read_sees_an_earlier_write_of_its_request_while_an_older_read_is_in_flight(
    run: Callable[..., Any], get_counter: GetCounter
) -> None:
    get_counter.put("k")

    async def use_client(client: AsyncClient) -> None:
        with client.request():
            first_task = asyncio.create_task(client.get("k"))
            await asyncio.sleep(0)
            await client.set("k", "own")
            assert await client.get("k") == "own"
            assert await first_task == "K"

    run(use_client)


def test_event_loops_that_share_a_request_get_a_key_once(
    own_server: Server, namespace: str, save_strategy: SaveStrategy, get_counter: GetCounter
) -> None:
    get_counter.put("k")
    pid = get_counter.server_stat("pid")
    client = AsyncClient(
        own_server.address,
        namespace=namespace,
        strategy=save_strategy("strategy remote"),
        timeout=30,
    )
    values: list[str] = []
    connected_barrier = threading.Barrier(4)
    waiting_barrier = threading.Barrier(4)
    done_barrier = threading.Barrier(3)

    async def read() -> None:
        await client.set("connected", 1)
        await asyncio.to_thread(connected_barrier.wait)
        await asyncio.to_thread(waiting_barrier.wait)
        values.append(await client.get("k"))
        await asyncio.to_thread(done_barrier.wait)
        await client.close()

    def run_in_context(context: contextvars.Context) -> threading.Thread:
        thread = threading.Thread(target=context.run, args=(asyncio.run, read()))
        thread.start()
        return thread

    with client.request():
        threads = [run_in_context(contextvars.copy_context()) for _ in range(3)]
        connected_barrier.wait()
        with paused(pid):
            waiting_barrier.wait()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
    assert values == ["K"] * 3
    assert get_counter.take_count() == 1


def test_threads_that_share_a_request_get_a_key_once(
    connected_client: Client, get_counter: GetCounter
) -> None:
    keys = [f"k{number}" for number in range(50)]
    get_counter.put(*keys)
    pid = get_counter.server_stat("pid")
    values: list[dict[str, str]] = []

    def read(keys: list[str]) -> None:
        values.append(connected_client.get_many(keys))

    with connected_client.request():
        contexts = [contextvars.copy_context() for _ in range(6)]
        threads = [
            threading.Thread(target=context.run, args=(read, keys[number * 5 :]))
            for number, context in enumerate(contexts)
        ]
        with paused(pid):
            for thread in threads:
                thread.start()
            with pytest.raises(DeadlineExceeded):
                connected_client.get(keys[-1], deadline=0.3)
        for thread in threads:
            thread.join()
    assert sorted(map(len, values)) == [25, 30, 35, 40, 45, 50]
    assert get_counter.take_count() == len(keys)


def test_a_signal_handler_that_reads_what_its_thread_is_fetching_does_not_wait_for_itself(
    connected_client: Client, get_counter: GetCounter
) -> None:
    get_counter.put("k")
    pid = get_counter.server_stat("pid")
    values: list[str] = []

    def handle(*_: Any) -> None:
        os.kill(pid, signal.SIGCONT)
        values.append(connected_client.get("k", deadline=10))

    handler_before = signal.signal(signal.SIGALRM, handle)
    try:
        with connected_client.request(), paused(pid):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            assert connected_client.get("k") == "K"
    finally:
        signal.signal(signal.SIGALRM, handler_before)
    assert values == ["K"]


def test_a_signal_handler_that_raises_ends_a_wait(
    connected_client: Client, get_counter: GetCounter
) -> None:
    get_counter.put("k")
    pid = get_counter.server_stat("pid")

    def handle(*_: Any) -> None:
        raise InterruptedError

    handler_before = signal.signal(signal.SIGALRM, handle)
    try:
        with connected_client.request():
            with paused(pid):
                context = contextvars.copy_context()
                first_task = threading.Thread(target=context.run, args=(connected_client.get, "k"))
                first_task.start()
                time.sleep(0.1)
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with pytest.raises(InterruptedError):
                    connected_client.get("k")
            first_task.join()
    finally:
        signal.signal(signal.SIGALRM, handler_before)
    assert get_counter.take_count() == 1
