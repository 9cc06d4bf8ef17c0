"""An HTTP cache as ASGI middleware: responses stream while they are stored, one fetch a key.

Everything that is decided is decided in `_exchange`; this file moves messages. Websockets, lifespans and
responses that may not be stored pass through message by message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from glasscache.errors import GlasscacheError
from glasscache.web._core import DEFAULTS, PIECE_BYTES, Core
from glasscache.web._drive import AsyncFlights, drive_async
from glasscache.web._exchange import Exchange, Found
from glasscache.web._lease import Fetch
from glasscache.web._message import Request

if TYPE_CHECKING:
    from collections import Counter

    from glasscache.aio import AsyncClient
    from glasscache.web._core import RuleSet
    from glasscache.web._writer import Writer
    from glasscache.web.settings import CacheSettings

__all__ = ["CacheASGI"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SENT_PAST_US: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
"""Extensions by which the server sends a file itself: the cache would not see its bytes."""


class CacheASGI:
    """An ASGI application that responds from the cache what it can, and passes the rest to `app`.

    Args:
        app: the application.
        client: an `AsyncClient`; make it with `on_error="miss"` or not, a failing store never fails a
        response.
        rules: `Rules`; None leaves all to the RFCs.
        settings: `CacheSettings`.

    `counters` has what happened, by name.

    """

    def __init__(
        self,
        app: App,
        client: AsyncClient,
        rules: RuleSet | None = None,
        settings: CacheSettings = DEFAULTS,
    ) -> None:
        """Wrap an application; the class documents the arguments."""
        self.app, self.client = app, client
        self.core = Core(rules, settings)
        self._flights = AsyncFlights()
        self._refreshing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def counters(self) -> Counter[str]:
        """Return what happened so far: hits, misses, stale, stored, store_errors and more."""
        return self.core.counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply a connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = request_of(scope)
        if request.method == "PURGE" and self.core.settings.purge_token is not None:
            await self._purge(request, send)
            return
        exchange = Exchange(self.core, self.client, request)
        past = exchange.bypass
        if past is not None:
            self.core.counters["bypassed"] += 1
            fetch = Fetch(past, request.fields, request.method)
            await self._fetch(exchange, fetch, scope, receive, send)
            return
        keys = exchange.look.first_keys()
        found: Found | Fetch | None
        try:
            found = exchange.quick(keys, await self.client.get_many(keys))
        except GlasscacheError:
            found = None
        if found is None:
            found = await self._slow(exchange)
        if isinstance(found, Found):
            if found.refresh is not None:
                self._refresh(exchange, found.refresh, scope)
            await self._send_found(exchange, found, scope, receive, send)
        else:
            await self._fetch(exchange, found, scope, receive, send)

    async def _slow(self, exchange: Exchange) -> Found | Fetch:
        """Decide what is not a plain hit; of the requests for a key one does, and the others wait for it."""
        look, flights = exchange.look, self._flights
        if look.target in self._refreshing and (stale := exchange.stale()) is not None:
            return stale
        left, loop = self.core.wait, asyncio.get_running_loop()
        while exchange.collapses:
            key = look.target
            if flights.begin(key):
                is_leased = False
                try:
                    action = await drive_async(exchange.open())
                    is_leased = isinstance(action, Fetch) and action.is_leased
                    return action
                finally:
                    if not is_leased:
                        flights.end(key)
            begun = loop.time()
            await flights.wait(key, left)
            left -= loop.time() - begun
            if left <= 0:
                return exchange.waited_too_long()
            look.reset()
            keys = look.first_keys()
            try:
                found = exchange.quick(keys, await self.client.get_many(keys))
            except GlasscacheError:
                break
            if found is not None:
                return found
        return await drive_async(exchange.open())

    # ---- from the application -----------------------------------------------------------------------

    async def _fetch(
        self, exchange: Exchange, fetch: Fetch, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the application reply, and store what may be stored."""
        relay = _Relay(self, exchange, fetch, send)
        key = exchange.look.target if fetch.is_leased else None
        if fetch.fields is not exchange.request.fields or fetch.may_store:
            scope = _scope_for(scope, fetch)
        try:
            try:
                await self.app(scope, receive, relay.send)
            except Exception:
                head = None if relay.has_begun else exchange.failed(fetch)
                if head is None or head.found is None:
                    raise
                relay.found, relay.after = head.found, head.after
            await relay.end()
            if relay.found is not None:
                await self._send_found(exchange, relay.found, scope, receive, send)
            if relay.after is not None:
                await drive_async(relay.after)
        except BaseException:
            # Cancelled or failed: the lease goes back even though this task may not wait.
            self._spawn(_quietly(relay.abandon()))
            raise
        finally:
            if key is not None:
                self._flights.end(key)

    async def _send_found(
        self, exchange: Exchange, found: Found, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send a stored response."""
        reply, entry = found.reply, found.reply.entry
        window = found.pieces
        if entry is not None and entry.write_id and reply.has_body and window is None:
            first = reply.start // PIECE_BYTES
            window = await drive_async(exchange.pieces(entry, first))
            if window is None:  # the body is lost although its head was validated
                await self.app(
                    _scope_for(scope, Fetch(b"", exchange.request.fields, "GET")), receive, send
                )
                return
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.fields})
        if entry is None or not reply.has_body:
            await send({"type": "http.response.body", "body": b""})
        elif not entry.write_id:
            whole = reply.start == 0 and reply.stop == entry.length
            body = entry.body if whole else entry.body[reply.start : reply.stop]
            await send({"type": "http.response.body", "body": body})
        else:
            await self._send_pieces(exchange, found, window or [], send)

    async def _send_pieces(
        self, exchange: Exchange, found: Found, window: list[bytes], send: Send
    ) -> None:
        reply, entry = found.reply, found.reply.entry
        assert entry is not None  # noqa: S101 - a body has an entry
        index, at = reply.start // PIECE_BYTES, reply.start
        while at < reply.stop:
            for piece in window:
                begin = at - index * PIECE_BYTES
                part = piece[begin : min(len(piece), reply.stop - index * PIECE_BYTES)]
                at, index = at + len(part), index + 1
                more = at < reply.stop
                await send({"type": "http.response.body", "body": part, "more_body": more})
                if not more:
                    return
            following = await drive_async(exchange.pieces(entry, index))
            if following is None:
                self.core.counters["lost_pieces"] += 1
                with contextlib.suppress(GlasscacheError):
                    await self.client.delete(exchange.look.target)
                # The server closes the connection, by which the client sees that the body is not whole.
                raise RuntimeError(f"a piece of the stored body of {exchange.url!r} was evicted")
            window = following

    # ---- in the background ----------------------------------------------------------------------------

    def _refresh(self, exchange: Exchange, fetch: Fetch, scope: Scope) -> None:
        """Fetch a stale response again while it is being sent."""
        target = exchange.look.target
        self._refreshing.add(target)
        task = self._spawn(self._run_refresh(exchange, fetch, scope))
        task.add_done_callback(lambda _: self._refreshing.discard(target))

    async def _run_refresh(self, exchange: Exchange, fetch: Fetch, scope: Scope) -> None:
        relay = _Relay(self, exchange, fetch, _discard)
        try:
            await self.app(_scope_for(scope, fetch), _nothing_to_receive(), relay.send)
            await relay.end()
            if relay.after is not None:
                await drive_async(relay.after)
        except Exception:  # noqa: BLE001 - the application's own logging has seen it
            self.core.counters["refreshes_failed"] += 1
            await relay.abandon()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self) -> None:
        """Wait until everything in the background is done; for tests and for the end of a process."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _purge(self, request: Request, send: Send) -> None:
        from glasscache.web.purge import purge_by_request  # noqa: PLC0415 - purges are few

        status, body = await drive_async(
            purge_by_request(self.core, self.client, request, self.core.settings.purge_token or "")
        )
        fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})


class _Relay:
    """Passes the application's messages on, and keeps what is to be stored."""

    __slots__ = (
        "_exchange",
        "_fetch",
        "_is_over",
        "_requested_at",
        "_send",
        "_writer",
        "after",
        "found",
        "has_begun",
    )

    def __init__(self, cache: CacheASGI, exchange: Exchange, fetch: Fetch, send: Send) -> None:
        self._exchange, self._fetch, self._send = exchange, fetch, send
        self._requested_at = cache.core.clock()
        self._writer: Writer | None = None
        self.found: Found | None = None
        self.after: Any = None
        self.has_begun = False
        self._is_over = False

    async def send(self, message: Message) -> None:
        """Take a message of the application."""
        kind = message["type"]
        if kind == "http.response.start":
            await self._start(message)
        elif kind != "http.response.body":
            await self._send(message)
        elif self.found is None:
            await self._body(message)

    async def _start(self, message: Message) -> None:
        self.has_begun = True
        fields = [(bytes(k).lower(), bytes(v)) for k, v in message.get("headers", ())]
        head = self._exchange.receive(self._fetch, message["status"], fields, self._requested_at)
        if head.found is not None:
            self.found, self.after = head.found, head.after
            return
        is_invalidation = self._fetch.why == b"method"
        if head.after is not None and is_invalidation:
            await drive_async(head.after)
        self._writer = None if message.get("trailers") else head.writer
        if head.status == 304 and head.writer is not None:  # noqa: PLR2004 - the client has it already
            self._send = _HeadOnly(self._send)
        await self._send({**message, "status": head.status, "headers": head.fields})
        if head.after is not None and not is_invalidation:
            await drive_async(head.after)
        if self._writer is None and head.writer is not None:
            await drive_async(head.writer.abandon("trailers"))

    async def _body(self, message: Message) -> None:
        await self._send(message)
        writer = self._writer
        if writer is None:
            return
        if writer.feed(message.get("body", b"")):
            await drive_async(writer.flush())
        if not message.get("more_body", False):
            self._is_over = True
            await drive_async(writer.finish())

    async def end(self) -> None:
        """Note that the application has returned."""
        if not self._is_over:
            await self.abandon()

    async def abandon(self) -> None:
        """Store nothing that is not complete, and give the lease back."""
        if self.found is not None or self._is_over:
            return
        self._is_over = True
        if self._writer is not None:
            await drive_async(self._writer.abandon())
        else:
            await drive_async(self._exchange.lease(self._fetch).give_up())


class _HeadOnly:
    """Sends a 304 in place of a whole response: its head, and an empty body."""

    def __init__(self, send: Send) -> None:
        self._send, self._is_over = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            await self._send(message)
        elif not self._is_over:
            self._is_over = True
            await self._send({"type": "http.response.body", "body": b""})


def request_of(scope: Scope) -> Request:
    """Return the head of an ASGI request."""
    raw = scope.get("raw_path")
    path = raw or quote(scope["path"], safe="/%:@!$&'()*+,;=-._~").encode()
    return Request(
        scope["method"],
        scope.get("scheme", "http"),
        path,
        scope.get("query_string", b""),
        scope["headers"],
    )


def _scope_for(scope: Scope, fetch: Fetch) -> Scope:
    made = {**scope, "headers": fetch.fields, "method": fetch.method}
    extensions = scope.get("extensions")
    if extensions and not _SENT_PAST_US.isdisjoint(extensions):
        made["extensions"] = {k: v for k, v in extensions.items() if k not in _SENT_PAST_US}
    return made


async def _discard(message: Message) -> None:
    """Send nothing: the response is for the store only."""


def _nothing_to_receive() -> Receive:
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive


async def _quietly(work: Awaitable[None]) -> None:
    with contextlib.suppress(GlasscacheError):
        await work
