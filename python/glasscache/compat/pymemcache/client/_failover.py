"""Which of many servers are failing, and which are left out until their time is over.

pymemcache's rule: a server that could not be reached is tried again `retry_attempts` times, with
`retry_timeout` seconds between; then it is dead, its keys belong to the others, and it comes back
after `dead_timeout` seconds. A call in the meantime raises, where pymemcache returns a miss.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable


class Failover:
    """Counts the failures of servers."""

    def __init__(self, attempts: int, pause_s: float, dead_time_s: float | None) -> None:
        """Take pymemcache's `retry_attempts`, `retry_timeout` and `dead_timeout`; None: dead for good."""
        self._attempts_max, self._pause_s, self._dead_time_s = attempts, pause_s, dead_time_s
        self._lock = threading.Lock()
        self._failures_by_server: dict[Hashable, tuple[int, float]] = {}
        """How often each server failed in a row, less one, and when it failed last."""
        self.dead: dict[Any, float] = {}
        """When each dead server died."""

    def count_failure(self, server: Hashable) -> bool:
        """Count a failure; return whether the server is now dead, once."""
        now = time.monotonic()
        with self._lock:
            failed_attempts, last_failed_at = self._failures_by_server.get(
                server, (-1, -self._pause_s)
            )
            if server in self.dead or now - last_failed_at < self._pause_s:
                return False
            if failed_attempts + 1 < self._attempts_max:
                self._failures_by_server[server] = failed_attempts + 1, now
                return False
            self._failures_by_server.pop(server, None)
            self.dead[server] = now
            return True

    def record_success(self, server: Hashable) -> None:
        """Forget the failures of a server."""
        self._failures_by_server.pop(server, None)

    @property
    def has_no_failures(self) -> bool:
        """Whether no server is failing."""
        return not self._failures_by_server

    def pop_revived(self) -> list[Any]:
        """Return the dead servers whose time is over; they are dead no more."""
        if not self.dead or self._dead_time_s is None:
            return []
        now = time.monotonic()
        with self._lock:
            revived_servers = [
                server
                for server, died_at in self.dead.items()
                if now - died_at >= self._dead_time_s
            ]
            for server in revived_servers:
                del self.dead[server]
        return revived_servers
