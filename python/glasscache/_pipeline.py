"""Calls that are written down first and sent together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from glasscache.client import Client, Key

__all__ = ["Pipeline"]


class Pipeline:
    """A block of calls, one round trip a server; `results` has their outcomes in order afterwards.

    The outcome of a call that failed is its exception: the others are not lost by it.
    """

    def __init__(self, client: Client) -> None:
        """Begin with no calls."""
        self._client = client
        self._calls: list[tuple[str, Key, Any, float | None, int]] = []
        self.results: list[Any] = []

    def get(self, key: Key) -> None:
        """Read a value, or None."""
        self._calls.append(("get", key, None, None, 0))

    def gets(self, key: Key) -> None:
        """Read (value, CAS unique), or None."""
        self._calls.append(("gets", key, None, None, 0))

    def gat(self, key: Key, ttl: float) -> None:
        """Read a value, or None, and give it a new ttl."""
        self._calls.append(("gat", key, None, ttl, 0))

    def set(self, key: Key, value: Any, ttl: float | None = None) -> None:
        """Store a value."""
        self._calls.append(("set", key, value, ttl, 0))

    def add(self, key: Key, value: Any, ttl: float | None = None) -> None:
        """Store a value if there is none."""
        self._calls.append(("add", key, value, ttl, 0))

    def replace(self, key: Key, value: Any, ttl: float | None = None) -> None:
        """Store a value if there is one."""
        self._calls.append(("replace", key, value, ttl, 0))

    def append(self, key: Key, value: Key) -> None:
        """Put str or bytes behind those under key."""
        self._calls.append(("append", key, value, None, 0))

    def prepend(self, key: Key, value: Key) -> None:
        """Put str or bytes before those under key."""
        self._calls.append(("prepend", key, value, None, 0))

    def cas(self, key: Key, value: Any, cas: int, ttl: float | None = None) -> None:
        """Store a value if the CAS unique still holds."""
        self._calls.append(("cas", key, value, ttl, cas))

    def delete(self, key: Key) -> None:
        """Remove a key."""
        self._calls.append(("delete", key, None, None, 0))

    def touch(self, key: Key, ttl: float) -> None:
        """Give a key a new ttl."""
        self._calls.append(("touch", key, None, ttl, 0))

    def incr(self, key: Key, delta: int = 1) -> None:
        """Add to a number."""
        self._calls.append(("incr", key, None, None, delta))

    def decr(self, key: Key, delta: int = 1) -> None:
        """Subtract from a number."""
        self._calls.append(("decr", key, None, None, delta))

    def run(self, *, deadline: float | None = None) -> list[Any]:
        """Send what was written down and return the outcomes in order."""
        calls, self._calls = self._calls, []
        self.results = self._client.run_pipeline(calls, deadline=deadline) if calls else []
        return self.results

    def __enter__(self) -> Self:
        """Return the pipeline, which runs at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Run, unless the block raised."""
        if kind is None:
            self.run()
