"""Real memcached servers for the comparisons with other clients, on ports of the kernel's choice."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def memcached_servers(count: int, memcached: str) -> Iterator[list[str]]:
    """Empty servers on ports of the kernel's choice; `memcached` may have arguments: "glasscache serve"."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for _ in range(count):
            with socket.socket() as reserved_socket:
                reserved_socket.bind(("127.0.0.1", 0))
                port = reserved_socket.getsockname()[1]
            command = [
                *shlex.split(memcached),
                "-p",
                str(port),
                "-l",
                "127.0.0.1",
                "-U",
                "0",
                "-m",
                "256",
                "-t",
                "1",
            ]
            if os.geteuid() == 0:
                command += ["-u", "root"]
            server = subprocess.Popen(command)
            stack.callback(server.wait)
            stack.callback(server.terminate)
            addresses.append(f"127.0.0.1:{port}")
        for address in addresses:
            wait_until_accepting(address)
        yield addresses


def wait_until_accepting(address: str) -> None:
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
            return
    raise RuntimeError(f"no server at {address}")
