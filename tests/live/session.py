"""A process of the consistency check: its connection, and what it records of the replies.

An operation may be cut off on purpose, in the middle of its request or before its reply.
"""

from __future__ import annotations

import random
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from harness import ServerConnection
from values import CheckedValues

if TYPE_CHECKING:
    from shared_versions import SharedVersions


@dataclass
class Plan:
    """The settings of a run; equal in all processes."""

    port: int
    process_count: int = 6
    key_count: int = 600
    counter_count: int = 2
    duration_s: float = 20.0
    large_bytes: int = 700_000
    kill_rate: float = 0.006
    flush_s: float = 2.0
    seed: int = 1


@dataclass
class Report:
    """What one process saw."""

    operations: Counter[str] = field(default_factory=Counter)
    history: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    lost_items: int = 0
    killed_requests: int = 0
    refused_writes: int = 0
    errors: list[str] = field(default_factory=list)


class KeyAndValue(NamedTuple):
    """A VALUE block of a reply."""

    key: bytes
    value: bytes


class Killed(Exception):
    """The connection was killed on purpose in the middle of an operation."""


class Session:
    """The connection of one process, opened again after each cut."""

    def __init__(self, plan: Plan, process_number: int, shared_versions: SharedVersions) -> None:
        self.plan, self.process_number, self.shared_versions = plan, process_number, shared_versions
        self.rng = random.Random(plan.seed * 1000 + process_number)
        self.report = Report()
        self.serial = 0
        self.checked_values = CheckedValues()
        self.may_kill_during_next_request = False
        self.connection = self.connect()

    def connect(self) -> ServerConnection:
        """A new connection."""
        return ServerConnection(self.plan.port, 30.0, None)

    def record_violation(self, description: str) -> None:
        """Records a reply that no correct server gives."""
        self.report.violations.append(f"process {self.process_number}: {description}")

    def send_request(self, request: bytes) -> bytes:
        """Sends a request, or cuts the connection in its middle or before its reply."""
        if not self.may_kill_during_next_request:
            return self.connection.send_request(request)
        self.may_kill_during_next_request = False
        sent_bytes = len(request) if self.rng.random() < 0.5 else self.rng.randrange(len(request))
        self.connection.send(request[:sent_bytes])
        if self.rng.random() < 0.5:
            self.connection.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self.connection.socket.close()
        raise Killed

    def read_values_until_end(self, line: bytes) -> list[KeyAndValue]:
        """The VALUE blocks of a text reply whose first line was read."""
        values = []
        while line != b"END":
            parts = line.split()
            if len(parts) < 4 or parts[0] != b"VALUE":
                raise ValueError(f"instead of VALUE came {line[:60]!r}")
            values.append(KeyAndValue(parts[1], self.connection.read_value(int(parts[3]))))
            line = self.connection.read_line()
        return values
