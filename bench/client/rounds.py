"""Measures the call of a row: clients alternate, another one first in each repetition."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from figures import row_record

if TYPE_CHECKING:
    from collections.abc import Callable

ROUND_S_MAX = 0.5
"""Longest round; a client of which one call takes longer has only one."""


@dataclass
class Row:
    """One call, and what each client does for it; the first of them is ours."""

    name: str
    calls_per_round: int
    """Calls a round, at scale 1."""
    calls_by_client: dict[str, Callable[[], Any]]
    flush_by_client: dict[str, Callable[[], Any]] = field(default_factory=dict)
    """Waits until the quiet writes of a client have been executed."""


def rotate_calls(calls_by_client: dict[str, Any], repetition: int) -> list[tuple[str, Any]]:
    """Return the calls by client, another client first in each repetition."""
    pairs = list(calls_by_client.items())
    first_index = repetition % len(pairs)
    return pairs[first_index:] + pairs[:first_index]


def measure_row(row: Row, repetitions: int, scale: float) -> dict[str, Any]:
    """Return the row's record: ops/s (median, least, most) and CPU us per call of each client."""
    calls_per_round = max(1, int(row.calls_per_round * scale))
    slow_clients: set[str] = set()
    rates_by_client: dict[str, list[float]] = {
        client_name: [] for client_name in row.calls_by_client
    }
    cpu_us_by_client: dict[str, list[float]] = {
        client_name: [] for client_name in row.calls_by_client
    }
    for repetition in range(repetitions):
        for client_name, call in rotate_calls(row.calls_by_client, repetition):
            if client_name in slow_clients:
                rates_by_client[client_name].append(math.nan)
                continue
            try:
                call_count = choose_call_count(call, calls_per_round)
                if call_count == 0:
                    slow_clients.add(client_name)
                    call_count = 1
                started_at, cpu_s_before = time.perf_counter(), time.process_time()
                for _ in range(call_count):
                    call()
                spent_cpu_s = time.process_time() - cpu_s_before
                row.flush_by_client.get(client_name, int)()
            except Exception as error:  # noqa: BLE001 - a client that fails is named, and the others go on
                print(f"{row.name}: {client_name} failed: {error!r}", file=sys.stderr)
                rates_by_client[client_name].append(math.nan)
                continue
            rates_by_client[client_name].append(call_count / (time.perf_counter() - started_at))
            cpu_us_by_client[client_name].append(spent_cpu_s / call_count * 1e6)
    return row_record(row.name, rates_by_client, cpu_us_by_client)


def choose_call_count(call: Callable[[], Any], call_count_max: int) -> int:
    """Return how many calls to make: fewer where one takes long, 0 where one is too many."""
    started_at = time.perf_counter()
    call()
    return min(call_count_max, int(ROUND_S_MAX / (time.perf_counter() - started_at)))
