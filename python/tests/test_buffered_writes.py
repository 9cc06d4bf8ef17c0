"""Bursts of noreply writes: buffered, executed once, in order, and never lost in silence."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from glasscache import Client

if TYPE_CHECKING:
    from glasscache import Server

BURST = 40


def write_burst(client: Client, key: str) -> None:
    for _ in range(BURST):
        client.incr(key, initial=1, noreply=True)


def wait_for(client: Client, key: str, value: int) -> None:
    end = time.monotonic() + 20
    while (found := int(client.get(key, 0))) != value:  # a number made by incr reads as its text
        assert time.monotonic() < end, f"{key} is {found} and not {value}"


def in_child(address: str, key: str) -> None:
    client = Client(address, timeout=20)
    write_burst(client, key)


def test_a_later_call_of_any_thread_finds_a_burst_executed(server: Server) -> None:
    client = Client(server.address, timeout=20, connections_max=1)
    for round_number in range(100):
        for part in range(BURST):
            client.set("word", f"{round_number}.{part}", noreply=True)
        client.delete("gone", noreply=True)
        found: list[object] = []
        thread = threading.Thread(target=lambda found=found: found.append(client.get("word")))
        thread.start()
        thread.join()
        assert found == [f"{round_number}.{BURST - 1}"]


def test_the_last_of_a_burst_arrives_without_another_call(client: Client, server: Server) -> None:
    writer = Client(server.address, timeout=20)
    write_burst(writer, "sum-alone")
    wait_for(client, "sum-alone", BURST)
    writer.send_gathered()
    assert int(client.get("sum-alone")) == BURST


def test_a_burst_arrives_when_its_client_is_closed_or_collected(
    client: Client, server: Server
) -> None:
    with Client(server.address, timeout=20) as writer:
        write_burst(writer, "sum-with")
    wait_for(client, "sum-with", BURST)
    writer = Client(server.address, timeout=20)
    write_burst(writer, "sum-collected")
    del writer
    gc.collect()
    wait_for(client, "sum-collected", BURST)


def test_a_burst_arrives_when_the_program_ends(client: Client, server: Server) -> None:
    code = f"""
import glasscache
kept = glasscache.Client({server.address!r}, timeout=20)
kept.circle = [kept]
for _ in range({BURST}):
    kept.incr("sum-program", initial=1, noreply=True)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    wait_for(client, "sum-program", BURST)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_burst_arrives_when_a_child_of_multiprocessing_ends(
    method: str, client: Client, server: Server
) -> None:
    key = f"sum-{method}"
    child = multiprocessing.get_context(method).Process(target=in_child, args=(server.address, key))
    child.start()
    child.join()
    assert child.exitcode == 0
    wait_for(client, key, BURST)


def test_a_fork_during_quiet_writes_sends_no_write_twice(server: Server) -> None:
    client = Client(server.address, timeout=20)
    forks = 20
    for round_number in range(forks):
        write_burst(client, "sum-forks")
        child = os.fork()
        if child == 0:
            found = client.get("nothing"), client.set(f"child{round_number}", round_number)
            write_burst(client, "sum-forks")
            client.send_gathered()
            os._exit(0 if found == (None, True) else 1)
        assert os.waitpid(child, 0)[1] == 0
    wait_for(client, "sum-forks", 2 * forks * BURST)
