#!/usr/bin/env python3
"""The TLS versions and ciphers that the server accepts and refuses, by OpenSSL's client.

The client is the command `openssl s_client`, with its security level at 0 where it has to offer what
no client should. Certificates, unfinished handshakes and other protocols are in `crates/server/tests/it/tls`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from certificates import RSA_KEY, Authority, Identity
from harness import Server, free_port

ANY_SECURITY_LEVEL = ("-cipher", "ALL:@SECLEVEL=0")
# The end of a server's random bytes: "DOWNGRD" and 1.
DOWNGRADE_SENTINEL = "44 4f 57 4e 47 52 44 01"


class Checks:
    """The server under test, and what was found."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.authority = Authority()
        self.failed_names: list[str] = []

    def start_server(self, identity: Identity, *options: str) -> Server:
        """A server with TLS on `tls_port` and a plain port."""
        port = free_port()
        plain_listener = ("-l", f"notls:127.0.0.1:{port}", "-c", "64")
        return Server(
            self.command, ("-m", "64", *plain_listener, *identity.options(*options)), port
        )

    def is_served(self, port: int, *arguments: str) -> bool:
        """Whether s_client completes a handshake with a certificate that it accepts and gets a reply."""
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-quiet",
                   "-verify_return_error", "-verify_hostname", "localhost",
                   "-CAfile", str(self.authority.file), *arguments]  # fmt: skip
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


def main() -> int:
    """Prints one line a check; returns 0 when all hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    args = parser.parse_args()
    checks = Checks(args.server.split())
    check_versions_and_ciphers(checks)
    print(f"{len(checks.failed_names)} failed" if checks.failed_names else "all hold")
    return 1 if checks.failed_names else 0


if __name__ == "__main__":
    sys.exit(main())
