"""The asyncio client's connections: made when first needed, given up when late, probed while down."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from glasscache import _dialing, _native
from glasscache.errors import DeadlineExceeded, StaleConnection

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Connections", "close_when_idle"]


class Connections(_native.AsyncClient):
    """One connection a server and event loop."""

    _connecting: dict[tuple[int, asyncio.AbstractEventLoop], asyncio.Task[None]]
    _probes: dict[int, asyncio.Task[None]]
    _leaving: set[asyncio.Task[None]]
    _answered_last: dict[int, str]
    _timeout: float

    async def _connect(self, place: int, ends: float) -> None:
        """Return when a server has a connection that takes requests."""
        if self._is_down(place):
            self._begin_probe(place)
            raise self._unreachable(place, "it is down, a probe asks it")
        connection = self._connection_of(place)
        if connection is not None and connection.is_paused:
            # The peer takes no more for now.
            while connection.is_paused and (left := ends - time.monotonic()) > 0:
                await asyncio.wait([connection.resumed()], timeout=left)
            if connection.is_usable:
                return
        await self._connected_by(place, ends)

    async def _connected_by(self, place: int, ends: float) -> None:
        """Wait until a connection is made, by this call or by one that began before."""
        loop = asyncio.get_running_loop()
        while True:
            task = self._connecting.get((place, loop))
            if task is None or task.done():
                for key in [key for key, old in self._connecting.items() if old.done()]:
                    self._connecting.pop(key, None)
                task = loop.create_task(self._open(place, max(ends - time.monotonic(), 0.001)))
                task.add_done_callback(_nobody_waits)
                self._connecting[place, loop] = task
            try:
                async with asyncio.timeout(max(ends - time.monotonic(), 0.0)):
                    return await asyncio.shield(task)
            except DeadlineExceeded:
                # That was the deadline of the call that began to connect; this one may have time left.
                if time.monotonic() >= ends or self._is_down(place):
                    raise
            except TimeoutError:
                raise self._too_late(place) from None

    async def _open(self, place: int, limit: float) -> None:
        """Make a connection; a server that closes on a meta command gets classic text."""
        for presumes_classic in (False, True):
            loop = asyncio.get_running_loop()
            ready: asyncio.Future[None] = loop.create_future()
            ready.add_done_callback(_nobody_waits)  # if time is over while the loop still connects
            protocol = self._new_connection(place, ready, presumes_classic)
            try:
                await self._make_ready(place, protocol, ready, limit)
            except StaleConnection:
                continue
            except TimeoutError:
                self._went_down(place, limit)
                raise self._too_late(place) from None
            except OSError as error:
                self._went_down(place, None)
                raise self._unreachable(place, str(error)) from None
            self._use_connection(place, protocol)
            return

    async def _make_ready(
        self, place: int, protocol: _native.Connection, ready: asyncio.Future[None], limit: float
    ) -> None:
        try:
            async with asyncio.timeout(limit):
                await self._dial(place, lambda: protocol, limit)
                await ready
        except BaseException:
            protocol.close()  # whatever cut it short, a closed client included: nobody will use it
            raise

    async def _dial(
        self, place: int, protocol: Callable[[], Any], limit: float
    ) -> asyncio.BaseTransport:
        loop = asyncio.get_running_loop()
        host, port = self._address_of(place)
        if port is None:
            transport, _ = await loop.create_unix_connection(protocol, host)
            return transport
        first = self._answered_last.get(place)
        connected, self._answered_last[place] = await _dialing.connect(
            protocol, host, port, limit, first
        )
        return connected

    def _went_down(self, place: int, within: float | None) -> None:
        self._note_unreachable(place, within)
        if self._is_down(place):
            self._begin_probe(place)

    def _begin_probe(self, place: int) -> None:
        """Have one probe ask a server that is down; what counts as down is the client's core's."""
        loop = asyncio.get_running_loop()
        probe = self._probes.get(place)
        if probe is None or probe.done() or probe.get_loop() is not loop:
            self._probes[place] = loop.create_task(self._probe(place))

    async def _probe(self, place: int) -> None:
        """Ask a server that is down until it answers, so that no call has to."""
        while True:
            pause, limit, question, answer = self._probe_of(place)
            await asyncio.sleep(pause)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(limit):
                    if await self._answers(place, question, answer, limit):
                        self._note_up(place)
                        return

    async def _answers(self, place: int, question: bytes, answer: bytes, limit: float) -> bool:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bool] = loop.create_future()
        transport = await self._dial(place, lambda: _Probe(answered, question, answer), limit)
        try:
            return await answered
        finally:
            transport.close()


def _nobody_waits(task: asyncio.Future[None]) -> None:
    """Take note of how connecting ended, for those who wanted it may all have been cancelled."""
    if not task.cancelled():
        task.exception()


async def close_when_idle(connection: _native.Connection, ends: float) -> None:
    """Close a connection when it was answered, or at `ends`."""
    while not connection.is_idle and time.monotonic() < ends:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    with contextlib.suppress(RuntimeError):  # its loop is closed, and its socket with it
        connection.close()


class _Probe(asyncio.Protocol):
    """Sends a harmless question and tells whether the answer is a good one."""

    def __init__(self, answered: asyncio.Future[bool], question: bytes, answer: bytes) -> None:
        self._answered, self._question, self._answer = answered, question, answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - as the loop promises
        transport.write(self._question)

    def data_received(self, data: bytes) -> None:
        if not self._answered.done():
            self._answered.set_result(data.startswith(self._answer))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the loop's words
        if not self._answered.done():
            self._answered.set_result(False)
