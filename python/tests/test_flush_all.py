"""`flush_all` removes what was stored before it, and nothing that is stored after it, within one second too.

Random bursts of commands on two connections, pipelined and without replies, against a model. Where there is a
memcached it is held to the same model.
"""

from __future__ import annotations

import os
import random
import socket
from typing import IO, TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache import Server

BURSTS = int(os.environ.get("GLASSCACHE_TEST_BURSTS", "600"))
"""10,000 in a long run."""


class Model:
    """What a server holds, and the commands of a burst with the replies that it must give."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._values = rng, dict[bytes, bytes]()
        self._value_count = 0

    def draw_burst(self) -> tuple[bytes, list[bytes]]:
        """Return some commands and their replies; the last has one."""
        commands, replies = bytearray(), list[bytes]()
        for _ in range(self._rng.randrange(1, 7)):
            command, reply, may_be_quiet = self._draw_command()
            is_quiet = may_be_quiet and self._rng.random() < 0.4
            head, separator, rest = command.partition(b"\r\n")
            commands += head + b" noreply" * is_quiet + separator + rest
            if not is_quiet:
                replies.append(reply)
        return bytes(commands) + b"mn\r\n", [*replies, b"MN\r\n"]

    def _draw_command(self) -> tuple[bytes, bytes, bool]:
        key = b"k%d" % self._rng.randrange(6)
        match self._rng.randrange(10):
            case 0 | 1:
                self._values.clear()
                return self._rng.choice([b"flush_all\r\n", b"flush_all 0\r\n"]), b"OK\r\n", True
            case 2:
                was_there = self._values.pop(key, None) is not None
                return (
                    b"delete %b\r\n" % key,
                    b"DELETED\r\n" if was_there else b"NOT_FOUND\r\n",
                    True,
                )
            case 3 | 4 | 5 | 6:
                return *self._draw_store(key), True
        value = self._values.get(key)
        found = b"" if value is None else b"VALUE %b 0 %d\r\n%b\r\n" % (key, len(value), value)
        return b"get %b\r\n" % key, found + b"END\r\n", False

    def _draw_store(self, key: bytes) -> tuple[bytes, bytes]:
        method = self._rng.choice([b"set", b"set", b"add", b"append"])
        self._value_count += 1
        value, ttl_s = b"%d," % self._value_count, self._rng.choice([0, 100])
        is_stored = method == b"set" or (key in self._values) == (method == b"append")
        if is_stored:
            self._values[key] = (self._values[key] if method == b"append" else b"") + value
        command = b"%b %b 0 %d %d\r\n%b\r\n" % (method, key, ttl_s, len(value), value)
        return command, b"STORED\r\n" if is_stored else b"NOT_STORED\r\n"


def hold_to_the_model(address: str, seed: int) -> None:
    host, port = address.split(":")
    rng = random.Random(seed)
    connections: list[tuple[socket.socket, IO[bytes]]] = []
    for _ in range(2):
        connection = socket.create_connection((host, int(port)), timeout=60)
        connections.append((connection, connection.makefile("rb")))
    connections[0][0].sendall(b"flush_all\r\n")
    assert connections[0][1].readline() == b"OK\r\n"
    model = Model(rng)
    for _ in range(BURSTS):
        connection, replies = rng.choice(connections)
        commands, expected_replies = model.draw_burst()
        connection.sendall(commands)
        for expected in expected_replies:
            assert replies.read(len(expected)) == expected, (seed, commands)
    for connection, replies in connections:
        replies.close()
        connection.close()


@pytest.mark.parametrize("seed", range(3))
def test_flush_all_removes_what_came_before_and_nothing_else(server: Server, seed: int) -> None:
    hold_to_the_model(server.address, seed)


def test_memcached_follows_the_same_model(start_memcached: Callable[..., Any]) -> None:
    with start_memcached() as address:
        hold_to_the_model(address, 1)
