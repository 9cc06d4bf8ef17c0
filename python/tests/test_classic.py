"""With a server that closes on meta commands, as some proxies do: bulk calls use classic text."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client, Server, Unsupported, ValueTooLarge
from scripted_server import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator

META_COMMANDS = (b"mn\r\n", b"mg ", b"ms ", b"md ", b"ma ", b"me ")
CLIENT_OPTIONS: dict[str, Any] = {"timeout": 5, "keys": "base64", "codec": "raw"}


def pass_classic_only(chunk: bytes, is_request: bool) -> bytes | None:
    return None if is_request and chunk.startswith(META_COMMANDS) else chunk


@pytest.fixture
def classic_only_address(server: Server) -> Iterator[str]:
    """Yield the address of a relay that closes on a meta command."""
    with Relay(server.address, pass_classic_only) as relay:
        yield relay.address


async def call_by_name(client: Any, method: str, *arguments: Any) -> Any:
    result_or_coroutine = getattr(client, method)(*arguments)
    return (
        await result_or_coroutine
        if asyncio.iscoroutine(result_or_coroutine)
        else result_or_coroutine
    )


async def check_bulk_calls(client: Any) -> None:
    items = {f"classic{number}": b"%d" % number for number in range(300)}
    assert await call_by_name(client, "set_many", items) == {}
    assert await call_by_name(client, "get_many", [*items, "never"]) == items
    values_and_uniques = await call_by_name(client, "gets_many", list(items))
    assert {key: value for key, (value, _) in values_and_uniques.items()} == items
    large_value = b"b" * 2_000_000
    failures = await call_by_name(
        client, "set_many", {"classic0": large_value, "a b": b"", "classic1": b"new"}
    )
    assert {key: type(error) for key, error in failures.items()} == {
        "classic0": ValueTooLarge,
        "a b": Unsupported,
    }
    assert failures["classic0"].limit == 1 << 20
    values = await call_by_name(client, "get_many", ["classic0", "classic1"])
    assert values == {"classic1": b"new"}
    with pytest.raises(Unsupported) as error:
        await call_by_name(client, "get_many", ["classic1", "a b"])
    assert (error.value.arrived, error.value.unanswered) == ({"classic1": b"new"}, ["a b"])
    assert await call_by_name(client, "delete_many", list(items)) == {}
    assert await call_by_name(client, "get_many", list(items)) == {}


def test_the_blocking_clients_bulk_calls_need_no_meta(classic_only_address: str) -> None:
    with Client(classic_only_address, **CLIENT_OPTIONS) as client:
        asyncio.run(check_bulk_calls(client))


async def test_asyncios_bulk_calls_need_no_meta(classic_only_address: str) -> None:
    async with AsyncClient(classic_only_address, **CLIENT_OPTIONS) as client:
        await check_bulk_calls(client)
