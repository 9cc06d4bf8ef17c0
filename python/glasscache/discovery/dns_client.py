"""Questions to a name server (RFC 1035, RFC 2782); the standard library knows addresses only."""

from __future__ import annotations

import secrets
import socket
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple


class DiscoveryError(Exception):
    """The source returned no servers; the message names it and the reason."""


_TYPE_A: Final = 1
_TYPE_AAAA: Final = 28
_TYPE_SRV: Final = 33
_CLASS_INTERNET: Final = 1
_FLAG_TRUNCATED: Final = 0x0200
_FLAG_RECURSION_DESIRED: Final = 0x0100
_POINTER_BITS: Final = 0xC0
_POINTERS_MAX: Final = 64
_DNS_PORT: Final = 53


class SrvRecord(NamedTuple):
    """An SRV record."""

    priority: int
    weight: int
    port: int
    target: str


def query_addresses(name: str, nameserver: str | None, timeout: float) -> list[str]:
    """Return the IPv4 and IPv6 addresses of a name."""
    replies_by_type = {
        _TYPE_A: (socket.AF_INET, _query_records(name, _TYPE_A, nameserver, timeout)),
        _TYPE_AAAA: (socket.AF_INET6, _query_records(name, _TYPE_AAAA, nameserver, timeout)),
    }
    return [
        socket.inet_ntop(family, reply[data_start:data_end])
        for family, (reply, record_ranges) in replies_by_type.values()
        for data_start, data_end in record_ranges
    ]


def query_services(name: str, nameserver: str | None, timeout: float) -> list[SrvRecord]:
    """Return the SRV records of a name."""
    reply, record_ranges = _query_records(name, _TYPE_SRV, nameserver, timeout)
    return [
        SrvRecord(priority, weight, port, _read_name(reply, data_start + 6)[0])
        for data_start, _ in record_ranges
        for priority, weight, port in [struct.unpack_from(">HHH", reply, data_start)]
    ]


def _first_nameserver() -> str:
    for line in Path("/etc/resolv.conf").read_text().splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            return words[1]
    raise DiscoveryError("no nameserver in /etc/resolv.conf")


def _query_records(
    name: str, record_type: int, nameserver: str | None, timeout: float
) -> tuple[bytes, list[tuple[int, int]]]:
    """Query the records of one kind; return the reply, and where the data of each begin and end."""
    host, port = nameserver or _first_nameserver(), _DNS_PORT
    if host.count(":") == 1:
        host, _, port_text = host.partition(":")
        port = int(port_text)
    query = _build_query(name, record_type)
    reply = _query_udp(query, (host, port), timeout)
    if struct.unpack_from(">H", reply, 2)[0] & _FLAG_TRUNCATED:
        reply = _query_tcp(query, (host, port), timeout)
    return reply, _find_records(reply, record_type, name)


def _build_query(name: str, record_type: int) -> bytes:
    labels = b"".join(
        bytes([len(label)]) + label for label in name.rstrip(".").encode("idna").split(b".")
    )
    return (
        struct.pack(">HHHHHH", secrets.randbits(16), _FLAG_RECURSION_DESIRED, 1, 0, 0, 0)
        + labels
        + struct.pack(">xHH", record_type, _CLASS_INTERNET)
    )


def _query_udp(query: bytes, address: tuple[str, int], timeout: float) -> bytes:
    """Send the query, and once more after `timeout` seconds without its reply; return the reply."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as connection:
        connection.connect(address)
        for _ in range(2):
            connection.send(query)
            ends_at = time.monotonic() + timeout
            while (remaining_s := ends_at - time.monotonic()) > 0:
                connection.settimeout(remaining_s)
                try:
                    reply = connection.recv(65536)
                except TimeoutError:
                    break
                # The query is repeated in its reply, else the reply is to another.
                if (
                    len(reply) >= len(query)
                    and reply[:2] == query[:2]
                    and reply[12 : len(query)] == query[12:]
                ):
                    return reply
    raise TimeoutError(f"no reply from name server {address[0]}")


def _query_tcp(query: bytes, address: tuple[str, int], timeout: float) -> bytes:
    with (
        socket.create_connection(address, timeout) as connection,
        connection.makefile("rb") as replies,
    ):
        connection.sendall(struct.pack(">H", len(query)) + query)
        (reply_length,) = struct.unpack(">H", replies.read(2))
        reply: bytes = replies.read(reply_length)
    if len(reply) != reply_length or reply[:2] != query[:2]:
        raise DiscoveryError("the name server's reply is truncated or to another query")
    return reply


def _find_records(reply: bytes, wanted_type: int, name: str) -> list[tuple[int, int]]:
    _, flags, query_count, answer_count, _, _ = struct.unpack_from(">HHHHHH", reply)
    if flags & 0xF:
        raise DiscoveryError(f"name server: {name} has no such record (code {flags & 0xF})")
    offset = 12
    for _ in range(query_count):
        offset = _read_name(reply, offset)[1] + 4
    record_ranges: list[tuple[int, int]] = []
    for _ in range(answer_count):
        offset = _read_name(reply, offset)[1]
        record_type, _, _, data_length = struct.unpack_from(">HHIH", reply, offset)
        offset += 10
        if record_type == wanted_type:
            record_ranges.append((offset, offset + data_length))
        offset += data_length
    return record_ranges


def _read_name(reply: bytes, offset: int) -> tuple[str, int]:
    """Return the name that begins at `offset`, and where what follows it begins."""
    labels: list[str] = []
    name_end: int | None = None
    for _ in range(_POINTERS_MAX):
        if offset >= len(reply):
            break
        label_length = reply[offset]
        if label_length == 0:
            return ".".join(labels), name_end if name_end is not None else offset + 1
        if label_length >= _POINTER_BITS:
            name_end = offset + 2 if name_end is None else name_end
            offset = struct.unpack_from(">H", reply, offset)[0] & 0x3FFF
            continue
        labels.append(reply[offset + 1 : offset + 1 + label_length].decode("ascii"))
        offset += 1 + label_length
    raise DiscoveryError("a name in the name server's reply does not end")
