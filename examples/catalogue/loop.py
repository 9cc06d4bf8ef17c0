"""The whole loop: record what requests read, simulate strategies, deploy the best, replay, check.

The replay is done twice: against the cache itself, and through a relay that delays each request as a
network would.

Usage: python examples/catalogue/loop.py [--topics 20000] [--requests 6000] [--folder build/loop]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import catalogue
from glasscache import Server, lab
from relay import Relay
from visitors import visit_in_processes

MEMORY_SHARE = 0.1
"""The memory of a process for what it keeps, as a share of the bytes of the whole tree."""

SERVER_MEMORY = "512M"
"""Of the cache server: more than the tree has."""


class LoopSteps:
    """The steps, each with its line of output."""

    def __init__(
        self,
        folder: Path,
        topic_count: int,
        request_count: int,
        tolerance_percent: tuple[float, float],
    ) -> None:
        """Work in a folder; a forecast may be wrong by these per cent, without and with the relay."""
        self.folder, self.topic_count, self.request_count, self.tolerance_percent = (
            folder,
            topic_count,
            request_count,
            tolerance_percent,
        )
        self.log_folder, self.strategy_file = folder / "log", folder / "best.strategy"
        self.environment = {"CATALOGUE_FILE": str(folder / "catalogue.db")}
        self._started_at = time.monotonic()

    def report(self, step: str, line: str) -> None:
        """Print what a step found."""
        print(f"{time.monotonic() - self._started_at:6.1f} s  {step:<9} {line}", flush=True)

    def run_all(self) -> bool:
        """Run all steps; return whether the forecast held."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        catalogue.create(Path(self.environment["CATALOGUE_FILE"]), self.topic_count)
        self.report(
            "database", f"{self.topic_count:,} topics in {self.environment['CATALOGUE_FILE']}"
        )
        with Server(memory=SERVER_MEMORY) as server:
            self.environment["CATALOGUE_CACHE"] = server.address
            self.record()
            best, remote = self.simulate(server.address)
            self.deploy(best)
            is_forecast_met = self.replay(server.address, remote)
            with Relay(server.address) as relay:
                return self.replay_through_relay(relay) and is_forecast_met

    def record(self) -> None:
        """Fill the cache with what visitors read, then record other visitors."""
        counters = visit_in_processes(self.environment, self.request_count, seed=1)
        query_count = sum(process_counters["queries"] for process_counters in counters)
        visit_in_processes(
            {**self.environment, "CATALOGUE_LOG": str(self.log_folder)}, self.request_count, seed=2
        )
        log_summary = lab.inspect(self.log_folder)
        self.report(
            "record",
            f"{log_summary['requests']:,} requests of {log_summary['items']:,} items; "
            f"{query_count:,} topics read from the database before",
        )

    def simulate(self, server_address: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Measure the cache and save the best strategy; return its results and those of `remote`."""
        sizes, widths = [100, 1000, 3000], [1, 3, 10, 30]
        latency_file = self.log_folder / "latency.json"
        lab.profile(
            server_address, latency_out=latency_file, calls=1000, sizes=sizes, widths=widths
        )
        memory = int(MEMORY_SHARE * lab.inspect(self.log_folder)["item_bytes"])
        search_result = lab.simulate(
            self.log_folder,
            search=True,
            memory=memory,
            save=self.strategy_file,
            html=self.folder / "search.html",
        )
        best: dict[str, Any] = search_result["front"][-1]
        remote = lab.simulate(self.log_folder, strategies=["remote"])["strategies"]["remote"]
        self.report("simulate", f"best within {memory:,} bytes a process: {best['strategy']}")
        for line in self.strategy_file.read_text().splitlines():
            if line.startswith("forecast "):
                _, name, value, lower_bound, upper_bound = line.split()
                self.report("", f"  forecast {name}: {value} ({lower_bound} to {upper_bound})")
        return best, remote

    def deploy(self, best: dict[str, Any]) -> None:
        """Run the application with the strategy, for visitors that were not recorded."""
        environment = {**self.environment, "CATALOGUE_STRATEGY": str(self.strategy_file)}
        counters = visit_in_processes(environment, self.request_count, seed=3)
        request_count = sum(process_counters["requests"] for process_counters in counters)
        call_count = sum(process_counters["near"]["calls"] for process_counters in counters)
        failure_count = sum(
            process_counters["wrong"] + process_counters["missing"] for process_counters in counters
        )
        expected_calls = best["second_half"]["calls"] / best["second_half"]["requests"]
        self.report(
            "deploy",
            f"{call_count / request_count:.2f} calls a request, forecast {expected_calls:.2f}; "
            f"{failure_count} wrong pages or missing keys",
        )

    def replay(self, server_address: str, remote: dict[str, Any]) -> bool:
        """Make the recorded requests again, without and with the strategy."""
        remote_file = self.folder / "remote.strategy"
        remote_file.write_text("glasscache-strategy 1\nstrategy remote\n")
        tolerance_percent = self.tolerance_percent[0]
        without_strategy = lab.replay(
            self.log_folder, target=server_address, strategy=remote_file, within=tolerance_percent
        )
        page_file = self.folder / "replay.html"
        with_strategy = lab.replay(
            self.log_folder,
            target=server_address,
            strategy=self.strategy_file,
            within=tolerance_percent,
            html=page_file,
        )
        figures_without, figures_with = (
            replay_result["measured"]["second_half"]
            for replay_result in (without_strategy, with_strategy)
        )
        has_equal_calls = remote["second_half"]["calls"] == figures_without["calls"]
        p95_ratio = figures_with["added_ns_pct"]["95"] / max(
            1, figures_without["added_ns_pct"]["95"]
        )
        self.report(
            "replay",
            f"{figures_without['calls'] / max(1, figures_with['calls']):.1f} times fewer calls than without, "
            f"added time at p95 {p95_ratio:.2f} of what it was",
        )
        self.report("check", with_strategy["sentence"])
        self.report("page", str(page_file))
        is_forecast_met: bool = with_strategy["held"] and has_equal_calls
        return is_forecast_met

    def replay_through_relay(self, relay: Relay) -> bool:
        """Make the recorded requests again through a relay."""
        page_file = self.folder / "replay-relay.html"
        result = lab.replay(
            self.log_folder,
            target=relay.address,
            strategy=self.strategy_file,
            within=self.tolerance_percent[1],
            html=page_file,
        )
        self.report("relay", result["sentence"])
        self.report("page", str(page_file))
        is_forecast_met: bool = result["held"]
        return is_forecast_met


def main() -> int:
    """Run the loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=catalogue.TOPICS)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--folder", type=Path, default=Path("build/loop"))
    parser.add_argument(
        "--within",
        type=float,
        nargs=2,
        default=(20, 10),
        metavar="PERCENT",
        help="as of glasscache replay: of the cache itself, and through the relay",
    )
    options = parser.parse_args()
    loop = LoopSteps(options.folder, options.topics, options.requests, tuple(options.within))
    return 0 if loop.run_all() else 1


if __name__ == "__main__":
    sys.exit(main())
