"""A server that sends scripted replies over TCP, one for each classic command it gets."""

from __future__ import annotations

import re
import socket
import threading
import time
from typing import BinaryIO

_META = re.compile(rb"^(mg|ms|md|ma|mn|me)\b")
_STORES = (b"set", b"add", b"replace", b"append", b"prepend", b"cas")
_MANY_LINES = (b"get", b"gets", b"gat", b"gats", b"stats")
_LINES = re.compile(rb"(VALUE|STAT|ITEM|END)\b")
_CLOSING_SECONDS = 0.2


class ScriptedServer:
    """Listens on a port of its own, with a thread until the replies are sent and the client gone.

    What is not bytes among the replies, an exception that the mocked socket would raise, closes
    the connection in its place.
    """

    def __init__(self, replies: list[object], path: str | None = None) -> None:
        self._replies = list(replies)
        self.requests = b""
        self.connections = 0
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address: object = ("127.0.0.1", self._listener.getsockname()[1])
        else:
            self._listener = socket.create_server(path, family=socket.AF_UNIX)
            self.address = path
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            peer, _ = self._listener.accept()
            self.connections += 1
            with peer, peer.makefile("rb") as requests:
                try:
                    self._serve_connection(peer, requests)
                except OSError:
                    pass
                finally:
                    self.connections -= 1

    def _serve_connection(self, peer: socket.socket, requests: BinaryIO) -> None:
        while line := requests.readline():
            words = line.split()
            if _META.match(line):
                return  # As a proxy that has no meta commands.
            self.requests += line
            if words[0] in _STORES:
                self.requests += requests.read(int(words[4]) + 2)
            if words[-1] == b"noreply":
                continue
            reply = self._next(words[0])
            if reply is None:
                return  # No reply is left: the connection ends, as a mock's does.
            peer.sendall(reply)
            if self._replies and not isinstance(self._replies[0], bytes):
                self._replies.pop(0)
                return

    def _next(self, command: bytes) -> bytes | None:
        """The reply to one command, off the front of what is to be sent."""
        head = b""
        while self._replies and isinstance(self._replies[0], bytes):
            head += self._replies.pop(0)
            is_many = command in _MANY_LINES and (not head or _LINES.match(head))
            until = b"END\r\n" if is_many else b"\r\n"
            reply, found, rest = head.partition(until)
            if found:
                if command not in (*_STORES, *_MANY_LINES):
                    return head  # As it was given, with what follows the reply.
                if rest:
                    self._replies.insert(0, rest)
                return reply + found
        if not head and self._replies:
            self._replies.pop(0)
        return head or None

    def socket(self) -> RecordedRequests | None:
        """What a test may ask of a mocked socket; None when the client has closed its connection."""
        ends = time.monotonic() + _CLOSING_SECONDS
        while self.connections and time.monotonic() < ends:
            time.sleep(0.005)
        return RecordedRequests(self.requests) if self.connections else None


class RecordedRequests:
    """A connection as its other end sees it: open, and what came over it."""

    closed = False

    def __init__(self, requests: bytes) -> None:
        self.send_bufs = [requests]
