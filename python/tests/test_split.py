"""Values in pieces (`split=True`): whole values of one write, or a miss."""

from __future__ import annotations

import asyncio
import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client, Codec, Server, _split
from glasscache._native import Manifest
from glasscache.errors import UnwritableValue, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITE_COUNT = int(os.environ.get("GLASSCACHE_TEST_ROUNDS", "20"))
LONG_VALUE = b"y" * 10_000


@pytest.fixture
def client(glasscache_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Return a client whose pieces have 1,000 bytes."""
    monkeypatch.setattr(_split, "PIECE_BYTES", 1000)
    with Client(glasscache_server.address, codec=Codec(compress=None), timeout=5) as client:
        client.flush()
        yield client


def piece_keys(client: Client, key: str) -> list[str]:
    """Return the keys of the pieces of what is stored under key."""
    with Client(client.server_of(key), dialect="raw", timeout=5) as raw_client:
        layout = _split._parse_manifest(Manifest(raw_client.get(key)), 64 << 20)
    assert layout is not None
    return layout.pieces.keys()


@pytest.mark.parametrize(
    "value", ["text" * 4000, b"\x01" * 30_000, [1.5] * 3000, {"a": ["b"] * 9000}, "short", None]
)
def test_values_of_any_size_come_back_equal(client: Client, value: Any) -> None:
    assert client.set("k", value, ttl=60, split=True)
    assert client.get("k", "none") == value
    assert client.delete("k")
    assert client.get("k", "none") == "none"


def test_every_read_returns_the_whole_value(client: Client) -> None:
    client.set("k", LONG_VALUE, split=True)
    assert client.gat("k", 60) == LONG_VALUE
    value, unique = client.gets("k") or (None, 0)
    assert value == LONG_VALUE
    item = client.get_with_meta("k")
    assert item is not None
    assert item.value == LONG_VALUE
    client.set("short", 7)
    assert client.get_many(["k", "short", "none"]) == {"k": LONG_VALUE, "short": 7}
    assert client.gets_many(["k"]) == {"k": (LONG_VALUE, unique)}
    with client.pipeline() as pipeline:
        pipeline.get("k")
        pipeline.gets("k")
        pipeline.get("short")
        pipeline.get_many(["k"])
    assert pipeline.results == [LONG_VALUE, (LONG_VALUE, unique), 7, {"k": LONG_VALUE}]
    assert client.cas("k", "short", unique)
    assert client.get("k") == "short"


def test_a_lost_or_altered_piece_is_a_counted_miss(client: Client) -> None:
    alterations = [
        client.delete,
        lambda key: client.set(key, b"x" * 1000),
        lambda key: client.set(key, b"short"),
        lambda key: client.set(key, "y" * 1000),
    ]
    for alter in alterations:
        client.set("k", LONG_VALUE, split=True)
        alter(piece_keys(client, "k")[7])
        assert client.get("k", "none") == "none"
        assert client.add("k", "free again")
        client.set_many({"other": 1})
        client.set("k", LONG_VALUE, split=True)
        alter(piece_keys(client, "k")[7])
        assert client.get_many(["k", "other"]) == {"other": 1}
    assert client.stats()["incomplete_values"] == 2 * len(alterations)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"short",
        _split._MANIFEST_STRUCT.pack(2, 1, 10_000, 1000, 0, 0),
        _split._MANIFEST_STRUCT.pack(1, 1, 10_000, 0, 0, 0),
        _split._MANIFEST_STRUCT.pack(1, 1, 1 << 63, 1000, 0, 0),
        _split._MANIFEST_STRUCT.pack(1, 1, 64 << 20, 1, 0, 0),
    ],
)
def test_a_damaged_manifest_is_a_miss(client: Client, body: bytes) -> None:
    client.set("k", Manifest(body))
    assert client.get("k", "none") == "none"
    assert client.get_many(["k"]) == {}


def test_a_value_above_the_limit_is_refused_and_leaves_the_old_one(client: Client) -> None:
    client.set("k", "old")
    with pytest.raises(ValueTooLarge, match="value_bytes_max"):
        client.set("k", b"z" * (65 << 20), split=True)
    assert client.get("k") == "old"


def test_another_dialect_refuses_long_values(client: Client) -> None:
    with Client(client.server_of("k"), dialect="pymemcache") as other_client:
        assert other_client.set("k", b"short", split=True)
        with pytest.raises(UnwritableValue, match="in pieces"):
            other_client.set("k", LONG_VALUE, split=True)
        assert other_client.get("k") == b"short"


def test_64_pieces_take_one_request(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.set("k", b"y" * 130_000, split=True)
    call_widths: list[int] = []
    original_get_many = client.get_many

    def record_call_width(keys: list[str], **options: Any) -> dict[str, Any]:
        call_widths.append(len(keys))
        return original_get_many(keys, **options)

    monkeypatch.setattr(client, "get_many", record_call_width)
    assert client.get("k") == b"y" * 130_000
    assert call_widths == [64, 64, 2]


def test_values_of_one_bulk_read_share_requests(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {f"k{number}": bytes([number]) * 10_000 for number in range(8)}
    for key, value in values.items():
        client.set(key, value, split=True)
    call_widths: list[int] = []
    original_get_many = client.get_many
    monkeypatch.setattr(
        client,
        "get_many",
        lambda keys, **options: call_widths.append(len(keys)) or original_get_many(keys, **options),
    )
    found_values = Client.get_many(client, list(values))
    assert found_values == values
    assert call_widths == [64, 16]


def test_get_or_set_keeps_long_values(client: Client) -> None:
    compute_calls: list[int] = []

    def compute_value() -> bytes:
        compute_calls.append(1)
        return LONG_VALUE

    for _ in range(3):
        assert client.get_or_set("k", compute_value, 60, split=True) == LONG_VALUE
    assert compute_calls == [1]
    client.delete(piece_keys(client, "k")[0])
    assert client.get_or_set("k", compute_value, 60, split=True, stale=10) == LONG_VALUE
    assert client.get_or_set("k", compute_value, 60, split=True, stale=10) == LONG_VALUE
    assert compute_calls == [1, 1]

    @client.cached(ttl=60, split=True)
    def report(day: int) -> bytes:
        return bytes([day]) * 5000

    assert report(3) == report(3) == bytes([3]) * 5000
    assert report.refresh(3) == report(3)
    assert report.cache_info().fills == 1


def test_a_fill_that_is_not_stored_leaves_no_pieces(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_keys: list[str] = []
    original_set_many = client.set_many

    def record_stored_keys(items: dict[str, bytes], **options: Any) -> dict[Any, Any]:
        stored_keys.extend(items)
        return original_set_many(items, **options)

    monkeypatch.setattr(client, "set_many", record_stored_keys)

    def compute_value() -> bytes:
        client.delete("k")
        return LONG_VALUE

    assert client.get_or_set("k", compute_value, 60, split=True) == LONG_VALUE
    assert client.stats()["fills_not_stored"] == 1
    assert len(stored_keys) == 10
    assert client.get_many(stored_keys) == {}


def test_reads_during_two_writers_never_mix_the_pieces_of_two_writes() -> None:
    seed = random.randrange(2**32)
    codec = Codec(compress=None)
    with Server(memory="128M") as server:

        def write(number: int) -> None:
            rng = random.Random(seed + number)
            with Client(server.address, timeout=10, codec=codec) as client:
                for _ in range(WRITE_COUNT // 2):
                    length = rng.randrange(19_000_000, 21_000_000)
                    client.set("k", bytes([rng.randrange(256)]) * length, split=True)

        whole_reads = missed_reads = 0
        with (
            ThreadPoolExecutor(max_workers=2) as executor,
            Client(server.address, timeout=10, codec=codec) as client,
        ):
            writers = [executor.submit(write, number) for number in range(2)]
            while not all(writer.done() for writer in writers):
                value = client.get("k")
                if value is None:
                    missed_reads += 1
                else:
                    assert value.count(value[:1]) == len(value) >= 19_000_000, seed
                    whole_reads += 1
            for writer in writers:
                writer.result()
            counted_misses = client.stats()["incomplete_values"]
            (stats,) = client.server_stats().values()
    print(  # noqa: T201 - the figures of `make split-values`
        f"{WRITE_COUNT} writes: {whole_reads} whole values, "
        f"{missed_reads} misses ({counted_misses} of a lost piece), "
        f"{stats['evictions']} evictions"
    )
    assert whole_reads
    assert counted_misses <= missed_reads


async def test_the_asyncio_client_stores_and_reads_values_in_pieces(
    glasscache_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_split, "PIECE_BYTES", 1000)
    async with AsyncClient(glasscache_server.address, timeout=5) as client:
        value = [1.5] * 5000
        assert await client.set("async", value, ttl=60, split=True)
        assert await client.get("async", deadline=5) == value
        assert await client.gat("async", 60) == value
        value_and_unique = await client.gets("async")
        assert value_and_unique is not None
        assert value_and_unique[0] == value
        item = await client.get_with_meta("async")
        assert item is not None
        assert item.value == value
        assert await client.get_many(["async", "none"], deadline=5) == {"async": value}
        assert await client.gets_many(["async"]) == {"async": value_and_unique}
        async with client.pipeline() as pipeline:
            pipeline.get("async")
        assert pipeline.results == [value]
        assert await client.get_or_set("made", lambda: value, 60, split=True) == value
        assert await client.get("made") == value
        assert await client.delete("async")
        assert await client.get("async", 7) == 7


@pytest.mark.parametrize(
    "call", ["touch", "gat", "pipelined touch", "pipelined gat", "awaited touch", "awaited gat"]
)
def test_a_new_ttl_of_a_value_in_pieces_is_that_of_its_pieces(
    call: str, server: Any, namespace: str
) -> None:
    client = Client(server.address, namespace=namespace, timeout=20)
    value = os.urandom(1_200_000)
    client.set("k", value, ttl=100, split=True)
    name = call.rsplit(maxsplit=1)[-1]

    async def renew_awaited() -> Any:
        async with AsyncClient(server.address, namespace=namespace, timeout=20) as awaited:
            return await getattr(awaited, name)("k", 5000)

    def renew_pipelined() -> Any:
        with client.pipeline() as pipeline:
            getattr(pipeline, name)("k", 5000)
        return pipeline.results[0]

    renew = {"awaited": lambda: asyncio.run(renew_awaited()), "pipelined": renew_pipelined}
    outcome = renew.get(call.split(maxsplit=1)[0], lambda: getattr(client, name)("k", 5000))()
    assert outcome == (True if name == "touch" else value)
    write_id = int.from_bytes(client._get_unjoined("k").body[1:9], "little")
    for key in ["k", *(f"~piece:{write_id:016x}.{index}" for index in range(3))]:
        item = client._inspect(key)
        assert item is not None
        assert item[2] > 4000, key
    assert client.get("k") == value
    assert client.touch("none", 10) is False
