"""Names and arguments of other clients: the error suggests ours."""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import glasscache
import pytest
from glasscache import AsyncClient, BadSetting, Client, GlasscacheError, UnreadableValue
from glasscache._suggestions import KEYWORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Server


def error_of(call: Callable[[Any], Any], client: Any) -> Exception | None:
    """Return what a call of either client raises."""
    if isinstance(client, Client):
        try:
            call(client)
        except (TypeError, AttributeError, GlasscacheError) as error:
            return error
        return None

    async def run_asyncio_call() -> Exception | None:
        try:
            await call(client)
        except (TypeError, AttributeError, GlasscacheError) as error:
            return error
        return None

    return asyncio.run(run_asyncio_call())


@pytest.fixture(params=[Client, AsyncClient])
def either_client(request: pytest.FixtureRequest, server: Server) -> Any:
    return request.param(server.address, timeout=5)


BULK_METHODS = ["get_many", "gets_many", "delete_many"]


@pytest.mark.parametrize("keys", ["num", b"num", bytearray(b"num")])
@pytest.mark.parametrize("method", BULK_METHODS)
def test_one_text_is_not_an_iterable_of_keys(either_client: Any, method: str, keys: Any) -> None:
    error = error_of(lambda client: getattr(client, method)(keys), either_client)
    assert isinstance(error, TypeError)
    assert "write [key]" in str(error)


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_one_text_is_refused_as_keys_with_a_gutter_and_without_waiting(
    server: Server, client_class: Any
) -> None:
    client_with_gutter = client_class(server.address, timeout=5, gutter=server.address)
    for method in BULK_METHODS:
        bulk_error = error_of(
            lambda client, method=method: getattr(client, method)("num"), client_with_gutter
        )
        assert isinstance(bulk_error, TypeError), method
    client_without_gutter = client_class(server.address, timeout=5)
    quiet_error = error_of(
        lambda client: client.delete_many("num", noreply=True), client_without_gutter
    )
    assert isinstance(quiet_error, TypeError)


def test_one_text_is_refused_as_keys_in_a_pipeline_and_while_migrating(server: Server) -> None:
    from glasscache.migration import MigratingClient

    client = Client(server.address, timeout=5)
    with client.pipeline() as pipeline:
        for method in ("get_many", "delete_many"):
            with pytest.raises(TypeError, match="write"):
                getattr(pipeline, method)("num")
    migrating_client = MigratingClient(server.address, old={"placement": "modula"}, timeout=5)
    for method in ("get_many", "delete_many"):
        with pytest.raises(TypeError, match="write"):
            getattr(migrating_client, method)("num")


@pytest.mark.long
def test_a_text_for_keys_fails_type_checking(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from collections.abc import Iterator\n"
        "from glasscache import AsyncClient, Client\n"
        "def refused(c: Client, a: AsyncClient) -> None:\n"
        '    c.get_many("num")\n'
        '    c.gets_many("num")\n'
        '    c.delete_many("num")\n'
        '    a.get_many("num")\n'
        '    c.get_many(b"num")\n'
        '    c.pipeline().get_many("num")\n'
        '    c.set("k", 1, expire=60)\n'
        '    c.get_multi(["k"])\n'
        "def taken(c: Client, names: dict[str, int], more: Iterator[str]) -> None:\n"
        '    c.get_many(["a"]), c.get_many(("a", b"b")), c.get_many({"a"}), c.get_many(names)\n'
        "    c.get_many(names.keys()), c.get_many(more), c.get_many(n for n in names)\n"
        "    c.get_many(map(str, names))\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)]
    root = Path(__file__).parents[2]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    error_line_numbers = {
        int(line.split(":")[1])
        for line in completed.stdout.splitlines()
        if line.startswith(str(program)) and ": error:" in line
    }
    assert {4, 5, 6, 7, 8, 9, 10, 11} == {number for number in error_line_numbers if number < 12}, (
        completed.stdout
    )
    assert not {number for number in error_line_numbers if number > 11}, completed.stdout


@pytest.mark.parametrize(
    "foreign_name", ["expire", "ex", "time", "exptime", "expiration", "timeout"]
)
@pytest.mark.parametrize("method", ["set", "add", "replace", "set_many", "touch", "gat", "incr"])
def test_another_clients_name_of_ttl_suggests_ours(
    either_client: Any, method: str, foreign_name: str
) -> None:
    arguments: list[Any] = {
        "set_many": [{"k": 1}],
        "touch": ["k"],
        "gat": ["k"],
        "incr": ["k"],
    }.get(method, ["k", 1])
    error = error_of(
        lambda client: getattr(client, method)(*arguments, **{foreign_name: 60}), either_client
    )
    assert isinstance(error, TypeError)
    assert "ttl" in str(error)


METHODS_WITH_FOREIGN_KEYWORDS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("set", "add", "replace"), ("k", 1)),
    "cas": ("k", 1, 1),
    "gat": ("k", 1),
    "touch": ("k", 1),
    "set_many": ({"k": 1},),
    **dict.fromkeys(("incr", "decr"), ("k",)),
}


@pytest.mark.parametrize("method", METHODS_WITH_FOREIGN_KEYWORDS)
def test_each_keyword_of_another_client_is_named_with_ours(either_client: Any, method: str) -> None:
    arguments = METHODS_WITH_FOREIGN_KEYWORDS[method]
    for foreign_keyword, replacement in KEYWORDS.items():
        for value in (1, None):
            error = error_of(
                lambda client, given={foreign_keyword: value}: getattr(client, method)(
                    *arguments, **given
                ),
                either_client,
            )
            assert isinstance(error, TypeError), (foreign_keyword, value)
            assert repr(foreign_keyword) in str(error)
            assert f"write {replacement}" in str(error)


@pytest.mark.parametrize("method", METHODS_WITH_FOREIGN_KEYWORDS)
def test_the_keywords_of_other_clients_take_no_position(either_client: Any, method: str) -> None:
    signature = inspect.signature(getattr(either_client, method))
    assert not KEYWORDS.keys() & signature.parameters.keys()
    positional_count = sum(
        parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        for parameter in signature.parameters.values()
    )
    for surplus_count in (1, 2):
        positional = [*METHODS_WITH_FOREIGN_KEYWORDS[method], *[1] * 4]
        del positional[positional_count + surplus_count :]
        error = error_of(
            lambda client, given=positional: getattr(client, method)(*given), either_client
        )
        assert isinstance(error, TypeError)
        assert "positional arguments" in str(error)


def test_an_unknown_keyword_is_named(either_client: Any) -> None:
    error = error_of(lambda client: client.set("k", 1, colour="red"), either_client)
    assert isinstance(error, TypeError)
    assert str(error).endswith("set() got an unexpected keyword argument 'colour'")


@pytest.mark.parametrize(
    ("foreign_method", "own_method"),
    [
        ("get_multi", "get_many"),
        ("set_multi", "set_many"),
        ("delete_multi", "delete_many"),
        ("flush_all", "flush"),
        ("expire", "touch"),
        ("get_stats", "server_stats"),
    ],
)
def test_another_clients_method_names_ours(
    either_client: Any, foreign_method: str, own_method: str
) -> None:
    with pytest.raises(AttributeError, match=f"{foreign_method}.*write {own_method}"):
        getattr(either_client, foreign_method)
    with pytest.raises(AttributeError, match=f"{foreign_method}.*write {own_method}"):
        getattr(either_client.pipeline(), foreign_method)
    assert not hasattr(either_client, foreign_method)
    assert foreign_method not in dir(either_client)


def test_a_ttl_may_be_a_timedelta(server: Server) -> None:
    one_minute = timedelta(minutes=1)

    def remaining_ttl_s(client: Client, key: str) -> int | None:
        item = client.get_with_meta(key)
        assert item is not None
        return item.ttl

    async def run_asyncio_call() -> None:
        async with AsyncClient(server.address, timeout=5) as client:
            await client.set("a", 1, one_minute)
            await client.set_many({"b": 1}, ttl=one_minute)
            await client.set("c", 1)
            await client.touch("c", one_minute)
            await client.get_or_set("d", lambda: 1, one_minute, stale=30)

    def store_with_blocking_client(client: Client) -> None:
        client.set("a", 1, one_minute)
        client.set_many({"b": 1}, ttl=one_minute)
        client.set("c", 1)
        client.touch("c", one_minute)
        client.get_or_set("d", lambda: 1, one_minute, stale=30)

    with Client(server.address, timeout=5) as client:
        for store_values in (store_with_blocking_client, lambda _: asyncio.run(run_asyncio_call())):
            client.flush()
            store_values(client)
            assert [remaining_ttl_s(client, key) in {59, 60} for key in "abc"] == [True] * 3
            assert remaining_ttl_s(client, "d") in {89, 90}
        with client.pipeline() as pipeline:
            pipeline.set("e", 1, one_minute)
        assert remaining_ttl_s(client, "e") in {59, 60}
        client_with_gutter = Client("127.0.0.1:1", timeout=5, gutter=server.address, gutter_ttl=10)
        client_with_gutter.set("f", 1, one_minute)
        assert remaining_ttl_s(client, "f") in {9, 10}


def test_a_ttl_of_a_wrong_type_is_refused(either_client: Any) -> None:
    error = error_of(lambda client: client.set("k", 1, ttl="60"), either_client)
    assert isinstance(error, TypeError)
    assert "ttl is a number of seconds or a timedelta, not str" in str(error)


@pytest.mark.parametrize(
    ("settings", "listed_values"),
    [
        ({"codec": "yaml"}, ["json", "msgpack", "pickle", "pymemcache"]),
        ({"dialect": "yaml"}, ["own", "pymemcache", "php-memcached"]),
        ({"placement": "foo"}, ["ketama", "rendezvous", "jump"]),
        ({"on_error": "ignore"}, ["raise", "miss"]),
        ({"keys": "hash"}, ["refuse", "base64"]),
    ],
)
def test_a_setting_with_an_unknown_value_lists_the_accepted_ones(
    settings: Any, listed_values: list[str]
) -> None:
    (setting_name,) = settings
    for client_class in (Client, AsyncClient):
        with pytest.raises(BadSetting, match=f"^{setting_name}=") as error_info:
            client_class("127.0.0.1:1", **settings)
        assert [value for value in listed_values if value not in str(error_info.value)] == []


def test_a_codecs_settings_list_their_values() -> None:
    for settings in ({"compress": "rar"}, {"objects": "yaml"}, {"migrate_from": "redis"}):
        (setting_name,) = settings
        with pytest.raises(BadSetting, match=f"^{setting_name}=.*one of"):
            glasscache.Codec(**settings)  # type: ignore[arg-type]


def test_a_timeout_of_milliseconds_is_warned_of() -> None:
    for client_class in (Client, AsyncClient):
        with pytest.warns(UserWarning, match="in seconds"):
            client_class("127.0.0.1:1", timeout=250)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client_class("127.0.0.1:1", timeout=60)


def test_get_or_set_with_a_value_instead_of_a_function_is_refused(either_client: Any) -> None:
    error = error_of(lambda client: client.get_or_set("k", 5), either_client)
    assert isinstance(error, TypeError)
    assert "write lambda: 5" in str(error)


def test_the_package_has_its_version_and_all_public_names() -> None:
    assert glasscache.__version__ == importlib.metadata.version("glasscache")
    assert set(glasscache.__all__) <= set(dir(glasscache))


def test_the_first_example_runs_as_it_stands() -> None:
    lines = (glasscache.__doc__ or "").splitlines()
    program_lines = [line[4:] for line in lines if line.startswith((">>> ", "... "))]
    completed = subprocess.run(
        [sys.executable, "-"],
        input="\n".join([*program_lines, ""]),
        text=True,
        check=False,
        capture_output=True,
    )
    assert completed.returncode == 0, completed.stderr


def test_with_on_an_asyncio_client_is_refused_with_async_with(server: Server) -> None:
    client: Any = AsyncClient(server.address)
    with pytest.raises(TypeError, match="async with"), client:
        pass


def test_statistics_of_servers_are_numbers(server: Server) -> None:
    async def run_asyncio_call() -> dict[str, Any]:
        async with AsyncClient(server.address, timeout=5) as client:
            return await client.server_stats()

    with Client(server.address, timeout=5) as client:
        for stats in (client.server_stats(), asyncio.run(run_asyncio_call())):
            (stats_of_server,) = stats.values()
            assert isinstance(stats_of_server["get_hits"], int)
            assert isinstance(stats_of_server["rusage_user"], float)
            assert isinstance(stats_of_server["version"], str)


def test_a_pipeline_has_the_bulk_calls(server: Server) -> None:
    def record_pipeline(pipeline: Any) -> None:
        pipeline.set_many({"a": 1, "b": None, "c": 3}, 60)
        pipeline.get("a")
        pipeline.get_many(["a", "b", "never"])
        pipeline.delete_many(["a", "never"])
        pipeline.get("a")

    async def run_asyncio_call() -> list[Any]:
        async with AsyncClient(server.address, timeout=5) as client, client.pipeline() as pipeline:
            record_pipeline(pipeline)
        return pipeline.results

    with Client(server.address, timeout=5) as client, client.pipeline() as pipeline:
        record_pipeline(pipeline)
    assert pipeline.results == [{}, 1, {"a": 1, "b": None}, {}, None]
    assert asyncio.run(run_asyncio_call()) == pipeline.results


def test_on_error_takes_a_function_that_decides_which_errors_are_misses(server: Server) -> None:
    error_names: list[str] = []

    def is_unreadable(error: GlasscacheError) -> bool:
        error_names.append(type(error).__name__)
        return isinstance(error, UnreadableValue)

    async def run_asyncio_call() -> Any:
        async with AsyncClient(server.address, timeout=5, on_error=is_unreadable) as client:
            values = await client.get("bad", "?"), await client.get_many(["good", "bad"])
            return values, client.stats()["misses_by_error"]

    with Client(server.address, timeout=5, dialect="pymemcache", codec="pickle") as other_client:
        other_client.set("bad", {1})
        other_client.set("good", b"1")
    with Client(server.address, timeout=5, on_error=is_unreadable) as client:
        values = client.get("bad", "?"), client.get_many(["good", "bad"])
        values_and_misses = values, client.stats()["misses_by_error"]
    assert values_and_misses == asyncio.run(run_asyncio_call()) == (("?", {"good": b"1"}), 2)
    assert set(error_names) == {"UnreadableValue"}
    with (
        Client("127.0.0.1:1", timeout=0.2, on_error=is_unreadable) as client_of_down_server,
        pytest.raises(glasscache.ServerUnavailable),
    ):
        client_of_down_server.get("k")
