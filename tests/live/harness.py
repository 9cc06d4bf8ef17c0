"""The base of the hostile cases: a server process, connections, a latency probe, and the list of cases.

Only the standard library is used, so that the cases run against any memcached on any machine.
"""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import ssl
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packets import RESPONSE, VERSION, request

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

REPLY_SECONDS = 10.0


@dataclass(frozen=True)
class Tls:
    """What servers and connections need to encrypt."""

    options: tuple[str, ...]
    context: ssl.SSLContext


class EncryptedSocket(ssl.SSLSocket):
    """A socket that raises the errors of one without TLS, so that cases need not distinguish them."""

    def recv(self, *arguments: int) -> bytes:
        """Receives."""
        try:
            return super().recv(*arguments)
        except ssl.SSLError as error:
            raise ConnectionResetError(str(error)) from error

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]
        """Sends all."""
        try:
            super().sendall(data, flags)
        except ssl.SSLError as error:
            raise ConnectionResetError(str(error)) from error


class Protection:
    """The TLS of all servers and connections of this process; none unless a script calls `encrypt`."""

    tls: Tls | None = None

    @classmethod
    def encrypt(cls) -> None:
        """From now on servers have a certificate, and connections begin with a handshake."""
        from certificates import Authority

        authority = Authority()
        identity = authority.sign("server")
        context = authority.context()
        context.sslsocket_class = EncryptedSocket
        cls.tls = Tls(identity.options(), context)


class RequirementFailed(AssertionError):
    """A requirement was not met; the message names it."""


def require(condition: object, message: str) -> None:
    """Raises `RequirementFailed` unless the condition holds."""
    if not condition:
        raise RequirementFailed(message)


@dataclass(frozen=True)
class Case:
    """One hostile input with what is required of the server."""

    name: str
    category: str
    run: Callable[[Server], str | None]
    options: tuple[str, ...] | None


CASES: list[Case] = []


def case(
    category: str = "basic", options: tuple[str, ...] | None = None
) -> Callable[..., Callable[..., object]]:
    """Registers a case; `options` requests a server of its own, started with them.

    Category "basic" is what every memcached has to withstand, "extra" what only we promise, "login" what a
    server with logins must refuse.
    """

    def register(function: Callable[[Server], str | None]) -> Callable[[Server], str | None]:
        CASES.append(Case(function.__name__, category, function, options))
        return function

    return register


class Server:
    """A server process on a free port of this machine; with TLS also on `plain_port` without it."""

    def __init__(
        self,
        command: list[str],
        options: tuple[str, ...] = ("-m", "64"),
        plain_port: int | None = None,
    ) -> None:
        self.memory_mb = int(options[options.index("-m") + 1]) if "-m" in options else 64
        # With a login by SASL alone it closes connections that speak text.
        self.is_binary = "-S" in options and "-Y" not in options
        for _ in range(5):
            self.port = free_port()
            arguments = [
                *command,
                "-p",
                str(self.port),
                "-l",
                "127.0.0.1",
                "-U",
                "0",
                "-t",
                "2",
                *options,
            ]
            if Protection.tls:
                arguments += Protection.tls.options
            if is_root():
                arguments += ["-u", "root"]
            self.tls_port = self.port
            self.port = plain_port or self.port
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if self._does_reply():
                return
            self.kill()
        raise SystemExit(f"the server does not start: {' '.join(arguments)}")

    def _does_reply(self) -> bool:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with self.connect() as connection:
                    if self.is_binary:
                        connection.send(request(VERSION))
                        return connection.socket.recv(1) == bytes([RESPONSE])
                    connection.send(b"version\r\n")
                    # A server that requires a login replies that.
                    return connection.read_line().startswith(
                        (b"VERSION", b"CLIENT_ERROR unauthenticated")
                    )
            except OSError:
                time.sleep(0.02)
        return False

    def connect(
        self, timeout: float = REPLY_SECONDS, receive_buffer: int | None = None
    ) -> ServerConnection:
        """Opens a connection."""
        return ServerConnection(self.port, timeout, receive_buffer)

    def resident_mb(self) -> float:
        """Resident memory now, in MiB, huge pages included."""
        status_text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status_text.splitlines() if ":" in line)
        kilobytes = sum(
            int(fields.get(name, "0 kB").split()[0]) for name in ("VmRSS", "HugetlbPages")
        )
        return kilobytes / 1024

    def cpu_seconds(self) -> float:
        """Processor time that the server has used so far."""
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        user_ticks, system_ticks = stat.rsplit(")", 1)[1].split()[11:13]
        return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")

    def open_descriptor_count(self) -> int:
        """Open descriptors of the server."""
        return sum(1 for _ in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir())

    def is_alive(self) -> bool:
        """Whether the process runs and replies."""
        if self.process.poll() is not None:
            return False
        try:
            with self.connect() as connection:
                connection.send(b"version\r\n")
                return connection.read_line().startswith(b"VERSION")
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Sends a signal to the process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Ends the process."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class ServerConnection:
    """A connection that reads lines and blocks, with a deadline on each read."""

    def __init__(self, port: int, timeout: float, receive_buffer: int | None) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect(("127.0.0.1", port))
        if Protection.tls:
            try:
                self.socket = Protection.tls.context.wrap_socket(
                    self.socket, server_hostname="localhost"
                )
            except ssl.SSLError as error:
                raise ConnectionResetError(str(error)) from error
        self.buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends all bytes."""
        self.socket.sendall(data)

    def read_line(self) -> bytes:
        """The next line without its end; empty at the end of the stream."""
        while b"\n" not in self.buffer:
            chunk = self.socket.recv(1 << 16)
            if not chunk:
                rest, self.buffer = self.buffer, b""
                return rest
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.rstrip(b"\r")

    def read_value(self, size: int) -> bytes:
        """The next `size` bytes and the line end after them."""
        received = bytearray(self.buffer)
        while len(received) < size + 2:
            chunk = self.socket.recv(1 << 18)
            if not chunk:
                raise ConnectionError("the stream ended inside a value")
            received += chunk
        self.buffer = bytes(received[size + 2 :])
        return bytes(received[:size])

    def send_request(self, data: bytes) -> bytes:
        """Sends a request and returns the first line of the reply."""
        self.send(data)
        return self.read_line()

    def set(self, key: bytes, value: bytes, flags: int = 0, exptime: int = 0) -> bytes:
        """Stores a value and returns the reply."""
        return self.send_request(
            b"set %s %d %d %d\r\n%s\r\n" % (key, flags, exptime, len(value), value)
        )

    def get(self, key: bytes) -> bytes | None:
        """The value under the key; `None` is a miss."""
        header = self.send_request(b"get %s\r\n" % key)
        if header == b"END":
            return None
        require(header.startswith(b"VALUE "), f"get: reply {header!r}")
        value = self.read_value(int(header.split()[3]))
        require(self.read_line() == b"END", "no END after the value")
        return value

    def read_rest(self, seconds: float = 3.0) -> bytes:
        """Everything until the server closes or is silent for `seconds`."""
        self.socket.settimeout(seconds)
        chunks = [self.buffer]
        self.buffer = b""
        try:
            while chunk := self.socket.recv(1 << 18):
                chunks.append(chunk)
        except (TimeoutError, ConnectionError):
            pass
        return b"".join(chunks)

    def is_closed(self, seconds: float = 5.0) -> bool:
        """Whether the server closes within `seconds`, whatever it sends before."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(1 << 18):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def is_in_sync(self) -> bool:
        """Whether the next reply belongs to the next request."""
        reply = self.send_request(b"mn\r\n")
        return reply == b"MN"


class LatencyProbe:
    """Another client: sends a request every few milliseconds while a case runs, keeps the longest latency."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.latency_ms_max = 0.0
        self.errors: list[str] = []
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        # Connected before the case begins, so that a case may count descriptors.
        self._connection = self.server.connect()
        require(self._connection.is_in_sync(), "the latency probe is not served")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_event.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._connection as connection:
                while not self._stop_event.wait(0.005):
                    started_at = time.monotonic()
                    require(
                        connection.send_request(b"mn\r\n") == b"MN",
                        "another reply than MN",
                    )
                    self.latency_ms_max = max(
                        self.latency_ms_max, (time.monotonic() - started_at) * 1000
                    )
        except (OSError, RequirementFailed) as error:
            self.errors.append(str(error))


def p99(values: list[float]) -> float:
    """The 99th percentile; of one value that value."""
    return statistics.quantiles(values * 2 if len(values) == 1 else values, n=100)[98]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        return int(reserved_socket.getsockname()[1])


def is_root() -> bool:
    """Whether this runs as root (a server then wants `-u`)."""
    return os.geteuid() == 0
