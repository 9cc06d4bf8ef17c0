"""Times `glasscache curve` beside libcachesim on the same traces, in turns, by CPU time.

Two questions: how fast is each policy's replay alone (ours without interning, which all replays of
a trace share; theirs with the native reader on unit sizes), and what does a whole command of 12
policies at 5 sizes cost on one thread, reading and interning included. CPU time and turns keep
other work on the machine out of the ratio.
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
WHOLE = POLICIES[:12]
FRACTIONS = (0.001, 0.01, 0.05, 0.1, 0.2)
WANTED = dict.fromkeys(("LRU", "FIFO", "SIEVE"), 4.0)
WANTED_ELSE, WANTED_WHOLE = 2.0, 3.0


def write_oracle_general(source: pathlib.Path, target: pathlib.Path) -> tuple[int, int]:
    """Writes the trace as 24-byte records with next uses; returns its requests and distinct keys."""
    keys = pyarrow.parquet.read_table(source, columns=["key"])["key"].to_numpy()
    distinct, ids = np.unique(keys, return_inverse=True)
    order = np.argsort(ids, kind="stable")
    following = np.full(len(keys), -1, dtype=np.int64)
    same = ids[order[1:]] == ids[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    records = np.zeros(len(keys), dtype="<u4,<u8,<u4,<i8")
    records["f0"], records["f1"] = np.arange(len(keys)), keys
    records["f2"], records["f3"] = 1, following
    records.tofile(target)
    return len(keys), len(distinct)


def theirs(path: pathlib.Path, pairs: list[str]) -> dict:
    """Returns what libcachesim took for (policy:capacity) pairs, in a process of its own."""
    script = pathlib.Path(__file__).with_name("libcachesim_speed.py")
    completed = subprocess.run(
        [sys.executable, script, path, *pairs], stdout=subprocess.PIPE, check=True
    )
    return json.loads(completed.stdout.splitlines()[-1])


def ours(
    binary: str, path: pathlib.Path, policies: tuple, capacities: list[int]
) -> tuple[list[dict], float]:
    """Returns our rows with the CPU seconds of each replay, and those of the whole process, on one thread."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    completed = subprocess.run(
        [
            binary,
            "curve",
            path,
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
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(completed.stdout)["result"]["results"], seconds


def compare_policies(
    binary: str, trace: pathlib.Path, oracle: pathlib.Path, size: tuple, rounds: int
) -> dict:
    """Prints and returns million requests a CPU second of both, and their ratio, policy by policy."""
    requests, distinct = size
    capacity = int(distinct * 0.1 + 0.5)
    best = {}
    for _ in range(rounds):
        for policy in POLICIES:
            other = theirs(oracle, [f"{policy}:{capacity}"])["results"][0]["seconds"]
            own = ours(binary, trace, (policy,), [capacity])[0][0]["cpu_s"]
            before = best.get(policy, (other, own))
            best[policy] = (min(before[0], other), min(before[1], own))
    print(
        f"{trace.stem}, {capacity} objects, best of {rounds} turns, million requests per CPU second:"
    )
    print(f"{'policy':<12}{'libcachesim':>12}{'glasscache':>12}{'ratio':>8}{'wanted':>8}")
    figures = {}
    for policy, (other, own) in best.items():
        wanted, ratio = WANTED.get(policy, WANTED_ELSE), other / own
        rates = requests / other / 1e6, requests / own / 1e6
        figures[policy] = {
            "libcachesim": rates[0],
            "glasscache": rates[1],
            "ratio": ratio,
            "is_short": ratio < wanted,
        }
        print(
            f"{policy:<12}{rates[0]:>12.1f}{rates[1]:>12.1f}"
            f"{ratio:>8.1f}{wanted:>8.0f}{'  SHORT' if ratio < wanted else ''}"
        )
    return figures


def compare_whole(binary: str, trace: pathlib.Path, oracle: pathlib.Path, size: tuple) -> dict:
    """Prints and returns the CPU seconds of 12 policies at 5 sizes."""
    capacities = [max(1, int(size[1] * fraction + 0.5)) for fraction in FRACTIONS]
    pairs = [f"{policy}:{capacity}" for policy in WHOLE for capacity in capacities]
    other = sum(result["seconds"] for result in theirs(oracle, pairs)["results"])
    own = ours(binary, trace, WHOLE, capacities)[1]
    print(
        f"{trace.stem}, 12 policies x 5 sizes: libcachesim's 60 replays {other:.1f} s of CPU, "
        f"the whole command on one thread {own:.1f} s, ratio {other / own:.1f} (wanted {WANTED_WHOLE:.0f})\n"
    )
    return {
        "libcachesim_s": other,
        "glasscache_s": own,
        "ratio": other / own,
        "is_short": other < own * WANTED_WHOLE,
    }


def main() -> int:
    """Compares on every trace and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--binary", default="target/release/glasscache")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--trace", action="append", choices=TRACES, help="only this one")
    parser.add_argument("--keep", help="folder of results")
    options = parser.parse_args()
    short = 0
    for name in options.trace or TRACES:
        with tempfile.TemporaryDirectory() as folder:
            trace, oracle = options.folder / f"{name}.parquet", pathlib.Path(folder) / f"{name}.bin"
            size = write_oracle_general(trace, oracle)
            policies = compare_policies(options.binary, trace, oracle, size, options.rounds)
            whole = compare_whole(options.binary, trace, oracle, size)
        short += sum(row["is_short"] for row in [*policies.values(), whole])
        if options.keep:
            settings = {"turns": options.rounds, "libcachesim": "0.3.5", "threads": 1}
            write_record(
                options.keep, f"sim-{name}", settings, {"policies": policies, "whole": whole}
            )
    print("every ratio as wanted" if not short else f"{short} ratios short of what is wanted")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
