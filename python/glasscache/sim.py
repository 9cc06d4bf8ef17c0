"""The lab's computations: miss-ratio curves, memcached's slab classes, and what requests would have waited.

All of it runs in native code without the interpreter lock, on all cores, and touches no server. What each
policy and each strategy does, to the request, is told in the project's docs/reference/formats.md; the command
`glasscache` prints the same results as tables and pages.

>>> from glasscache import sim
>>> for point in sim.curve([1, 2, 3, 1, 2, 3, 1, 2], policies=["LRU", "Belady"], capacities=[2, 3]):
...     print(point.policy, point.capacity, point.misses, point.miss_ratio)
LRU 2 8 1.0
LRU 3 3 0.375
Belady 2 5 0.625
Belady 3 3 0.375
"""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict, cast

from glasscache import _native
from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence
    from typing import Any, Literal, TypeAlias

    from typing_extensions import Buffer

    Keys: TypeAlias = str | os.PathLike[str] | Buffer | Sequence[Hashable]
    Numbers: TypeAlias = Buffer | Sequence[int]

__all__ = [
    "Band",
    "Figures",
    "LruCurve",
    "Outcome",
    "Point",
    "SlabConfig",
    "SlabPlan",
    "Trace",
    "curve",
    "lru_curve",
    "optimal_slab_sizes",
    "simulate",
    "slab_classes",
    "slab_plan",
]

SHARES = (0.001, 0.01, 0.05, 0.1, 0.2)
"""The capacities of a curve where none are given, as shares of the footprint."""

SEEDS = 8
"""Samples that a sampled curve is the mean of."""


class Point(NamedTuple):
    """One policy at one capacity."""

    policy: str
    """Its name as in `glasscache curve`."""
    mode: str
    """What an object counts: 1 ("objects") or its bytes ("bytes")."""
    capacity: int
    """In objects or bytes."""
    requests: int
    """Requests replayed, from an empty cache."""
    misses: int
    """Those that missed, first uses included."""
    miss_ratio: float
    """misses / requests, 0 to 1."""
    byte_miss_ratio: float | None
    """Missed bytes / requested bytes, 0 to 1; None in "objects"."""


class Band(NamedTuple):
    """A miss ratio with the spread of the samples; all three are one number where the curve is exact."""

    mean: float
    low: float
    high: float


class Trace:
    """A key stream, read and numbered once, that any number of curves may use."""

    def __init__(
        self,
        trace: Keys,
        sizes: Numbers | None = None,
        *,
        mode: Literal["objects", "bytes"] | None = None,
    ) -> None:
        """Read or take the requests, in their order.

        Args:
            trace: the path of a key stream (.parquet, .csv, .jsonl), or one key a request: a NumPy array or
                other buffer of whole numbers, shape (n,), or any sequence of hashable keys.
            sizes: bytes of the value of each request, shape (n,), 0 to 2**32 - 1; not with a path.
            mode: "objects", every object counts 1, or "bytes", an object is a key with a size and counts its
                bytes (0 counts 1). None is "bytes" where `sizes` is given and "objects" elsewhere.

        Raises:
            BadTrace: the file cannot be read as a key stream; says file, row and column.
            BadSetting: keys and sizes that are no numbers, out of range, or not equally many.
            OSError: the file cannot be opened.

        """
        if isinstance(trace, (str, os.PathLike)):
            if sizes is not None:
                raise BadSetting("sizes of a file stand in its own column: leave `sizes` out")
            self._native = _native.Trace.read(os.fspath(trace), mode or "objects")
            return
        if mode == "bytes" and sizes is None:
            raise BadSetting('mode "bytes" needs `sizes`, one for each key')
        counted = None if sizes is None or mode == "objects" else _numbers(sizes, "sizes")
        self._native = _native.Trace.of_arrays(_keys(trace), counted)

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return self._native.requests

    @property
    def distinct(self) -> int:
        """How many distinct objects they ask for."""
        return self._native.distinct

    @property
    def footprint(self) -> int:
        """What all objects count together: the capacity at which only first uses miss."""
        return self._native.footprint

    @property
    def mode(self) -> str:
        """What an object counts: "objects" (1) or "bytes"."""
        return self._native.mode

    @property
    def without_size(self) -> int:
        """Requests that are left out since their size is unknown; only in "bytes"."""
        return self._native.without_size

    @property
    def is_cut(self) -> bool:
        """Whether the file ended within a row, which is left out."""
        return self._native.is_cut

    def curve(
        self,
        *,
        policies: Iterable[str] = ("LRU",),
        capacities: Iterable[float] = SHARES,
        seed: int = 1,
        threads: int = 0,
    ) -> list[Point]:
        """Return a point for each policy at each capacity, as `curve` does."""
        sizes = [self._capacity(capacity) for capacity in capacities]
        rows = self._native.replay(list(policies), sizes, seed=seed, threads=threads)
        return [Point(row[0], self.mode, *row[1:]) for row in rows]

    def lru_curve(self, *, sample: int | None = None, seed: int = 1, threads: int = 0) -> LruCurve:
        """Return LRU's miss ratio at every size, as `lru_curve` does."""
        if sample is not None and sample < 1:
            raise BadSetting(f"a sample of {sample} keys: it must have at least 1")
        seeds = [(seed + at) % 2**64 for at in range(SEEDS)]
        native = self._native.lru(sample=sample, seeds=seeds, threads=threads)
        return LruCurve(native, self.footprint)

    def _capacity(self, capacity: float) -> int:
        """Return a capacity in objects or bytes; a float is a share of the footprint, rounded half up."""
        if isinstance(capacity, float):
            if not 0.0 < capacity <= 1.0:
                raise BadSetting(
                    f"a capacity of {capacity}: a float is a share, above 0 and at most 1"
                )
            return max(1, int(self.footprint * capacity + 0.5))
        if not 0 < capacity < 2**64:
            raise BadSetting(f"a capacity of {capacity}: it must be at least 1")
        return int(capacity)


class LruCurve:
    """LRU's miss ratio as a function of the cache's size."""

    def __init__(self, native: _native.Curve, footprint: int) -> None:
        """Keep the native curve; `Trace.lru_curve` makes them."""
        self._native = native
        self._footprint = footprint

    def miss_ratio(self, size: int) -> float:
        """Return the miss ratio, 0 to 1, of a cache of so many objects or bytes."""
        return self.band(size).mean

    def band(self, size: int) -> Band:
        """Return the miss ratio at a size with the lowest and highest of the samples."""
        if not 0 <= size < 2**64:
            raise BadSetting(f"a size of {size}: it must be at least 0")
        return Band(*self._native.band(int(size)))

    def size_for(self, miss_ratio: float) -> int | None:
        """Return the least size with at most this miss ratio, or None if first uses alone exceed it."""
        return self._native.size_for(miss_ratio)

    def knee(self) -> int | None:
        """Return the size where the curve bends most, or None if it is straight."""
        return self._native.knee()

    def points(self, count: int = 100) -> list[tuple[int, float]]:
        """Return (size, miss ratio) at up to `count` + 1 sizes from 0 to the footprint, evenly spaced."""
        if count < 1:
            raise BadSetting(f"{count} points: there must be at least 1")
        return [(size, self.miss_ratio(size)) for size in self._native.sizes(count)]


def curve(
    trace: Keys | Trace,
    sizes: Numbers | None = None,
    *,
    mode: Literal["objects", "bytes"] | None = None,
    policies: Iterable[str] = ("LRU",),
    capacities: Iterable[float] = SHARES,
    seed: int = 1,
    threads: int = 0,
) -> list[Point]:
    """Return a point for each policy at each capacity, replayed from an empty cache.

    Args:
        trace: a `Trace`, or what makes one: a path, an array or a sequence of keys.
        sizes: bytes of each request's value, as for `Trace`.
        mode: "objects" or "bytes", as for `Trace`.
        policies: names in any case, hyphens optional: LRU, FIFO, Clock, LFU, SIEVE, S3-FIFO, ARC, 2Q, SLRU,
            LIRS, W-TinyLFU, LHD, LeCaR, GDSF; with knowledge of the future Belady, Belady-bypass, BeladySize.
        capacities: an int is objects or bytes, at least 1; a float is a share of the footprint, above 0 to 1.
        seed: of the policies that draw lots (LHD, LeCaR, BeladySize).
        threads: 0 is one a core.

    Returns:
        The points, capacities within policies, both in the order given.

    Raises:
        BadSetting: an unknown policy or a capacity that is none.
        BadTrace, OSError: as for `Trace`.

    """
    whole = _trace(trace, sizes, mode)
    return whole.curve(policies=policies, capacities=capacities, seed=seed, threads=threads)


def lru_curve(
    trace: Keys | Trace,
    sizes: Numbers | None = None,
    *,
    mode: Literal["objects", "bytes"] | None = None,
    sample: int | None = None,
    seed: int = 1,
    threads: int = 0,
) -> LruCurve:
    """Return LRU's miss ratio at every size, from one pass.

    Args:
        trace: a `Trace`, or what makes one.
        sizes: bytes of each request's value, as for `Trace`.
        mode: "objects" or "bytes", as for `Trace`.
        sample: None is exact (Mattson); a number draws the curve from so many keys (SHARDS), over eight
            seeds; 8192 keys give a mean error of about 0.001.
        seed: the first of the eight.
        threads: 0 is one a core.

    Raises:
        BadSetting, BadTrace, OSError: as for `Trace`.

    >>> bends = sim.lru_curve([1, 2, 3, 1, 2, 3, 1, 2])
    >>> bends.miss_ratio(3), bends.size_for(0.5)
    (0.375, 3)

    """
    return _trace(trace, sizes, mode).lru_curve(sample=sample, seed=seed, threads=threads)


@dataclass(frozen=True)
class SlabConfig:
    """The settings of memcached that decide its slab classes; the defaults are memcached's own."""

    factor: float = 1.25
    """-f: each chunk size is the one before times this; above 1."""
    chunk: int = 48
    """-n: least room for key, value and flags, in bytes."""
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
    """Classes that something asks for."""
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

    >>> sim.slab_classes(sim.SlabConfig(factor=2.0))[:5]
    [96, 192, 384, 768, 1536]

    """
    return _native.slab_classes(_settings(config))


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
        _numbers(sizes, "sizes"),
        None if counts is None else _numbers(counts, "counts"),
        settings=_settings(config),
        key_bytes=_key_bytes(key_bytes),
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

    >>> before = sim.slab_plan([300, 1000], [5, 1])
    >>> by_hand = sim.SlabConfig(slab_sizes=tuple(sim.optimal_slab_sizes([300, 1000], [5, 1])))
    >>> sim.slab_plan([300, 1000], [5, 1], config=by_hand).waste < before.waste
    True

    """
    if not 0 <= memory < 2**64:
        raise BadSetting(f"a memory of {memory} bytes: it must be at least 0")
    row = _native.slab_plan(
        _numbers(sizes, "sizes"),
        None if counts is None else _numbers(counts, "counts"),
        settings=_settings(config),
        key_bytes=_key_bytes(key_bytes),
        memory_bytes=int(memory),
    )
    return SlabPlan(*row)


class Figures(TypedDict):
    """What a strategy did over some requests: docs/reference/formats.md, "Results file"."""

    requests: int
    calls: int
    keys: int
    bytes: int
    used_keys: int
    added_ns: int
    """Nanoseconds waited, over all requests."""
    slowdown_pct: dict[str, float]
    """Percentiles "5" to "99.9" of added / base."""
    latency_ns_pct: dict[str, int]
    """The same percentiles of base + added."""
    share_slower: dict[str, float]
    """Share of requests with added / base of at least "0.1", "0.25", "0.5", "1"."""


class Outcome(TypedDict):
    """What a strategy did."""

    all: Figures
    second_half: Figures
    """Over the requests that no choice of a fixed set has seen."""
    kept: dict[str, int]
    """What each process keeps: fixed_items, fixed_bytes, local_bytes."""
    drawn: NotRequired[dict[str, Figures]]
    """With `draw_seed`: second_half with each call's latency drawn for itself."""
    drawn_comonotone: NotRequired[dict[str, Figures]]
    """With `draw_seed`: the same with all calls of a request sharing their luck, which bounds the tail."""


def simulate(
    log: str | os.PathLike[str],
    strategies: Iterable[str],
    *,
    latency: str | os.PathLike[str] | None = None,
    exclude: Iterable[str] = (),
    draw_seed: int | None = None,
    threads: int = 0,
) -> dict[str, Outcome]:
    """Return what the requests of a log would have waited under each strategy.

    Args:
        log: the folder of a request log (items and requests as .parquet or .jsonl).
        strategies: words such as "remote", "lru:206" or "fixed:206+children"; `glasscache simulate --help`
            lists them.
        latency: the latency table; None is latency.json in the folder.
        exclude: routes whose requests are left out, as if they had never been recorded.
        draw_seed: also draw latencies from the table's measured distribution, with the same luck for all.
        threads: 0 is one a core.

    Returns:
        An outcome for each strategy under its words, in the order given.

    Raises:
        BadSetting: an unknown strategy or route, a draw without a distribution, fewer than 2 requests.
        BadTrace: a file that cannot be read; says file, row and column.
        OSError: a file that cannot be opened.

    """
    folder, words = os.fspath(log), list(strategies)
    table = os.path.join(folder, "latency.json") if latency is None else os.fspath(latency)  # noqa: PTH118
    documents = _native.simulate(
        folder, words, latency=table, exclude=list(exclude), draw_seed=draw_seed, threads=threads
    )
    outcomes = [cast("Outcome", json.loads(document)) for document in documents]
    return dict(zip(words, outcomes, strict=True))


def _trace(
    trace: Keys | Trace, sizes: Numbers | None, mode: Literal["objects", "bytes"] | None
) -> Trace:
    """Return the trace, made if need be."""
    if not isinstance(trace, Trace):
        return Trace(trace, sizes, mode=mode)
    if sizes is not None or mode is not None:
        raise BadSetting("`sizes` and `mode` belong to the Trace: give them there")
    return trace


def _keys(keys: Buffer | Sequence[Hashable]) -> Buffer:
    """Return keys as numbers: whole numbers as they are, anything else numbered in the order of first use."""
    if _is_of_whole_numbers(keys):
        return cast("Buffer", keys)
    values = cast("Sequence[Hashable]", keys)
    try:
        return array("Q", cast("Sequence[int]", values))
    except (TypeError, OverflowError):
        number_of: dict[Hashable, int] = {}
        return array("Q", [number_of.setdefault(key, len(number_of)) for key in values])


def _numbers(values: Numbers, what: str) -> Buffer:
    """Return whole numbers from 0 as a buffer."""
    if _is_of_whole_numbers(values):
        return cast("Buffer", values)
    try:
        return array("Q", cast("Sequence[int]", values))
    except (TypeError, OverflowError) as error:
        raise BadSetting(f"{what}: {error}") from None


def _is_of_whole_numbers(values: Any) -> bool:
    """Whether a buffer holds whole numbers, as far as one can tell without a copy."""
    try:
        view = memoryview(values)
    except TypeError:
        return False
    return view.format.lstrip("@=<>!") in set("bBhHiIlLqQnN")


def _settings(config: SlabConfig | None) -> tuple[float, int, int, int, list[int] | None]:
    """Return the settings as the native module takes them."""
    config = config or SlabConfig()
    sizes = None if config.slab_sizes is None else list(config.slab_sizes)
    whole = [config.chunk, config.item_max, config.slab_chunk_max, *(sizes or ())]
    if wrong := [number for number in whole if not 0 <= number < 2**32]:
        raise BadSetting(f"{wrong[0]} bytes: a setting of memcached is 0 to 4294967295")
    return (config.factor, config.chunk, config.item_max, config.slab_chunk_max, sizes)


def _key_bytes(key_bytes: int) -> int:
    if not 1 <= key_bytes <= 250:  # noqa: PLR2004
        raise BadSetting(f"keys of {key_bytes} bytes: a key has 1 to 250")
    return key_bytes
