#!/usr/bin/env python3
"""Random conversations with us and with a real memcached: every reply must be the same.

Both servers get the same commands one after another, see `conversations`. Numbers that no two
servers share (CAS uniques, addresses of connections) are compared by the order in which they
appear. The first conversation that differs is minimised to the fewest commands that still differ,
and printed. What differs on purpose (docs/decisions/protocol.md, 0022) is not sent: times and client flags
beyond 31 and 32 bits, an overlong key in a get, one item by its plain and by its base64 name,
arithmetic on blank lines or with a unique of its own.

`python3 tests/live/differential.py --memcached memcached --rounds 2000`, with `--protocol binary` in packets.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable

import conversations
import packets
from harness import Server

# The first memcached whose replies are the measure.
OLDEST_VERSION = (1, 6, 45)
# How long a reply may take.
REPLY_TIMEOUT_S = 3.0
# A command sent after each one: its reply shows that the reply before it is complete.
FENCE_REQUEST = b"md no-such-key Ofence\r\n"
FENCE_REPLY = b"NF Ofence\r\n"

# The number of a command, our reply and the reply of memcached.
ReplyDifference = tuple[int, bytes | None, bytes | None]


class RequestConnection:
    """A connection on which each command has its reply before the next is sent."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), REPLY_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send_request(self, command: bytes) -> bytes | None:
        """All that is sent in reply to one command; `None` once the connection is closed."""
        try:
            self.socket.sendall(command + FENCE_REQUEST)
            reply = b""
            while not reply.endswith(FENCE_REPLY):
                chunk = self.socket.recv(1 << 16)
                if not chunk:
                    return reply or None
                reply += chunk
        except TimeoutError:
            return reply + b"(no more)"
        except OSError:
            return None
        return reply.removesuffix(FENCE_REPLY)


class BinaryRequestConnection(RequestConnection):
    """The same in the binary protocol."""

    def send_request(self, command: bytes) -> bytes | None:
        """All that is sent in reply to one command, uniques made common; `None` once it is closed."""
        try:
            self.socket.sendall(
                command + packets.request(packets.NOOP, opaque=packets.FENCE_OPAQUE)
            )
            received, lines = b"", []
            while True:
                while (packet_and_length := packets.parse_first_packet(received)) is not None:
                    packet, length = packet_and_length
                    received = received[length:]
                    if packet.opaque == packets.FENCE_OPAQUE:
                        return b"\n".join(lines)
                    normalised_unique = self.unique_order.setdefault(
                        packet.cas, len(self.unique_order)
                    )
                    lines.append(repr(dataclasses.replace(packet, cas=normalised_unique)).encode())
                chunk = self.socket.recv(1 << 16)
                if not chunk:
                    return b"\n".join([*lines, b"(closed)"])
                received += chunk
        except TimeoutError:
            return received + b"(no more)"
        except OSError:
            return b"(closed)"

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.unique_order: dict[int, int] = {0: 0}


class ReplyNormaliser:
    """Replaces numbers that servers count for themselves by the order in which they appear."""

    def __init__(self) -> None:
        self.unique_order: dict[bytes, int] = {}

    def _replace_by_order(self, match: re.Match[bytes]) -> bytes:
        unique = match.group(2)
        return match.group(1) + b"#%d" % self.unique_order.setdefault(
            unique, len(self.unique_order)
        )

    def normalise_uniques(self, reply: bytes | None, command: bytes) -> bytes | None:
        """The reply with its own numbers made common."""
        if reply is None:
            return None
        if command.startswith((b"gets", b"gats")):
            return re.sub(rb"(VALUE \S+ \d+ \d+ )(\d+)", self._replace_by_order, reply)
        if command.startswith(b"m"):
            first_line, line_end, later_lines = reply.partition(b"\r\n")
            first_line = re.sub(rb"( c| cas=)(\d+)", self._replace_by_order, first_line)
            # A second may pass between the replies of the two servers.
            first_line = re.sub(
                rb"( t|exp=)(\d{2,})",
                lambda match: match[1] + b"%d" % ((int(match[2]) + 2) // 5),
                first_line,
            )
            return first_line + line_end + later_lines
        return reply


def are_errors_of_one_line(command: bytes, ours: bytes | None, theirs: bytes | None) -> bool:
    """Of several errors on one meta line the servers may name different ones."""
    return command.startswith(b"m") and all(
        reply is not None and reply.startswith(b"CLIENT_ERROR") and reply.count(b"\n") == 1
        for reply in (ours, theirs)
    )


def run_binary_conversation(
    commands: list[bytes], servers: tuple[Server, Server]
) -> ReplyDifference | None:
    """As `run_text_conversation`, in the binary protocol."""
    connections = [BinaryRequestConnection(server) for server in servers]
    try:
        for connection in connections:
            connection.send_request(
                packets.request(packets.FLUSH) + packets.request(packets.STAT, b"detail off")
            )
        for number, command in enumerate(commands):
            ours, theirs = (connection.send_request(command) for connection in connections)
            if ours != theirs:
                return number, ours, theirs
            if ours is not None and ours.endswith(b"(closed)"):
                return None
        return None
    finally:
        for connection in connections:
            connection.socket.close()


def run_text_conversation(
    commands: list[bytes], servers: tuple[Server, Server]
) -> ReplyDifference | None:
    """The first command whose replies differ, with both replies; `None` when none is."""
    connections = [RequestConnection(server) for server in servers]
    normalisers = (ReplyNormaliser(), ReplyNormaliser())
    try:
        for connection in connections:
            connection.send_request(b"flush_all\r\n")
            for reset_command in (b"lru mode segmented", b"verbosity 0", b"stats detail off"):
                connection.send_request(reset_command + b"\r\n")
        for number, command in enumerate(commands):
            ours, theirs = (
                normaliser.normalise_uniques(connection.send_request(command), command)
                for connection, normaliser in zip(connections, normalisers, strict=True)
            )
            if ours != theirs and not are_errors_of_one_line(command, ours, theirs):
                return number, ours, theirs
            if ours is None:
                return None
        return None
    finally:
        for connection in connections:
            connection.socket.close()


# The two protocols: what makes a conversation, what runs it, how many commands it has.
PROTOCOLS = {
    "text": (
        conversations.random_conversation,
        run_text_conversation,
        conversations.COMMANDS_PER_CONVERSATION,
    ),
    "binary": (
        packets.random_conversation,
        run_binary_conversation,
        packets.WRITES_PER_CONVERSATION,
    ),
}
# memcached pads a number that shrinks only if nothing refers to the item; its LRU thread does, for a while.
PEER_OPTIONS = {"text": (), "binary": ("-o", "no_lru_maintainer")}
RunConversation = Callable[[list[bytes], tuple[Server, Server]], ReplyDifference | None]


def minimise(
    commands: list[bytes], servers: tuple[Server, Server], run_conversation: RunConversation
) -> list[bytes]:
    """Leaves out one command after another as long as the servers still differ."""
    index = 0
    while index < len(commands):
        shorter_commands = commands[:index] + commands[index + 1 :]
        if run_conversation(shorter_commands, servers) is not None:
            commands = shorter_commands
        else:
            index += 1
    return commands


def is_unsupported_version(program: str) -> bool:
    """Whether a memcached is older than the one whose replies are the measure."""
    output = subprocess.run(
        [*program.split(), "-V"], capture_output=True, text=True, check=False
    ).stdout
    numbers = [int(number) for number in re.findall(r"[0-9]+", output)[:3]]
    return numbers < list(OLDEST_VERSION)


def main() -> int:
    """Prints each kind of difference once; returns 0 when there was none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    parser.add_argument("--memcached", default="memcached", help="the peer, 1.6.45 or newer")
    parser.add_argument("--rounds", type=int, default=2000, help="conversations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", choices=PROTOCOLS, default="text")
    parser.add_argument("--differences", type=int, default=10, help="stop after so many")
    args = parser.parse_args()
    if is_unsupported_version(args.memcached):
        parser.error(
            f"{args.memcached} is older than {'.'.join(map(str, OLDEST_VERSION))}, whose replies are ours"
        )
    servers = (
        Server(args.server.split(), ("-m", "64")),
        Server(args.memcached.split(), ("-m", "64", *PEER_OPTIONS[args.protocol])),
    )
    random_conversation, run_conversation, commands_per_conversation = PROTOCOLS[args.protocol]
    difference_count = 0
    for number in range(args.rounds):
        rng = random.Random(args.seed * 1_000_003 + number)
        commands = random_conversation(rng)
        if run_conversation(commands, servers) is None:
            continue
        difference_count += 1
        minimal_commands = minimise(commands, servers, run_conversation)
        difference = run_conversation(minimal_commands, servers)
        print(f"conversation {number}:")
        for command in minimal_commands:
            print(f"   {command!r}")
        if difference:
            _, ours, theirs = difference
            print(f"   ours   {ours!r}\n   theirs {theirs!r}")
        if difference_count >= args.differences:
            break
    print(
        f"{number + 1} conversations of {commands_per_conversation} commands, {difference_count} differ"
    )
    for server in servers:
        server.kill()
    return 1 if difference_count else 0


if __name__ == "__main__":
    sys.exit(main())
