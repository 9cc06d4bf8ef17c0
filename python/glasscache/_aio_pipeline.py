"""Awaited calls that are written down first and sent together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

__all__ = ["AsyncPipeline"]


class AsyncPipeline:
    """A block of calls that leave together; `results` has their outcomes in order afterwards."""

    def __init__(self, client: Any) -> None:
        """Begin with no calls."""
        self._client = client
        self._calls: list[Awaitable[Any]] = []
        self.results: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a method of the client whose call is recorded and not yet made."""
        method = getattr(self._client, name)

        def record_call(*args: Any, **kwargs: Any) -> None:
            self._calls.append(method(*args, **kwargs))

        return record_call

    async def __aenter__(self) -> Self:
        """Return the pipeline, which runs at the end of the block."""
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Run, unless the block raised."""
        calls, self._calls = self._calls, []
        if exception_type is not None:
            for call in calls:
                if asyncio.iscoroutine(call):
                    call.close()
            return
        self.results = await asyncio.gather(*calls, return_exceptions=True)
