"""Clients that log in: accepted, refused, by a function, and in both kinds of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from glasscache import AsyncClient, BadSetting, Client, LoginRefused, ServerUnavailable
from glasscache.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A login takes a round trip and a thread; a failed one is delayed by the server. The machine may be busy.
TIMEOUT_S = 10.0
RIGHT_PASSWORD, WRONG_PASSWORD = "pass word", "wrong"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server that requires a login."""
    users_file: Path = tmp_path_factory.mktemp("users") / "users"
    users_file.write_text("app:pass word\n")
    with Server(arguments=("-Y", str(users_file))) as server:
        yield server.address


def test_a_client_logs_in_on_each_connection(address: str) -> None:
    with Client(address, user="app", password=RIGHT_PASSWORD, timeout=TIMEOUT_S) as client:
        assert client.set("key", [1, 2])
        assert client.get("key") == [1, 2]
        # What the login wrote is not an item.
        assert client.get("auth") is None


async def test_an_asyncio_client_logs_in_on_each_connection(address: str) -> None:
    async with AsyncClient(
        address, user=b"app", password=RIGHT_PASSWORD.encode(), timeout=TIMEOUT_S
    ) as client:
        assert await client.set("other", "value")
        assert await client.get_many(["other", "none"]) == {"other": "value"}


def test_a_wrong_password_is_an_error_of_its_own_and_none_is_a_refusal(address: str) -> None:
    refusal_message = "authentication failure; check user and password"
    with (
        Client(address, user="app", password=WRONG_PASSWORD, timeout=TIMEOUT_S) as client,
        pytest.raises(LoginRefused, match=refusal_message),
    ):
        client.get("key")
    with Client(
        address, user="app", password=WRONG_PASSWORD, timeout=TIMEOUT_S, on_error="miss"
    ) as client:
        assert client.get("key", "default") == "default"


async def test_an_asyncio_client_with_a_wrong_password_gets_that_error(address: str) -> None:
    async with AsyncClient(
        address, user="app", password=WRONG_PASSWORD, timeout=TIMEOUT_S
    ) as client:
        with pytest.raises(LoginRefused):
            await client.get("key")


def test_a_function_provides_the_password_for_each_new_connection(address: str) -> None:
    passwords = iter([WRONG_PASSWORD, RIGHT_PASSWORD])
    with Client(address, user="app", password=lambda: next(passwords), timeout=TIMEOUT_S) as client:
        with pytest.raises(LoginRefused):
            client.get("key")
        assert client.get("none") is None


def test_the_error_of_the_function_is_in_the_error_of_the_call(address: str) -> None:
    def raise_error() -> str:
        raise LookupError("the vault is closed")

    with (
        Client(address, user="app", password=raise_error, timeout=TIMEOUT_S) as client,
        pytest.raises(ServerUnavailable, match="the vault is closed"),
    ):
        client.get("key")


def test_a_user_without_a_password_or_an_invalid_one_is_refused() -> None:
    for user, password in [("app", None), (None, "x"), ("", "x"), ("a b", "x"), ("app", "")]:
        with pytest.raises(BadSetting):
            Client("127.0.0.1:1", user=user, password=password)
