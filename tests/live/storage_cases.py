"""Storage commands that must be refused: bad words, lengths, endings. Their values are never commands."""

from __future__ import annotations

from harness import Server, ServerConnection, case, require


def require_set_refused(server: Server, command_line: bytes) -> None:
    """The payload of a refused set is swallowed, or the connection closed; it never runs."""
    payload = b"set smuggled 0 0 3\r\nbad\r\n"
    payload += b"#" * (40 - len(payload))
    with server.connect() as connection:
        connection.send(b"delete smuggled noreply\r\n" + command_line + payload + b"\r\nmn\r\n")
        reply = connection.read_line()
        require(reply.startswith((b"CLIENT_ERROR", b"SERVER_ERROR", b"ERROR")), f"reply {reply!r}")
        next_line = connection.read_line()
        require(next_line in (b"MN", b""), f"after the refusal came {next_line!r}")
    with server.connect() as connection:
        require(connection.get(b"smuggled") is None, "the payload ran as a command")


@case()
def refused_set_bad_flags(server: Server) -> None:
    """Flags that are no number."""
    require_set_refused(server, b"set k abc 0 40\r\n")


@case()
def refused_set_bad_exptime(server: Server) -> None:
    """An exptime that is no number."""
    require_set_refused(server, b"set k 0 abc 40\r\n")


@case()
def refused_set_long_key(server: Server) -> None:
    """A key that is too long."""
    require_set_refused(server, b"set " + b"k" * 251 + b" 0 0 40\r\n")


@case()
def refused_add_bad_flags(server: Server) -> None:
    """The same for `add`."""
    require_set_refused(server, b"add k -1x 0 40\r\n")


@case()
def refused_cas_bad_unique(server: Server) -> None:
    """A unique that is no number."""
    require_set_refused(server, b"cas k 0 0 40 zz\r\n")


@case()
def refused_ms_bad_flag(server: Server) -> None:
    """A meta set with a flag that does not exist."""
    require_set_refused(server, b"ms k 40 Tabc\r\n")


@case()
def refused_ms_long_key(server: Server) -> None:
    """A meta set with a key that is too long."""
    require_set_refused(server, b"ms " + b"k" * 251 + b" 40\r\n")


@case()
def lengths_out_of_range(server: Server) -> None:
    """Lengths beyond 2^31, 2^32, 2^63, 2^64, negative and text are refused without taking memory."""
    resident_mb_before = server.resident_mb()
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
        for command_format in (
            b"set k 0 0 %d\r\n",
            b"ms k %d\r\n",
            b"append k 0 0 %d\r\n",
            b"cas k 0 0 %d 1\r\n",
        ):
            with server.connect(3) as connection:
                reply = connection.send_request(command_format % length)
                require(
                    reply.startswith((b"CLIENT_ERROR", b"SERVER_ERROR", b"ERROR")),
                    f"{command_format % length!r}: {reply!r}",
                )
    for text in (b"abc", b"1e3", b"0x10", b"", b"+-1", b"\xff"):
        with server.connect(3) as connection:
            reply = connection.send_request(b"set k 0 0 " + text + b"\r\n")
            require(reply.startswith((b"CLIENT_ERROR", b"ERROR")), f"length {text!r}: {reply!r}")
    require(server.resident_mb() - resident_mb_before < 16, "the lengths took memory")


@case()
def value_over_the_limit(server: Server) -> None:
    """Too large: refused, swallowed, and the old value is gone."""
    with server.connect() as connection:
        require(connection.set(b"large", b"old") == b"STORED", "not stored")
        reply = connection.set(b"large", b"x" * (2 << 20))
        require(reply == b"SERVER_ERROR object too large for cache", f"reply {reply!r}")
        require(connection.get(b"large") is None, "the old value is still there")
        require(connection.is_in_sync(), "out of step")


@case()
def meta_value_over_the_limit(server: Server) -> None:
    """The same for a meta set."""
    with server.connect() as connection:
        require(connection.set(b"large", b"old") == b"STORED", "not stored")
        reply = connection.send_request(b"ms large %d\r\n" % (2 << 20) + b"x" * (2 << 20) + b"\r\n")
        require(reply == b"SERVER_ERROR object too large for cache", f"reply {reply!r}")
        require(connection.get(b"large") is None, "the old value is still there")
        require(connection.is_in_sync(), "out of step")


@case()
def value_not_ended_by_crlf(server: Server) -> None:
    """A value longer than announced is a bad data chunk, and the next command gets its own reply."""
    with server.connect() as connection:
        reply = connection.send_request(b"set chunk 0 0 3\r\nabcdef\r\n")
        require(reply == b"CLIENT_ERROR bad data chunk", f"reply {reply!r}")
        next_line = connection.send_request(b"mn\r\n")
        require(
            next_line == b"MN" or next_line.startswith((b"ERROR", b"CLIENT_ERROR")),
            f"then came {next_line!r}",
        )
        require(next_line == b"MN" or connection.read_line() == b"MN", "out of step")
        require(connection.get(b"chunk") is None, "the bad value was stored")


@case()
def large_value_not_ended_by_crlf(server: Server) -> None:
    """The same above half a megabyte, where memcached's debug build stops (its issue 1306)."""
    with server.connect() as connection:
        size = 700_000
        reply = connection.send_request(b"set chunk 0 0 %d\r\n" % size + b"x" * size + b"yz")
        require(reply == b"CLIENT_ERROR bad data chunk", f"reply {reply!r}")
    require(server.is_alive(), "the server is gone")


@case("extra")
def bad_chunk_with_noreply_is_silent(server: Server) -> None:
    """With noreply nothing comes back, or the connection closes."""
    with server.connect(3) as connection:
        connection.send(b"set chunk 0 0 3 noreply\r\nabcdef\r\nmn\r\n")
        line = connection.read_line()
        require(line in (b"MN", b""), f"a stray {line!r} came back")


@case("extra")
def flags_beyond_32_bits_are_refused(server: Server) -> None:
    """memcached stores them cut off; a client would read other flags than it wrote."""
    with server.connect() as connection:
        reply = connection.set(b"flags", b"v", flags=2**32)
        require(reply.startswith(b"CLIENT_ERROR"), f"reply {reply!r}")
        require(connection.is_in_sync(), "out of step")


def require_not_past(connection: ServerConnection, exptime: int) -> None:
    """Stored and alive, or refused; never dead at once."""
    key = b"far%d" % exptime
    reply = connection.set(key, b"v", exptime=exptime)
    if reply == b"STORED":
        require(connection.get(key) == b"v", f"exptime {exptime} counts as past")
    else:
        require(reply.startswith(b"CLIENT_ERROR"), f"exptime {exptime}: reply {reply!r}")


@case()
def far_exptimes_are_not_past(server: Server) -> None:
    """2^31 and 2^32 seconds are far away, however they are stored."""
    with server.connect() as connection:
        for exptime in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1):
            require_not_past(connection, exptime)
