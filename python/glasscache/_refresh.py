"""When `get_or_set` refills a value: the settings of a refill, and the rule for one before the end.

With `early=True` a value is stored with the moment and the cost of its making, so that every process knows
both (docs/decisions/values.md, 0092).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

if TYPE_CHECKING:
    from glasscache._types import Item, Ttl

__all__ = ["GetOrSetOptions", "GetOrSetSettings", "seconds_of"]

_CLOCK_SKEW_MAX_S: Final = 2
"""The clocks of two machines may differ by so much before the server's whole seconds count instead."""


class GetOrSetSettings(TypedDict, total=False):
    """The keywords of `get_or_set`, as `GetOrSetOptions` explains them."""

    stale: float
    lease: float
    wait: float | None
    early: float | bool
    none_ttl: Ttl | None
    stale_if_error: bool
    split: bool


class GetOrSetOptions(NamedTuple):
    """The settings of `get_or_set`: how a cold or stale key is refilled.

    Attributes:
        ttl: seconds for which a value is fresh; None for ever.
        stale: seconds beyond, in which one caller refills and the others take the old value.
        lease: seconds that the filler has before another may take over; then the value of that one is stored.
        wait: seconds to wait for another's value before making it oneself; None takes `lease`.
        early: refill a fresh value now and then shortly before its end, the likelier the closer and the
            longer making takes: True for as long as it took the last time, or a number of seconds.
        none_ttl: ttl of a None; None takes `ttl`, 0 does not store it.
        stale_if_error: return the old value when making a new one fails.
        split: store a long value in pieces, as `set` with split.

    """

    ttl: Ttl | None
    stale: float = 0
    lease: float = 5
    wait: float | None = None
    early: float | bool = 0
    none_ttl: Ttl | None = None
    stale_if_error: bool = False
    split: bool = False

    @property
    def extra_ttl_s(self) -> int:
        """Seconds that a value with compute info is stored beyond its life, to be refilled and not served.

        Servers count whole seconds, and a value of two seconds may be gone after one.
        """
        return 1 + math.ceil(self.lease)

    def fresh_seconds_left(self, item: Item, now: float) -> float | None:
        """Return the seconds for which an item is still fresh, below 0 if it is not; None: it never ends."""
        if item.ttl is None or item.ttl < 0:
            return None
        remaining_s, fresh_s = item.ttl - self.stale, self._fresh_seconds(item.value)
        if item.compute_info is None or fresh_s is None:
            return remaining_s
        # Clocks of two machines differ; the whole seconds that the server has left bound by how much.
        computed_at, _ = item.compute_info
        remaining_s, by_compute_time_s = (
            remaining_s - self.extra_ttl_s,
            computed_at + fresh_s - now,
        )
        return min(
            max(by_compute_time_s, remaining_s - _CLOCK_SKEW_MAX_S), remaining_s + _CLOCK_SKEW_MAX_S
        )

    def is_due_for_refresh(
        self, remaining_s: float | None, random_fraction: float, cost: float = 0
    ) -> bool:
        """Return whether a value should be refilled that is fresh for `remaining_s`.

        Vattani et al., "Optimal Probabilistic Cache Stampede Prevention", 2015.

        Args:
            remaining_s: what `fresh_seconds_left` returned.
            random_fraction: a random number in (0, 1].
            cost: seconds that making it took, as it was stored.

        """
        if remaining_s is None:
            return False
        seconds = cost if self.early is True else self.early
        return remaining_s <= (-seconds * math.log(random_fraction) if seconds else 0)

    def _fresh_seconds(self, value: object) -> float | None:
        ttl = self.none_ttl if value is None and self.none_ttl is not None else self.ttl
        return seconds_of(ttl)

    def stored_ttl(self, value: object) -> float | None:
        """Return the life of `value`, its stale time included; 0 for one that is not stored."""
        fresh_s = self._fresh_seconds(value)
        if fresh_s is None or fresh_s == 0:
            return fresh_s
        return fresh_s + self.stale


def seconds_of(ttl: Ttl | None) -> float | None:
    """Return the seconds of a ttl that may be a timedelta."""
    any_ttl: Any = ttl
    seconds: float | None = (
        any_ttl.total_seconds() if hasattr(any_ttl, "total_seconds") else any_ttl
    )
    return seconds
