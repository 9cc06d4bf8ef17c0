"""A WSGI application's response on its way to the server, which keeps what is to be stored (PEP 3333).

The application's own thread produces the body, and the server's client takes it, so that a block is sent
before the next is asked for. A client that takes its time holds up neither the store nor other requests: a
body that is whole is stored before it is sent, and where a block is not taken within `STALL_S` a thread of
the middleware stores what is whole by then, or gives the lease back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from glasscache.web._response import ResponseHandler
from glasscache.web._run_steps import run_steps

if TYPE_CHECKING:
    from glasscache.web._exchange import Exchange, StoredReply
    from glasscache.web._fields import Fields
    from glasscache.web._lease import Fetch
    from glasscache.web._response import ResponseHead
    from glasscache.web._writer import Writer

__all__ = [
    "AppResponse",
    "ClosingBody",
    "StallWatch",
    "discard_head",
    "status_line_of",
    "to_text_fields",
]

_log = logging.getLogger("glasscache.web")

STALL_S: Final = 0.1
"""A client that does not take a block within this time is not waited for by others."""
_IDLE_S: Final = 1.0
"""So long the thread that looks for such clients stays without any."""

NAME_CHARS_KEPT: Final = 64
"""Of names of fields up to this length the other spelling is kept, for it is the same for most requests."""

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class AppResponse:
    """The application's response: `start_response` and `write` for the application, a body for the server."""

    def __init__(
        self,
        exchange: Exchange,
        fetch: Fetch,
        start_response: Callable[..., Any],
        stalls: StallWatch | None = None,
    ) -> None:
        """Bind to a fetch, which the application has not been sent yet."""
        self._fetch, self._server_start_response, self._stalls = fetch, start_response, stalls
        self._handler = ResponseHandler(exchange, fetch)
        self._requested_at = exchange.shared.clock()
        self._status_line, self._text_fields = "", list[tuple[str, str]]()
        self._error: Any = None
        self._is_head_sent, self._server_write = False, _write_nothing
        self._app_body: Any = None
        self._first_parts: list[bytes] = []
        self._parts: Iterator[bytes] = iter(())
        self._discards_body = False
        self._writer: Writer | None = None
        self._writer_lock = threading.Lock()
        self.stored_reply: StoredReply | None = None
        self.is_retried = False
        """Whether the application is to get the request again, as it was sent."""

    # ---- for the application ----------------------------------------------------------------------

    def start_response(
        self, status_line: str, text_fields: list[tuple[str, str]], error: Any = None
    ) -> Callable[[bytes], None]:
        """Take the head; with an error again, which the server raises once the first head was sent."""
        if self._status_line and not error:
            raise AssertionError("start_response was called again without exc_info (PEP 3333)")
        try:
            if self._is_head_sent:
                self._replace_head(status_line, text_fields, error)
            self._status_line, self._text_fields, self._error = status_line, text_fields, error
        finally:
            error = None  # it refers to this frame
        return self.write

    def write(self, data: bytes) -> None:
        """Send a block at once, as the oldest kind of application does."""
        if not self._is_head_sent and self.stored_reply is None and not self.is_retried:
            self._send_head()
        if self.stored_reply is not None or self.is_retried:
            return
        self._store_part(data)
        if not self._discards_body:
            began_at = time.monotonic()
            self._server_write(data)
            self._exclude_from_cost(time.monotonic() - began_at)

    # ---- for the middleware -----------------------------------------------------------------------

    def begin(self, app: App, environ: dict[str, Any]) -> None:
        """Run the application until its head is known, and send that, or set `stored_reply`."""
        self._app_body = app(environ, self.start_response)
        self._parts = iter(self._app_body)
        # Some applications call start_response with their first block only, and one that fails in its
        # first block can be replaced still.
        while not self._status_line or (
            self._fetch.entry is not None and not self._is_head_sent and not self._first_parts
        ):
            try:
                self._first_parts.append(next(self._parts))
            except StopIteration:
                break
        if not self._status_line:
            raise RuntimeError("the application returned without calling start_response")
        if not self._is_head_sent and self.stored_reply is None and not self.is_retried:
            self._send_head()

    @property
    def body(self) -> Iterable[bytes]:
        """What the server is to send: the application's own body if nothing of it is stored."""
        is_untouched = self._writer is None and not self._first_parts and not self._discards_body
        return self._app_body if is_untouched else ClosingBody(self._send_body(), self.close)

    def fail(self, error: BaseException) -> None:
        """Set `stored_reply` if one is sent instead of an exception; else nothing is stored."""
        if self.stored_reply is not None:
            _log.error("the application failed; a stored response is sent", exc_info=error)
            return
        if not isinstance(error, Exception) or self._is_head_sent:
            return
        head = self._handler.receive_exception()
        if head is not None and head.stored_reply is not None:
            self._take_stored_reply(head)
        else:
            run_steps(self._handler.lease.mark_failed("application-failed"))

    def close(self) -> None:
        """Close the application's iterable; what is not complete is not stored, and the lease goes back."""
        try:
            self._abandon()
        finally:
            app_body, self._app_body = self._app_body, None
            close = getattr(app_body, "close", None)
            if close is not None:
                close()

    def settle_stalled(self) -> None:
        """End what other requests wait for: the client does not take the block that it was sent."""
        with self._writer_lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                run_steps(
                    writer.finish() if writer.has_whole_body else writer.abandon("slow-client")
                )

    # ---- the head ---------------------------------------------------------------------------------

    def _send_head(self) -> None:
        fields: Fields = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in self._text_fields
        ]
        status = int(self._status_line[:3])
        head = self._handler.receive(status, fields, self._requested_at)
        if head.stored_reply is not None:
            self._take_stored_reply(head)
            return
        self.is_retried = head.is_retried
        if head.is_retried:
            run_steps(head.follow_up_steps)
            return
        self._writer = head.writer
        self._discards_body = head.status == 304 and head.writer is not None  # noqa: PLR2004
        is_own = head.status == status
        error_arguments = (self._error,) if self._error and is_own else ()
        self._error, self._is_head_sent = None, True
        self._server_write = self._server_start_response(
            self._status_line if is_own else status_line_of(head.status),
            to_text_fields(head.fields),
            *error_arguments,
        )
        if head.follow_up_steps is not None:
            run_steps(head.follow_up_steps)

    def _take_stored_reply(self, head: ResponseHead) -> None:
        self.stored_reply = head.stored_reply
        if head.follow_up_steps is not None:
            run_steps(head.follow_up_steps)

    def _replace_head(
        self, status_line: str, text_fields: list[tuple[str, str]], error: Any
    ) -> None:
        """Pass on the head of an error page, which the server takes unless it has sent the first."""
        self._abandon()
        self._discards_body = False
        self._server_write = self._server_start_response(status_line, text_fields, error)

    # ---- the body ---------------------------------------------------------------------------------

    def _send_body(self) -> Iterator[bytes]:
        try:
            if isinstance(self._app_body, list | tuple):
                yield from self._send_whole([*self._first_parts, *self._parts])
                return
            for parts in (self._first_parts, self._parts):
                for part in parts:
                    self._store_part(part)
                    yield from self._send_part(part)
            self._finish()
        except BaseException:
            self._abandon()
            raise

    def _send_whole(self, parts: list[bytes]) -> Iterator[bytes]:
        for part in parts:
            self._store_part(part)
        self._finish()
        if not self._discards_body:
            yield from parts

    def _send_part(self, part: bytes) -> Iterator[bytes]:
        if self._discards_body:
            yield b""
            return
        stalls = self._stalls if self._writer is not None else None
        if stalls is None:
            yield part
            return
        began_at = time.monotonic()
        stalls.watch(self)
        try:
            yield part
        finally:
            stalls.forget(self)
        self._exclude_from_cost(time.monotonic() - began_at)

    def _store_part(self, part: bytes) -> None:
        with self._writer_lock:
            writer = self._writer
            if writer is not None and writer.feed(part):
                run_steps(writer.flush())

    def _finish(self) -> None:
        with self._writer_lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                run_steps(writer.finish())

    def _exclude_from_cost(self, seconds: float) -> None:
        writer = self._writer
        if writer is not None:
            writer.exclude_from_cost(seconds)

    def _abandon(self) -> None:
        with self._writer_lock:
            writer, self._writer = self._writer, None
            run_steps(self._handler.lease.release() if writer is None else writer.abandon())


def _write_nothing(data: bytes) -> None:
    """Before the head is sent, and for a response that is for the store only."""


class ClosingBody:
    """Blocks for the server, and what is to be done when it has sent them or gives up."""

    __slots__ = ("_close", "_parts")

    def __init__(self, parts: Iterable[bytes], close: Callable[[], None]) -> None:
        """Bind to the blocks; `close` is called once they are closed."""
        self._parts, self._close = parts, close

    def __iter__(self) -> Iterator[bytes]:
        """Return the iterator of the blocks."""
        return iter(self._parts)

    def close(self) -> None:
        """Close the blocks, and do what is to be done then."""
        try:
            close = getattr(self._parts, "close", None)
            if close is not None:
                close()
        finally:
            self._close()


class StallWatch:
    """A thread that notices clients that do not take the block that they were sent."""

    def __init__(self) -> None:
        """Begin without a thread: it is started when a client is watched."""
        self._since: dict[AppResponse, float] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, response: AppResponse) -> None:
        """Watch the client of a response, which is sent a block now."""
        with self._lock:
            self._since[response] = time.monotonic()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="glasscache-web-stalls", daemon=True
                )
                self._thread.start()

    def forget(self, response: AppResponse) -> None:
        """Watch the client no more: it took its block."""
        with self._lock:
            self._since.pop(response, None)

    def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            time.sleep(STALL_S / 2)
            now = time.monotonic()
            with self._lock:
                if self._since:
                    idle_since = now
                elif now - idle_since > _IDLE_S:
                    self._thread = None
                    return
                stalled = [
                    response for response, since in self._since.items() if now - since >= STALL_S
                ]
                for response in stalled:
                    del self._since[response]
            for response in stalled:
                try:
                    response.settle_stalled()
                except Exception:  # noqa: BLE001 - other responses are watched, too
                    _log.exception("a response was not stored")


def discard_head(*status_line_and_fields: Any) -> Callable[[bytes], Any]:
    """Send no head: `start_response` of a response that is for the store only."""
    del status_line_and_fields
    return _write_nothing


def to_text_fields(fields: Fields) -> list[tuple[str, str]]:
    """Return fields as WSGI servers take them."""
    return [
        (
            _short_text_name(name) if len(name) <= NAME_CHARS_KEPT else _make_text_name(name),
            value.decode("latin-1"),
        )
        for name, value in fields
    ]


def _make_text_name(name: bytes) -> str:
    return name.decode("latin-1").title()


_short_text_name = lru_cache(maxsize=256)(_make_text_name)


@lru_cache(maxsize=64)
def status_line_of(status: int) -> str:
    """Return the status line of a status code."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
