"""A store that hangs, loses items or returns wrong ones: the application replies, no response is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, Client
from glasscache.web import CacheASGI, CacheSettings, CacheWSGI
from scripted_server import ScriptedServer

from web.harness import FailingClient, Origin, key_of_url, send_request
from web.test_wsgi import Origin as WSGIOrigin
from web.test_wsgi import send_request as send_wsgi_request

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = CacheSettings(wait=0.2)
TIMEOUT_S = 0.2


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Return the address of a server that accepts connections, reads, and never replies."""
    with ScriptedServer() as server:
        yield server.address


async def test_a_silent_store_never_fails_a_response(silent_server: str) -> None:
    async with AsyncClient(silent_server, timeout=TIMEOUT_S) as client:
        cache = CacheASGI(Origin(), client, settings=SETTINGS)
        for number in (1, 2):
            reply = await send_request(cache)
            assert (reply.status, reply.body) == (200, f"body {number}".encode())
        assert (await send_request(cache, method="POST")).status == 200
        assert cache.counters["store_errors"] >= 3


def test_a_silent_store_never_fails_a_wsgi_response(silent_server: str) -> None:
    with Client(silent_server, timeout=TIMEOUT_S) as client:
        cache = CacheWSGI(WSGIOrigin(), client, settings=SETTINGS)
        for number in (1, 2):
            reply = send_wsgi_request(cache)
            assert (reply.status, reply.body) == (200, f"body {number}".encode())
        assert send_wsgi_request(cache, method="POST").status == 200
        assert cache.counters["store_errors"] >= 3


class WrongValueClient(FailingClient):
    """A client whose reads return what a test chooses."""

    def __init__(self, client: Any, wrong_value: Any) -> None:
        super().__init__(client, lambda _: None)
        self._wrong_value = wrong_value

    async def get_many(self, keys: list[str]) -> dict[str, Any]:
        return dict.fromkeys(keys, self._wrong_value)

    async def gets(self, _: str) -> Any:
        return self._wrong_value, 1

    async def get(self, _: str, default: Any = None) -> Any:
        return self._wrong_value if self._wrong_value is not None else default


@pytest.mark.parametrize(
    "wrong_value",
    [b"", b"GCW2", b"GCW2" + bytes(200), b"GCM1" + bytes(200), b'{"seq": 1}', "text", 7, [1], None],
)
async def test_a_store_that_returns_wrong_data_never_fails_a_response(
    client: AsyncClient, wrong_value: Any
) -> None:
    cache = CacheASGI(Origin(), WrongValueClient(client, wrong_value), settings=SETTINGS)  # type: ignore[arg-type]
    for number in (1, 2):
        reply = await send_request(cache)
        assert (reply.status, reply.body) == (200, f"body {number}".encode())


async def test_a_response_stored_under_the_key_of_another_url_is_a_miss(
    client: AsyncClient,
) -> None:
    origin = Origin(lambda call: (200, {"cache-control": "max-age=60"}, call["path"].encode()))
    cache = CacheASGI(origin, client)
    for path in ("/a", "/b"):
        await send_request(cache, path)
    key_a, key_b = (key_of_url(cache.shared, f"http://shop.example/{name}") for name in "ab")
    await client.set(key_b, await client.get(key_a))
    reply = await send_request(cache, "/b")
    assert (reply.body, "hit" in reply.cache_status) == (b"/b", False)
    assert (await send_request(cache, "/b")).body == b"/b"
    assert cache.counters["unreadable"] > 0


@pytest.mark.parametrize("method", ["set", "add", "cas", "delete"])
async def test_a_store_that_acknowledges_and_forgets_never_fails_a_response(
    client: AsyncClient, method: str
) -> None:
    forgetting_client = FailingClient(
        client, lambda called_name: True if called_name == method else None
    )
    cache = CacheASGI(Origin(), forgetting_client, settings=SETTINGS)  # type: ignore[arg-type]
    for _ in range(3):
        assert (await send_request(cache)).status == 200
    assert (await send_request(cache, method="POST")).status == 200
