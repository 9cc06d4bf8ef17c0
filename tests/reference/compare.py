"""Compares `glasscache curve` with the reference miss ratios of a folder of traces, row by row.

Rows whose value a definition fixes must be equal to the sixth digit. Of the others, those without a
note and with at least 500 objects (or in bytes) may be worse by 0.005 on average and by 0.02 at a
point (0.04 where lots are drawn or a sketch decides). LRU's sampled curve is held against the exact
one on the two long traces.
"""

import argparse
import collections
import csv
import json
import pathlib
import subprocess
import sys

WORSE_MEAN_MAX = 0.005
WORSE_MAX = collections.defaultdict(lambda: 0.02, {"W-TinyLFU": 0.04, "LHD": 0.04, "LeCaR": 0.04})
OBJECTS_MIN = 500
SAMPLE_MEAN_MAX, SAMPLE_MAX = 0.003, 0.02
SAMPLED = ("cloudphysics-w106", "cache2k-orm-busy")


def curve(binary: str, *arguments: str) -> dict:
    """Returns what `glasscache curve ... --json` prints."""
    done = subprocess.run(
        [binary, "curve", *arguments, "--json"], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)["result"]


def replayed(binary: str, folder: pathlib.Path, rows: list[dict]) -> dict:
    """Returns the result of each (trace, mode, policy, capacity) of the rows."""
    wanted = collections.defaultdict(lambda: (set(), set()))
    for row in rows:
        policies, capacities = wanted[row["trace"], row["mode"]]
        policies.add(row["algorithm"])
        capacities.add(row["capacity"])
    found = {}
    for (trace, mode), (policies, capacities) in wanted.items():
        document = curve(
            binary,
            str(folder / f"{trace}.parquet"),
            "--mode",
            mode,
            "--policies",
            ",".join(sorted(policies)),
            "--capacities",
            ",".join(sorted(capacities, key=int)),
        )
        for result in document["results"]:
            found[trace, mode, result["policy"], str(result["capacity"])] = result
    return found


def check_definitions(rows: list[dict], found: dict) -> int:
    """Prints the rows that differ in the first six digits and returns how many."""
    differing = 0
    for row in rows:
        result = found[row["trace"], row["mode"], row["algorithm"], row["capacity"]]
        pairs = [
            (row["miss_ratio"], result["miss_ratio"]),
            (row["byte_miss_ratio"], result["byte_miss_ratio"]),
        ]
        if any(wanted and wanted != f"{ratio:.6f}" for wanted, ratio in pairs):
            differing += 1
            print("differs:", row["trace"], row["mode"], row["algorithm"], row["capacity"], pairs)
    print(
        f"fixed by definition: {len(rows) - differing} of {len(rows)} rows equal to the sixth digit"
    )
    return differing


def check_others(rows: list[dict], found: dict) -> int:
    """Prints how far each policy lies from its reference and returns how many lie too far."""
    distances = collections.defaultdict(list)
    for row in rows:
        result = found[row["trace"], row["mode"], row["algorithm"], row["capacity"]]
        distances[row["algorithm"]].append(result["miss_ratio"] - float(row["miss_ratio"]))
    print(f"{'policy':<12}{'points':>7}{'mean difference':>17}{'worst':>9}")
    faults = 0
    for policy, values in sorted(distances.items()):
        mean, worst = sum(values) / len(values), max(values)
        is_fault = mean > WORSE_MEAN_MAX or worst > WORSE_MAX[policy]
        faults += is_fault
        print(
            f"{policy:<12}{len(values):>7}{mean:>+17.4f}{worst:>+9.4f}{'  TOO FAR' if is_fault else ''}"
        )
    return faults


def check_sample(binary: str, path: pathlib.Path, keys: int) -> int:
    """Holds sampled curves against the exact one at 20 sizes; returns 1 if too far."""
    # LRU replayed at a size is the exact curve there.
    sizes = ",".join(f"{5 * step}%" for step in range(1, 21))
    exact = curve(binary, str(path), "--policies", "lru", "--capacities", sizes)["results"]
    wanted = [result["capacity"] for result in exact]
    worst_mean = worst = 0.0
    for seed in range(1, 6):
        document = curve(
            binary, str(path), "--policies", "none", "--sample", str(keys), "--seed", str(8 * seed)
        )
        points = document["lru"]["points"]
        errors = []
        for result, size in zip(exact, wanted, strict=True):
            point = min(points, key=lambda point: abs(point["size"] - size))
            errors += [abs(point[name] - result["miss_ratio"]) for name in ("low", "high")]
        worst_mean, worst = max(worst_mean, sum(errors) / len(errors)), max(worst, *errors)
    is_fault = worst_mean > SAMPLE_MEAN_MAX or worst > SAMPLE_MAX
    print(
        f"sample of {keys} keys of {path.stem}, 5 x 8 seeds, the lowest and highest of each 8: "
        f"mean error {worst_mean:.4f}, largest {worst:.4f}{'  TOO FAR' if is_fault else ''}"
    )
    return int(is_fault)


def main() -> int:
    """Runs every comparison and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--binary", default="target/release/glasscache")
    options = parser.parse_args()
    with (options.folder / "reference-miss-ratios.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = replayed(options.binary, options.folder, rows)
    fixed = [row for row in rows if row["determined_by"] == "definition"]
    others = [
        row
        for row in rows
        if row["determined_by"] == "implementation"
        and not row["note"]
        and (row["mode"] == "bytes" or int(row["capacity"]) >= OBJECTS_MIN)
    ]
    faults = check_definitions(fixed, found) + check_others(others, found)
    faults += sum(
        check_sample(options.binary, options.folder / f"{trace}.parquet", 8192) for trace in SAMPLED
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
