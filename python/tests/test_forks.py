"""Forks that Python does not notice: a child made by C's `fork()` uses no connection of its parent.

uWSGI forks like this by default, after it has loaded the application. GLASSCACHE_TEST_FORKS says how many
forks each test makes (`make faults-long`: 10,000 in all).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import scripted_server
from glasscache import AsyncClient, Client
from glasscache.errors import ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glasscache import Server

FORK_COUNT = int(os.environ.get("GLASSCACHE_TEST_FORKS", "120"))
KEYS = [f"fork{number}" for number in range(50)]
WRONG_VALUE_EXIT_CODE, FAILED_EXIT_CODE = 2, 3

fork_in_c: Callable[[], int] = ctypes.PyDLL(None).fork
"""The C library's own; called with the interpreter lock held, as by a server that embeds Python."""


def run_in_child(fork: Callable[[], int], check_values: Callable[[], bool]) -> int:
    """Return the process id of a child that calls `check_values` and exits with a code for its result."""
    child_pid = fork()
    if child_pid:
        return child_pid
    exit_code = FAILED_EXIT_CODE
    try:
        exit_code = 0 if check_values() else WRONG_VALUE_EXIT_CODE
    except BaseException:  # noqa: BLE001 - a child must not go on as its parent
        traceback.print_exc()
    os._exit(exit_code)


def wait_for_exit_codes(child_pids: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child_pid, 0)[1]) for child_pid in child_pids]


def store_own_values(client: Client) -> None:
    assert client.set_many({key: [key, "x" * 40] for key in KEYS}) == {}


def reads_only_own_values(client: Client, number: int) -> bool:
    """Make a call of each kind, and return whether each reply was this caller's."""
    key = KEYS[number % len(KEYS)]
    other_key = KEYS[(number * 7 + 3) % len(KEYS)]
    counter = f"counter{os.urandom(8).hex()}"
    return (
        client.get(key)[0] == key
        and client.gat(other_key, 60)[0] == other_key
        and client.incr(counter, initial=number) == number
        and client.incr(counter, 5) == number + 5
        and all(
            value[0] == requested for requested, value in client.get_many([key, other_key]).items()
        )
    )


@pytest.mark.parametrize("fork", [fork_in_c, os.fork], ids=["c", "os"])
def test_children_get_replies_to_their_own_requests_alone(
    fork: Callable[[], int], server: Server
) -> None:
    """Two children and their parent, which has writes in flight, call at the same time."""
    with Client(server.address, timeout=10) as client:
        store_own_values(client)
        exit_codes_of_children: list[int] = []
        for number in range(0, FORK_COUNT, 2):
            for write_number in range(3):
                client.set(f"unasked{write_number}", number, noreply=True)
            child_pids = [
                run_in_child(
                    fork,
                    lambda number=number + child_number: reads_only_own_values(client, number),
                )
                for child_number in (0, 1)
            ]
            assert reads_only_own_values(client, number)
            exit_codes_of_children += wait_for_exit_codes(child_pids)
        assert exit_codes_of_children == [0] * len(exit_codes_of_children)
        assert client.stats()["servers"][server.address]["noreply_failures"] == 0


SLOW_SERVER_PROGRAM = f"""
    import sys, threading, time
    sys.path.insert(0, {str(Path(scripted_server.__file__).parent)!r})
    from scripted_server import ScriptedServer

    def serve(connection):
        for line in connection.makefile("rb"):
            word, *keys = line.split()
            if word == b"mn":
                connection.sendall(b"MN\\r\\n")
                continue
            time.sleep(0.004)
            values = [b"VALUE %s 0 %d\\r\\n%s\\r\\n" % (key, len(key), key) for key in keys]
            connection.sendall(b"".join([*values, b"END\\r\\n"]))

    print(ScriptedServer(serve).port, flush=True)
    threading.Event().wait()
"""


@pytest.fixture
def slow_address() -> Iterator[str]:
    """Yield the address of a server that replies to each read after 4 ms with its key."""
    command = [sys.executable, "-c", textwrap.dedent(SLOW_SERVER_PROGRAM)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def test_a_child_forked_during_a_call_leaves_the_reply_to_its_parent(  # noqa: C901 - parent and child
    slow_address: str,
) -> None:
    with Client(slow_address, timeout=10, dialect="raw") as client:
        parent_pid = os.getpid()
        child_pids: list[int] = []

        def fork_on_alarm(_number: int, _frame: object) -> None:
            child_pids.append(fork_in_c())

        def call(key: str) -> None:
            try:
                value = client.get(key)
            except ServerUnavailable:
                assert os.getpid() != parent_pid  # only the child's call ends
            else:
                assert value == key.encode()

        handler_before = signal.signal(signal.SIGALRM, fork_on_alarm)
        exit_codes_of_children: list[int] = []
        try:
            assert client.get("first") == b"first"
            for number in range(FORK_COUNT):
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                try:
                    call(f"during{number}")
                    if 0 in child_pids:
                        are_replies_own = [
                            client.get(f"child{read_number}") == b"child%d" % read_number
                            for read_number in (0, 1)
                        ]
                        os._exit(0 if all(are_replies_own) else WRONG_VALUE_EXIT_CODE)
                except BaseException:
                    if os.getpid() != parent_pid:
                        traceback.print_exc()
                        os._exit(FAILED_EXIT_CODE)
                    raise
                while not child_pids:
                    time.sleep(0.001)  # the alarm came after the reply
                    if 0 in child_pids:
                        os._exit(0)
                exit_codes_of_children += wait_for_exit_codes(child_pids)
                child_pids.clear()
        finally:
            signal.signal(signal.SIGALRM, handler_before)
        assert exit_codes_of_children == [0] * FORK_COUNT


def test_a_child_forked_during_tasks_leaves_their_replies_to_its_parent(slow_address: str) -> None:
    async def reads_own_values_in_child_loop(client: AsyncClient) -> bool:
        return all(
            [
                await client.get(f"child{read_number}") == b"child%d" % read_number
                for read_number in (0, 1)
            ]
        )

    def reads_own_values(client: AsyncClient) -> bool:
        asyncio._set_running_loop(None)
        return asyncio.new_event_loop().run_until_complete(reads_own_values_in_child_loop(client))

    async def main() -> list[int]:
        exit_codes_of_children: list[int] = []
        async with AsyncClient(slow_address, timeout=10, dialect="raw") as client:
            for number in range(0, FORK_COUNT, 2):
                tasks = [
                    asyncio.create_task(client.get(f"during{number}-{task_number}"))
                    for task_number in range(4)
                ]
                await asyncio.sleep(0.001)
                child_pids = [
                    run_in_child(fork_in_c, lambda: reads_own_values(client)) for _ in (0, 1)
                ]
                replies = await asyncio.gather(*tasks)
                assert replies == [
                    b"during%d-%d" % (number, task_number) for task_number in range(4)
                ]
                exit_codes_of_children += wait_for_exit_codes(child_pids)
        return exit_codes_of_children

    exit_codes_of_children = asyncio.run(main())
    assert exit_codes_of_children == [0] * len(exit_codes_of_children)


def test_an_event_loop_that_continues_in_a_child_makes_new_connections(slow_address: str) -> None:
    loop = asyncio.new_event_loop()
    client = AsyncClient(slow_address, timeout=5, dialect="raw")
    try:
        assert loop.run_until_complete(client.get("before")) == b"before"
        child_pid = run_in_child(
            fork_in_c, lambda: loop.run_until_complete(client.get("child")) == b"child"
        )
        assert wait_for_exit_codes([child_pid]) == [0]
        # The parent's connection is as it was: neither shut down nor taken out of its selector.
        assert loop.run_until_complete(client.get("after")) == b"after"
        assert client.stats()["servers"][slow_address]["times_down"] == 0
    finally:
        loop.run_until_complete(client.close())
        loop.close()


UWSGI_APPLICATION = """
    import os
    from glasscache import Client

    client = Client(os.environ["CACHE"], timeout=10)
    KEYS = [f"uwsgi{number}" for number in range(50)]
    client.set_many({key: key for key in KEYS})

    def application(environ, start_response):
        number = int(environ["QUERY_STRING"])
        key, counter = KEYS[number % 50], f"uwsgi-{os.urandom(8).hex()}"
        right = (
            client.get(key) == key
            and client.gat(KEYS[(number * 7) % 50], 60) == KEYS[(number * 7) % 50]
            and client.incr(counter, initial=number) == number
        )
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"right" if right else b"wrong"]
"""


def uwsgi_command() -> list[str] | None:
    uwsgi_in_environment = Path(sys.executable).parent / "uwsgi"
    path = os.environ.get("GLASSCACHE_TEST_UWSGI") or (
        str(uwsgi_in_environment) if uwsgi_in_environment.exists() else shutil.which("uwsgi")
    )
    return [path] if path else None


def test_workers_of_uwsgi_get_replies_to_their_own_requests_alone(
    server: Server, tmp_path: Path
) -> None:
    """By default uWSGI loads the application, then forks its workers in C without telling Python."""
    command = uwsgi_command()
    if command is None:
        pytest.skip("no uwsgi: pip install uwsgi, or GLASSCACHE_TEST_UWSGI=path")
    (tmp_path / "application.py").write_text(textwrap.dedent(UWSGI_APPLICATION))
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        port = reserved_socket.getsockname()[1]
    package_folder = str(Path(__file__).parent.parent)
    arguments = [
        "--http-socket", f"127.0.0.1:{port}", "--master", "--processes", "4", "--die-on-term",
        "--wsgi-file", "application.py", "--pythonpath", package_folder, "--disable-logging",
        "--max-requests", "25",
    ]  # fmt: skip
    log = (tmp_path / "log").open("w+b")
    environment = {**os.environ, "CACHE": server.address, "PYTHONPATH": package_folder}
    process = subprocess.Popen(
        [*command, *arguments], cwd=tmp_path, env=environment, stdout=log, stderr=log
    )
    replies: list[bytes] = []

    def send_requests(numbers: range) -> None:
        for number in numbers:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    url = f"http://127.0.0.1:{port}/?{number}"
                    with urllib.request.urlopen(url, timeout=20) as reply:
                        replies.append(reply.read())
                    break
                time.sleep(0.05)

    try:
        threads = [
            threading.Thread(target=send_requests, args=(range(first_number, FORK_COUNT * 4, 8),))
            for first_number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        process.terminate()
        process.wait(20)
        log.seek(0)
        log_text = log.read().decode(errors="replace")
        log.close()
    assert replies == [b"right"] * (FORK_COUNT * 4), log_text[-3000:]
