"""Carries plans out: blocking for WSGI, awaited for ASGI. Waiting is all that differs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from glasscache._plans import Call, Sleep

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

__all__ = ["AsyncFlights", "SyncFlights", "drive", "drive_async"]


class AsyncFlights:
    """The keys that a task of this event loop fetches or waits for, so that others wait for that task."""

    def __init__(self) -> None:
        """Begin with none."""
        self._flights: dict[str, asyncio.Event] = {}

    def begin(self, key: str) -> bool:
        """Note that the caller looks after a key; False if another does."""
        if key in self._flights:
            return False
        self._flights[key] = asyncio.Event()
        return True

    def end(self, key: str) -> None:
        """Let those go on that wait for the key."""
        event = self._flights.pop(key, None)
        if event is not None:
            event.set()

    async def wait(self, key: str, seconds: float) -> None:
        """Wait until the key's fetch is over, at most so long."""
        event = self._flights.get(key)
        if event is not None:
            try:
                await asyncio.wait_for(event.wait(), seconds)
            except TimeoutError:
                return


class SyncFlights:
    """The same for threads."""

    def __init__(self) -> None:
        """Begin with none."""
        self._flights: dict[str, threading.Event] = {}
        self._lock: Final = threading.Lock()

    def begin(self, key: str) -> bool:
        """Note that the caller looks after a key; False if another does."""
        with self._lock:
            if key in self._flights:
                return False
            self._flights[key] = threading.Event()
            return True

    def end(self, key: str) -> None:
        """Let those go on that wait for the key."""
        with self._lock:
            event = self._flights.pop(key, None)
        if event is not None:
            event.set()

    def wait(self, key: str, seconds: float) -> None:
        """Wait until the key's fetch is over, at most so long."""
        event = self._flights.get(key)
        if event is not None:
            event.wait(seconds)


def drive(plan: Generator[Any, Any, T]) -> T:
    """Carry a plan out and return what it returns."""
    try:
        step = next(plan)
        while True:
            try:
                outcome = _do(step)
            except Exception as error:  # noqa: BLE001 - thrown into the plan
                step = plan.throw(error)
            else:
                step = plan.send(outcome)
    except StopIteration as end:
        value: T = end.value
        return value


def _do(step: Any) -> Any:
    if type(step) is Call:
        return step.begin()
    if type(step) is Sleep:
        time.sleep(step.seconds)
    return None


async def drive_async(plan: Generator[Any, Any, T]) -> T:
    """Carry a plan out, awaiting its steps, and return what it returns."""
    try:
        step = next(plan)
        while True:
            try:
                if type(step) is Call:
                    outcome = await step.begin()
                else:
                    outcome = None
                    if type(step) is Sleep:
                        await asyncio.sleep(step.seconds)
            except Exception as error:  # noqa: BLE001 - thrown into the plan
                step = plan.throw(error)
            else:
                step = plan.send(outcome)
    except StopIteration as end:
        value: T = end.value
        return value
