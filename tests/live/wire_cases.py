"""Hostile bytes: keys, lengths, lines and foreign protocols. Each must be answered in step, or closed."""

from __future__ import annotations

import random
import socket

from harness import Failed, Server, Wire, case, demand

OVERLONG = 8 << 20
# What an endless line may make the server take before it closes, beyond kernel buffers.
RANDOM_SEED = 20


@case()
def key_of_250_bytes_works(server: Server) -> None:
    """The longest key is stored and found."""
    with server.connect() as wire:
        key = b"k" * 250
        demand(wire.set(key, b"v") == b"STORED", "not stored")
        demand(wire.get(key) == b"v", "not found")


@case()
def key_of_251_bytes_is_refused(server: Server) -> None:
    """One byte more is the client's error, for writes and reads, and the stream stays in step."""
    with server.connect() as wire:
        key = b"k" * 251
        for request in (
            b"set %s 0 0 1\r\nv\r\n",
            b"delete %s\r\n",
            b"incr %s 1\r\n",
            b"touch %s 0\r\n",
            b"mg %s v\r\n",
        ):
            reply = wire.ask(request % key)
            demand(reply.startswith(b"CLIENT_ERROR"), f"{request[:6]!r} answered {reply!r}")
        reply = wire.ask(b"get %s\r\n" % key)
        demand(reply.startswith(b"CLIENT_ERROR"), f"get answered {reply!r}")
        wire.send(b"mn\r\n")
        line = wire.line()
        demand(line in (b"MN", b""), f"after the error came {line!r}")
        demand(line == b"MN" or wire.line() == b"MN", "out of step")


@case()
def any_byte_but_space_and_control_in_keys(server: Server) -> None:
    """8-bit bytes are stored and returned as they are."""
    with server.connect() as wire:
        key = bytes(byte for byte in range(0x80, 0x100))
        demand(wire.set(key, b"high") == b"STORED", "not stored")
        demand(wire.get(key) == b"high", "not found")


@case()
def control_bytes_in_keys(server: Server) -> None:
    """Control bytes are a key like any other, or the client's error; never another key."""
    with server.connect() as wire:
        reply = wire.set(b"a\x01\x02b", b"control")
        demand(reply == b"STORED" or reply.startswith(b"CLIENT_ERROR"), f"set answered {reply!r}")
        if reply == b"STORED":
            demand(wire.get(b"a\x01\x02b") == b"control", "not found")
        demand(wire.in_step(), "out of step")


@case()
def tabs_do_not_separate(server: Server) -> None:
    """`get<tab>key` is an unknown command."""
    with server.connect() as wire:
        demand(wire.ask(b"get\tkey\r\n") == b"ERROR", "a tab was taken for a space")
        demand(wire.in_step(), "out of step")


@case()
def leading_spaces(server: Server) -> None:
    """A line that begins with spaces is answered once."""
    with server.connect() as wire:
        reply = wire.ask(b"   get key\r\n")
        demand(reply in (b"ERROR", b"END"), f"answered {reply!r}")
        demand(wire.in_step(), "out of step")


@case()
def only_spaces(server: Server) -> None:
    """A line of spaces is an error."""
    with server.connect() as wire:
        demand(wire.ask(b"     \r\n") == b"ERROR", "no ERROR")
        demand(wire.in_step(), "out of step")


@case()
def empty_line(server: Server) -> None:
    """An empty line is an error, also with a bare LF."""
    with server.connect() as wire:
        for line in (b"\r\n", b"\n"):
            reply = wire.ask(line)
            demand(reply.startswith((b"ERROR", b"CLIENT_ERROR")), f"answered {reply!r}")
        demand(wire.in_step(), "out of step")


@case()
def bare_lf_ends_a_line(server: Server) -> None:
    """LF alone ends a command line."""
    with server.connect() as wire:
        demand(wire.ask(b"get nothing_here\n") == b"END", "no END")
        demand(wire.in_step(), "out of step")


@case()
def nul_bytes_in_a_line(server: Server) -> None:
    """NUL does not cut a line short."""
    with server.connect() as wire:
        wire.send(b"get a\x00b\r\nget c\r\nmn\r\n")
        lines = [wire.line() for _ in range(3)]
        demand(lines[-1] == b"MN", f"out of step: {lines!r}")


def refused_set(server: Server, head: bytes) -> None:
    """The payload of a refused set is swallowed, or the connection closed; it never runs."""
    payload = b"set smuggled 0 0 3\r\nbad\r\n"
    payload += b"#" * (40 - len(payload))
    with server.connect() as wire:
        wire.send(b"delete smuggled noreply\r\n" + head + payload + b"\r\nmn\r\n")
        reply = wire.line()
        demand(
            reply.startswith((b"CLIENT_ERROR", b"SERVER_ERROR", b"ERROR")), f"answered {reply!r}"
        )
        after = wire.line()
        demand(after in (b"MN", b""), f"after the refusal came {after!r}")
    with server.connect() as wire:
        demand(wire.get(b"smuggled") is None, "the payload ran as a command")


@case()
def refused_set_bad_flags(server: Server) -> None:
    """Flags that are no number."""
    refused_set(server, b"set k abc 0 40\r\n")


@case()
def refused_set_bad_exptime(server: Server) -> None:
    """An exptime that is no number."""
    refused_set(server, b"set k 0 abc 40\r\n")


@case()
def refused_set_long_key(server: Server) -> None:
    """A key that is too long."""
    refused_set(server, b"set " + b"k" * 251 + b" 0 0 40\r\n")


@case()
def refused_add_bad_flags(server: Server) -> None:
    """The same for `add`."""
    refused_set(server, b"add k -1x 0 40\r\n")


@case()
def refused_cas_bad_unique(server: Server) -> None:
    """A unique that is no number."""
    refused_set(server, b"cas k 0 0 40 zz\r\n")


@case()
def refused_ms_bad_flag(server: Server) -> None:
    """A meta set with a flag that does not exist."""
    refused_set(server, b"ms k 40 Tabc\r\n")


@case()
def refused_ms_long_key(server: Server) -> None:
    """A meta set with a key that is too long."""
    refused_set(server, b"ms " + b"k" * 251 + b" 40\r\n")


@case()
def lengths_out_of_range(server: Server) -> None:
    """Lengths beyond 2^31, 2^32, 2^63, 2^64, negative and text are refused without taking memory."""
    before = server.resident_mb()
    for length in (
        2**31 - 1,
        2**31,
        2**32 - 1,
        2**32,
        2**32 + 2,
        2**63,
        2**64,
        2**64 + 2,
        10**40,
        -1,
        -(2**31),
    ):
        for form in (
            b"set k 0 0 %d\r\n",
            b"ms k %d\r\n",
            b"append k 0 0 %d\r\n",
            b"cas k 0 0 %d 1\r\n",
        ):
            with server.connect(3) as wire:
                reply = wire.ask(form % length)
                demand(
                    reply.startswith((b"CLIENT_ERROR", b"SERVER_ERROR", b"ERROR")),
                    f"{form % length!r}: {reply!r}",
                )
    for text in (b"abc", b"1e3", b"0x10", b"", b"+-1", b"\xff"):
        with server.connect(3) as wire:
            reply = wire.ask(b"set k 0 0 " + text + b"\r\n")
            demand(reply.startswith((b"CLIENT_ERROR", b"ERROR")), f"length {text!r}: {reply!r}")
    demand(server.resident_mb() - before < 16, "the lengths took memory")


@case()
def value_over_the_limit(server: Server) -> None:
    """Too large: refused, swallowed, and the old value is gone."""
    with server.connect() as wire:
        demand(wire.set(b"large", b"old") == b"STORED", "not stored")
        reply = wire.set(b"large", b"x" * (2 << 20))
        demand(reply == b"SERVER_ERROR object too large for cache", f"answered {reply!r}")
        demand(wire.get(b"large") is None, "the old value is still there")
        demand(wire.in_step(), "out of step")


@case()
def meta_value_over_the_limit(server: Server) -> None:
    """The same for a meta set."""
    with server.connect() as wire:
        demand(wire.set(b"large", b"old") == b"STORED", "not stored")
        reply = wire.ask(b"ms large %d\r\n" % (2 << 20) + b"x" * (2 << 20) + b"\r\n")
        demand(reply == b"SERVER_ERROR object too large for cache", f"answered {reply!r}")
        demand(wire.get(b"large") is None, "the old value is still there")
        demand(wire.in_step(), "out of step")


@case()
def value_not_ended_by_crlf(server: Server) -> None:
    """A value longer than announced is a bad data chunk, and what follows is in step."""
    with server.connect() as wire:
        reply = wire.ask(b"set chunk 0 0 3\r\nabcdef\r\n")
        demand(reply == b"CLIENT_ERROR bad data chunk", f"answered {reply!r}")
        rest = wire.ask(b"mn\r\n")
        demand(rest == b"MN" or rest.startswith((b"ERROR", b"CLIENT_ERROR")), f"then came {rest!r}")
        demand(rest == b"MN" or wire.line() == b"MN", "out of step")
        demand(wire.get(b"chunk") is None, "the bad value was stored")


@case()
def large_value_not_ended_by_crlf(server: Server) -> None:
    """The same above half a megabyte, where memcached's debug build stops (its issue 1306)."""
    with server.connect() as wire:
        size = 700_000
        reply = wire.ask(b"set chunk 0 0 %d\r\n" % size + b"x" * size + b"yz")
        demand(reply == b"CLIENT_ERROR bad data chunk", f"answered {reply!r}")
    demand(server.is_alive(), "the server is gone")


@case("beyond")
def bad_chunk_with_noreply_is_silent(server: Server) -> None:
    """With noreply nothing comes back, or the connection closes."""
    with server.connect(3) as wire:
        wire.send(b"set chunk 0 0 3 noreply\r\nabcdef\r\nmn\r\n")
        line = wire.line()
        demand(line in (b"MN", b""), f"a stray {line!r} came back")


def endless_line(server: Server, start: bytes) -> str:
    """8 MB without LF: the server says so and closes, having kept little of it."""
    before = server.resident_mb()
    with server.connect() as wire:
        taken = 0
        try:
            wire.send(start)
            while taken < OVERLONG:
                wire.send(b"x" * 65536)
                taken += 65536
        except (ConnectionError, TimeoutError):
            pass
        demand(wire.is_closed(), f"still open after {taken} bytes")
    grown = server.resident_mb() - before
    demand(grown < 16, f"{grown:.0f} MB more resident")
    return f"closed; {taken >> 10} KB sent"


@case()
def endless_line_of_junk(server: Server) -> str:
    """No command at all."""
    return endless_line(server, b"")


@case()
def endless_line_set(server: Server) -> str:
    """A set whose key never ends."""
    return endless_line(server, b"set ")


@case()
def endless_line_mg(server: Server) -> str:
    """A meta get whose key never ends."""
    return endless_line(server, b"mg ")


@case()
def endless_line_gat(server: Server) -> str:
    """A gat whose exptime never ends."""
    return endless_line(server, b"gat ")


@case()
def endless_line_delete(server: Server) -> str:
    """A delete whose key never ends."""
    return endless_line(server, b"delete ")


@case("beyond", options=("-m", "64"))
def endless_get(server: Server) -> str:
    """200 MB of keys without LF: closed after at most 1 MB of keys, and no memory kept."""
    before = server.resident_mb()
    peak = before
    with server.connect() as wire:
        taken = 0
        try:
            wire.send(b"get ")
            while taken < 200 << 20:
                wire.send(b"abcdefg " * 32768)
                taken += 8 * 32768
                if taken % (8 << 20) == 0:
                    peak = max(peak, server.resident_mb())
        except (ConnectionError, TimeoutError):
            pass
        peak = max(peak, server.resident_mb())
        closed = wire.is_closed()
    demand(closed and taken < 32 << 20, f"took {taken >> 20} MB of one line")
    demand(peak - before < 24, f"{peak - before:.0f} MB more resident")
    return f"closed after {taken >> 10} KB, {peak - before:+.1f} MB"


@case()
def ten_thousand_unknown_commands(server: Server) -> None:
    """Each has its error."""
    with server.connect(30) as wire:
        wire.send(b"nonsense here\r\n" * 10_000 + b"mn\r\n")
        for number in range(10_000):
            line = wire.line()
            demand(line == b"ERROR", f"reply {number} is {line!r}")
        demand(wire.line() == b"MN", "out of step")


@case()
def random_bytes(server: Server) -> None:
    """2.5 MB of random bytes, over many connections: the server lives."""
    source = random.Random(RANDOM_SEED)
    for _ in range(50):
        with server.connect(0.2) as wire:
            try:
                wire.send(source.randbytes(50_000))
                wire.rest(0.05)
            except (ConnectionError, TimeoutError):
                pass
    demand(server.is_alive(), "the server is gone")


GOOD = [
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


def mutate(source: random.Random, command: bytes) -> bytes:
    """Changes, drops, doubles or inserts a few bytes."""
    data = bytearray(command)
    for _ in range(source.randint(1, 4)):
        place = source.randrange(len(data) + 1)
        choice = source.randrange(4)
        if choice == 0 and place < len(data):
            data[place] = source.randrange(256)
        elif choice == 1 and place < len(data):
            del data[place]
        elif choice == 2:
            data[place:place] = source.choice(
                [b" ", b"\r\n", b"0", b"-1", b"999999999999999999999", b"\x00", b"noreply"]
            )
        else:
            data[place:place] = data[: source.randrange(8)]
    return bytes(data)


@case()
def mutated_commands(server: Server) -> None:
    """6000 commands with a few bytes changed: the server lives and its memory stays."""
    source = random.Random(RANDOM_SEED)
    before = server.resident_mb()
    for _ in range(300):
        with server.connect(0.2) as wire:
            try:
                wire.send(b"".join(mutate(source, source.choice(GOOD)) for _ in range(20)))
                wire.rest(0.02)
            except (ConnectionError, TimeoutError):
                pass
    demand(server.is_alive(), "the server is gone")
    demand(server.resident_mb() - before < 32, "memory grew")


def foreign(server: Server, data: bytes) -> None:
    """Another protocol gets ERROR lines, or is closed; the server lives."""
    with server.connect() as wire:
        wire.send(data)
        reply = wire.rest(0.5)
    lines = [line for line in reply.split(b"\r\n") if line]
    demand(
        all(line.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")) for line in lines),
        f"answered {reply[:80]!r}",
    )
    demand(server.is_alive(), "the server is gone")


@case()
def tls_hello(server: Server) -> None:
    """The first bytes of a TLS client."""
    foreign(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(32)) + b"\n")


@case()
def ssh_banner(server: Server) -> None:
    """The banner of an SSH client."""
    foreign(server, b"SSH-2.0-OpenSSH_9.2p1\r\n")


@case()
def redis_command(server: Server) -> None:
    """A RESP array."""
    foreign(server, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n")


@case()
def http_request_with_commands_in_its_body(server: Server) -> None:
    """Closed at the first line, so that a browser cannot be made to speak memcached."""
    with server.connect() as wire:
        body = b"set from_http 0 0 3\r\nbad\r\n"
        wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        demand(wire.is_closed(), "still open")
    with server.connect() as wire:
        demand(wire.get(b"from_http") is None, "the body ran")


@case()
def udp_is_silent(server: Server) -> None:
    """A datagram to the port is never answered."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(0.5)
        probe.sendto(b"\x00\x00\x00\x00\x00\x01\x00\x00stats\r\n", ("127.0.0.1", server.port))
        try:
            data, _ = probe.recvfrom(1 << 16)
        except (TimeoutError, ConnectionError):
            return
        raise Failed(f"UDP answered {data[:40]!r}")


ADMIN_JUNK = [
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
def junk_to_the_admin_commands(server: Server) -> None:
    """Missing and senseless arguments to stats, slabs, lru, lru_crawler, watch and the like are answered."""
    for text in ADMIN_JUNK:
        with server.connect() as wire:
            wire.send(text.encode() + b"\r\n")
            demand(wire.line() != b"", f"{text!r} was not answered")
    demand(server.is_alive(), "the server is gone")


@case("beyond")
def flags_beyond_32_bits_are_refused(server: Server) -> None:
    """memcached stores them cut off; a client would read other flags than it wrote."""
    with server.connect() as wire:
        reply = wire.set(b"flags", b"v", flags=2**32)
        demand(reply.startswith(b"CLIENT_ERROR"), f"answered {reply!r}")
        demand(wire.in_step(), "out of step")


def far_exptime(wire: Wire, exptime: int) -> None:
    """Stored and alive, or refused; never dead at once."""
    key = b"far%d" % exptime
    reply = wire.set(key, b"v", exptime=exptime)
    if reply == b"STORED":
        demand(wire.get(key) == b"v", f"exptime {exptime} counts as past")
    else:
        demand(reply.startswith(b"CLIENT_ERROR"), f"exptime {exptime} answered {reply!r}")


@case()
def far_exptimes_are_not_past(server: Server) -> None:
    """2^31 and 2^32 seconds are far away, however they are stored."""
    with server.connect() as wire:
        for exptime in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1):
            far_exptime(wire, exptime)
