"""One filler for a cold key, stale values for the rest: `get_or_set` of both clients.

On a cold key the filler stores a reservation under the key itself: an item that clients of this package read
as a miss and others as None. The value replaces it by compare-and-swap, so no value is stored that any client
deleted, overwrote or flushed while it was made (docs/decisions/client.md, 0058). A
stored item is kept `stale` seconds beyond its TTL; how much is left is read with it, so that a hit costs one
round trip, and its refill is stored by compare-and-swap too. What to do is decided here by steps, which the
methods of the clients carry out (`glasscache._get_or_set`).
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any, Final

from glasscache._key_lease import KeyLease
from glasscache._native import ComputedValue
from glasscache._steps import (
    Acquire,
    CallFunction,
    Release,
    Sleep,
    carry_out,
    carry_out_async,
)
from glasscache._steps import (
    package_call as call,
)
from glasscache._types import Item
from glasscache.errors import ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache._refresh import GetOrSetOptions
    from glasscache._steps import Steps

Key = str | bytes

_MISSING: Final = object()
_LEASE_PREFIX: Final = "~lease:"
_KEY_BYTES_MAX: Final = 16
"""Longer keys are hashed in the name of their lease, which has 23 bytes at most: where a long key fits behind
a namespace, its lease does."""
_TOKEN_BYTES: Final = 16
"""Of a reservation: random bytes, and its life in seconds, by which others see how old it is."""
_RESERVATION_MIN_S: Final = 60
_LEASES_PER_RESERVATION: Final = 10
"""A reservation lives for ten leases, a minute at least: the longest that a single filler may take."""
_POLL_FIRST_S: Final = 0.002
_POLL_LAST_S: Final = 0.05


def lease_key(key: Key) -> str:
    """Return the key of the lease of `key`."""
    key_bytes = key.encode() if isinstance(key, str) else key
    if len(key_bytes) <= _KEY_BYTES_MAX:
        try:
            return _LEASE_PREFIX + key_bytes.decode()
        except UnicodeDecodeError:
            pass
    import hashlib  # noqa: PLC0415 - importing the package does not pay for it

    # Two keys with one hash would wait for each other now and then, no more.
    return _LEASE_PREFIX + hashlib.blake2b(key_bytes, digest_size=8).hexdigest()


def _get_or_set_steps(
    client: Any, key: Key, options: GetOrSetOptions, make: Callable[[], Any]
) -> Steps[Any]:
    """Do one `get_or_set` (as steps)."""
    if not callable(make):
        raise TypeError(
            f"get_or_set makes the value by calling a function: write lambda: {make!r:.40}, or call add"
        )
    import random  # noqa: PLC0415 - likewise

    random_fraction = 1 - random.random()  # noqa: S311 - spreads refills
    item = yield from _read_item(client, key, options)
    if item is not None and item.cas is None and _is_due(item, options, random_fraction):
        # What the process holds is due: a refill needs what the server has.
        item = yield call(client, "get_with_meta", key)
    if item is None:
        fill_steps = _cold_fill_steps if client._has_reservations else _unguarded_fill_steps
        return (yield from fill_steps(client, key, options, make))
    if _is_due(item, options, random_fraction):
        return (yield from _refresh_steps(client, key, options, make, item))
    return item.value


def _is_due(item: Item, options: GetOrSetOptions, random_fraction: float) -> bool:
    _, cost_s = item.compute_info or (0.0, 0.0)
    remaining_s = options.fresh_seconds_left(item, time.time())
    return options.is_due_for_refresh(remaining_s, random_fraction, cost_s)


def _read_item(client: Any, key: Key, options: GetOrSetOptions) -> Steps[Item | None]:
    """Return what is stored; how much of its life is left is requested only where that matters."""
    needs_life = options.stale or options.early
    if needs_life and not _is_held_after_read(client, key):
        item: Item | None = yield call(client, "get_with_meta", key)
        return item
    value = yield call(client, "get", key, default=_MISSING)
    if value is _MISSING:
        return None
    if not needs_life:
        return Item(value, None, None, None, None, False, 0)
    if (life := client._state.near_life(key)) is None:
        item = yield call(client, "get_with_meta", key)
        return item
    seconds_left, compute_info = life
    ttl = None if seconds_left < 0 else int(seconds_left)
    return Item(value, None, ttl, None, None, False, 0, compute_info)


def _is_held_after_read(client: Any, key: Key) -> bool:
    """Whether a strategy serves a read of the key, and holds the value with its TTL."""
    scopes = getattr(client, "_scopes", None)
    return scopes is not None and bool(client._state.holds_reads_of(key))


def _refresh_steps(
    client: Any, key: Key, options: GetOrSetOptions, make: Callable[[], Any], item: Item
) -> Steps[Any]:
    """Refill a value that is due, unless another caller does; then take the old value while allowed."""
    began_at = time.monotonic()
    pause_s = _POLL_FIRST_S
    lease = KeyLease(client, lease_key(key), max(1, math.ceil(options.lease)))
    while not (yield from lease.acquire()):
        remaining_s = options.fresh_seconds_left(item, time.time())
        if remaining_s is None or remaining_s > -options.stale or item.compute_info is None:
            return item.value
        waited_s = time.monotonic() - began_at
        if waited_s >= (options.lease if options.wait is None else options.wait):
            return (yield CallFunction(make))
        yield Sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_LAST_S)
        reread_item = yield from _read_item(client, key, options)
        if reread_item is None or reread_item.cas != item.cas:
            return (yield from _get_or_set_steps(client, key, options, make))
    try:
        value, cost_s = yield from _time_make(make)
        ttl = options.stored_ttl(value)
        if ttl != 0 and item.cas is not None:
            yield from _store_value(client, "cas", key, value, item.cas, options, cost_s)
    except Exception:
        if options.stale_if_error:
            return item.value
        raise
    finally:
        yield from lease.release()
    return value


def _time_make(make: Callable[[], Any]) -> Steps[tuple[Any, float]]:
    """Return the value and the seconds that making it took."""
    began_at = time.monotonic()
    value = yield CallFunction(make)
    return value, time.monotonic() - began_at


def _cold_fill_steps(
    client: Any, key: Key, options: GetOrSetOptions, make: Callable[[], Any]
) -> Steps[Any]:
    """Compute the value of a key without one, or wait for another filler."""
    import random  # noqa: PLC0415 - likewise

    began_at = time.monotonic()
    wait_s = options.lease if options.wait is None else options.wait
    pause_s = _POLL_FIRST_S
    while True:
        was_reserved, cas_unique = yield from _reserve(client, key, options)
        if cas_unique is not None:
            return (yield from _fill(client, key, options, make, cas_unique))
        if was_reserved is None:
            return (
                yield CallFunction(make)
            )  # the server failed, and this client's errors are misses
        waited_s = time.monotonic() - began_at
        if waited_s >= wait_s:
            cas_unique = yield from _replace_expired_reservation(client, key, options, waited_s)
            if cas_unique is None:
                return (yield CallFunction(make))
            return (yield from _fill(client, key, options, make, cas_unique))
        jitter = 0.5 + random.random()  # noqa: S311 - spreads clients
        yield Sleep(min(pause_s * jitter, wait_s - waited_s))
        pause_s = min(2 * pause_s, _POLL_LAST_S)
        value = yield call(client, "get", key, default=_MISSING)
        if value is not _MISSING:
            return value


def _unguarded_fill_steps(
    client: Any, key: Key, options: GetOrSetOptions, make: Callable[[], Any]
) -> Steps[Any]:
    """Do as `_cold_fill_steps` in a dialect whose other readers would take a reservation for a value.

    The right to fill is an `add` of a sibling key. A write of the key meanwhile keeps the value out, for it
    is stored by `add` too; a removal does not.
    """
    began_at = time.monotonic()
    wait_s = options.lease if options.wait is None else options.wait
    pause_s = _POLL_FIRST_S
    lease = KeyLease(client, lease_key(key), max(1, math.ceil(options.lease)))
    while not (has_lease := (yield from lease.acquire_or_skip())):
        waited_s = time.monotonic() - began_at
        if has_lease is None or waited_s >= wait_s:
            break
        yield Sleep(min(pause_s, wait_s - waited_s))
        pause_s = min(2 * pause_s, _POLL_LAST_S)
        value = yield call(client, "get", key, default=_MISSING)
        if value is not _MISSING:
            return value
    try:
        # Between our look and our lease another may have filled and left.
        value = yield call(client, "get", key, default=_MISSING)
        if value is _MISSING:
            value, cost_s = yield from _time_make(make)
            if options.stored_ttl(value) != 0:
                yield from _store_value(client, "add", key, value, None, options, cost_s)
        return value
    finally:
        if has_lease:
            yield from lease.release()


def _reserve(
    client: Any, key: Key, options: GetOrSetOptions, replaced_cas_unique: int | None = None
) -> Steps[tuple[bool | None, int | None]]:
    """Return whether a reservation was stored, and its unique if it is still this caller's."""
    lifetime_s = max(_RESERVATION_MIN_S, _LEASES_PER_RESERVATION * math.ceil(options.lease))
    token = os.urandom(_TOKEN_BYTES - 4) + lifetime_s.to_bytes(4, "big")

    def reserve() -> Steps[tuple[bool | None, int | None]]:
        was_reserved = yield call(client, "_reserve", key, token, lifetime_s, replaced_cas_unique)
        cas_unique = (
            (yield from _unique_of_reservation(client, key, token)) if was_reserved else None
        )
        return was_reserved, cas_unique

    def give_back() -> Steps[None]:
        cas_unique = yield from _unique_of_reservation(client, key, token)
        if cas_unique is not None:
            yield from _remove_reservation(client, key, cas_unique)

    reserved: tuple[bool | None, int | None] = yield Acquire(reserve(), give_back)
    return reserved


def _unique_of_reservation(client: Any, key: Key, token: bytes) -> Steps[int | None]:
    """Return the unique of the reservation with a token; None if that is not what the key holds."""
    reservation = yield call(client, "_reservation", key)
    return None if reservation is None or reservation[0] != token else int(reservation[1])


def _remove_reservation(client: Any, key: Key, cas_unique: int) -> Steps[None]:
    """Store with a life that is over: a removal on the condition that the reservation is still there."""
    yield call(client, "cas", key, b"", cas_unique, ttl=-1)


def _replace_expired_reservation(
    client: Any, key: Key, options: GetOrSetOptions, waited_s: float
) -> Steps[int | None]:
    """Replace the reservation of a filler that has had its time; return the unique of the new one."""
    reservation = yield call(client, "_reservation", key)
    if reservation is None:
        return None
    token, cas_unique, remaining_s = reservation
    # Classic text does not report what is left: there this caller's own wait counts.
    age_s = waited_s if remaining_s is None else int.from_bytes(token[-4:], "big") - remaining_s
    if age_s < options.lease:
        return None
    _, new_cas_unique = yield from _reserve(client, key, options, cas_unique)
    return new_cas_unique


def _fill(
    client: Any, key: Key, options: GetOrSetOptions, make: Callable[[], Any], cas_unique: int
) -> Steps[Any]:
    """Make the value while holding the reservation, which is removed whatever happens."""
    is_reserved = True
    try:
        value, cost_s = yield from _time_make(make)
        if options.stored_ttl(value) != 0:
            is_stored = yield from _store_value(
                client, "cas", key, value, cas_unique, options, cost_s
            )
            is_reserved = not is_stored
        return value
    finally:
        if is_reserved:
            yield Release(_remove_reservation(client, key, cas_unique))


def renew_steps(
    client: Any, key: Key, options: GetOrSetOptions, make: Callable[[], Any]
) -> Steps[Any]:
    """Make a value whatever is stored, and store it unless its key was changed meanwhile (as steps)."""
    value_and_cas = yield call(client, "gets", key)
    cas_unique: int | None = None
    if value_and_cas is not None:
        _, cas_unique = value_and_cas
    elif client._has_reservations:
        was_reserved, cas_unique = yield from _reserve(client, key, options)
        if cas_unique is not None:
            return (yield from _fill(client, key, options, make, cas_unique))
        # Another caller is making the value: this one began later, and replaces what it reserved.
        reservation = (yield call(client, "_reservation", key)) if was_reserved is False else None
        if reservation is None:
            return (yield CallFunction(make))
        _, cas_unique, _ = reservation
    value, cost_s = yield from _time_make(make)
    if options.stored_ttl(value) != 0:
        method_name = "add" if cas_unique is None else "cas"
        yield from _store_value(client, method_name, key, value, cas_unique, options, cost_s)
    elif cas_unique is not None:
        yield call(client, "delete", key)
    return value


def value_to_store(
    client: Any, value: Any, options: GetOrSetOptions, cost_s: float
) -> Steps[tuple[Any, float | None]]:
    """Return what is stored for a value that took `cost_s` seconds to make, and its life on the server."""
    from glasscache import _split  # noqa: PLC0415 - only programs that make values pay for it

    ttl = options.stored_ttl(value)
    has_compute_info = options.early is True and ttl is not None and client.codec.dialect == "own"
    if has_compute_info and ttl is not None:
        ttl = math.ceil(ttl) + options.extra_ttl_s
    stored_value = (
        (yield from _split.encode_or_split(client, value, ttl)) if options.split else value
    )
    return (
        ComputedValue(stored_value, time.time(), cost_s) if has_compute_info else stored_value
    ), ttl


def _store_value(
    client: Any,
    method_name: str,
    key: Key,
    value: Any,
    cas_unique: int | None,
    options: GetOrSetOptions,
    cost_s: float,
) -> Steps[bool]:
    """Store a value by `add`, or by `cas` unless its key was changed since the unique was read.

    One above the limit of a server is not stored: the caller has what was made.
    """
    try:
        stored_value, ttl = yield from value_to_store(client, value, options, cost_s)
        arguments = (key, stored_value) if cas_unique is None else (key, stored_value, cas_unique)
        is_stored = (yield call(client, method_name, *arguments, ttl=ttl)) is True
    except ValueTooLarge as error:
        import logging  # noqa: PLC0415 - likewise

        logging.getLogger("glasscache").warning("made and not stored: %s", error)
        client._count_unstored()
        return False
    if not is_stored:
        client._count_unstored()
        if options.split:
            from glasscache import _split  # noqa: PLC0415 - likewise

            yield from _split.discard_pieces(client, stored_value)
    return is_stored


def get_or_set(client: Any, key: Key, make: Callable[[], Any], options: GetOrSetOptions) -> Any:
    """Do one `get_or_set` of a client that blocks."""
    return carry_out(_get_or_set_steps(client, key, options, make))


async def get_or_set_async(
    client: Any, key: Key, make: Callable[[], Any], options: GetOrSetOptions
) -> Any:
    """Do one `get_or_set` of a client that is awaited."""
    return await carry_out_async(_get_or_set_steps(client, key, options, make))
