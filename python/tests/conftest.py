"""The fixtures: a server of ours, a memcached to compare with, and the names in doctests."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import subprocess
import sys
import time
import uuid
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from glasscache import AsyncClient, Client

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "tests" / "live")]

if "glasscache.testing" not in sys.modules:
    pytest_plugins = ["glasscache.testing"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glasscache import Server

START_TIMEOUT_S = 60.0
"""How long a memcached may take until it listens, on a machine with other work."""


def pytest_collection_finish() -> None:
    """Leave modules and collected tests, which live to the end, out of each later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in a loop of its own, which closes its asyncio clients."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def run() -> None:
        async with AsyncExitStack() as stack:
            for argument in arguments.values():
                if isinstance(argument, AsyncClient):
                    await stack.enter_async_context(argument)
            await pyfuncitem.obj(**arguments)

    asyncio.run(run())
    return True


@pytest.fixture
def client(glasscache_client: Client) -> Client:
    return glasscache_client


@pytest.fixture(scope="session")
def server(glasscache_server: Server) -> Server:
    return glasscache_server


@pytest.fixture(scope="session")
def start_memcached(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., AbstractContextManager[str]]:
    """Return what runs a memcached with these options; it skips the test if there is none."""
    program = os.environ.get("MEMCACHED") or shutil.which("memcached")

    @contextmanager
    def start_with_options(*options: str) -> Iterator[str]:
        if program is None:
            pytest.skip("no memcached: MEMCACHED=path")
        # It chooses a port, and writes it down when it listens.
        ports_file = tmp_path_factory.mktemp("memcached") / "ports"
        user_options = ["-u", "root"] if os.getuid() == 0 else []
        command = [
            program,
            "-l",
            "127.0.0.1",
            "-p",
            "-1",
            "-U",
            "0",
            "-m",
            "64",
            *user_options,
            *options,
        ]
        environment = os.environ | {"MEMCACHED_PORT_FILENAME": str(ports_file)}
        with subprocess.Popen(command, env=environment) as process:
            try:
                deadline = time.monotonic() + START_TIMEOUT_S
                while not ports_file.exists():
                    assert process.poll() is None, f"memcached ended: {command}"
                    assert time.monotonic() < deadline, f"memcached does not listen: {command}"
                    time.sleep(0.01)
                yield f"127.0.0.1:{ports_file.read_text().split()[-1]}"
            finally:
                process.kill()

    return start_with_options


@pytest.fixture
def save_strategy(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes a strategy file of these lines and returns its path."""

    def write_strategy(lines: str) -> str:
        strategy_file = tmp_path / f"{uuid.uuid4()}.strategy"
        strategy_file.write_text(f"glasscache-strategy 1\n{lines}")
        return str(strategy_file)

    return write_strategy


@pytest.fixture
def namespace() -> str:
    """Return a namespace that no other test uses."""
    return f"test{uuid.uuid4()}:"


@pytest.fixture
def other_client(server: Server, namespace: str) -> Client:
    """A client of another process, as far as the strategy's client knows."""
    return Client(server.address, namespace=namespace)
