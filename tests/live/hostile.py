#!/usr/bin/env python3
"""Sends every hostile input to a server and prints which requirement is met.

One server takes most cases one after another, so that leaks add up; a few cases need a server of
their own. A second client, the latency probe, sends a request every 5 ms meanwhile. At the end:
the resident memory of the long-lived server against its budget, the longest latency of the probe, and
the sum. Works on glasscache and on memcached alike: `python3 tests/live/hostile.py --server "memcached"`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

import binary_cases  # noqa: F401  (registers its cases)
import connection_cases  # noqa: F401  (registers its cases)
import line_cases  # noqa: F401  (registers its cases)
import load_cases  # noqa: F401  (registers its cases)
import login_cases  # noqa: F401  (registers its cases)
import other_protocol_cases  # noqa: F401  (registers its cases)
import signal_cases  # noqa: F401  (registers its cases)
import storage_cases  # noqa: F401  (registers its cases)
from harness import CASES, Case, LatencyProbe, Protection, RequirementFailed, Server

# In addition to -m: program, stacks, kernel structures that count as resident.
RESIDENT_OVERHEAD_MB = 16
# What another client may wait while a case runs, on a quiet machine; more is printed and does not fail.
PROBE_LATENCY_MS_MAX = 50


def run_case(case: Case, server: Server, is_probed: bool) -> tuple[bool, str, float]:
    """Runs a case during a latency probe; returns whether it passed, its output and the longest latency."""
    probe = LatencyProbe(server)
    try:
        if not is_probed:
            return True, case.run(server) or "", 0.0
        with probe:
            output = case.run(server) or ""
        if probe.errors:
            return False, f"the latency probe: {probe.errors[0]}", probe.latency_ms_max
    except (RequirementFailed, OSError) as error:
        return False, f"{type(error).__name__}: {error}", probe.latency_ms_max
    except Exception:  # noqa: BLE001 - a broken case is a finding too, and the others still run
        return False, traceback.format_exc().strip().splitlines()[-1], probe.latency_ms_max
    return True, output, probe.latency_ms_max


def main() -> int:
    """Prints one line a case and the sum; returns 0 when every requirement is met."""
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
    shared_server = Server(command)
    resident_mb_at_start = shared_server.resident_mb()
    print(f"resident after start: {resident_mb_at_start:.1f} MB")
    results_by_category: dict[str, list[bool]] = {"basic": [], "extra": [], "login": []}
    latency_ms_max = 0.0
    for case in [case for case in CASES if args.only in case.name]:
        has_own_server = case.options is not None
        server = Server(command, case.options) if case.options is not None else shared_server
        started_at = time.monotonic()
        has_passed, output, case_latency_ms = run_case(case, server, is_probed=not has_own_server)
        if has_own_server:
            server.kill()
        elif server.process.poll() is not None:
            has_passed, output = (
                False,
                f"the server ended with {server.process.returncode}; {output}",
            )
            shared_server = Server(command)
        results_by_category[case.category].append(has_passed)
        latency_ms_max = max(latency_ms_max, case_latency_ms)
        result_mark = "ok  " if has_passed else "FAIL"
        latency_text = f"{case_latency_ms:6.1f} ms" if not has_own_server else " " * 9
        duration_s = time.monotonic() - started_at
        print(
            f"{result_mark} {case.category:6} {case.name:42} {duration_s:6.1f} s {latency_text} {output}",
            flush=True,
        )
    resident_mb = shared_server.resident_mb()
    budget_mb = 1.02 * shared_server.memory_mb + RESIDENT_OVERHEAD_MB
    shared_server.kill()
    is_within_budget = resident_mb <= budget_mb
    print(
        f"resident after all: {resident_mb:.1f} MB, budget {budget_mb:.1f} MB:"
        f" {'ok' if is_within_budget else 'FAIL'}"
    )
    print(
        f"longest latency of the probe: {latency_ms_max:.1f} ms "
        f"(required on a quiet machine: {PROBE_LATENCY_MS_MAX} ms)"
    )
    for category, results in results_by_category.items():
        print(f"{category}: {sum(results)} of {len(results)}")
    return (
        0
        if all(all(results) for results in results_by_category.values()) and is_within_budget
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
