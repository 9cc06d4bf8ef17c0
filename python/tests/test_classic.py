"""With a server that closes on meta commands, as some proxies do: bulk calls use classic text."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client, Server, Unsupported, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

META_COMMANDS = (b"mn", b"mg", b"ms", b"md", b"ma", b"me")
CLIENT_OPTIONS: dict[str, Any] = {"timeout": 5, "keys": "base64", "codec": "raw"}


class ClassicOnlyRelay:
    """Passes bytes between clients and a server, and closes on a connection's first meta command."""

    def __init__(self, server_address: str) -> None:
        host, port = server_address.rsplit(":", 1)
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            socket.create_connection(self._server) as upstream,
            contextlib.suppress(OSError),
        ):
            first_bytes = client.recv(65536)
            if not first_bytes.startswith(META_COMMANDS):
                upstream.sendall(first_bytes)
                reply_thread = threading.Thread(
                    target=self._forward, args=(upstream, client), daemon=True
                )
                reply_thread.start()
                self._forward(client, upstream)
                upstream.shutdown(socket.SHUT_WR)
                reply_thread.join()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def classic_only_address(server: Server) -> Iterator[str]:
    relay = ClassicOnlyRelay(server.address)
    yield relay.address
    relay.close()


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
