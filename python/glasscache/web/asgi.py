"""An HTTP cache as ASGI middleware: responses stream while they are stored, one fetch a key.

Everything that is decided is decided in `_exchange`; this file moves messages. Websockets, lifespans and
responses that may not be stored pass through message by message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from glasscache._chunks import CHUNK_BYTES
from glasscache._steps import settle_background_tasks
from glasscache.errors import GlasscacheError
from glasscache.web._canonical import canonical_path
from glasscache.web._exchange import Exchange, StoredReply
from glasscache.web._kept_hits import FirstRead
from glasscache.web._lease import Fetch
from glasscache.web._message import Request, decision_key_of
from glasscache.web._relay import Outbox, Relay, Spool
from glasscache.web._run_steps import run_steps_async
from glasscache.web._shared_state import DEFAULTS, SharedState
from glasscache.web._single_flight import AsyncSingleFlight

if TYPE_CHECKING:
    from collections import Counter

    from glasscache.aio import AsyncClient
    from glasscache.web._fields import Fields
    from glasscache.web._shared_state import RuleSet
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
        self._single_flight, self._refreshes = AsyncSingleFlight(), AsyncSingleFlight()
        self._spool = Spool(settings.max_bytes)
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
        decision_key = _decision_key_of(scope)
        kept_hit = self.shared.find_kept_hit(decision_key, scope["headers"])
        if kept_hit is None:
            await self._reply(scope, receive, send, decision_key, None)
            return
        began_at, keys = time.monotonic(), kept_hit.keys
        try:
            values = await self.client.get_many(keys)
        except GlasscacheError:
            keys, values = [], {}
        fields = kept_hit.fields_at(values, self.shared.clock())
        if fields is None:
            await self._reply(scope, receive, send, decision_key, FirstRead(began_at, keys, values))
            return
        self.shared.counters["hits"] += 1
        entry = kept_hit.entry
        await send({"type": "http.response.start", "status": entry.status, "headers": fields})
        await send({"type": "http.response.body", "body": entry.body})

    async def _reply(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        decision_key: bytes | None,
        first_read: FirstRead | None,
    ) -> None:
        """Decide about a request, of which the store may have been read already, and reply."""
        request = request_of(scope)
        if request.method == "PURGE" and self.shared.cache_settings.purge_token is not None:
            await self._purge(request, send)
            return
        began_at = first_read and first_read.began_at
        exchange = Exchange(self.shared, self.client, request, decision_key, began_at)
        bypass_reason = exchange.bypass_reason
        if bypass_reason is not None:
            self.shared.counters["bypassed"] += 1
            fetch = Fetch(bypass_reason, request.fields, request.method, is_as_sent=True)
            await self._run_fetch(exchange, fetch, scope, receive, send)
            return
        action: StoredReply | Fetch | None
        try:
            if first_read is None:
                keys = exchange.lookup.first_keys()
                values = await self.client.get_many(keys)
            else:
                _, keys, values = first_read
            action = exchange.fresh_hit(keys, values)
        except GlasscacheError:
            action = None
        if action is None:
            action = await run_steps_async(
                exchange.decide_in_flight(self._single_flight, self._refreshes)
            )
        if isinstance(action, Fetch):
            await self._run_fetch(exchange, action, scope, receive, send)
            return
        if action.refresh is not None:
            self._start_refresh(exchange, action.refresh, scope)
        await self._send_stored(exchange, action, scope, receive, send)

    # ---- from the application -----------------------------------------------------------------------

    async def _run_fetch(
        self, exchange: Exchange, fetch: Fetch, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the application reply, and store what may be stored."""

        async def send_stored(stored_reply: StoredReply) -> None:
            await self._send_stored(exchange, stored_reply, scope, receive, send)

        relay = Relay(exchange, fetch, Outbox(send, self._spool), send_stored)
        app_scope = _scope_for(scope, fetch, exchange.request)
        app_receive = receive if fetch.is_as_sent else relay.watch_request(receive)
        try:
            try:
                await self.app(app_scope, app_receive, relay.send)
            except Exception as error:  # noqa: BLE001 - raised unless a stored response replaces it
                await relay.fail(error)
            else:
                await relay.end()
        finally:
            relay.abandon()
        if relay.is_retried:
            await self._run_fetch(
                exchange, exchange.forward_as_sent(), scope, _receive_nothing(), send
            )

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
        stored_chunks = self.shared.chunks(entry.write_id, entry.length)
        chunk_index, position = reply.start // CHUNK_BYTES, reply.start
        while True:
            for body_part in stored_chunks.slices(chunks, chunk_index, reply.start, reply.stop):
                position += len(body_part)
                has_more = position < reply.stop
                await send({"type": "http.response.body", "body": body_part, "more_body": has_more})
            if position >= reply.stop:
                return
            chunk_index += len(chunks)
            chunks = await run_steps_async(exchange.read_more_chunks(entry, chunk_index))

    # ---- in the background ----------------------------------------------------------------------------

    def _start_refresh(self, exchange: Exchange, fetch: Fetch, scope: Scope) -> None:
        """Fetch a stale response again while it is being sent."""
        fetch.flight = self._refreshes.begin(exchange.lookup.response_key, self.shared.lease_s)
        task = asyncio.ensure_future(self._run_refresh(exchange, fetch, scope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_refresh(self, exchange: Exchange, fetch: Fetch, scope: Scope) -> None:
        relay = Relay(exchange, fetch, Outbox(_discard, self._spool), _discard)
        try:
            app_scope = _scope_for(scope, fetch, exchange.request)
            await self.app(app_scope, _receive_nothing(), relay.send)
            await relay.end()
        except Exception:  # noqa: BLE001 - the application's own logging has seen it
            self.shared.counters["refreshes_failed"] += 1
        finally:
            relay.abandon()

    async def settle(self) -> None:
        """Wait until everything in the background is done; for tests and for the end of a process."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await settle_background_tasks()

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


def request_of(scope: Scope) -> Request:
    """Return the head of an ASGI request.

    The application reads `path`; where the server's `raw_path` says something else, or has a slash that is
    encoded, the request is ambiguous.
    """
    sent_path: bytes | None = scope.get("raw_path") or None
    path_text: str = scope["path"]
    path = sent_path or quote(path_text, safe="/", errors="surrogatepass").encode()
    request = Request(
        scope["method"], scope.get("scheme", "http"), path, scope.get("query_string", b""),
        scope["headers"],
    )  # fmt: skip
    is_plain = path_text == request.path_text and (sent_path is None or b"%" not in sent_path)
    if sent_path and not is_plain and not _is_same_path(request, sent_path, scope):
        request.ambiguity = request.ambiguity or "ambiguous-path"
    if scope.get("root_path") or not request.host:
        server = scope.get("server") or ("", 0)
        mount = scope.get("root_path", "").encode("utf-8", "surrogatepass")
        request.set_surroundings(mount, f"{server[0]}:{server[1]}".encode())
    if "user" in scope or "session" in scope or scope.get("extensions"):
        request.is_identified = _is_identified(scope)
    return request


def _decision_key_of(scope: Scope) -> bytes | None:
    """Return what a decision about an ASGI request is made from; None if more than that counts."""
    fields: Fields = scope["headers"]
    sent_path: bytes | None = scope.get("raw_path")
    if (
        scope["method"] != "GET"
        or not sent_path
        or type(fields) is not list
        or scope.get("root_path")
        or (
            ("user" in scope or "session" in scope or scope.get("extensions"))
            and _is_identified(scope)
        )
    ):
        return None
    return decision_key_of(
        scope.get("scheme", "http"),
        scope["path"],
        sent_path,
        scope.get("query_string", b""),
        fields,
    )


def _is_same_path(request: Request, sent_path: bytes, scope: Scope) -> bool:
    """Whether the application reads in `path` what the key is made of."""
    if b"%2f" in sent_path.lower():
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
    user: Any = scope.get("user")
    extensions: dict[str, Any] = scope.get("extensions") or {}
    tls: dict[str, Any] = extensions.get("tls") or {}
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


async def _discard(message: Any) -> None:
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
