"""Hostile input before and during a login: nothing runs before it, and what it may hold is bounded."""

from __future__ import annotations

import atexit
import pathlib
import tempfile

from harness import Failed, Server, Wire, case, demand
from packets import GET, SASL_AUTH, request

FOLDER = tempfile.TemporaryDirectory(prefix="hostile-login-")
atexit.register(FOLDER.cleanup)
USERS = pathlib.Path(FOLDER.name) / "users"
USERS.write_text("foo:bar\nother:password\n")
OPTIONS = ("-m", "64", "-Y", str(USERS))
LOGIN = b"set auth 0 0 7\r\nfoo bar\r\n"
REFUSED = b"CLIENT_ERROR authentication failure"
# Of resident memory: a huge login must not be kept.
GROWTH_MB_MAX = 8


def login(wire: Wire, credentials: bytes) -> bytes:
    """Sends credentials and returns the first line of the reply."""
    head = b"set auth 0 0 %d\r\n" % len(credentials)
    wire.send(head + credentials + b"\r\n")
    return wire.line()


def demand_nothing_served(wire: Wire, what: str) -> None:
    """Nothing but refusals, or the end of the connection."""
    try:
        wire.send(b"get x\r\nversion\r\n")
        received = wire.rest(0.3)
    except ConnectionError:
        return
    for line in received.splitlines():
        demand(line.startswith(b"CLIENT_ERROR"), f"after {what}: {line!r}")


@case("login", OPTIONS)
def no_command_runs_before_a_login(server: Server) -> None:
    """Commands, empty lines, spaces and half commands, each on a connection of its own."""
    with server.connect() as owner:
        demand(login(owner, b"foo bar") == b"STORED", "the login failed")
        demand(owner.set(b"x", b"kept") == b"STORED", "the set failed")
    for what in [
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
        with server.connect() as wire:
            wire.send(what)
            demand_nothing_served(wire, repr(what))
    with server.connect() as owner:
        demand(login(owner, b"foo bar") == b"STORED", "the login failed afterwards")
        demand(owner.get(b"x") == b"kept", "a command ran without a login")


@case("login", OPTIONS)
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
        with server.connect() as wire:
            reply = login(wire, credentials)
            demand(reply.startswith(b"CLIENT_ERROR"), f"{credentials!r}: {reply!r}")
            demand_nothing_served(wire, repr(credentials))


@case("login", OPTIONS)
def a_login_holds_for_its_connection_only(server: Server) -> None:
    """The right credentials open one connection and none beside it."""
    with server.connect() as right, server.connect() as other:
        demand(login(right, b"foo bar") == b"STORED", "the login failed")
        demand(right.get(b"none") is None, "a get after the login")
        demand_nothing_served(other, "the login of another connection")


@case("login", OPTIONS)
def commands_behind_a_failing_login_are_not_run(server: Server) -> None:
    """A pipeline of a wrong login and commands."""
    with server.connect() as wire:
        wire.send(b"set auth 0 0 7\r\nfoo baz\r\nset y 0 0 1\r\n1\r\nget y\r\n")
        received = wire.rest(0.5)
        demand(b"STORED" not in received and b"VALUE" not in received, repr(received))
    with server.connect() as wire:
        demand(login(wire, b"foo bar") == b"STORED", "the login failed")
        demand(wire.get(b"y") is None, "a command behind a failing login ran")


@case("login", OPTIONS)
def a_huge_login_is_bounded(server: Server) -> str:
    """Announced and sent: 100 connections with a megabyte each, lines without an end."""
    before = server.resident_mb()
    wires = []
    for number in range(100):
        wire = server.connect(1)
        wires.append(wire)
        head = b"set auth 0 0 1000000\r\n" if number % 2 else b"set " + b"x" * 2000
        try:
            wire.send(head + b"a" * 1_000_000)
        except (ConnectionError, TimeoutError):
            continue
    grown = server.resident_mb() - before
    for wire in wires:
        wire.socket.close()
    with server.connect() as wire:
        demand(login(wire, b"foo bar") == b"STORED", "the login failed afterwards")
    if grown > GROWTH_MB_MAX:
        raise Failed(f"resident memory grew by {grown:.1f} MB")
    return f"+{grown:.1f} MB"


@case("login", OPTIONS)
def the_binary_protocol_is_no_way_around(server: Server) -> None:
    """Packets to a server whose users log in by text."""
    for packet in [
        request(GET, b"x"),
        request(SASL_AUTH, b"PLAIN", b"\0foo\0bar"),
        request(SASL_AUTH, b"PLAIN", b"\0foo\0bar") + request(GET, b"x"),
    ]:
        with server.connect() as wire:
            wire.send(packet)
            received = wire.rest(0.3)
            demand(not received.startswith(b"\x81"), f"a packet was answered: {received!r}")
