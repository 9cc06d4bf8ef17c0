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

BURST_WRITES = 40


def write_burst(client: Client, key: str) -> None:
    for _ in range(BURST_WRITES):
        client.incr(key, initial=1, noreply=True)


def wait_until_stored(client: Client, key: str, expected: int) -> None:
    deadline = time.monotonic() + 20
    # A number made by incr reads as its text.
    while (stored := int(client.get(key, 0))) != expected:
        assert time.monotonic() < deadline, f"{key} is {stored} and not {expected}"


def write_burst_in_child(address: str, key: str) -> None:
    client = Client(address, timeout=20)
    write_burst(client, key)


def test_a_later_call_of_any_thread_finds_a_burst_executed(server: Server) -> None:
    client = Client(server.address, timeout=20, connections_max=1)
    for round_number in range(100):
        for number in range(BURST_WRITES):
            client.set("word", f"{round_number}.{number}", noreply=True)
        client.delete("gone", noreply=True)
        values_found: list[object] = []
        thread = threading.Thread(
            target=lambda values_found=values_found: values_found.append(client.get("word"))
        )
        thread.start()
        thread.join()
        assert values_found == [f"{round_number}.{BURST_WRITES - 1}"]


def test_the_last_of_a_burst_arrives_without_another_call(client: Client, server: Server) -> None:
    writer = Client(server.address, timeout=20)
    write_burst(writer, "sum-alone")
    wait_until_stored(client, "sum-alone", BURST_WRITES)
    writer.send_gathered()
    assert int(client.get("sum-alone")) == BURST_WRITES


def test_a_burst_arrives_when_its_client_is_closed_or_collected(
    client: Client, server: Server
) -> None:
    with Client(server.address, timeout=20) as writer:
        write_burst(writer, "sum-with")
    wait_until_stored(client, "sum-with", BURST_WRITES)
    writer = Client(server.address, timeout=20)
    write_burst(writer, "sum-collected")
    del writer
    gc.collect()
    wait_until_stored(client, "sum-collected", BURST_WRITES)


def test_a_burst_arrives_when_the_program_ends(client: Client, server: Server) -> None:
    code = f"""
import glasscache
kept = glasscache.Client({server.address!r}, timeout=20)
kept.circle = [kept]
for _ in range({BURST_WRITES}):
    kept.incr("sum-program", initial=1, noreply=True)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    wait_until_stored(client, "sum-program", BURST_WRITES)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_burst_arrives_when_a_child_of_multiprocessing_ends(
    method: str, client: Client, server: Server
) -> None:
    key = f"sum-{method}"
    child_process = multiprocessing.get_context(method).Process(
        target=write_burst_in_child, args=(server.address, key)
    )
    child_process.start()
    child_process.join()
    assert child_process.exitcode == 0
    wait_until_stored(client, key, BURST_WRITES)


def test_a_fork_during_quiet_writes_sends_no_write_twice(server: Server) -> None:
    client = Client(server.address, timeout=20)
    fork_count = 20
    for round_number in range(fork_count):
        write_burst(client, "sum-forks")
        child_pid = os.fork()
        if child_pid == 0:
            results = client.get("nothing"), client.set(f"child{round_number}", round_number)
            write_burst(client, "sum-forks")
            client.send_gathered()
            os._exit(0 if results == (None, True) else 1)
        assert os.waitpid(child_pid, 0)[1] == 0
    wait_until_stored(client, "sum-forks", 2 * fork_count * BURST_WRITES)
