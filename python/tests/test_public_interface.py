"""Methods and settings that both clients accept or refuse alike, with the same message."""

from __future__ import annotations

import asyncio
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import (
    AsyncClient,
    BadKey,
    BadSetting,
    Client,
    ClientClosed,
    Codec,
    GlasscacheError,
    UnreadableValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Server


def outcomes_of_both_clients(
    server: Server, call: Callable[[Any], Any], **settings: Any
) -> list[Any]:
    """Make the same call with either client; return what came of it."""
    outcomes: list[Any] = []

    def type_and_text(error: Exception) -> tuple[type[Exception], str]:
        return type(error), str(error)

    async def run_asyncio_call() -> Any:
        async with AsyncClient(server.address, timeout=5, **settings) as client:
            outcome = call(client)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

    try:
        with Client(server.address, timeout=5, **settings) as client:
            client.flush()
            outcomes.append(call(client))
    except (GlasscacheError, TypeError) as error:
        outcomes.append(type_and_text(error))
    try:
        outcomes.append(asyncio.run(run_asyncio_call()))
    except (GlasscacheError, TypeError) as error:
        outcomes.append(type_and_text(error))
    return outcomes


METHODS = """
add append cached cas clear close codec deadline decr delete delete_many encode explain
explain_value flush gat get get_many get_or_set get_or_set_by get_with_meta gets gets_many incr
invalidate_tag near_stats pipeline prepend recorder replace report request send_gathered server_of
server_stats set set_many set_route set_servers stats tagged touch version
"""


def test_both_clients_have_the_same_public_names(server: Server) -> None:
    def method_names(client: object) -> set[str]:
        return {name for name in dir(client) if not name.startswith("_")}

    blocking_names, asyncio_names = method_names(Client), method_names(AsyncClient)
    assert blocking_names == asyncio_names == set(METHODS.split())
    gutter = {"gutter": server.address}
    clients_with_gutter = [
        client_class(server.address, **gutter) for client_class in (Client, AsyncClient)
    ]
    assert (
        method_names(clients_with_gutter[0])
        == method_names(clients_with_gutter[1])
        == blocking_names | {"gutter"}
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"namespace": "a b"},
        {"namespace": "x 0 0 1\r\nflush_all\r\n"},
        {"namespace": "n" * 250},
        {"namespace": 5},
        {"on_error": "ignore"},
        {"keys": "hash"},
        {"codec": 5},
        {"codec": Codec(), "dialect": "pymemcache"},
        {"timeout": 0},
        {"timeout": float("nan")},
    ],
)
def test_invalid_settings_are_refused(server: Server, settings: dict[str, Any]) -> None:
    for client_class in (Client, AsyncClient):
        with pytest.raises(BadSetting):
            client_class(server.address, **settings)


def test_a_client_without_connections_is_refused(server: Server) -> None:
    with pytest.raises(BadSetting, match="connections_max"):
        Client(server.address, connections_max=0)


def test_a_namespace_that_is_not_plain_is_sent_as_base64(server: Server) -> None:
    with Client(
        server.address, timeout=5, namespace="spaced out:", keys="base64"
    ) as client_with_spaces:
        assert client_with_spaces.set("k", 1)
        assert client_with_spaces.get_many(["k"]) == {"k": 1}
        with Client(server.address, timeout=5) as client_without_namespace:
            assert client_without_namespace.get("spaced") is None


def test_no_argument_of_stats_begins_a_command(server: Server) -> None:
    with Client(server.address, timeout=5) as client:
        assert client.set("kept", 1)
        for error_type in stats_error_types_of_both_clients(server, "settings\r\nflush_all"):
            assert error_type is BadSetting
        assert client.get("kept") == 1


def stats_error_types_of_both_clients(server: Server, argument: str) -> list[type[Exception]]:
    async def run_asyncio_call() -> None:
        async with AsyncClient(server.address, timeout=5) as client:
            await client.server_stats(argument)

    with pytest.raises(BadSetting) as blocking_error, Client(server.address, timeout=5) as client:
        client.server_stats(argument)
    with pytest.raises(BadSetting) as async_error:
        asyncio.run(run_asyncio_call())
    return [blocking_error.type, async_error.type]


@pytest.mark.parametrize("ttl", [-0.5, -1, -(10**9)])
def test_a_negative_ttl_ends_the_value_at_once(server: Server, ttl: float) -> None:
    async def store_and_read(client: AsyncClient) -> Any:
        await client.set("over", 1, ttl=ttl)
        return await client.get("over")

    def call(client: Any) -> Any:
        if isinstance(client, AsyncClient):
            return store_and_read(client)
        client.set("over", 1, ttl=ttl)
        return client.get("over")

    assert outcomes_of_both_clients(server, call) == [None, None]


@pytest.mark.parametrize("ttl", [float("nan"), float("inf"), 1e12])
def test_a_ttl_beyond_all_bounds_is_refused(server: Server, ttl: float) -> None:
    outcomes = outcomes_of_both_clients(server, lambda client: client.set("k", 1, ttl=ttl))
    assert [outcome[0] for outcome in outcomes] == [BadSetting, BadSetting]


def test_keys_without_a_utf8_form_are_bad_keys(server: Server) -> None:
    outcomes = outcomes_of_both_clients(server, lambda client: client.get("\ud800"))
    assert [outcome[0] for outcome in outcomes] == [BadKey, BadKey]


@pytest.mark.parametrize("items", [MappingProxyType({"m": 1}), UserDict(m=1)])
def test_set_many_takes_any_mapping_and_nothing_else(server: Server, items: Any) -> None:
    assert outcomes_of_both_clients(server, lambda client: client.set_many(items)) == [{}, {}]
    first_outcome, second_outcome = outcomes_of_both_clients(
        server, lambda client: client.set_many([("m", 1)])
    )
    assert first_outcome == second_outcome
    assert first_outcome[0] is TypeError


def test_bulk_writes_need_not_wait(server: Server) -> None:
    async def run_asyncio_call() -> dict[Any, Any]:
        async with AsyncClient(server.address, timeout=5) as client:
            assert await client.set_many({"q1": 1, "q2": 2, "q3": 3}, noreply=True) == {}
            assert await client.delete_many(["q2"], noreply=True) == {}
            return await client.get_many(["q1", "q2", "q3"])

    with Client(server.address, timeout=5) as client:
        assert client.set_many({"q1": 1, "q2": 2, "q3": 3}, noreply=True) == {}
        assert client.delete_many(["q2"], noreply=True) == {}
        assert client.get_many(["q1", "q2", "q3"]) == {"q1": 1, "q3": 3}
    assert asyncio.run(run_asyncio_call()) == {"q1": 1, "q3": 3}


def test_get_or_set_needs_no_ttl(server: Server) -> None:
    assert outcomes_of_both_clients(
        server, lambda client: client.get_or_set("made", lambda: 5)
    ) == [5, 5]
    assert outcomes_of_both_clients(
        server, lambda client: client.get_or_set("made", lambda: 6, 60)
    ) == [6, 6]


def test_bulk_reads_take_encoded_keys(server: Server) -> None:
    async def run_asyncio_call() -> Any:
        async with AsyncClient(server.address, timeout=5, keys="base64") as client:
            await client.set_many({"a b": 1, "plain": 2})
            unique = (await client.gets("a b"))[1]
            assert (await client.gets_many(["c d", "plain", "a b"]))["a b"] == (1, unique)
            return await client.get_many(["a b", "plain", "c d"])

    assert asyncio.run(run_asyncio_call()) == {"a b": 1, "plain": 2}
    with Client(server.address, timeout=5, keys="base64") as client:
        assert client.get_many(["c d", "plain", "a b"]) == {"a b": 1, "plain": 2}
        assert client.gets_many(["a b"]) == {"a b": client.gets("a b")}


@pytest.mark.parametrize("method", ["version", "flush", "server_stats", "delete_many", "get"])
def test_a_closed_client_sends_no_request(server: Server, method: str) -> None:
    arguments = {"delete_many": [["k"]], "get": ["k"]}.get(method, [])
    client = Client(server.address, timeout=5)
    client.close()
    with pytest.raises(ClientClosed):
        getattr(client, method)(*arguments)

    async def run_asyncio_call() -> None:
        client = AsyncClient(server.address, timeout=5)
        await client.close()
        await getattr(client, method)(*arguments)

    with pytest.raises(ClientClosed):
        asyncio.run(run_asyncio_call())


def test_both_clients_explain_a_value_and_a_miss(server: Server) -> None:
    for explanation in outcomes_of_both_clients(
        server, lambda client: client.explain_value([1, 2])
    ):
        assert "4 bytes on the wire" in str(explanation)
    for explanation in outcomes_of_both_clients(server, lambda client: client.explain("never")):
        assert "a miss at" in str(explanation)


def test_loops_of_several_threads_share_a_client(server: Server) -> None:
    client = AsyncClient(server.address, timeout=5)
    wrong_values: list[Any] = []

    async def make_calls(name: str) -> None:
        for number in range(300):
            key = f"{name}-{number % 20}"
            await client.set(key, key)
            if (value := await client.get(key)) != key:
                wrong_values.append((key, value))

    def run(number: int) -> None:
        asyncio.run(make_calls(f"loop{number}"))

    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(run, range(4))) == [None] * 4
    assert wrong_values == []


def test_one_unreadable_value_hides_no_other(server: Server) -> None:
    with Client(server.address, timeout=5, codec="pickle") as pickling_client:
        pickling_client.flush()
        assert pickling_client.set_many({"good": 1, "bad": {"a"}, "fine": b"2"}) == {}

    def read_three_values(client: Any) -> Any:
        async def run_asyncio_call() -> Any:
            try:
                return await client.get_many(["good", "bad", "fine"])
            except UnreadableValue as error:
                return sorted(error.unanswered), error.arrived

        if isinstance(client, AsyncClient):
            return run_asyncio_call()
        try:
            return client.get_many(["good", "bad", "fine"])
        except UnreadableValue as error:
            return sorted(error.unanswered), error.arrived

    values = {"good": 1, "fine": b"2"}
    with Client(server.address, timeout=5) as client:
        assert read_three_values(client) == (["bad"], values)
    assert asyncio.run(call_once(server, read_three_values)) == (["bad"], values)
    with Client(server.address, timeout=5, on_error="miss") as client:
        assert (read_three_values(client), client.stats()["misses_by_error"]) == (values, 1)
    assert asyncio.run(call_once(server, read_three_values, on_error="miss")) == values


async def call_once(server: Server, call: Callable[[Any], Any], **settings: Any) -> Any:
    async with AsyncClient(server.address, timeout=5, **settings) as client:
        outcome = await call(client)
        assert client.stats()["misses_by_error"] == (settings != {})
        return outcome


def test_misses_by_error_are_counted_by_key() -> None:
    async def run_asyncio_call() -> tuple[Any, int]:
        async with AsyncClient("127.0.0.1:1", timeout=0.2, on_error="miss") as client:
            outcome = await client.get_many(["a", "b"]), await client.cas("a", 1, 1)
            return outcome, client.stats()["misses_by_error"]

    with Client("127.0.0.1:1", timeout=0.2, on_error="miss") as client:
        outcome = client.get_many(["a", "b"]), client.cas("a", 1, 1)
        outcome_and_misses = outcome, client.stats()["misses_by_error"]
    assert outcome_and_misses == asyncio.run(run_asyncio_call()) == (({}, False), 3)


def test_objects_take_time_to_read_and_pipelines_are_counted(server: Server) -> None:
    value = {"a": ["x" * 100] * 100}

    def sum_seconds(rows: list[dict[str, Any]]) -> dict[str, float]:
        names = rows[0]["seconds"]
        return {name: sum(row["seconds"][name] for row in rows) for name in names}

    async def run_asyncio_call() -> dict[str, float]:
        async with AsyncClient(server.address, timeout=5) as client:
            await client.set("object", value)
            assert await client.get("object") == value
            assert client.stats()["servers"][server.address]["connections"] == 1
            return sum_seconds(client.stats()["by_size"])

    with Client(server.address, timeout=5) as client:
        client.set("object", value)
        assert client.get("object") == value
        for costs in (sum_seconds(client.stats()["by_size"]), asyncio.run(run_asyncio_call())):
            assert all(costs[part] > 0 for part in costs if part != "wait"), costs
        with client.pipeline() as pipeline:
            pipeline.set("object", value)
            pipeline.get("object")
        (row,) = client.stats()["by_width"]
        assert (row["calls"], row["keys_from"]) == (1, 2)
        assert row["seconds"]["deserialise"] > 0
        assert row["seconds"]["network+server"] > 0


@pytest.mark.parametrize("dialect", ["own", "pymemcache", "spymemcached", "raw"])
def test_a_counter_is_read_as_other_numbers_are(server: Server, dialect: str) -> None:
    async def run_asyncio_call() -> list[Any]:
        async with AsyncClient(server.address, timeout=5, dialect=dialect) as client:
            await client.delete("counter")
            results = [await client.incr("counter", initial=2**63) for _ in range(2)]
            results.append(await client.decr("counter", 5, initial=9))
            results.append((await client.get_with_meta("counter")).ttl)
            return [*results, await client.get("counter")]

    with Client(server.address, timeout=5, dialect=dialect) as client:
        client.delete("counter")
        results: list[Any] = [client.incr("counter", initial=2**63) for _ in range(2)]
        results.append(client.decr("counter", 5, initial=9))
        item = client.get_with_meta("counter")
        assert item is not None
        results += [item.ttl, client.get("counter")]
    last_number = 2**63 - 4
    expected_by_dialect = {
        "own": last_number,
        "pymemcache": last_number,
        "spymemcached": f"{last_number}",
        "raw": f"{last_number}".encode(),
    }
    assert results == [2**63, 2**63 + 1, last_number, None, expected_by_dialect[dialect]]
    assert asyncio.run(run_asyncio_call()) == results


def test_pipelines_of_both_clients_have_the_same_methods(server: Server) -> None:
    def record_pipeline(pipeline: Any, unique: int) -> None:
        pipeline.append("joined", "c")
        pipeline.prepend("joined", b"a")
        pipeline.get("joined")
        pipeline.gat("joined", 40)
        pipeline.gat("never", 40)
        pipeline.cas("one", 2, unique)
        pipeline.cas("one", 3, unique)
        pipeline.cas("never", 3, unique)
        pipeline.get("one")
        pipeline.gets("never")
        pipeline.append("never", "x")

    async def run_asyncio_call() -> list[Any]:
        async with AsyncClient(server.address, timeout=5) as client:
            await client.set_many({"joined": "b", "one": 1})
            _, unique = await client.gets("one") or (0, 0)
            async with client.pipeline() as pipeline:
                record_pipeline(pipeline, unique)
            return pipeline.results

    with Client(server.address, timeout=5) as client:
        client.set_many({"joined": "b", "one": 1})
        with client.pipeline() as pipeline:
            pipeline.gets("one")
        assert pipeline.results == [client.gets("one")]
        with client.pipeline() as second_pipeline:
            record_pipeline(second_pipeline, pipeline.results[0][1])
        item = client.get_with_meta("joined")
        assert item is not None
        assert item.ttl in {39, 40}
        with pytest.raises(TypeError, match="append"), client.pipeline() as failing_pipeline:
            failing_pipeline.append("joined", 5)
    expected = [True, True, "abc", "abc", None, True, False, None, 2, None, False]
    assert second_pipeline.results == expected
    assert asyncio.run(run_asyncio_call()) == expected
