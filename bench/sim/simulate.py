"""Times the request simulator and the optimum of slab classes on the made-up site, and keeps the figures.

Three questions: accesses a second of one replay and milliseconds of one plan (CPU time, as the tests of
the crate measure them), and the wall time of the whole command on two cores, reading the log included: 36
strategies, and a search of 217 combinations.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from result_record import write_record

MEASURING_TESTS = (
    "cargo test --release -q -p glasscache-sim --lib --test it -- "
    "--ignored --nocapture --test-threads=1 speed_of"
)
STRATEGIES_WITHOUT_SIZE = "remote children children-always subtree:1 subtree:2 subtree:3"
STRATEGIES_WITH_SIZE = (
    "lru:{n} s3fifo:{n} lru-bytes:{b} fixed:{n} fixed-time:{n} fixed-bytes:{b} fixed-hindsight:{n} "
    "lru:{n}+children lru:{n}+subtree:2 fixed:{n}+children fixed:{n}+children-always fixed:{n}+subtree:1 "
    "fixed:{n}+lru:{n} fixed-time:{n}+s3fifo:{n} fixed:{n}+lru:{n}+children"
)
STRATEGY_SIZES = ({"n": 200, "b": "512k"}, {"n": 1000, "b": "4m"})
CORES = 2


def list_strategies() -> list[str]:
    """Returns the 36 strategies, at 1 % and 5 % of the items."""
    with_size = [
        strategy.format(**sizes)
        for sizes in STRATEGY_SIZES
        for strategy in STRATEGIES_WITH_SIZE.split()
    ]
    return STRATEGIES_WITHOUT_SIZE.split() + with_size


def measure_parts() -> dict:
    """Returns what the crate's own measurements print: million accesses a CPU second, seconds, ms."""
    completed = subprocess.run(MEASURING_TESTS.split(), capture_output=True, text=True, check=True)
    text = completed.stdout + completed.stderr
    print(text)
    rates = {name: float(rate) for name, rate in re.findall(r"(\S+) +([0-9.]+) M accesses/s", text)}
    (search_cpu_s,) = re.findall(r"combinations: ([0-9.]+) s", text)
    (optimum_ms,) = re.findall(r"([0-9.]+) ms each", text)
    return {
        "m_accesses_per_s": rates,
        "search_cpu_s": float(search_cpu_s),
        "optimum_ms": float(optimum_ms),
    }


def measure_wall_s(command: list[str]) -> float:
    """Returns the seconds that a command takes on two cores, the best of two runs."""

    def pin_to_cores() -> None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])

    def run_once() -> float:
        started_at = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, preexec_fn=pin_to_cores)
        return time.perf_counter() - started_at

    return min(run_once(), run_once())


def measure_command(binary: str) -> dict:
    """Returns the wall seconds of the whole command on two cores."""
    with tempfile.TemporaryDirectory() as folder:
        site_folder = str(pathlib.Path(folder) / "site")
        subprocess.run(
            [binary, "generate", "topic-tree", site_folder], stdout=subprocess.DEVNULL, check=True
        )
        strategies_s = measure_wall_s(
            [binary, "simulate", site_folder, "--strategies", ",".join(list_strategies()), "--json"]
        )
        search_s = measure_wall_s(
            [binary, "simulate", site_folder, "--search", "--memory", "16M", "--json"]
        )
    print(
        f"{len(list_strategies())} strategies {strategies_s:.2f} s, search {search_s:.2f} s, on {CORES} cores"
    )
    return {
        "strategies": len(list_strategies()),
        "strategies_wall_s": strategies_s,
        "search_wall_s": search_s,
    }


def main() -> int:
    """Measures, prints and keeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default="target/release/glasscache")
    parser.add_argument("--keep")
    options = parser.parse_args()
    figures = measure_parts() | measure_command(options.binary)
    if options.keep:
        write_record(
            options.keep,
            "simulate",
            {"requests": 200_000, "items": 20_000, "cores": CORES},
            figures,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
