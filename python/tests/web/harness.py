"""Applications and clients of the web tests: ASGI without a server, and a clock that tests move."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from glasscache._chunks import CHUNKS_PER_READ
from glasscache.web._entry import Entry, decode
from glasscache.web._urls import request_of_url

if TYPE_CHECKING:
    from collections.abc import Callable


class Reply:
    """A response as an ASGI or WSGI server would send it."""

    def __init__(self) -> None:
        self.status = 0
        self.fields: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.is_complete = False

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    def __getitem__(self, name: str) -> str | None:
        for field, value in self.fields:
            if field.lower() == name.lower().encode():
                return value.decode()
        return None

    @property
    def cache_status(self) -> str:
        return self["cache-status"] or ""


class Origin:
    """An ASGI application: responds by a function of the request, and counts its calls."""

    def __init__(self, respond: Callable[..., Any] | None = None) -> None:
        self.respond = respond or (lambda request: {"cache-control": "max-age=60"})
        self.calls: list[dict[str, Any]] = []
        self.delay_s = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        fields = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        call = {
            "method": scope["method"],
            "path": scope["path"],
            "fields": fields,
            "query": scope["query_string"],
        }
        self.calls.append(call)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        outcome = self.respond(call)
        if isinstance(outcome, Exception):
            raise outcome
        status, headers, body = 200, outcome, f"body {len(self.calls)}".encode()
        if isinstance(outcome, tuple):
            status, headers, *optional_body = outcome
            body = optional_body[0] if optional_body else body
        parts = body if isinstance(body, list) else [body]
        encoded_headers = [
            (name.encode(), value.encode("latin-1")) for name, value in headers.items()
        ]
        await send({"type": "http.response.start", "status": status, "headers": encoded_headers})
        for part in parts[:-1]:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": parts[-1]})


async def send_request(
    app: Any,
    url: str = "/",
    method: str = "GET",
    fields: dict[str, str] | None = None,
    **scope_entries: Any,
) -> Reply:
    """Send a request to an ASGI application."""
    path, _, query = url.partition("?")
    all_fields = {"host": "shop.example", **(fields or {})}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "scheme": "http",
        "query_string": query.encode(), "http_version": "1.1", "extensions": {},
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in all_fields.items()],
        **scope_entries,
    }  # fmt: skip
    reply, request_messages = Reply(), [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if request_messages:
            return request_messages.pop()
        await asyncio.sleep(3600)
        return None

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.fields = message["status"], list(message["headers"])
        else:
            reply.parts.append(message.get("body", b""))
            reply.is_complete = not message.get("more_body", False)

    await app(scope, receive, send)
    return reply


def key_of_url(shared: Any, url: str) -> str:
    """Return the key of the response to a plain GET of a URL."""
    request = request_of_url(url)
    return str(shared.key_of(request.digest(shared.version, shared.settings_of(request))))


def chunk_keys_of(shared: Any, response_key: str, stored_record: bytes) -> list[str]:
    """Return the keys of the first chunks of a stored body, one more than one read takes."""
    entry = decode(stored_record, bytes.fromhex(response_key.partition(":")[2]))
    assert isinstance(entry, Entry)
    chunks = shared.chunks(entry.write_id, entry.length)
    return [chunks.key(index) for index in range(CHUNKS_PER_READ + 1)]


class Clock:
    """Wall time of a cache, which a test may move on."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class FailingClient:
    """A client whose calls fail, or return something else, as a function decides."""

    def __init__(self, client: Any, choose_failure: Callable[[str], Any]) -> None:
        self._client, self._choose_failure = client, choose_failure

    def __getattr__(self, name: str) -> Any:
        async def call_or_fail(*arguments: Any, **options: Any) -> Any:
            failure = self._choose_failure(name)
            if isinstance(failure, Exception):
                raise failure
            if failure is not None:
                return failure
            return await getattr(self._client, name)(*arguments, **options)

        return call_or_fail
