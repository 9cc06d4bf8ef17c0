"""Reads by a new client, over more and more calls: the cost of its warm-up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import glasscache
from figures import row_record
from peers import host_and_port, import_if_installed

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP_CALLS = (10_000, 100_000, 1_000_000)


def warm_up_name(call_count: int) -> str:
    """Return the name of the row of so many calls."""
    return f"get 40 B, {call_count:,} calls of a new client"


def warm_up_row(address: str, call_count: int, scale: float) -> dict[str, Any]:
    """Return reads of 40 B by new clients over so many calls, which includes their warm-up."""
    glasscache.Client(address, timeout=5).set("one", b"x" * 40)
    get_factory_by_client: dict[str, Callable[[], Any]] = {
        "glasscache": lambda: glasscache.Client(address, timeout=5).get
    }
    if pylibmc := import_if_installed("pylibmc"):
        get_factory_by_client["pylibmc"] = lambda: pylibmc.Client([address]).get
    if import_if_installed("pymemcache"):
        from pymemcache.client.base import Client

        get_factory_by_client["pymemcache"] = lambda: (
            Client(host_and_port(address), no_delay=True).get
        )
    rates_by_client: dict[str, list[float]] = {}
    for client_name, make_get in get_factory_by_client.items():
        get = make_get()
        started_at = time.perf_counter()
        for _ in range(max(1, int(call_count * scale))):
            get("one")
        rates_by_client[client_name] = [call_count * scale / (time.perf_counter() - started_at)]
    return row_record(warm_up_name(call_count), rates_by_client, {})
