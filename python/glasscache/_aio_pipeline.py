"""Awaited calls that are written down first and sent together."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from glasscache._requests import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

__all__ = ["AsyncPipeline"]


def _reads_first(call: tuple[str, Awaitable[Any]]) -> bool:
    return call[0] in REQUESTS and REQUESTS[call[0]].reads_first


class AsyncPipeline:
    """A block of calls that leave together; `results` has their outcomes in order afterwards."""

    def __init__(self, client: Any) -> None:
        """Begin with no calls."""
        self._client = client
        self._calls: list[tuple[str, Awaitable[Any]]] = []
        self.results: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a method of the client whose call is recorded and not yet made."""
        method = getattr(self._client, name)

        def record_call(*args: Any, **kwargs: Any) -> None:
            self._calls.append((name, method(*args, **kwargs)))

        return record_call

    async def __aenter__(self) -> Self:
        """Return the pipeline, which runs at the end of the block."""
        return self

    async def __aexit__(
        self, exception_type: type[BaseException] | None, *_details: object
    ) -> None:
        """Run, unless the block raised."""
        calls, self._calls = self._calls, []
        if exception_type is not None:
            for _, call in calls:
                if asyncio.iscoroutine(call):
                    call.close()
            return
        self.results = []
        # Those that look at a value before they change it take several requests: what follows waits for them.
        for _, group in itertools.groupby(calls, _reads_first):
            group_calls = [call for _, call in group]
            self.results += await asyncio.gather(*group_calls, return_exceptions=True)
