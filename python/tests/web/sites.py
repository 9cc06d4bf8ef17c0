"""One application behind the HTTP cache, asked over ASGI or WSGI by one description of a request."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes

from glasscache import AsyncClient
from glasscache.web import CacheASGI, CacheSettings, CacheWSGI, Rules

from web.harness import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Client


HOST = "shop.example"


@dataclass
class Sent:
    """A request as its client sends it, and as its server says where the application is."""

    path: bytes | str = "/"
    query: bytes = b""
    fields: Any = ()
    method: str = "GET"
    scheme: str = "http"
    host: bytes | str | None = HOST
    mount: str = ""
    body: bytes = b""
    server: str = "10.0.0.1"
    scope: dict[str, Any] = field(default_factory=dict)
    """Entries of an ASGI scope in place of those that a server makes of the request; None removes one."""

    @property
    def raw_path(self) -> bytes:
        return self.path if isinstance(self.path, bytes) else self.path.encode()

    def encoded_fields(self) -> list[tuple[bytes, bytes]]:
        fields = [] if self.host is None else [("host", self.host)]
        return [
            (name.encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
            for name, value in [*fields, *self.fields]
        ]


@dataclass
class Seen:
    """What the application reads of a request; of several fields with one name the first."""

    method: str
    path: str
    mount: str
    query: bytes
    fields: dict[str, str]
    body: bytes
    server: str

    @property
    def url_text(self) -> str:
        """Return what the application answers with where it answers by the URL."""
        return f"{self.mount!r} {self.path!r} {self.query!r}"


class Site:
    """An application that responds by a function: a body, or status, fields and body."""

    def __init__(
        self, kind: str, client: Client, address: str, respond: Callable[[Seen], Any], rules: str,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.kind, self.call_count, self._respond = kind, 0, respond
        self.rules = Rules.from_text(rules) if rules else None
        self.settings = CacheSettings(**settings)
        self.cache: Any
        if kind == "asgi":
            self._loop = asyncio.new_event_loop()
            self._client = AsyncClient(address, timeout=5)
            self.cache = CacheASGI(self._asgi_app, self._client, self.rules, self.settings)
        else:
            self.cache = CacheWSGI(self._wsgi_app, client, self.rules, self.settings)

    def close(self) -> None:
        if self.kind == "asgi":
            self._loop.run_until_complete(self._client.close())
            self._loop.close()

    def get(self, path: bytes | str = "/", **sent: Any) -> Reply:
        """Return the reply to a request; an exception of the application becomes a reply without a status."""
        reply, request = Reply(), Sent(path, **sent)
        try:
            if self.kind == "asgi":
                self._loop.run_until_complete(self._send_asgi(request, reply))
            else:
                self._send_wsgi(request, reply)
        except OSError:
            reply.status = 0
        return reply

    def _response_to(self, seen: Seen) -> tuple[int, list[tuple[str, str]], bytes]:
        self.call_count += 1
        response = self._respond(seen)
        if not isinstance(response, tuple):
            response = 200, {}, response
        status, fields, body = response
        pairs = list(fields.items()) if isinstance(fields, dict) else fields
        return status, pairs, body if isinstance(body, bytes) else body.encode()

    async def _asgi_app(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        fields: dict[str, str] = {}
        for name, value in scope["headers"]:
            fields.setdefault(name.decode(), value.decode("latin-1"))
        status, pairs, body = self._response_to(
            Seen(
                scope["method"], scope["path"], scope["root_path"], scope["query_string"], fields,
                message["body"], scope["server"][0],
            )
        )  # fmt: skip
        headers = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _send_asgi(self, sent: Sent, reply: Reply) -> None:
        scope = {
            "type": "http", "method": sent.method, "path": unquote(sent.raw_path.decode("latin-1")),
            "raw_path": sent.raw_path, "root_path": sent.mount, "scheme": sent.scheme, "extensions": {},
            "query_string": sent.query, "http_version": "2", "headers": sent.encoded_fields(),
            "server": (sent.server, 80), **sent.scope,
        }  # fmt: skip

        async def receive() -> Any:
            return {"type": "http.request", "body": sent.body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                reply.status, reply.fields = message["status"], list(message["headers"])
            else:
                reply.parts.append(message.get("body", b""))

        await self.cache(
            {name: value for name, value in scope.items() if value is not None}, receive, send
        )
        await self.cache.settle()

    def _wsgi_app(self, environ: Any, start_response: Any) -> Any:
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        fields = {
            name[5:].lower().replace("_", "-"): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        query = environ["QUERY_STRING"].encode("latin-1")
        status, pairs, body = self._response_to(
            Seen(
                environ["REQUEST_METHOD"], path, environ["SCRIPT_NAME"], query, fields,
                environ["wsgi.input"].read(), environ["SERVER_NAME"],
            )
        )  # fmt: skip
        start_response(f"{status} Chosen", [(name.title(), value) for name, value in pairs])
        return [body]

    def _send_wsgi(self, sent: Sent, reply: Reply) -> None:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": sent.method, "SCRIPT_NAME": sent.mount,
            "QUERY_STRING": sent.query.decode("latin-1"),
            "PATH_INFO": unquote_to_bytes(sent.raw_path).decode("latin-1")[len(sent.mount) :],
            "wsgi.url_scheme": sent.scheme, "wsgi.input": io.BytesIO(sent.body), "SERVER_NAME": sent.server,
            "SERVER_PORT": "80",
        }  # fmt: skip
        for name, value in sent.encoded_fields():
            variable = name.decode().upper().replace("-", "_")
            if variable != "CONTENT_LENGTH":
                variable = f"HTTP_{variable}"
            text = value.decode("latin-1")
            environ[variable] = f"{environ[variable]},{text}" if variable in environ else text

        def start_response(status_line: str, fields: Any, error: Any = None) -> Any:
            del error
            reply.status = int(status_line[:3])
            reply.fields = [(name.encode(), value.encode("latin-1")) for name, value in fields]
            return reply.parts.append

        parts = self.cache(environ, start_response)
        try:
            reply.parts += parts
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()
        self.cache.settle()
