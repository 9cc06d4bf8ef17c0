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

    Save = Callable[[str], str]


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """Return a server whose counters nothing else changes."""
    with Server() as server:
        yield server


class Requests:
    """Counts the gets that a server has executed since the last time."""

    def __init__(self, server: Server, namespace: str) -> None:
        self._plain = Client(server.address, namespace=namespace)
        self._gets = 0
        self.take()

    def put(self, *keys: str) -> None:
        """Store a value under each key, as another process does."""
        self._plain.set_many({key: key.upper() for key in keys})

    def server_row(self, name: str) -> int:
        (rows,) = self._plain.server_stats().values()
        return int(rows[name])

    def take(self) -> int:
        before, self._gets = self._gets, self.server_row("cmd_get")
        return self._gets - before


@pytest.fixture
def requests(own_server: Server, namespace: str) -> Requests:
    return Requests(own_server, namespace)


def is_stopped(thread: Path) -> bool:
    """Return whether a thread of a process has stopped, by its folder in `/proc`."""
    state: str = (thread / "stat").read_text().rpartition(")")[2].split()[0]
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
def run(own_server: Server, namespace: str, save: Save) -> Callable[..., Any]:
    """Return what runs a coroutine function with a connected client under a strategy."""

    def run_with(work: Callable[[AsyncClient], Any], lines: str = "strategy remote") -> None:
        async def main() -> None:
            async with AsyncClient(
                own_server.address, namespace=namespace, strategy=save(lines), timeout=30
            ) as client:
                await client.set("connected", 1)
                await work(client)

        asyncio.run(main())

    return run_with


def test_fifty_reads_of_one_key_are_one_get(run: Callable[..., Any], requests: Requests) -> None:
    requests.put("k")

    async def work(client: AsyncClient) -> None:
        with client.request():
            values = await asyncio.gather(*(client.get("k") for _ in range(50)))
            assert values == ["K"] * 50
        stats = client.near_stats()
        assert (stats["reads"], stats["held_hits"], stats["calls"]) == (50, 49, 1)
        assert (stats["keys"], stats["used_keys"]) == (1, 1)
        assert client.stats()["near_hits"] == 49

    run(work)
    assert requests.take() == 1


def test_a_first_read_that_has_to_connect_is_waited_for(
    own_server: Server, namespace: str, save: Save, requests: Requests
) -> None:
    requests.put("k")

    async def main() -> None:
        async with AsyncClient(
            own_server.address, namespace=namespace, strategy=save("strategy remote"), timeout=30
        ) as client:
            with client.request():
                assert await asyncio.gather(*(client.get("k") for _ in range(9))) == ["K"] * 9

    asyncio.run(main())
    assert requests.take() == 1


def test_overlapping_bulk_reads_get_each_key_once(
    run: Callable[..., Any], requests: Requests
) -> None:
    keys = [f"k{number}" for number in range(20)]
    requests.put(*keys)

    async def work(client: AsyncClient) -> None:
        with client.request():
            slices = [keys[start : start + 8] for start in range(0, 20, 3)]
            found = await asyncio.gather(
                *(client.get_many([*some, "nobody"]) for some in slices), client.get("k9")
            )
        for some, values in zip(slices, found, strict=False):
            assert values == {key: key.upper() for key in some}
        assert found[-1] == "K9"

    run(work)
    assert requests.take() == len(keys) + 1


def test_what_a_request_prefetches_is_not_fetched_by_its_other_tasks(
    run: Callable[..., Any], requests: Requests
) -> None:
    requests.put(*"abcdef")
    lines = "strategy subtree:1+children\nchild a b\nchild a c\nchild d e\n"

    async def work(client: AsyncClient) -> None:
        with client.request(page="a"):
            values = await asyncio.gather(*(client.get(key) for key in "abcdefbce"))
        assert values == list("ABCDEFBCE")

    run(work, lines)
    assert requests.take() == 6


def test_a_cancelled_read_leaves_its_key_to_one_of_those_that_wait(
    run: Callable[..., Any], requests: Requests
) -> None:
    requests.put("k")

    async def work(client: AsyncClient) -> None:
        with client.request():
            first, *others = (asyncio.create_task(client.get("k")) for _ in range(5))
            await asyncio.sleep(0)
            first.cancel()
            # The exception, and with it the frames of the first task, stay alive.
            outcome = await asyncio.gather(first, *others, return_exceptions=True)
            assert isinstance(outcome[0], asyncio.CancelledError)
            assert outcome[1:] == ["K"] * 4
        assert client.near_stats()["calls"] == 1

    run(work)
    # That of the first, which had left already, and one more.
    assert requests.take() == 2


def test_a_read_that_waits_keeps_its_own_deadline(
    run: Callable[..., Any], requests: Requests
) -> None:
    requests.put("k", "l")
    pid = requests.server_row("pid")

    async def work(client: AsyncClient) -> None:
        with client.request():
            await client.get("l")
            with paused(pid):
                first = asyncio.create_task(client.get("k"))
                last = asyncio.create_task(client.get_many(["l", "k"]))
                await asyncio.sleep(0)
                begin = time.monotonic()
                with pytest.raises(DeadlineExceeded) as raised:
                    await client.get_many(["l", "k"], deadline=0.2)
                with client.deadline(0.1), pytest.raises(DeadlineExceeded):
                    await client.get("k")
                assert 0.3 <= time.monotonic() - begin < 5
            assert raised.value.unanswered == ["k"]
            assert raised.value.arrived == {"l": "L"}
            assert (raised.value.phase, raised.value.retry_is_safe) == ("read", True)
            assert await first == "K"
            assert await last == {"l": "L", "k": "K"}

    run(work)
    assert requests.take() == 2


def test_a_deadline_that_counts_as_a_miss_does_so_for_a_read_that_waits(
    own_server: Server, namespace: str, save: Save, requests: Requests
) -> None:
    requests.put("k")
    pid = requests.server_row("pid")

    async def main() -> None:
        strategy = save("strategy remote")
        async with AsyncClient(
            own_server.address, namespace=namespace, strategy=strategy, timeout=30, on_error="miss"
        ) as client:
            await client.set("connected", 1)
            with client.request():
                with paused(pid):
                    first = asyncio.create_task(client.get("k"))
                    await asyncio.sleep(0)
                    assert await client.get("k", "none", deadline=0.1) == "none"
                assert await first == "K"
            assert client.stats()["misses_by_error"] == 1

    asyncio.run(main())
    assert requests.take() == 1


def test_ten_reads_of_a_key_without_a_value_are_one_get_and_the_next_read_is_another(
    run: Callable[..., Any], requests: Requests
) -> None:
    async def work(client: AsyncClient) -> None:
        with client.request():
            values = await asyncio.gather(*(client.get("nobody", "none") for _ in range(10)))
            assert values == ["none"] * 10
            assert requests.take() == 1
            requests.put("nobody")
            assert await client.get("nobody") == "NOBODY"
            assert requests.take() == 1

    run(work)


def test_a_read_sees_the_own_write_that_came_before_it_although_an_older_read_is_under_way(
    run: Callable[..., Any], requests: Requests
) -> None:
    requests.put("k")

    async def work(client: AsyncClient) -> None:
        with client.request():
            first = asyncio.create_task(client.get("k"))
            await asyncio.sleep(0)
            await client.set("k", "own")
            assert await client.get("k") == "own"
            assert await first == "K"

    run(work)


def test_event_loops_that_share_a_request_get_a_key_once(
    own_server: Server, namespace: str, save: Save, requests: Requests
) -> None:
    requests.put("k")
    pid = requests.server_row("pid")
    client = AsyncClient(
        own_server.address, namespace=namespace, strategy=save("strategy remote"), timeout=30
    )
    values: list[str] = []
    are_connected = threading.Barrier(4)
    are_waiting = threading.Barrier(4)
    are_done = threading.Barrier(3)

    async def read() -> None:
        await client.set("connected", 1)
        await asyncio.to_thread(are_connected.wait)
        await asyncio.to_thread(are_waiting.wait)
        values.append(await client.get("k"))
        await asyncio.to_thread(are_done.wait)
        await client.close()

    def run_in_context(context: contextvars.Context) -> threading.Thread:
        thread = threading.Thread(target=context.run, args=(asyncio.run, read()))
        thread.start()
        return thread

    with client.request():
        threads = [run_in_context(contextvars.copy_context()) for _ in range(3)]
        are_connected.wait()
        with paused(pid):
            are_waiting.wait()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
    assert values == ["K"] * 3
    assert requests.take() == 1


def test_threads_that_share_a_request_get_a_key_once(
    own_server: Server, namespace: str, save: Save, requests: Requests
) -> None:
    keys = [f"k{number}" for number in range(50)]
    requests.put(*keys)
    pid = requests.server_row("pid")
    client = Client(
        own_server.address, namespace=namespace, strategy=save("strategy remote"), timeout=30
    )
    client.set("connected", 1)
    values: list[dict[str, str]] = []

    def read(keys: list[str]) -> None:
        values.append(client.get_many(keys))

    with client.request():
        contexts = [contextvars.copy_context() for _ in range(6)]
        threads = [
            threading.Thread(target=context.run, args=(read, keys[number * 5 :]))
            for number, context in enumerate(contexts)
        ]
        with paused(pid):
            for thread in threads:
                thread.start()
            with pytest.raises(DeadlineExceeded):
                client.get(keys[-1], deadline=0.3)
        for thread in threads:
            thread.join()
    assert sorted(map(len, values)) == [25, 30, 35, 40, 45, 50]
    assert requests.take() == len(keys)


def test_a_signal_handler_that_reads_what_its_thread_is_fetching_does_not_wait_for_itself(
    own_server: Server, namespace: str, save: Save, requests: Requests
) -> None:
    requests.put("k")
    pid = requests.server_row("pid")
    client = Client(
        own_server.address, namespace=namespace, strategy=save("strategy remote"), timeout=30
    )
    client.set("connected", 1)
    values: list[str] = []

    def handle(*_: Any) -> None:
        os.kill(pid, signal.SIGCONT)
        values.append(client.get("k", deadline=10))

    previous = signal.signal(signal.SIGALRM, handle)
    try:
        with client.request(), paused(pid):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            assert client.get("k") == "K"
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert values == ["K"]


def test_a_signal_handler_that_raises_ends_a_wait(
    own_server: Server, namespace: str, save: Save, requests: Requests
) -> None:
    requests.put("k")
    pid = requests.server_row("pid")
    client = Client(
        own_server.address, namespace=namespace, strategy=save("strategy remote"), timeout=30
    )
    client.set("connected", 1)

    def handle(*_: Any) -> None:
        raise InterruptedError

    previous = signal.signal(signal.SIGALRM, handle)
    try:
        with client.request():
            with paused(pid):
                context = contextvars.copy_context()
                first = threading.Thread(target=context.run, args=(client.get, "k"))
                first.start()
                time.sleep(0.1)
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with pytest.raises(InterruptedError):
                    client.get("k")
            first.join()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert requests.take() == 1
