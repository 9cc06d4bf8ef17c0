"""The cached applications of the HTTP cache tests: reverse proxies of the suite's own server, as ASGI and
WSGI.

They change nothing: what the suite's server sends is what the application under the cache
sends. Environment: ORIGIN (host:port of the suite's server), STORE (address of the cache server), CACHE=off
for neither cache nor store, RULES for rules of the cache. Run by uvicorn as `origin_proxy:asgi`, by gunicorn
as `origin_proxy:wsgi()`.
"""

from __future__ import annotations

import http.client
import os

HOP_BY_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"trailer"}
ORIGIN = os.environ.get("ORIGIN", "127.0.0.1:8000")
RULES = os.environ.get("RULES", "")
STORE = os.environ.get("STORE", "127.0.0.1:11211")


class ProxyASGI:
    """Sends each request to the origin, and its response back as it comes."""

    def __init__(self) -> None:
        self._client = None

    async def __call__(self, scope, receive, send):
        import httpx

        if scope["type"] != "http":
            return
        if self._client is None:
            limits = httpx.Limits(max_connections=400, max_keepalive_connections=0)
            self._client = httpx.AsyncClient(timeout=30, limits=limits, trust_env=False)
        body, has_more = b"", True
        while has_more:
            message = await receive()
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        url = f"http://{ORIGIN}{(scope['raw_path'] + query).decode()}"
        headers = [
            name_and_value
            for name_and_value in scope["headers"]
            if name_and_value[0] not in HOP_BY_HOP
        ]
        request = httpx.Request(scope["method"], url, headers=headers, content=body or None)
        response = await self._client.send(request, stream=True)
        try:
            response_fields = [
                (name.lower(), value)
                for name, value in response.headers.raw
                if name.lower() not in {b"transfer-encoding", b"keep-alive"}
                or (name.lower() == b"keep-alive" and b"timeout" not in value)
            ]
            response_fields = [
                field for field in response_fields if field != (b"connection", b"keep-alive")
            ]
            start_message = {"type": "http.response.start", "status": response.status_code}
            await send({**start_message, "headers": response_fields})
            async for chunk in response.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()


def cached_asgi():
    from glasscache import AsyncClient
    from glasscache.web import CacheASGI, Rules

    return CacheASGI(ProxyASGI(), AsyncClient(STORE, timeout=2), Rules.from_text(RULES))


def proxy_wsgi(environ, start_response):
    """The same for WSGI, one connection a request."""
    try:
        return forward(environ, start_response)
    except OSError as error:  # gunicorn would take it for the client's
        raise RuntimeError(f"the origin failed: {error}") from error


def forward(environ, start_response):
    host, _, port = ORIGIN.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    path = environ.get("RAW_URI") or environ["PATH_INFO"]
    connection.putrequest(
        environ["REQUEST_METHOD"], path, skip_host=True, skip_accept_encoding=True
    )
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            field_name = name[5:].replace("_", "-")
            if field_name.lower().encode() not in HOP_BY_HOP:
                connection.putheader(field_name, value)
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if body:
        connection.putheader("Content-Length", str(len(body)))
        if environ.get("CONTENT_TYPE"):
            connection.putheader("Content-Type", environ["CONTENT_TYPE"])
    connection.endheaders(body or None)
    response = connection.getresponse()
    connection_fields = {
        name.strip().lower() for name in response.getheader("Connection", "").split(",")
    }
    dropped_fields = connection_fields | {name.decode() for name in HOP_BY_HOP}
    response_fields = [
        (name, value) for name, value in response.getheaders() if name.lower() not in dropped_fields
    ]
    start_response(f"{response.status} {response.reason or 'Unknown'}", response_fields)

    def chunks():
        try:
            while chunk := response.read1(65536):
                yield chunk
        finally:
            connection.close()

    return chunks()


def wsgi():
    from glasscache import Client
    from glasscache.web import CacheWSGI, Rules

    if os.environ.get("CACHE") == "off":
        return proxy_wsgi
    return CacheWSGI(proxy_wsgi, Client(STORE, timeout=2), Rules.from_text(RULES))


asgi = ProxyASGI() if os.environ.get("CACHE") == "off" else cached_asgi() if STORE else None
