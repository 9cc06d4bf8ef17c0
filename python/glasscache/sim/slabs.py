"""memcached's slab classes: what they cost for given sizes, and the best that can be had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from glasscache import _native
from glasscache.errors import BadSetting
from glasscache.sim._numbers import whole_numbers

if TYPE_CHECKING:
    from glasscache.sim._numbers import Numbers


@dataclass(frozen=True)
class SlabConfig:
    """The settings of memcached that decide its slab classes; the defaults are memcached's own."""

    factor: float = 1.25
    """-f: each chunk size is the one before times this; above 1."""
    chunk: int = 48
    """-n: least space for key, value and flags, in bytes."""
    item_max: int = 1 << 20
    """-I: the largest item, in bytes."""
    slab_chunk_max: int = 512 << 10
    """-o slab_chunk_max, in bytes."""
    slab_sizes: tuple[int, ...] | None = None
    """-o slab_sizes: chunk sizes by hand, ascending, instead of factor and chunk."""


class SlabPlan(NamedTuple):
    """What slab classes cost for given sizes."""

    chunk_sizes: list[int]
    """Bytes of a chunk of each class, ascending, class 1 first."""
    used_classes: int
    """Classes with a demand."""
    waste: float
    """The share of the memory that holds no byte of an item, 0 to 1, the tails of pages included."""
    items_that_fit: int
    """How many items of this mix the memory holds before memcached evicts."""
    refused: int
    """Items above `item_max`, which are left out."""
    trap_above: int | None
    """Bytes above which a small factor has no class left but that of the largest chunk; None: no trap."""


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
    sizes: Numbers,
    counts: Numbers | None = None,
    *,
    classes: int = 62,
    key_bytes: int = 30,
    config: SlabConfig | None = None,
) -> list[int]:
    """Return the chunk sizes that waste least, exactly: the list for `-o slab_sizes`.

    Args:
        sizes: bytes of values, shape (n,), 0 to 2**32 - 1.
        counts: how many values have each size, shape (n,), 0 to 2**32 - 1; None is one each.
        classes: how many there may be, 1 to 62.
        key_bytes: bytes of each key, 1 to 250.
        config: the other settings (`chunk`, `item_max`, `slab_chunk_max`).

    Raises:
        BadSetting: arguments out of range, or no item that memcached would take.

    """
    if not 1 <= classes <= 62:  # noqa: PLR2004
        raise BadSetting(f"{classes} classes by hand: memcached takes 1 to 62")
    return _native.slab_optimum(
        whole_numbers(sizes, "sizes"),
        None if counts is None else whole_numbers(counts, "counts"),
        settings=_native_settings(config),
        key_bytes=_checked_key_bytes(key_bytes),
        classes=classes,
    )


def slab_plan(
    sizes: Numbers,
    counts: Numbers | None = None,
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
        memory: bytes for which `items_that_fit` counts.
        config: memcached's settings.

    Raises:
        BadSetting: arguments out of range, or no item that memcached would take.

    >>> from glasscache import sim
    >>> before = sim.slab_plan([300, 1000], [5, 1])
    >>> by_hand = sim.SlabConfig(slab_sizes=tuple(sim.optimal_slab_sizes([300, 1000], [5, 1])))
    >>> sim.slab_plan([300, 1000], [5, 1], config=by_hand).waste < before.waste
    True

    """
    if not 0 <= memory < 2**64:
        raise BadSetting(f"a memory of {memory} bytes: it must be at least 0")
    row = _native.slab_plan(
        whole_numbers(sizes, "sizes"),
        None if counts is None else whole_numbers(counts, "counts"),
        settings=_native_settings(config),
        key_bytes=_checked_key_bytes(key_bytes),
        memory_bytes=int(memory),
    )
    return SlabPlan(*row)


def _native_settings(config: SlabConfig | None) -> tuple[float, int, int, int, list[int] | None]:
    """Return the settings as the native module takes them."""
    config = config or SlabConfig()
    sizes = None if config.slab_sizes is None else list(config.slab_sizes)
    byte_settings = [config.chunk, config.item_max, config.slab_chunk_max, *(sizes or ())]
    if invalid_settings := [number for number in byte_settings if not 0 <= number < 2**32]:
        raise BadSetting(f"{invalid_settings[0]} bytes: a setting of memcached is 0 to 4294967295")
    return (config.factor, config.chunk, config.item_max, config.slab_chunk_max, sizes)


def _checked_key_bytes(key_bytes: int) -> int:
    if not 1 <= key_bytes <= 250:  # noqa: PLR2004
        raise BadSetting(f"keys of {key_bytes} bytes: a key has 1 to 250")
    return key_bytes
