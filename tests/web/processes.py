"""Processes of the measurements: uvicorn with one of the applications, Redis, memcached and Varnish."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def find_program(name: str) -> str | None:
    """Return the path of a program, or None if it is not installed."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/local/bin")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        return int(reserved_socket.getsockname()[1])


class Process:
    """A process that listens at a port."""

    def __init__(
        self, command: list[str], port: int, environment: dict[str, str], errors: int | None = None
    ) -> None:
        """Start it and wait until it accepts connections; `errors` takes its standard error."""
        self.port = port
        discarded = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=discarded, stderr=errors
        )
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        self.stop()
        raise SystemExit(f"starting {command[0]} failed: nothing listens at port {port}")

    @property
    def cpu_seconds(self) -> float:
        """Return the processor time of all its threads so far."""
        nanoseconds = 0
        for schedstat_file in Path(f"/proc/{self._process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # a thread that has just ended
                nanoseconds += int(schedstat_file.read_text().split()[0])
        return nanoseconds / 1e9

    @property
    def peak_bytes(self) -> int:
        """Return the most memory that was resident so far."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise SystemExit("reading the memory of a process failed: /proc has no VmHWM")

    def stop(self) -> None:
        """Stop it and wait for its end."""
        self._process.terminate()
        self._process.wait(10)


@contextlib.contextmanager
def uvicorn_processes(
    application: str, count: int = 1, **environment: str
) -> Iterator[list[Process]]:
    """Run uvicorn processes of an application, `module:name`; a name ending in `()` is a factory."""
    is_factory = application.endswith("()")
    processes: list[Process] = []
    try:
        for _ in range(count):
            port = free_port()
            command = [
                sys.executable, "-m", "uvicorn", application.removesuffix("()"), "--port", str(port),
                "--log-level", "error", "--no-access-log", "--timeout-keep-alive", "600",
                *(["--factory"] if is_factory else []),
            ]  # fmt: skip
            processes.append(Process(command, port, {"PYTHONPATH": str(HERE), **environment}))
        yield processes
    finally:
        for process in processes:
            process.stop()


@contextlib.contextmanager
def listening_process(*command: str, port: int) -> Iterator[Process]:
    """Run another program that listens at a port."""
    process = Process(list(command), port, {}, subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.stop()
