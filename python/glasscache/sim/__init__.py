"""The lab's computations: miss-ratio curves, memcached's slab classes, and what requests would have waited.

All of it runs in native code without the interpreter lock, on all cores or, with `dask=`, on a Dask cluster,
and touches no server. What each policy and each strategy does, to the request, is
documented in the project's docs/reference/formats.md; the
command `glasscache` prints the same results as tables and pages.

>>> from glasscache import sim
>>> for point in sim.curve([1, 2, 3, 1, 2, 3, 1, 2], policies=["LRU", "Belady"], capacities=[2, 3]):
...     print(point.policy, point.capacity, point.misses, point.miss_ratio)
LRU 2 8 1.0
LRU 3 3 0.375
Belady 2 5 0.625
Belady 3 3 0.375
"""

from glasscache.sim.requests import Figures, FrontPoint, Outcome, Search, search, simulate
from glasscache.sim.slabs import (
    SlabConfig,
    SlabPlan,
    optimal_slab_sizes,
    slab_classes,
    slab_plan,
)
from glasscache.sim.traces import Band, LruCurve, Point, Trace, curve, lru_curve

__all__ = [
    "Band",
    "Figures",
    "FrontPoint",
    "LruCurve",
    "Outcome",
    "Point",
    "Search",
    "SlabConfig",
    "SlabPlan",
    "Trace",
    "curve",
    "lru_curve",
    "optimal_slab_sizes",
    "search",
    "simulate",
    "slab_classes",
    "slab_plan",
]
