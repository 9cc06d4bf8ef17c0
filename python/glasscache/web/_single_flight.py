"""Single flight in one process: of the requests for a key one fetches, and the others wait for it."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

__all__ = ["AsyncSingleFlight", "SyncSingleFlight"]


class AsyncSingleFlight:
    """The keys that a task of this event loop fetches, so that others wait for that task."""

    def __init__(self) -> None:
        """Begin without keys."""
        self._events: dict[str, asyncio.Event] = {}

    def begin(self, key: str) -> bool:
        """Begin the fetch of a key; False if another has begun it."""
        if key in self._events:
            return False
        self._events[key] = asyncio.Event()
        return True

    def end(self, key: str) -> None:
        """End the fetch of a key, and wake up all that wait for it."""
        event = self._events.pop(key, None)
        if event is not None:
            event.set()

    async def wait(self, key: str, seconds: float) -> None:
        """Wait until the key's fetch is over, at most so long."""
        event = self._events.get(key)
        if event is not None:
            try:
                await asyncio.wait_for(event.wait(), seconds)
            except TimeoutError:
                return


class SyncSingleFlight:
    """The same for threads."""

    def __init__(self) -> None:
        """Begin without keys."""
        self._events: dict[str, threading.Event] = {}
        self._lock: Final = threading.Lock()

    def begin(self, key: str) -> bool:
        """Begin the fetch of a key; False if another has begun it."""
        with self._lock:
            if key in self._events:
                return False
            self._events[key] = threading.Event()
            return True

    def end(self, key: str) -> None:
        """End the fetch of a key, and wake up all that wait for it."""
        with self._lock:
            event = self._events.pop(key, None)
        if event is not None:
            event.set()

    def wait(self, key: str, seconds: float) -> None:
        """Wait until the key's fetch is over, at most so long."""
        event = self._events.get(key)
        if event is not None:
            event.wait(seconds)
