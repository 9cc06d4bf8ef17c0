"""`protocol="binary"` against our server and memcached: both clients, logins, and calls that binary lacks."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import (
    AsyncClient,
    BadSetting,
    Client,
    LoginRefused,
    RequestRefused,
    Unsupported,
    ValueTooLarge,
)
from glasscache.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

TIMEOUT_S = 10.0
RIGHT_PASSWORD, WRONG_PASSWORD = "pass word", "wrong"


@pytest.fixture(scope="module", params=["ours", "ours alone", "memcached", "memcached alone"])
def address(
    request: pytest.FixtureRequest, start_memcached: Callable[..., AbstractContextManager[str]]
) -> Iterator[str]:
    """A server that also understands text, and one that understands binary alone."""
    binary_only_options = ("-B", "binary") if request.param.endswith("alone") else ()
    if request.param.startswith("memcached"):
        with start_memcached(*binary_only_options) as memcached:
            yield memcached
    else:
        with Server(arguments=binary_only_options) as server:
            yield server.address


@pytest.fixture(scope="module")
def login_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that requires a login by SASL."""
    users_file: Path = tmp_path_factory.mktemp("users") / "users"
    users_file.write_text("app:pass word\n")
    with Server(arguments=("-S", "-Y", str(users_file))) as server:
        yield server.address


def test_every_method_of_the_client_works_in_binary(address: str) -> None:
    with Client(address, protocol="binary", timeout=TIMEOUT_S) as client:
        client.flush()
        assert client.get("none") is None
        assert client.set("key", {"a": [1, 2]}, ttl=60)
        assert client.get("key") == {"a": [1, 2]}
        assert not client.add("key", 1)
        assert not client.replace("none", 1)
        assert client.touch("key", 100)
        assert not client.touch("none", 100)
        assert client.gat("key", 10) == {"a": [1, 2]}
        value_and_unique = client.gets("key")
        assert value_and_unique is not None
        value, unique = value_and_unique
        assert client.cas("key", 7, unique)
        assert not client.cas("key", 8, unique)
        assert (value, client.get("key")) == ({"a": [1, 2]}, 7)
        assert client.incr("key", 3) == 10
        assert client.incr("none") is None
        assert client.incr("new", 1, initial=5) == 5
        values = {f"k{number}": "v" * number for number in range(300)}
        assert not client.set_many(values)
        assert client.get_many([*values, "none"]) == values
        large_value = bytes(range(256)) * 3000
        assert client.set("large", large_value)
        assert client.get("large") == large_value
        client.delete_many(["k1", "none"])
        assert client.get("k1") is None
        assert client.delete("large")
        assert not client.delete("large")
        client.flush()
        assert client.get("key") is None


async def test_the_asyncio_client_works_in_binary(address: str) -> None:
    async with AsyncClient(address, protocol="binary", timeout=TIMEOUT_S) as client:
        await asyncio.gather(*(client.set(f"a{number}", number) for number in range(200)))
        values = await asyncio.gather(*(client.get(f"a{number}") for number in range(200)))
        assert values == list(range(200))
        await asyncio.gather(
            *(client.set(f"q{number}", number, noreply=True) for number in range(200))
        )
        assert await client.get_many([f"q{number}" for number in range(200)]) == {
            f"q{number}": number for number in range(200)
        }
        assert await client.get("none") is None


def test_a_value_is_computed_once_under_a_reservation(address: str) -> None:
    with Client(address, protocol="binary", timeout=TIMEOUT_S) as client:
        client.delete("computed")
        calls: list[int] = []
        for _ in range(3):
            assert (
                client.get_or_set("computed", lambda: calls.append(1) or "made", ttl=60) == "made"
            )
        assert len(calls) == 1


def test_a_value_that_is_too_large_is_refused_and_the_connection_stays(address: str) -> None:
    with Client(address, protocol="binary", timeout=TIMEOUT_S) as client:
        with pytest.raises(ValueTooLarge):
            client.set("big", os.urandom(3 << 20))
        assert client.set("small", 1)
        assert client.get("small") == 1


def test_a_call_without_a_binary_form_is_refused_by_name(address: str) -> None:
    with (
        Client(address, protocol="binary", timeout=TIMEOUT_S) as client,
        pytest.raises(Unsupported, match="get_with_meta"),
    ):
        client.get_with_meta("key")


async def test_a_login_by_sasl_is_accepted_or_refused(login_address: str) -> None:
    settings: Any = {"protocol": "binary", "timeout": TIMEOUT_S, "user": "app"}
    with Client(login_address, password=RIGHT_PASSWORD, **settings) as client:
        assert client.set("key", 1)
        assert client.get("key") == 1
    with (
        Client(login_address, password=WRONG_PASSWORD, **settings) as client,
        pytest.raises(LoginRefused),
    ):
        client.get("key")
    with (
        Client(login_address, protocol="binary", timeout=TIMEOUT_S) as client,
        pytest.raises(RequestRefused),
    ):
        client.get("key")
    async with AsyncClient(login_address, password=lambda: RIGHT_PASSWORD, **settings) as client:
        assert await client.get("key") == 1


@pytest.mark.parametrize("protocol", ["ascii", ["binary"], None])
def test_an_unknown_protocol_is_a_bad_setting(protocol: Any) -> None:
    with pytest.raises(BadSetting, match=re.escape(f"protocol={protocol!r}")):
        Client(protocol=protocol)
