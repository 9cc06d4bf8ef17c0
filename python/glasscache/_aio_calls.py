"""How the asyncio client makes a call: at once where there is a connection, else after one was made.

One deadline spans connecting, the call and its repetition on a new connection where one had gone stale.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from typing import TYPE_CHECKING, Any

from glasscache._aio_connections import Connections
from glasscache.errors import (
    BadSetting,
    ClientClosed,
    GlasscacheError,
    StaleConnection,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable

    from glasscache.client import Key, Ttl

__all__ = ["Calls"]

_blocks: contextvars.ContextVar[tuple[tuple[int, float], ...]] = contextvars.ContextVar(
    "glasscache_deadlines", default=()
)


class Calls(Connections):
    """What the words of the asyncio client are made of."""

    _has_blocks: int

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Generator[None]:
        """Give all calls of this task inside the block so many seconds together."""
        if not seconds > 0:
            raise BadSetting(f"a time-out of {seconds} s: it must be above 0")
        ends = time.monotonic() + seconds
        token = _blocks.set((*_blocks.get(), (id(self), ends)))
        self._has_blocks += 1
        try:
            yield
        finally:
            self._has_blocks -= 1
            _blocks.reset(token)

    async def _store(
        self,
        word: str,
        key: Key,
        value: Any,
        ttl: Ttl | None,
        noreply: bool,
        deadline: float | None,
        cas: int | None = None,
    ) -> Any:
        return await self._call(
            key,
            lambda left: self._start_store(word, key, value, ttl, noreply, left, cas),
            deadline,
            False,
        )

    async def _arithmetic(
        self,
        key: Key,
        delta: int,
        down: bool,
        initial: int | None,
        ttl: Ttl | None,
        noreply: bool,
        deadline: float | None,
    ) -> int | None:
        number: int | None = await self._call(
            key,
            lambda left: self._start_arithmetic(key, delta, down, initial, ttl, noreply, left),
            deadline,
            None,
        )
        return None if noreply else number

    async def _call(
        self,
        key: Key,
        start: Callable[[float | None], Awaitable[Any] | None],
        deadline: float | None,
        miss: Any,
    ) -> Any:
        """Start a call; connect first where that is needed."""
        if self._has_blocks:
            deadline = self._within_block(deadline)
        future = start(deadline)
        if future is not None:
            try:
                return await future
            except StaleConnection:
                pass
        return await self._late(key, start, deadline, miss)

    async def _late(
        self,
        key: Key,
        start: Callable[[float | None], Awaitable[Any] | None],
        deadline: float | None,
        miss: Any,
    ) -> Any:
        """Connect and start a call again; one deadline over both."""
        ends = time.monotonic() + (self._timeout if deadline is None else deadline)
        try:
            return await self._connected(lambda: self._place_of(key), start, ends)
        except GlasscacheError as error:
            if self._count_miss(error):
                return miss
            raise

    async def _connected(
        self,
        place_of: Callable[[], int],
        start: Callable[[float | None], Awaitable[Any] | None],
        ends: float,
    ) -> Any:
        place = place_of()
        for _ in range(3):  # a connection may go stale between being made and being used
            begin = time.monotonic()
            place = place_of()  # and its server may leave
            await self._connect(place, ends)
            now = time.monotonic()
            self._note_wait(now - begin)
            left = ends - now
            if left <= 0:
                break
            future = start(left)
            if future is None:
                continue
            try:
                return await future
            except StaleConnection:
                continue
        raise self._too_late(place)

    async def _bulk(
        self,
        shares: dict[int, list[Key]],
        start: Callable[[int, list[Key], float | None], Awaitable[Any] | None],
        deadline: float | None,
    ) -> dict[int, Any]:
        """Ask all servers at once; the outcome of one that failed is its exception."""
        if self._has_blocks:
            deadline = self._within_block(deadline)
        futures: dict[int, Awaitable[Any] | None] = {}
        ends = time.monotonic() + (self._timeout if deadline is None else deadline)
        results: dict[int, Any] = {}
        try:
            for place, share in shares.items():
                futures[place] = start(place, share, deadline)
            for place, future in futures.items():
                results[place] = await self._one_of_bulk(
                    place,
                    future,
                    lambda left, place=place: start(place, shares[place], left),  # type: ignore[misc]
                    ends,
                )
        except BaseException:
            for future in futures.values():
                if isinstance(future, asyncio.Future):
                    future.cancel()
            raise
        return results

    async def _one_of_bulk(
        self,
        place: int,
        future: Awaitable[Any] | None,
        start: Callable[[float | None], Awaitable[Any] | None],
        ends: float,
    ) -> Any:
        try:
            if future is not None:
                try:
                    return await future if isinstance(future, asyncio.Future) else future
                except StaleConnection:
                    pass
            return await self._connected(lambda: place, start, ends)
        except ClientClosed:
            raise
        except GlasscacheError as error:
            return error

    async def _of_all(
        self, what: str, argument: str, delay: int, deadline: float | None
    ) -> dict[str, Any]:
        names = self._names
        results = await self._bulk(
            {place: [] for place in names},
            lambda place, _, left: self._start_ask(place, what, argument, delay, left),
            deadline,
        )
        return {names[place]: result for place, result in results.items()}

    def _shares(self, keys: Iterable[Key]) -> dict[int, list[Key]]:
        """Part keys by server."""
        place = self._only_place
        if place is not None:
            every = list(keys)
            return {place: every} if every else {}
        shares: dict[int, list[Key]] = {}
        for key in keys:
            shares.setdefault(self._place_of(key), []).append(key)
        return shares

    def _within_block(self, deadline: float | None) -> float | None:
        """Return the shorter of a call's deadline and what is left of the task's blocks."""
        now = time.monotonic()
        lefts = [max(ends - now, 1e-6) for number, ends in _blocks.get() if number == id(self)]
        if not lefts:
            return deadline
        return min([*lefts, self._timeout if deadline is None else deadline])
