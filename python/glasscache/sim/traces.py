"""Miss-ratio curves: a key stream, read once, and what each policy would miss of it."""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, NamedTuple, cast

from glasscache import _native
from glasscache.errors import BadSetting
from glasscache.sim._dask import Cluster
from glasscache.sim._numbers import is_integer_buffer, to_integer_buffer

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence
    from typing import Literal, TypeAlias

    from typing_extensions import Buffer

    from glasscache.sim._numbers import IntegersLike

    _Row: TypeAlias = tuple[str, int, int, int, float, float | None]
    Keys: TypeAlias = str | os.PathLike[str] | Buffer | Sequence[Hashable]

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
        sizes: IntegersLike | None = None,
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
            BadTrace: the file cannot be read as a key stream; names file, row and column.
            BadSetting: keys and sizes that are not numbers, out of range, or not equally many.
            OSError: the file cannot be opened.

        """
        if isinstance(trace, (str, os.PathLike)):
            if sizes is not None:
                raise BadSetting("sizes of a file are in its own column: leave `sizes` out")
            self._native = _native.Trace.read(os.fspath(trace), mode or "objects")
            return
        if mode == "bytes" and sizes is None:
            raise BadSetting('mode "bytes" needs `sizes`, one for each key')
        sizes_buffer = (
            None if sizes is None or mode == "objects" else to_integer_buffer(sizes, "sizes")
        )
        self._native = _native.Trace.of_arrays(_numbered_keys(trace), sizes_buffer)

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return self._native.requests

    @property
    def distinct(self) -> int:
        """How many distinct objects they request."""
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
        """Whether the file ended within a line, which is left out."""
        return self._native.is_cut

    def curve(
        self,
        *,
        policies: Iterable[str] = ("LRU",),
        capacities: Iterable[float] = SHARES,
        seed: int = 1,
        threads: int = 0,
        dask: str | None = None,
    ) -> list[Point]:
        """Return a point for each policy at each capacity, as `curve` does."""
        policy_names = list(policies)
        absolute_capacities = [self._absolute_capacity(capacity) for capacity in capacities]
        rows: list[_Row]
        if dask is None:
            rows = self._native.replay(
                policy_names, absolute_capacities, seed=seed, threads=threads
            )
        else:
            self._native.check(policy_names)
            with Cluster(dask, "trace", self._native.packed()) as cluster:
                tasks = [
                    ([name], [capacity], seed)
                    for name in policy_names
                    for capacity in absolute_capacities
                ]
                rows = [row for task_rows in cluster.run("replay", tasks) for row in task_rows]
        return [Point(row[0], self.mode, *row[1:]) for row in rows]

    def lru_curve(self, *, sample: int | None = None, seed: int = 1, threads: int = 0) -> LruCurve:
        """Return LRU's miss ratio at every size, as `lru_curve` does."""
        if sample is not None and sample < 1:
            raise BadSetting(f"a sample of {sample} keys: it must have at least 1")
        seeds = [(seed + index) % 2**64 for index in range(SEEDS)]
        native = self._native.lru(sample=sample, seeds=seeds, threads=threads)
        return LruCurve(native, self.footprint)

    def _absolute_capacity(self, capacity: float) -> int:
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
        """Return the miss ratio, 0 to 1, of a cache of this many objects or bytes."""
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
    sizes: IntegersLike | None = None,
    *,
    mode: Literal["objects", "bytes"] | None = None,
    policies: Iterable[str] = ("LRU",),
    capacities: Iterable[float] = SHARES,
    seed: int = 1,
    threads: int = 0,
    dask: str | None = None,
) -> list[Point]:
    """Return a point for each policy at each capacity, replayed from an empty cache.

    Args:
        trace: a `Trace`, or what makes one: a path, an array or a sequence of keys.
        sizes: bytes of each request's value, as for `Trace`.
        mode: "objects" or "bytes", as for `Trace`.
        policies: names in any case, hyphens optional: LRU, FIFO, Clock, LFU, SIEVE, S3-FIFO, ARC, 2Q, SLRU,
            LIRS, W-TinyLFU, LHD, LeCaR, GDSF; with knowledge of the future Belady, Belady-bypass, BeladySize;
            tuned, the server's policy with settings that change by themselves; tuned:bytes, with sizes, for
            fewer missed bytes; S4-FIFO with settings,
            s4fifo:small=0.1,main=2,ghost-main=0,ghost=0.9,skip=0.
        capacities: an int is objects or bytes, at least 1; a float is a share of the footprint, above 0 to 1.
        seed: of the policies that draw lots (LHD, LeCaR, BeladySize, tuned).
        threads: 0 is one a core.
        dask: the address of a Dask scheduler such as "tcp://10.0.0.1:8786": each policy at each capacity is
            a task of its cluster, with the same points as here. Needs the extra `glasscache[dask]`, here and
            there.

    Returns:
        The points, capacities within policies, both in the order given.

    Raises:
        BadSetting: an unknown policy, an invalid capacity, or tuned:bytes without sizes.
        BadTrace, OSError: as for `Trace`. OSError also where the cluster cannot be reached.

    """
    parsed_trace = _as_trace(trace, sizes, mode)
    return parsed_trace.curve(
        policies=policies, capacities=capacities, seed=seed, threads=threads, dask=dask
    )


def lru_curve(
    trace: Keys | Trace,
    sizes: IntegersLike | None = None,
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
        sample: None is exact (Mattson); a number draws the curve from this many keys (SHARDS), over eight
            seeds; 8192 keys give a mean error of about 0.001.
        seed: the first of the eight.
        threads: 0 is one a core.

    Raises:
        BadSetting, BadTrace, OSError: as for `Trace`.

    >>> from glasscache import sim
    >>> bends = sim.lru_curve([1, 2, 3, 1, 2, 3, 1, 2])
    >>> bends.miss_ratio(3), bends.size_for(0.5)
    (0.375, 3)

    """
    return _as_trace(trace, sizes, mode).lru_curve(sample=sample, seed=seed, threads=threads)


def _as_trace(
    trace: Keys | Trace, sizes: IntegersLike | None, mode: Literal["objects", "bytes"] | None
) -> Trace:
    """Return the trace, made if need be."""
    if not isinstance(trace, Trace):
        return Trace(trace, sizes, mode=mode)
    if sizes is not None or mode is not None:
        raise BadSetting("`sizes` and `mode` belong to the Trace: give them there")
    return trace


def _numbered_keys(keys: Buffer | Sequence[Hashable]) -> Buffer:
    """Return keys as numbers: whole numbers as they are, anything else numbered in the order of first use."""
    if is_integer_buffer(keys):
        return cast("Buffer", keys)
    hashable_keys = cast("Sequence[Hashable]", keys)
    try:
        return array("Q", cast("Sequence[int]", hashable_keys))
    except (TypeError, OverflowError):
        numbers_by_key: dict[Hashable, int] = {}
        return array(
            "Q", [numbers_by_key.setdefault(key, len(numbers_by_key)) for key in hashable_keys]
        )
