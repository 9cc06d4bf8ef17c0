"""The HTTP cache as WSGI middleware, for servers with threads or processes; the decisions are those of ASGI.

A response streams while it is stored. A stale one is refreshed by one of a few threads of this middleware,
after the request that noticed has been served.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

from glasscache._chunks import CHUNK_BYTES
from glasscache._native import environ_fields
from glasscache.errors import GlasscacheError
from glasscache.web._app_response import (
    AppResponse,
    ClosingBody,
    StallWatch,
    discard_head,
    status_line_of,
    to_text_fields,
)
from glasscache.web._exchange import Exchange, StoredReply
from glasscache.web._kept_hits import FirstRead
from glasscache.web._lease import Fetch
from glasscache.web._message import Request, decision_key_of
from glasscache.web._run_steps import run_steps
from glasscache.web._shared_state import DEFAULTS, SharedState
from glasscache.web._single_flight import SyncSingleFlight

if TYPE_CHECKING:
    from collections import Counter

    from glasscache.client import Client
    from glasscache.web._fields import Fields
    from glasscache.web._shared_state import RuleSet
    from glasscache.web.settings import CacheSettings

__all__ = ["CacheWSGI"]

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

_REFRESH_THREADS: Final = 4
_REFRESHES_MAX: Final = 256
"""Refreshes that wait for a thread; beyond, the next request takes the lease again."""
_CONDITIONAL_VARIABLES: Final = frozenset({
    "HTTP_IF_NONE_MATCH", "HTTP_IF_MODIFIED_SINCE", "HTTP_IF_RANGE", "HTTP_RANGE",
})  # fmt: skip
_URL_VARIABLES: Final = ("REQUEST_URI", "RAW_URI")
"""What servers have of the request line beside PATH_INFO and QUERY_STRING."""
_PATH_VARIABLES: Final = ("SCRIPT_URL", "REDIRECT_URL")
"""What servers have of the whole path, decoded, which Django reads."""
_IDENTITY_VARIABLES: Final = (
    "REMOTE_USER",
    "REMOTE_IDENT",
    "AUTH_TYPE",
    "SSL_CLIENT_S_DN",
    "SSL_CLIENT_M_SERIAL",
    "SSL_CLIENT_CERT",
    "repoze.who.identity",
)
"""Variables in which a server or middleware names the client that it has found out about."""


class CacheWSGI:
    """A WSGI application that responds from the cache what it can, and passes the rest to `app`.

    The arguments are those of `CacheASGI`; `client` is a `Client`.
    """

    def __init__(
        self,
        app: App,
        client: Client,
        rules: RuleSet | None = None,
        settings: CacheSettings = DEFAULTS,
    ) -> None:
        """Wrap an application; the class documents the arguments."""
        self.app, self.client = app, client
        self.shared = SharedState(rules, settings)
        self._single_flight, self._refreshes = SyncSingleFlight(), SyncSingleFlight()
        self._stalls = StallWatch()
        self._lock = threading.Lock()
        self._refresh_pool: ThreadPoolExecutor | None = None

    @property
    def counters(self) -> Counter[str]:
        """Return what happened so far: hits, misses, stale, stored, store_errors and more."""
        return self.shared.counters

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Reply to a request."""
        fields = environ_fields(environ)
        decision_key = _decision_key_of(environ, fields)
        kept_hit = self.shared.find_kept_hit(decision_key, fields)
        if kept_hit is None:
            return self._reply(environ, start_response, fields, decision_key, None)
        began_at, keys = time.monotonic(), kept_hit.keys
        try:
            values = self.client.get_many(keys)
        except GlasscacheError:
            keys, values = [], {}
        hit_fields = kept_hit.fields_at(values, self.shared.clock())
        if hit_fields is None:
            first_read = FirstRead(began_at, keys, values)
            return self._reply(environ, start_response, fields, decision_key, first_read)
        self.shared.counters["hits"] += 1
        start_response(status_line_of(kept_hit.entry.status), to_text_fields(hit_fields))
        return [kept_hit.entry.body]

    def _reply(
        self,
        environ: Environ,
        start_response: StartResponse,
        fields: Fields,
        decision_key: bytes | None,
        first_read: FirstRead | None,
    ) -> Iterable[bytes]:
        """Decide about a request, of which the store may have been read already, and reply."""
        request = _request_of(environ, fields)
        if request.method == "PURGE" and self.shared.cache_settings.purge_token is not None:
            return self._purge(request, start_response)
        began_at = first_read and first_read.began_at
        exchange = Exchange(self.shared, self.client, request, decision_key, began_at)
        bypass_reason = exchange.bypass_reason
        if bypass_reason is not None:
            self.shared.counters["bypassed"] += 1
            fetch = Fetch(bypass_reason, request.fields, request.method, is_as_sent=True)
            return self._run_fetch(exchange, fetch, environ, start_response)
        action: StoredReply | Fetch | None
        try:
            if first_read is None:
                keys = exchange.lookup.first_keys()
                values = self.client.get_many(keys)
            else:
                _, keys, values = first_read
            action = exchange.fresh_hit(keys, values)
        except GlasscacheError:
            action = None
        if action is None:
            action = run_steps(exchange.decide_in_flight(self._single_flight, self._refreshes))
        if isinstance(action, Fetch):
            return self._run_fetch(exchange, action, environ, start_response)
        if action.refresh is not None:
            self._start_refresh(exchange, action.refresh, environ)
        return self._send_stored(exchange, action, environ, start_response)

    # ---- from the application -----------------------------------------------------------------------

    def _run_fetch(
        self, exchange: Exchange, fetch: Fetch, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Let the application reply, and store what may be stored."""
        response = AppResponse(exchange, fetch, start_response, self._stalls)
        try:
            response.begin(self.app, _environ_for(environ, fetch, exchange.request))
        except BaseException as error:
            response.fail(error)
            if response.stored_reply is None:
                response.close()
                raise
        if response.is_retried:
            response.close()
            fetch = exchange.forward_as_sent()
            return self._run_fetch(exchange, fetch, environ, start_response)
        if response.stored_reply is None:
            return response.body
        try:
            parts = self._send_stored(exchange, response.stored_reply, environ, start_response)
        except BaseException:
            response.close()
            raise
        return ClosingBody(parts, response.close)

    def _send_stored(
        self,
        exchange: Exchange,
        stored_reply: StoredReply,
        environ: Environ,
        start_response: StartResponse,
    ) -> Iterable[bytes]:
        """Send a stored response."""
        reply, entry = stored_reply.reply, stored_reply.reply.entry
        chunks = stored_reply.chunks
        if entry is not None and entry.write_id and reply.has_body and chunks is None:
            chunks = run_steps(exchange.read_chunks(entry, reply.start // CHUNK_BYTES))
            if chunks is None:  # the body is lost although its head was validated
                fetch = Fetch(b"", exchange.request.fields, "GET")
                app_environ = _environ_for(environ, fetch, exchange.request)
                for name in _CONDITIONAL_VARIABLES:
                    app_environ.pop(name, None)
                return self.app(app_environ, start_response)
        start_response(status_line_of(reply.status), to_text_fields(reply.fields))
        if entry is None or not reply.has_body:
            return [b""]
        if not entry.write_id:
            is_whole = reply.start == 0 and reply.stop == entry.length
            return [entry.body if is_whole else entry.body[reply.start : reply.stop]]
        return self._send_chunks(exchange, stored_reply, chunks or [])

    def _send_chunks(
        self, exchange: Exchange, stored_reply: StoredReply, chunks: list[bytes]
    ) -> Iterator[bytes]:
        reply, entry = stored_reply.reply, stored_reply.reply.entry
        assert entry is not None  # noqa: S101 - a body has an entry
        stored_chunks = self.shared.chunks(entry.write_id, entry.length)
        chunk_index, position = reply.start // CHUNK_BYTES, reply.start
        while True:
            for body_part in stored_chunks.slices(chunks, chunk_index, reply.start, reply.stop):
                position += len(body_part)
                yield body_part
            if position >= reply.stop:
                return
            chunk_index += len(chunks)
            chunks = run_steps(exchange.read_more_chunks(entry, chunk_index))

    # ---- in the background ----------------------------------------------------------------------------

    def _start_refresh(self, exchange: Exchange, fetch: Fetch, environ: Environ) -> None:
        """Fetch a stale response again while it is being sent."""
        response = AppResponse(exchange, fetch, discard_head)
        refresh_environ = _environ_for(environ, fetch, exchange.request)
        try:
            fetch.flight = self._refreshes.begin(exchange.lookup.response_key, self.shared.lease_s)
            if len(self._refreshes) <= _REFRESHES_MAX:
                self._pool().submit(self._run_refresh, response, refresh_environ)
                return
        except RuntimeError:  # the process is ending
            pass
        response.close()

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._refresh_pool is None:
                self._refresh_pool = ThreadPoolExecutor(
                    _REFRESH_THREADS, thread_name_prefix="glasscache-web"
                )
            return self._refresh_pool

    def _run_refresh(self, response: AppResponse, environ: Environ) -> None:
        try:
            response.begin(self.app, environ)
            if response.stored_reply is None:
                for _ in response.body:
                    pass
        except Exception:  # noqa: BLE001 - the application's own logging has seen it
            self.shared.counters["refreshes_failed"] += 1
        finally:
            response.close()

    def settle(self) -> None:
        """Wait until everything in the background is done; for tests and for the end of a process."""
        with self._lock:
            pool, self._refresh_pool = self._refresh_pool, None
        if pool is not None:
            pool.shutdown(wait=True)

    def _purge(self, request: Request, start_response: StartResponse) -> Iterable[bytes]:
        from glasscache.web.purge import purge_by_request  # noqa: PLC0415 - purges are few

        status, body = run_steps(
            purge_by_request(
                self.shared, self.client, request, self.shared.cache_settings.purge_token or ""
            )
        )
        text_fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(status_line_of(status), text_fields)
        return [body]


def request_of(environ: Environ) -> Request:
    """Return the head of a WSGI request."""
    return _request_of(environ, environ_fields(environ))


def _request_of(environ: Environ, fields: Fields) -> Request:
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    request = Request(
        environ["REQUEST_METHOD"],
        environ.get("wsgi.url_scheme", "http"),
        quote(path.encode("latin-1"), safe="/").encode(),
        environ.get("QUERY_STRING", "").encode("latin-1"),
        fields,
    )
    if environ.get("SCRIPT_NAME") or not request.host:
        server = f"{environ.get('SERVER_NAME', '')}:{environ.get('SERVER_PORT', '')}"
        mount = environ.get("SCRIPT_NAME", "").encode("latin-1")
        request.set_surroundings(mount, server.encode("latin-1"))
    request.is_identified = _is_identified(environ)
    return request


def _decision_key_of(environ: Environ, fields: Fields) -> bytes | None:
    """Return what a decision about a WSGI request is made from; None if more than that counts."""
    if environ["REQUEST_METHOD"] != "GET" or environ.get("SCRIPT_NAME") or _is_identified(environ):
        return None
    path: str = environ.get("PATH_INFO", "")
    return decision_key_of(
        environ.get("wsgi.url_scheme", "http"),
        path,
        path.encode("latin-1"),
        environ.get("QUERY_STRING", "").encode("latin-1"),
        fields,
    )


def _is_identified(environ: Environ) -> bool:
    """Whether the server or a middleware has found out who the client is."""
    if environ.keys().isdisjoint(_IDENTITY_VARIABLES):
        return False
    return any(environ.get(name) for name in _IDENTITY_VARIABLES)


def _environ_for(environ: Environ, fetch: Fetch, request: Request) -> Environ:
    """Return the environ of a fetch: of the canonical request, unless it is passed on as it was sent."""
    if fetch.is_as_sent:
        return environ
    fetch_environ = {name: value for name, value in environ.items() if name[:5] != "HTTP_"}
    for name, value in fetch.fields:
        variable = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        if variable not in {"HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH"}:
            fetch_environ[variable] = value.decode("latin-1")
    path, script_name = (
        unquote_to_bytes(request.path).decode("latin-1"),
        environ.get("SCRIPT_NAME", ""),
    )
    fetch_environ |= {
        "REQUEST_METHOD": fetch.method,
        "SCRIPT_NAME": path[: len(script_name)],
        "PATH_INFO": path[len(script_name) :],
        "QUERY_STRING": request.query.decode("latin-1"),
        "wsgi.input": BytesIO(),  # a request whose head states a body bypasses the cache
    }
    fetch_environ |= {name: path for name in _PATH_VARIABLES if name in environ}
    query = b"?" + request.query if request.query else b""
    for url_variable in _URL_VARIABLES:
        if url_variable in environ:
            fetch_environ[url_variable] = (request.path + query).decode("latin-1")
    return fetch_environ
