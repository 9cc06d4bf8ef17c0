#!/usr/bin/env python3
"""The TLS versions, ciphers and certificates that the server accepts and refuses, by OpenSSL's client.

The client is the command `openssl s_client`, with its security level at 0 where it has to offer what
no client should. Unfinished handshakes and other protocols are sent by sockets.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from certificates import RSA_KEY, Authority, Identity
from harness import Server, free_port

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

ANY_SECURITY_LEVEL = ("-cipher", "ALL:@SECLEVEL=0")
# The end of a server's random bytes: "DOWNGRD" and 1.
DOWNGRADE_SENTINEL = "44 4f 57 4e 47 52 44 01"
# What an unfinished handshake may take before the server closes it, and what the machine may add.
UNFINISHED_HANDSHAKE_TIMEOUT_S = 5 + 3


class Checks:
    """The server under test, and what was found."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.authority, self.untrusted_authority = Authority(), Authority("foreign")
        self.failed_names: list[str] = []

    def start_server(self, identity: Identity, *options: str) -> Server:
        """A server with TLS on `tls_port` and a plain port."""
        port = free_port()
        plain_listener = ("-l", f"notls:127.0.0.1:{port}", "-c", "64")
        return Server(
            self.command, ("-m", "64", *plain_listener, *identity.options(*options)), port
        )

    def is_served(self, port: int, *arguments: str, trusted: pathlib.Path | None = None) -> bool:
        """Whether s_client completes a handshake with a certificate that it accepts and gets a reply."""
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-quiet",
                   "-verify_return_error", "-verify_hostname", "localhost",
                   "-CAfile", str(trusted or self.authority.file), *arguments]  # fmt: skip
        completed = subprocess.run(
            command, input=b"mn\r\nquit\r\n", capture_output=True, timeout=20, check=False
        )
        return b"MN\r\n" in completed.stdout

    def check(self, name: str, is_met: object) -> None:
        """Prints one result."""
        print(f"{'ok  ' if is_met else 'FAIL'} {name}", flush=True)
        if not is_met:
            self.failed_names.append(name)


def check_versions_and_ciphers(checks: Checks) -> None:
    """The versions and ciphers that the server accepts, and those that it refuses."""
    server = checks.start_server(checks.authority.sign("server", RSA_KEY))
    port = server.tls_port
    for version in ("-tls1_3", "-tls1_2"):
        checks.check(f"{version} is served", checks.is_served(port, version))
    for version in ("-tls1_1", "-tls1"):
        checks.check(
            f"{version} is refused", not checks.is_served(port, version, *ANY_SECURITY_LEVEL)
        )
    for cipher in ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"):
        checks.check(f"{cipher} is served", checks.is_served(port, "-tls1_2", "-cipher", cipher))
    for cipher in ("AES128-SHA", "ECDHE-RSA-AES128-SHA", "aNULL", "eNULL", "RC4", "3DES"):
        weak_cipher_options = ("-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
        checks.check(f"{cipher} is refused", not checks.is_served(port, *weak_cipher_options))
    checks.check("a downgrade would be noticed", has_downgrade_sentinel(port))
    server.kill()


def has_downgrade_sentinel(port: int) -> bool:
    """Whether a server that also has TLS 1.3 signals that to a client of TLS 1.2 (RFC 8446, 4.1.3)."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2", "-msg"]
    completed = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False
    )
    return DOWNGRADE_SENTINEL in " ".join(completed.stdout.split())


def check_certificates(checks: Checks) -> None:
    """The certificates that each side accepts and refuses."""
    authority = checks.authority
    server = checks.start_server(authority.sign("server"))
    is_foreign_accepted = checks.is_served(server.tls_port, trusted=checks.untrusted_authority.file)
    checks.check("a client does not accept a foreign server", not is_foreign_accepted)
    server.kill()
    server = checks.start_server(authority.sign("server", days=-1))
    checks.check(
        "a client does not accept an expired server", not checks.is_served(server.tls_port)
    )
    server.kill()
    server = checks.start_server(
        authority.sign("server"), "ssl_verify_mode=2", f"ssl_ca_cert={authority.file}"
    )
    client_certificates: list[tuple[str, Identity | None, bool]] = [
        ("no certificate", None, False),
        ("a foreign certificate", checks.untrusted_authority.sign("client"), False),
        ("an expired certificate", authority.sign("expired", days=-1), False),
        ("a valid certificate", authority.sign("client"), True),
    ]
    for name, identity, is_accepted in client_certificates:
        files = ("-cert", str(identity.chain), "-key", str(identity.key)) if identity else ()
        for version in ("-tls1_3", "-tls1_2"):
            is_served = checks.is_served(server.tls_port, version, *files)
            expected_text = "is served" if is_accepted else "is refused"
            checks.check(f"{name} {expected_text} with {version}", is_served == is_accepted)
    server.kill()


def check_unfinished_handshakes(checks: Checks) -> None:
    """Connections that send nothing, half a handshake or another protocol are closed in time."""
    server = checks.start_server(checks.authority.sign("server"))
    port = server.tls_port
    hello = client_hello(checks.authority)
    unfinished_connections = [
        socket.create_connection(("127.0.0.1", port), UNFINISHED_HANDSHAKE_TIMEOUT_S)
        for _ in range(30)
    ]
    for number, connection in enumerate(unfinished_connections):
        connection.sendall(hello[: number * len(hello) // len(unfinished_connections)])
    checks.check("others are served during 30 half handshakes", checks.is_served(port))
    started_at = time.monotonic()
    checks.check(
        "half handshakes are closed",
        all(is_closed(connection) for connection in unfinished_connections),
    )
    print(f"     after {time.monotonic() - started_at:.1f} s")
    data_by_attack = {
        "a plain request": b"set a 0 0 1\r\n1\r\n",
        "an HTTP request": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "a record too long": b"\x16\x03\x01\xff\xff" + bytes(70_000),
        "many empty records": b"\x16\x03\x01\x00\x00" * 10_000,
        "alerts instead of a hello": b"\x15\x03\x01\x00\x02\x01\x00" * 10_000,
    }
    for name, data in data_by_attack.items():
        with socket.create_connection(
            ("127.0.0.1", port), UNFINISHED_HANDSHAKE_TIMEOUT_S
        ) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(data)
            checks.check(f"{name} closes the connection", is_closed(connection))
    with server.connect() as connection:
        connection.send(b"stats\r\n")
        stats_text = connection.read_rest(1.0).decode()
    checks.check("no item was stored", "curr_items 0" in stats_text)
    line = next(line for line in stats_text.splitlines() if "ssl_handshake_errors" in line)
    checks.check(
        "each failed handshake was counted",
        int(line.split()[-1]) == len(unfinished_connections) + len(data_by_attack),
    )
    print(f"     {line}, resident {server.resident_mb():.1f} MB")
    server.kill()


def client_hello(authority: Authority) -> bytes:
    """The first bytes of a handshake."""
    outgoing = ssl.MemoryBIO()
    session = authority.context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes the connection in time, whatever it sends before."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


CHECK_GROUPS: list[Callable[[Checks], None]] = [
    check_versions_and_ciphers,
    check_certificates,
    check_unfinished_handshakes,
]


def main() -> int:
    """Prints one line a check; returns 0 when all hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    args = parser.parse_args()
    checks = Checks(args.server.split())
    for run_checks in CHECK_GROUPS:
        run_checks(checks)
    print(f"{len(checks.failed_names)} failed" if checks.failed_names else "all hold")
    return 1 if checks.failed_names else 0


if __name__ == "__main__":
    sys.exit(main())
