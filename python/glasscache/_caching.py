"""Methods of both clients that keep results of functions, and values by tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glasscache._get_or_set import AsyncLeases, SyncLeases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import ParamSpec, TypeVar, Unpack

    from glasscache.cached import AsyncCached, Cached, Options
    from glasscache.tags import AsyncTagged, Tagged

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["AsyncCaching", "SyncCaching"]


class SyncCaching(SyncLeases):
    """Those of a client that blocks."""

    def cached(self, **options: Unpack[Options]) -> Callable[[Callable[P, R]], Cached[P, R]]:
        """Return a decorator that keeps a function's results here; see `glasscache.cached.cached`.

        >>> @client.cached(ttl=60)
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> double(4), double(4), double.cache_info().hits
        (8, 8, 1)
        """
        from glasscache.cached import cached  # noqa: PLC0415 - only programs that decorate pay

        return cached(self, **options)

    def tagged(self, *tags: str) -> Tagged:
        """Return access to values that `invalidate_tag` of any of these tags throws away."""
        from glasscache.tags import Tagged  # noqa: PLC0415 - likewise

        return Tagged(self, *tags)

    def invalidate_tag(self, tag: str) -> bool:
        """Throw away every value of a tag; whether that was done.

        False only with `on_error="miss"`: then the next call that reaches the server does it.
        """
        from glasscache.tags import invalidate_tag  # noqa: PLC0415 - likewise

        return invalidate_tag(self, tag)


class AsyncCaching(AsyncLeases):
    """Those of a client that is awaited."""

    def cached(
        self, **options: Unpack[Options]
    ) -> Callable[[Callable[P, Awaitable[R]]], AsyncCached[P, R]]:
        """Return a decorator that keeps a function's results here; see `glasscache.cached.cached`."""
        from glasscache.cached import cached  # noqa: PLC0415 - only programs that decorate pay

        return cached(self, **options)

    def tagged(self, *tags: str) -> AsyncTagged:
        """Return access to values that `invalidate_tag` of any of these tags throws away."""
        from glasscache.tags import AsyncTagged  # noqa: PLC0415 - likewise

        return AsyncTagged(self, *tags)

    async def invalidate_tag(self, tag: str) -> bool:
        """Throw away every value of a tag; whether that was done, as of the blocking client."""
        from glasscache.tags import invalidate_tag_async  # noqa: PLC0415 - likewise

        return await invalidate_tag_async(self, tag)
