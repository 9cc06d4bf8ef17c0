"""Reads by a client just made, over more and more calls: where its warm-up shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import glasscache
from figures import record
from peers import host_and_port, installed

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP_CALLS = (10_000, 100_000, 1_000_000)


def warm_up_name(count: int) -> str:
    """Return the name of the row of so many calls."""
    return f"get 40 B, {count:,} calls of a new client"


def warm_up_row(address: str, count: int, scale: float) -> dict[str, Any]:
    """Return reads of 40 B by new clients over so many calls: where the warm-up shows."""
    glasscache.Client(address, timeout=5).set("one", b"x" * 40)
    calls_by_client: dict[str, Callable[[], Any]] = {
        "glasscache": lambda: glasscache.Client(address, timeout=5).get
    }
    if pylibmc := installed("pylibmc"):
        calls_by_client["pylibmc"] = lambda: pylibmc.Client([address]).get
    if installed("pymemcache"):
        from pymemcache.client.base import Client

        calls_by_client["pymemcache"] = lambda: Client(host_and_port(address), no_delay=True).get
    rates: dict[str, list[float]] = {}
    for client_name, make in calls_by_client.items():
        get = make()
        begin = time.perf_counter()
        for _ in range(max(1, int(count * scale))):
            get("one")
        rates[client_name] = [count * scale / (time.perf_counter() - begin)]
    return record(warm_up_name(count), rates, {})
