"""A uvicorn process with the HTTP cache, for tests: uvicorn_process.py DESCRIPTOR PARSER STORE.

DESCRIPTOR is an inherited socket that listens already, so that no test waits for a port; PARSER is that
of uvicorn, "h11" or "httptools"; STORE is the address of a cache server.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn
from glasscache import AsyncClient
from glasscache.web import CacheASGI, CacheSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY = b"0123456789" * 200
FRESH = (b"cache-control", b"max-age=60")


class Application:
    """Counts how often it ran in the store, by path, and streams events that `/release` lets go on."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._released = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        match scope["type"]:
            case "lifespan":
                while (message := await receive())["type"] != "lifespan.shutdown":
                    await send({"type": f"{message['type']}.complete"})
                await send({"type": "lifespan.shutdown.complete"})
            case "websocket":
                await self._echo(receive, send)
            case _:
                await self._respond(scope, send)

    async def _respond(self, scope: Any, send: Any) -> None:
        path = scope["path"]
        await self._client.incr(f"runs:{path}", initial=1)
        fields = [(b"content-type", b"text/plain"), (b"etag", b'"v"'), FRESH]
        if path == "/events":
            fields = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        async for part in self._parts(path):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _parts(self, path: str) -> AsyncIterator[bytes]:
        match path:
            case "/release":
                self._released.set()
            case "/events":
                yield b"data: 0\n\n"
                await self._released.wait()
                yield b"data: 1\n\n"
            case "/slow":
                await asyncio.sleep(0.1)
                yield BODY
            case "/held":
                yield BODY
                await self._released.wait()
                yield BODY
            case _:
                yield path.encode()

    async def _echo(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})


async def main(descriptor: int, parser: str, store_address: str) -> None:
    """Serve until the process gets a signal to stop."""
    async with AsyncClient(store_address, timeout=5) as client:
        cache = CacheASGI(Application(client), client, settings=CacheSettings(early=False))
        config = uvicorn.Config(cache, http=parser, log_level="critical")  # type: ignore[arg-type]
        await uvicorn.Server(config).serve([socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
