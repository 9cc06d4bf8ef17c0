"""What spans add to a get: off, without a provider, without a processor, and with one that discards.

Each variant has a client of its own against one server. Blocks of calls alternate between a bare client
and the variants; a variant's figure is the median over the rounds of its block's time over the bare one's.
Beside them stands the floor: what the SDK takes for an empty span, without any cache.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import glasscache
import opentelemetry.sdk.version
from glasscache.telemetry import instrument
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 500


class Discard(SpanProcessor):
    """Listens, and keeps nothing."""


def listened() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(Discard())
    return provider


def in_unsampled_trace(get: Callable[..., Any]) -> Callable[[], None]:
    context = trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(0))

    def block() -> None:
        with trace.use_span(trace.NonRecordingSpan(context)):
            repeat(get)

    return block


def repeat(get: Callable[..., Any]) -> None:
    for _ in range(BLOCK):
        get("k")


def variants(address: str) -> dict[str, Callable[[], None]]:
    def client(**options: Any) -> glasscache.Client:
        made = glasscache.Client(address, timeout=5)
        if options:
            instrument(made, **options)
        return made

    unset = client()
    if instrument(unset):
        raise SystemExit("a provider is set up: the bare client would not be bare")
    gets = {
        "bare": client().get,
        "no provider": unset.get,
        "no processor": client(tracer_provider=TracerProvider()).get,
        "all calls": client(tracer_provider=listened()).get,
        "slower than 10 ms": client(tracer_provider=listened(), slower_than=0.01).get,
        "slower than 10 ms and 1 %": client(
            tracer_provider=listened(), slower_than=0.01, sample=0.01
        ).get,
    }
    made = {name: lambda get=get: repeat(get) for name, get in gets.items()}
    made["in a trace that is not sampled"] = in_unsampled_trace(gets["all calls"])
    tracer = listened().get_tracer("floor")
    made["floor: an empty span"] = lambda: repeat(lambda _: tracer.start_span("get").end())
    return made


def measure(blocks: dict[str, Callable[[], None]], rounds: int) -> dict[str, dict[str, float]]:
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for round_number in range(rounds):
        names = list(blocks)
        for name in names[round_number % len(names) :] + names[: round_number % len(names)]:
            begin = time.perf_counter()
            blocks[name]()
            times[name].append((time.perf_counter() - begin) / BLOCK * 1e6)
    bare = times["bare"]
    return {
        name: {
            "us": statistics.median(found),
            "us_least": min(found),
            "added_percent": 100
            * (statistics.median(a / b for a, b in zip(found, bare, strict=True)) - 1),
            "added_percent_least": 100 * (min(found) / min(bare) - 1),
        }
        for name, found in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--keep", type=Path, help="where the figures are kept")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:1])
    with glasscache.Server() as server:
        os.sched_setaffinity(0, cpus[-1:])
        with glasscache.Client(server.address, timeout=5) as client:
            client.set("k", b"x" * 40)
        figures = measure(variants(server.address), options.rounds)
    for name, row in figures.items():
        print(
            f"{name:32} {row['us']:7.2f} us  {row['added_percent']:+7.1f} %"
            f"   (least {row['us_least']:6.2f} us {row['added_percent_least']:+7.1f} %)"
        )
    if options.keep:
        kept = {
            "name": "telemetry",
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
            "opentelemetry_sdk": opentelemetry.sdk.version.__version__,
            "rounds": options.rounds,
            "block": BLOCK,
            "figures": figures,
        }
        options.keep.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
