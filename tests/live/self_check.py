"""Compare a server with itself: how often the interval of `bench --vs` and of `profile --vs` contains 1.

Both commands print the ratio of two targets with its interval. Where both targets are one server, the
interval has to contain 1 in at least 90 of 100 runs, and half its width is to be at most 5 % at the median
and 25 % at p99 in the median run. Runs are short, with few connections and keys, so that a hundred of each
take 23 minutes.

    make self-check RUNS=20
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness import Server

# The least share of runs whose interval contains 1.
CONTAINED_MIN = 0.9

# Half the width of an interval, by percentile, in the median run.
HALF_WIDTH_MAX = {"50": 0.05, "99": 0.25}


@dataclass(frozen=True)
class Interval:
    """A ratio's interval; unknown ends where a run had too few samples."""

    low: float | None
    high: float | None

    def contains_one(self) -> bool:
        """Whether the targets may be equal."""
        return self.low is not None and self.high is not None and self.low <= 1 <= self.high

    def half_width(self) -> float:
        """Half the width, infinite where an end is unknown."""
        if self.low is None or self.high is None:
            return float("inf")
        return (self.high - self.low) / 2


@dataclass
class RepeatedCommand:
    """A command that is run again and again."""

    name: str
    command: list[str]
    intervals: dict[str, list[Interval]] = field(default_factory=dict[str, list[Interval]])

    def run(self, seed: int) -> None:
        """Runs the command once and keeps its intervals."""
        command = [*self.command, "--seed", str(seed)]
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False
        )
        if completed.returncode != 0:
            raise SystemExit(
                f"{shlex.join(command)} ended with {completed.returncode}: {completed.stderr}"
            )
        ratio = json.loads(completed.stdout)["result"]["ratio"]
        for percentile in HALF_WIDTH_MAX:
            bounds = ratio[percentile]
            interval = Interval(bounds["low"], bounds["high"])
            self.intervals.setdefault(percentile, []).append(interval)

    def print_intervals(self) -> bool:
        """Prints a line for each percentile; returns whether both are met."""
        are_met: list[bool] = []
        for percentile, half_width_max in HALF_WIDTH_MAX.items():
            intervals = self.intervals[percentile]
            containing_count = sum(interval.contains_one() for interval in intervals)
            half_width = statistics.median(interval.half_width() for interval in intervals)
            is_met = (
                containing_count >= CONTAINED_MIN * len(intervals) and half_width <= half_width_max
            )
            are_met.append(is_met)
            print(
                f"{self.name:7} p{percentile}: {containing_count} of {len(intervals)} intervals contain 1;"
                f" median half-width {100 * half_width:.1f} %, at most {100 * half_width_max:.0f} %:"
                f" {'met' if is_met else 'missed'}"
            )
        return all(are_met)


def commands_to_repeat(
    binary: str, target: str, arguments: argparse.Namespace, folder: Path
) -> list[RepeatedCommand]:
    """Both commands, without a seed."""
    both_targets = [target, "--vs", target]
    bench_options = ["--closed", "--for", arguments.bench_for, "--warm-up", "100ms"]
    bench_options += ["--connections", "4", "--keys", "1000"]
    profile_options = ["--calls", str(arguments.calls), "--sizes", "100", "--widths", "1"]
    profile_options += ["--latency-out", str(folder / "latency.json")]
    return [
        RepeatedCommand("bench", [binary, "--json", "bench", *both_targets, *bench_options]),
        RepeatedCommand("profile", [binary, "--json", "profile", *both_targets, *profile_options]),
    ]


def main() -> int:
    """Runs both commands alternately and prints how often each interval contains 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the glasscache that measures")
    parser.add_argument("--server", help="command of the server [default: the binary's serve]")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--calls", type=int, default=10_000, help="calls in a run of profile")
    parser.add_argument("--bench-for", default="3s", help="length of a run of bench")
    arguments = parser.parse_args()
    command = shlex.split(arguments.server or f"{arguments.binary} serve")
    server = Server(command)
    started_at = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            target = f"127.0.0.1:{server.port}"
            commands = commands_to_repeat(arguments.binary, target, arguments, Path(folder))
            for seed in range(1, arguments.runs + 1):
                for repeated_command in commands:
                    repeated_command.run(seed)
    finally:
        server.kill()
    are_met = [repeated_command.print_intervals() for repeated_command in commands]
    print(f"{time.monotonic() - started_at:.0f} s")
    return 0 if all(are_met) else 1


if __name__ == "__main__":
    sys.exit(main())
