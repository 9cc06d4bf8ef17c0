"""Hostile input before and during a login: no command runs before it, and its memory is bounded."""

from __future__ import annotations

import atexit
import pathlib
import tempfile

from harness import RequirementFailed, Server, ServerConnection, case, require
from packets import GET, SASL_AUTH, request

USERS_FOLDER = tempfile.TemporaryDirectory(prefix="hostile-login-")
atexit.register(USERS_FOLDER.cleanup)
USERS_FILE = pathlib.Path(USERS_FOLDER.name) / "users"
USERS_FILE.write_text("foo:bar\nother:password\n")
SERVER_OPTIONS = ("-m", "64", "-Y", str(USERS_FILE))
RIGHT_LOGIN = b"set auth 0 0 7\r\nfoo bar\r\n"
LOGIN_REFUSED_REPLY = b"CLIENT_ERROR authentication failure"
# Of resident memory: a huge login must not be kept.
GROWTH_MB_MAX = 8


def login(connection: ServerConnection, credentials: bytes) -> bytes:
    """Sends credentials and returns the first line of the reply."""
    command_line = b"set auth 0 0 %d\r\n" % len(credentials)
    connection.send(command_line + credentials + b"\r\n")
    return connection.read_line()


def require_nothing_served(connection: ServerConnection, situation: str) -> None:
    """Nothing but refusals, or the end of the connection."""
    try:
        connection.send(b"get x\r\nversion\r\n")
        received = connection.read_rest(0.3)
    except ConnectionError:
        return
    for line in received.splitlines():
        require(line.startswith(b"CLIENT_ERROR"), f"after {situation}: {line!r}")


@case("login", SERVER_OPTIONS)
def no_command_runs_before_a_login(server: Server) -> None:
    """Commands, empty lines, spaces and half commands, each on a connection of its own."""
    with server.connect() as logged_in_connection:
        require(login(logged_in_connection, b"foo bar") == b"STORED", "the login failed")
        require(logged_in_connection.set(b"x", b"kept") == b"STORED", "the set failed")
    for command in [
        b"get x\r\n",
        b"gets x\r\n",
        b"mg x v\r\n",
        b"set x 0 0 3\r\nnew\r\n",
        b"delete x\r\n",
        b"flush_all\r\n",
        b"stats\r\n",
        b"watch\r\n",
        b"\r\n\r\n",
        b"\n\n\n\n",
        b"         \r\n",
        b" " * 600,
        b"get ",
        b"set x 0 0 100\r\nhalf",
        b"\0" * 100 + b"\r\n",
    ]:
        with server.connect() as connection:
            connection.send(command)
            require_nothing_served(connection, repr(command))
    with server.connect() as logged_in_connection:
        require(login(logged_in_connection, b"foo bar") == b"STORED", "the login failed afterwards")
        require(logged_in_connection.get(b"x") == b"kept", "a command ran without a login")


@case("login", SERVER_OPTIONS)
def wrong_credentials_are_refused(server: Server) -> None:
    """Wrong, prefix, empty, over-long and NUL credentials."""
    for credentials in [
        b"foo baz",
        b"foo ba",
        b"foo barr",
        b"foo ",
        b"fo bar",
        b"fooo bar",
        b" bar",
        b"foo password",
        b"foo bar\0",
        b"foo\0 bar",
        b"foo:bar x",
        b"foo " + b"b" * 400,
    ]:
        with server.connect() as connection:
            reply = login(connection, credentials)
            require(reply.startswith(b"CLIENT_ERROR"), f"{credentials!r}: {reply!r}")
            require_nothing_served(connection, repr(credentials))


@case("login", SERVER_OPTIONS)
def a_login_holds_for_its_connection_only(server: Server) -> None:
    """The right credentials open one connection and no other."""
    with server.connect() as logged_in_connection, server.connect() as other_connection:
        require(login(logged_in_connection, b"foo bar") == b"STORED", "the login failed")
        require(logged_in_connection.get(b"none") is None, "a get after the login")
        require_nothing_served(other_connection, "the login of another connection")


@case("login", SERVER_OPTIONS)
def commands_behind_a_failing_login_are_not_run(server: Server) -> None:
    """A pipeline of a wrong login and commands."""
    with server.connect() as connection:
        connection.send(b"set auth 0 0 7\r\nfoo baz\r\nset y 0 0 1\r\n1\r\nget y\r\n")
        received = connection.read_rest(0.5)
        require(b"STORED" not in received and b"VALUE" not in received, repr(received))
    with server.connect() as connection:
        require(login(connection, b"foo bar") == b"STORED", "the login failed")
        require(connection.get(b"y") is None, "a command behind a failing login ran")


@case("login", SERVER_OPTIONS)
def a_huge_login_is_bounded(server: Server) -> str:
    """Announced and sent: 100 connections with a megabyte each, lines without an end."""
    resident_mb_before = server.resident_mb()
    connections = []
    for number in range(100):
        connection = server.connect(1)
        connections.append(connection)
        first_line = b"set auth 0 0 1000000\r\n" if number % 2 else b"set " + b"x" * 2000
        try:
            connection.send(first_line + b"a" * 1_000_000)
        except (ConnectionError, TimeoutError):
            continue
    growth_mb = server.resident_mb() - resident_mb_before
    for connection in connections:
        connection.socket.close()
    with server.connect() as connection:
        require(login(connection, b"foo bar") == b"STORED", "the login failed afterwards")
    if growth_mb > GROWTH_MB_MAX:
        raise RequirementFailed(f"resident memory grew by {growth_mb:.1f} MB")
    return f"+{growth_mb:.1f} MB"


@case("login", SERVER_OPTIONS)
def the_binary_protocol_does_not_bypass_the_login(server: Server) -> None:
    """Packets to a server whose users log in by text."""
    for packet in [
        request(GET, b"x"),
        request(SASL_AUTH, b"PLAIN", b"\0foo\0bar"),
        request(SASL_AUTH, b"PLAIN", b"\0foo\0bar") + request(GET, b"x"),
    ]:
        with server.connect() as connection:
            connection.send(packet)
            received = connection.read_rest(0.3)
            require(not received.startswith(b"\x81"), f"a packet had the reply {received!r}")
