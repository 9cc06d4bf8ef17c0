"""No value is stored by `get_or_set` that any client deleted, overwrote or flushed while it was made.

GLASSCACHE_TEST_RACES says how many races are run against each server (`make faults`: 10,000).
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client
from glasscache.values import Codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from glasscache import Server

RACE_COUNT = int(os.environ.get("GLASSCACHE_TEST_RACES", "400"))
DIALECTS = ["own", "pymemcache", "pylibmc", "python-memcached", "bmemcached", "php-memcached",
            "pecl-memcache", "dalli", "spymemcached"]  # fmt: skip


class ForeignClient:
    """A client of another maker: a socket and the classic protocol."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._reader = self._socket.makefile("rb")

    def send_line(self, line: bytes) -> bytes:
        """Send a command and return the first line of its reply."""
        self._socket.sendall(line + b"\r\n")
        return self._reader.readline().strip()

    def get(self, key: bytes) -> tuple[int, bytes] | None:
        """Return flags and bytes."""
        words = self.send_line(b"get " + key).split()
        if words == [b"END"]:
            return None
        body = self._reader.read(int(words[3]) + 2)[:-2]
        assert self._reader.readline() == b"END\r\n"
        return int(words[2]), body

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._socket.close()


@pytest.fixture(scope="module")
def memcached_address(start_memcached: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the address of memcached."""
    with start_memcached() as address:
        yield address


@pytest.fixture(params=["glasscache", "memcached"])
def address(request: pytest.FixtureRequest, glasscache_server: Server) -> str:
    if request.param == "glasscache":
        return glasscache_server.address
    memcached_address: str = request.getfixturevalue("memcached_address")
    return memcached_address


def named_invalidations(
    client: Client, other_client: Client, foreign_client: ForeignClient
) -> dict[str, tuple[Callable[[], object], object]]:
    """Return each way, and what is under the key afterwards."""
    return {
        "delete": (lambda: client.delete("k"), None),
        "delete by another client": (lambda: other_client.delete("k"), None),
        "delete by a foreign client": (lambda: foreign_client.send_line(b"delete k"), None),
        "set": (lambda: client.set("k", "newer"), "newer"),
        "set by a foreign client": (
            lambda: foreign_client.send_line(b"set k 0 0 5\r\n12345"),
            b"12345",
        ),
        "set and delete": (
            lambda: (other_client.set("k", "newer"), foreign_client.send_line(b"delete k")),
            None,
        ),
        "flush": (lambda: client.flush(), None),
        "flush by a foreign client": (lambda: foreign_client.send_line(b"flush_all"), None),
    }


def test_a_value_invalidated_while_it_was_made_is_not_stored(address: str) -> None:
    migrating_codec = Codec(migrate_from="raw")  # so that bytes of a foreign client can be read
    foreign_client = ForeignClient(address)
    with (
        Client(address, timeout=30, codec=migrating_codec) as client,
        Client(address, timeout=30) as other_client,
    ):
        invalidations = named_invalidations(client, other_client, foreign_client)
        for number in range(RACE_COUNT):
            invalidation_name, (invalidate, expected_value) = list(invalidations.items())[
                number % len(invalidations)
            ]
            other_client.delete("k")

            def compute_and_invalidate() -> str:
                invalidate()  # noqa: B023 - called at once
                return "overtaken"

            assert client.get_or_set("k", compute_and_invalidate, ttl=60) == "overtaken"
            assert client.get("k") == expected_value, invalidation_name
            other_client.delete("k")
            assert client.get_or_set("k", lambda: "kept", ttl=60) == "kept"
            assert client.get("k") == "kept", invalidation_name
        assert client.stats()["fills_not_stored"] == RACE_COUNT
    foreign_client.close()


def test_an_early_refresh_is_not_stored_over_an_invalidation(address: str) -> None:
    migrating_codec = Codec(migrate_from="raw")
    foreign_client = ForeignClient(address)
    with (
        Client(address, timeout=30, codec=migrating_codec) as client,
        Client(address, timeout=30) as other_client,
    ):
        invalidations = named_invalidations(client, other_client, foreign_client)
        for number in range(min(RACE_COUNT, 200)):
            invalidation_name, (invalidate, expected_value) = list(invalidations.items())[
                number % len(invalidations)
            ]
            other_client.set("k", "old", ttl=10)

            def compute_and_invalidate() -> str:
                invalidate()  # noqa: B023 - called at once
                return "overtaken"

            assert client.get_or_set("k", compute_and_invalidate, ttl=60, stale=20) == "overtaken"
            assert client.get("k") == expected_value, invalidation_name
    foreign_client.close()


def test_asyncio_does_not_store_what_was_invalidated_either(address: str) -> None:
    foreign_client = ForeignClient(address)

    async def compute_and_invalidate() -> str:
        await asyncio.sleep(0)
        foreign_client.send_line(b"delete k")
        return "overtaken"

    async def main() -> None:
        async with AsyncClient(address, timeout=30) as client:
            for _ in range(min(RACE_COUNT, 200)):
                assert await client.get_or_set("k", compute_and_invalidate, ttl=60) == "overtaken"
                assert await client.get("k") is None
                assert await client.get_or_set("k", lambda: "kept", ttl=60) == "kept"
                assert await client.get("k") == "kept"
                await client.delete("k")
            assert client.stats()["fills_not_stored"] == min(RACE_COUNT, 200)

    asyncio.run(main())
    foreign_client.close()


def test_concurrent_fills_never_restore_a_row_older_than_the_last_write(address: str) -> None:
    """A writer raises a number and deletes its key; whoever reads then meets no number below it."""
    current_row, is_over = [0], threading.Event()
    wrong_rows: list[Any] = []

    def fill() -> None:
        with Client(address, timeout=30) as client:
            while not is_over.is_set():
                client.get_or_set("row", lambda: current_row[0], ttl=60, lease=30)

    fillers = [threading.Thread(target=fill) for _ in range(3)]
    foreign_client = ForeignClient(address)
    with Client(address, timeout=30) as client:
        client.delete("row")
        for filler in fillers:
            filler.start()
        for number in range(1, RACE_COUNT + 1):
            current_row[0] = number
            if number % 2:
                client.delete("row")
            else:
                foreign_client.send_line(b"delete row")
            for _ in range(2):
                value = client.get("row")
                if value is not None and value < number:
                    wrong_rows.append((value, number))
        is_over.set()
        for filler in fillers:
            filler.join()
        value = client.get("row")
        assert value is None or value == RACE_COUNT
    foreign_client.close()
    assert wrong_rows == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reserved_key_is_a_miss_to_every_read_of_ours(address: str, dialect: str) -> None:
    foreign_client = ForeignClient(address)
    token = bytes(16)
    with Client(address, timeout=30, dialect=dialect) as client:
        assert client._has_reservations
        client.delete("k")
        assert client._reserve("k", token, 60) is True
        assert client._reserve("k", token, 60) is False
        flags, body = foreign_client.get(b"k") or (0, b"")
        if dialect in {"pymemcache", "pylibmc", "python-memcached", "bmemcached"}:
            assert flags == 1
            assert pickle.loads(body) is None
        client.set("other", "x")
        assert client.get("k", "missing") == "missing"
        assert client.gets("k") is None
        assert client.gat("k", 60, "missing") == "missing"
        assert client.get_with_meta("k") is None
        assert client.get_many(["k", "other", "none"]) == {"other": "x"}
        assert client.gets_many(["k", "none"]) == {}
        with client.pipeline() as pipeline:
            pipeline.get("k")
            pipeline.get("other")
        assert pipeline.results == [None, "x"]
        reservation = client._reservation("k")
        assert reservation is not None
        assert reservation[0] == token
        assert client.cas("k", "value", reservation[1]) is True
        assert (client.get("k"), client._reservation("k")) == ("value", None)
    foreign_client.close()


async def test_asyncio_reads_a_reserved_key_as_a_miss(address: str) -> None:
    async with AsyncClient(address, timeout=30) as client:
        await client.delete("k")
        assert await client._reserve("k", bytes(16), 60) is True
        assert await client.get("k", "missing") == "missing"
        assert await client.gets("k") is None
        assert await client.get_with_meta("k") is None
        assert await client.get_many(["k"]) == {}
        assert await client._reservation("k") is not None
        await client.delete("k")


@pytest.mark.parametrize("dialect", ["raw"])
def test_a_dialect_without_a_none_has_no_reservations(address: str, dialect: str) -> None:
    """A foreign reader would take one for a value, so a removal meanwhile is not noticed; a write is."""
    with Client(address, timeout=30, dialect=dialect) as client:
        assert not client._has_reservations
        client.delete("k")
        assert client.get_or_set("k", lambda: b"made", ttl=60) == b"made"
        assert client.get("k") == b"made"
        client.delete("k")

        def compute_and_invalidate() -> bytes:
            client.set("k", b"newer")
            return b"older"

        assert client.get_or_set("k", compute_and_invalidate, ttl=60) == b"older"
        assert client.get("k") == b"newer"


def test_base64_keys_are_reserved_too(address: str) -> None:
    with Client(address, timeout=30, keys="base64") as client:
        client.delete("a key")
        assert client.get_or_set("a key", lambda: 1, ttl=60) == 1

        def compute_and_invalidate() -> int:
            client.delete("another key")
            return 2

        assert client.get_or_set("another key", compute_and_invalidate, ttl=60) == 2
        assert (client.get("a key"), client.get("another key")) == (1, None)
