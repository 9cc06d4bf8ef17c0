"""One filler for a cold key, stale values for the rest: `get_or_set` of both clients.

The right to fill is an `add` of a sibling key that lives for the lease; memcached grants it to one
client only. The meta flag that lets a get create an empty item would save that round trip, but a
plain `get` reads such an item as an empty value, which is a lie, so it is not used. A stored item
outlives its worth by `stale` seconds; how much is left is read with it, so that a hit costs one
round trip. What to do is decided here by a plan, which the two mixins at the end carry out.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar, cast, overload

from glasscache._plans import Make, Sleep, call, carry_out, carry_out_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Unpack

    from glasscache._plans import Plan
    from glasscache.cached import AsyncCached, Cached, Options
    from glasscache.client import Ttl
    from glasscache.tags import AsyncTagged, Tagged

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Key = str | bytes

_MISSING: Final = object()
_LEASE_PREFIX: Final = "~lease:"
_KEY_BYTES_MAX: Final = 200
"""Longer keys are hashed in the name of their lease, which with a namespace has 250 bytes at most."""
_POLL_FIRST_S: Final = 0.002
_POLL_LAST_S: Final = 0.05


class Lease(NamedTuple):
    """How a cold or stale key is refilled.

    Attributes:
        ttl: seconds for which a value is fresh; None for ever.
        stale: seconds beyond, in which one caller refills and the others take the old value.
        lease: seconds that the filler has before another may try; whole seconds, at least 1.
        wait: seconds to wait for another's value before making it oneself; None takes `lease`.
        early: seconds that making usually takes; with it a fresh value is now and then refilled
            shortly before its time, the likelier the closer (Vattani et al., "Optimal Probabilistic
            Cache Stampede Prevention", 2015).
        none_ttl: ttl of a None; None takes `ttl`, 0 does not store it.
        stale_if_error: return the old value when making a new one fails.

    """

    ttl: Ttl | None
    stale: float = 0
    lease: float = 5
    wait: float | None = None
    early: float = 0
    none_ttl: Ttl | None = None
    stale_if_error: bool = False

    def is_worn(self, left: float | None, chance: float) -> bool:
        """Return whether a value with `left` seconds of life should be refilled; `chance`: (0, 1]."""
        if left is None or left < 0:
            return False
        return left - self.stale <= (-self.early * math.log(chance) if self.early else 0)

    def ttl_of(self, value: object) -> float | None:
        """Return the life of `value`, its stale time included; 0 for one that is not stored."""
        own = self.none_ttl if value is None and self.none_ttl is not None else self.ttl
        fresh = seconds_of(own)
        if fresh is None or fresh == 0:
            return fresh
        return fresh + self.stale


def seconds_of(ttl: Ttl | None) -> float | None:
    """Return the seconds of a ttl that may be a timedelta."""
    given: Any = ttl
    seconds: float | None = given.total_seconds() if hasattr(given, "total_seconds") else given
    return seconds


def lease_key(key: Key) -> str:
    """Return the name of the lease of `key`."""
    raw = key.encode() if isinstance(key, str) else key
    if len(raw) <= _KEY_BYTES_MAX:
        try:
            return _LEASE_PREFIX + raw.decode()
        except UnicodeDecodeError:
            pass
    import hashlib  # noqa: PLC0415 - long keys are rare, importing the package is not

    return _LEASE_PREFIX + hashlib.blake2b(raw, digest_size=20).hexdigest()


def _plan(client: Any, key: Key, lease: Lease, make: Callable[[], Any]) -> Plan[Any]:
    """Return the plan of one `get_or_set`."""
    if not callable(make):
        raise TypeError(
            f"get_or_set makes the value by calling a function: write lambda: {make!r:.40}, or call add"
        )
    import random  # noqa: PLC0415 - likewise

    value, left = yield from _look(client, key, lease)
    if value is not _MISSING and not lease.is_worn(left, 1 - random.random()):  # noqa: S311 - spreads refills
        return value
    begin = time.monotonic()
    patience = lease.lease if lease.wait is None else lease.wait
    pause = _POLL_FIRST_S
    while True:
        won = yield call(client, "add", lease_key(key), b"1", ttl=max(1, math.ceil(lease.lease)))
        if won:
            return (yield from _fill(client, key, lease, make, value))
        if value is not _MISSING:
            return value
        waited = time.monotonic() - begin
        if waited >= patience:
            return (yield from _make_and_store(client, key, lease, make))
        spread = 0.5 + random.random()  # noqa: S311 - spreads clients
        yield Sleep(min(pause * spread, patience - waited))
        pause = min(2 * pause, _POLL_LAST_S)
        value = yield call(client, "get", key, default=_MISSING)
        if value is not _MISSING:
            return value


def _look(client: Any, key: Key, lease: Lease) -> Plan[tuple[Any, float | None]]:
    """Return the value and its seconds left; those are asked for only where they matter."""
    if not lease.stale and not lease.early:
        return (yield call(client, "get", key, default=_MISSING)), None
    found = yield call(client, "get_with_meta", key)
    return (_MISSING, None) if found is None else (found.value, found.ttl)


def _fill(client: Any, key: Key, lease: Lease, make: Callable[[], Any], old: Any) -> Plan[Any]:
    """Make the value while holding the lease, and give the lease back whatever happens."""
    begin = time.monotonic()
    try:
        # Between our look and our lease another may have filled and left.
        if old is _MISSING:
            found = yield call(client, "get", key, default=_MISSING)
            if found is not _MISSING:
                return found
        return (yield from _make_and_store(client, key, lease, make))
    except Exception:
        if lease.stale_if_error and old is not _MISSING:
            return old
        raise
    finally:
        # A lease that ran out may be another's by now.
        if time.monotonic() - begin < lease.lease:
            yield call(client, "delete", lease_key(key))


def _make_and_store(client: Any, key: Key, lease: Lease, make: Callable[[], Any]) -> Plan[Any]:
    value = yield Make(make)
    ttl = lease.ttl_of(value)
    if ttl != 0:
        yield call(client, "set", key, value, ttl=ttl)
    return value


class SyncLeases:
    """`get_or_set` for a client that blocks."""

    def get_or_set(
        self,
        key: Key,
        make: Callable[[], T],
        ttl: Ttl | None = None,
        *,
        stale: float = 0,
        lease: float = 5,
        wait: float | None = None,
        early: float = 0,
        none_ttl: Ttl | None = None,
        stale_if_error: bool = False,
    ) -> T:
        """Return the value under key, or make it, store it and return it.

        On a cold key one caller among all processes makes the value while the others wait for it.
        In the `stale` seconds after `ttl` one caller makes a new value while the others get the old
        one at once.

        Args:
            key: as for `get`.
            make: called without arguments, in at most one process at a time while its lease lasts.
            ttl: seconds for which the value is fresh; None for ever.
            stale: seconds after `ttl` in which one caller refills and the others take the old value.
            lease: seconds that the filler has before another may try.
            wait: seconds to wait for another's value before making it oneself; None takes `lease`.
            early: seconds that making usually takes, to refill now and then before the time.
            none_ttl: ttl of a None; None takes `ttl`, 0 does not store it.
            stale_if_error: return the old value when making a new one fails.

        Raises:
            What `make` raises, and what `get` and `set` raise.

        """
        return self.get_or_set_by(
            key, make, Lease(ttl, stale, lease, wait, early, none_ttl, stale_if_error)
        )

    def get_or_set_by(self, key: Key, make: Callable[[], T], lease: Lease) -> T:
        """`get_or_set` with its settings in one object."""
        return cast("T", carry_out(_plan(self, key, lease, make)))

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

    def invalidate_tag(self, tag: str) -> None:
        """Throw away every value of a tag."""
        from glasscache.tags import invalidate_tag  # noqa: PLC0415 - likewise

        invalidate_tag(self, tag)


class AsyncLeases:
    """`get_or_set` for a client that is awaited."""

    @overload
    async def get_or_set(
        self,
        key: Key,
        make: Callable[[], Awaitable[T]],
        ttl: Ttl | None = None,
        *,
        stale: float = 0,
        lease: float = 5,
        wait: float | None = None,
        early: float = 0,
        none_ttl: Ttl | None = None,
        stale_if_error: bool = False,
    ) -> T: ...

    @overload
    async def get_or_set(
        self,
        key: Key,
        make: Callable[[], T],
        ttl: Ttl | None = None,
        *,
        stale: float = 0,
        lease: float = 5,
        wait: float | None = None,
        early: float = 0,
        none_ttl: Ttl | None = None,
        stale_if_error: bool = False,
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
        early: float = 0,
        none_ttl: Ttl | None = None,
        stale_if_error: bool = False,
    ) -> T:
        """Return the value under key, or make it, store it and return it, as `SyncLeases.get_or_set`.

        `make` may be a function or a coroutine function.
        """
        return await self.get_or_set_by(
            key, make, Lease(ttl, stale, lease, wait, early, none_ttl, stale_if_error)
        )

    async def get_or_set_by(
        self, key: Key, make: Callable[[], Awaitable[T] | T], lease: Lease
    ) -> T:
        """`get_or_set` with its settings in one object."""
        return cast("T", await carry_out_async(_plan(self, key, lease, make)))

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

    async def invalidate_tag(self, tag: str) -> None:
        """Throw away every value of a tag."""
        from glasscache.tags import invalidate_tag_async  # noqa: PLC0415 - likewise

        await invalidate_tag_async(self, tag)
