#!/usr/bin/env python3
"""Runs unchanged clients of other projects against a server, each through all its operations.

A client that is not on this machine is named with the way to get it, and counts as not passed. In the
names, -sasl is a server of which every client has to log in, -tls one that encrypts and whose certificate
is verified, and -suite the client's own tests. The same commands run against memcached:
`--server memcached`, 1.6.45 built with TLS, SASL and its password database.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "live"))

import suites  # noqa: E402
from certificates import Authority  # noqa: E402
from harness import Protection, Server, Tls, is_root, require  # noqa: E402
from logins import PASSWORD, USER, sasl_environment  # noqa: E402
from packets import GET, parse_first_packet, request  # noqa: E402
from programs import (  # noqa: E402
    BUILD,
    ClientNotInstalled,
    dalli,
    gomemcache,
    memccapable,
    memjs,
    php,
    python_client,
    rust_memcache,
    spymemcached,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS: dict[str, Callable[[int], str]] = {
    **{
        name: python_client(name)
        for name in (
            "pymemcache",
            "pylibmc",
            "pylibmc-binary",
            "pylibmc-binary-sasl",
            "python-binary-memcached",
            "python-binary-memcached-sasl",
            "python-memcached",
            "emcache",
            "aiomcache",
            "meta-memcache",
            "pymemcache-tls",
            "python-binary-memcached-tls",
            "python-binary-memcached-sasl-tls",
            "emcache-tls",
            "aiomcache-tls",
        )
    },
    "dalli-3.0.6-binary": dalli("3.0.6", "binary"),
    "dalli-3.0.6-binary-sasl": dalli("3.0.6", "binary"),
    "dalli-3.0.6-binary-tls": dalli("3.0.6", "binary"),
    "dalli-3.2.8": dalli("3.2.8", "meta"),
    "dalli-3.2.8-tls": dalli("3.2.8", "meta"),
    "dalli-3.2.8-binary": dalli("3.2.8", "binary"),
    "dalli-3.2.8-binary-sasl": dalli("3.2.8", "binary"),
    "dalli-3.2.8-binary-tls": dalli("3.2.8", "binary"),
    "php-memcached": php("text"),
    "php-memcached-binary": php("binary"),
    "php-memcached-binary-sasl": php("binary"),
    "gomemcache": gomemcache,
    "gomemcache-tls": gomemcache,
    "memjs": memjs,
    "memjs-sasl": memjs,
    "rust-memcache-tls": rust_memcache,
    "spymemcached": spymemcached("text"),
    "spymemcached-binary": spymemcached("binary"),
    "spymemcached-binary-sasl": spymemcached("binary"),
    "memccapable": memccapable("-a"),
    "memccapable-binary": memccapable("-b"),
}
SUITES: dict[str, Callable[[list[str]], str]] = {
    "python-binary-memcached-suite": suites.python_binary_memcached,
    "rust-memcache-suite": suites.rust_memcache,
}
DALLI_MULTI_GET_REASON = "3.0.6 calls a method that its TLS socket has not"
DELETE_TIME_REASON = "memcached has no delete with a time any more"
# Operations that fail, by client, with the reason; with memcached too, unless the reason states otherwise.
KNOWN_FAILURES: dict[str, dict[str, str]] = {
    "dalli-3.0.6-binary-tls": {
        "get_multi": DALLI_MULTI_GET_REASON,
        "get_multi of many": DALLI_MULTI_GET_REASON,
    },
    "memccapable": {
        "ascii delete": DELETE_TIME_REASON,
        "ascii delete noreply": DELETE_TIME_REASON,
    },
    "rust-memcache-suite": {
        "udp_test": "passes with memcached; we serve no UDP (docs/decisions/protocol.md, 0021)",
    },
}


def start_server(command: list[str], name: str, folder: pathlib.Path) -> Server:
    """Starts the server that a client needs by its name, and sets the environment of the client."""
    for variable in ("TLS_AUTHORITY", "SASL_USER", "SASL_PASSWORD"):
        os.environ.pop(variable, None)
    Protection.tls = None
    if name.endswith("-tls"):
        authority = Authority()
        os.environ["TLS_AUTHORITY"] = str(authority.file)
        Protection.tls = Tls(authority.sign("server").options(), authority.context())
    if "-sasl" not in name:
        return Server(command)
    os.environ.update(sasl_environment(folder, USER, PASSWORD))
    server = Server(command, ("-m", "64", "-S"))
    require_login(server)
    os.environ.update({"SASL_USER": USER, "SASL_PASSWORD": PASSWORD})
    return server


def require_login(server: Server) -> None:
    """The server refuses a client that has not logged in, so that a client that passes did."""
    with server.connect() as connection:
        connection.send(request(GET, b"key"))
        received = b""
        while not (packet_and_length := parse_first_packet(received)):
            chunk = connection.socket.recv(4096)
            require(chunk, "no reply to a get without a login")
            received += chunk
        packet, _ = packet_and_length
        require(packet.status == 0x20, f"a get without a login: status {packet.status}")


def evaluate(name: str, output: str) -> tuple[bool, str]:
    """Whether a client passed, by what it printed: its sum, and no failure but the known ones."""
    failed_operations = re.findall(r"^  FAIL (.+)$", output, re.MULTILINE)
    passed_and_total = re.findall(r"^(\d+) of (\d+) (?:operations|tests)", output, re.MULTILINE)
    if not passed_and_total:
        return False, output
    passed_checks, check_count = map(int, passed_and_total[-1])
    known_failures = KNOWN_FAILURES.get(name, {})
    has_passed = (
        passed_checks > 0
        and check_count - passed_checks == len(failed_operations)
        and set(failed_operations) <= set(known_failures)
    )
    known_failure_notes = [
        f"; as known not {operation}: {known_failures[operation]}"
        for operation in failed_operations
        if operation in known_failures
    ]
    return has_passed, output.rstrip() + "".join(known_failure_notes)


def run_client(name: str, command: list[str]) -> tuple[bool, str]:
    """Runs one client, or one suite, against servers of its own."""
    if suite := SUITES.get(name):
        user_options = ["-u", "root"] if is_root() else []
        return evaluate(name, suite([*command, *user_options]))
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        server = start_server(command, name, pathlib.Path(folder))
        try:
            return evaluate(name, CLIENTS[name](server.port))
        finally:
            server.kill()


def main() -> int:
    """Prints one line a client; returns 0 when all passed."""
    all_names = [*CLIENTS, *SUITES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="client", help=f"default: {' '.join(all_names)}"
    )
    parser.add_argument(
        "--server", default="target/release/glasscache serve", help="command without options"
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(all_names)
    if unknown:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    command = options.server.split()
    # The suites start it in other folders.
    command[0] = str(pathlib.Path(command[0]).resolve()) if "/" in command[0] else command[0]
    BUILD.mkdir(exist_ok=True)
    passed_count = 0
    names = options.names or all_names
    for name in names:
        try:
            has_passed, output = run_client(name, command)
        except ClientNotInstalled as reason:
            has_passed, output = False, f"not installed: {reason}"
        except subprocess.TimeoutExpired as timeout:
            has_passed, output = False, f"no end after {timeout.timeout:.0f} s"
        passed_count += has_passed
        lines = output.strip().splitlines() or [""]
        print(f"{'pass' if has_passed else 'FAIL'}  {name:32} {lines[-1]}", flush=True)
        for line in lines[:-1] if not has_passed else []:
            print(f"      {line}")
    print(f"{passed_count} of {len(names)} clients pass")
    return 0 if passed_count == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
