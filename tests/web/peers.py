"""A hit under each HTTP cache for Python: CPU, requests/s and latency, and Varnish's in front of uvicorn.

Usage: peers.py [--hits 3000] [--rounds 20]. Starts uvicorn, Redis, memcached and a cache server of ours; what
is not installed is left out and named. Columns: CPU of the uvicorn process for a hit; its part beyond an
empty ASGI application, which the target is for; and beyond the same framework without the cache.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from glasscache import Server
from load import Connections
from processes import Process, free_port, program, started, uvicorns

CONNECTIONS = 16
SLICE = 200
"""Requests of one application before the next one's turn."""
SHARE_MAX = 1 / 3
"""CPU of a hit of ours, at most, as a share of the best peer's."""


class Peer(NamedTuple):
    """A cache, its application without the cache, and the program that it needs."""

    name: str
    application: str
    plain: str
    needs: str | None = None


EMPTY, FASTAPI, DJANGO = "peer_apps:empty", "peer_apps:fastapi()", "peer_apps:django()"
PEERS = [
    Peer("glasscache", "peer_apps:glasscache()", EMPTY),
    Peer("hishel, Redis", "peer_apps:hishel_redis()", EMPTY, "redis-server"),
    Peer("fastapi-cache, Redis", "peer_apps:fastapi_cache_redis()", FASTAPI, "redis-server"),
    Peer("fastapi-cache, memcached", "peer_apps:fastapi_cache_memcached()", FASTAPI, "memcached"),
    Peer("Django, memcached", "peer_apps:django_memcached()", DJANGO, "memcached"),
]


class Application:
    """A running application, and the least that a request for the page took of its processor so far."""

    def __init__(self, name: str, process: Process) -> None:
        """Send the first requests, one of which makes the page."""
        self.name, self._process = name, process
        self._connection = Connections([process.port], 1)
        self._connection.send("/page", 200)
        self.cpu_us = float("inf")

    def measure_cpu(self, hits: int) -> None:
        """Send requests one after the other; what disturbs a slice only adds to it, so the least counts."""
        before = self._process.cpu_seconds
        self._connection.send("/page", hits)
        self.cpu_us = min(self.cpu_us, (self._process.cpu_seconds - before) / hits * 1e6)

    def measure_rate(self, hits: int) -> str:
        """Return requests per second, p50 and p99 over several connections, as columns."""
        return rate_of(self._process.port, hits)

    def check(self) -> None:
        """Make sure that the page was made once at most."""
        runs = _runs_of(self._process)
        if runs > 1:
            raise SystemExit(f"measuring {self.name} failed: the page was made {runs} times")


def rate_of(port: int, hits: int) -> str:
    """Return requests per second, p50 and p99 of the quickest of three rounds over several connections."""
    with Connections([port], CONNECTIONS) as several:
        several.send("/page", 200)
        rounds = [several.send("/page", hits) for _ in range(3)]
    times = min(rounds, key=lambda one: one.elapsed)
    p50, p99 = times.quantile_ms(0.5), times.quantile_ms(0.99)
    return f"{hits / times.elapsed:9.0f}{p50:9.2f}{p99:9.2f}"


def _runs_of(process: Process) -> int:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/runs") as response:
        return int(response.read())


def varnish(stack: ExitStack, hits: int) -> None:
    """Print requests/s of Varnish in front of the application."""
    varnishd = program("varnishd")
    if varnishd is None:
        print("Varnish: not installed")
        return
    (origin,) = stack.enter_context(uvicorns(EMPTY))
    folder, port = stack.enter_context(tempfile.TemporaryDirectory()), free_port()
    Path(folder).chmod(0o755)
    command = [varnishd, "-F", "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{origin.port}"]
    storage = ["-n", f"{folder}/work", "-s", "malloc,64m"]
    front = stack.enter_context(started(*command, *storage, port=port))
    print(f"{'Varnish in front':<26}{'':>27}{rate_of(front.port, hits)}")


def compare(stack: ExitStack, hits: int, rounds: int, environment: dict[str, str]) -> int:
    """Print a row for each cache that can run; whether ours keeps to its share of the best peer's CPU."""
    peers = [peer for peer in PEERS if peer.needs is None or program(peer.needs) is not None]
    for peer in PEERS:
        if peer not in peers:
            print(f"{peer.name}: {peer.needs} is not installed")
    names = {EMPTY, *(peer.plain for peer in peers), *(peer.application for peer in peers)}
    running: dict[str, Application] = {}
    for name in sorted(names):
        (process,) = stack.enter_context(uvicorns(name, **environment))
        running[name] = Application(name, process)
    for _ in range(rounds):  # in short slices by turns, for the machine's load changes
        for application in running.values():
            application.measure_cpu(SLICE)
    columns = ("CPU us", "beyond", "alone", "per s", "p50 ms", "p99 ms")
    print(f"{'a hit of 2,000 bytes':<26}" + "".join(f"{column:>9}" for column in columns))
    beyond: dict[str, float] = {}
    for peer in peers:
        cached, plain = running[peer.application], running[peer.plain]
        beyond[peer.name] = cached.cpu_us - running[EMPTY].cpu_us
        cpu = f"{cached.cpu_us:9.0f}{beyond[peer.name]:9.0f}{cached.cpu_us - plain.cpu_us:9.0f}"
        print(f"{peer.name:<26}{cpu}{cached.measure_rate(hits)}", flush=True)
        cached.check()
    ours = beyond.pop("glasscache")
    if not beyond:
        return 0
    share = ours / min(beyond.values())
    print(f"CPU of a hit beyond an empty application: {share:.2f} of the best peer's")
    return 0 if share <= SHARE_MAX else 1


def run(hits: int = 3000, rounds: int = 20) -> int:
    """Start the stores, and compare."""
    with ExitStack() as stack:
        environment = {
            "STORE": stack.enter_context(Server()).address,
            "REDIS": "0",
            "MEMCACHED": "0",
        }
        redis, memcached = program("redis-server"), program("memcached")
        if redis is not None:
            port = free_port()
            command = [redis, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
            environment["REDIS"] = str(stack.enter_context(started(*command, port=port)).port)
        if memcached is not None:
            port = free_port()
            # Root must name a user; for others the option has no effect.
            command = [memcached, "-p", str(port), "-l", "127.0.0.1", "-u", "root"]
            environment["MEMCACHED"] = str(stack.enter_context(started(*command, port=port)).port)
        outcome = compare(stack, hits, rounds, environment)
        varnish(stack, hits)
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hits", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    sys.exit(run(options.hits, options.rounds))
