"""Between an ASGI application and its client: what is stored is taken at the application's speed.

A client that reads slowly, or leaves, delays neither the application nor those that wait for what it makes:
messages of a response that is stored are sent by a task of their own, and wait in memory until then. All
clients of a middleware together may have `max_bytes` waiting; beyond, their applications wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from glasscache._steps import run_in_background
from glasscache.web._response import ResponseHandler
from glasscache.web._run_steps import run_steps_async

if TYPE_CHECKING:
    from glasscache.web._exchange import Exchange, StoredReply
    from glasscache.web._lease import Fetch
    from glasscache.web._writer import Writer

__all__ = ["Outbox", "Relay", "Spool"]

_log = logging.getLogger("glasscache.web")

_ROOM_POLL_S: Final = 0.05

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Spool:
    """How many bytes wait for the clients of a middleware, and how many may."""

    __slots__ = ("_bytes_max", "_lock", "_waiting_bytes")

    def __init__(self, bytes_max: int) -> None:
        """Begin with nothing that waits."""
        self._bytes_max, self._waiting_bytes, self._lock = bytes_max, 0, threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether more waits than may."""
        return self._waiting_bytes > self._bytes_max

    def add(self, message: Message) -> None:
        """Count a message that waits."""
        with self._lock:
            self._waiting_bytes += len(message.get("body", b""))

    def remove(self, message: Message) -> None:
        """Count a message that waits no more."""
        with self._lock:
            self._waiting_bytes -= len(message.get("body", b""))


class Outbox:
    """The messages to one client, in their order: sent at once, or by a task that nobody awaits."""

    __slots__ = ("_messages", "_send", "_sent", "_spool", "_task")

    def __init__(self, send: Send, spool: Spool) -> None:
        """Send by `send`, which may wait for the client."""
        self._send, self._spool = send, spool
        self._messages: deque[Message] = deque()
        self._task: asyncio.Task[None] | None = None
        self._sent = asyncio.Event()

    async def send(self, message: Message) -> None:
        """Send a message, and wait for the client."""
        if self._task is not None:
            await self.drain()
        await self._send(message)

    async def post(self, message: Message) -> float:
        """Send a message in the background; return the seconds for which there was no room for it.

        Raises:
            What sending an earlier message raised, as it would have without a background.

        """
        self._messages.append(message)
        self._spool.add(message)
        if self._task is None or self._task.done():
            if self._task is not None:
                self._task.result()
            self._task = asyncio.ensure_future(self._send_posted())
        if message.get("more_body"):
            await asyncio.sleep(0)  # an application that waits for nothing else lets it be sent
        return (await self._wait_for_room(self._task)) if self._spool.is_full else 0.0

    async def _wait_for_room(self, task: asyncio.Task[None]) -> float:
        began_at = time.monotonic()
        while self._spool.is_full and not task.done():
            self._sent.clear()
            with contextlib.suppress(TimeoutError):  # others make room, too
                async with asyncio.timeout(_ROOM_POLL_S):
                    await self._sent.wait()
        return time.monotonic() - began_at

    async def drain(self) -> None:
        """Wait until all messages were sent.

        Raises:
            What sending one of them raised.

        """
        if self._task is not None:
            await self._task

    def discard(self) -> None:
        """Send no more: the request is over."""
        task = self._task
        if task is not None and not task.cancel() and not task.cancelled():
            task.exception()  # retrieved: nobody is left to be told
        self._forget_messages()

    async def _send_posted(self) -> None:
        try:
            while self._messages:
                message = self._messages[0]
                await self._send(message)
                if self._messages:  # else discarded meanwhile
                    self._forget_message()
        finally:
            self._forget_messages()

    def _forget_messages(self) -> None:
        while self._messages:
            self._forget_message()

    def _forget_message(self) -> None:
        self._spool.remove(self._messages.popleft())
        self._sent.set()


class Relay:
    """Passes the application's messages on, and keeps what is to be stored."""

    __slots__ = (
        "_background",
        "_exchange",
        "_fetch",
        "_handler",
        "_has_head",
        "_has_request_body",
        "_is_head_only",
        "_outbox",
        "_reply_task",
        "_requested_at",
        "_send_stored",
        "_writer",
        "is_retried",
    )

    def __init__(
        self,
        exchange: Exchange,
        fetch: Fetch,
        outbox: Outbox,
        send_stored: Callable[[StoredReply], Awaitable[None]],
    ) -> None:
        """Bind to a fetch, which the application has not been sent yet."""
        self._exchange, self._fetch, self._outbox = exchange, fetch, outbox
        self._send_stored = send_stored
        self._handler = ResponseHandler(exchange, fetch)
        self._requested_at = exchange.shared.clock()
        self._writer: Writer | None = None
        self._reply_task: asyncio.Future[None] | None = None
        self._background: list[asyncio.Task[None]] = []
        self._has_head = self._is_head_only = self._has_request_body = False
        self.is_retried = False
        """Whether the application is to get the request again, as it was sent."""

    def watch_request(self, receive: Receive) -> Receive:
        """Return the messages of the client; a response to a request with a body is not stored.

        In HTTP/1 the head says that there is one, and the request bypasses the cache; in HTTP/2 it need not.
        """

        async def receive_and_look() -> Message:
            message = await receive()
            if message.get("body"):
                self._has_request_body = True
                self._abandon_writer("request-body")
            return message

        return receive_and_look

    async def send(self, message: Message) -> None:
        """Take a message of the application."""
        message_type = message["type"]
        if self._reply_task is not None or self.is_retried:
            return  # another response is sent in place of this one
        if message_type == "http.response.start":
            await self._handle_start(message)
        elif self._writer is None:
            await self._outbox.send(message)
        elif message_type == "http.response.body":
            await self._handle_body(self._writer, message)
        else:
            await self._outbox.post(message)

    async def _handle_start(self, message: Message) -> None:
        if self._has_head:
            self._abandon_writer()
            await self._outbox.send(message)  # which the server refuses
            return
        self._has_head = True
        fields = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
        head = self._handler.receive(message["status"], fields, self._requested_at)
        if head.stored_reply is not None:
            self._reply_stored(head.stored_reply, head.follow_up_steps)
            return
        self.is_retried = head.is_retried
        if self._fetch.forward_reason == b"method" and head.follow_up_steps is not None:
            await run_steps_async(head.follow_up_steps)  # before the client is notified
        elif head.follow_up_steps is not None:
            self._run_in_background(head.follow_up_steps)
        if head.is_retried:
            return
        self._writer = head.writer
        if message.get("trailers") or self._has_request_body:
            self._abandon_writer("trailers" if message.get("trailers") else "request-body")
        head_message = {**message, "status": head.status, "headers": head.fields}
        if self._writer is None:
            await self._outbox.send(head_message)
            return
        self._is_head_only = head.status == 304  # noqa: PLR2004 - the client has it already
        await self._outbox.post(head_message)
        if self._is_head_only:
            await self._outbox.post({"type": "http.response.body", "body": b""})

    async def _handle_body(self, writer: Writer, message: Message) -> None:
        if not self._is_head_only:
            writer.exclude_from_cost(await self._outbox.post(message))
        if writer.feed(message.get("body", b"")):
            await run_steps_async(writer.flush())
        if not message.get("more_body", False):
            self._writer = None
            self._run_in_background(writer.finish())
        elif writer.is_closed and not self._is_head_only:
            self._writer = None  # not stored after all: what follows is sent at the client's speed

    def _reply_stored(self, stored_reply: StoredReply, follow_up_steps: Any) -> None:
        """Send a stored response now, whatever the application does after its head."""
        if follow_up_steps is not None:
            self._run_in_background(follow_up_steps)
        self._reply_task = asyncio.ensure_future(self._send_stored(stored_reply))

    def _run_in_background(self, steps: Any) -> None:
        """Do what no client waits for, even if this one leaves meanwhile."""
        self._background.append(run_in_background(steps))

    async def end(self) -> None:
        """Wait until all is sent and stored, after the application has returned."""
        self._abandon_writer()
        if self._reply_task is not None:
            await self._reply_task
        await self._outbox.drain()
        for task in self._background:
            await asyncio.shield(task)

    async def fail(self, error: Exception) -> None:
        """Send what is sent in place of an exception of the application, or raise it."""
        if not self._has_head:
            head = self._handler.receive_exception()
            if head is not None and head.stored_reply is not None:
                self._reply_stored(head.stored_reply, head.follow_up_steps)
            else:
                self._run_in_background(self._handler.lease.mark_failed("application-failed"))
        if self._reply_task is None:
            with contextlib.suppress(Exception):  # the application's exception is the first
                await self.end()
            raise error
        _log.error("the application failed; a stored response was sent", exc_info=error)
        await self.end()

    def abandon(self) -> None:
        """End whatever has not ended: the request is over, in whichever way."""
        self._abandon_writer()
        if self._fetch.is_leased:
            self._run_in_background(self._handler.lease.release())
        elif not self._background:
            self._fetch.end_flight()
        self._outbox.discard()
        if self._reply_task is not None:
            self._reply_task.cancel()

    def _abandon_writer(self, reason: str = "abandoned") -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._run_in_background(writer.abandon(reason))
