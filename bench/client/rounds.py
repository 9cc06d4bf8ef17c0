"""Clients alternate in the call of a row, a new one first each time, so that none has the cooler machine."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from figures import record

if TYPE_CHECKING:
    from collections.abc import Callable

ROUND_S_MAX = 0.5
"""Longest round; a client of which one call takes longer has only one."""


@dataclass
class Row:
    """One call, and what each client does for it; the first of them is ours."""

    name: str
    calls: int
    """Calls a round, at scale 1."""
    calls_by_client: dict[str, Callable[[], Any]]
    flush: dict[str, Callable[[], Any]] = field(default_factory=dict)
    """Waits until the quiet writes of a client have been executed."""


def rotate(calls_by_client: dict[str, Any], round_number: int) -> list[tuple[str, Any]]:
    """Return the calls by client, another client first each round."""
    pairs = list(calls_by_client.items())
    first = round_number % len(pairs)
    return pairs[first:] + pairs[:first]


def measure(row: Row, repetitions: int, scale: float) -> dict[str, Any]:
    """Return the row's record: ops/s (median, least, most) and CPU us per call of each client."""
    count = max(1, int(row.calls * scale))
    slow: set[str] = set()
    rates: dict[str, list[float]] = {client_name: [] for client_name in row.calls_by_client}
    cpu: dict[str, list[float]] = {client_name: [] for client_name in row.calls_by_client}
    for round_number in range(repetitions):
        for client_name, call in rotate(row.calls_by_client, round_number):
            if client_name in slow:
                rates[client_name].append(math.nan)
                continue
            try:
                call_count = calls_within_round(call, count)
                if call_count == 0:
                    slow.add(client_name)
                    call_count = 1
                begin, used_cpu_s = time.perf_counter(), time.process_time()
                for _ in range(call_count):
                    call()
                spent = time.process_time() - used_cpu_s
                row.flush.get(client_name, int)()
            except Exception as error:  # noqa: BLE001 - a client that cannot is named, and no reason to stop
                print(f"{row.name}: {client_name} failed: {error!r}", file=sys.stderr)
                rates[client_name].append(math.nan)
                continue
            rates[client_name].append(call_count / (time.perf_counter() - begin))
            cpu[client_name].append(spent / call_count * 1e6)
    return record(row.name, rates, cpu)


def calls_within_round(call: Callable[[], Any], count: int) -> int:
    """Return how many calls to make: fewer where one takes long, 0 where one is too many."""
    begin = time.perf_counter()
    call()
    return min(count, int(ROUND_S_MAX / (time.perf_counter() - begin)))
