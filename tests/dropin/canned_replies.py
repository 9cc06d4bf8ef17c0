"""A server that sends canned replies, one for each classic command it gets."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, BinaryIO

from scripted_server import ScriptedServer

if TYPE_CHECKING:
    import socket

_META_COMMAND = re.compile(rb"^(mg|ms|md|ma|mn|me)\b")
_STORAGE_COMMANDS = (b"set", b"add", b"replace", b"append", b"prepend", b"cas")
_MULTI_LINE_COMMANDS = (b"get", b"gets", b"gat", b"gats", b"stats")
_MULTI_LINE_START = re.compile(rb"(VALUE|STAT|ITEM|END)\b")
_CLOSE_TIMEOUT_S = 0.2


class CannedReplies(ScriptedServer):
    """Sends the next reply for each command; a connection ends when none is left.

    A reply that is not bytes (an exception that the mocked socket would raise) closes
    the connection instead.
    """

    def __init__(self, replies: list[object], socket_path: str | None = None) -> None:
        self._canned_replies = list(replies)
        self.requests = b""
        super().__init__(self._reply_to_requests, socket_path)

    @property
    def pymemcache_address(self) -> object:
        """The address as pymemcache has it."""
        return self._path or ("127.0.0.1", self.port)

    def _reply_to_requests(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as request_stream:
            self._serve_connection(connection, request_stream)

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
            if self._canned_replies and not isinstance(self._canned_replies[0], bytes):
                self._canned_replies.pop(0)
                return

    def _next_reply(self, command: bytes) -> bytes | None:
        """Take the reply to one command from the front of the scripted replies."""
        reply_start = b""
        while self._canned_replies and isinstance(self._canned_replies[0], bytes):
            reply_start += self._canned_replies.pop(0)
            has_several_lines = command in _MULTI_LINE_COMMANDS and (
                not reply_start or _MULTI_LINE_START.match(reply_start)
            )
            terminator = b"END\r\n" if has_several_lines else b"\r\n"
            reply, has_end, rest = reply_start.partition(terminator)
            if has_end:
                if command not in (*_STORAGE_COMMANDS, *_MULTI_LINE_COMMANDS):
                    return reply_start  # As it was given, with what follows the reply.
                if rest:
                    self._canned_replies.insert(0, rest)
                return reply + has_end
        if not reply_start and self._canned_replies:
            self._canned_replies.pop(0)
        return reply_start or None

    def socket(self) -> RecordedRequests | None:
        """The recorded requests, as from a mocked socket; None when the client has closed its connection."""
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        while self.connections and time.monotonic() < deadline:
            time.sleep(0.005)
        return RecordedRequests(self.requests) if self.connections else None


class RecordedRequests:
    """An open connection with the requests that its server received."""

    closed = False

    def __init__(self, requests: bytes) -> None:
        self.send_bufs = [requests]
