"""Bytes of other protocols, random bytes and mutated commands: never a crash, never another key's value."""

from __future__ import annotations

import random
import socket

from harness import RequirementFailed, Server, case, require

RANDOM_SEED = 20


@case()
def ten_thousand_unknown_commands(server: Server) -> None:
    """Each has its error."""
    with server.connect(30) as connection:
        connection.send(b"nonsense here\r\n" * 10_000 + b"mn\r\n")
        for number in range(10_000):
            line = connection.read_line()
            require(line == b"ERROR", f"reply {number} is {line!r}")
        require(connection.read_line() == b"MN", "out of step")


@case()
def random_bytes(server: Server) -> None:
    """2.5 MB of random bytes, over many connections: the server lives."""
    rng = random.Random(RANDOM_SEED)
    for _ in range(50):
        with server.connect(0.2) as connection:
            try:
                connection.send(rng.randbytes(50_000))
                connection.read_rest(0.05)
            except (ConnectionError, TimeoutError):
                pass
    require(server.is_alive(), "the server is gone")


VALID_COMMANDS = [
    b"get a b c\r\n",
    b"gets a\r\n",
    b"set a 0 0 3\r\nabc\r\n",
    b"cas a 0 0 3 1\r\nabc\r\n",
    b"append a 0 0 1\r\nx\r\n",
    b"incr n 1\r\n",
    b"decr n 18446744073709551615\r\n",
    b"touch a 10\r\n",
    b"gat 10 a b\r\n",
    b"mg a s v t f c k Oabc q\r\n",
    b"ms a 3 T10 F5 I Mset\r\nabc\r\n",
    b"md a q I T30\r\n",
    b"ma n N0 J10 D3 v t c\r\n",
    b"me a\r\n",
    b"mn\r\n",
    b"stats settings\r\n",
    b"lru_crawler metadump all\r\n",
    b"flush_all 0\r\n",
    b"cache_memlimit 64\r\n",
    b"verbosity 1\r\n",
    b"slabs reassign 1 2\r\n",
    b"lru mode flat\r\n",
]


def mutate(rng: random.Random, command: bytes) -> bytes:
    """Changes, drops, doubles or inserts a few bytes."""
    data = bytearray(command)
    for _ in range(rng.randint(1, 4)):
        index = rng.randrange(len(data) + 1)
        choice = rng.randrange(4)
        if choice == 0 and index < len(data):
            data[index] = rng.randrange(256)
        elif choice == 1 and index < len(data):
            del data[index]
        elif choice == 2:
            data[index:index] = rng.choice(
                [b" ", b"\r\n", b"0", b"-1", b"999999999999999999999", b"\x00", b"noreply"]
            )
        else:
            data[index:index] = data[: rng.randrange(8)]
    return bytes(data)


@case()
def mutated_commands(server: Server) -> None:
    """6000 commands with a few bytes changed: the server lives and its memory stays."""
    rng = random.Random(RANDOM_SEED)
    resident_mb_before = server.resident_mb()
    for _ in range(300):
        with server.connect(0.2) as connection:
            try:
                connection.send(
                    b"".join(mutate(rng, rng.choice(VALID_COMMANDS)) for _ in range(20))
                )
                connection.read_rest(0.02)
            except (ConnectionError, TimeoutError):
                pass
    require(server.is_alive(), "the server is gone")
    require(server.resident_mb() - resident_mb_before < 32, "memory grew")


def send_other_protocol(server: Server, data: bytes) -> None:
    """Another protocol gets ERROR lines, or is closed; the server lives."""
    with server.connect() as connection:
        connection.send(data)
        reply = connection.read_rest(0.5)
    lines = [line for line in reply.split(b"\r\n") if line]
    require(
        all(line.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")) for line in lines),
        f"reply {reply[:80]!r}",
    )
    require(server.is_alive(), "the server is gone")


@case()
def tls_hello(server: Server) -> None:
    """The first bytes of a TLS client."""
    send_other_protocol(
        server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(32)) + b"\n"
    )


@case()
def ssh_banner(server: Server) -> None:
    """The banner of an SSH client."""
    send_other_protocol(server, b"SSH-2.0-OpenSSH_9.2p1\r\n")


@case()
def redis_command(server: Server) -> None:
    """A RESP array."""
    send_other_protocol(server, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n")


@case()
def http_request_with_commands_in_its_body(server: Server) -> None:
    """Closed at the first line, so that a browser cannot be made to speak memcached."""
    with server.connect() as connection:
        body = b"set from_http 0 0 3\r\nbad\r\n"
        connection.send(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        require(connection.is_closed(), "still open")
    with server.connect() as connection:
        require(connection.get(b"from_http") is None, "the body ran")


@case()
def udp_is_silent(server: Server) -> None:
    """A datagram to the port never has a reply."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram_socket:
        datagram_socket.settimeout(0.5)
        datagram_socket.sendto(
            b"\x00\x00\x00\x00\x00\x01\x00\x00stats\r\n", ("127.0.0.1", server.port)
        )
        try:
            data, _ = datagram_socket.recvfrom(1 << 16)
        except (TimeoutError, ConnectionError):
            return
        raise RequirementFailed(f"UDP: reply {data[:40]!r}")


INVALID_ADMIN_COMMANDS = [
    "shutdown", "shutdown now please", "stats " + "x" * 200, "stats \x7f", "stats maps",
    "stats detail", "stats detail sideways", "stats cachedump", "stats cachedump -1 -1",
    "stats cachedump 99999999999 1", "stats reset reset", "stats conns conns", "stats sizes x",
    "slabs", "slabs reassign", "slabs reassign -1 99999999999999999999", "slabs reassign a b",
    "slabs automove", "slabs automove 9999999", "slabs automove window -1", "lru", "lru mode",
    "lru mode x", "lru tune", "lru tune a b c d", "lru temp_ttl", "lru temp_ttl -99999999999",
    "lru_crawler", "lru_crawler crawl", "lru_crawler crawl -1", "lru_crawler crawl x,y",
    "lru_crawler sleep -1", "lru_crawler tocrawl 99999999999", "lru_crawler metadump",
    "lru_crawler mgdump x", "watch nonsense", "cache_memlimit", "cache_memlimit -1",
    "cache_memlimit 99999999999999", "cache_memlimit abc", "flush_all abc",
    "flush_all 99999999999999999999", "verbosity", "verbosity abc def ghi", "refresh_certs",
    "version x", "debugtime", "me", "me " + "k" * 300,
]  # fmt: skip


@case()
def invalid_arguments_of_admin_commands(server: Server) -> None:
    """Missing and senseless arguments to stats, slabs, lru, lru_crawler, watch and the like have a reply."""
    for command in INVALID_ADMIN_COMMANDS:
        with server.connect() as connection:
            connection.send(command.encode() + b"\r\n")
            require(connection.read_line() != b"", f"{command!r} has no reply")
    require(server.is_alive(), "the server is gone")
