"""Hostile packets of the binary protocol: false lengths, unknown opcodes, readers that never read."""

from __future__ import annotations

import contextlib
import random
import struct

import packets
from harness import Server, ServerConnection, case, require

RANDOM_SEED = 21


def read_responses_until_close(connection: ServerConnection) -> list[packets.Packet]:
    """The responses received until the server closes."""
    received, received_packets = connection.read_rest(2.0), []
    while (packet_and_length := packets.parse_first_packet(received)) is not None:
        packet, length = packet_and_length
        received_packets.append(packet)
        received = received[length:]
    require(not received, f"a response is cut: {received[:40]!r}")
    return received_packets


def require_refused(server: Server, data: bytes, status: int) -> None:
    """One response with this status, then the close, without more input."""
    with server.connect() as connection:
        connection.send(data)
        replies = read_responses_until_close(connection)
        require([packet.status for packet in replies] == [status], f"{data[:30]!r}: {replies}")
        require(connection.is_closed(), f"{data[:30]!r}: still open")


@case()
def binary_lengths_that_contradict_each_other(server: Server) -> None:
    """Status 129 and close, by the header alone."""
    for opcode in range(0x25):
        for lengths in ((9, 0, 8), (0, 9, 8), (0xFFFF, 0xFF, 0xFF), (1, 0xFF, 0xFF)):
            require_refused(server, packets.request(opcode, lengths=lengths), 0x81)


@case()
def binary_keys_and_bodies_beyond_their_limits(server: Server) -> None:
    """Status 4 and close, by the header alone: a negative length, a 4 GB set, a key of 64 KB."""
    for opcode in (packets.GET, packets.SET, packets.APPEND, packets.STAT):
        for lengths in (
            (251, 0, 251),
            (0xFFFF, 0, 0xFFFF),
            (1, 8, 0xFFFFFFFF),
            (1, 8, 0x80000000),
            (1, 8, 0x7FFFFFFF),
        ):
            require_refused(server, packets.request(opcode, lengths=lengths), 4)


@case()
def binary_extras_that_no_opcode_has(server: Server) -> None:
    """Status 4 and close, whether the extras came or not."""
    for opcode in (packets.GET, packets.SET, packets.INCR, packets.TOUCH, packets.FLUSH):
        for extras in (1, 5, 9, 21, 255):
            require_refused(server, packets.request(opcode, b"a", b"", bytes(extras)), 4)


@case()
def binary_unknown_opcodes(server: Server) -> None:
    """Each is refused, its body skipped, and the next request served."""
    with server.connect(10) as connection:
        unknown_opcodes = [opcode for opcode in range(256) if opcode > packets.GATKQ]
        body = packets.request(packets.FLUSH)
        requests = b"".join(packets.request(opcode, value=body) for opcode in unknown_opcodes)
        connection.send(requests + packets.request(packets.QUIT))
        replies = read_responses_until_close(connection)
    require(
        [packet.opcode for packet in replies] == [*unknown_opcodes, packets.QUIT], "not one each"
    )
    require(all(packet.status == 0x81 for packet in replies[:-1]), "another status")


@case()
def binary_value_that_is_not_a_request(server: Server) -> None:
    """The value of a refused set is never executed."""
    with server.connect(10) as connection:
        connection.send(packets.request(packets.SET, b"kept", b"v", bytes(8)))
        flushes = packets.request(packets.FLUSH) * 50_000
        connection.send(packets.request(packets.SET, b"large", flushes, bytes(8)))
        connection.send(packets.request(packets.GET, b"kept") + packets.request(packets.QUIT))
        replies = read_responses_until_close(connection)
    require([packet.status for packet in replies] == [0, 3, 0, 0], f"{replies}")


@case()
def binary_reader_that_never_reads(server: Server) -> None:
    """70,000 quiet gets of a 10 KB value: the server waits, and its memory stays."""
    resident_mb_before = server.resident_mb()
    with server.connect(5) as connection:
        connection.send(packets.request(packets.SETQ, b"b" * 200, b"v" * 10_000, bytes(8)))
        with contextlib.suppress(TimeoutError):
            connection.send(packets.request(packets.GETKQ, b"b" * 200) * 70_000)
        require(server.is_alive(), "the server is gone")
        require(server.resident_mb() - resident_mb_before < 32, "memory grew")


@case()
def binary_random_packets(server: Server) -> None:
    """3000 packets with a few bytes changed, and random bodies behind a right magic: the server lives."""
    rng = random.Random(RANDOM_SEED)
    resident_mb_before = server.resident_mb()
    for _ in range(150):
        requests = bytearray(b"".join(packets.random_packet(rng) for _ in range(20)))
        for _ in range(rng.randint(0, 6)):
            requests[rng.randrange(len(requests))] = rng.randrange(256)
        header = struct.pack(">BB", packets.REQUEST, rng.randrange(256))
        with server.connect(0.2) as connection:
            try:
                connection.send(bytes(requests) + header + rng.randbytes(200))
                connection.read_rest(0.02)
            except (ConnectionError, TimeoutError):
                pass
    require(server.is_alive(), "the server is gone")
    require(server.resident_mb() - resident_mb_before < 32, "memory grew")
