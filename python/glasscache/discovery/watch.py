"""Polls a source, and passes a changed list of servers to a client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable, Generator
from typing import Any, Self

Source = Callable[[], list[str]]

_log = logging.getLogger("glasscache.discovery")


class Watch:
    """Keeps a blocking client's servers equal to a source's, from a thread of its own.

    Use it as a context manager, or call `start` and `stop`. For an asyncio client run `keep_up` as
    a task instead.
    """

    def __init__(self, client: Any, source: Source, *, interval: float = 60.0) -> None:
        """Watch for a client; nothing happens before `start`."""
        self._client, self._source, self._interval_s = client, source, interval
        self._current_servers: list[str] = []
        self._stop_requested = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self) -> bool:
        """Ask the source once; return whether the servers changed."""
        servers = _read_source(self._source)
        if servers is None or servers == self._current_servers:
            return False
        with _logged_failure(Exception):
            self._client.set_servers(servers)
            self._current_servers = servers
            return True
        return False

    def start(self) -> Self:
        """Check now, then every `interval` seconds in the background."""
        self.check()
        self._thread = threading.Thread(target=self._run, name="glasscache-discovery", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread."""
        self._stop_requested.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop_requested.wait(_jitter(self._interval_s)):
            # Whatever a source raises, the next check may find servers.
            with _logged_failure(BaseException):
                self.check()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


async def keep_up(client: Any, source: Source, *, interval: float = 60.0) -> None:
    """Keep an asyncio client's servers equal to a source's until cancelled."""
    current_servers: list[str] = []
    loop = asyncio.get_running_loop()
    while True:
        # Name servers are queried by blocking calls of the C library, hence the executor.
        servers = await loop.run_in_executor(None, _read_source, source, BaseException)
        if servers is not None and servers != current_servers:
            with _logged_failure(Exception):
                client.set_servers(servers)
                current_servers = servers
        await asyncio.sleep(_jitter(interval))


def _read_source(source: Source, caught: type[BaseException] = Exception) -> list[str] | None:
    """Return the servers of a source; None if it failed or found none."""
    servers: list[str] | None = None
    with _logged_failure(caught):
        servers = list(source())
        if not servers:
            _log.warning("discovery found no servers, they stay as they are")
    return servers or None


@contextlib.contextmanager
def _logged_failure(caught: type[BaseException]) -> Generator[None]:
    """Log what is raised in the block, and end the block by it."""
    try:
        yield
    except caught as error:
        _log.warning("discovery failed, the servers stay as they are: %r", error)


def _jitter(interval: float) -> float:
    """Within a tenth of the interval, so that a fleet does not poll in step."""
    return interval * random.uniform(0.9, 1.1)  # noqa: S311 - spreads clients
