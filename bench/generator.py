"""Gets per CPU second of our load generator, compared with memtier_benchmark.

One server of ours on the first processor, the generators alternately on the second, each with one thread and
50 connections, values of 100 B. Ours measures each latency from the intended and from the send time and
checks each value; memtier measures latencies and does not check values. A generator's CPU is what the
kernel counted for it: for ours while it measures, for memtier that of its whole process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "live"))

from harness import Server  # noqa: E402

SERVER_CPU, GENERATOR_CPU = 0, 1
CONNECTION_COUNT, VALUE_BYTES, KEY_COUNT = 50, 100, 100_000
RATIO_TARGET_BY_DEPTH = {1: 1.1, 16: 1.5, 32: 1.5}
"""For each number of requests in flight on a connection: gets per CPU second, ours to theirs."""


def measure_ours(binary: str, port: int, depth: int, seconds: float) -> dict[str, Any]:
    """Measure with our generator."""
    options = [
        "--connections",
        str(CONNECTION_COUNT),
        "--depth",
        str(depth),
        "--keys",
        str(KEY_COUNT),
    ]
    options += ["--size", str(VALUE_BYTES), "--for", f"{seconds}s", "--warm-up", "500ms"]
    command = [
        binary,
        "bench",
        f"127.0.0.1:{port}",
        *options,
        "--cpus",
        str(GENERATOR_CPU),
        "--json",
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {completed.stderr}")
    result = json.loads(completed.stdout)["result"]
    return {
        "gets_per_cpu_second": 1e6 / result["generator_cpu_us"],
        "gets_per_second": result["requests_per_second"],
    }


def measure_memtier(program: str, port: int, depth: int, seconds: float) -> dict[str, Any]:
    """Measure with memtier_benchmark."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        options = ["--ratio", "0:1", "--test-time", str(max(1, round(seconds)))]
        cpu_s = run_memtier(
            program, port, [*options, f"--pipeline={depth}", f"--json-out-file={file.name}"]
        )
        gets = json.loads(Path(file.name).read_text())["ALL STATS"]["Gets"]
    if gets["Misses/sec"]:
        raise SystemExit("memtier read keys that it had not stored")
    return {"gets_per_cpu_second": gets["Count"] / cpu_s, "gets_per_second": gets["Ops/sec"]}


def run_memtier(program: str, port: int, options: list[str]) -> float:
    """Run memtier_benchmark on the generators' processor; return its CPU seconds."""
    command = ["taskset", "-c", str(GENERATOR_CPU), program, "-s", "127.0.0.1", "-p", str(port)]
    command += [
        "--protocol=memcache_text",
        "--threads=1",
        f"--clients={CONNECTION_COUNT}",
        "--hide-histogram",
    ]
    command += [
        f"--data-size={VALUE_BYTES}",
        "--key-minimum=1",
        f"--key-maximum={KEY_COUNT}",
        *options,
    ]
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if completed.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {completed.stderr}")
    return (
        usage_after.ru_utime - usage_before.ru_utime + usage_after.ru_stime - usage_before.ru_stime
    )


def compare_at_depth(arguments: argparse.Namespace, port: int, depth: int) -> dict[str, Any]:
    """Measure both alternately, and print the rates and their ratio unless JSON was requested."""
    figures_by_generator: dict[str, list[dict[str, float]]] = {"ours": [], "memtier": []}
    for _ in range(arguments.rounds):
        figures_by_generator["ours"].append(
            measure_ours(arguments.binary, port, depth, arguments.seconds)
        )
        figures_by_generator["memtier"].append(
            measure_memtier(arguments.memtier, port, depth, arguments.seconds)
        )
    round_pairs = zip(*figures_by_generator.values(), strict=True)
    ratios = [
        ours["gets_per_cpu_second"] / theirs["gets_per_cpu_second"] for ours, theirs in round_pairs
    ]
    if not arguments.json:
        print(
            f"depth {depth}: {statistics.median(ratios):.2f} times memtier"
            f" ({min(ratios):.2f} to {max(ratios):.2f}), target at least {RATIO_TARGET_BY_DEPTH[depth]}"
        )
        for name, figures_by_round in figures_by_generator.items():
            per_cpu_second, per_second = (
                statistics.median(figures[figure_name] for figures in figures_by_round)
                for figure_name in ("gets_per_cpu_second", "gets_per_second")
            )
            print(
                f"  {name:8}{per_cpu_second:12,.0f} gets per CPU second,{per_second:12,.0f} per second",
                flush=True,
            )
    return {
        "depth": depth,
        "target": RATIO_TARGET_BY_DEPTH[depth],
        "ratios": ratios,
        "rounds": figures_by_generator,
    }


def main() -> int:
    """Print the rates and their ratio for each depth; return 1 if a ratio misses its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "target/release/glasscache"))
    parser.add_argument("--memtier", required=True, help="the program memtier_benchmark")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each generator in a round")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    server = Server(["taskset", "-c", str(SERVER_CPU), arguments.binary, "serve"], ("-m", "256"))
    try:
        store_options = ["--ratio=1:0", "--key-pattern=P:P", "--requests=allkeys"]
        run_memtier(arguments.memtier, server.port, store_options)
        rows = [compare_at_depth(arguments, server.port, depth) for depth in RATIO_TARGET_BY_DEPTH]
    finally:
        server.kill()
    if arguments.json:
        print(
            json.dumps({"connections": CONNECTION_COUNT, "value_bytes": VALUE_BYTES, "rows": rows})
        )
    return 0 if all(statistics.median(row["ratios"]) >= row["target"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
