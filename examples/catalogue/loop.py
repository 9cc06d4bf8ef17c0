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
from visitors import drive

SHARE = 0.1
"""The memory of a process for what it keeps, as a share of the bytes of the whole tree."""

MEMORY = "512M"
"""Of the cache server: more than the tree has."""


class Loop:
    """The steps, each with its line of output."""

    def __init__(
        self, folder: Path, topics: int, requests: int, within: tuple[float, float]
    ) -> None:
        """Work in a folder; a forecast may be wrong by these per cent, without and with the relay."""
        self.folder, self.topics, self.requests, self.within = folder, topics, requests, within
        self.log, self.strategy = folder / "log", folder / "best.strategy"
        self.environment = {"CATALOGUE_FILE": str(folder / "catalogue.db")}
        self._began = time.monotonic()

    def report(self, step: str, line: str) -> None:
        """Print what a step found."""
        print(f"{time.monotonic() - self._began:6.1f} s  {step:<9} {line}", flush=True)

    def run(self) -> bool:
        """Run all steps; return whether the forecast held."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        catalogue.create(Path(self.environment["CATALOGUE_FILE"]), self.topics)
        self.report("database", f"{self.topics:,} topics in {self.environment['CATALOGUE_FILE']}")
        with Server(memory=MEMORY) as server:
            self.environment["CATALOGUE_CACHE"] = server.address
            self.record()
            best, remote = self.simulate(server.address)
            self.deploy(best)
            held = self.replay(server.address, remote)
            with Relay(server.address) as relay:
                return self.replay_through(relay) and held

    def record(self) -> None:
        """Fill the cache with what visitors read, then record other visitors."""
        filled = drive(self.environment, self.requests, seed=1)
        queries = sum(each["queries"] for each in filled)
        drive({**self.environment, "CATALOGUE_LOG": str(self.log)}, self.requests, seed=2)
        found = lab.inspect(self.log)
        self.report(
            "record",
            f"{found['requests']:,} requests of {found['items']:,} items; {queries:,} topics made before",
        )

    def simulate(self, server: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Measure the cache and save the best strategy; return its results and those of `remote`."""
        sizes, widths = [100, 1000, 3000], [1, 3, 10, 30]
        table = self.log / "latency.json"
        lab.profile(server, latency_out=table, calls=1000, sizes=sizes, widths=widths)
        memory = int(SHARE * lab.inspect(self.log)["item_bytes"])
        found = lab.simulate(
            self.log,
            search=True,
            memory=memory,
            save=self.strategy,
            html=self.folder / "search.html",
        )
        best: dict[str, Any] = found["front"][-1]
        remote = lab.simulate(self.log, strategies=["remote"])["strategies"]["remote"]
        self.report("simulate", f"best within {memory:,} bytes a process: {best['strategy']}")
        for line in self.strategy.read_text().splitlines():
            if line.startswith("forecast "):
                _, name, value, low, high = line.split()
                self.report("", f"  forecast {name}: {value} ({low} to {high})")
        return best, remote

    def deploy(self, best: dict[str, Any]) -> None:
        """Run the application with the strategy, for visitors that nobody has seen before."""
        environment = {**self.environment, "CATALOGUE_STRATEGY": str(self.strategy)}
        deployed = drive(environment, self.requests, seed=3)
        requests = sum(each["requests"] for each in deployed)
        calls = sum(each["near"]["calls"] for each in deployed)
        wrong = sum(each["wrong"] + each["missing"] for each in deployed)
        expected = best["second_half"]["calls"] / best["second_half"]["requests"]
        self.report(
            "deploy",
            f"{calls / requests:.2f} calls a request, forecast {expected:.2f}; "
            f"{wrong} wrong pages or missing keys",
        )

    def replay(self, server: str, remote: dict[str, Any]) -> bool:
        """Make the recorded requests again, without and with the strategy."""
        plain = self.folder / "remote.strategy"
        plain.write_text("glasscache-strategy 1\nstrategy remote\n")
        within = self.within[0]
        without = lab.replay(self.log, target=server, strategy=plain, within=within)
        page = self.folder / "replay.html"
        found = lab.replay(
            self.log, target=server, strategy=self.strategy, within=within, html=page
        )
        before, after = (each["measured"]["second_half"] for each in (without, found))
        counted = remote["second_half"]["calls"] == before["calls"]
        p95 = after["added_ns_pct"]["95"] / max(1, before["added_ns_pct"]["95"])
        self.report(
            "replay",
            f"{before['calls'] / max(1, after['calls']):.1f} times fewer calls than without, "
            f"added time at p95 {p95:.2f} of what it was",
        )
        self.report("check", found["sentence"])
        self.report("page", str(page))
        held: bool = found["held"] and counted
        return held

    def replay_through(self, relay: Relay) -> bool:
        """Make the recorded requests again through a relay."""
        page = self.folder / "replay-relay.html"
        found = lab.replay(
            self.log,
            target=relay.address,
            strategy=self.strategy,
            within=self.within[1],
            html=page,
        )
        self.report("relay", found["sentence"])
        self.report("page", str(page))
        held: bool = found["held"]
        return held


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
    given = parser.parse_args()
    loop = Loop(given.folder, given.topics, given.requests, tuple(given.within))
    return 0 if loop.run() else 1


if __name__ == "__main__":
    sys.exit(main())
