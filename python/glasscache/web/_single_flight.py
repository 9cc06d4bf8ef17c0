"""Single flight in one process: of the requests for a key one fetches, and the others wait for it.

A flight knows its key and ends once: when what it fetches is stored or cannot be, when its request ends in
whatever way, or when its time is over. After its time another request begins a flight for the same key, and
the end of the first does not concern it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Final

__all__ = ["AsyncSingleFlight", "Flight", "SingleFlight", "SyncSingleFlight"]


class Flight:
    """The fetch of a key, which others wait for until it ends."""

    __slots__ = ("_single_flight", "ended", "ends_at", "key")

    def __init__(self, single_flight: SingleFlight, key: str, ended: Any, seconds: float) -> None:
        """Begin a flight; `SingleFlight.begin` is what calls this."""
        self._single_flight, self.key, self.ended = single_flight, key, ended
        self.renew(seconds)

    def renew(self, seconds: float) -> None:
        """Let the flight end in so many seconds from now at the latest."""
        self.ends_at = time.monotonic() + seconds

    def end(self) -> None:
        """End the flight, and wake up all that wait for it; it may have ended before."""
        self._single_flight.end(self)


class SingleFlight:
    """The keys that this process fetches. How to wait is what the two kinds differ in."""

    _event_class: type[Any]

    def __init__(self) -> None:
        """Begin without keys."""
        self._events: dict[str, Flight] = {}
        self._lock: Final = threading.Lock()

    def __len__(self) -> int:
        """Return how many flights have not ended."""
        return len(self._events)

    def begin(self, key: str, seconds: float) -> Flight | None:
        """Begin a flight that ends after so many seconds at the latest; None while there is another."""
        with self._lock:
            other = self._events.get(key)
            if other is not None and time.monotonic() < other.ends_at:
                return None
            flight = self._events[key] = Flight(self, key, self._event_class(), seconds)
        if other is not None:
            other.ended.set()
        return flight

    def end(self, flight: Flight) -> None:
        """End a flight, unless it has ended."""
        with self._lock:
            if self._events.get(flight.key) is flight:
                del self._events[flight.key]
        flight.ended.set()

    def is_under_way(self, key: str) -> bool:
        """Whether there is a flight for a key whose time is not over."""
        flight = self._events.get(key)
        return flight is not None and time.monotonic() < flight.ends_at

    def wait(self, key: str, seconds: float) -> Any:
        """Wait until there is no flight for a key, at most so long; with asyncio to be awaited."""
        flight = self._events.get(key)
        if flight is None:
            return None
        return self._wait(flight.ended, max(0.0, min(seconds, flight.ends_at - time.monotonic())))

    def _wait(self, ended: Any, seconds: float) -> Any:
        raise NotImplementedError


class AsyncSingleFlight(SingleFlight):
    """For the tasks of an event loop."""

    _event_class = asyncio.Event

    async def _wait(self, ended: asyncio.Event, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await ended.wait()
        except TimeoutError:
            return


class SyncSingleFlight(SingleFlight):
    """For threads."""

    _event_class = threading.Event

    def _wait(self, ended: threading.Event, seconds: float) -> None:
        ended.wait(seconds)
