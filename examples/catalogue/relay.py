"""A network between client and cache: each request is delayed by a draw from a table of latencies.

    with Relay("127.0.0.1:11211") as relay:
        client = Client(relay.address)

The relay is a process of its own. On each connection it waits before it passes a request on: it suits clients
that send a request only when they have the reply to the one before.
"""

from __future__ import annotations

import multiprocessing
import random
import socket
import threading
import time
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import TracebackType
    from typing import Self

DELAY_MS_BY_PERCENT = (
    (0, 1.1),
    (5, 1.11),
    (25, 1.24),
    (50, 1.3),
    (75, 1.4),
    (90, 1.6),
    (99, 2.4),
    (100, 4),
)
"""Percentiles of the delay in milliseconds: a network with a median of 1.3 ms."""

READ_BYTES = 1 << 18


def draw_delay_s(rng: random.Random) -> float:
    """Return a delay in seconds, linear between the percentiles."""
    percent = 100 * rng.random()
    index = bisect_right(DELAY_MS_BY_PERCENT, percent, key=lambda row: row[0])
    (percent_below, delay_ms_below), (percent_above, delay_ms_above) = (
        DELAY_MS_BY_PERCENT[index - 1],
        DELAY_MS_BY_PERCENT[index],
    )
    return (
        delay_ms_below
        + (delay_ms_above - delay_ms_below)
        * (percent - percent_below)
        / (percent_above - percent_below)
    ) / 1e3


class Relay:
    """Passes connections on to a server, while the block lasts."""

    def __init__(self, server_address: str) -> None:
        """Start it; `server_address` is host:port."""
        # Not a fork, which would copy the locks that threads of this process hold.
        spawn_context = multiprocessing.get_context("spawn")
        parent_end, child_end = spawn_context.Pipe()
        self._process = spawn_context.Process(
            target=_run_relay, args=(server_address, child_end), daemon=True
        )
        self._process.start()
        child_end.close()
        self.address: str = parent_end.recv()

    def __enter__(self) -> Self:
        """Return the relay."""
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it, with its connections."""
        self._process.terminate()
        self._process.join()


def _run_relay(server_address: str, child_end: Connection) -> None:
    host, _, port = server_address.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    child_end.send(f"127.0.0.1:{listener.getsockname()[1]}")
    connection_number = 0
    while True:
        client, _ = listener.accept()
        upstream = socket.create_connection((host, int(port)))
        for connection in (client, upstream):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection_number += 1
        rng = random.Random(connection_number)  # noqa: S311 - the same delays each time
        requests = (_pass_requests, (client, upstream, rng))
        replies = (_pass_replies, (upstream, client))
        for function, arguments in (requests, replies):
            threading.Thread(target=function, args=arguments, daemon=True).start()


def _pass_requests(client: socket.socket, upstream: socket.socket, rng: random.Random) -> None:
    # A connection that is reset has ended too.
    with suppress(OSError):
        while data := client.recv(READ_BYTES):
            time.sleep(draw_delay_s(rng))
            upstream.sendall(data)
    with suppress(OSError):
        upstream.shutdown(socket.SHUT_WR)


def _pass_replies(upstream: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := upstream.recv(READ_BYTES):
            client.sendall(data)
    # Closing alone would neither wake the other thread nor reach the client while that thread reads.
    for connection in (client, upstream):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
