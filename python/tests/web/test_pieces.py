"""Values in pieces: whole values of one write, or a miss."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from typing import Any

import pytest
from glasscache import AsyncClient, Client, Codec, Server
from glasscache.web.pieces import _MAGIC, _MANIFEST, AsyncPieces, Pieces, _piece_key

ROUNDS = int(os.environ.get("GLASSCACHE_TEST_ROUNDS", "10"))


@pytest.mark.parametrize(
    "value", ["text" * 400_000, b"\x01" * 3_000_000, list(range(300_000)), "short", None]
)
def test_values_of_any_size_come_back_equal(glasscache_client: Client, value: Any) -> None:
    pieces = Pieces(glasscache_client, piece_bytes=100_000)
    assert pieces.set("k", value, ttl=60)
    assert pieces.get("k", "none") == value
    assert pieces.delete("k")
    assert pieces.get("k", "none") == "none"


def test_bytes_that_look_like_a_manifest_come_back_as_they_are(glasscache_client: Client) -> None:
    pieces = Pieces(glasscache_client)
    value = _MANIFEST.pack(_MAGIC, 1, 2, 3, 4, 5)
    assert pieces.set("k", value)
    assert pieces.get("k") == value


def test_a_lost_or_altered_piece_is_a_miss(glasscache_client: Client) -> None:
    client = Client(
        glasscache_client_address(glasscache_client), codec=Codec(compress=None), timeout=5
    )
    pieces = Pieces(client, piece_bytes=1000)
    for alter in (lambda name: client.delete(name), lambda name: client.set(name, b"x" * 1000)):
        pieces.set("k", b"y" * 10_000)
        _, write, *_ = _MANIFEST.unpack(client.get("k"))
        alter(_piece_key(write, 7))
        assert pieces.get("k") is None
    client.close()


def glasscache_client_address(client: Client) -> str:
    return client.server_of("k")


def test_a_value_costs_one_request_for_64_pieces(glasscache_client: Client) -> None:
    calls: list[str] = []

    class Counting:
        codec = Codec(compress=None)

        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(glasscache_client, name)

    pieces = Pieces(Counting(), piece_bytes=1000)  # type: ignore[arg-type]
    pieces.set("k", b"y" * 130_000)
    calls.clear()
    assert pieces.get("k") == b"y" * 130_000
    assert calls == ["get", "get_many", "get_many", "get_many"]


def test_two_writers_and_eviction_never_mix() -> None:
    seed = random.randrange(2**32)
    codec = Codec(compress=None)
    with Server(memory="64M") as server:

        def write(number: int) -> None:
            draw = random.Random(seed + number)
            with Client(server.address, timeout=10, codec=codec) as client:
                pieces = Pieces(client)
                for _ in range(ROUNDS // 2):
                    pieces.set(
                        "k", bytes([draw.randrange(256)]) * draw.randrange(19_000_000, 21_000_000)
                    )

        writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for writer in writers:
            writer.start()
        whole = lost = 0
        with Client(server.address, timeout=10, codec=codec) as client:
            pieces = Pieces(client)
            while any(writer.is_alive() for writer in writers):
                value = pieces.get("k")
                if value is None:
                    lost += 1
                else:
                    assert value.count(value[:1]) == len(value) >= 19_000_000, seed
                    whole += 1
    assert whole, (whole, lost)


def test_asyncio_has_the_same(glasscache_server: Server) -> None:
    async def main() -> None:
        async with AsyncClient(glasscache_server.address, timeout=5) as client:
            pieces = AsyncPieces(client, piece_bytes=1000)
            assert await pieces.set("async", [1.5] * 5000, ttl=60)
            assert await pieces.get("async") == [1.5] * 5000
            assert await pieces.delete("async")
            assert await pieces.get("async", 7) == 7

    asyncio.run(main())
