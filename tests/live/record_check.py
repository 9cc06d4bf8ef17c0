"""Record a server under load: is every get counted, what does watching cost, and is the curve right?

The load is `glasscache bench` at a fixed rate with the keys of a file, in its order, made by
`glasscache generate zipf`; so the stream of keys is known. `glasscache record` watches meanwhile. It begins
and ends while the load is stopped, so that the gets between are known by the server's own counter. Printed
are

- these gets, and how many of them were recorded or reported as skipped;
- the processor time of the recorder, by rusage, over the time of the load;
- the largest difference between the LRU curve of the recording and that of the same part of the file;
- the server's processor time for each get in alternating slices with and without a watcher.

    make record-check SECONDS=60
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import Server

if TYPE_CHECKING:
    from collections.abc import Generator

RECORDER_CPU_MAX = 0.1
CURVE_DIFFERENCE_MAX = 0.005

# Sizes at which the curves are compared, as shares of all keys of the file.
CAPACITY_SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)

# Pairs of slices with and without a watcher.
SLICE_PAIRS = 6

# Longest time until a server has written the last lines: memcached's logger sleeps for up to a second.
LOGGER_DELAY_S = 1.5


@dataclass(frozen=True)
class Setup:
    """What every part of the check needs."""

    binary: str
    folder: Path
    server: Server
    rate_per_s: int
    key_count: int

    @property
    def address(self) -> str:
        """Where the server listens."""
        return f"127.0.0.1:{self.server.port}"

    @property
    def trace_file(self) -> Path:
        """The file with the keys of the load."""
        return self.folder / "stream.csv"

    def read_counters(self) -> dict[str, int]:
        """The counters of the server."""
        with self.server.connect() as connection:
            connection.send(b"stats\r\n")
            counters: dict[str, int] = {}
            while (line := connection.read_line()) != b"END":
                _, name, value = line.decode().split(" ", 2)
                if value.isdigit():
                    counters[name] = int(value)
        return counters

    def run_command(self, *arguments: str) -> dict[str, Any]:
        """The result of a command."""
        command = [self.binary, "--json", *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        if completed.returncode != 0:
            raise SystemExit(
                f"{shlex.join(command)} ended with {completed.returncode}: {completed.stderr}"
            )
        result: dict[str, Any] = json.loads(completed.stdout)["result"]
        return result

    def load_command(self) -> list[str]:
        """The load, which runs until it is ended."""
        traffic = ["--popularity", f"trace:{self.trace_file}", "--format", "csv"]
        pace = [
            "--rate",
            str(self.rate_per_s),
            "--for",
            "1h",
            "--warm-up",
            "1h",
            "--connections",
            "50",
        ]
        return [self.binary, "--json", "bench", self.address, *traffic, *pace]


class Recorder:
    """A `glasscache record` that runs during the load."""

    def __init__(self, setup: Setup, file: Path) -> None:
        command = [setup.binary, "--json", "record", setup.address, "--for", "1h"]
        file.unlink(missing_ok=True)
        self._process = subprocess.Popen([*command, "--out", str(file)], stdout=subprocess.PIPE)
        while setup.read_counters()["log_watchers"] == 0:
            time.sleep(0.01)

    def stop(self) -> tuple[dict[str, int], float]:
        """Ends it; returns what it counted, and its processor time in seconds."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.stdout
        output = self._process.stdout.read()
        _, _, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = 0
        recorded: dict[str, int] = json.loads(output)["result"]
        return recorded, usage.ru_utime + usage.ru_stime


def lru_curve(setup: Setup, keys: list[str]) -> list[float]:
    """Miss ratios of an LRU at the sizes that are compared."""
    file = setup.folder / "curve.csv"
    file.write_text("key\n" + "\n".join(keys) + "\n")
    sizes = ",".join(str(max(1, int(share * setup.key_count))) for share in CAPACITY_SHARES)
    result = setup.run_command("curve", str(file), "--policies", "lru", "--capacities", sizes)
    return [float(row["miss_ratio"]) for row in result["results"]]


def recorded_keys(file: Path) -> list[str]:
    """The keys of the gets of a recording, in order."""
    with file.open() as lines:
        return [row["key"] for row in csv.DictReader(lines) if row["op"] == "get"]


def check_recording(setup: Setup, seconds: float) -> bool:
    """Records a part of a load."""
    recording = setup.folder / "recording.csv"
    with running_load(setup) as load:
        load.send_signal(signal.SIGSTOP)
        gets_before = get_count_when_settled(setup)
        recorder = Recorder(setup, recording)
        load.send_signal(signal.SIGCONT)
        time.sleep(seconds)
        load.send_signal(signal.SIGSTOP)
        sent_gets = get_count_when_settled(setup) - gets_before
        time.sleep(LOGGER_DELAY_S)
        recorded, cpu_s = recorder.stop()
        load.send_signal(signal.SIGCONT)
    missing_gets = sent_gets - recorded["gets"] - recorded["skipped_lines"]
    cpu_share = cpu_s / seconds
    with setup.trace_file.open() as trace_file:
        keys = [row["key"] for row in csv.DictReader(trace_file)]
    expected_curve = lru_curve(setup, keys[gets_before : gets_before + sent_gets])
    recorded_curve = lru_curve(setup, recorded_keys(recording))
    curve_difference = max(
        abs(expected_ratio - recorded_ratio)
        for expected_ratio, recorded_ratio in zip(expected_curve, recorded_curve, strict=True)
    )
    print(
        f"  {sent_gets} gets sent, {sent_gets / seconds:.0f} a second: {recorded['gets']} recorded,"
        f" {recorded['skipped_lines']} reported as skipped, {missing_gets} missing:"
        f" {met_or_missed(missing_gets == 0)}"
    )
    print(
        f"  the recorder used {100 * cpu_share:.1f} % of a core,"
        f" at most {100 * RECORDER_CPU_MAX:.0f} %: {met_or_missed(cpu_share <= RECORDER_CPU_MAX)}"
    )
    print(
        f"  the curves differ by {curve_difference:.4f} at most,"
        f" at most {CURVE_DIFFERENCE_MAX}: {met_or_missed(curve_difference <= CURVE_DIFFERENCE_MAX)}"
    )
    return (
        missing_gets == 0
        and cpu_share <= RECORDER_CPU_MAX
        and curve_difference <= CURVE_DIFFERENCE_MAX
    )


def get_count_when_settled(setup: Setup) -> int:
    """The server's count of gets once it no longer grows."""
    previous, current = -1, setup.read_counters()["cmd_get"]
    while previous != current:
        time.sleep(0.05)
        previous, current = current, setup.read_counters()["cmd_get"]
    return current


@contextlib.contextmanager
def running_load(setup: Setup) -> Generator[subprocess.Popen[bytes]]:
    """The load, from its first gets to the end of the block."""
    gets_before = setup.read_counters()["cmd_get"]
    load = subprocess.Popen(
        setup.load_command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        # It begins with a set for each key.
        while setup.read_counters()["cmd_get"] == gets_before:
            if load.poll() is not None:
                raise SystemExit("the load ended")
            time.sleep(0.05)
        yield load
    finally:
        load.send_signal(signal.SIGINT)
        load.wait()


def print_cost_of_watching(setup: Setup, seconds: float) -> None:
    """Prints the server's processor time for each get, with and without a watcher."""
    slice_s = max(seconds / SLICE_PAIRS, 1.0)
    cost_us_by_watched: dict[bool, list[float]] = {False: [], True: []}
    with running_load(setup):
        for pair_index in range(SLICE_PAIRS):
            for is_watched in (pair_index % 2 == 0, pair_index % 2 == 1):
                recorder = Recorder(setup, setup.folder / "slice.csv") if is_watched else None
                gets_before, cpu_s_before = (
                    setup.read_counters()["cmd_get"],
                    setup.server.cpu_seconds(),
                )
                time.sleep(slice_s)
                cpu_s = setup.server.cpu_seconds() - cpu_s_before
                gets = setup.read_counters()["cmd_get"] - gets_before
                cost_us_by_watched[is_watched].append(1e6 * cpu_s / gets)
                if recorder:
                    recorder.stop()
    unwatched_us, watched_us = (
        statistics.median(cost_us_by_watched[False]),
        statistics.median(cost_us_by_watched[True]),
    )
    added_us = statistics.median(
        watched - unwatched
        for watched, unwatched in zip(
            cost_us_by_watched[True], cost_us_by_watched[False], strict=True
        )
    )
    print(
        f"  server CPU for each get: {unwatched_us:.2f} us, while watched {watched_us:.2f} us;"
        f" {added_us:+.2f} us in the median of {SLICE_PAIRS} pairs of {slice_s:.0f} s"
    )


def met_or_missed(is_met: object) -> str:
    """Return "met" or "missed" for the end of a line."""
    return "met" if is_met else "missed"


def main() -> int:
    """Checks one or several servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the glasscache that generates and records")
    parser.add_argument("--server", action="append", required=True, help="command of a server")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=20_000, help="gets a second")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--skew", type=float, default=0.9)
    arguments = parser.parse_args()
    is_met = True
    for command in arguments.server:
        with tempfile.TemporaryDirectory() as folder:
            server = Server(shlex.split(command), ("-m", "256"))
            setup = Setup(arguments.binary, Path(folder), server, arguments.rate, arguments.keys)
            try:
                # More than the load sends before the recording and during it.
                requests = str(int(arguments.rate * (arguments.seconds + 10)))
                popularity = ["--keys", str(arguments.keys), "--skew", str(arguments.skew)]
                setup.run_command(
                    "generate", "zipf", str(setup.trace_file), "--requests", requests, *popularity
                )
                print(f"{command}:")
                is_met = check_recording(setup, arguments.seconds) and is_met
                print_cost_of_watching(setup, arguments.seconds)
            finally:
                server.kill()
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
