"""A server that plays canned replies over TCP, one for each classic command it gets."""

from __future__ import annotations

import re
import socket
import threading
from typing import BinaryIO

_META = re.compile(rb"^(mg|ms|md|ma|mn|me)\b")
_STORES = (b"set", b"add", b"replace", b"append", b"prepend", b"cas")


class Played:
    """Listens on a port of its own, with a thread until the replies are played and the client gone."""

    def __init__(self, replies: list[bytes]) -> None:
        self._replies = b"".join(reply for reply in replies if isinstance(reply, bytes))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            peer, _ = self._listener.accept()
            with peer, peer.makefile("rb") as requests:
                try:
                    self._converse(peer, requests)
                except OSError:
                    continue

    def _converse(self, peer: socket.socket, requests: BinaryIO) -> None:
        while line := requests.readline():
            words = line.split()
            if _META.match(line):
                return  # As a proxy that knows no meta commands.
            if words[0] in _STORES:
                requests.read(int(words[4]) + 2)
            if words[-1] == b"noreply":
                continue
            reply = self._next(words[0])
            if reply is None:
                return  # Nothing is left to play: the connection ends, as a mock's does.
            peer.sendall(reply)

    def _next(self, command: bytes) -> bytes | None:
        """The bytes that answer one command, off the front of what is to be played."""
        if not self._replies:
            return None
        until = b"END\r\n" if command in (b"get", b"gets", b"gat", b"gats", b"stats") else b"\r\n"
        first_line = self._replies.split(b"\r\n", 1)[0]
        if first_line.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")):
            until = b"\r\n"
        reply, found, rest = self._replies.partition(until)
        self._replies = rest
        return reply + found


def play(replies: list[bytes]) -> tuple[str, int]:
    """Start a server with these replies; return its address."""
    return Played(list(replies)).address
