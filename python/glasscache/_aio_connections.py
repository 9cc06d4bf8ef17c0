"""The connections of the asyncio client: made when a call needs one, and probed while their server is down.

A connection on which a call missed its deadline takes no more requests, and the next call makes a new one.
The engine decides that, and the native `Connection` closes it once no call on it waits any more: see
`check_deadlines` in crates/native/src/aio/protocol.rs.

`ends_at` is a moment on the clock of `time.monotonic`, `timeout_s` a duration.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from glasscache import _connecting, _native
from glasscache.errors import ClientClosed, DeadlineExceeded, StaleConnection
from glasscache.tls import check_tls_servers

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Generator

__all__ = ["ConnectingClient"]


class _Connections:
    """The connections of a client on one event loop, until their sockets are closed."""

    def __init__(self) -> None:
        self.by_slot: dict[int, _native.Connection] = {}
        self.sockets = _connecting.Sockets()
        self._replaced: list[_native.Connection] = []

    @property
    def are_idle(self) -> bool:
        """Whether no call waits on one and every quiet write is acknowledged."""
        connections = itertools.chain(self.by_slot.values(), self._replaced)
        return all(connection.is_idle for connection in connections)

    def use(self, slot: int, connection: _native.Connection) -> None:
        """Send requests to a server by this connection; one before it is closed when its calls have ended."""
        if slot in self.by_slot:
            self._replaced.append(self.by_slot[slot])
        self.by_slot[slot] = connection
        for idle_connection in [replaced for replaced in self._replaced if replaced.is_idle]:
            self._replaced.remove(idle_connection)
            idle_connection.abort()

    async def close(self, ends_at: float) -> None:
        """Close each when it is idle, or at `ends_at` or when this is cancelled, and then the sockets.

        A client that is dropped with the last task of a loop is closed at once: the loop may end before
        anything else happens on it.
        """
        is_last_task = len(asyncio.all_tasks()) == 1
        try:
            while not (self.are_idle or is_last_task or time.monotonic() >= ends_at):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        finally:
            for connection in (*self.by_slot.values(), *self._replaced):
                connection.close()
            self.by_slot.clear()
            self._replaced.clear()
            self.sockets.close()


class _LoopState:
    """What a client has on one event loop: its connections and tasks, which end with the loop.

    The loop is not referred to, except by tasks that run on it. `asyncio.run` and its like finish the
    asynchronous generators of their loop before they close it: the one in `_end` closes the connections then,
    and also where the client is dropped without having been closed.
    """

    def __init__(self, client: ConnectingClient, timeout: float) -> None:
        self.connections = _Connections()
        self.connect_tasks: dict[int, asyncio.Task[None]] = {}
        self.probe_tasks: dict[int, asyncio.Task[None]] = {}
        self.close_tasks: set[asyncio.Task[None]] = set()
        self.waiting_calls = 0
        """Calls that wait for a connection, or have just got one."""
        self._end = _end_with_loop(self.connections, weakref.ref(client), timeout)
        with contextlib.suppress(StopIteration):
            self._end.__anext__().send(None)  # as far as its `yield`; now the loop knows it

    @property
    def is_idle(self) -> bool:
        """Whether no call waits and every quiet write is acknowledged."""
        return not self.waiting_calls and self.connections.are_idle

    @contextlib.contextmanager
    def waiting(self) -> Generator[None]:
        """Count a call that waits for a connection."""
        self.waiting_calls += 1
        try:
            yield
        finally:
            self.waiting_calls -= 1

    async def end(self) -> None:
        """Close all; calls that still wait for a connection raise ClientClosed."""
        cancelled_tasks = [*self.probe_tasks.values(), *self.connect_tasks.values()]
        for task in cancelled_tasks:
            task.cancel()
        await asyncio.gather(*cancelled_tasks, *self.close_tasks, return_exceptions=True)
        with contextlib.suppress(RuntimeError):  # another call is closing them
            await self._end.aclose()
        for _ in range(2):  # a TLS session needs two iterations until its socket is closed
            await asyncio.sleep(0)


async def _end_with_loop(
    connections: _Connections,
    client_reference: weakref.ref[ConnectingClient],
    timeout_s: float,
) -> AsyncGenerator[None]:
    """Wait until the loop ends or the client is dropped, and close the connections."""
    process_id = os.getpid()
    try:
        yield
    finally:
        try:
            if process_id == os.getpid():  # in a child of a fork they are its parent's
                await connections.close(time.monotonic() + timeout_s)
        finally:
            client = client_reference()
            if client is not None:
                client._forget_running_loop()  # noqa: SLF001 - of this module  # pyright: ignore[reportPrivateUsage]


class ConnectingClient(_native.AsyncClient):
    """A client that makes its connections: one per server and event loop."""

    _loop_states: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState]
    _last_connected: dict[int, str]
    _timeout: float
    _tls: tuple[ssl.SSLContext, str | None] | None

    def _init_connections(
        self, timeout: float, tls: tuple[ssl.SSLContext, str | None] | None
    ) -> None:
        """Begin without connections; called once, when the client is made."""
        self._loop_states, self._last_connected = weakref.WeakKeyDictionary(), {}
        self._timeout, self._tls = timeout, tls

    def _loop_state(self) -> _LoopState:
        """Return what the client has on the running loop."""
        loop = asyncio.get_running_loop()
        state = self._loop_states.get(loop)
        if state is None:
            self._forget_closed_loops()
            state = self._loop_states[loop] = _LoopState(self, self._timeout)
        return state

    def _forget_closed_loops(self) -> None:
        """Drop what belongs to loops that were closed without an end of their asynchronous generators."""
        for reference in self._loop_states.keyrefs():
            loop = reference()
            if loop is not None and loop.is_closed():
                self._loop_states.pop(loop, None)
        self._drop_closed_loops()

    def _forget_running_loop(self) -> None:
        """Note that the running loop ends."""
        self._loop_states.pop(asyncio.get_running_loop(), None)
        self._drop_running_loop()

    def _use_servers(self, addresses: list[str]) -> None:
        """Change the servers; connections to those that left are closed when idle, or after the timeout."""
        if self._tls is not None:
            check_tls_servers(addresses)
        loop, state = asyncio.get_running_loop(), self._loop_state()
        for slot, connection in self._change_servers(addresses).items():
            state.connect_tasks.pop(slot, None)
            probe_task = state.probe_tasks.pop(slot, None)
            if probe_task is not None:
                probe_task.cancel()
            self._mark_up(slot)  # if it is added again, its first calls find out whether it is up
            state.connections.by_slot.pop(slot, None)
            if connection is not None:
                ends_at = time.monotonic() + self._timeout
                close_task = loop.create_task(_close_when_idle(connection, ends_at))
                state.close_tasks.add(close_task)
                close_task.add_done_callback(state.close_tasks.discard)

    async def _close_connections(self) -> None:
        """Close each connection when it is idle, or after the timeout; calls that wait raise ClientClosed."""
        state, ends_at = self._loop_state(), time.monotonic() + self._timeout
        while not state.is_idle and time.monotonic() < ends_at:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        self._mark_closed()
        await state.end()
        for loop, connection in self._take_other_connections():
            with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                loop.call_soon_threadsafe(connection.close)

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
        loop, connect_tasks = asyncio.get_running_loop(), self._loop_state().connect_tasks
        while True:
            task = connect_tasks.get(slot)
            if task is None or task.done():
                self._forget_closed_loops()
                task = loop.create_task(
                    self._add_connection(slot, max(ends_at - time.monotonic(), 0.001))
                )
                connect_tasks[slot] = task
                task.add_done_callback(partial(_end_task, connect_tasks, slot))
            try:
                async with asyncio.timeout(max(ends_at - time.monotonic(), 0.0)):
                    return await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.cancelled() and not _is_being_cancelled():
                    raise ClientClosed("the client was closed") from None
                raise
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
            self._loop_state().connections.use(slot, connection)
            return

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
            connection.abort()  # also if the client was closed meanwhile: it will not be used
            raise

    async def _open_transport(
        self, slot: int, protocol_factory: Callable[[], Any], timeout_s: float
    ) -> asyncio.WriteTransport:
        """Open a socket to a server for any protocol, with TLS where that is set; return its transport."""
        sockets = self._loop_state().connections.sockets
        host, port = self._address_of(slot)
        if port is None:
            return await sockets.open_unix(protocol_factory, host)
        tls = None if self._tls is None else (self._tls[0], self._tls[1] or host)
        transport, self._last_connected[slot] = await _connecting.connect(
            partial(sockets.open, protocol_factory, tls),
            host,
            port,
            timeout_s,
            self._last_connected.get(slot),
        )
        return transport

    def _handle_connect_failure(self, slot: int, timeout_s: float | None) -> None:
        self._mark_unreachable(slot, timeout_s)
        if self._is_down(slot):
            self._start_probe(slot)

    def _start_probe(self, slot: int) -> None:
        """Start a probe of a server that is down, unless one runs; the engine decides what is down."""
        probe_tasks = self._loop_state().probe_tasks
        if slot not in probe_tasks:
            task = asyncio.get_running_loop().create_task(self._run_probe(slot))
            probe_tasks[slot] = task
            task.add_done_callback(partial(_end_task, probe_tasks, slot))

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
            transport.abort()


def _retrieve_result(task: asyncio.Future[None]) -> None:
    """Retrieve a result that perhaps nobody awaits: all calls that needed it may have been cancelled."""
    if not task.cancelled():
        task.exception()


def _end_task(tasks: dict[int, asyncio.Task[None]], slot: int, task: asyncio.Task[None]) -> None:
    """Forget a task that has ended: it refers to its loop."""
    _retrieve_result(task)
    if tasks.get(slot) is task:
        del tasks[slot]


def _is_being_cancelled() -> bool:
    """Return whether somebody has cancelled the running task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _close_when_idle(connection: _native.Connection, ends_at: float) -> None:
    """Close a connection when it is idle, or at `ends_at`."""
    try:
        while not connection.is_idle and time.monotonic() < ends_at:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    finally:  # also where the loop ends first, and cancels its tasks
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
