"""Computations on a Dask cluster: real workers in processes of their own, and the results of one process."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from glasscache import lab, sim
from glasscache.errors import BadSetting
from glasscache.sim import _dask

distributed = pytest.importorskip(
    "distributed", reason="the extra glasscache[dask] is not installed"
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("default"),  # what Dask and tornado warn about is theirs
]

STRATEGIES = [
    "remote",
    "lru:40",
    "s3fifo:40",
    "fixed:40+children",
    "fixed-bytes:60000+lru-bytes:60000",
    "subtree:1",
    "together:60",
]
POLICIES = ["LRU", "S3-FIFO", "W-TinyLFU", "LHD", "LeCaR", "Belady"]
CAPACITIES = [50, 0.1, 0.5]
KILL_WAIT_S = 120.0


@pytest.fixture(scope="module", params=[2, 4])
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=request.param,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        host="127.0.0.1",
    ) as local_cluster:
        yield local_cluster


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a generated request log."""
    folder = tmp_path_factory.mktemp("dask") / "site"
    lab.generate("topic-tree", folder, requests=4000, items=600)
    return folder


def keys_and_sizes() -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    keys = rng.zipf(1.2, 30_000) % 4000
    return keys, (keys * 37) % 900


def test_curve_on_a_cluster_equals_the_single_process(cluster: Any) -> None:
    keys, sizes = keys_and_sizes()
    for trace in (sim.Trace(keys), sim.Trace(keys, sizes)):
        result_of_process = trace.curve(policies=POLICIES, capacities=CAPACITIES, seed=9)
        result_on_cluster = trace.curve(
            policies=POLICIES, capacities=CAPACITIES, seed=9, dask=cluster.scheduler_address
        )
        assert result_on_cluster == result_of_process


def test_file_with_ttls_on_a_cluster_equals_the_single_process(
    cluster: Any, tmp_path: Path
) -> None:
    rows = [
        f"{index},{(index * index) % 97},{index % 50 + 1},{'set' if index % 7 == 0 else 'get'},{index % 5}"
        for index in range(3000)
    ]
    trace_file = tmp_path / "trace.csv"
    trace_file.write_text("\n".join(["time,key,size,op,ttl", *rows]) + "\n")
    result_of_process = sim.curve(
        trace_file, mode="bytes", policies=["LRU", "FIFO"], capacities=[100, 0.3]
    )
    assert result_of_process == sim.curve(
        trace_file,
        mode="bytes",
        policies=["LRU", "FIFO"],
        capacities=[100, 0.3],
        dask=cluster.scheduler_address,
    )


def test_simulate_on_a_cluster_equals_the_single_process(cluster: Any, log_folder: Path) -> None:
    for draw_seed in (None, 3):
        result_of_process = sim.simulate(log_folder, STRATEGIES, draw_seed=draw_seed)
        result_on_cluster = sim.simulate(
            log_folder, STRATEGIES, draw_seed=draw_seed, dask=cluster.scheduler_address
        )
        assert result_on_cluster == result_of_process
        assert list(result_on_cluster) == list(result_of_process)


def test_search_on_a_cluster_equals_the_single_process(cluster: Any, log_folder: Path) -> None:
    result_of_process = sim.search(log_folder, memory=300_000)
    assert result_of_process["tried"] > 200
    assert sim.search(log_folder, memory=300_000, threads=1) == result_of_process
    assert (
        sim.search(log_folder, memory=300_000, dask=cluster.scheduler_address) == result_of_process
    )


def test_results_are_the_same_when_a_worker_is_killed(
    cluster: Any, log_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dask, "PART_BYTES", 10_000)  # the killed worker holds some of many parts
    strategies = [f"lru:{count}+children" for count in range(1, 200)]
    result_of_process = sim.simulate(log_folder, strategies)
    outcomes: dict[str, sim.Outcome] = {}

    def simulate() -> None:
        outcomes.update(sim.simulate(log_folder, strategies, dask=cluster.scheduler_address))

    simulating_thread = threading.Thread(target=simulate)
    simulating_thread.start()
    kill_a_busy_worker(cluster)
    simulating_thread.join(KILL_WAIT_S)
    assert not simulating_thread.is_alive()
    assert outcomes == result_of_process


def kill_a_busy_worker(cluster: Any) -> None:
    """Kill a worker process that has computations which it cannot finish any more."""
    deadline = time.monotonic() + KILL_WAIT_S
    while time.monotonic() < deadline:
        for nanny in cluster.workers.values():
            worker_state = cluster.scheduler.workers.get(nanny.worker_address)
            if nanny.pid is None or worker_state is None or not running_computations(worker_state):
                continue
            os.kill(nanny.pid, signal.SIGSTOP)
            time.sleep(0.2)  # what it had sent before has arrived
            if running_computations(worker_state):
                os.kill(nanny.pid, signal.SIGKILL)
                return
            os.kill(nanny.pid, signal.SIGCONT)
        time.sleep(0.001)
    pytest.fail("no worker was busy")


def running_computations(worker_state: Any) -> list[str]:
    return [
        task.key for task in list(worker_state.processing) if str(task.key).startswith("compute-")
    ]


def test_refusals_are_those_of_the_single_process(cluster: Any, log_folder: Path) -> None:
    address = cluster.scheduler_address
    with pytest.raises(BadSetting, match="mru"):
        sim.curve([1], policies=["mru"], dask=address)
    with pytest.raises(BadSetting, match="nothing-known"):
        sim.simulate(log_folder, ["nothing-known"], dask=address)
    with pytest.raises(BadSetting, match='route "absent"'):
        sim.search(log_folder, exclude=["absent"], dask=address)
    with pytest.raises(BadSetting, match="at least 0"):
        sim.search(log_folder, memory=-1)


def test_worker_of_another_version_is_refused() -> None:
    job = _dask.Job("0.0.0", "trace", "digest", ())
    with pytest.raises(BadSetting, match="install the same version"):
        _dask.compute(job, "replay", ([], [], 1))


def test_cluster_that_cannot_be_reached_is_an_os_error() -> None:
    import dask

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(OSError, match=r"127\.0\.0\.1:1"),
    ):
        sim.curve([1, 2], dask="tcp://127.0.0.1:1")
