"""Requests of the measurements: over connections that are open already, with little work of their own.

A load generator in asyncio takes longer for a request than the cache does for a hit, and would measure
itself. This one is a selector over plain sockets.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_READ_BYTES = 1 << 18


class Latencies(NamedTuple):
    """Seconds of each request, sorted, and of all together."""

    latencies_s: list[float]
    elapsed_s: float

    def quantile_ms(self, quantile: float) -> float:
        """Return a quantile in milliseconds."""
        return (
            self.latencies_s[min(len(self.latencies_s) - 1, int(quantile * len(self.latencies_s)))]
            * 1000
        )


class Connections:
    """Open keep-alive connections, on each of which one request at a time is in flight."""

    def __init__(self, ports: list[int], connection_count: int, path: str = "/empty") -> None:
        """Connect, and read one response to `path` on each, so that the server has accepted it."""
        self._sockets = [
            socket.create_connection(("127.0.0.1", ports[number % len(ports)]), 30)
            for number in range(connection_count)
        ]
        for connection in self._sockets:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request_many(path, connection_count)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        for connection in self._sockets:
            connection.close()

    def request_many(self, path: str, request_count: int, fields: Iterable[str] = ()) -> Latencies:
        """Send requests, as many at once as there are connections, and wait for their responses.

        Each has a Host field and `fields`, such as "Accept: */*".

        Raises:
            ConnectionError: a server closed a connection, or responded with another status than 200.

        """
        head = "\r\n".join([f"GET {path} HTTP/1.1", "Host: shop.example", *fields])
        request = f"{head}\r\n\r\n".encode()
        sent_at: dict[int, float] = {}
        response_by_descriptor: dict[int, bytearray] = {}
        latencies_s: list[float] = []
        idle_sockets = deque(self._sockets)
        started_at = time.perf_counter()
        unsent_count = request_count
        with selectors.DefaultSelector() as selector:
            for connection in self._sockets:
                selector.register(connection, selectors.EVENT_READ)
            while len(latencies_s) < request_count:
                while idle_sockets and unsent_count:
                    connection, unsent_count = idle_sockets.popleft(), unsent_count - 1
                    sent_at[connection.fileno()] = time.perf_counter()
                    response_by_descriptor[connection.fileno()] = bytearray()
                    connection.sendall(request)
                for selector_key, _ in selector.select(30):
                    connection = self._connection_of(selector_key)
                    chunk = connection.recv(_READ_BYTES)
                    if not chunk:
                        raise ConnectionError("a server closed a connection")
                    response = response_by_descriptor[selector_key.fd]
                    response += chunk
                    if _is_complete(response):
                        latencies_s.append(time.perf_counter() - sent_at[selector_key.fd])
                        idle_sockets.append(connection)
        return Latencies(sorted(latencies_s), time.perf_counter() - started_at)

    @staticmethod
    def _connection_of(selector_key: selectors.SelectorKey) -> socket.socket:
        connection = selector_key.fileobj
        assert isinstance(connection, socket.socket)
        return connection


def _is_complete(response: bytearray) -> bool:
    """Whether a response with a Content-Length, or a chunked one, has arrived."""
    header_end = response.find(b"\r\n\r\n")
    if header_end < 0:
        return False
    header = bytes(response[:header_end]).lower()
    if not header.startswith(b"http/1.1 200"):
        raise ConnectionError(f"a server responded {header[:60]!r}")
    if b"transfer-encoding: chunked" in header:
        return response.endswith(b"0\r\n\r\n")
    length = int(header.split(b"content-length:")[1].split(b"\r\n")[0])
    return len(response) >= header_end + 4 + length
