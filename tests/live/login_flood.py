#!/usr/bin/env python3
"""What many failing logins cost connected clients: the latency of gets, before and during the flood.

Processes of attackers log in with wrong passwords, open connections and send nothing, or half a login, until
the number of failures is reached. A client that is logged in reads a small value meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import pathlib
import statistics
import sys
import tempfile
import time

from harness import Server, ServerConnection, p99

# `openssl passwd -5` of "secret", and a user whose password is plain, so that both kinds are tried.
USERS_FILE_TEXT = """hashed:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA
plain:bar
"""
RIGHT_LOGIN = b"set auth 0 0 9\r\nplain bar\r\n"
WRONG_LOGINS = (b"set auth 0 0 12\r\nhashed wrong\r\n", b"set auth 0 0 11\r\nplain wrong\r\n")
ATTACKER_COUNT = 4
# Connections of one attacker at a time: each failed login is delayed by the server.
CONNECTIONS_PER_ATTACKER = 32
RATIO_MAX = 2.0


def fail_logins(port: int, failures_min: int) -> None:
    """Fails this many logins, over connections that are replaced when the server closes them."""
    failed_logins = 0
    while failed_logins < failures_min:
        connections = [ServerConnection(port, 10, None) for _ in range(CONNECTIONS_PER_ATTACKER)]
        for number, connection in enumerate(connections):
            attack_kind = number % 8
            try:
                if attack_kind < 6:
                    connection.send(WRONG_LOGINS[number % 2])
                elif attack_kind == 6:
                    connection.send(b"set auth 0 0 100\r\nhalf")
            except OSError:
                continue
        for number, connection in enumerate(connections):
            with contextlib.suppress(OSError):
                failed_logins += number % 8 < 6 and connection.read_line().startswith(
                    b"CLIENT_ERROR"
                )
            connection.socket.close()


def get_latencies_us(
    server: Server, seconds: float, processes: list[multiprocessing.Process]
) -> list[float]:
    """Microseconds of gets of one logged-in client, for so long or until the processes have ended."""
    latencies_us = []
    with server.connect() as connection:
        connection.send(RIGHT_LOGIN)
        if connection.read_line() != b"STORED":
            raise SystemExit("the login failed")
        connection.set(b"key", b"x" * 100)
        deadline = time.monotonic() + seconds
        while any(process.is_alive() for process in processes) or time.monotonic() < deadline:
            started_at = time.perf_counter()
            connection.get(b"key")
            latencies_us.append((time.perf_counter() - started_at) * 1e6)
    return latencies_us


def main() -> int:
    """Prints both percentiles and their ratio; returns 0 if it is within the requirement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/glasscache serve")
    parser.add_argument("--logins", type=int, default=10_000, help="wrong logins")
    parser.add_argument("--seconds", type=float, default=5, help="of the baseline")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        users_file = pathlib.Path(folder) / "users"
        users_file.write_text(USERS_FILE_TEXT)
        server = Server(args.server.split(), ("-m", "64", "-Y", str(users_file)))
        try:
            before_us = get_latencies_us(server, args.seconds, [])
            attackers = [
                multiprocessing.Process(
                    target=fail_logins, args=(server.port, args.logins // ATTACKER_COUNT)
                )
                for _ in range(ATTACKER_COUNT)
            ]
            started_at = time.monotonic()
            for attacker in attackers:
                attacker.start()
            during_us = get_latencies_us(server, 0, attackers)
            flood_s = time.monotonic() - started_at
            for attacker in attackers:
                attacker.join()
            resident_mb = server.resident_mb()
        finally:
            server.kill()
    ratio = p99(during_us) / p99(before_us)
    print(f"{args.logins} failed logins in {flood_s:.1f} s, resident {resident_mb:.1f} MB")
    print(
        f"get, p50: {statistics.median(before_us):.0f} us before,"
        f" {statistics.median(during_us):.0f} us during"
    )
    print(
        f"get, p99: {p99(before_us):.0f} us before, {p99(during_us):.0f} us during, ratio {ratio:.2f}"
    )
    return 0 if ratio <= RATIO_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
