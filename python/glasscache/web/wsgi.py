"""The HTTP cache as WSGI middleware, for servers with threads or processes; the decisions are those of ASGI.

A response streams while it is stored. A stale one is refreshed by one of a few threads of this middleware,
after the request that noticed has been served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

from glasscache.errors import GlasscacheError
from glasscache.web._exchange import Exchange, StoredReply
from glasscache.web._lease import Fetch
from glasscache.web._message import Request
from glasscache.web._response import ResponseHandler
from glasscache.web._run_steps import run_steps
from glasscache.web._shared_state import CHUNK_BYTES, DEFAULTS, SharedState
from glasscache.web._single_flight import SyncSingleFlight

if TYPE_CHECKING:
    from collections import Counter

    from glasscache.client import Client
    from glasscache.web._fields import Fields
    from glasscache.web._shared_state import RuleSet
    from glasscache.web._writer import Writer
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
_IDENTITY_VARIABLES: Final = ("REMOTE_USER", "AUTH_TYPE", "SSL_CLIENT_S_DN")
"""Variables in which a server names the client that it has found out about."""


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
        self._single_flight = SyncSingleFlight()
        self._refreshing_keys: set[str] = set()
        self._lock = threading.Lock()
        self._refresh_pool: ThreadPoolExecutor | None = None

    @property
    def counters(self) -> Counter[str]:
        """Return what happened so far: hits, misses, stale, stored, store_errors and more."""
        return self.shared.counters

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Reply to a request."""
        request = request_of(environ)
        if request.method == "PURGE" and self.shared.cache_settings.purge_token is not None:
            return self._purge(request, start_response)
        exchange = Exchange(self.shared, self.client, request)
        bypass_reason = exchange.bypass_reason
        if bypass_reason is not None:
            self.shared.counters["bypassed"] += 1
            fetch = Fetch(bypass_reason, request.fields, request.method, is_as_sent=True)
            return self._run_fetch(exchange, fetch, environ, start_response)
        keys = exchange.lookup.first_keys()
        action: StoredReply | Fetch | None
        try:
            action = exchange.fresh_hit(keys, self.client.get_many(keys))
        except GlasscacheError:
            action = None
        if action is None:
            action = self._decide_collapsed(exchange)
        if isinstance(action, Fetch):
            return self._run_fetch(exchange, action, environ, start_response)
        if action.refresh is not None:
            self._start_refresh(exchange, action.refresh, environ)
        return self._send_stored(exchange, action, environ, start_response)

    def _decide_collapsed(self, exchange: Exchange) -> StoredReply | Fetch:
        """Decide what is not a plain hit; of the requests for a key one does, and the others wait for it."""
        lookup, single_flight = exchange.lookup, self._single_flight
        if (
            lookup.response_key in self._refreshing_keys
            and (stale_reply := exchange.stale_reply()) is not None
        ):
            return stale_reply
        deadline = self.shared.clock() + self.shared.wait_s
        while exchange.shares_fetch:
            key = lookup.response_key
            if single_flight.begin(key):
                is_leased = False
                try:
                    action = run_steps(exchange.decide())
                    is_leased = isinstance(action, Fetch) and action.is_leased
                    return action
                finally:
                    if not is_leased:
                        single_flight.end(key)
            single_flight.wait(key, max(0.0, deadline - self.shared.clock()))
            if self.shared.clock() >= deadline:
                return exchange.forward_after_wait()
            lookup.reset()
            keys = lookup.first_keys()
            try:
                hit = exchange.fresh_hit(keys, self.client.get_many(keys))
            except GlasscacheError:
                break
            if hit is not None:
                return hit
        return run_steps(exchange.decide())

    # ---- from the application -----------------------------------------------------------------------

    def _run_fetch(
        self, exchange: Exchange, fetch: Fetch, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Let the application reply, and store what may be stored."""
        response = _AppResponse(exchange, fetch, self._end_callback(exchange, fetch))
        try:
            head = response.begin(self.app, _environ_for(environ, fetch, exchange.request))
        except Exception:
            error_head = ResponseHandler(exchange, fetch).receive_exception()
            if error_head is None or error_head.stored_reply is None:
                response.close()
                raise
            head = error_head
        if head.stored_reply is not None:
            if head.follow_up_steps is not None:
                run_steps(head.follow_up_steps)
            response.close()
            return self._send_stored(exchange, head.stored_reply, environ, start_response)
        if head.status == response.status_code:
            start_response(
                response.status_line, _to_text_fields(head.fields), *response.error_arguments
            )
        else:
            start_response(_status_line(head.status), _to_text_fields(head.fields))
        if head.follow_up_steps is not None:
            run_steps(head.follow_up_steps)
        return response

    def _end_callback(self, exchange: Exchange, fetch: Fetch) -> Callable[[], None]:
        if not fetch.is_leased:
            return lambda: None
        key = exchange.lookup.response_key
        return lambda: self._single_flight.end(key)

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
        start_response(_status_line(reply.status), _to_text_fields(reply.fields))
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
        chunk_index, position = reply.start // CHUNK_BYTES, reply.start
        while True:
            for chunk in chunks:
                chunk_start = position - chunk_index * CHUNK_BYTES
                body_part = chunk[
                    chunk_start : min(len(chunk), reply.stop - chunk_index * CHUNK_BYTES)
                ]
                position, chunk_index = position + len(body_part), chunk_index + 1
                yield body_part
                if position >= reply.stop:
                    return
            next_chunks = run_steps(exchange.read_chunks(entry, chunk_index))
            if next_chunks is None:
                raise run_steps(exchange.end_incomplete())
            chunks = next_chunks

    # ---- in the background ----------------------------------------------------------------------------

    def _start_refresh(self, exchange: Exchange, fetch: Fetch, environ: Environ) -> None:
        """Fetch a stale response again while it is being sent."""
        response_key = exchange.lookup.response_key
        with self._lock:
            if len(self._refreshing_keys) >= _REFRESHES_MAX:
                run_steps(exchange.lease_of(fetch).release())
                return
            self._refreshing_keys.add(response_key)
            if self._refresh_pool is None:
                self._refresh_pool = ThreadPoolExecutor(
                    _REFRESH_THREADS, thread_name_prefix="glasscache-web"
                )
            pool = self._refresh_pool
        refresh_environ = _environ_for(environ, fetch, exchange.request)
        refresh_environ["wsgi.input"] = BytesIO()
        refresh_environ["CONTENT_LENGTH"] = ""
        pool.submit(self._run_refresh, exchange, fetch, refresh_environ)

    def _run_refresh(self, exchange: Exchange, fetch: Fetch, environ: Environ) -> None:
        response = _AppResponse(exchange, fetch, lambda: None)
        try:
            head = response.begin(self.app, environ)
            if head.stored_reply is None:
                for _ in response:
                    pass
            if head.follow_up_steps is not None:
                run_steps(head.follow_up_steps)
        except Exception:  # noqa: BLE001 - the application's own logging has seen it
            self.shared.counters["refreshes_failed"] += 1
        finally:
            response.close()
            with self._lock:
                self._refreshing_keys.discard(exchange.lookup.response_key)

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
        start_response(_status_line(status), text_fields)
        return [body]


class _AppResponse:
    """The application's response: an iterable for the server, which keeps what is to be stored."""

    def __init__(self, exchange: Exchange, fetch: Fetch, on_end: Callable[[], None]) -> None:
        self._exchange, self._fetch, self._on_end = exchange, fetch, on_end
        self._requested_at = exchange.shared.clock()
        self._writer: Writer | None = None
        self._body: Any = None
        self._written_parts: list[bytes] = []
        self._parts: Iterator[bytes] = iter(())
        self._is_over = False
        self._discards_body = False
        self.status_line = ""
        self.error_arguments: tuple[Any, ...] = ()
        self._text_fields: list[tuple[str, str]] = []

    @property
    def status_code(self) -> int:
        return int(self.status_line[:3])

    def _start_response(
        self, status_line: str, text_fields: list[tuple[str, str]], error: Any = None
    ) -> Any:
        self.status_line, self._text_fields = status_line, text_fields
        self.error_arguments = (error,) if error else ()
        return self._written_parts.append

    def begin(self, app: App, environ: Environ) -> Any:
        """Run the application up to its first bytes, and return what to do with its head."""
        self._body = app(environ, self._start_response)
        parts = iter(self._body)
        first_parts: list[bytes] = []
        # Some applications call start_response with their first bytes only.
        while not self.status_line:
            try:
                first_parts.append(next(parts))
            except StopIteration:
                break
        if not self.status_line:
            raise RuntimeError("the application returned without calling start_response")
        self._parts = _chain_parts(self._written_parts, first_parts, parts)
        fields: Fields = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in self._text_fields
        ]
        head = ResponseHandler(self._exchange, self._fetch).receive(
            self.status_code, fields, self._requested_at
        )
        if head.stored_reply is None:
            self._writer = head.writer
            self._discards_body = head.status == 304 and head.writer is not None  # noqa: PLR2004
        else:
            self._is_over = True
        return head

    def __iter__(self) -> Iterator[bytes]:
        """Yield the body, and store it."""
        writer = self._writer
        for body_part in self._parts:
            if not self._discards_body:
                yield body_part
            if writer is not None and writer.feed(body_part):
                run_steps(writer.flush())
        if writer is not None:
            self._is_over = True
            run_steps(writer.finish())

    def close(self) -> None:
        """Close the application's iterable; what is not complete is not stored, and the lease goes back."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            try:
                if not self._is_over:
                    self._is_over = True
                    if self._writer is not None:
                        run_steps(self._writer.abandon())
                    else:
                        run_steps(self._exchange.lease_of(self._fetch).release())
            finally:
                self._on_end()


def _chain_parts(*parts: Iterable[bytes]) -> Iterator[bytes]:
    for iterable in parts:
        yield from iterable


def request_of(environ: Environ) -> Request:
    """Return the head of a WSGI request."""
    fields: Fields = []
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            fields.append((_field_name(name[5:]), value.encode("latin-1")))
        elif name in {"CONTENT_TYPE", "CONTENT_LENGTH"} and value:
            fields.append((_field_name(name), value.encode("latin-1")))
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    request = Request(
        environ["REQUEST_METHOD"],
        environ.get("wsgi.url_scheme", "http"),
        quote(path.encode("latin-1"), safe="/").encode(),
        environ.get("QUERY_STRING", "").encode("latin-1"),
        fields,
    )
    request.is_identified = any(environ.get(name) for name in _IDENTITY_VARIABLES)
    return request


def _field_name(name: str) -> bytes:
    return name.replace("_", "-").lower().encode("latin-1")


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
    }
    query = b"?" + request.query if request.query else b""
    for url_variable in _URL_VARIABLES:
        if url_variable in environ:
            fetch_environ[url_variable] = (request.path + query).decode("latin-1")
    return fetch_environ


def _to_text_fields(fields: Fields) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in fields]


def _status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
