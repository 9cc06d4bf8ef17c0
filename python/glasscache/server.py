"""The server as a child process: for tests and first steps."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Server", "find_command"]

_START_TIMEOUT_S = 10.0


def find_command() -> str:
    """Return the path of the command `glasscache`: next to this Python, on PATH, or $GLASSCACHE."""
    configured_path = os.environ.get("GLASSCACHE")
    folders = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    candidates = [
        configured_path,
        *(str(folder / "glasscache") for folder in folders),
        shutil.which("glasscache"),
    ]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError("no command glasscache: pip install gives it, or set GLASSCACHE")


class Server:
    """A cache server of this machine alone, that ends with the block or with `stop()`.

    Args:
        memory: how much it may use, such as "64M".
        port: 0 takes a free one.
        arguments: more flags of `glasscache serve`.

    >>> with Server(memory="64M") as own:
    ...     own.address.startswith("127.0.0.1:")
    True

    """

    address: str
    """Where it listens: "127.0.0.1:port"."""

    def __init__(
        self, memory: str = "64M", *, port: int = 0, arguments: tuple[str, ...] = ()
    ) -> None:
        """Start the server and return when it replies."""
        self._process: subprocess.Popen[bytes] | None = None
        port = port or _free_port()
        self.address = f"127.0.0.1:{port}"
        command = [
            find_command(),
            "serve",
            "-l",
            "127.0.0.1",
            "-p",
            str(port),
            "-m",
            memory,
            *arguments,
        ]
        if os.geteuid() == 0 and not any(flag.startswith(("-u", "--user")) for flag in arguments):
            # The command refuses root unless told otherwise; this server is for this machine alone.
            command += ["-u", "root"]
        self._process = subprocess.Popen(  # noqa: S603 - the command is our own
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._wait_until_it_replies(port)

    def _wait_until_it_replies(self, port: int) -> None:
        process = self._process
        ends_at = time.monotonic() + _START_TIMEOUT_S
        while process is not None and time.monotonic() < ends_at:
            if process.poll() is not None:
                output = process.stderr.read().decode() if process.stderr else ""
                raise RuntimeError(f"the server ended at once: {output.strip()}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        self.stop()
        raise TimeoutError(f"the server does not reply at {self.address}")

    def stop(self) -> None:
        """End the server; what it held is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr:
            process.stderr.close()

    def __repr__(self) -> str:
        """Return where it listens, and whether it still does.

        >>> own = Server()
        >>> repr(own) == f"<Server at {own.address}>"
        True
        >>> own.stop()
        >>> repr(own).endswith(", stopped>")
        True
        """
        state_suffix = ", stopped" if self._process is None else ""
        return f"<Server at {self.address}{state_suffix}>"

    def __enter__(self) -> Self:
        """Return the server, which ends with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the server."""
        self.stop()

    def __del__(self) -> None:
        """End the server with the object."""
        if getattr(self, "_process", None) is not None:
            self.stop()


def _free_port() -> int:
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        port: int = reserved_socket.getsockname()[1]
        return port
