"""The asyncio client's connections: made when needed, closed after a missed deadline, probed while down."""

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

__all__ = ["Connections"]


class Connections(_native.AsyncClient):
    """One connection a server and event loop."""

    _connecting: dict[tuple[int, asyncio.AbstractEventLoop], asyncio.Task[None]]
    _probes: dict[int, asyncio.Task[None]]
    _closing: set[asyncio.Task[None]]
    _last_connected: dict[int, str]
    _timeout: float
    _tls: tuple[ssl.SSLContext, str | None] | None

    def _init_connections(
        self, timeout: float, tls: tuple[ssl.SSLContext, str | None] | None
    ) -> None:
        """Begin with none; called once, when the client is made."""
        self._connecting, self._probes, self._closing, self._last_connected = {}, {}, set(), {}
        self._timeout, self._tls = timeout, tls

    def _use_servers(self, addresses: list[str]) -> None:
        """Change the servers; connections to those that left are closed once they have been replied to."""
        if self._tls is not None:
            check_tls_servers(addresses)
        loop = asyncio.get_running_loop()
        for slot, connection in self._change_servers(addresses).items():
            self._connecting.pop((slot, loop), None)
            probe = self._probes.pop(slot, None)
            if probe is not None:
                probe.cancel()
            self._mark_up(slot)  # should it return, its calls find out its health
            if connection is not None:
                ends_at = time.monotonic() + self._timeout
                task = loop.create_task(_close_when_idle(connection, ends_at))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def _close_connections(self) -> None:
        """Close them when each is idle, or after the timeout; later calls raise."""
        loop = asyncio.get_running_loop()
        for task in [*self._probes.values(), *self._connecting.values()]:
            if task.get_loop() is loop:
                task.cancel()
        ends_at = time.monotonic() + self._timeout
        for slot in range(self._slots_count):
            connection = self._use_connection(slot, None)
            if connection is not None:
                await _close_when_idle(connection, ends_at)
        await asyncio.gather(*self._closing, return_exceptions=True)
        self._mark_closed()

    async def _connect(self, slot: int, ends_at: float) -> None:
        """Return when a server has a connection that takes requests."""
        if self._is_down(slot):
            self._start_probe(slot)
            raise self._unreachable_exception(slot, "it is down and being probed")
        connection = self._connection_of(slot)
        if connection is not None and connection.is_paused:
            # The peer takes no more for now.
            while connection.is_paused and (remaining_s := ends_at - time.monotonic()) > 0:
                await asyncio.wait([connection.resumed()], timeout=remaining_s)
            if connection.is_usable:
                return
        await self._wait_until_connected(slot, ends_at)

    async def _wait_until_connected(self, slot: int, ends_at: float) -> None:
        """Wait until a connection is made, by this call or by one that began before."""
        loop = asyncio.get_running_loop()
        while True:
            task = self._connecting.get((slot, loop))
            if task is None or task.done():
                for key in [
                    key for key, other_task in self._connecting.items() if other_task.done()
                ]:
                    self._connecting.pop(key, None)
                task = loop.create_task(self._open(slot, max(ends_at - time.monotonic(), 0.001)))
                task.add_done_callback(_retrieve_result)
                self._connecting[slot, loop] = task
            try:
                async with asyncio.timeout(max(ends_at - time.monotonic(), 0.0)):
                    return await asyncio.shield(task)
            except DeadlineExceeded:
                # That was the deadline of the call that began to connect; this one may have time left.
                if time.monotonic() >= ends_at or self._is_down(slot):
                    raise
            except TimeoutError:
                raise self._connect_timeout_exception(slot) from None

    async def _open(self, slot: int, limit_s: float) -> None:
        """Make a connection; a server that closes on a meta command gets classic text."""
        for presumes_classic in (False, True):
            loop = asyncio.get_running_loop()
            ready: asyncio.Future[None] = loop.create_future()
            ready.add_done_callback(
                _retrieve_result
            )  # if time is over while the loop still connects
            protocol = self._new_connection(slot, ready, presumes_classic)
            try:
                await self._make_ready(slot, protocol, ready, limit_s)
            except StaleConnection:
                continue
            except TimeoutError:
                self._handle_connect_failure(slot, limit_s)
                raise self._connect_timeout_exception(slot) from None
            except OSError as error:
                self._handle_connect_failure(slot, None)
                raise self._unreachable_exception(slot, str(error)) from None
            self._use_connection(slot, protocol)
            return

    async def _make_ready(
        self, slot: int, protocol: _native.Connection, ready: asyncio.Future[None], limit_s: float
    ) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._dial(slot, lambda: protocol, limit_s)
                await ready
        except BaseException:
            protocol.close()  # whatever ended it, a closed client included: it will not be used
            raise

    async def _dial(
        self, slot: int, protocol: Callable[[], Any], limit_s: float
    ) -> asyncio.BaseTransport:
        loop = asyncio.get_running_loop()
        host, port = self._address_of(slot)
        if port is None:
            transport, _ = await loop.create_unix_connection(protocol, host)
            return transport
        first_address = self._last_connected.get(slot)
        connected, self._last_connected[slot] = await _connecting.connect(
            protocol, host, port, limit_s, first_address, self._tls_arguments(host)
        )
        return connected

    def _tls_arguments(self, host: str) -> dict[str, Any]:
        """Return how a connection to this host is encrypted, as arguments of asyncio."""
        if self._tls is None:
            return {}
        context, name = self._tls
        return {"ssl": context, "server_hostname": name or host}

    def _handle_connect_failure(self, slot: int, timeout_s: float | None) -> None:
        self._mark_unreachable(slot, timeout_s)
        if self._is_down(slot):
            self._start_probe(slot)

    def _start_probe(self, slot: int) -> None:
        """Start a probe of a server that is down, unless there is one; the core decides what is down."""
        loop = asyncio.get_running_loop()
        probe = self._probes.get(slot)
        if probe is None or probe.done() or probe.get_loop() is not loop:
            self._probes[slot] = loop.create_task(self._run_probe(slot))

    async def _run_probe(self, slot: int) -> None:
        """Probe a server that is down until it replies, so that no call has to."""
        while True:
            pause_s, limit_s, request, expected_prefix = self._probe_of(slot)
            await asyncio.sleep(pause_s)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(limit_s):
                    if await self._try_probe(slot, request, expected_prefix, limit_s):
                        self._mark_up(slot)
                        return

    async def _try_probe(
        self, slot: int, request: bytes, expected_prefix: bytes, limit_s: float
    ) -> bool:
        loop = asyncio.get_running_loop()
        reply_future: asyncio.Future[bool] = loop.create_future()
        transport = await self._dial(
            slot, lambda: _Probe(reply_future, request, expected_prefix), limit_s
        )
        try:
            return await reply_future
        finally:
            transport.close()


def _retrieve_result(task: asyncio.Future[None]) -> None:
    """Retrieve the result of connecting, because all calls that needed it may have been cancelled."""
    if not task.cancelled():
        task.exception()


async def _close_when_idle(connection: _native.Connection, ends_at: float) -> None:
    """Close a connection when it is idle, or at `ends`."""
    while not connection.is_idle and time.monotonic() < ends_at:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    with contextlib.suppress(RuntimeError):  # its loop is closed, and its socket with it
        connection.close()


class _Probe(asyncio.Protocol):
    """Sends a harmless request and reports whether the reply begins as expected."""

    def __init__(
        self, reply_future: asyncio.Future[bool], request: bytes, expected_prefix: bytes
    ) -> None:
        self._reply_future, self._request, self._expected = reply_future, request, expected_prefix

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - as the loop promises
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._reply_future.done():
            self._reply_future.set_result(data.startswith(self._expected))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the loop's signature
        if not self._reply_future.done():
            self._reply_future.set_result(False)
