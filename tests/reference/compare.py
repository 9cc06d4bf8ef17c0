"""Compares `glasscache curve` with the reference miss ratios of a folder of traces, row by row.

Rows whose value a definition fixes must be equal to the sixth digit. Of the others, those without a
note and with at least 500 objects (or in bytes) may be worse by 0.005 on average and by 0.02 at a
point (0.04 where a policy is random or uses a sketch). The sampled curve of LRU is compared with the exact
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
SAMPLE_MEAN_ERROR_MAX, SAMPLE_ERROR_MAX = 0.003, 0.02
SAMPLED_TRACES = ("cloudphysics-w106", "cache2k-orm-busy")


def run_curve_command(binary: str, *arguments: str) -> dict:
    """Returns what `glasscache curve ... --json` prints."""
    completed = subprocess.run(
        [binary, "curve", *arguments, "--json"], stdout=subprocess.PIPE, check=True
    )
    return json.loads(completed.stdout)["result"]


def replay_rows(binary: str, folder: pathlib.Path, rows: list[dict]) -> dict:
    """Returns the result of each (trace, mode, policy, capacity) of the rows."""
    rows_by_trace = collections.defaultdict(lambda: (set(), set()))
    for row in rows:
        policies, capacities = rows_by_trace[row["trace"], row["mode"]]
        policies.add(row["algorithm"])
        capacities.add(row["capacity"])
    results_by_row = {}
    for (trace, mode), (policies, capacities) in rows_by_trace.items():
        document = run_curve_command(
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
            results_by_row[trace, mode, result["policy"], str(result["capacity"])] = result
    return results_by_row


def count_definition_faults(rows: list[dict], results_by_row: dict) -> int:
    """Prints the rows that differ in the first six digits and returns how many."""
    differing_count = 0
    for row in rows:
        result = results_by_row[row["trace"], row["mode"], row["algorithm"], row["capacity"]]
        pairs = [
            (row["miss_ratio"], result["miss_ratio"]),
            (row["byte_miss_ratio"], result["byte_miss_ratio"]),
        ]
        if any(expected and expected != f"{ratio:.6f}" for expected, ratio in pairs):
            differing_count += 1
            print("differs:", row["trace"], row["mode"], row["algorithm"], row["capacity"], pairs)
    print(
        f"fixed by definition: {len(rows) - differing_count} of {len(rows)} rows equal to the sixth digit"
    )
    return differing_count


def count_implementation_faults(rows: list[dict], results_by_row: dict) -> int:
    """Prints the difference of each policy from its reference and returns how many are too large."""
    differences_by_policy = collections.defaultdict(list)
    for row in rows:
        result = results_by_row[row["trace"], row["mode"], row["algorithm"], row["capacity"]]
        differences_by_policy[row["algorithm"]].append(
            result["miss_ratio"] - float(row["miss_ratio"])
        )
    print(f"{'policy':<12}{'points':>7}{'mean difference':>17}{'worst':>9}")
    fault_count = 0
    for policy, differences in sorted(differences_by_policy.items()):
        mean_difference, difference_max = sum(differences) / len(differences), max(differences)
        is_fault = mean_difference > WORSE_MEAN_MAX or difference_max > WORSE_MAX[policy]
        fault_count += is_fault
        print(
            f"{policy:<12}{len(differences):>7}{mean_difference:>+17.4f}{difference_max:>+9.4f}"
            f"{'  TOO FAR' if is_fault else ''}"
        )
    return fault_count


def count_sampling_faults(binary: str, trace_file: pathlib.Path, key_count: int) -> int:
    """Compares sampled curves with the exact one at 20 sizes; returns 1 if one is too far."""
    # LRU replayed at a size is the exact curve there.
    sizes = ",".join(f"{5 * step}%" for step in range(1, 21))
    exact_results = run_curve_command(
        binary, str(trace_file), "--policies", "lru", "--capacities", sizes
    )["results"]
    capacities = [result["capacity"] for result in exact_results]
    mean_error_max = error_max = 0.0
    for seed in range(1, 6):
        document = run_curve_command(
            binary,
            str(trace_file),
            "--policies",
            "none",
            "--sample",
            str(key_count),
            "--seed",
            str(8 * seed),
        )
        points = document["lru"]["points"]
        errors = []
        for result, capacity in zip(exact_results, capacities, strict=True):
            point = min(points, key=lambda candidate: abs(candidate["size"] - capacity))
            errors += [abs(point[bound] - result["miss_ratio"]) for bound in ("low", "high")]
        mean_error_max, error_max = (
            max(mean_error_max, sum(errors) / len(errors)),
            max(error_max, *errors),
        )
    is_fault = mean_error_max > SAMPLE_MEAN_ERROR_MAX or error_max > SAMPLE_ERROR_MAX
    print(
        f"sample of {key_count} keys of {trace_file.stem}, 5 x 8 seeds, the lowest and highest of each 8: "
        f"mean error {mean_error_max:.4f}, largest {error_max:.4f}{'  TOO FAR' if is_fault else ''}"
    )
    return int(is_fault)


def main() -> int:
    """Runs every comparison and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--binary", default="target/release/glasscache")
    options = parser.parse_args()
    with (options.folder / "reference-miss-ratios.csv").open() as csv_file:
        rows = list(csv.DictReader(csv_file))
    results_by_row = replay_rows(options.binary, options.folder, rows)
    defined_rows = [row for row in rows if row["determined_by"] == "definition"]
    implementation_rows = [
        row
        for row in rows
        if row["determined_by"] == "implementation"
        and not row["note"]
        and (row["mode"] == "bytes" or int(row["capacity"]) >= OBJECTS_MIN)
    ]
    fault_count = count_definition_faults(
        defined_rows, results_by_row
    ) + count_implementation_faults(implementation_rows, results_by_row)
    fault_count += sum(
        count_sampling_faults(options.binary, options.folder / f"{trace}.parquet", 8192)
        for trace in SAMPLED_TRACES
    )
    return 1 if fault_count else 0


if __name__ == "__main__":
    sys.exit(main())
