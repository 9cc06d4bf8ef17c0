"""The synchronous client against a real server: the methods and what they return."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import glasscache
import pytest
from glasscache import (
    BadKey,
    BadSetting,
    Client,
    ClientClosed,
    GlasscacheError,
    RequestRefused,
    Server,
    ServerUnavailable,
    ValueTooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_every_method_works(client: Client) -> None:
    assert client.get("a") is None
    assert client.get("a", default=1) == 1
    assert client.set("a", "x", ttl=60)
    assert client.get("a") == client.get(b"a") == "x"
    assert not client.add("a", 1)
    assert client.replace("a", "y")
    assert client.append("a", "z")
    assert client.prepend("a", "x")
    assert client.get("a") == "xyz"
    value, unique = client.gets("a") or ("", 0)
    assert client.cas("a", value + "!", unique) is True
    assert client.cas("a", value, unique) is False
    assert client.cas("gone", value, unique) is None
    assert client.touch("a", 50)
    assert not client.touch("gone", 50)
    assert client.gat("a", 40) == "xyz!"
    item = client.get_with_meta("a")
    assert item is not None
    assert item.value == "xyz!"
    assert item.ttl is not None
    assert 38 <= item.ttl <= 40
    assert client.delete("a")
    assert not client.delete("a")
    assert client.incr("n") is None
    assert client.incr("n", initial=5) == 5
    assert client.incr("n", 10) == 15
    assert client.decr("n", 100) == 0
    assert client.set_many({"a": 1, "b": [2]}) == {}
    assert client.get_many(["a", "b", "c"]) == {"a": 1, "b": [2]}
    assert client.delete_many(["a", "b", "c"]) == {}
    assert client.get_many(["a", "b", "c"]) == {}
    assert client.get_or_set("made", lambda: {"x": 1}, ttl=5) == {"x": 1}
    assert client.get("made") == {"x": 1}
    assert set(client.flush().values()) == {True}
    assert client.get("made") is None
    assert all(client.version().values())
    assert all("curr_items" in rows for rows in client.server_stats().values())


def test_a_pipeline_gives_each_outcome_in_order(client: Client) -> None:
    with client.pipeline() as pipeline:
        pipeline.set("a", 1)
        pipeline.incr("a", 5)
        pipeline.get("a")
        pipeline.set("text", "x")
        pipeline.incr("text")
        pipeline.get("gone")
        pipeline.delete("a")
    *first_results, refused, missing, deleted = pipeline.results
    assert first_results == [True, 6, 6, True]
    assert isinstance(refused, RequestRefused)
    assert (missing, deleted) == (None, True)


def test_threads_and_forked_children_share_connections_fairly(client: Client) -> None:
    """A thread of the parent that waited for the interpreter lock at the fork does not block the child."""
    wrong_values: list[object] = []
    is_over = threading.Event()

    def read(key: str) -> None:
        while not is_over.is_set():
            if client.get(key) != key * 30:
                wrong_values.append(key)

    keys = [f"turn{number}" for number in range(8)]
    client.set_many({key: key * 30 for key in keys})
    threads = [threading.Thread(target=read, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            child_pid = os.fork()
            if child_pid == 0:
                all_are_correct = all(client.get(key, deadline=5) == key * 30 for key in keys * 5)
                os._exit(0 if all_are_correct else 1)
            assert os.waitpid(child_pid, 0)[1] == 0
    finally:
        is_over.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert wrong_values == []


@pytest.mark.parametrize("size", [4096, 4097, 16_385, 65_537, 900_000])
def test_a_pipeline_sends_values_of_every_size(size: int, client: Client) -> None:
    values = [os.urandom(size) for _ in range(3)]
    with client.pipeline() as pipeline:
        for number, value in enumerate(values):
            pipeline.set(f"long{number}", value)
            pipeline.get(f"long{number}")
        pipeline.set("after", "the last")
    assert pipeline.results == [outcome for value in values for outcome in (True, value)] + [True]
    keys = [f"long{number}" for number in range(3)]
    assert client.get_many([*keys, "after"]) == dict(
        zip([*keys, "after"], [*values, "the last"], strict=True)
    )


def test_a_value_too_large_for_a_pipeline_is_named_and_the_rest_is_done(client: Client) -> None:
    with client.pipeline() as pipeline:
        pipeline.set("big", os.urandom(2_000_000))
        pipeline.set("a", 1)
    value_error, set_result = pipeline.results
    assert isinstance(value_error, ValueTooLarge)
    assert (value_error.key, value_error.value_bytes, set_result) == ("big", 2_000_000, True)


@pytest.mark.parametrize("amount", [-1, -5, 2**64, pytest.param(10**5000, id="5001 digits")])
def test_an_amount_beyond_64_bits_is_refused_with_the_accepted_range(
    amount: int, client: Client
) -> None:
    client.set("n", 7)
    calls: list[Callable[[], Any]] = [
        lambda: client.incr("n", amount),
        lambda: client.decr("n", amount),
        lambda: client.incr("n", initial=amount),
    ]
    for call in calls:
        with pytest.raises(BadSetting, match=r"0 to 18446744073709551615 \(decr subtracts"):
            call()
    pipeline = client.pipeline()
    pipeline.incr("n", amount)
    with pytest.raises(BadSetting, match="amount out of range"):
        pipeline.run()
    assert client.get("n") == 7
    assert client.incr("n", 2**64 - 1) == 6, "a sum beyond 64 bits begins again at 0"


def test_a_client_shows_its_servers_and_placement() -> None:
    addresses = [f"10.0.0.{host}:11211" for host in range(1, 8)]
    assert repr(Client(addresses[0])) == "<Client of 10.0.0.1:11211, placement ketama>"
    client_of_many_servers = Client(addresses, placement="rendezvous")
    assert (
        repr(client_of_many_servers)
        == f"<Client of {', '.join(addresses[:4])} and 3 more, placement rendezvous>"
    )
    client_of_many_servers.set_servers("/run/of.sock")
    assert repr(client_of_many_servers) == "<Client of /run/of.sock, placement rendezvous>"


def test_noreply_writes_are_executed_in_order(client: Client) -> None:
    for number in range(3000):
        client.set("n", number, noreply=True)
    assert client.get("n") == 2999


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 65535, 65536, 70_000, 1_000_000])
def test_values_of_every_size_come_back(size: int, client: Client) -> None:
    value = os.urandom(size)
    assert client.set("v", value)
    assert client.get("v") == value
    assert client.get_many(["v"]) == {"v": value}
    assert client.set_many({"v": value, "w": value}) == {}
    assert client.get_many(["v", "w"]) == {"v": value, "w": value}


def test_a_value_that_is_too_large_is_never_silent(client: Client) -> None:
    client.set("big", "old")
    with pytest.raises(ValueTooLarge) as error:
        client.set("big", os.urandom(2_000_000))
    assert error.value.value_bytes == 2_000_000
    assert error.value.limit == 1 << 20
    assert "limit 1048576" in str(error.value)
    assert client.get("big") is None
    with pytest.raises(ValueTooLarge):
        client.set("big", os.urandom(2_000_000), noreply=True)
    client.set("big", "old")
    failures = client.set_many({"a": 1, "big": os.urandom(2_000_000), "b": 2})
    assert list(failures) == ["big"]
    assert isinstance(failures["big"], ValueTooLarge)
    assert (failures["big"].value_bytes, failures["big"].limit) == (2_000_000, 1 << 20)
    assert "limit 1048576" in str(failures["big"])
    assert client.get_many(["a", "big", "b"]) == {"a": 1, "b": 2}


def test_a_pipeline_reports_the_limit_of_each_server(server: Server) -> None:
    large_value = os.urandom(3_000_000)
    with Server(arguments=("-I", "2m")) as other_server:
        limits = {server.address: 1 << 20, other_server.address: 2 << 20}
        with Client(list(limits), timeout=5) as client:
            keys = [f"k{number}" for number in range(20)]
            with client.pipeline() as pipeline:
                for key in keys:
                    pipeline.set(key, large_value)
                pipeline.set("small", "fits")
            *refused, stored = pipeline.results
            assert [error.limit for error in refused] == [
                limits[client.server_of(key)] for key in keys
            ]
    assert {error.limit for error in refused} == set(limits.values())
    assert all(f"limit {error.limit}" in str(error) for error in refused)
    assert {error.value_bytes for error in refused} == {3_000_000}
    assert stored is True


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "x" * 251, "\0", b"a\r\nset b 0 0 1"])
def test_a_bad_key_is_refused_and_never_cut(key: str | bytes, client: Client) -> None:
    for call in (client.get, client.delete, lambda key: client.get_many(["a", key])):
        with pytest.raises(BadKey):
            call(key)
    with pytest.raises(BadKey):
        client.set_many({key: 1})


def test_keys_with_spaces_can_go_as_base64(server: Server) -> None:
    with Client(server.address, timeout=5, keys="base64") as client:
        assert client.set("a b\n", 1)
        assert client.get("a b\n") == 1
        assert client.get_many(["a b\n", "gone"]) == {"a b\n": 1}
        assert client.delete("a b\n")


def test_a_namespace_stands_before_each_key(server: Server) -> None:
    client_with_namespace = Client(server.address, timeout=5, namespace="shop:")
    with client_with_namespace, Client(server.address, timeout=5) as client_without_namespace:
        client_with_namespace.set("k", 1)
        client_with_namespace.set_many({"l": 2})
        assert client_without_namespace.get_many(["shop:k", "shop:l", "k"]) == {
            "shop:k": 1,
            "shop:l": 2,
        }
        assert client_with_namespace.get_many(["k", "l"]) == {"k": 1, "l": 2}


def test_three_servers_share_the_keys() -> None:
    with Server() as first_server, Server() as second_server, Server() as third_server:
        addresses = [first_server.address, second_server.address, f"{third_server.address}*2"]
        with Client(addresses, timeout=5) as client:
            values = {f"key{number}": number for number in range(600)}
            assert client.set_many(values) == {}
            assert client.get_many(values) == values
            item_counts = [int(rows["curr_items"]) for rows in client.server_stats().values()]
            assert sum(item_counts) == 600
            assert item_counts[2] == max(item_counts)
            second_server.stop()
            with pytest.raises(ServerUnavailable) as error:
                client.get_many(values)
            assert len(error.value.arrived) + len(error.value.unanswered) == 600
            assert all(values[key] == value for key, value in error.value.arrived.items())
            assert client.delete_many(values).keys() == set(error.value.unanswered)


def test_threads_share_a_client(client: Client) -> None:
    wrong_values: list[Any] = []

    def use_client(number: int) -> None:
        for round_number in range(300):
            key = f"t{number}:{round_number % 10}"
            client.set(key, key)
            if client.get(key) != key:
                wrong_values.append(key)

    threads = [threading.Thread(target=use_client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong_values == []


def test_an_invalid_deadline_is_refused(client: Client) -> None:
    for deadline in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="time-out"):
            client.get("a", deadline=deadline)
    with client.deadline(5):
        client.set("a", 1)
    with pytest.raises(GlasscacheError), client.deadline(1e-6):
        time.sleep(0.001)
        client.get("a")
    assert client.get("a") == 1


def test_invalid_settings_are_refused() -> None:
    for client_settings in (
        {"servers": ""},
        {"servers": "host:99999"},
        {"placement": "nearest"},
        {"codec": "yaml"},
        {"dialect": "klingon"},
    ):
        with pytest.raises(BadSetting):
            Client(**client_settings)  # type: ignore[arg-type]


def test_a_call_on_a_closed_client_raises_client_closed(server: Server) -> None:
    client = Client(server.address, timeout=5)
    client.set("a", 1)
    client.close()
    with pytest.raises(ClientClosed):
        client.get("a")


def test_costs_are_counted_by_size_and_width(client: Client) -> None:
    client.set("a", {"x": "y" * 5000})
    client.get("a")
    client.get_many(["a", "b", "c"])
    stats = client.stats()
    assert {row["operation"] for row in stats["by_size"]} >= {"read", "write"}
    write_row = next(row for row in stats["by_size"] if row["operation"] == "write")
    assert write_row["seconds"]["compress"] > 0
    assert write_row["seconds"]["network+server"] > 0
    assert stats["by_width"][0]["keys_from"] == 2
    assert "network" not in str(client.explain("a"))
    assert "compress" in str(client.explain_value({"x": list("abc")}))


def test_public_objects_do_not_name_the_native_module() -> None:
    from glasscache import _native

    public_names = {name for name in dir(_native) if not name.startswith("_")}
    client_names = {
        "Client",
        "ClientState",
        "is_session_key",
        "hashed_session_key",
        "AsyncClient",
        "Codec",
        "Connection",
        "DelayedCall",
        "BulkCall",
        "ComputedValue",
        "Manifest",
        "PendingNearRead",
        "Recorder",
        "RecordedRequest",
        "RequestBlock",
        "UnrecordedBlock",
        "HeadScanner",
        "RequestScope",
        "Strategy",
        "PARTS",
        "check_parent",
        "environ_fields",
        "server_of",
    }
    sim_names = {"Trace", "Curve", "RequestLog", "slab_classes", "slab_optimum", "slab_plan"}
    assert public_names == client_names | sim_names
    assert issubclass(glasscache.Client, _native.Client)
