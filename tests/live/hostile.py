#!/usr/bin/env python3
"""Sends every hostile input to a server and says which demand holds.

One server takes most cases one after another, so that leaks add up; a few cases need a server of
their own. A witness asks every 5 ms meanwhile. At the end: the resident memory of the long-lived
server against its budget, the worst wait of the witness, and the sum. Works on glasscache and on
memcached alike: `python3 tests/live/hostile.py --server "memcached"`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

import binary_cases  # noqa: F401  (registers its cases)
import connection_cases  # noqa: F401  (registers its cases)
import foreign_cases  # noqa: F401  (registers its cases)
import line_cases  # noqa: F401  (registers its cases)
import load_cases  # noqa: F401  (registers its cases)
import login_cases  # noqa: F401  (registers its cases)
import signal_cases  # noqa: F401  (registers its cases)
import storage_cases  # noqa: F401  (registers its cases)
from harness import CASES, Case, Failed, Protection, Server, Witness

# Beside -m: program, stacks, kernel structures that count as resident.
RESIDENT_ROOM_MB = 16
# What another client may wait while a case runs, on a quiet machine; more is told, not failed.
WITNESS_MS = 50


def run_case(case: Case, server: Server, witness_wanted: bool) -> tuple[bool, str, float]:
    """Runs one case beside a witness; returns whether it held, what it says and the worst wait."""
    witness = Witness(server)
    try:
        if not witness_wanted:
            return True, case.run(server) or "", 0.0
        with witness:
            output = case.run(server) or ""
        if witness.errors:
            return False, f"the witness: {witness.errors[0]}", witness.worst_ms
    except (Failed, OSError) as error:
        return False, f"{type(error).__name__}: {error}", witness.worst_ms
    except Exception:  # noqa: BLE001 - a broken case is a finding too, and the others still run
        return False, traceback.format_exc().strip().splitlines()[-1], witness.worst_ms
    return True, output, witness.worst_ms


def main() -> int:
    """Prints one line a case and the sum; returns 0 when every demand held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--server", default="target/release/glasscache serve", help="command without options"
    )
    parser.add_argument("--only", default="", help="run only cases whose name contains this")
    parser.add_argument("--tls", action="store_true", help="send everything through TLS")
    args = parser.parse_args()
    if args.tls:
        Protection.encrypt()
    command = args.server.split()
    shared = Server(command)
    start_mb = shared.resident_mb()
    print(f"resident after start: {start_mb:.1f} MB")
    held: dict[str, list[bool]] = {"core": [], "beyond": [], "login": []}
    worst_ms = 0.0
    for case in [case for case in CASES if args.only in case.name]:
        own = case.options is not None
        server = Server(command, case.options) if case.options is not None else shared
        begun = time.monotonic()
        good, output, waited = run_case(case, server, witness_wanted=not own)
        if own:
            server.kill()
        elif server.process.poll() is not None:
            good, output = False, f"the server ended with {server.process.returncode}; {output}"
            shared = Server(command)
        held[case.kind].append(good)
        worst_ms = max(worst_ms, waited)
        mark = "ok  " if good else "FAIL"
        wait = f"{waited:6.1f} ms" if not own else " " * 9
        print(
            f"{mark} {case.kind:6} {case.name:42} {time.monotonic() - begun:6.1f} s {wait} {output}",
            flush=True,
        )
    resident = shared.resident_mb()
    budget = 1.02 * shared.memory_mb + RESIDENT_ROOM_MB
    shared.kill()
    fits = resident <= budget
    print(
        f"resident after all: {resident:.1f} MB, budget {budget:.1f} MB: {'ok' if fits else 'FAIL'}"
    )
    print(
        f"worst wait of the witness: {worst_ms:.1f} ms (demand on a quiet machine: {WITNESS_MS} ms)"
    )
    for kind, results in held.items():
        print(f"{kind}: {sum(results)} of {len(results)}")
    return 0 if all(all(results) for results in held.values()) and fits else 1


if __name__ == "__main__":
    sys.exit(main())
