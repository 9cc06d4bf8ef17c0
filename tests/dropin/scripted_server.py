"""A server that sends scripted replies over TCP, one for each classic command it gets."""

from __future__ import annotations

import re
import socket
import threading
import time
from typing import BinaryIO

_META_COMMAND = re.compile(rb"^(mg|ms|md|ma|mn|me)\b")
_STORAGE_COMMANDS = (b"set", b"add", b"replace", b"append", b"prepend", b"cas")
_MULTI_LINE_COMMANDS = (b"get", b"gets", b"gat", b"gats", b"stats")
_MULTI_LINE_START = re.compile(rb"(VALUE|STAT|ITEM|END)\b")
_CLOSE_TIMEOUT_S = 0.2


class ScriptedServer:
    """Listens on a port of its own; its thread ends when the replies are sent and the client disconnected.

    A reply that is not bytes (an exception that the mocked socket would raise) closes
    the connection instead.
    """

    def __init__(self, replies: list[object], socket_path: str | None = None) -> None:
        self._replies = list(replies)
        self.requests = b""
        self.open_connections = 0
        if socket_path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address: object = ("127.0.0.1", self._listener.getsockname()[1])
        else:
            self._listener = socket.create_server(socket_path, family=socket.AF_UNIX)
            self.address = socket_path
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            self.open_connections += 1
            with connection, connection.makefile("rb") as request_stream:
                try:
                    self._serve_connection(connection, request_stream)
                except OSError:
                    pass
                finally:
                    self.open_connections -= 1

    def _serve_connection(self, connection: socket.socket, request_stream: BinaryIO) -> None:
        while line := request_stream.readline():
            request_words = line.split()
            if _META_COMMAND.match(line):
                return  # As a proxy that has no meta commands.
            self.requests += line
            if request_words[0] in _STORAGE_COMMANDS:
                self.requests += request_stream.read(int(request_words[4]) + 2)
            if request_words[-1] == b"noreply":
                continue
            reply = self._next_reply(request_words[0])
            if reply is None:
                return  # No reply is left: the connection ends, as a mock's does.
            connection.sendall(reply)
            if self._replies and not isinstance(self._replies[0], bytes):
                self._replies.pop(0)
                return

    def _next_reply(self, command: bytes) -> bytes | None:
        """Take the reply to one command from the front of the scripted replies."""
        reply_start = b""
        while self._replies and isinstance(self._replies[0], bytes):
            reply_start += self._replies.pop(0)
            has_several_lines = command in _MULTI_LINE_COMMANDS and (
                not reply_start or _MULTI_LINE_START.match(reply_start)
            )
            terminator = b"END\r\n" if has_several_lines else b"\r\n"
            reply, has_end, rest = reply_start.partition(terminator)
            if has_end:
                if command not in (*_STORAGE_COMMANDS, *_MULTI_LINE_COMMANDS):
                    return reply_start  # As it was given, with what follows the reply.
                if rest:
                    self._replies.insert(0, rest)
                return reply + has_end
        if not reply_start and self._replies:
            self._replies.pop(0)
        return reply_start or None

    def socket(self) -> RecordedRequests | None:
        """The recorded requests, as from a mocked socket; None when the client has closed its connection."""
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        while self.open_connections and time.monotonic() < deadline:
            time.sleep(0.005)
        return RecordedRequests(self.requests) if self.open_connections else None


class RecordedRequests:
    """An open connection with the requests that its server received."""

    closed = False

    def __init__(self, requests: bytes) -> None:
        self.send_bufs = [requests]
