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
from glasscache.web._canonical import canonical_path
from glasscache.web._exchange import Exchange, StoredReply
from glasscache.web._lease import Fetch
from glasscache.web._message import Request
from glasscache.web._response import ResponseHandler
from glasscache.web._run_steps import run_steps_async
from glasscache.web._shared_state import CHUNK_BYTES, DEFAULTS, SharedState
from glasscache.web._single_flight import AsyncSingleFlight

if TYPE_CHECKING:
    from collections import Counter

    from glasscache.aio import AsyncClient
    from glasscache.web._shared_state import RuleSet
    from glasscache.web._writer import Writer
    from glasscache.web.settings import CacheSettings

__all__ = ["CacheASGI"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_UNOBSERVED_EXTENSIONS: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
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
        self.shared = SharedState(rules, settings)
        self._single_flight = AsyncSingleFlight()
        self._refreshing_keys: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def counters(self) -> Counter[str]:
        """Return what happened so far: hits, misses, stale, stored, store_errors and more."""
        return self.shared.counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply to a request, or pass another kind of connection on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = request_of(scope)
        if request.method == "PURGE" and self.shared.cache_settings.purge_token is not None:
            await self._purge(request, send)
            return
        exchange = Exchange(self.shared, self.client, request)
        bypass_reason = exchange.bypass_reason
        if bypass_reason is not None:
            self.shared.counters["bypassed"] += 1
            fetch = Fetch(bypass_reason, request.fields, request.method, is_as_sent=True)
            await self._run_fetch(exchange, fetch, scope, receive, send)
            return
        keys = exchange.lookup.first_keys()
        action: StoredReply | Fetch | None
        try:
            action = exchange.fresh_hit(keys, await self.client.get_many(keys))
        except GlasscacheError:
            action = None
        if action is None:
            action = await self._decide_collapsed(exchange)
        if isinstance(action, Fetch):
            await self._run_fetch(exchange, action, scope, receive, send)
            return
        if action.refresh is not None:
            self._start_refresh(exchange, action.refresh, scope)
        await self._send_stored(exchange, action, scope, receive, send)

    async def _decide_collapsed(self, exchange: Exchange) -> StoredReply | Fetch:
        """Decide what is not a plain hit; of the requests for a key one does, and the others wait for it."""
        lookup, single_flight = exchange.lookup, self._single_flight
        if (
            lookup.response_key in self._refreshing_keys
            and (stale_reply := exchange.stale_reply()) is not None
        ):
            return stale_reply
        remaining_s, loop = self.shared.wait_s, asyncio.get_running_loop()
        while exchange.shares_fetch:
            key = lookup.response_key
            if single_flight.begin(key):
                is_leased = False
                try:
                    action = await run_steps_async(exchange.decide())
                    is_leased = isinstance(action, Fetch) and action.is_leased
                    return action
                finally:
                    if not is_leased:
                        single_flight.end(key)
            began_at = loop.time()
            await single_flight.wait(key, remaining_s)
            remaining_s -= loop.time() - began_at
            if remaining_s <= 0:
                return exchange.forward_after_wait()
            lookup.reset()
            keys = lookup.first_keys()
            try:
                hit = exchange.fresh_hit(keys, await self.client.get_many(keys))
            except GlasscacheError:
                break
            if hit is not None:
                return hit
        return await run_steps_async(exchange.decide())

    # ---- from the application -----------------------------------------------------------------------

    async def _run_fetch(
        self, exchange: Exchange, fetch: Fetch, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the application reply, and store what may be stored."""
        relay = _Relay(self, exchange, fetch, send)
        key = exchange.lookup.response_key if fetch.is_leased else None
        app_scope = _scope_for(scope, fetch, exchange.request)
        try:
            try:
                await self.app(app_scope, receive, relay.send)
            except Exception:
                head = (
                    None
                    if relay.has_begun
                    else ResponseHandler(exchange, fetch).receive_exception()
                )
                if head is None or head.stored_reply is None:
                    raise
                relay.stored_reply, relay.follow_up_steps = (
                    head.stored_reply,
                    head.follow_up_steps,
                )
            await relay.end()
            if relay.stored_reply is not None:
                await self._send_stored(exchange, relay.stored_reply, scope, receive, send)
            if relay.follow_up_steps is not None:
                await run_steps_async(relay.follow_up_steps)
        except BaseException:
            # Cancelled or failed: the lease goes back even though this task may not wait.
            self._spawn(_ignore_store_errors(relay.abandon()))
            raise
        finally:
            if key is not None:
                self._single_flight.end(key)

    async def _send_stored(
        self,
        exchange: Exchange,
        stored_reply: StoredReply,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Send a stored response."""
        reply, entry = stored_reply.reply, stored_reply.reply.entry
        chunks = stored_reply.chunks
        if entry is not None and entry.write_id and reply.has_body and chunks is None:
            first_chunk_index = reply.start // CHUNK_BYTES
            chunks = await run_steps_async(exchange.read_chunks(entry, first_chunk_index))
            if chunks is None:  # the body is lost although its head was validated
                fetch = Fetch(b"", exchange.request.fields, "GET")
                await self.app(_scope_for(scope, fetch, exchange.request), receive, send)
                return
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.fields})
        if entry is None or not reply.has_body:
            await send({"type": "http.response.body", "body": b""})
        elif not entry.write_id:
            is_whole = reply.start == 0 and reply.stop == entry.length
            body = entry.body if is_whole else entry.body[reply.start : reply.stop]
            await send({"type": "http.response.body", "body": body})
        else:
            await self._send_chunks(exchange, stored_reply, chunks or [], send)

    async def _send_chunks(
        self, exchange: Exchange, stored_reply: StoredReply, chunks: list[bytes], send: Send
    ) -> None:
        reply, entry = stored_reply.reply, stored_reply.reply.entry
        assert entry is not None  # noqa: S101 - a body has an entry
        chunk_index, position = reply.start // CHUNK_BYTES, reply.start
        while position < reply.stop:
            for chunk in chunks:
                chunk_start = position - chunk_index * CHUNK_BYTES
                body_part = chunk[
                    chunk_start : min(len(chunk), reply.stop - chunk_index * CHUNK_BYTES)
                ]
                position, chunk_index = position + len(body_part), chunk_index + 1
                has_more = position < reply.stop
                await send({"type": "http.response.body", "body": body_part, "more_body": has_more})
                if not has_more:
                    return
            next_chunks = await run_steps_async(exchange.read_chunks(entry, chunk_index))
            if next_chunks is None:
                raise await run_steps_async(exchange.end_incomplete())
            chunks = next_chunks

    # ---- in the background ----------------------------------------------------------------------------

    def _start_refresh(self, exchange: Exchange, fetch: Fetch, scope: Scope) -> None:
        """Fetch a stale response again while it is being sent."""
        response_key = exchange.lookup.response_key
        self._refreshing_keys.add(response_key)
        task = self._spawn(self._run_refresh(exchange, fetch, scope))
        task.add_done_callback(lambda _: self._refreshing_keys.discard(response_key))

    async def _run_refresh(self, exchange: Exchange, fetch: Fetch, scope: Scope) -> None:
        relay = _Relay(self, exchange, fetch, _discard)
        try:
            app_scope = _scope_for(scope, fetch, exchange.request)
            await self.app(app_scope, _receive_nothing(), relay.send)
            await relay.end()
            if relay.follow_up_steps is not None:
                await run_steps_async(relay.follow_up_steps)
        except Exception:  # noqa: BLE001 - the application's own logging has seen it
            self.shared.counters["refreshes_failed"] += 1
            await relay.abandon()

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self) -> None:
        """Wait until everything in the background is done; for tests and for the end of a process."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _purge(self, request: Request, send: Send) -> None:
        from glasscache.web.purge import purge_by_request  # noqa: PLC0415 - purges are few

        status, body = await run_steps_async(
            purge_by_request(
                self.shared, self.client, request, self.shared.cache_settings.purge_token or ""
            )
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
        "follow_up_steps",
        "has_begun",
        "stored_reply",
    )

    def __init__(self, cache: CacheASGI, exchange: Exchange, fetch: Fetch, send: Send) -> None:
        self._exchange, self._fetch, self._send = exchange, fetch, send
        self._requested_at = cache.shared.clock()
        self._writer: Writer | None = None
        self.stored_reply: StoredReply | None = None
        self.follow_up_steps: Any = None
        self.has_begun = False
        self._is_over = False

    async def send(self, message: Message) -> None:
        """Take a message of the application."""
        message_type = message["type"]
        if message_type == "http.response.start":
            await self._handle_start(message)
        elif message_type != "http.response.body":
            await self._send(message)
        elif self.stored_reply is None:
            await self._handle_body(message)

    async def _handle_start(self, message: Message) -> None:
        self.has_begun = True
        fields = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
        head = ResponseHandler(self._exchange, self._fetch).receive(
            message["status"], fields, self._requested_at
        )
        if head.stored_reply is not None:
            self.stored_reply, self.follow_up_steps = head.stored_reply, head.follow_up_steps
            return
        is_invalidation = self._fetch.forward_reason == b"method"
        if head.follow_up_steps is not None and is_invalidation:
            await run_steps_async(head.follow_up_steps)
        self._writer = None if message.get("trailers") else head.writer
        if head.status == 304 and head.writer is not None:  # noqa: PLR2004 - the client has it already
            self._send = _HeadOnly(self._send)
        await self._send({**message, "status": head.status, "headers": head.fields})
        if head.follow_up_steps is not None and not is_invalidation:
            await run_steps_async(head.follow_up_steps)
        if self._writer is None and head.writer is not None:
            await run_steps_async(head.writer.abandon("trailers"))

    async def _handle_body(self, message: Message) -> None:
        await self._send(message)
        writer = self._writer
        if writer is None:
            return
        if writer.feed(message.get("body", b"")):
            await run_steps_async(writer.flush())
        if not message.get("more_body", False):
            self._is_over = True
            await run_steps_async(writer.finish())

    async def end(self) -> None:
        """Note that the application has returned."""
        if not self._is_over:
            await self.abandon()

    async def abandon(self) -> None:
        """Store nothing that is not complete, and give the lease back."""
        if self.stored_reply is not None or self._is_over:
            return
        self._is_over = True
        if self._writer is not None:
            await run_steps_async(self._writer.abandon())
        else:
            await run_steps_async(self._exchange.lease_of(self._fetch).release())


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
    """Return the head of an ASGI request.

    The application reads `path`; where the server's `raw_path` says something else, or has a slash that is
    encoded, the request is ambiguous.
    """
    sent_path: bytes | None = scope.get("raw_path")
    path_text: str = scope["path"]
    path = quote(path_text, safe="/").encode() if sent_path is None else sent_path
    request = Request(
        scope["method"], scope.get("scheme", "http"), path, scope.get("query_string", b""),
        scope["headers"],
    )  # fmt: skip
    if sent_path and not request.ambiguity and not _is_same_path(request, sent_path, scope):
        request.ambiguity = "ambiguous-path"
    request.is_identified = _is_identified(scope)
    return request


def _is_same_path(request: Request, sent_path: bytes, scope: Scope) -> bool:
    """Whether the application reads in `path` what the key is made of."""
    if b"%" in sent_path and b"%2f" in sent_path.lower():
        return False
    path_text: str = scope["path"]
    return request.path_text in {path_text, scope.get("root_path", "") + path_text}


def _mount_length(scope: Scope) -> int:
    """Return the characters of the path that the application does not get in `path`, but in `root_path`."""
    sent_path = scope.get("raw_path")
    if not sent_path or canonical_path(sent_path)[1] == scope["path"]:
        return 0
    return len(scope.get("root_path", ""))


def _is_identified(scope: Scope) -> bool:
    """Whether a middleware outside this one, or the server, has found out who the client is."""
    user, tls = scope.get("user"), (scope.get("extensions") or {}).get("tls") or {}
    is_user = user is not None and bool(getattr(user, "is_authenticated", True))
    return is_user or bool(scope.get("session") or tls.get("client_cert_name"))


def _scope_for(scope: Scope, fetch: Fetch, request: Request) -> Scope:
    """Return the scope of a fetch: of the canonical request, unless the fetch passes it on as it was sent."""
    if fetch.is_as_sent:
        return scope
    fetch_scope = {**scope, "headers": fetch.fields, "method": fetch.method}
    if request.path_text != scope["path"]:
        fetch_scope["path"] = request.path_text[_mount_length(scope) :]
    if "raw_path" in scope:
        fetch_scope["raw_path"] = request.path
    fetch_scope["query_string"] = request.query
    extensions = scope.get("extensions")
    if fetch.fields is request.fields and not fetch.may_store:
        return fetch_scope
    if extensions and not _UNOBSERVED_EXTENSIONS.isdisjoint(extensions):
        fetch_scope["extensions"] = {
            name: value for name, value in extensions.items() if name not in _UNOBSERVED_EXTENSIONS
        }
    return fetch_scope


async def _discard(message: Message) -> None:
    """Send nothing: the response is for the store only."""


def _receive_nothing() -> Receive:
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive


async def _ignore_store_errors(operation: Awaitable[None]) -> None:
    with contextlib.suppress(GlasscacheError):
        await operation
