"""Times `glasscache curve` beside libcachesim on the same traces, alternately, by CPU time.

Two questions: how fast is each policy's replay alone (ours without interning, which all replays of
a trace share; theirs with the native reader on unit sizes), and what does a whole command of 12
policies at 5 sizes cost on one thread, reading and interning included. CPU time and alternating
runs keep other work on the machine out of the ratio.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow.parquet
from result_record import write_record

TRACES = ("cloudphysics-w106", "cache2k-orm-busy")
POLICIES = (
    "LRU",
    "FIFO",
    "Clock",
    "SIEVE",
    "S3-FIFO",
    "LFU",
    "ARC",
    "2Q",
    "SLRU",
    "LIRS",
    "W-TinyLFU",
    "GDSF",
    "LHD",
    "LeCaR",
    "Belady",
)
WHOLE_COMMAND_POLICIES = POLICIES[:12]
FRACTIONS = (0.001, 0.01, 0.05, 0.1, 0.2)
REQUIRED_RATIO_BY_POLICY = dict.fromkeys(("LRU", "FIFO", "SIEVE"), 4.0)
REQUIRED_RATIO_OTHERS, REQUIRED_RATIO_WHOLE_COMMAND = 2.0, 3.0


def write_oracle_general(source: pathlib.Path, target: pathlib.Path) -> tuple[int, int]:
    """Writes the trace as 24-byte records with next uses; returns its requests and distinct keys."""
    keys = pyarrow.parquet.read_table(source, columns=["key"])["key"].to_numpy()
    distinct_keys, ids = np.unique(keys, return_inverse=True)
    order = np.argsort(ids, kind="stable")
    next_uses = np.full(len(keys), -1, dtype=np.int64)
    is_same_key = ids[order[1:]] == ids[order[:-1]]
    next_uses[order[:-1][is_same_key]] = order[1:][is_same_key]
    records = np.zeros(len(keys), dtype="<u4,<u8,<u4,<i8")
    records["f0"], records["f1"] = np.arange(len(keys)), keys
    records["f2"], records["f3"] = 1, next_uses
    records.tofile(target)
    return len(keys), len(distinct_keys)


def run_libcachesim(oracle_file: pathlib.Path, pairs: list[str]) -> dict:
    """Returns what libcachesim took for (policy:capacity) pairs, in a process of its own."""
    script = pathlib.Path(__file__).with_name("libcachesim_speed.py")
    completed = subprocess.run(
        [sys.executable, script, oracle_file, *pairs], stdout=subprocess.PIPE, check=True
    )
    return json.loads(completed.stdout.splitlines()[-1])


def run_glasscache(
    binary: str, trace: pathlib.Path, policies: tuple, capacities: list[int]
) -> tuple[list[dict], float]:
    """Returns our rows with the CPU seconds of each replay, and those of the whole process, on one thread."""
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    completed = subprocess.run(
        [
            binary,
            "curve",
            trace,
            "--policies",
            ",".join(policies),
            "--capacities",
            ",".join(map(str, capacities)),
            "--threads",
            "1",
            "--time",
            "--json",
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = (
        usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    )
    return json.loads(completed.stdout)["result"]["results"], cpu_s


def compare_policies(
    binary: str,
    trace: pathlib.Path,
    oracle_file: pathlib.Path,
    request_and_key_counts: tuple,
    rounds: int,
) -> dict:
    """Prints and returns million requests a CPU second of both, and their ratio, policy by policy."""
    request_count, key_count = request_and_key_counts
    capacity = int(key_count * 0.1 + 0.5)
    best_times = {}
    for _ in range(rounds):
        for policy in POLICIES:
            their_s = run_libcachesim(oracle_file, [f"{policy}:{capacity}"])["results"][0][
                "seconds"
            ]
            our_rows, _ = run_glasscache(binary, trace, (policy,), [capacity])
            our_s = our_rows[0]["cpu_s"]
            best_so_far = best_times.get(policy, (their_s, our_s))
            best_times[policy] = (min(best_so_far[0], their_s), min(best_so_far[1], our_s))
    print(
        f"{trace.stem}, {capacity} objects, best of {rounds} rounds, million requests per CPU second:"
    )
    print(f"{'policy':<12}{'libcachesim':>12}{'glasscache':>12}{'ratio':>8}{'required':>10}")
    figures = {}
    for policy, (their_s, our_s) in best_times.items():
        required_ratio, ratio = (
            REQUIRED_RATIO_BY_POLICY.get(policy, REQUIRED_RATIO_OTHERS),
            their_s / our_s,
        )
        rates = request_count / their_s / 1e6, request_count / our_s / 1e6
        figures[policy] = {
            "libcachesim": rates[0],
            "glasscache": rates[1],
            "ratio": ratio,
            "is_short": ratio < required_ratio,
        }
        print(
            f"{policy:<12}{rates[0]:>12.1f}{rates[1]:>12.1f}"
            f"{ratio:>8.1f}{required_ratio:>10.0f}{'  SHORT' if ratio < required_ratio else ''}"
        )
    return figures


def compare_whole_command(
    binary: str, trace: pathlib.Path, oracle_file: pathlib.Path, request_and_key_counts: tuple
) -> dict:
    """Prints and returns the CPU seconds of 12 policies at 5 sizes."""
    capacities = [max(1, int(request_and_key_counts[1] * fraction + 0.5)) for fraction in FRACTIONS]
    pairs = [f"{policy}:{capacity}" for policy in WHOLE_COMMAND_POLICIES for capacity in capacities]
    their_s = sum(result["seconds"] for result in run_libcachesim(oracle_file, pairs)["results"])
    _, our_s = run_glasscache(binary, trace, WHOLE_COMMAND_POLICIES, capacities)
    print(
        f"{trace.stem}, 12 policies x 5 sizes: libcachesim's 60 replays {their_s:.1f} s of CPU, "
        f"the whole command on one thread {our_s:.1f} s, ratio {their_s / our_s:.1f} "
        f"(required {REQUIRED_RATIO_WHOLE_COMMAND:.0f})\n"
    )
    return {
        "libcachesim_s": their_s,
        "glasscache_s": our_s,
        "ratio": their_s / our_s,
        "is_short": their_s < our_s * REQUIRED_RATIO_WHOLE_COMMAND,
    }


def main() -> int:
    """Compares on every trace and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--binary", default="target/release/glasscache")
    parser.add_argument("--turns", dest="rounds", type=int, default=3)
    parser.add_argument("--trace", action="append", choices=TRACES, help="only this one")
    parser.add_argument("--keep", help="folder of results")
    options = parser.parse_args()
    missed_count = 0
    for trace_name in options.trace or TRACES:
        with tempfile.TemporaryDirectory() as temporary_folder:
            trace, oracle_file = (
                options.folder / f"{trace_name}.parquet",
                pathlib.Path(temporary_folder) / f"{trace_name}.bin",
            )
            request_and_key_counts = write_oracle_general(trace, oracle_file)
            policy_figures = compare_policies(
                options.binary, trace, oracle_file, request_and_key_counts, options.rounds
            )
            whole_command_figures = compare_whole_command(
                options.binary, trace, oracle_file, request_and_key_counts
            )
        missed_count += sum(
            row["is_short"] for row in [*policy_figures.values(), whole_command_figures]
        )
        if options.keep:
            settings = {"turns": options.rounds, "libcachesim": "0.3.5", "threads": 1}
            write_record(
                options.keep,
                f"sim-{trace_name}",
                settings,
                {"policies": policy_figures, "whole": whole_command_figures},
            )
    print(
        "every ratio as required"
        if not missed_count
        else f"{missed_count} ratios below the requirement"
    )
    return 1 if missed_count else 0


if __name__ == "__main__":
    sys.exit(main())
