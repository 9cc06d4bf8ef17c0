"""Ten million operations through every fault at once: not one wrong value.

    scripts/client-long faults [--operations 10000000] [--seed N]

Three servers, each in a process, spoil one reply in some hundred by a mode of `faulty_server`. One process
uses them by four threads that share a client, a main thread that is interrupted by an exception out of a
signal's handler, and children made by forks; another by asyncio tasks of which some are cancelled. Each key
read or written counts as an operation. A value says to which key it belongs, and each one read is looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

from faulty_server import MODES, FaultyServer, value_of
from glasscache import AsyncClient, Client, GlasscacheError

KEYS = [f"k{number}" for number in range(400)]
TIMEOUT_S = 0.1
SLOW_MODES = ("late", "trickle", "hang", "half_then_hang", "endless_line", "no_accept", "blackhole")
"""Modes that take a client its whole time-out, and are met more rarely for that."""
QUICK_MODES = tuple(mode for mode in MODES if mode not in SLOW_MODES)
QUICK_SHARE = 1 / 300
SLOW_SHARE = 1 / 30_000
OVERRUN_LIMITS_MS = (0, 1, 5, 20, 50, 100)
SWALLOWED_AFTER_S = 5
"""Seconds after which an exception that was to end a row of calls must have been lost in one of them."""


class RandomFaultServer(FaultyServer):
    """A faulty server whose mode is another one at each reply."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        super().__init__()

    @property
    def mode(self) -> str:
        random_share = self._random.random()
        if random_share < SLOW_SHARE:
            return self._random.choice(SLOW_MODES[:4])
        return self._random.choice(QUICK_MODES) if random_share < QUICK_SHARE else "ok"

    @mode.setter
    def mode(self, _: str) -> None:
        """Ignored: the mode is drawn anew for each reply."""


class Tally:
    """What a process has done and seen."""

    def __init__(self) -> None:
        self.operations = 0
        self.calls = 0
        self.wrong_values: list[str] = []
        self.errors: Counter[str] = Counter()
        self.slow_call_durations_s: list[float] = []

    def check_values(self, values: dict[Any, Any]) -> None:
        for key, value in values.items():
            if value is not None and value != value_of(key.encode()):
                self.wrong_values.append(f"{key}: {value!r:.80}")

    def record_call(self, operations: int, started_at: float, error: BaseException | None) -> None:
        self.calls += 1
        self.operations += operations
        duration_s = time.monotonic() - started_at
        if error is not None:
            self.errors[type(error).__name__] += 1
        if duration_s > TIMEOUT_S / 2:
            self.slow_call_durations_s.append(duration_s)

    def summary(self) -> str:
        overruns_ms = sorted(
            max(0.0, duration_s - TIMEOUT_S) * 1e3 for duration_s in self.slow_call_durations_s
        )

        def overruns_at(share: float) -> float:
            rank = int(self.calls * (1 - share))
            return round(overruns_ms[-1 - rank], 1) if rank < len(overruns_ms) else 0.0

        return json.dumps(
            {
                "operations": self.operations,
                "calls": self.calls,
                "wrong": self.wrong_values[:10],
                "errors": self.errors,
                "slow_calls": len(overruns_ms),
                "overrun_ms": {
                    "p99": overruns_at(0.99),
                    "p99.9": overruns_at(0.999),
                    "worst": overruns_at(1),
                },
                "late_calls": {
                    f"{ms} ms": sum(overrun_ms > ms for overrun_ms in overruns_ms)
                    for ms in OVERRUN_LIMITS_MS
                },
            }
        )


def choose_call(rng: random.Random) -> tuple[str, list[str]]:
    """Return what is done next, and to which keys."""
    choice = rng.random()
    if choice < 0.3:
        return "get", [rng.choice(KEYS)]
    if choice < 0.7:
        return "get_many", rng.sample(KEYS, 20)
    if choice < 0.85:
        return "set", [rng.choice(KEYS)]
    if choice < 0.95:
        return "set_many", rng.sample(KEYS, 10)
    return "delete", [rng.choice(KEYS)]


def values_of(keys: list[str]) -> dict[str, bytes]:
    return {key: value_of(key.encode()) for key in keys}


def make_random_call(client: Client, rng: random.Random, tally: Tally) -> None:
    method, keys = choose_call(rng)
    started_at, call_error = time.monotonic(), None
    try:
        if method == "get":
            tally.check_values({keys[0]: client.get(keys[0])})
        elif method == "get_many":
            tally.check_values(client.get_many(keys))
        elif method == "set":
            client.set(keys[0], values_of(keys)[keys[0]], noreply=rng.random() < 0.2)
        elif method == "set_many":
            client.set_many(values_of(keys))
        else:
            client.delete(keys[0])
    except GlasscacheError as error:
        call_error = error
        tally.check_values(getattr(error, "arrived", None) or {})
    tally.record_call(len(keys), started_at, call_error)


class SignalInterruption(BaseException):
    """What a signal's handler raises in the middle of a call."""


def raise_interruption(_number: int, _frame: object) -> None:
    raise SignalInterruption


def fork_and_read(client: Client, rng: random.Random) -> int:
    """Return how a child ended that read by its parent's client: 0 if all it saw was right."""
    child_pid = os.fork()
    if child_pid == 0:
        exit_code = 1
        with contextlib.suppress(BaseException):
            tally = Tally()
            for _ in range(20):
                make_random_call(client, rng, tally)
            exit_code = 2 if tally.wrong_values else 0
        os._exit(exit_code)
    return os.waitstatus_to_exitcode(os.waitpid(child_pid, 0)[1])


def run_threads(addresses: list[str], operations_min: int, seed: int) -> Tally:
    """Use a client by four threads and a main thread that is interrupted and forks."""
    total = Tally()
    is_over = threading.Event()
    with Client(addresses, timeout=TIMEOUT_S, placement="modula") as client:
        tallies = [Tally() for _ in range(4)]

        def use_client(number: int) -> None:
            rng = random.Random(seed + number)
            while not is_over.is_set():
                make_random_call(client, rng, tallies[number])

        threads = [threading.Thread(target=use_client, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        rng = random.Random(seed + 99)
        signal.signal(signal.SIGALRM, raise_interruption)
        while sum(tally.operations for tally in tallies) + total.operations < operations_min:
            started_at = time.monotonic()
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.02))
                while time.monotonic() - started_at < SWALLOWED_AFTER_S:
                    make_random_call(client, rng, total)
                total.wrong_values.append("what the signal's handler raised was swallowed")
            except SignalInterruption:
                total.errors["Stop"] += 1
            if rng.random() < 0.005:
                exit_code = fork_and_read(client, rng)
                total.errors["fork"] += 1
                if exit_code == 2:
                    total.wrong_values.append("a child of a fork read a wrong value")
        signal.setitimer(signal.ITIMER_REAL, 0)
        is_over.set()
        for thread in threads:
            thread.join()
    for tally in tallies:
        total.operations += tally.operations
        total.calls += tally.calls
        total.wrong_values += tally.wrong_values
        total.errors += tally.errors
        total.slow_call_durations_s += tally.slow_call_durations_s
    return total


async def run_tasks(addresses: list[str], operations_min: int, seed: int) -> Tally:
    """Use a client by asyncio tasks, some of which are cancelled."""
    tally, rng = Tally(), random.Random(seed)
    async with AsyncClient(addresses, timeout=TIMEOUT_S, placement="modula") as client:

        async def call() -> None:
            method, keys = choose_call(rng)
            started_at, call_error = time.monotonic(), None
            try:
                if method == "get":
                    tally.check_values({keys[0]: await client.get(keys[0])})
                elif method == "get_many":
                    tally.check_values(await client.get_many(keys))
                elif method == "set":
                    await client.set(keys[0], values_of(keys)[keys[0]])
                elif method == "set_many":
                    await client.set_many(values_of(keys))
                else:
                    await client.delete(keys[0])
            except GlasscacheError as error:
                call_error = error
                tally.check_values(getattr(error, "arrived", None) or {})
            tally.record_call(len(keys), started_at, call_error)

        while tally.operations < operations_min:
            tasks = [asyncio.create_task(call()) for _ in range(16)]
            if rng.random() < 0.05:
                await asyncio.sleep(rng.random() * 0.002)
                for task in rng.sample(tasks, 4):
                    task.cancel()
                    tally.errors["cancelled"] += 1
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(
                    outcome, asyncio.CancelledError
                ):
                    raise outcome
    return tally


class LagMeter(threading.Thread):
    """Sleeps a millisecond over and over: how late it wakes is the machine's doing and not the client's."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._lags_ms: list[float] = []

    def run(self) -> None:
        while True:
            started_at = time.monotonic()
            time.sleep(0.001)
            self._lags_ms.append((time.monotonic() - started_at - 0.001) * 1e3)

    def summary(self) -> str:
        lags_ms = sorted(self._lags_ms)
        lag_p999_ms = lags_ms[-1 - len(lags_ms) // 1000]
        return (
            f"a sleep of 1 ms ended {lag_p999_ms:.1f} ms late at p99.9, {lags_ms[-1]:.1f} at worst"
        )


def start_role(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True
    )


def read_first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--role", choices=["all", "serve", "threads", "tasks"], default="all")
    parser.add_argument("--addresses", default="")
    arguments = parser.parse_args()
    if arguments.role == "serve":
        server = RandomFaultServer(arguments.seed)
        for key in KEYS:
            server.put(key.encode(), value_of(key.encode()))
        print(server.address, flush=True)
        signal.pause()
    addresses = arguments.addresses.split(",")
    if arguments.role == "threads":
        print(run_threads(addresses, arguments.operations, arguments.seed).summary(), flush=True)
    elif arguments.role == "tasks":
        tasks_run = run_tasks(addresses, arguments.operations, arguments.seed)
        print(asyncio.run(tasks_run).summary(), flush=True)
    if arguments.role != "all":
        return
    print(f"seed {arguments.seed}", flush=True)
    servers = [
        start_role("--role", "serve", "--seed", str(arguments.seed + number)) for number in range(3)
    ]
    started_at = time.monotonic()
    lag_meter = LagMeter()
    lag_meter.start()
    try:
        all_addresses = ",".join(map(read_first_line, servers))
        half_of_operations = str(arguments.operations // 2)
        common_arguments = [
            "--addresses",
            all_addresses,
            "--operations",
            half_of_operations,
            "--seed",
            str(arguments.seed),
        ]
        workers = {
            role: start_role("--role", role, *common_arguments) for role in ("threads", "tasks")
        }
        summaries_by_role = {
            role: json.loads(read_first_line(worker)) for role, worker in workers.items()
        }
    finally:
        for server in servers:
            server.terminate()
    for role, summary in summaries_by_role.items():
        print(f"{role}: {summary}")
    print(f"the machine: {lag_meter.summary()}")
    operation_count = sum(summary["operations"] for summary in summaries_by_role.values())
    wrong_value_count = sum(len(summary["wrong"]) for summary in summaries_by_role.values())
    duration_s = time.monotonic() - started_at
    print(f"{operation_count:,} operations in {duration_s:.0f} s, {wrong_value_count} wrong values")
    sys.exit(1 if wrong_value_count else 0)


if __name__ == "__main__":
    main()
