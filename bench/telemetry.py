"""What spans add to a get: off, without a provider, without a processor, and with one that discards.

Each variant has a client of its own against one server. Blocks of calls alternate between a bare client
and the variants; a variant's figure is the median over the rounds of its block's time over the bare one's.
With them the floor is printed: what the SDK takes for an empty span, without any cache.
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

CALLS_PER_BLOCK = 500


class DiscardingProcessor(SpanProcessor):
    """Receives each span and discards it."""


def discarding_provider() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(DiscardingProcessor())
    return provider


def repeat_in_unsampled_trace(get: Callable[..., Any]) -> Callable[[], None]:
    context = trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(0))

    def call_get_in_unsampled_trace() -> None:
        with trace.use_span(trace.NonRecordingSpan(context)):
            call_repeatedly(get)

    return call_get_in_unsampled_trace


def call_repeatedly(get: Callable[..., Any]) -> None:
    for _ in range(CALLS_PER_BLOCK):
        get("k")


def make_blocks(address: str) -> dict[str, Callable[[], None]]:
    def make_client(**instrument_options: Any) -> glasscache.Client:
        client = glasscache.Client(address, timeout=5)
        if instrument_options:
            instrument(client, **instrument_options)
        return client

    client_without_provider = make_client()
    if instrument(client_without_provider):
        raise SystemExit("a provider is set up: the bare client would not be bare")
    gets = {
        "bare": make_client().get,
        "no provider": client_without_provider.get,
        "no processor": make_client(tracer_provider=TracerProvider()).get,
        "all calls": make_client(tracer_provider=discarding_provider()).get,
        "slower than 10 ms": make_client(
            tracer_provider=discarding_provider(), slower_than=0.01
        ).get,
        "slower than 10 ms and 1 %": make_client(
            tracer_provider=discarding_provider(), slower_than=0.01, sample=0.01
        ).get,
    }
    block_by_variant = {
        variant_name: lambda get=get: call_repeatedly(get) for variant_name, get in gets.items()
    }
    block_by_variant["in a trace that is not sampled"] = repeat_in_unsampled_trace(
        gets["all calls"]
    )
    tracer = discarding_provider().get_tracer("floor")
    block_by_variant["floor: an empty span"] = lambda: call_repeatedly(
        lambda _: tracer.start_span("get").end()
    )
    return block_by_variant


def measure(
    block_by_variant: dict[str, Callable[[], None]], rounds: int
) -> dict[str, dict[str, float]]:
    us_by_variant: dict[str, list[float]] = {variant_name: [] for variant_name in block_by_variant}
    for round_number in range(rounds):
        names = list(block_by_variant)
        for variant_name in names[round_number % len(names) :] + names[: round_number % len(names)]:
            started_at = time.perf_counter()
            block_by_variant[variant_name]()
            us_by_variant[variant_name].append(
                (time.perf_counter() - started_at) / CALLS_PER_BLOCK * 1e6
            )
    bare_us = us_by_variant["bare"]
    return {
        variant_name: {
            "us": statistics.median(us_by_block),
            "us_least": min(us_by_block),
            "added_percent": 100
            * (
                statistics.median(
                    block_time_us / bare_time_us
                    for block_time_us, bare_time_us in zip(us_by_block, bare_us, strict=True)
                )
                - 1
            ),
            "added_percent_least": 100 * (min(us_by_block) / min(bare_us) - 1),
        }
        for variant_name, us_by_block in us_by_variant.items()
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
        figures_by_variant = measure(make_blocks(server.address), options.rounds)
    for variant_name, figures in figures_by_variant.items():
        print(
            f"{variant_name:32} {figures['us']:7.2f} us  {figures['added_percent']:+7.1f} %"
            f"   (least {figures['us_least']:6.2f} us {figures['added_percent_least']:+7.1f} %)"
        )
    if options.keep:
        record = {
            "name": "telemetry",
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
            "opentelemetry_sdk": opentelemetry.sdk.version.__version__,
            "rounds": options.rounds,
            "block": CALLS_PER_BLOCK,
            "figures": figures_by_variant,
        }
        options.keep.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
