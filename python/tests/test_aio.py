"""The asyncio client against a real server, on the plain loop and on uvloop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from glasscache import (
    AsyncClient,
    BadKey,
    BadSetting,
    ClientClosed,
    Server,
    ServerUnavailable,
    ValueTooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture(params=["asyncio", "uvloop"])
def run_with_client(request: pytest.FixtureRequest, server: Server) -> Callable[..., Any]:
    """Run a coroutine function with a client of an empty cache."""

    def run_on_loop(use_client: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with AsyncClient(server.address, timeout=5) as client:
                await client.flush()
                return await use_client(client)

        return uvloop.run(main()) if request.param == "uvloop" else asyncio.run(main())

    return run_on_loop


def test_every_method_works(run_with_client: Callable[..., Any]) -> None:
    async def use_client(client: AsyncClient) -> None:
        assert await client.get("a") is None
        assert await client.get("a", default=1) == 1
        assert await client.set("a", "x", ttl=60)
        assert await client.get("a") == "x"
        assert not await client.add("a", 1)
        assert await client.replace("a", "y")
        assert await client.append("a", "z")
        assert await client.prepend("a", "x")
        value, unique = await client.gets("a") or ("", 0)
        assert value == "xyz"
        assert await client.cas("a", "!", unique) is True
        assert await client.cas("a", "!", unique) is False
        assert await client.cas("gone", "!", unique) is None
        assert await client.touch("a", 50)
        assert await client.gat("a", 40) == "!"
        item = await client.get_with_meta("a")
        assert item is not None
        assert item.value == "!"
        assert await client.delete("a")
        assert not await client.delete("a")
        assert await client.incr("n", initial=5) == 5
        assert await client.incr("n", 10) == 15
        assert await client.decr("n", 100) == 0
        assert await client.set_many({"a": 1, "b": [2]}) == {}
        assert await client.get_many(["a", "b", "c"]) == {"a": 1, "b": [2]}
        assert await client.delete_many(["a", "b", "c"]) == {}
        assert await client.get_many(["a", "b", "c"]) == {}
        assert all((await client.version()).values())
        assert all("curr_items" in rows for rows in (await client.server_stats()).values())
        async with client.pipeline() as pipeline:
            pipeline.set("a", 1)
            pipeline.incr("a", 2)
            pipeline.get("a")
        assert pipeline.results == [True, 3, 3]
        for amount in (-5, 2**64):
            with pytest.raises(BadSetting, match="decr subtracts what incr adds"):
                await client.incr("n", amount)
        assert repr(client).startswith("<AsyncClient of 127.0.0.1:")
        with pytest.raises(BadKey):
            await client.get("a b")
        with pytest.raises(BadKey):
            await client.get_many(["a", "a b"])

    run_with_client(use_client)


def test_tasks_get_their_own_values(run_with_client: Callable[..., Any]) -> None:
    async def use_client(client: AsyncClient) -> None:
        async def set_and_get_own_key(number: int) -> None:
            for round_number in range(30):
                key = f"t{number}:{round_number % 3}"
                await client.set(key, key * 30)
                assert await client.get(key) == key * 30

        thread_count_before = threading.active_count()
        await asyncio.gather(*(set_and_get_own_key(number) for number in range(64)))
        assert threading.active_count() == thread_count_before

    run_with_client(use_client)


@pytest.mark.parametrize("size", [0, 4097, 65536, 1_000_000])
def test_values_of_every_size_come_back(size: int, run_with_client: Callable[..., Any]) -> None:
    async def use_client(client: AsyncClient) -> None:
        value = os.urandom(size)
        assert await client.set("v", value)
        assert await client.get("v") == value
        assert await client.set_many({"v": value, "w": value}) == {}
        assert await client.get_many(["v", "w"]) == {"v": value, "w": value}

    run_with_client(use_client)


def test_a_value_that_is_too_large_is_never_silent(run_with_client: Callable[..., Any]) -> None:
    async def use_client(client: AsyncClient) -> None:
        large_value = os.urandom(2_000_000)
        await client.set("big", "an older value")
        with pytest.raises(ValueTooLarge, match="limit 1048576") as error:
            await client.set("big", large_value)
        assert error.value.limit == 1 << 20
        assert await client.get("big") is None
        with pytest.raises(ValueTooLarge):
            await client.set("big", large_value, noreply=True)
        failures = await client.set_many({"a": 1, "big": large_value, "b": 2})
        assert list(failures) == ["big"]
        value_error = failures["big"]
        assert isinstance(value_error, ValueTooLarge)
        assert (value_error.value_bytes, value_error.limit) == (2_000_000, 1 << 20)
        assert await client.get_many(["a", "big", "b"]) == {"a": 1, "b": 2}

    run_with_client(use_client)


def test_a_pipeline_reports_the_limit_of_each_server(server: Server) -> None:
    large_value = os.urandom(3_000_000)

    async def main(limits: dict[str, int]) -> None:
        async with AsyncClient(list(limits), timeout=5) as client:
            keys = [f"k{number}" for number in range(20)]
            async with client.pipeline() as pipeline:
                for key in keys:
                    pipeline.set(key, large_value)
                pipeline.cas(keys[0], large_value, 1)
                pipeline.set("small", "fits")
            *refused, stored = pipeline.results
            expected_limits = [
                limits[client._names[client._slot_of(key)]] for key in [*keys, keys[0]]
            ]
            assert [error.limit for error in refused] == expected_limits
            assert {error.limit for error in refused} == set(limits.values())
            assert all(f"limit {error.limit}" in str(error) for error in refused)
            assert stored is True

    with Server(arguments=("-I", "2m")) as other_server:
        asyncio.run(main({server.address: 1 << 20, other_server.address: 2 << 20}))


def test_more_than_the_peer_takes_at_once_is_held_back(
    run_with_client: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    value = os.urandom(900_000)

    async def use_client(client: AsyncClient) -> None:
        (server_stats,) = (await client.server_stats()).values()
        # The stopped server takes no more than the kernel's buffers hold.
        os.kill(int(server_stats["pid"]), signal.SIGSTOP)
        try:
            keys = [f"k{number}" for number in range(30)]
            set_tasks = [asyncio.create_task(client.set(key, value)) for key in keys]
            await asyncio.sleep(0)
            connection = client._connection_of(0)
            assert connection is not None
            while not connection.must_wait_to_write and not all(task.done() for task in set_tasks):  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert connection.must_wait_to_write
            late_task = asyncio.create_task(
                client.set("late", "stored when the peer takes more again")
            )
            await asyncio.sleep(0.01)
            assert not late_task.done()
        finally:
            os.kill(int(server_stats["pid"]), signal.SIGCONT)
        assert await late_task
        assert all(await asyncio.gather(*set_tasks))
        assert not connection.must_wait_to_write

    run_with_client(use_client)
    assert caplog.records == []


@pytest.mark.parametrize("method", ["set", "replace"])
async def test_a_value_over_the_clients_own_limit_leaves_no_older_one(
    method: str, server: Server
) -> None:
    async with AsyncClient(server.address, timeout=5, value_bytes_max=1000) as client:
        await client.set("k", "an older value")
        with pytest.raises(ValueTooLarge):
            await getattr(client, method)("k", os.urandom(1001))
        assert await client.get("k") is None


def test_an_error_names_the_server_that_is_gone(run_with_client: Callable[..., Any]) -> None:
    async def use_client(_client: AsyncClient) -> None:
        with Server() as stopped_server:
            other_client = AsyncClient(stopped_server.address, timeout=2)
            assert await other_client.set("a", 1)
        with pytest.raises(ServerUnavailable) as error:
            for _ in range(5):
                await other_client.get("a")
        assert error.value.server == stopped_server.address
        await other_client.close()

    run_with_client(use_client)


async def test_a_closed_client_does_not_connect_again(server: Server) -> None:
    client = AsyncClient(server.address, timeout=5)
    await client.set("a", 1)
    await client.close()
    with pytest.raises(ClientClosed):
        await client.get("a")


def test_a_client_may_be_used_on_one_loop_after_another(server: Server) -> None:
    client = AsyncClient(server.address, timeout=5)

    async def main(number: int) -> None:
        assert await client.set("a", number)
        assert await client.get("a") == number

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a loop closes without its transports
        for number in range(3):
            asyncio.run(main(number))
        asyncio.run(client.close())
        gc.collect()


def test_awaited_calls_are_counted_like_the_others(server: Server) -> None:
    async def main() -> dict[str, Any]:
        async with AsyncClient(server.address, timeout=10) as client:
            await client.set("counted", "x" * 5000)
            assert await client.get("counted") == "x" * 5000
            await client.set_many({"a": b"1", "b": b"2", "c": b"3"})
            assert len(await client.get_many(["a", "b", "c"])) == 3
            await client.delete("counted")
            return client.stats()

    stats = asyncio.run(main())
    rows = {(row["operation"], row["bytes_from"]): row for row in stats["by_size"]}
    assert rows["other", 0]["calls"] == 1
    write_row = next(row for (operation, _), row in rows.items() if operation == "write")
    assert write_row["seconds"]["compress"] > 0
    assert write_row["seconds"]["wait"] > 0, "the first call waited for its connection"
    read_row = next(row for (operation, _), row in rows.items() if operation == "read")
    assert read_row["seconds"]["network+server"] > 0
    assert sum(read_row["latency_us_log2"]) == 1
    widths = {row["keys_from"]: row["calls"] for row in stats["by_width"]}
    assert widths == {2: 2}


async def test_a_refused_noreply_write_leaves_the_connection_usable() -> None:
    small_item_server = Server(arguments=("-I", "8k"))
    async with AsyncClient(small_item_server.address, timeout=10) as client:
        await client.set("k", b"kept")
        await client.set("large", os.urandom(9 << 10), noreply=True)
        await asyncio.sleep(0.05)
        assert await client.get("k") == b"kept"
        row = next(iter(client.stats()["servers"].values()))
        assert (row["faults"], row["noreply_failures"]) == (0, 1)
    small_item_server.stop()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connecting_that_is_interrupted_leaves_nothing_in_the_log(
    make_loop: Callable[[], Any],
) -> None:
    reported_errors: list[Any] = []

    async def interrupt_connecting(address: str) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported_errors.append(context)
        )
        for number in range(60):
            client = AsyncClient(address, timeout=0.05)
            get_task = asyncio.ensure_future(client.get("k", deadline=(1 + number % 20) * 1e-4))
            for _ in range(number % 6):
                await asyncio.sleep(0)
            if number % 2:
                await client.close()
            await asyncio.wait([get_task])
            assert get_task.cancelled() or get_task.exception() is not None
            await client.close()
            await asyncio.sleep(0.001)
            gc.collect()

    with (
        socket.create_server(("127.0.0.1", 0), backlog=100) as silent_listener,
        # Closing uvloop's loop waits for every socket that was left open.
        asyncio.Runner(loop_factory=make_loop) as runner,
    ):
        runner.run(interrupt_connecting(f"127.0.0.1:{silent_listener.getsockname()[1]}"))
    assert reported_errors == []
