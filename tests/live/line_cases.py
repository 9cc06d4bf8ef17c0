"""Hostile keys and lines: separators, control bytes, no end. Each has one reply or closes the connection."""

from __future__ import annotations

from harness import Server, case, require

# What an endless line may make the server take before it closes, beyond kernel buffers.
ENDLESS_LINE_BYTES = 8 << 20


@case()
def key_of_250_bytes_works(server: Server) -> None:
    """The longest key is stored and found."""
    with server.connect() as connection:
        key = b"k" * 250
        require(connection.set(key, b"v") == b"STORED", "not stored")
        require(connection.get(key) == b"v", "not found")


@case()
def key_of_251_bytes_is_refused(server: Server) -> None:
    """One byte more is the client's error, for writes and reads, and the stream stays in step."""
    with server.connect() as connection:
        key = b"k" * 251
        for request in (
            b"set %s 0 0 1\r\nv\r\n",
            b"delete %s\r\n",
            b"incr %s 1\r\n",
            b"touch %s 0\r\n",
            b"mg %s v\r\n",
        ):
            reply = connection.send_request(request % key)
            require(reply.startswith(b"CLIENT_ERROR"), f"{request[:6]!r}: reply {reply!r}")
        reply = connection.send_request(b"get %s\r\n" % key)
        require(reply.startswith(b"CLIENT_ERROR"), f"get: reply {reply!r}")
        connection.send(b"mn\r\n")
        line = connection.read_line()
        require(line in (b"MN", b""), f"after the error came {line!r}")
        require(line == b"MN" or connection.read_line() == b"MN", "out of step")


@case()
def any_byte_but_space_and_control_in_keys(server: Server) -> None:
    """8-bit bytes are stored and returned as they are."""
    with server.connect() as connection:
        key = bytes(byte for byte in range(0x80, 0x100))
        require(connection.set(key, b"high") == b"STORED", "not stored")
        require(connection.get(key) == b"high", "not found")


@case()
def control_bytes_in_keys(server: Server) -> None:
    """Control bytes are a key like any other, or the client's error; never another key."""
    with server.connect() as connection:
        reply = connection.set(b"a\x01\x02b", b"control")
        require(reply == b"STORED" or reply.startswith(b"CLIENT_ERROR"), f"set: reply {reply!r}")
        if reply == b"STORED":
            require(connection.get(b"a\x01\x02b") == b"control", "not found")
        require(connection.is_in_sync(), "out of step")


@case()
def tabs_do_not_separate(server: Server) -> None:
    """`get<tab>key` is an unknown command."""
    with server.connect() as connection:
        require(connection.send_request(b"get\tkey\r\n") == b"ERROR", "a tab was taken for a space")
        require(connection.is_in_sync(), "out of step")


@case()
def leading_spaces(server: Server) -> None:
    """A line that begins with spaces has one reply."""
    with server.connect() as connection:
        reply = connection.send_request(b"   get key\r\n")
        require(reply in (b"ERROR", b"END"), f"reply {reply!r}")
        require(connection.is_in_sync(), "out of step")


@case()
def only_spaces(server: Server) -> None:
    """A line of spaces is an error."""
    with server.connect() as connection:
        require(connection.send_request(b"     \r\n") == b"ERROR", "no ERROR")
        require(connection.is_in_sync(), "out of step")


@case()
def empty_line(server: Server) -> None:
    """An empty line is an error, also with a bare LF."""
    with server.connect() as connection:
        for line in (b"\r\n", b"\n"):
            reply = connection.send_request(line)
            require(reply.startswith((b"ERROR", b"CLIENT_ERROR")), f"reply {reply!r}")
        require(connection.is_in_sync(), "out of step")


@case()
def bare_lf_ends_a_line(server: Server) -> None:
    """LF alone ends a command line."""
    with server.connect() as connection:
        require(connection.send_request(b"get nothing_here\n") == b"END", "no END")
        require(connection.is_in_sync(), "out of step")


@case()
def nul_bytes_in_a_line(server: Server) -> None:
    """NUL does not cut a line short."""
    with server.connect() as connection:
        connection.send(b"get a\x00b\r\nget c\r\nmn\r\n")
        lines = [connection.read_line() for _ in range(3)]
        require(lines[-1] == b"MN", f"out of step: {lines!r}")


def send_endless_line(server: Server, start: bytes) -> str:
    """8 MB without LF: the server reports an error and closes, and keeps little of it."""
    resident_mb_before = server.resident_mb()
    with server.connect() as connection:
        sent_bytes = 0
        try:
            connection.send(start)
            while sent_bytes < ENDLESS_LINE_BYTES:
                connection.send(b"x" * 65536)
                sent_bytes += 65536
        except (ConnectionError, TimeoutError):
            pass
        require(connection.is_closed(), f"still open after {sent_bytes} bytes")
    growth_mb = server.resident_mb() - resident_mb_before
    require(growth_mb < 16, f"{growth_mb:.0f} MB more resident")
    return f"closed; {sent_bytes >> 10} KB sent"


@case()
def endless_line_of_junk(server: Server) -> str:
    """No command at all."""
    return send_endless_line(server, b"")


@case()
def endless_line_set(server: Server) -> str:
    """A set whose key never ends."""
    return send_endless_line(server, b"set ")


@case()
def endless_line_mg(server: Server) -> str:
    """A meta get whose key never ends."""
    return send_endless_line(server, b"mg ")


@case()
def endless_line_gat(server: Server) -> str:
    """A gat whose exptime never ends."""
    return send_endless_line(server, b"gat ")


@case()
def endless_line_delete(server: Server) -> str:
    """A delete whose key never ends."""
    return send_endless_line(server, b"delete ")


@case("extra", options=("-m", "64"))
def endless_get(server: Server) -> str:
    """200 MB of keys without LF: closed after at most 1 MB of keys, and no memory kept."""
    resident_mb_before = server.resident_mb()
    resident_mb_peak = resident_mb_before
    with server.connect() as connection:
        sent_bytes = 0
        try:
            connection.send(b"get ")
            while sent_bytes < 200 << 20:
                connection.send(b"abcdefg " * 32768)
                sent_bytes += 8 * 32768
                if sent_bytes % (8 << 20) == 0:
                    resident_mb_peak = max(resident_mb_peak, server.resident_mb())
        except (ConnectionError, TimeoutError):
            pass
        resident_mb_peak = max(resident_mb_peak, server.resident_mb())
        is_closed = connection.is_closed()
    require(is_closed and sent_bytes < 32 << 20, f"took {sent_bytes >> 20} MB of one line")
    require(
        resident_mb_peak - resident_mb_before < 24,
        f"{resident_mb_peak - resident_mb_before:.0f} MB more resident",
    )
    return f"closed after {sent_bytes >> 10} KB, {resident_mb_peak - resident_mb_before:+.1f} MB"
