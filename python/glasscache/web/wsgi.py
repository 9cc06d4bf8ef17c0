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
from urllib.parse import quote

from glasscache.errors import GlasscacheError
from glasscache.web._core import DEFAULTS, PIECE_BYTES, Core
from glasscache.web._drive import SyncFlights, drive
from glasscache.web._exchange import Exchange, Found
from glasscache.web._lease import Fetch
from glasscache.web._message import Request

if TYPE_CHECKING:
    from collections import Counter

    from glasscache.client import Client
    from glasscache.web._core import RuleSet
    from glasscache.web._fields import Fields
    from glasscache.web._writer import Writer
    from glasscache.web.settings import CacheSettings

__all__ = ["CacheWSGI"]

Environ = dict[str, Any]
Start = Callable[..., Any]
App = Callable[[Environ, Start], Iterable[bytes]]

_REFRESH_THREADS: Final = 4
_REFRESHES_MAX: Final = 256
"""Refreshes that wait for a thread; beyond, the next request takes the lease again."""
_OWN_FIELDS: Final = ("if-none-match", "if-modified-since", "if-range", "range", "cookie")
"""Fields of the request that the cache may add, change or keep from the application."""


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
        self.core = Core(rules, settings)
        self._flights = SyncFlights()
        self._refreshing: set[str] = set()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def counters(self) -> Counter[str]:
        """Return what happened so far: hits, misses, stale, stored, store_errors and more."""
        return self.core.counters

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """Reply a request."""
        request = request_of(environ)
        if request.method == "PURGE" and self.core.settings.purge_token is not None:
            return self._purge(request, start_response)
        exchange = Exchange(self.core, self.client, request)
        past = exchange.bypass
        if past is not None:
            self.core.counters["bypassed"] += 1
            fetch = Fetch(past, request.fields, request.method)
            return self._fetch(exchange, fetch, environ, start_response)
        keys = exchange.look.first_keys()
        found: Found | Fetch | None
        try:
            found = exchange.quick(keys, self.client.get_many(keys))
        except GlasscacheError:
            found = None
        if found is None:
            found = self._slow(exchange)
        if isinstance(found, Fetch):
            return self._fetch(exchange, found, environ, start_response)
        if found.refresh is not None:
            self._refresh(exchange, found.refresh, environ)
        return self._send_found(exchange, found, environ, start_response)

    def _slow(self, exchange: Exchange) -> Found | Fetch:
        """Decide what is not a plain hit; of the requests for a key one does, and the others wait for it."""
        look, flights = exchange.look, self._flights
        if look.target in self._refreshing and (stale := exchange.stale()) is not None:
            return stale
        ends = self.core.clock() + self.core.wait
        while exchange.collapses:
            key = look.target
            if flights.begin(key):
                is_leased = False
                try:
                    action = drive(exchange.open())
                    is_leased = isinstance(action, Fetch) and action.is_leased
                    return action
                finally:
                    if not is_leased:
                        flights.end(key)
            flights.wait(key, max(0.0, ends - self.core.clock()))
            if self.core.clock() >= ends:
                return exchange.waited_too_long()
            look.reset()
            keys = look.first_keys()
            try:
                found = exchange.quick(keys, self.client.get_many(keys))
            except GlasscacheError:
                break
            if found is not None:
                return found
        return drive(exchange.open())

    # ---- from the application -----------------------------------------------------------------------

    def _fetch(
        self, exchange: Exchange, fetch: Fetch, environ: Environ, start_response: Start
    ) -> Iterable[bytes]:
        """Let the application reply, and store what may be stored."""
        response = _Response(exchange, fetch, self._end_of(exchange, fetch))
        try:
            head = response.begin(self.app, _environ_for(environ, fetch, exchange.request))
        except Exception:
            failed = exchange.failed(fetch)
            if failed is None or failed.found is None:
                response.close()
                raise
            head = failed
        if head.found is not None:
            if head.after is not None:
                drive(head.after)
            response.close()
            return self._send_found(exchange, head.found, environ, start_response)
        if head.status == response.status_code:
            start_response(response.status, _texts(head.fields), *response.error)
        else:
            start_response(_line(head.status), _texts(head.fields))
        if head.after is not None:
            drive(head.after)
        return response

    def _end_of(self, exchange: Exchange, fetch: Fetch) -> Callable[[], None]:
        if not fetch.is_leased:
            return lambda: None
        key = exchange.look.target
        return lambda: self._flights.end(key)

    def _send_found(
        self, exchange: Exchange, found: Found, environ: Environ, start_response: Start
    ) -> Iterable[bytes]:
        """Send a stored response."""
        reply, entry = found.reply, found.reply.entry
        window = found.pieces
        if entry is not None and entry.write_id and reply.has_body and window is None:
            window = drive(exchange.pieces(entry, reply.start // PIECE_BYTES))
            if window is None:  # the body is lost although its head was validated
                return self.app(_plain_environ(environ), start_response)
        start_response(_line(reply.status), _texts(reply.fields))
        if entry is None or not reply.has_body:
            return [b""]
        if not entry.write_id:
            whole = reply.start == 0 and reply.stop == entry.length
            return [entry.body if whole else entry.body[reply.start : reply.stop]]
        return self._pieces(exchange, found, window or [])

    def _pieces(self, exchange: Exchange, found: Found, window: list[bytes]) -> Iterator[bytes]:
        reply, entry = found.reply, found.reply.entry
        assert entry is not None  # noqa: S101 - a body has an entry
        index, at = reply.start // PIECE_BYTES, reply.start
        while True:
            for piece in window:
                begin = at - index * PIECE_BYTES
                part = piece[begin : min(len(piece), reply.stop - index * PIECE_BYTES)]
                at, index = at + len(part), index + 1
                yield part
                if at >= reply.stop:
                    return
            following = drive(exchange.pieces(entry, index))
            if following is None:
                self.core.counters["lost_pieces"] += 1
                raise RuntimeError(f"a piece of the stored body of {exchange.url!r} was evicted")
            window = following

    # ---- in the background ----------------------------------------------------------------------------

    def _refresh(self, exchange: Exchange, fetch: Fetch, environ: Environ) -> None:
        """Fetch a stale response again while it is being sent."""
        target = exchange.look.target
        with self._lock:
            if len(self._refreshing) >= _REFRESHES_MAX:
                drive(exchange.lease(fetch).give_up())
                return
            self._refreshing.add(target)
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    _REFRESH_THREADS, thread_name_prefix="glasscache-web"
                )
            pool = self._pool
        copy = _environ_for(environ, fetch, exchange.request)
        copy["wsgi.input"] = BytesIO()
        copy["CONTENT_LENGTH"] = ""
        pool.submit(self._run_refresh, exchange, fetch, copy)

    def _run_refresh(self, exchange: Exchange, fetch: Fetch, environ: Environ) -> None:
        response = _Response(exchange, fetch, lambda: None)
        try:
            head = response.begin(self.app, environ)
            if head.found is None:
                for _ in response:
                    pass
            if head.after is not None:
                drive(head.after)
        except Exception:  # noqa: BLE001 - the application's own logging has seen it
            self.core.counters["refreshes_failed"] += 1
        finally:
            response.close()
            with self._lock:
                self._refreshing.discard(exchange.look.target)

    def settle(self) -> None:
        """Wait until everything in the background is done; for tests and for the end of a process."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)

    def _purge(self, request: Request, start_response: Start) -> Iterable[bytes]:
        from glasscache.web.purge import purge_by_request  # noqa: PLC0415 - purges are few

        status, body = drive(
            purge_by_request(self.core, self.client, request, self.core.settings.purge_token or "")
        )
        fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(_line(status), fields)
        return [body]


class _Response:
    """The application's response: an iterable for the server, which keeps what is to be stored."""

    def __init__(self, exchange: Exchange, fetch: Fetch, at_end: Callable[[], None]) -> None:
        self._exchange, self._fetch, self._at_end = exchange, fetch, at_end
        self._requested_at = exchange.core.clock()
        self._writer: Writer | None = None
        self._body: Any = None
        self._written: list[bytes] = []
        self._parts: Iterator[bytes] = iter(())
        self._is_over = False
        self._is_headless = False
        self.status = ""
        self.error: tuple[Any, ...] = ()
        self._fields: list[tuple[str, str]] = []

    @property
    def status_code(self) -> int:
        return int(self.status[:3])

    def _start_response(self, status: str, fields: list[tuple[str, str]], error: Any = None) -> Any:
        self.status, self._fields = status, fields
        self.error = (error,) if error else ()
        return self._written.append

    def begin(self, app: App, environ: Environ) -> Any:
        """Run the application up to its first bytes, and return what to do with its head."""
        self._body = app(environ, self._start_response)
        parts = iter(self._body)
        first: list[bytes] = []
        while not self.status:  # some applications call start_response with their first bytes only
            try:
                first.append(next(parts))
            except StopIteration:
                break
        if not self.status:
            raise RuntimeError("the application returned without calling start_response")
        self._parts = _chain(self._written, first, parts)
        fields: Fields = [
            (k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in self._fields
        ]
        head = self._exchange.receive(self._fetch, self.status_code, fields, self._requested_at)
        if head.found is None:
            self._writer = head.writer
            self._is_headless = head.status == 304 and head.writer is not None  # noqa: PLR2004
        else:
            self._is_over = True
        return head

    def __iter__(self) -> Iterator[bytes]:
        """Yield the body, and store it."""
        writer = self._writer
        for part in self._parts:
            if not self._is_headless:
                yield part
            if writer is not None and writer.feed(part):
                drive(writer.flush())
        if writer is not None:
            self._is_over = True
            drive(writer.finish())

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
                        drive(self._writer.abandon())
                    else:
                        drive(self._exchange.lease(self._fetch).give_up())
            finally:
                self._at_end()


def _chain(*parts: Iterable[bytes]) -> Iterator[bytes]:
    for some in parts:
        yield from some


def request_of(environ: Environ) -> Request:
    """Return the head of a WSGI request."""
    fields: Fields = []
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            fields.append((_field_name(name[5:]), value.encode("latin-1")))
        elif name in {"CONTENT_TYPE", "CONTENT_LENGTH"} and value:
            fields.append((_field_name(name), value.encode("latin-1")))
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return Request(
        environ["REQUEST_METHOD"],
        environ.get("wsgi.url_scheme", "http"),
        quote(path.encode("latin-1"), safe="/%:@!$&'()*+,;=-._~").encode() or b"/",
        environ.get("QUERY_STRING", "").encode("latin-1"),
        fields,
    )


def _field_name(name: str) -> bytes:
    return name.replace("_", "-").lower().encode("latin-1")


def _environ_for(environ: Environ, fetch: Fetch, request: Request) -> Environ:
    if fetch.fields is request.fields and fetch.method == environ["REQUEST_METHOD"]:
        return environ
    made = {**environ, "REQUEST_METHOD": fetch.method}
    named = {name.decode("latin-1"): value for name, value in fetch.fields}
    for name in _OWN_FIELDS:
        key = "HTTP_" + name.upper().replace("-", "_")
        made.pop(key, None)
        if name in named:
            made[key] = named[name].decode("latin-1")
    return made


def _plain_environ(environ: Environ) -> Environ:
    own = {"HTTP_" + name.upper().replace("-", "_") for name in _OWN_FIELDS} - {"HTTP_COOKIE"}
    return {name: value for name, value in environ.items() if name not in own}


def _texts(fields: Fields) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in fields]


def _line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
