"""What an application's requests would have waited under each strategy."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

from glasscache import _native

if TYPE_CHECKING:
    from collections.abc import Iterable


class Figures(TypedDict):
    """What a strategy did over some requests: docs/reference/formats.md, "Results file"."""

    requests: int
    calls: int
    keys: int
    bytes: int
    used_keys: int
    added_ns: int
    """Nanoseconds waited, over all requests."""
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
        strategies: names such as "remote", "lru:206" or "fixed:206+children"; `glasscache simulate --help`
            lists them.
        latency: the latency table; None is latency.json in the folder.
        exclude: routes whose requests are left out, as if they had never been recorded.
        draw_seed: also draw latencies from the table's distribution, with common random numbers for all.
        threads: 0 is one a core.

    Returns:
        An outcome for each strategy under its name, in the order given.

    Raises:
        BadSetting: an unknown strategy or route, a draw without a distribution, fewer than 2 requests.
        BadTrace: a file that cannot be read; names file, row and column.
        OSError: a file that cannot be opened.

    """
    folder, notations = os.fspath(log), list(strategies)
    table = os.path.join(folder, "latency.json") if latency is None else os.fspath(latency)  # noqa: PTH118
    documents = _native.simulate(
        folder,
        notations,
        latency=table,
        exclude=list(exclude),
        draw_seed=draw_seed,
        threads=threads,
    )
    outcomes = [cast("Outcome", json.loads(document)) for document in documents]
    return dict(zip(notations, outcomes, strict=True))
