"""Both hishel storages behind one blocking interface, and a clock that tests move."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

hishel = pytest.importorskip("hishel", reason="hishel is not installed")

from glasscache import AsyncClient, Client
from glasscache.contrib import _hishel_bodies, _hishel_entries
from glasscache.contrib import hishel as storages
from glasscache.contrib.hishel import AsyncStorage, Storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

UNUSED_KEYS = (f"key {number}" for number in itertools.count())


class FakeTime:
    """The storages' wall clock."""

    now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


def use_clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Let the storages read a clock of the test's own."""
    fake_time = FakeTime()
    for module in (storages, _hishel_entries, _hishel_bodies):
        monkeypatch.setattr(module, "time", fake_time)
    return fake_time


class BlockingStorage:
    """The blocking storage with the interface that the tests use."""

    def __init__(self, address: str, **options: Any) -> None:
        options.setdefault("default_ttl", None)
        self.storage: Any = Storage(Client(address, timeout=5), **options)
        self.entry_steps = self.storage._entry_steps

    def create(self, key: str, parts: list[bytes], **limits: Any) -> Any:
        request = hishel.Request("GET", "https://example.com/")
        response = hishel.Response(200, hishel.Headers({"A": ["1", "2"]}), iter(parts))
        return self.storage.create_entry(request, response, key, **limits)

    def read(self, entry: Any, part_count: int | None = None) -> bytes:
        return b"".join(itertools.islice(entry.response.stream, part_count))

    def close(self, entry: Any) -> None:
        entry.response.stream.close()

    def call_method(self, name: str, *arguments: Any) -> Any:
        return getattr(self.storage, name)(*arguments)

    def call_client_method(self, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self.entry_steps.client, name)(*arguments, **options)


class StorageInEventLoop(BlockingStorage):
    """The same over the storage for asyncio."""

    def __init__(self, address: str, **options: Any) -> None:
        options.setdefault("default_ttl", None)
        self.loop = asyncio.new_event_loop()
        self.storage = AsyncStorage(AsyncClient(address, timeout=5), **options)
        self.entry_steps = self.storage._entry_steps

    def run_until_complete(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    def create(self, key: str, parts: list[bytes], **limits: Any) -> Any:
        async def stream() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        request = hishel.Request("GET", "https://example.com/")
        response = hishel.Response(200, hishel.Headers({"A": ["1", "2"]}), stream())
        return self.run_until_complete(self.storage.create_entry(request, response, key, **limits))

    def read(self, entry: Any, part_count: int | None = None) -> bytes:
        async def read_parts() -> bytes:
            body, read_count = b"", 0
            async for part in entry.response.stream:
                body, read_count = body + part, read_count + 1
                if read_count == part_count:
                    break
            return body

        return self.run_until_complete(read_parts())

    def close(self, entry: Any) -> None:
        self.run_until_complete(entry.response.stream.aclose())

    def call_method(self, name: str, *arguments: Any) -> Any:
        return self.run_until_complete(getattr(self.storage, name)(*arguments))

    def call_client_method(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self.run_until_complete(
            getattr(self.entry_steps.client, name)(*arguments, **options)
        )


def store_entry(storage: Any, key: str, body: bytes = b"data", **limits: Any) -> Any:
    entry = storage.create(key, [body], **limits)
    assert storage.read(entry) == body
    return entry
