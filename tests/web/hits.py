"""The CPU of a hit under uvicorn beyond an empty application, in pairs of rounds, and a floor of it.

Usage: hits.py [--old CHECKOUT] [--fields one|eight|varied] [--rounds 9]. `--old` measures the package of
another checkout, whose module is built, in the same rounds. Everything runs on one core (see peers.py).
The floor is "bare read", which sends the same response after a read of two keys by a plain protocol, with no
client and no decision.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from glasscache import Server
from load import Connections
from processes import HERE, Process, uvicorn_processes

SLICES, SLICE_REQUESTS = 12, 200
"""The least of so many slices counts as a round: other processes can only add time."""
BROWSER_FIELDS = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/{number}.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language: de,en-US;q=0.7,en;q=0.3",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Connection: keep-alive",
    "Sec-Fetch-Dest: document",
    "Sec-Fetch-Mode: navigate",
)


class Rounds(NamedTuple):
    """An application and what a request took of its processor, in each round."""

    process: Process
    connection: Connections
    cpu_us: list[float]

    def measure_slice(self, fields: tuple[str, ...]) -> float:
        """Return the CPU of a request in microseconds."""
        cpu_s_before = self.process.cpu_seconds
        self.connection.request_many("/page", SLICE_REQUESTS, fields)
        return (self.process.cpu_seconds - cpu_s_before) / SLICE_REQUESTS * 1e6


def measure_round(applications: dict[str, Rounds], kind: str, first_number: int) -> None:
    """Measure each application in alternating slices."""
    cpu_us = {name: float("inf") for name in applications}
    for slice_number in range(SLICES):
        names = list(applications)
        # A request of "varied" has another value in each slice, so that nothing is kept by values.
        number = first_number + slice_number if kind == "varied" else 128
        fields = (
            () if kind == "one" else tuple(text.format(number=number) for text in BROWSER_FIELDS)
        )
        for name in names if slice_number % 2 else reversed(names):
            cpu_us[name] = min(cpu_us[name], applications[name].measure_slice(fields))
    for name, application in applications.items():
        application.cpu_us.append(cpu_us[name])


def format_range(numbers: list[float], digits: int) -> str:
    """Return median and range."""
    low, middle, high = min(numbers), median(numbers), max(numbers)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def run_rounds(old_checkout: str | None = None, kind: str = "one", round_count: int = 9) -> None:
    """Start the store and the applications, and compare."""
    with ExitStack() as stack:
        cores = os.sched_getaffinity(0)
        stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})  # what is started inherits it
        store = stack.enter_context(Server()).address
        modules = {"empty": "peer_apps:empty", "bare read": "peer_apps:bare_read()"}
        modules |= dict.fromkeys(("old", "new"), "peer_apps:glasscache()")
        if old_checkout is None:
            del modules["old"]
        applications: dict[str, Rounds] = {}
        for name, module in modules.items():
            package = [f"{old_checkout}/python"] if name == "old" else []
            path = os.pathsep.join([str(HERE), *package])
            environment = {"STORE": store, "PYTHONPATH": path}
            (process,) = stack.enter_context(uvicorn_processes(module, **environment))
            applications[name] = Rounds(process, Connections([process.port], 1), [])
            applications[name].connection.request_many("/page", 500)
        for round_number in range(round_count):
            measure_round(applications, kind, SLICES * round_number)
    empty = applications.pop("empty").cpu_us
    print(f"a hit of 2,000 bytes, {kind} field(s), {round_count} rounds, CPU in us: median (range)")
    print(f"{'empty application':<18}{format_range(empty, 1)}")
    beyond = {
        name: [cpu_us - base for cpu_us, base in zip(application.cpu_us, empty, strict=True)]
        for name, application in applications.items()
    }
    for name, application in applications.items():
        beyond_text = f"beyond the empty application {format_range(beyond[name], 1)}"
        print(f"{name:<18}{format_range(application.cpu_us, 1)}; {beyond_text}")
    if "old" in applications:
        new, old = applications["new"].cpu_us, applications["old"].cpu_us
        ratios = [mine / theirs for mine, theirs in zip(new, old, strict=True)]
        beyond_ratios = [
            mine / theirs for mine, theirs in zip(beyond["new"], beyond["old"], strict=True)
        ]
        print(f"new / old: {format_range(ratios, 3)}")
        print(f"new / old, beyond the empty application: {format_range(beyond_ratios, 3)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--old", metavar="CHECKOUT", help="measure the package of another checkout, too"
    )
    parser.add_argument("--fields", choices=["one", "eight", "varied"], default="one")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    run_rounds(options.old, options.fields, options.rounds)
    sys.exit()
