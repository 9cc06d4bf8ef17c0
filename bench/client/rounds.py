"""Clients take turns in a row's call, a new one first each time, so that none has the cooler machine."""

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
"""Longest turn; a client of which one call takes longer has only one."""


@dataclass
class Row:
    """One call, and what each client does for it; the first of them is ours."""

    name: str
    calls: int
    """Calls a turn, at scale 1."""
    contenders: dict[str, Callable[[], Any]]
    finish: dict[str, Callable[[], Any]] = field(default_factory=dict)
    """What ends a client's turn, where its calls do not wait."""


def rotated(contenders: dict[str, Any], round_number: int) -> list[tuple[str, Any]]:
    """Return the contenders, another one first each turn."""
    pairs = list(contenders.items())
    first = round_number % len(pairs)
    return pairs[first:] + pairs[:first]


def measure(row: Row, repetitions: int, scale: float) -> dict[str, Any]:
    """Return the row's record: ops/s (median, least, most) and CPU us per call of each client."""
    count = max(1, int(row.calls * scale))
    slow: set[str] = set()
    rates: dict[str, list[float]] = {client_name: [] for client_name in row.contenders}
    cpu: dict[str, list[float]] = {client_name: [] for client_name in row.contenders}
    for round_number in range(repetitions):
        for client_name, call in rotated(row.contenders, round_number):
            if client_name in slow:
                rates[client_name].append(math.nan)
                continue
            try:
                done = affordable(call, count)
                if done == 0:
                    slow.add(client_name)
                    done = 1
                begin, used = time.perf_counter(), time.process_time()
                for _ in range(done):
                    call()
                spent = time.process_time() - used
                row.finish.get(client_name, int)()
            except Exception as error:  # noqa: BLE001 - a client that cannot is named, and no reason to stop
                print(f"{row.name}: {client_name} failed: {error!r}", file=sys.stderr)
                rates[client_name].append(math.nan)
                continue
            rates[client_name].append(done / (time.perf_counter() - begin))
            cpu[client_name].append(spent / done * 1e6)
    return record(row.name, rates, cpu)


def affordable(call: Callable[[], Any], count: int) -> int:
    """Return how many calls to make: fewer where one takes long, 0 where one is too many."""
    begin = time.perf_counter()
    call()
    return min(count, int(ROUND_S_MAX / (time.perf_counter() - begin)))
