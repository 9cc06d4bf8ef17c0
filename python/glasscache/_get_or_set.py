"""The method `get_or_set` of both clients, whose calls import `glasscache.leases`, where it is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar, Unpack

    from glasscache._refresh import GetOrSetOptions, GetOrSetSettings
    from glasscache._types import Key, Ttl

    T = TypeVar("T")

__all__ = ["AsyncLeases", "SyncLeases"]


class SyncLeases:
    """That of a client that blocks."""

    def get_or_set(
        self,
        key: Key,
        make: Callable[[], T],
        ttl: Ttl | None = None,
        *,
        stale: float = 0,
        lease: float = 5,
        wait: float | None = None,
        early: float | bool = 0,
        none_ttl: Ttl | None = None,
        stale_if_error: bool = False,
        split: bool = False,
    ) -> T:
        """Return the value under key, or make it, store it and return it.

        A value is returned and not stored if any client deleted, wrote or flushed the key while it was
        made, or if it is above a server's limit, which is logged; `stats()` counts these as
        `fills_not_stored`. While it is made, `add` of the key fails.

        On a cold key one caller among all processes makes the value while the others wait for it.
        In the `stale` seconds after `ttl` one caller makes a new value while the others get the old
        one at once.

        Args:
            key: as for `get`.
            make: called without arguments, in at most one process at a time while its lease lasts.
            ttl: seconds for which the value is fresh; None for ever.
            stale: seconds after `ttl` in which one caller refills and the others take the old value.
            lease: seconds that the filler has before another may take over.
            wait: seconds to wait for another's value before making it oneself; None takes `lease`.
            early: refill now and then before the end: True by what making took, or a number of seconds.
            none_ttl: ttl of a None; None takes `ttl`, 0 does not store it.
            stale_if_error: return the old value when making a new one fails.
            split: store a long value in pieces, as `set` with split.

        Raises:
            What `make` raises, and what `get` and `set` raise.

        """
        from glasscache._refresh import GetOrSetOptions  # noqa: PLC0415 - few programs need it

        return self.get_or_set_by(
            key,
            make,
            GetOrSetOptions(ttl, stale, lease, wait, early, none_ttl, stale_if_error, split),
        )

    def get_or_set_by(self, key: Key, make: Callable[[], T], lease: GetOrSetOptions) -> T:
        """`get_or_set` with its settings in one object, which the parameter `lease` holds."""
        from glasscache import leases  # noqa: PLC0415 - likewise

        return cast("T", leases.get_or_set(self, key, make, lease))


class AsyncLeases:
    """That of a client that is awaited."""

    @overload
    async def get_or_set(
        self,
        key: Key,
        make: Callable[[], Awaitable[T]],
        ttl: Ttl | None = None,
        **settings: Unpack[GetOrSetSettings],
    ) -> T: ...

    @overload
    async def get_or_set(
        self,
        key: Key,
        make: Callable[[], T],
        ttl: Ttl | None = None,
        **settings: Unpack[GetOrSetSettings],
    ) -> T: ...

    async def get_or_set(
        self,
        key: Key,
        make: Callable[[], Awaitable[T] | T],
        ttl: Ttl | None = None,
        *,
        stale: float = 0,
        lease: float = 5,
        wait: float | None = None,
        early: float | bool = 0,
        none_ttl: Ttl | None = None,
        stale_if_error: bool = False,
        split: bool = False,
    ) -> T:
        """Return the value under key, or make it, store it and return it, as the blocking client does.

        `make` may be a function or a coroutine function.
        """
        from glasscache._refresh import GetOrSetOptions  # noqa: PLC0415 - likewise

        return await self.get_or_set_by(
            key,
            make,
            GetOrSetOptions(ttl, stale, lease, wait, early, none_ttl, stale_if_error, split),
        )

    async def get_or_set_by(
        self, key: Key, make: Callable[[], Awaitable[T] | T], lease: GetOrSetOptions
    ) -> T:
        """`get_or_set` with its settings in one object, which the parameter `lease` holds."""
        from glasscache import leases  # noqa: PLC0415 - likewise

        return cast("T", await leases.get_or_set_async(self, key, make, lease))
