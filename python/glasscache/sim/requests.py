"""What an application's requests would have waited under each strategy."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

from glasscache import _native
from glasscache.errors import BadSetting
from glasscache.sim._dask import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterable


SEARCH_TASKS = 32
"""Tasks of each round of a search on a cluster: enough for its workers, few enough that bounds are shared."""


class Figures(TypedDict):
    """What a strategy did over some requests: docs/reference/formats.md, "Results file"."""

    requests: int
    calls: int
    keys: int
    bytes: int
    used_keys: int
    added_ns: int
    """Nanoseconds waited, over all requests."""
    decode_ns: int | None
    """Nanoseconds in which their values were decoded, as recorded; None if the log does not have it."""
    cache_ns: int
    """Nanoseconds that the cache takes: waiting for calls, and decoding."""
    added_ns_pct: dict[str, int]
    """Percentiles "5" to "99.9" of the nanoseconds waited by a request."""
    slowdown_pct: dict[str, float]
    """The same percentiles of added / base."""
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
    """With `draw_seed`: the same with one random draw for all calls of a request, which bounds the tail."""


class FrontPoint(TypedDict):
    """The best combination for an amount of memory."""

    memory_bytes: int
    """What each process may keep."""
    strategy: str
    all: Figures
    second_half: Figures
    """Over the requests that the search has not used."""
    hindsight_added_ms: float
    """Milliseconds a request that the best combination for this memory adds if all is chosen in hindsight."""


class Search(TypedDict):
    """What a search found."""

    tried: int
    """Combinations."""
    front: list[FrontPoint]
    """By rising memory; the last is the best within the whole memory."""


def simulate(
    log: str | os.PathLike[str],
    strategies: Iterable[str],
    *,
    latency: str | os.PathLike[str] | None = None,
    exclude: Iterable[str] = (),
    draw_seed: int | None = None,
    threads: int = 0,
    dask: str | None = None,
) -> dict[str, Outcome]:
    """Return what the requests of a log would have waited under each strategy.

    Args:
        log: the folder of a request log (items and requests as .parquet or .jsonl).
        strategies: names such as "remote", "lru:206" or "fixed:206+children"; `glasscache simulate --help`
            lists them.
        latency: a latency table, taken as it is; None is latency.json in the folder and what the
            log's requests waited beyond it.
        exclude: routes whose requests are left out, as if they had never been recorded.
        draw_seed: also draw latencies from the table's distribution, with common random numbers for all.
        threads: 0 is one a core.
        dask: the address of a Dask scheduler such as "tcp://10.0.0.1:8786": each strategy is a task of its
            cluster, with the same outcomes as here. Needs the extra `glasscache[dask]`, here and there.

    Returns:
        An outcome for each strategy under its name, in the order given.

    Raises:
        BadSetting: an unknown strategy or route, a draw without a distribution, fewer than 2 requests.
        BadTrace: a file that cannot be read; names file, row and column.
        OSError: a file that cannot be opened, or a cluster that cannot be reached.

    """
    notations, exclude = list(strategies), list(exclude)
    native_log = _read_log(log, latency, exclude)
    native_log.check(notations, draw_seed)
    if dask is None:
        outcome_jsons = native_log.simulate(notations, draw_seed=draw_seed, threads=threads)
    else:
        with _open_cluster(dask, native_log, exclude) as cluster:
            tasks = [([notation], draw_seed) for notation in notations]
            outcome_jsons = [task_results[0] for task_results in cluster.run("simulate", tasks)]
    outcomes = [cast("Outcome", json.loads(outcome_json)) for outcome_json in outcome_jsons]
    return dict(zip(notations, outcomes, strict=True))


def search(
    log: str | os.PathLike[str],
    *,
    memory: int = 64 << 20,
    latency: str | os.PathLike[str] | None = None,
    exclude: Iterable[str] = (),
    threads: int = 0,
    dask: str | None = None,
) -> Search:
    """Return the best combinations of fixed set, local cache and prefetch, as `glasscache simulate --search`.

    Combinations are chosen on the first half of the requests and evaluated on the second.

    Args:
        log: the folder of a request log (items and requests as .parquet or .jsonl).
        memory: bytes that each process may keep.
        latency: a latency table, taken as it is; None is latency.json in the folder and what the
            log's requests waited beyond it.
        exclude: routes whose requests are left out, as if they had never been recorded.
        threads: 0 is one a core.
        dask: the address of a Dask scheduler such as "tcp://10.0.0.1:8786": groups of combinations are tasks
            of its cluster, with the same result as here. Needs the extra `glasscache[dask]`, here and there.

    Returns:
        How many combinations were tried, and those that no other beats with the same or less memory.

    Raises:
        BadSetting: an unknown route, fewer than 4 requests, a negative memory.
        BadTrace: a file that cannot be read; names file, row and column.
        OSError: a file that cannot be opened, or a cluster that cannot be reached.

    """
    if not 0 <= memory < 2**64:
        raise BadSetting(f"a memory of {memory} bytes: it must be at least 0")
    exclude = list(exclude)
    native_log = _read_log(log, latency, exclude)
    tried = native_log.search_candidates(memory)
    with nullcontext() if dask is None else _open_cluster(dask, native_log, exclude) as cluster:

        def replay_in_order(indices: list[int], *, in_hindsight: bool) -> list[int]:
            """Return the added nanoseconds of each combination, replayed in this order."""
            if cluster is not None:
                return _search_on_cluster(cluster, memory, indices, in_hindsight=in_hindsight)
            added_times_ns = native_log.search_added_ns(
                memory, indices, in_hindsight=in_hindsight, threads=threads
            )
            return [ns for _, ns in sorted(zip(indices, added_times_ns, strict=True))]

        past_added_ns = replay_in_order(list(range(tried)), in_hindsight=False)
        front = native_log.search_front(memory, past_added_ns)
        # The best of the past are likely to be good again, which stops the replays of others early.
        best_first = sorted(range(tried), key=past_added_ns.__getitem__)
        hindsight_ns = replay_in_order(best_first, in_hindsight=True)
        bounds = native_log.search_bounds(
            memory, hindsight_ns, [memory_bytes for _, memory_bytes, _ in front]
        )
        notations = [notation for _, _, notation in front]
        if cluster is None:
            outcome_jsons = native_log.simulate(notations, draw_seed=None, threads=threads)
        else:
            tasks = [([notation], None) for notation in notations]
            outcome_jsons = [task_results[0] for task_results in cluster.run("simulate", tasks)]
    points = [
        _front_point(memory_bytes, notation, bound_ns, json.loads(outcome_json))
        for (_, memory_bytes, notation), bound_ns, outcome_json in zip(
            front, bounds, outcome_jsons, strict=True
        )
    ]
    return {"tried": tried, "front": points}


def _search_on_cluster(
    cluster: Cluster, memory: int, indices: list[int], *, in_hindsight: bool
) -> list[int]:
    """Return the added nanoseconds of each combination, replayed by tasks of a cluster."""
    # Neighbours differ in memory: taken in strides, each task stops its long replays early.
    strides = [indices[start::SEARCH_TASKS] for start in range(SEARCH_TASKS)]
    strides = [stride for stride in strides if stride]
    tasks = [(memory, stride, in_hindsight) for stride in strides]
    task_results = cluster.run("search_added_ns", tasks)
    replayed = [index for stride in strides for index in stride]
    added_times_ns = [ns for stride_times_ns in task_results for ns in stride_times_ns]
    return [ns for _, ns in sorted(zip(replayed, added_times_ns, strict=True))]


def _front_point(
    memory_bytes: int, notation: str, bound_ns: int | None, outcome: Outcome
) -> FrontPoint:
    """Return a combination with what it cost, and what the best with hindsight would have."""
    second_half = outcome["second_half"]
    return {
        "memory_bytes": memory_bytes,
        "strategy": notation,
        "all": outcome["all"],
        "second_half": second_half,
        "hindsight_added_ms": (bound_ns or 0) / second_half["requests"] / 1e6,
    }


def _read_log(
    log: str | os.PathLike[str], latency: str | os.PathLike[str] | None, exclude: Iterable[str]
) -> _native.RequestLog:
    """Return the log with its latency table; warn of parts of the folder that are not in it."""
    table = None if latency is None else os.fspath(latency)
    native_log = _native.RequestLog.read(os.fspath(log), latency=table, exclude=list(exclude))
    for part_name in native_log.left_out_parts:
        warnings.warn(part_name, stacklevel=3)
    return native_log


def _open_cluster(address: str, native_log: _native.RequestLog, exclude: Iterable[str]) -> Cluster:
    """Return a cluster that has the log."""
    return Cluster(address, "log", native_log.packed(), native_log.prices, list(exclude))
