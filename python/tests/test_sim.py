"""The lab's computations from Python: against plain definitions, from arrays and files, and refusals."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import pytest
from glasscache import sim
from glasscache.errors import BadSetting, BadTrace

if TYPE_CHECKING:
    from pathlib import Path

KEYS = [random.Random(7).randrange(40) ** 2 % 61 for _ in range(3000)]


def count_lru_misses(keys: list[int], capacity: int) -> int:
    """Return the misses of an LRU by its definition."""
    cache: OrderedDict[int, None] = OrderedDict()
    miss_count = 0
    for key in keys:
        if key in cache:
            cache.move_to_end(key)
            continue
        miss_count += 1
        if len(cache) == capacity:
            cache.popitem(last=False)
        cache[key] = None
    return miss_count


def test_lru_equals_its_definition_by_replay_and_by_curve() -> None:
    trace = sim.Trace(KEYS)
    assert (trace.requests, trace.distinct) == (len(KEYS), len(set(KEYS)))
    exact = trace.lru_curve()
    for capacity in (1, 2, 7, 20, trace.distinct):
        misses = count_lru_misses(KEYS, capacity)
        assert trace.curve(capacities=[capacity])[0].misses == misses
        assert exact.miss_ratio(capacity) == pytest.approx(misses / len(KEYS))
        assert exact.band(capacity).low == exact.band(capacity).high
    assert exact.points(4)[0] == (0, 1.0)
    assert exact.size_for(0.0) is None
    miss_ratio_at_footprint = exact.miss_ratio(trace.footprint)
    assert exact.size_for(miss_ratio_at_footprint) <= trace.footprint


def test_any_form_of_keys_gives_the_same_points() -> None:
    policies = ["fifo", "s3fifo", "W-TinyLFU", "belady"]
    key_forms = [
        KEYS,
        array("q", KEYS),
        [f"key:{key}" for key in KEYS],
        [(key, "tuple") for key in KEYS],
        *(np.array(KEYS, dtype=dtype) for dtype in ("u8", "i8", "u4", "i4", "u2", "u1")),
        np.array([str(key) for key in KEYS]),
    ]
    points = [sim.curve(keys, policies=policies, capacities=[5, 0.5]) for keys in key_forms]
    assert all(other == points[0] for other in points)
    assert [point.policy for point in points[0][::2]] == ["FIFO", "S3-FIFO", "W-TinyLFU", "Belady"]


def test_negative_and_large_keys_are_accepted() -> None:
    assert sim.Trace(np.array([-1, 5, -1])).distinct == 2
    assert sim.Trace([-1, 2**70, -1]).distinct == 2
    assert sim.Trace([2**64 - 1, 0, 2**64 - 1]).distinct == 2


def test_bytes_are_counted_if_sizes_are_given() -> None:
    trace = sim.Trace([1, 2, 1, 1], [100, 0, 100, 300])
    assert (trace.mode, trace.distinct, trace.footprint) == ("bytes", 3, 401)
    point = trace.curve(capacities=[200])[0]
    assert (point.misses, point.byte_miss_ratio) == (3, pytest.approx(401 / 501))
    assert sim.Trace([1, 2], [3, 4], mode="objects").mode == "objects"


def test_sampled_curve_has_a_spread_and_its_seed() -> None:
    keys = np.random.default_rng(3).zipf(1.2, 30_000) % 5000
    trace = sim.Trace(keys)
    sampled, exact = trace.lru_curve(sample=300), trace.lru_curve()
    size = trace.distinct // 4
    band = sampled.band(size)
    assert band.low <= band.mean <= band.high
    assert band.low < band.high
    assert abs(band.mean - exact.miss_ratio(size)) < 0.05
    assert trace.lru_curve(sample=300).band(size) == band
    assert trace.lru_curve(sample=300, seed=99).band(size) != band


def test_an_error_names_the_row_of_a_file_that_is_wrong(tmp_path: Path) -> None:
    valid_file = tmp_path / "good.csv"
    valid_file.write_text("key,size\n1,10\n2,20\n1,10\n")
    assert sim.Trace(valid_file).requests == 3
    assert sim.Trace(str(valid_file), mode="bytes").footprint == 30
    faulty_file = tmp_path / "bad.csv"
    faulty_file.write_text("key,size\n1,10\n2,-3\n3,1\n")
    with pytest.raises(BadTrace, match="row 2, column size") as error_info:
        sim.Trace(faulty_file, mode="bytes")
    assert (error_info.value.row, error_info.value.column) == (2, "size")
    assert error_info.value.file == str(faulty_file)
    with pytest.raises(FileNotFoundError, match="absent"):
        sim.Trace(tmp_path / "absent.csv")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sim.curve([1], policies=["mru"]), '"mru"'),
        (lambda: sim.curve([1], capacities=[0]), "at least 1"),
        (lambda: sim.curve([1], capacities=[1.5]), "a float is a share"),
        (lambda: sim.curve([1], capacities=[float("nan")]), "a float is a share"),
        (lambda: sim.Trace([1, 2], [1]), "2 keys and 1 sizes"),
        (lambda: sim.Trace([1, 2], [1, -1]), "sizes"),
        (lambda: sim.Trace(np.array([1, 2]), np.array([1, -1])), r"sizes\[1\]: -1"),
        (lambda: sim.Trace([1], [2**32]), r"sizes\[0\]: 4294967296"),
        (lambda: sim.Trace([1], mode="bytes"), "needs `sizes`"),
        (lambda: sim.Trace(np.zeros((2, 2), dtype="u8")), "one dimension"),
        (lambda: sim.Trace([1]).lru_curve(sample=0), "at least 1"),
        (lambda: sim.slab_classes(sim.SlabConfig(factor=1.0)), "greater than 1"),
        (lambda: sim.slab_classes(sim.SlabConfig(chunk=-1)), "-1 bytes"),
        (lambda: sim.optimal_slab_sizes([100], classes=63), "1 to 62"),
        (lambda: sim.slab_plan([100], key_bytes=0), "1 to 250"),
        (lambda: sim.slab_plan([2**31]), "no item"),
        (lambda: sim.slab_plan([]), "no item"),
    ],
)
def test_an_invalid_argument_is_refused_with_a_message(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(BadSetting, match=message):
        call()


def test_an_empty_trace_has_no_misses() -> None:
    assert sim.curve([], capacities=[1])[0].miss_ratio == 0.0
    assert sim.lru_curve([]).miss_ratio(5) == 0.0
    assert sim.lru_curve([]).knee() is None


def test_slab_classes_are_memcacheds_and_the_optimum_is_no_worse() -> None:
    classes = sim.slab_classes()
    assert classes[:6] == [96, 120, 152, 192, 240, 304]
    assert classes[-1] == 524_288
    rng = np.random.default_rng(5)
    sizes = rng.lognormal(6, 1, 5000).astype("u4")
    current_plan = sim.slab_plan(sizes)
    optimal_sizes = sim.optimal_slab_sizes(sizes, classes=40)
    assert optimal_sizes == sorted(set(optimal_sizes))
    assert len(optimal_sizes) <= 40
    plan_of_optimal_sizes = sim.slab_plan(
        sizes, config=sim.SlabConfig(slab_sizes=tuple(optimal_sizes))
    )
    assert plan_of_optimal_sizes.waste < current_plan.waste
    distinct, counts = np.unique(sizes, return_counts=True)
    assert sim.slab_plan(distinct, counts) == current_plan
    plan_with_trap = sim.slab_plan([100, 20_000], [1000, 1000], config=sim.SlabConfig(factor=1.08))
    assert plan_with_trap.trap_above == 13_800
    # Two classes, of 10,922 and of 885 chunks a page: each has its first page whatever the memory is.
    first_pages = sim.slab_plan([27, 1000], [1000, 1000], key_bytes=10, memory=1 << 20)
    assert first_pages.items_that_fit == 2 * 885


@pytest.fixture
def log_folder(tmp_path: Path) -> Path:
    """The worked example of the format document."""
    items = [("0", None, 1000), ("1", "0", 1000), ("2", "0", 1000), ("3", "1", 10_000)]
    item_rows = [
        json.dumps({"key": key, "parent": parent, "size": size}) for key, parent, size in items
    ]
    (tmp_path / "items.jsonl").write_text("\n".join(item_rows) + "\n")
    common_fields = {"instance": 0, "base_us": 10_000}
    first_request = {
        "request": 0,
        "time_us": 1,
        "page": "0",
        "items": ["0", "1", "0", "2"],
        "route": "x",
    }
    second_request = {
        "request": 1,
        "time_us": 2,
        "page": "1",
        "items": ["1", "3", "1"],
        "route": "y",
    }
    request_rows = [
        json.dumps(common_fields | request) for request in (first_request, second_request)
    ]
    (tmp_path / "requests.jsonl").write_text("\n".join(request_rows) + "\n")
    latencies = {
        "unit": "us",
        "single_us": [[1000, 1000], [10_000, 2000]],
        "batch_us": [[1, 1000], [11, 2000]],
    }
    (tmp_path / "latency.json").write_text(json.dumps(latencies))
    return tmp_path


def test_simulate_gives_the_numbers_of_the_worked_example(log_folder: Path) -> None:
    outcomes = sim.simulate(log_folder, ["remote", "lru:2", "children", "subtree:2"])
    assert list(outcomes) == ["remote", "lru:2", "children", "subtree:2"]
    added = {
        strategy_text: outcome["all"]["added_ns"] for strategy_text, outcome in outcomes.items()
    }
    assert added == {
        "remote": 6_000_000,
        "lru:2": 5_000_000,
        "children": 1_677_121 + 2_300_000,
        "subtree:2": 2_900_000 + 2_300_000,
    }
    assert outcomes["remote"]["second_half"]["requests"] == 1
    assert outcomes["lru:2"]["kept"]["fixed_items"] == 0


def test_simulate_refuses_an_invalid_argument_with_a_message(log_folder: Path) -> None:
    with pytest.raises(BadSetting, match="mru"):
        sim.simulate(log_folder, ["mru:2"])
    with pytest.raises(BadSetting, match="fewer than 2"):
        sim.simulate(log_folder, ["remote"], exclude=["x"])
    with pytest.raises(BadSetting, match='"z"'):
        sim.simulate(log_folder, ["remote"], exclude=["z"])
    with pytest.raises(BadSetting, match="single_pct"):
        sim.simulate(log_folder, ["remote"], draw_seed=1)
    (log_folder / "latency.json").write_text("{}")
    with pytest.raises(BadTrace, match="latency"):
        sim.simulate(log_folder, ["remote"])
    with pytest.raises(FileNotFoundError, match="items"):
        sim.simulate(log_folder / "absent", ["remote"])


def test_a_part_that_is_truncated_is_left_out_with_a_warning(log_folder: Path) -> None:
    for stem in ("items", "requests"):
        (log_folder / f"{stem}.jsonl").rename(log_folder / f"{stem}-0-000000.jsonl")
        (log_folder / f"{stem}-0-000001.parquet").write_bytes(b"PAR1 of which no more was copied")
    with pytest.warns(UserWarning, match=r"requests-0-000001.parquet \(32 bytes\) was skipped"):
        outcomes = sim.simulate(log_folder, ["remote"])
    assert outcomes["remote"]["all"]["requests"] == 2
    (log_folder / "requests-0-000000.jsonl").unlink()
    with pytest.raises(BadTrace, match="no part of the log is complete"):
        sim.simulate(log_folder, ["remote"])


def test_the_interpreter_runs_on_while_a_curve_is_computed() -> None:
    trace = sim.Trace(np.random.default_rng(1).integers(0, 30_000, 300_000))
    is_completed = threading.Event()

    def compute() -> None:
        trace.curve(policies=["LRU"], threads=1)
        is_completed.set()

    thread = threading.Thread(target=compute)
    thread.start()
    loop_count = 0
    while not is_completed.is_set():
        loop_count += 1
    thread.join()
    assert loop_count > 1000


@pytest.mark.parametrize(
    ("key_count", "policies_text"),
    [(60_000, '["LeCaR"] * 500'), (6_000, '["FIFO"] * 50_000')],
    ids=["long replays", "short replays"],
)
def test_ctrl_c_ends_a_long_curve(key_count: int, policies_text: str) -> None:
    program = f"""
import os, signal, threading
import numpy as np
from glasscache import sim
trace = sim.Trace(np.random.default_rng(1).integers(0, {key_count}, {key_count} * 10))
# Where the tests run in the background, a shell may have the signal ignored from the start.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
trace.curve(policies={policies_text}, threads=1)
"""
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode in (-signal.SIGINT, 130)
    assert "KeyboardInterrupt" in completed.stderr
