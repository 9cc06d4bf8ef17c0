"""A row's figures: computed from its rounds, compared with what is required, printed, and written as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import sys
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

REQUIRED_RATIOS = {
    "get 40 B": {"pylibmc": 1.05, "pymemcache": 1.5},
    "set 40 B": {"pylibmc": 1.05, "pymemcache": 1.5},
    "get 1 KB": {"pylibmc": 1.05, "pymemcache": 1.5},
    "set 1 KB": {"pylibmc": 1.05, "pymemcache": 1.5},
    "get 100 KB": {"pylibmc": 1.2, "pymemcache": 1.9},
    "get_many(100) 40 B": {"pylibmc": 1.7, "pymemcache": 6.0},
    "get_many(100) 1 KB": {"pylibmc": 1.4, "pymemcache": 3.8},
    "set_many(100) 40 B": {"pylibmc": 14.0, "pymemcache": 5.0},
    "set 1 KB without waiting": {"pylibmc": 1.0, "pymemcache": 5.0},
    "8 threads, get 1 KB": {"pylibmc": 1.0},
    "asyncio, 32 tasks, get 40 B": {"emcache": 7.0},
    "asyncio, 32 tasks, set 1 KB": {"emcache": 4.5},
    "140,000 ids in a list, write and read": {"pickle+zlib6": 20.0},
    "140,000 ids in an array, write and read": {"pickle+zlib6": 20.0},
    "140,000 ids in NumPy, write and read": {"pickle+zlib6": 20.0},
    "get 40 B: counting costs": {"costs off": 0.98},
    "get 40 B: a deadline per call": {"no deadline": 0.99},
}
"""Ours over the other's rate, at least. The first client of a row is ours."""


def row_record(
    name: str, rates_by_client: dict[str, list[float]], cpu_us_by_client: dict[str, list[float]]
) -> dict[str, Any]:
    """Return a row's figures; rounds in which a client failed do not count."""
    our_rates = next(iter(rates_by_client.values()))

    def ratios_to_ours(rates_by_repetition: list[float]) -> list[float]:
        return sorted(
            our_rate / their_rate
            for our_rate, their_rate in zip(our_rates, rates_by_repetition, strict=False)
            if our_rate / their_rate > 0
        )

    clients = {}
    for client_name, rates_by_repetition in rates_by_client.items():
        successful_rates = [rate for rate in rates_by_repetition if rate > 0]
        if not successful_rates:
            continue
        ratios = ratios_to_ours(rates_by_repetition)
        clients[client_name] = {
            "ops_per_s": statistics.median(successful_rates),
            "least": min(successful_rates),
            "most": max(successful_rates),
            "cpu_us": statistics.median(cpu_us_by_client[client_name])
            if cpu_us_by_client.get(client_name)
            else None,
            "ours_over_it": statistics.median(ratios) if ratios else None,
            "middle_half": [ratios[len(ratios) // 4], ratios[len(ratios) * 3 // 4]]
            if ratios
            else None,
            "demand": REQUIRED_RATIOS.get(name, {}).get(client_name),
        }
    return {"row": name, "load": os.getloadavg()[0], "clients": clients}


def print_result(result: dict[str, Any]) -> None:
    """Print a row: calls a second, CPU, and ours over each other's."""
    print(result["row"])
    for index, (client_name, figures) in enumerate(result["clients"].items()):
        cpu_text = f"{figures['cpu_us']:9.1f} us CPU" if figures["cpu_us"] is not None else " " * 16
        ratio, required_ratio = figures["ours_over_it"], figures["demand"]
        ratio_text = ""
        if ratio and index:
            low, high = figures["middle_half"]
            ratio_text = f"  ours is {ratio:.3f} x ({low:.3f} to {high:.3f})"
            if required_ratio:
                check_text = "met" if ratio >= required_ratio else "MISSED"
                ratio_text += f", required {required_ratio:g}: {check_text}"
        divisor, unit = (1e3, "k/s") if figures["ops_per_s"] >= 1e3 else (1, "/s ")
        spread_text = f"({figures['least'] / divisor:.1f} to {figures['most'] / divisor:.1f})"
        line = f"  {client_name:18} {figures['ops_per_s'] / divisor:9.2f} {unit}"
        line += f" {spread_text:18} {cpu_text}{ratio_text}"
        print(line, flush=True)


def write_results(file: Path, result: dict[str, Any], environment: dict[str, Any]) -> None:
    """Put a row into the file; it replaces an older one of its name."""
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    row_names = [row["row"] for row in rows]
    if result["row"] in row_names:
        rows[row_names.index(result["row"])] = result
    else:
        rows.append(result)
    file.write_text(json.dumps({**environment, "rows": rows}, indent=1) + "\n")


def run_environment(file: Path, repetitions: int, scale: float) -> dict[str, Any]:
    """Return what the figures depend on; `name` is the name of their file without its date."""
    peers = ("pylibmc", "pymemcache", "python-memcached", "meta-memcache", "emcache", "aiomcache")
    versions = {}
    for peer in peers:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[peer] = metadata.version(peer)
    return {
        "name": re.sub(r"^\d{4}-\d\d-\d\d-", "", file.stem),
        "date": time.strftime("%Y-%m-%d"),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "repetitions": repetitions,
        "scale": scale,
        "clients": versions,
    }
