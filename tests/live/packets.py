"""Packets of the binary protocol, made and read by hand, and random conversations in it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

HEADER = struct.Struct(">BBHBBHIIQ")
REQUEST, RESPONSE = 0x80, 0x81
GET, SET, ADD, REPLACE, DELETE, INCR, DECR, QUIT, FLUSH, GETQ, NOOP, VERSION = range(12)
GETK, GETKQ, APPEND, PREPEND, STAT = range(0x0C, 0x11)
SETQ, ADDQ, REPLACEQ, DELETEQ, INCRQ, DECRQ, QUITQ, FLUSHQ, APPENDQ, PREPENDQ = range(0x11, 0x1B)
TOUCH, GAT, GATQ = range(0x1C, 0x1F)
SASL_LIST, SASL_AUTH, SASL_STEP, GATK, GATKQ = range(0x20, 0x25)
# The opaque of the noop that ends each write; no conversation uses it.
FENCE_OPAQUE = 0xFEEDFACE


@dataclass
class Packet:
    """A packet that was received."""

    opcode: int
    status: int
    opaque: int
    cas: int
    extras: bytes
    key: bytes
    value: bytes


def request(
    opcode: int,
    key: bytes = b"",
    value: bytes = b"",
    extras: bytes = b"",
    opaque: int = 0,
    cas: int = 0,
    lengths: tuple[int, int, int] | None = None,
) -> bytes:
    """A request; `lengths` of key, extras and body replace the true ones."""
    key_bytes, extras_bytes, body_bytes = lengths or (
        len(key),
        len(extras),
        len(key) + len(extras) + len(value),
    )
    header = HEADER.pack(REQUEST, opcode, key_bytes, extras_bytes, 0, 0, body_bytes, opaque, cas)
    return header + extras + key + value


def parse_first_packet(received: bytes) -> tuple[Packet, int] | None:
    """The first received packet and its length, or None while it is not complete."""
    if len(received) < HEADER.size:
        return None
    magic, opcode, key_bytes, extras_bytes, _, status, body_bytes, opaque, cas = HEADER.unpack(
        received[: HEADER.size]
    )
    if magic != RESPONSE:
        raise ValueError(f"not a response: {received[:40]!r}")
    end = HEADER.size + body_bytes
    if len(received) < end:
        return None
    key_start = HEADER.size + extras_bytes
    value_start = key_start + key_bytes
    extras, key = received[HEADER.size : key_start], received[key_start:value_start]
    return Packet(opcode, status, opaque, cas, extras, key, received[value_start:end]), end


KEYS = [b"a", b"b", b"key", b"k" * 250, b"n1", b"n2", b"a b", b"\r\n", b"\xc3\xa9\x00"]
VALUES = [b"", b"5", b"10", b"99", b"18446744073709551615", b"abc", b"x" * 300, b"12  ", b"-3"]
EXPTIMES = [0, 0, 0, 1000, 2592000, 1000000000, 4000000000, 0xFFFFFFFF]
NUMBERS = [0, 1, 7, 10, 2**33, 2**64 - 1]
CLIENT_FLAGS = [0, 1, 65535, 0xFFFFFFFF]
WRITES_PER_CONVERSATION = 12


def random_conversation(rng: random.Random) -> list[bytes]:
    """One conversation: each write is one to five packets, the last perhaps malformed."""
    return [packets_sent_together(rng) for _ in range(WRITES_PER_CONVERSATION)]


def packets_sent_together(rng: random.Random) -> bytes:
    """One to five packets sent together.

    Arithmetic comes alone: memcached pads a number that shrinks only if no response still refers to the item.
    """
    requests = [random_packet(rng) for _ in range(rng.choice((1, 1, 2, 5)))]
    arithmetic = [
        packet_bytes for packet_bytes in requests if packet_bytes[1] in (INCR, INCRQ, DECR, DECRQ)
    ]
    return arithmetic[0] if arithmetic else b"".join(requests)


def random_packet(rng: random.Random) -> bytes:
    """One request."""
    makers = [
        random_read,
        random_read,
        random_read,
        random_store,
        random_store,
        random_store,
        random_delete_or_arithmetic,
        random_delete_or_arithmetic,
        random_admin_or_unknown,
    ]
    return rng.choice(makers)(rng) if rng.random() > 0.01 else random_malformed(rng)


def pick_key(rng: random.Random) -> bytes:
    return rng.choice(KEYS[: rng.choice((3, len(KEYS)))])


def random_read(rng: random.Random) -> bytes:
    """get, gat and touch, all forms."""
    opcode = rng.choice([GET, GETQ, GETK, GETKQ, GAT, GATQ, GATK, GATKQ, TOUCH])
    has_exptime = opcode in (GAT, GATQ, GATK, GATKQ, TOUCH)
    extras = struct.pack(">I", rng.choice(EXPTIMES)) if has_exptime else b""
    return request(opcode, pick_key(rng), b"", extras, rng.randrange(1000))


def random_store(rng: random.Random) -> bytes:
    """set, add, replace, append, prepend, all forms, sometimes with a unique that no item has."""
    opcode = rng.choice(
        [SET, SET, SET, ADD, REPLACE, SETQ, ADDQ, REPLACEQ, APPEND, PREPEND, APPENDQ, PREPENDQ]
    )
    has_no_extras = opcode in (APPEND, PREPEND, APPENDQ, PREPENDQ)
    extras = (
        b"" if has_no_extras else struct.pack(">II", rng.choice(CLIENT_FLAGS), rng.choice(EXPTIMES))
    )
    cas = 2**60 if rng.random() < 0.1 else 0
    return request(opcode, pick_key(rng), rng.choice(VALUES), extras, rng.randrange(1000), cas)


def random_delete_or_arithmetic(rng: random.Random) -> bytes:
    """delete, increment and decrement, all forms."""
    opcode = rng.choice([DELETE, DELETEQ, INCR, INCRQ, DECR, DECRQ])
    is_delete = opcode in (DELETE, DELETEQ)
    numbers = (rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(EXPTIMES))
    extras = b"" if is_delete else struct.pack(">QQI", *numbers)
    cas = 2**60 if rng.random() < 0.1 else 0
    return request(opcode, pick_key(rng), b"", extras, rng.randrange(1000), cas)


def random_admin_or_unknown(rng: random.Random) -> bytes:
    """What concerns no item, and opcodes that are not known."""
    return rng.choice(
        [
            request(NOOP, opaque=7),
            request(FLUSH),
            request(FLUSHQ),
            request(FLUSH, extras=struct.pack(">I", 0)),
            request(FLUSHQ, extras=struct.pack(">I", 3000)),
            request(STAT, b"bogus"),
            request(STAT, b"detail on"),
            request(STAT, b"detail off"),
            request(STAT, b"detail sideways"),
            request(STAT, b"sizes"),
            request(SASL_LIST),
            request(SASL_AUTH, b"PLAIN", b"\0user\0password"),
            request(SASL_STEP, b"PLAIN", b"\0user\0password"),
            request(0x1B),
            request(0x30, value=b"abc"),
            request(0xFF),
        ]
    )


def random_malformed(rng: random.Random) -> bytes:
    """A request whose lengths its opcode does not allow; whole, so that memcached does not wait for more."""
    return rng.choice(
        [
            request(GET),
            request(GETKQ, b"k" * 251),
            request(SET, b"a", b"value"),
            request(SET, b"", b"value", bytes(8)),
            request(INCR, b"a", b"", bytes(16)),
            request(NOOP, b"a"),
            request(VERSION, value=b"x"),
            request(DELETE, b"a", b"x"),
            request(QUIT, b"a"),
            request(GET, b"abc", lengths=(3, 0, 2)),
            request(SET, b"a", b"", bytes(8), lengths=(1, 8, 0xFFFFFFFF)),
            request(TOUCH, b"a"),
            request(FLUSH, extras=bytes(8)),
        ]
    )
