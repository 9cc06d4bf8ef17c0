"""How the asyncio client makes a call: at once where there is a connection, else after one was made.

One deadline spans connecting, the call and its repetition on a new connection where one had gone stale.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from glasscache import _native
from glasscache._aio_connections import ConnectingClient
from glasscache._contexts import deadline_block, seconds_left
from glasscache.errors import ClientClosed, GlasscacheError, StaleConnection

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from glasscache._types import Key, Ttl

__all__ = ["Calls"]

R = TypeVar("R")
M = TypeVar("M")
F = TypeVar("F", bound=tuple[Any, ...])

_Start: TypeAlias = "Callable[..., asyncio.Future[R] | None]"

_CHANGES: Final = {"_start_store", "_start_delete", "_start_arithmetic"}
"""The calls that change what is under a key: where their error is a miss, the key is removed later."""


class Calls(ConnectingClient):
    """The base of the methods of the asyncio client."""

    _deadline_block_count: int
    _state: _native.ClientState

    def deadline(self, seconds: float) -> AbstractContextManager[None]:
        """Give all calls of this task inside the block this many seconds together."""
        return deadline_block(self, seconds)

    def _count_deadline_blocks(self, change: int) -> None:
        self._deadline_block_count += change

    async def _call(
        self, start: _Start[R], deadline: float | None, miss: M, key: Key, *arguments: Any
    ) -> R | M:
        """Start a call; connect first where that is needed."""
        if self._deadline_block_count:
            deadline = self._effective_deadline(deadline)
        future = start(key, *arguments, deadline)
        if future is not None:
            try:
                return await future
            except StaleConnection:
                pass
        return await self._connect_and_start(start, deadline, miss, future, key, *arguments)

    async def _connect_and_start(
        self,
        start: _Start[R],
        deadline: float | None,
        miss: M,
        stale_future: asyncio.Future[Any] | None,
        key: Key,
        *arguments: Any,
    ) -> R | M:
        """Connect and start a call, again if it failed as `stale_future`; one deadline over both."""
        seconds = self._timeout if deadline is None else deadline
        stale_error = None if stale_future is None else stale_future.exception()
        delayed_call = _native.DelayedCall(seconds, stale_error)
        state = self._loop_state()
        try:
            while True:
                with state.waiting():
                    await self._ensure_connected(
                        self._begin_attempt(delayed_call, key),
                        time.monotonic() + delayed_call.seconds_left,
                    )
                    future = start(key, *arguments, delayed_call)
                if future is not None:
                    try:
                        return await future
                    except StaleConnection as error:
                        delayed_call.mark_stale(error)
        except GlasscacheError as error:
            miss = self._state.miss_or_raise(error, miss)
            # An `add` that was not made leaves what is there, which may be another's lock.
            if start.__name__ in _CHANGES and arguments[0] != "add":
                self._state.mark_uncertain(key)
            return miss

    async def _read_item(
        self, start: _Start[F | None], key: Key, deadline: float | None
    ) -> F | None:
        """Call for a value and more about it, as a tuple; a value in pieces is joined."""
        ends_at = None if deadline is None else time.monotonic() + deadline
        read_fields = await self._call(start, deadline, None, key)
        if read_fields is not None and type(read_fields[0]) is _native.Manifest:
            read_fields = await self._join_pieces(key, read_fields, ends_at, None)
        return read_fields

    async def _reserve(
        self,
        key: Key,
        token: bytes,
        ttl: float,
        instead_of: int | None = None,
        *,
        deadline: float | None = None,
    ) -> bool | None:
        """Reserve key for a value that is being made, as the blocking client does."""
        flags_and_body = self._state.reservation_form(token)
        if flags_and_body is None:
            return None
        start = self._start_reserve
        return await self._call(start, deadline, None, key, *flags_and_body, ttl, instead_of)

    async def _reservation(
        self, key: Key, *, deadline: float | None = None
    ) -> tuple[bytes, int, int | None] | None:
        """Return (token, CAS unique, seconds left) of the reservation under key, or None."""
        return await self._call(self._start_reservation, deadline, None, key)

    async def _run_bulk(self, bulk: _native.BulkCall) -> dict[Any, Any]:
        """Return the outcome of a call about many keys; make the connections that it needs."""
        while (outcome := await bulk.wait()) is None:
            connect_calls = [self._connect_for(bulk, slot) for slot in bulk.slots()]
            with self._loop_state().waiting():
                try:
                    # One is awaited here, so that calls that wait for one connection are sent in their order.
                    await (
                        connect_calls[0]
                        if len(connect_calls) == 1
                        else asyncio.gather(*connect_calls)
                    )
                except BaseException:
                    bulk.abandon()  # what other servers were sent is not waited for
                    raise
                self._send(bulk)
        return outcome

    async def _call_all_servers(
        self, method: str, argument: str, delay: int, deadline: float | None
    ) -> dict[str, Any]:
        """Return what every server replied to one request, by the server's name."""
        deadline = self._effective_deadline(deadline)
        return await self._run_bulk(self._start_of_all(method, argument, delay, deadline))

    async def _get_unjoined(self, key: Key) -> Any:
        """Return what is under key, without its pieces if it is a manifest, or None."""
        return await self._call(self._start_get, None, None, key, None)

    async def _join_pieces(
        self,
        key: Key,
        found: Any,
        ends_at: float | None,
        miss: Any,
        new_ttl: Ttl | None = None,
    ) -> Any:
        """Return what a read found with its value in place of the manifest; `miss` if a piece is lost.

        `new_ttl` is the TTL that the read has given to the key, if it has.
        """
        from glasscache._split import read_async  # noqa: PLC0415 - few values are in pieces

        try:
            remaining_s = ends_at and ends_at - time.monotonic()
            joined = await read_async(self, key, found, remaining_s, new_ttl)
        except GlasscacheError as error:
            return self._state.miss_or_raise(error, miss)
        return miss if joined is None else joined[0]

    async def _read_bulk(
        self, bulk: _native.BulkCall, values: dict[Any, Any] | None, *, has_deadline: bool
    ) -> dict[Any, Any]:
        """Return what a bulk read found, values in pieces included; `values` is the outcome so far."""
        if values is None:
            values = await self._run_bulk(bulk)
        if not bulk.has_manifests:
            return values
        return await self._join_bulk_pieces(values, bulk.seconds_left if has_deadline else None)

    async def _join_bulk_pieces(
        self, found: dict[Any, Any], remaining_s: float | None
    ) -> dict[Any, Any]:
        """Return what a bulk read found with values in place of their manifests."""
        from glasscache._split import read_many_async  # noqa: PLC0415 - likewise

        try:
            return await read_many_async(self, found, remaining_s)
        except GlasscacheError as error:
            miss_values: dict[Any, Any] = self._state.miss_or_raise(error, {})
            return miss_values

    async def _read_near(self, keys: Any, deadline: float | None) -> dict[Any, Any]:
        """Return the values of keys under the strategy, values in pieces included."""
        ends_at = None if deadline is None else time.monotonic() + deadline
        pending_near_read = self._begin_near(keys, self._effective_deadline(deadline))
        try:
            while (step := self._next_step(pending_near_read)) is not None:
                if isinstance(step, _native.BulkCall):
                    await self._run_bulk(step)
                else:
                    await asyncio.wait((step,), timeout=pending_near_read.seconds_left)
        except BaseException:
            pending_near_read.abandon()  # other reads of the request wait for what it was fetching
            raise
        values, has_manifests = self._near_values(pending_near_read)
        if not has_manifests:
            return values
        return await self._join_bulk_pieces(values, ends_at and ends_at - time.monotonic())

    async def _connect_for(self, bulk: _native.BulkCall, slot: int) -> None:
        if self._is_connected(slot):
            return
        try:
            await self._ensure_connected(slot, time.monotonic() + bulk.seconds_left)
        except ClientClosed:
            raise
        except GlasscacheError as error:
            self._fail(bulk, slot, error)

    def _is_connected(self, slot: int) -> bool:
        connection = self._connection_of(slot)
        return connection is not None and connection.is_usable

    def _effective_deadline(self, deadline: float | None) -> float | None:
        """Return the shorter of a call's deadline and what is left of the task's blocks."""
        if not self._deadline_block_count:
            return deadline
        block_seconds = seconds_left(self._state)
        if block_seconds is None:
            return deadline
        return min(max(block_seconds, 1e-6), self._timeout if deadline is None else deadline)
