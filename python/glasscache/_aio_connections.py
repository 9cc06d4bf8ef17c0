"""The connections of the asyncio client: made when a call needs one, and probed while their server is down.

A connection on which a call missed its deadline takes no more requests, and the next call makes a new one.
The engine decides that, and the native `Connection` closes it once no call on it waits any more: see
`check_deadlines` in crates/native/src/aio/protocol.rs.

`ends_at` is a moment on the clock of `time.monotonic`, `timeout_s` a duration.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from glasscache import _connecting, _native
from glasscache.errors import DeadlineExceeded, StaleConnection
from glasscache.tls import check_tls_servers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

__all__ = ["ConnectingClient"]


class ConnectingClient(_native.AsyncClient):
    """A client that makes its connections: one per server and event loop."""

    _connect_tasks: dict[tuple[int, asyncio.AbstractEventLoop], asyncio.Task[None]]
    _probe_tasks: dict[int, asyncio.Task[None]]
    _close_tasks: set[asyncio.Task[None]]
    _last_connected: dict[int, str]
    _timeout: float
    _tls: tuple[ssl.SSLContext, str | None] | None

    def _init_connections(
        self, timeout: float, tls: tuple[ssl.SSLContext, str | None] | None
    ) -> None:
        """Begin without connections; called once, when the client is made."""
        self._connect_tasks, self._probe_tasks, self._close_tasks, self._last_connected = (
            {},
            {},
            set(),
            {},
        )
        self._timeout, self._tls = timeout, tls

    def _use_servers(self, addresses: list[str]) -> None:
        """Change the servers; connections to those that left are closed when idle, or after the timeout."""
        if self._tls is not None:
            check_tls_servers(addresses)
        loop = asyncio.get_running_loop()
        for slot, connection in self._change_servers(addresses).items():
            self._connect_tasks.pop((slot, loop), None)
            probe_task = self._probe_tasks.pop(slot, None)
            if probe_task is not None:
                probe_task.cancel()
            self._mark_up(slot)  # if it is added again, its first calls find out whether it is up
            if connection is not None:
                ends_at = time.monotonic() + self._timeout
                close_task = loop.create_task(_close_when_idle(connection, ends_at))
                self._close_tasks.add(close_task)
                close_task.add_done_callback(self._close_tasks.discard)

    async def _close_connections(self) -> None:
        """Close each connection when it is idle, or after the timeout; later calls raise."""
        loop = asyncio.get_running_loop()
        for task in [*self._probe_tasks.values(), *self._connect_tasks.values()]:
            if task.get_loop() is loop:
                task.cancel()
        ends_at = time.monotonic() + self._timeout
        for slot in range(self._slots_count):
            connection = self._remove_connection(slot)
            if connection is not None:
                await _close_when_idle(connection, ends_at)
        await asyncio.gather(*self._close_tasks, return_exceptions=True)
        self._mark_closed()

    async def _ensure_connected(self, slot: int, ends_at: float) -> None:
        """Return when the running loop has a connection to a server that takes requests."""
        if self._is_down(slot):
            self._start_probe(slot)
            raise self._unreachable_exception(slot, "it is down and being probed")
        connection = self._connection_of(slot)
        if connection is not None and connection.must_wait_to_write:
            # The peer takes no more bytes for now.
            while connection.must_wait_to_write and (remaining_s := ends_at - time.monotonic()) > 0:
                await asyncio.wait([connection.resumed()], timeout=remaining_s)
            if connection.is_usable:
                return
        await self._join_connect_task(slot, ends_at)

    async def _join_connect_task(self, slot: int, ends_at: float) -> None:
        """Wait for the task that connects to a server, which calls share; start one if none runs."""
        loop = asyncio.get_running_loop()
        while True:
            task = self._connect_tasks.get((slot, loop))
            if task is None or task.done():
                for done_slot, done_loop in [
                    slot_and_loop
                    for slot_and_loop, other_task in self._connect_tasks.items()
                    if other_task.done()
                ]:
                    self._connect_tasks.pop((done_slot, done_loop), None)
                task = loop.create_task(
                    self._add_connection(slot, max(ends_at - time.monotonic(), 0.001))
                )
                task.add_done_callback(_retrieve_result)
                self._connect_tasks[slot, loop] = task
            try:
                async with asyncio.timeout(max(ends_at - time.monotonic(), 0.0)):
                    return await asyncio.shield(task)
            except DeadlineExceeded:
                # That was the deadline of the call that started the task; this one may have time left.
                if time.monotonic() >= ends_at or self._is_down(slot):
                    raise
            except TimeoutError:
                raise self._connect_timeout_exception(slot) from None

    async def _add_connection(self, slot: int, timeout_s: float) -> None:
        """Make a connection and take it into use; the body of a connect task.

        A server that closes on a meta command is connected to once more, with classic text.
        """
        for presumes_classic in (False, True):
            loop = asyncio.get_running_loop()
            ready_future: asyncio.Future[None] = loop.create_future()
            # After a timeout nobody awaits it, and the loop may still connect and fail it.
            ready_future.add_done_callback(_retrieve_result)
            connection = self._new_connection(slot, ready_future, presumes_classic)
            try:
                await self._connect_and_wait_until_ready(slot, connection, ready_future, timeout_s)
            except StaleConnection:
                continue
            except TimeoutError:
                self._handle_connect_failure(slot, timeout_s)
                raise self._connect_timeout_exception(slot) from None
            except OSError as error:
                self._handle_connect_failure(slot, None)
                raise self._unreachable_exception(slot, str(error)) from None
            self._use_connection(slot, connection)
            return

    def _remove_connection(self, slot: int) -> _native.Connection | None:
        """Take the running loop's connection to a server out of use; return it."""
        return self._use_connection(slot, None)

    async def _connect_and_wait_until_ready(
        self,
        slot: int,
        connection: _native.Connection,
        ready_future: asyncio.Future[None],
        timeout_s: float,
    ) -> None:
        """Connect once and wait until the connection is ready for requests; close it if that fails."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._open_transport(slot, lambda: connection, timeout_s)
                await ready_future
        except BaseException:
            connection.close()  # also if the client was closed meanwhile: it will not be used
            raise

    async def _open_transport(
        self, slot: int, protocol_factory: Callable[[], Any], timeout_s: float
    ) -> asyncio.BaseTransport:
        """Open a socket to a server for any protocol, with TLS where that is set; return its transport."""
        loop = asyncio.get_running_loop()
        host, port = self._address_of(slot)
        if port is None:
            unix_transport, _ = await loop.create_unix_connection(protocol_factory, host)
            return unix_transport
        first_address = self._last_connected.get(slot)
        transport, self._last_connected[slot] = await _connecting.connect(
            protocol_factory, host, port, timeout_s, first_address, self._tls_arguments(host)
        )
        return transport

    def _tls_arguments(self, host: str) -> dict[str, Any]:
        """Return how a connection to this host is encrypted, as arguments of asyncio."""
        if self._tls is None:
            return {}
        context, server_name = self._tls
        return {"ssl": context, "server_hostname": server_name or host}

    def _handle_connect_failure(self, slot: int, timeout_s: float | None) -> None:
        self._mark_unreachable(slot, timeout_s)
        if self._is_down(slot):
            self._start_probe(slot)

    def _start_probe(self, slot: int) -> None:
        """Start a probe of a server that is down, unless one runs; the engine decides what is down."""
        loop = asyncio.get_running_loop()
        probe_task = self._probe_tasks.get(slot)
        if probe_task is None or probe_task.done() or probe_task.get_loop() is not loop:
            self._probe_tasks[slot] = loop.create_task(self._run_probe(slot))

    async def _run_probe(self, slot: int) -> None:
        """Probe a server that is down until it replies, so that no call has to wait for it."""
        while True:
            pause_s, timeout_s, request, expected_prefix = self._probe_of(slot)
            await asyncio.sleep(pause_s)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(timeout_s):
                    if await self._try_probe(slot, request, expected_prefix, timeout_s):
                        self._mark_up(slot)
                        return

    async def _try_probe(
        self, slot: int, request: bytes, expected_prefix: bytes, timeout_s: float
    ) -> bool:
        loop = asyncio.get_running_loop()
        reply_future: asyncio.Future[bool] = loop.create_future()
        transport = await self._open_transport(
            slot, lambda: _ProbeProtocol(reply_future, request, expected_prefix), timeout_s
        )
        try:
            return await reply_future
        finally:
            transport.close()


def _retrieve_result(task: asyncio.Future[None]) -> None:
    """Retrieve a result that perhaps nobody awaits: all calls that needed it may have been cancelled."""
    if not task.cancelled():
        task.exception()


async def _close_when_idle(connection: _native.Connection, ends_at: float) -> None:
    """Close a connection when it is idle, or at `ends_at`."""
    while not connection.is_idle and time.monotonic() < ends_at:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    with contextlib.suppress(RuntimeError):  # its loop is closed, and its socket with it
        connection.close()


class _ProbeProtocol(asyncio.Protocol):
    """Sends a harmless request and reports whether the reply begins as expected."""

    def __init__(
        self, reply_future: asyncio.Future[bool], request: bytes, expected_prefix: bytes
    ) -> None:
        self._reply_future, self._request = reply_future, request
        self._expected_prefix = expected_prefix

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - as the loop promises
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._reply_future.done():
            self._reply_future.set_result(data.startswith(self._expected_prefix))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the loop's signature
        if not self._reply_future.done():
            self._reply_future.set_result(False)
