"""What belongs to an event loop or an interpreter ends with it: connections, descriptors, tasks, callers."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client, ClientClosed, DeadlineExceeded
from scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from glasscache import Server

LOOPS = int(os.environ.get("GLASSCACHE_TEST_LOOPS", "60"))
"""10,000 in a long run."""


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def count_server_connections(server: Server, expected: int = 0) -> int:
    """Return how many there are, once there are no more than expected, or after five seconds."""
    with Client(server.address) as client:
        deadline = time.monotonic() + (5 if expected else 0)
        while True:
            (stats,) = client.server_stats().values()
            connection_count = int(stats["curr_connections"])
            if connection_count <= expected or time.monotonic() > deadline:
                return connection_count
            time.sleep(0.01)


def run_and_close_only(call: Coroutine[Any, Any, Any]) -> None:
    """As an old test runner does: the loop is closed, and nothing on it is ended."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(call)
    loop.close()


def run_in_a_thread(call: Coroutine[Any, Any, Any]) -> None:
    thread = threading.Thread(target=asyncio.run, args=(call,))
    thread.start()
    thread.join()


def run_with_uvloop(call: Coroutine[Any, Any, Any]) -> None:
    uvloop = pytest.importorskip("uvloop")
    uvloop.run(call)


@pytest.mark.parametrize("run", [asyncio.run, run_and_close_only, run_in_a_thread, run_with_uvloop])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of a loop that ends nothing
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_of_many_loops_has_as_many_descriptors_and_connections_as_one_of_few(
    run: Callable[[Coroutine[Any, Any, Any]], None], server: Server
) -> None:
    connections_before = count_server_connections(server)
    client = AsyncClient(server.address, timeout=5)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def use_client(number: int) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert await client.set(f"loop{number}", number)
        assert await client.get_many([f"loop{number}"]) == {f"loop{number}": number}
        await client.set("quiet", number, noreply=True)

    for number in range(10):
        run(use_client(number))
    gc.collect()
    descriptors_before = count_descriptors()
    for number in range(LOOPS):
        run(use_client(number))
    gc.collect()
    assert count_descriptors() <= descriptors_before + 2
    connections_max = connections_before + 3
    assert count_server_connections(server, connections_max) <= connections_max
    assert sum(client._connection_counts.values()) <= 1
    assert sum(loop() is not None for loop in loops) <= 2
    asyncio.run(client.close())
    gc.collect()  # what the abandoned loops left is collected here, where its warnings are expected


@pytest.mark.parametrize("calls_close", [True, False])
def test_a_client_that_is_made_in_a_loop_leaves_nothing_behind(
    calls_close: bool, server: Server
) -> None:
    async def use_clients() -> None:
        for number in range(10):
            client = AsyncClient(server.address, timeout=5)
            assert await client.set("k", number)
            if calls_close:
                await client.close()
            del client
            gc.collect()
        await asyncio.sleep(0.05)
        assert count_descriptors() <= descriptors_before + 5  # with those of the loop itself

    descriptors_before = count_descriptors()
    asyncio.run(use_clients())
    gc.collect()
    assert count_descriptors() <= descriptors_before


def test_quiet_writes_arrive_before_their_loop_ends(server: Server, client: Client) -> None:
    quiet_client = AsyncClient(server.address, timeout=5)

    async def write(number: int) -> None:
        for index in range(50):
            await quiet_client.set(f"quiet{index}", number, noreply=True)

    for number in range(5):
        asyncio.run(write(number))
        with Client(server.address) as reader:
            assert set(reader.get_many([f"quiet{index}" for index in range(50)]).values()) == {
                number
            }


@pytest.mark.parametrize("on_error", ["raise", "miss"])
@pytest.mark.parametrize("call_name", ["get", "get_many", "set", "delete", "incr", "touch"])
def test_calls_that_wait_when_their_client_is_closed_end_in_its_own_error(
    call_name: str, on_error: Any
) -> None:
    async def use_client(address: str) -> None:
        client = AsyncClient(address, timeout=0.1, on_error=on_error)

        def begin() -> Any:
            match call_name:
                case "get_many":
                    return client.get_many(["a", "b"], deadline=5)
                case "set":
                    return client.set("a", 1, deadline=5)
                case "touch":
                    return client.touch("a", 1, deadline=5)
                case _:
                    return getattr(client, call_name)("a", deadline=5)

        calls = [asyncio.ensure_future(begin()) for _ in range(3)]
        await asyncio.sleep(0)
        began_at = time.monotonic()
        await client.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert time.monotonic() - began_at < 2
        assert {type(outcome) for outcome in outcomes} == {ClientClosed}, outcomes
        with pytest.raises(ClientClosed):
            await begin()

    with ScriptedServer() as silent:
        asyncio.run(use_client(silent.address))


async def test_a_call_that_has_begun_gets_its_reply_before_its_client_is_closed(
    server: Server,
) -> None:
    client = AsyncClient(server.address, timeout=5)
    calls = [asyncio.create_task(client.get(f"k{number}", "miss")) for number in range(5)]
    calls.append(asyncio.create_task(client.get_many(["a", "b"])))
    await asyncio.sleep(0)
    await client.close()
    outcomes = await asyncio.gather(*calls)
    assert outcomes == ["miss"] * 5 + [{}]


async def test_a_caller_that_is_cancelled_stays_cancelled(server: Server) -> None:
    client = AsyncClient(server.address, timeout=5)
    call = asyncio.create_task(client.get("k"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await client.get("k", "miss") == "miss"
    await client.close()


def test_a_blocking_deadline_belongs_to_its_task(client: Client) -> None:
    client.set("k", 1)
    outcomes: list[Any] = []

    async def hold_block() -> None:
        with client.deadline(0.02):
            await asyncio.sleep(0.1)
            with pytest.raises(DeadlineExceeded):
                client.get("k")

    async def read_outside() -> None:
        await asyncio.sleep(0.05)
        outcomes.append(client.get("k"))

    async def run_both() -> None:
        await asyncio.gather(hold_block(), read_outside())

    asyncio.run(run_both())
    assert outcomes == [1]
    with client.deadline(0.2):
        time.sleep(0.25)
        with pytest.raises(DeadlineExceeded):  # a thread that a task starts has the task's context
            asyncio.run(asyncio.to_thread(client.get, "k"))
        thread = threading.Thread(target=lambda: outcomes.append(client.get("k")))
        thread.start()
        thread.join()
        with pytest.raises(DeadlineExceeded):
            client.get("k")
    assert outcomes == [1, 1]
    assert client.get("k") == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_block_may_be_left_in_another_context(
    is_async: bool, server: Server, namespace: str
) -> None:
    """As a framework does that finishes a generator elsewhere."""
    client: Any = (AsyncClient if is_async else Client)(
        server.address, timeout=5, namespace=namespace
    )
    block = client.deadline(0.001)
    contextvars.copy_context().run(block.__enter__)
    block.__exit__(None, None, None)
    entered_here = client.deadline(0.001)
    entered_here.__enter__()
    contextvars.copy_context().run(entered_here.__exit__, None, None, None)
    time.sleep(0.01)
    with client.deadline(5):  # the block that was left elsewhere counts no more
        if is_async:
            assert asyncio.run(client.get("k", "miss")) == "miss"
        else:
            assert client.get("k", "miss") == "miss"


SUB_INTERPRETERS = """
import sys
interpreters = __import__("_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters")
code = '''
import sys; sys.path[:] = {path!r}
from glasscache import Client
client = Client({address!r}, timeout=5)
client.set("k", 1); client.set("k", 2, noreply=True); client.set("k", 3, noreply=True)
recorder = client.recorder({folder!r})
with recorder.request(): client.get("k")
'''
is_old = sys.version_info < (3, 13)
for number in range(2):
    interpreter = interpreters.create(isolated=False) if is_old else interpreters.create("legacy")
    interpreters.run_string(interpreter, code)
print("done")
"""


def test_a_process_with_sub_interpreters_ends(
    server: Server, client: Client, tmp_path: Any
) -> None:
    program = SUB_INTERPRETERS.format(
        path=sys.path, address=server.address, folder=str(tmp_path / "log")
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    if (
        "PyO3 modules" in ended.stderr
        or "does not support loading in subinterpreters" in ended.stderr
    ):
        pytest.skip("the module cannot be imported there")
    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr
    assert client.get("k") == 3


def test_an_unclosed_client_of_an_abandoned_loop_is_collected(server: Server) -> None:
    async def use_client() -> weakref.ref[Any]:
        client = AsyncClient(server.address, timeout=5)
        await client.get("k")
        return weakref.ref(client)

    reference = asyncio.run(use_client())
    gc.collect()
    assert reference() is None
    with contextlib.suppress(ResourceWarning):
        gc.collect()
