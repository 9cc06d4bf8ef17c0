"""Runs the suite http-tests/cache-tests through the middlewares, and counts what passes by kind.

Usage: http_tests.py SUITE [--wsgi] [--no-cache] [--share-cookies] [--failed]; SUITE is the folder of the npm
package `http-cache-tests` or of a checkout. The command is that of GLASSCACHE. Needs Node 20, uvicorn, httpx
and, for --wsgi, gunicorn.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from glasscache import Server

HERE = Path(__file__).parent
PRINT_KINDS_SCRIPT = """
import(process.argv[1]).then(async suites => {
  const kinds = {}
  for (const suite of suites.default) for (const test of suite.tests)
    if (!test.browser_only) kinds[test.id] = test.kind || 'required'
  console.log(JSON.stringify(kinds))
})
"""
SHARE_COOKIES = '[[rule]]\nthen = { store_set_cookie = ["*"], pass_cookies = [] }'
"""Without it responses that set a cookie, or were made with one, are not stored, as RFC 9111 would permit."""
UNSUPPORTED_BY_GATEWAYS = {
    "interim-102": "neither ASGI nor WSGI has interim responses",
    "interim-103": "the same",
    "interim-no-header-reuse": "the same",
}


def free_port() -> int:
    with socket.socket() as reserved_socket:
        reserved_socket.bind(("127.0.0.1", 0))
        return reserved_socket.getsockname()[1]


def wait_until_listening(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens at port {port}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("--wsgi", action="store_true", help="CacheWSGI under gunicorn")
    parser.add_argument("--no-cache", action="store_true", help="the proxy alone")
    parser.add_argument(
        "--share-cookies", action="store_true", help="with a rule that shares what has cookies"
    )
    parser.add_argument("--failed", action="store_true", help="list what failed")
    parser.add_argument("--id", default="", help="one test, with its messages")
    parser.add_argument(
        "--least", default="", help="REQUIRED/OPTIMAL that must pass, such as 142/74"
    )
    options = parser.parse_args()
    suite = options.suite.resolve()
    engine = suite / "test-engine" if (suite / "test-engine").is_dir() else suite
    origin_port, cache_port = free_port(), free_port()
    environment = {
        **os.environ, "ORIGIN": f"127.0.0.1:{origin_port}",
        "npm_config_protocol": "http", "npm_config_port": str(origin_port),
        "npm_package_config_id": options.id,
        "npm_config_pidfile": os.devnull, "npm_config_base": f"http://127.0.0.1:{cache_port}",
        "PYTHONPATH": str(HERE), "RULES": SHARE_COOKIES if options.share_cookies else "",
        "CACHE": "off" if options.no_cache else "on",
    }  # fmt: skip
    python = sys.executable
    if options.wsgi:
        command = [python, "-m", "gunicorn", "--bind", f"127.0.0.1:{cache_port}", "--threads", "64",
                   "--worker-class", "gthread", "--log-level", "critical", "origin_proxy:wsgi()"]  # fmt: skip
    else:
        # httptools keeps the white space after a value, which the proxy's own client refuses to send.
        command = [python, "-m", "uvicorn", "--http", "h11", "--port", str(cache_port),
                   "--log-level", "critical", "--no-server-header", "--no-date-header",
                   "origin_proxy:asgi"]  # fmt: skip
    popen_options = {"env": environment, "stdout": subprocess.DEVNULL}
    processes = []
    cache_server = Server()
    environment["STORE"] = cache_server.address
    try:
        processes.append(
            subprocess.Popen(
                ["node", str(engine / "server/server.mjs")], **popen_options, cwd=suite
            )
        )
        processes.append(subprocess.Popen(command, **popen_options))
        wait_until_listening(origin_port)
        wait_until_listening(cache_port)
        completed_suite = subprocess.run(
            ["node", "--no-warnings", str(engine / "cli.mjs")], env=environment, cwd=suite,
            stdout=None if options.id else subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    finally:
        for process in processes:
            process.terminate()
            process.wait(10)
        cache_server.stop()
    if not options.id:
        print_results(suite, json.loads(completed_suite.stdout), options)


def print_results(suite: Path, results: dict[str, object], options: argparse.Namespace) -> None:
    completed = subprocess.run(
        ["node", "--no-warnings", "-e", PRINT_KINDS_SCRIPT, str(suite / "tests/index.mjs")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    kinds = json.loads(completed.stdout)
    passed_by_kind, total_by_kind = collections.Counter(), collections.Counter()
    for test_id, kind in kinds.items():
        total_by_kind[kind] += 1
        passed_by_kind[kind] += results.get(test_id) is True
        if options.failed and results.get(test_id) is not True:
            reason = UNSUPPORTED_BY_GATEWAYS.get(test_id) or results.get(test_id)
            print(f"{kind:<9} {test_id:<55} {reason}")
    for kind in ("required", "optimal", "check"):
        print(f"{kind}: {passed_by_kind[kind]} of {total_by_kind[kind]}")
    if options.least:
        required_min, optimal_min = map(int, options.least.split("/"))
        sys.exit(
            passed_by_kind["required"] < required_min or passed_by_kind["optimal"] < optimal_min
        )


if __name__ == "__main__":
    main()
