"""A hit under each HTTP cache for Python: CPU, requests/s and latency, and Varnish's in front of uvicorn.

Usage: peers.py [--hits 600] [--rounds 40] [--all-cores]. Starts uvicorn, Redis, memcached and a cache server
of ours; what is not installed is left out and named. All of them run on one core: on two, a process that
sends to one on an idle core also pays for waking that core, 10 to 20 us in a virtual machine, and the
scheduler places the same processes differently from one minute to the next. Columns: CPU of the uvicorn
process for a hit; its part beyond an empty ASGI application, which the target is for; and beyond the same
framework without the cache. Then requests/s, p50 and p99 over 16 connections: the median of alternating
rounds, because the load of the machine differs from one second to the next; after p99 its least and greatest.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from glasscache import Server
from load import Connections, Latencies
from processes import Process, find_program, free_port, listening_process, uvicorn_processes

CONNECTIONS = 16
SLICE_REQUESTS = 200
"""Requests sent to one application before the next one is measured."""
LATENCY_ROUNDS = 12
CPU_SHARE_MAX = 1 / 3
"""CPU of a hit of ours, at most, as a share of the best peer's."""


class Peer(NamedTuple):
    """A cache, its application without the cache, and the program that it needs."""

    name: str
    application: str
    application_without_cache: str
    required_program: str | None = None


EMPTY, FASTAPI, DJANGO = "peer_apps:empty", "peer_apps:fastapi()", "peer_apps:django()"
PEERS = [
    Peer("glasscache", "peer_apps:glasscache()", EMPTY),
    Peer("hishel, Redis", "peer_apps:hishel_redis()", EMPTY, "redis-server"),
    Peer("fastapi-cache, Redis", "peer_apps:fastapi_cache_redis()", FASTAPI, "redis-server"),
    Peer("fastapi-cache, memcached", "peer_apps:fastapi_cache_memcached()", FASTAPI, "memcached"),
    Peer("Django, memcached", "peer_apps:django_memcached()", DJANGO, "memcached"),
]


class RunningApplication:
    """A running application, and the least that a request for the page took of its processor so far."""

    def __init__(self, name: str, process: Process) -> None:
        """Send the first requests, one of which makes the page."""
        self.name, self._process = name, process
        self._connection = Connections([process.port], 1)
        self._connection.request_many("/page", 200)
        self.cpu_us = float("inf")
        self.latency = LatencyRounds(process.port)

    def measure_cpu(self, hits: int) -> None:
        """Send requests one after the other; what disturbs a slice only adds to it, so the least counts."""
        cpu_s_before = self._process.cpu_seconds
        self._connection.request_many("/page", hits)
        self.cpu_us = min(self.cpu_us, (self._process.cpu_seconds - cpu_s_before) / hits * 1e6)

    def require_single_render(self) -> None:
        """Make sure that the page was made once at most."""
        render_count = _count_page_renders(self._process)
        if render_count > 1:
            raise SystemExit(
                f"measuring {self.name} failed: the page was made {render_count} times"
            )


class LatencyRounds:
    """Rounds of requests over several connections that stay open."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self._connections = Connections([port], CONNECTIONS)
        self._rounds: list[Latencies] = []

    def measure(self, hits: int) -> None:
        """Send a round of requests."""
        self._rounds.append(self._connections.request_many("/page", hits))

    def format_columns(self) -> str:
        """Return the medians of the rounds' requests per second, p50 and p99, and p99's range."""
        rates = [len(latencies.latencies_s) / latencies.elapsed_s for latencies in self._rounds]
        p50s, p99s = (
            [latencies.quantile_ms(quantile) for latencies in self._rounds]
            for quantile in (0.5, 0.99)
        )
        medians = f"{median(rates):9.0f}{median(p50s):9.2f}{median(p99s):9.2f}"
        return f"{medians}   {min(p99s):.1f} to {max(p99s):.1f}"


def _count_page_renders(process: Process) -> int:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/runs") as response:
        return int(response.read())


def start_varnish(stack: ExitStack) -> LatencyRounds | None:
    """Start Varnish in front of the application, if it is installed."""
    varnishd = find_program("varnishd")
    if varnishd is None:
        print("Varnish: not installed")
        return None
    (origin,) = stack.enter_context(uvicorn_processes(EMPTY))
    folder, port = stack.enter_context(tempfile.TemporaryDirectory()), free_port()
    Path(folder).chmod(0o755)
    command = [varnishd, "-F", "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{origin.port}"]
    storage = ["-n", f"{folder}/work", "-s", "malloc,64m", "-p", "timeout_idle=600"]
    process = stack.enter_context(listening_process(*command, *storage, port=port))
    return LatencyRounds(process.port)


def measure_alternately(
    running: dict[str, RunningApplication],
    latencies: list[LatencyRounds],
    latency_hits: int,
    cpu_rounds: int,
) -> None:
    """Measure in short alternating slices, because the load of the machine changes."""
    for _ in range(cpu_rounds):
        for application in running.values():
            application.measure_cpu(SLICE_REQUESTS)
    for _ in range(LATENCY_ROUNDS):
        for latency in latencies:
            latency.measure(latency_hits)


def compare(
    stack: ExitStack, latency_hits: int, cpu_rounds: int, environment: dict[str, str]
) -> int:
    """Print a row for each cache that can run; return 0 if ours keeps to its share of the best peer's CPU."""
    available_peers = [
        peer
        for peer in PEERS
        if peer.required_program is None or find_program(peer.required_program) is not None
    ]
    for peer in PEERS:
        if peer not in available_peers:
            print(f"{peer.name}: {peer.required_program} is not installed")
    application_names = {
        EMPTY,
        *(peer.application_without_cache for peer in available_peers),
        *(peer.application for peer in available_peers),
    }
    running: dict[str, RunningApplication] = {}
    for application_name in sorted(application_names):
        (process,) = stack.enter_context(uvicorn_processes(application_name, **environment))
        running[application_name] = RunningApplication(application_name, process)
    varnish_latency = start_varnish(stack)
    latencies = [running[peer.application].latency for peer in available_peers]
    measure_alternately(
        running,
        latencies if varnish_latency is None else [*latencies, varnish_latency],
        latency_hits,
        cpu_rounds,
    )
    column_names = ("CPU us", "- empty", "- uncached", "per s", "p50 ms", "p99 ms")
    print(f"{'a hit of 2,000 bytes':<26}" + "".join(f"{column:>9}" for column in column_names))
    cpu_us_beyond_empty: dict[str, float] = {}
    for peer in available_peers:
        cached, without_cache = running[peer.application], running[peer.application_without_cache]
        cpu_us_beyond_empty[peer.name] = cached.cpu_us - running[EMPTY].cpu_us
        cpu_us_beyond_framework = cached.cpu_us - without_cache.cpu_us
        cpu_columns = "".join(
            f"{cpu_us:9.0f}"
            for cpu_us in (cached.cpu_us, cpu_us_beyond_empty[peer.name], cpu_us_beyond_framework)
        )
        print(f"{peer.name:<26}{cpu_columns}{cached.latency.format_columns()}", flush=True)
        cached.require_single_render()
    if varnish_latency is not None:
        print(f"{'Varnish in front':<26}{'':>27}{varnish_latency.format_columns()}")
    our_cpu_us = cpu_us_beyond_empty.pop("glasscache")
    if not cpu_us_beyond_empty:
        return 0
    cpu_share = our_cpu_us / min(cpu_us_beyond_empty.values())
    print(f"CPU of a hit beyond an empty application: {cpu_share:.2f} of the best peer's")
    return 0 if cpu_share <= CPU_SHARE_MAX else 1


def run_comparison(
    latency_hits: int = 600, cpu_rounds: int = 40, *, all_cores: bool = False
) -> int:
    """Start the stores, and compare."""
    with ExitStack() as stack:
        if not all_cores:
            cores = os.sched_getaffinity(0)
            stack.callback(os.sched_setaffinity, 0, cores)
            os.sched_setaffinity(0, {min(cores)})  # what is started inherits it
        environment = {
            "STORE": stack.enter_context(Server()).address,
            "REDIS": "0",
            "MEMCACHED": "0",
        }
        redis, memcached = find_program("redis-server"), find_program("memcached")
        if redis is not None:
            port = free_port()
            command = [redis, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
            environment["REDIS"] = str(
                stack.enter_context(listening_process(*command, port=port)).port
            )
        if memcached is not None:
            port = free_port()
            # Root must name a user; for others the option has no effect.
            command = [memcached, "-p", str(port), "-l", "127.0.0.1", "-u", "root"]
            environment["MEMCACHED"] = str(
                stack.enter_context(listening_process(*command, port=port)).port
            )
        return compare(stack, latency_hits, cpu_rounds, environment)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hits", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--all-cores", action="store_true", help="let processes run on any core")
    options = parser.parse_args()
    sys.exit(run_comparison(options.hits, options.rounds, all_cores=options.all_cores))
