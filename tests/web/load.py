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


class Latencies(NamedTuple):
    """Seconds of each request, sorted, and of all together."""

    seconds: list[float]
    elapsed: float

    def quantile_ms(self, quantile: float) -> float:
        """Return a quantile in milliseconds."""
        return self.seconds[min(len(self.seconds) - 1, int(quantile * len(self.seconds)))] * 1000


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
        self.request_many(path, count)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        for stream in self._sockets:
            stream.close()

    def request_many(self, path: str, count: int) -> Latencies:
        """Send `count` requests, as many at once as there are connections, and wait for the responses.

        Raises:
            ConnectionError: a server closed a connection, or responded with another status than 200.

        """
        request = f"GET {path} HTTP/1.1\r\nHost: shop.example\r\n\r\n".encode()
        started_at: dict[int, float] = {}
        received: dict[int, bytearray] = {}
        seconds: list[float] = []
        idle = deque(self._sockets)
        begin = time.perf_counter()
        unsent = count
        with selectors.DefaultSelector() as selector:
            for stream in self._sockets:
                selector.register(stream, selectors.EVENT_READ)
            while len(seconds) < count:
                while idle and unsent:
                    stream, unsent = idle.popleft(), unsent - 1
                    started_at[stream.fileno()] = time.perf_counter()
                    received[stream.fileno()] = bytearray()
                    stream.sendall(request)
                for key, _ in selector.select(30):
                    stream = self._stream(key)
                    chunk = stream.recv(_READ_BYTES)
                    if not chunk:
                        raise ConnectionError("a server closed a connection")
                    data = received[key.fd]
                    data += chunk
                    if _is_complete(data):
                        seconds.append(time.perf_counter() - started_at[key.fd])
                        idle.append(stream)
        return Latencies(sorted(seconds), time.perf_counter() - begin)

    @staticmethod
    def _stream(key: selectors.SelectorKey) -> socket.socket:
        stream = key.fileobj
        assert isinstance(stream, socket.socket)
        return stream


def _is_complete(data: bytearray) -> bool:
    """Whether a response with a Content-Length, or a chunked one, has arrived."""
    header_end = data.find(b"\r\n\r\n")
    if header_end < 0:
        return False
    header = bytes(data[:header_end]).lower()
    if not header.startswith(b"http/1.1 200"):
        raise ConnectionError(f"a server responded {header[:60]!r}")
    if b"transfer-encoding: chunked" in header:
        return data.endswith(b"0\r\n\r\n")
    length = int(header.split(b"content-length:")[1].split(b"\r\n")[0])
    return len(data) >= header_end + 4 + length
