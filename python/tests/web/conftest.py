"""What several files of web tests share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from glasscache import Client, Server


@pytest.fixture
def client(glasscache_client: Client, glasscache_server: Server) -> AsyncClient:
    """Return a client of an empty cache for a test that is a coroutine function, which closes it."""
    return AsyncClient(glasscache_server.address, timeout=5)


@pytest.fixture
def run_async(client: AsyncClient) -> Any:
    """Return a function that runs a coroutine function with that client, for a test with a blocking part."""

    def run_scenario(scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
        async def main() -> None:
            async with client:
                await scenario(client)

        asyncio.run(main())

    return run_scenario


@pytest.fixture
def storage_clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the clock of the hishel storages."""
    from web.hishel_storages import use_clock

    return use_clock(monkeypatch)


@pytest.fixture(params=["BlockingStorage", "StorageInEventLoop"])
def make_storage(
    request: pytest.FixtureRequest, glasscache_server: Server
) -> Iterator[Callable[..., Any]]:
    """Return a function that makes a hishel storage, blocking or for asyncio."""
    from web import hishel_storages

    storages: list[Any] = []

    def make_storage_of_kind(**options: Any) -> Any:
        storages.append(
            getattr(hishel_storages, request.param)(glasscache_server.address, **options)
        )
        return storages[-1]

    yield make_storage_of_kind
    for storage in storages:
        if isinstance(storage, hishel_storages.StorageInEventLoop):
            storage.run_until_complete(storage.entry_steps.client.close())
            storage.loop.close()
