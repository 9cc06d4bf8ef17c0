"""A faulty cache server: wrong replies, hangs and broken connections, one mode at a time.

It keeps a real store and executes `COMMANDS` correctly. Until a mode is set it replies correctly, too; then
each reply is what the mode makes of it. Values contain their key, so that a client that returns the value of
another key is detected.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import IO, TYPE_CHECKING

from faulty import Session, Store
from scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = (
    "hang",
    "late",
    "half_then_hang",
    "half_then_close",
    "half_then_reset",
    "trickle",
    "reset",
    "close",
    "garbage",
    "wrong_key",
    "off_by_one",
    "duplicated",
    "unsolicited",
    "too_long",
    "too_short",
    "missing_end",
    "error_line",
    "server_error",
    "client_error",
    "endless_line",
    "two_gigabytes",
    "negative_length",
    "other_opaque",
    "close_in_multiget",
    "no_accept",
    "blackhole",
)
"""Every way to fail. `no_accept` serves no connection that is made while it is set."""


COMMANDS = (b"get", b"gets", b"mg", b"ms", b"md", b"mn", b"version")
"""What it executes; to anything else it replies with an error."""


def value_of(key: bytes, size: int = 40) -> bytes:
    """Return the only right value of a key."""
    return (b"<" + key + b">") * (size // (len(key) + 2) + 1)


class FaultyServer(ScriptedServer):
    """A server with one store for all connections, whose `mode` decides each reply from the next one on.

    A mode without a reply lasts until `mode` is set again or the server is closed; then the connection ends.
    """

    def __init__(self) -> None:
        self.mode = "ok"
        self.ignores_writes = False
        """Whether the store stays as it is: writes get the reply of the mode, and their effect is undone."""
        self._store = Store("none", 0)
        self._previous_reply = b"END\r\n"
        super().__init__(self._serve_with_mode)

    def put(self, key: bytes, value: bytes, flags: bytes = b"0") -> None:
        """Store an item directly, without a request."""
        self._store.write(key, value, flags, 0)

    def _serve_with_mode(self, connection: socket.socket) -> None:
        while self.mode == "no_accept" and not self.is_closed:
            time.sleep(0.005)
        for reply, applies_mode in self._replies(connection.makefile("rb")):
            if not _send(self, connection, reply, applies_mode=applies_mode):
                return

    def _replies(self, reader: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
        session = Session(self._store, reader)
        while words := reader.readline().split():
            items_before = dict(self._store.items) if self.ignores_writes else None
            reply = session.reply_to(words) if words[0] in COMMANDS else b"ERROR\r\n"
            if items_before is not None:
                self._store.items = items_before
            if reply:
                yield reply, words[0] != b"mn"


def _send(  # noqa: C901, PLR0911, PLR0912
    server: FaultyServer, connection: socket.socket, reply: bytes, *, applies_mode: bool
) -> bool:
    """Send a reply as the mode has it; False ends the connection."""
    mode = server.mode
    previous_reply, server._previous_reply = server._previous_reply, reply
    if mode == "ok" or not applies_mode:
        connection.sendall(reply)
        return True
    first_half = reply[: len(reply) // 2]
    match mode:
        case "hang" | "blackhole" | "no_accept":
            _wait_for_mode(server, mode)
            return False
        case "late":
            time.sleep(0.4)
            connection.sendall(reply)
        case "half_then_hang":
            connection.sendall(first_half)
            _wait_for_mode(server, mode)
            return False
        case "half_then_close":
            connection.sendall(first_half)
            return False
        case "half_then_reset":
            connection.sendall(first_half)
            _reset(connection)
            return False
        case "trickle":
            for index in range(len(reply)):
                connection.sendall(reply[index : index + 1])
                time.sleep(0.02)
        case "reset":
            _reset(connection)
            return False
        case "close":
            return False
        case "garbage":
            connection.sendall(bytes(range(128, 250)) + b"\r\n" + reply)
        case "wrong_key":
            connection.sendall(reply.replace(b"VALUE k", b"VALUE x").replace(b" O", b" O9"))
        case "off_by_one":
            connection.sendall(previous_reply)
        case "duplicated":
            connection.sendall(reply + reply)
        case "unsolicited":
            connection.sendall(b"VALUE other 0 5\r\nother\r\nEND\r\n" + reply)
        case "too_long":
            connection.sendall(_change_length(reply, 7))
        case "too_short":
            connection.sendall(_change_length(reply, -7))
        case "missing_end":
            connection.sendall(reply.removesuffix(b"END\r\n"))
        case "error_line":
            connection.sendall(b"ERROR\r\n")
        case "server_error":
            connection.sendall(b"SERVER_ERROR out of memory\r\n")
        case "client_error":
            connection.sendall(b"CLIENT_ERROR bad command line format\r\n")
        case "endless_line":
            with contextlib.suppress(OSError):
                for _ in range(2000):
                    connection.sendall(b"x" * 65536)
            return False
        case "two_gigabytes":
            connection.sendall(_change_length(reply, 2_000_000_000))
        case "negative_length":
            connection.sendall(_change_length(reply, -1_000_000))
        case "other_opaque":
            connection.sendall(reply.replace(b" O", b" O1"))
        case "close_in_multiget":
            connection.sendall(reply[: max(1, len(reply) * 3 // 4)])
            return False
        case unknown_mode:
            raise ValueError(unknown_mode)
    return True


def _change_length(reply: bytes, change: int) -> bytes:
    """Return a reply whose first value has a length that is too large or too small."""
    line, body = reply.split(b"\r\n", 1)
    words = line.split(b" ")
    index = {b"VALUE": 3, b"VA": 1}.get(words[0])
    if index is None:
        return reply
    words[index] = b"%d" % (int(words[index]) + change)
    return b" ".join(words) + b"\r\n" + body


def _wait_for_mode(server: FaultyServer, mode: str) -> None:
    while server.mode == mode and not server.is_closed:
        time.sleep(0.005)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
