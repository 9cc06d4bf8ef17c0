"""Requests of the measurements: over connections that are open already, with little work of their own.

A load generator in asyncio takes longer for a request than the cache does for a hit, and would measure
itself. This one is a selector over plain sockets.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from typing import NamedTuple, Self

_READ_BYTES = 1 << 18


class Times(NamedTuple):
    """Seconds of each request, sorted, and of all together."""

    seconds: list[float]
    elapsed: float

    def quantile_ms(self, part: float) -> float:
        """Return a quantile in milliseconds."""
        return self.seconds[min(len(self.seconds) - 1, int(part * len(self.seconds)))] * 1000


class Connections:
    """Open keep-alive connections, on each of which one request at a time is in flight."""

    def __init__(self, ports: list[int], count: int, path: str = "/empty") -> None:
        """Connect, and read one response to `path` on each, so that the server has accepted it."""
        self._sockets = [
            socket.create_connection(("127.0.0.1", ports[number % len(ports)]), 30)
            for number in range(count)
        ]
        for stream in self._sockets:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(path, count)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        for stream in self._sockets:
            stream.close()

    def send(self, path: str, count: int) -> Times:
        """Send `count` requests, as many at once as there are connections, and wait for the responses.

        Raises:
            ConnectionError: a server closed a connection, or responded with another status than 200.

        """
        request = f"GET {path} HTTP/1.1\r\nHost: shop.example\r\n\r\n".encode()
        begun: dict[int, float] = {}
        received: dict[int, bytearray] = {}
        seconds: list[float] = []
        waiting = deque(self._sockets)
        started = time.perf_counter()
        left = count
        with selectors.DefaultSelector() as selector:
            for stream in self._sockets:
                selector.register(stream, selectors.EVENT_READ)
            while len(seconds) < count:
                while waiting and left:
                    stream, left = waiting.popleft(), left - 1
                    begun[stream.fileno()] = time.perf_counter()
                    received[stream.fileno()] = bytearray()
                    stream.sendall(request)
                for key, _ in selector.select(30):
                    stream = self._stream(key)
                    part = stream.recv(_READ_BYTES)
                    if not part:
                        raise ConnectionError("a server closed a connection")
                    data = received[key.fd]
                    data += part
                    if _is_whole(data):
                        seconds.append(time.perf_counter() - begun[key.fd])
                        waiting.append(stream)
        return Times(sorted(seconds), time.perf_counter() - started)

    @staticmethod
    def _stream(key: selectors.SelectorKey) -> socket.socket:
        stream = key.fileobj
        assert isinstance(stream, socket.socket)
        return stream


def _is_whole(data: bytearray) -> bool:
    """Whether a response with a Content-Length, or a chunked one, has arrived."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(data[:end]).lower()
    if not head.startswith(b"http/1.1 200"):
        raise ConnectionError(f"a server responded {head[:60]!r}")
    if b"transfer-encoding: chunked" in head:
        return data.endswith(b"0\r\n\r\n")
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    return len(data) >= end + 4 + length
