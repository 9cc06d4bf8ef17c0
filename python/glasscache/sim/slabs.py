"""memcached's slab classes: what they cost for given sizes, and the chunk sizes that waste least memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from glasscache import _native
from glasscache.errors import BadSetting
from glasscache.sim._numbers import to_integer_buffer

if TYPE_CHECKING:
    from glasscache.sim._numbers import IntegersLike


@dataclass(frozen=True)
class SlabConfig:
    """The settings of memcached that decide its slab classes; the defaults are memcached's own."""

    factor: float = 1.25
    """-f: the ratio of each chunk size to the previous one; above 1."""
    chunk: int = 48
    """-n, --slab-min-size: the least space for key, value and flags in a chunk, in bytes.

    It sets the size of the smallest chunk, which has the header of an item in addition.
    """
    item_max: int = 1 << 20
    """-I: the largest item, in bytes."""
    slab_chunk_max: int = 512 << 10
    """-o slab_chunk_max: the largest chunk, in bytes; larger items are cut into pieces."""
    slab_sizes: tuple[int, ...] | None = None
    """-o slab_sizes: an explicit list of chunk sizes, ascending, instead of `factor` and `chunk`."""


class SlabPlan(NamedTuple):
    """What slab classes cost for given sizes."""

    chunk_sizes: list[int]
    """Bytes of a chunk of each class, ascending, class 1 first."""
    used_classes: int
    """How many classes store at least one of the items."""
    waste: float
    """The share of the memory that holds no byte of an item, 0 to 1, the tails of pages included."""
    items_that_fit: int
    """How many items of this mix the memory holds before memcached evicts."""
    refused: int
    """Items above `item_max`, which are left out."""
    trap_above: int | None
    """The largest chunk size in bytes before a wide gap, if there is one.

    With a small `factor` the classes are used up early. Items above this size are then all stored in
    chunks of the largest size, more than four times as large, which wastes over 1 % of the memory.
    None without such a gap, or if it costs less.
    """


def slab_classes(config: SlabConfig | None = None) -> list[int]:
    """Return the chunk sizes in bytes that memcached makes of its settings, as `memcached -vv` prints them.

    Raises:
        BadSetting: memcached would refuse to start with these settings.

    >>> from glasscache import sim
    >>> sim.slab_classes(sim.SlabConfig(factor=2.0))[:5]
    [96, 192, 384, 768, 1536]

    """
    return _native.slab_classes(_native_settings(config))


def optimal_slab_sizes(
    sizes: IntegersLike,
    counts: IntegersLike | None = None,
    *,
    classes: int = 62,
    key_bytes: int = 30,
    config: SlabConfig | None = None,
) -> list[int]:
    """Return the chunk sizes that waste least, exactly: the list for `-o slab_sizes`.

    Args:
        sizes: bytes of values, shape (n,), 0 to 2**32 - 1.
        counts: how many values have each size, shape (n,), 0 to 2**32 - 1; None is one each.
        classes: how many classes there may be, 1 to 62.
        key_bytes: bytes of each key, 1 to 250.
        config: the other settings (`chunk`, `item_max`, `slab_chunk_max`).

    Raises:
        BadSetting: arguments out of range, or no item that memcached would take.

    """
    if not 1 <= classes <= 62:  # noqa: PLR2004
        raise BadSetting(f"{classes} classes by hand: memcached takes 1 to 62")
    return _native.slab_optimum(
        to_integer_buffer(sizes, "sizes"),
        None if counts is None else to_integer_buffer(counts, "counts"),
        settings=_native_settings(config),
        key_bytes=_checked_key_bytes(key_bytes),
        classes=classes,
    )


def slab_plan(
    sizes: IntegersLike,
    counts: IntegersLike | None = None,
    *,
    key_bytes: int = 30,
    memory: int = 1 << 30,
    config: SlabConfig | None = None,
) -> SlabPlan:
    """Return what memcached's classes cost for values of these sizes.

    Args:
        sizes: bytes of values, shape (n,), 0 to 2**32 - 1.
        counts: how many values have each size, shape (n,), 0 to 2**32 - 1; None is one each.
        key_bytes: bytes of each key, 1 to 250.
        memory: the memory of the server in bytes, for `items_that_fit`.
        config: memcached's settings.

    Raises:
        BadSetting: arguments out of range, or no item that memcached would take.

    >>> from glasscache import sim
    >>> default_plan = sim.slab_plan([300, 1000], [5, 1])
    >>> optimal = sim.SlabConfig(slab_sizes=tuple(sim.optimal_slab_sizes([300, 1000], [5, 1])))
    >>> sim.slab_plan([300, 1000], [5, 1], config=optimal).waste < default_plan.waste
    True

    """
    if not 0 <= memory < 2**64:
        raise BadSetting(f"a memory of {memory} bytes: it must be at least 0")
    plan_fields = _native.slab_plan(
        to_integer_buffer(sizes, "sizes"),
        None if counts is None else to_integer_buffer(counts, "counts"),
        settings=_native_settings(config),
        key_bytes=_checked_key_bytes(key_bytes),
        memory_bytes=int(memory),
    )
    return SlabPlan(*plan_fields)


def _native_settings(config: SlabConfig | None) -> tuple[float, int, int, int, list[int] | None]:
    """Return the settings as the native module takes them."""
    config = config or SlabConfig()
    chunk_sizes = None if config.slab_sizes is None else list(config.slab_sizes)
    byte_settings = [config.chunk, config.item_max, config.slab_chunk_max, *(chunk_sizes or ())]
    if invalid_settings := [setting for setting in byte_settings if not 0 <= setting < 2**32]:
        raise BadSetting(f"{invalid_settings[0]} bytes: a setting of memcached is 0 to 4294967295")
    return (config.factor, config.chunk, config.item_max, config.slab_chunk_max, chunk_sizes)


def _checked_key_bytes(key_bytes: int) -> int:
    if not 1 <= key_bytes <= 250:  # noqa: PLR2004
        raise BadSetting(f"keys of {key_bytes} bytes: a key has 1 to 250")
    return key_bytes
