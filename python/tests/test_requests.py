"""The table of calls about keys says of each what both clients do."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client
from glasscache._requests import REQUESTS, default_of
from glasscache.migration import AsyncMigratingClient, MigratingClient
from glasscache.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_OTHER_TABLES = {"get_or_set", "get_or_set_by", "explain", "server_of"}
"""Methods with a key that are made of other calls, or of none."""

MISSES: dict[str, tuple[Any, ...]] = {
    "get": (), "gets": (), "gat": (60,), "get_with_meta": (), "replace": ("v",), "append": ("v",),
    "prepend": ("v",), "cas": ("v", 1), "delete": (), "touch": (60,), "incr": (), "decr": (),
    "_reservation": (),
}  # fmt: skip
"""Calls that miss where there is nothing, and their arguments after the key."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a server."""
    with Server() as server:
        yield server.address


def _parameters(client_class: type, name: str) -> list[str]:
    return list(inspect.signature(getattr(client_class, name)).parameters)[1:]


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
@pytest.mark.parametrize("name", REQUESTS)
def test_the_indices_are_those_of_the_parameters(client_class: type, name: str) -> None:
    row, parameters = REQUESTS[name], _parameters(client_class, name)
    assert parameters[0] in ({"keys", "items", "values"} if row.is_bulk else {"key"})
    of_call = inspect.signature(getattr(client_class, name)).parameters
    for parameter, index in (("default", row.default_index), ("ttl", row.ttl_index)):
        if index is not None:
            assert parameters[index] == parameter
        elif parameter in parameters:
            assert of_call[parameter].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_every_method_about_keys_is_in_the_table(client_class: type) -> None:
    about_keys = {
        name
        for name, method in inspect.getmembers(client_class, callable)
        if not name.startswith("_") and _parameters(client_class, name)[:1] in (["key"], ["keys"])
    }
    assert about_keys - OF_OTHER_TABLES <= set(REQUESTS)


@pytest.mark.parametrize("rings_class", [MigratingClient, AsyncMigratingClient])
def test_the_migrating_clients_have_every_call_of_one_key(rings_class: type) -> None:
    for name, row in REQUESTS.items():
        assert row.is_bulk or hasattr(rings_class, name)


@pytest.mark.parametrize("name", MISSES)
def test_a_miss_returns_the_result_in_the_table(address: str, name: str) -> None:
    arguments = ("nothing is here", *MISSES[name])

    async def miss_of_asyncio() -> Any:
        async with AsyncClient(address, timeout=10.0, keys="base64") as client:
            return await getattr(client, name)(*arguments)

    with Client(address, timeout=10.0, keys="base64") as client:
        misses = getattr(client, name)(*arguments), asyncio.run(miss_of_asyncio())
    assert misses == (default_of(name, arguments, {}),) * 2


def test_a_default_is_found_by_position_and_by_name() -> None:
    assert default_of("get", ("k", "d"), {}) == default_of("get", ("k",), {"default": "d"}) == "d"
    assert default_of("gat", ("k", 60, "d"), {}) == "d"
    assert default_of("gat", ("k",), {"ttl": 60}) is None
    assert default_of("get_or_set_by", ("k",), {}) is None
