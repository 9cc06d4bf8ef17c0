"""gevent and eventlet: a call lets other greenlets run while it waits, and ends when its time is over."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest
from scripted_server import Relay

if TYPE_CHECKING:
    from glasscache import Server

GEVENT = """
    from gevent import monkey; monkey.patch_all()
    import gevent, sys, time
    from gevent.pool import Group
    def spawn_all(functions):
        jobs = [gevent.spawn(function) for function in functions]
        gevent.joinall(jobs, raise_error=True)
        return [job.value for job in jobs]
    def time_out(seconds): return gevent.Timeout(seconds)
    TimedOut, sleep = gevent.Timeout, gevent.sleep
"""

EVENTLET = """
    import eventlet; eventlet.monkey_patch()
    import sys, time
    def spawn_all(functions):
        jobs = [eventlet.spawn(function) for function in functions]
        return [job.wait() for job in jobs]
    def time_out(seconds): return eventlet.Timeout(seconds)
    TimedOut, sleep = eventlet.Timeout, eventlet.sleep
"""

PROGRAM = """
    from glasscache import Client, DeadlineExceeded
    address = sys.argv[1]
    client = Client(address, timeout=5, namespace=sys.argv[2])
    assert client.set("k", 1) and client.set("big", b"x" * 300_000)
    spawn_all([lambda: client.get("k")] * 10)  # connects

    def seconds_of(functions):
        began_at = time.monotonic()
        outcomes = spawn_all(functions)
        return time.monotonic() - began_at, outcomes

    ten_seconds = min(seconds_of([lambda: client.get("k")] * 10)[0] for _ in range(3))
    assert ten_seconds < 0.1 * SLACK, ten_seconds

    # every kind of call yields
    calls = [
        lambda: client.get("big"), lambda: client.get_many(["k", "big", "none"]),
        lambda: client.set("a", "text"), lambda: client.set_many({"b": 1, "c": 2}),
        lambda: client.incr("n", initial=1), lambda: client.append("a", "x"), lambda: client.gets("k"),
        lambda: client.server_stats(), lambda: client.delete("b"),
        lambda: client.touch("k", 60), lambda: client.set("q", 1, noreply=True),
    ]
    ticks = []
    def tick():
        for _ in range(10):
            ticks.append(time.monotonic()); sleep(0.005)
    seconds, outcomes = seconds_of([*calls, tick])
    assert seconds < 1, seconds
    assert max(later - earlier for earlier, later in zip(ticks, ticks[1:])) < 0.04 * SLACK, ticks
    assert outcomes[0] == b"x" * 300_000 and set(outcomes[1]) == {"k", "big"} and outcomes[3] == {}, outcomes
    with client.pipeline() as pipeline:
        pipeline.get("k"); pipeline.incr("n", 5)
    assert pipeline.results == [1, 6], pipeline.results

    # a time-out of the library ends a call, and the connection is not used again
    late = []
    for _ in range(5):
        began_at = time.monotonic()
        try:
            with time_out(0.02):
                client.get("k"); raise SystemExit("no time-out")
        except TimedOut:
            late.append(time.monotonic() - began_at)
        assert client.get("k") == 1
    assert min(late) < 0.03 * SLACK, late

    # more callers than connections wait their turn without stopping the others
    narrow = Client(address, timeout=5, connections_max=2, namespace=sys.argv[2])
    seconds, outcomes = seconds_of([lambda: narrow.get("k")] * 8)
    assert outcomes == [1] * 8 and seconds < 2, (seconds, outcomes)
    try:
        with client.deadline(0.01):
            client.get("k"); raise SystemExit("no deadline")
    except DeadlineExceeded:
        pass

    # a deadline belongs to its greenlet
    def hold():
        with client.deadline(0.02): sleep(0.1)
    def read():
        sleep(0.05); return client.get("k")
    assert spawn_all([hold, read])[1] == 1
    client.close()
    print("done")
"""


def delay_replies(chunk: bytes, is_request: bool) -> bytes:
    """Delay each reply by 50 ms, outside of the process whose sockets are patched."""
    if not is_request:
        time.sleep(0.05)
    return chunk


@pytest.mark.parametrize(("library", "prelude"), [("gevent", GEVENT), ("eventlet", EVENTLET)])
def test_calls_in_greenlets_wait_together_and_can_be_ended(
    library: str, prelude: str, server: Server, namespace: str
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"no {library}")
    program = "SLACK = 2\n" + textwrap.dedent(prelude) + textwrap.dedent(PROGRAM)
    with Relay(server.address, delay_replies) as relay:
        ended = subprocess.run(
            [sys.executable, "-c", program, relay.address, namespace],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr
