#!/usr/bin/env python3
"""Runs memcached's own test files against glasscache and counts what passes.

The tests start a server as `./memcached-debug`; this script puts a wrapper of that name into a
temporary folder beside links to the tree's `t/`, so that nothing is written into the tree. A file
passes when its plan is complete and no subtest failed but those that are known to fail here. A file
that skips itself counts as not passed; subtests that a file skips (memcached skips them too) and
those that are known to fail are counted.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

TEST_FILES = [
    "00-startup",
    "ascii-auth",
    "ascii-auth2",
    "binary",
    "binary-get",
    "binary-sasl",
    "bogus-commands",
    "cas",
    "chunked-items",
    "daemonize",
    "dash-M",
    "evictions",
    "expirations",
    "flags",
    "flush-all",
    "getandtouch",
    "getset",
    "idle-timeout",
    "incrdecr",
    "issue_104",
    "issue_108",
    "issue_14",
    "issue_152",
    "issue_183",
    "issue_192",
    "issue_29",
    "issue_3",
    "issue_41",
    "issue_42",
    "issue_50",
    "issue_61",
    "issue_67",
    "issue_68",
    "issue_70",
    "item_size_max",
    "lru-crawler",
    "malicious-commands",
    "maxconns",
    "metaget",
    "multiversioning",
    "noreply",
    "quit",
    "restart",
    "shutdown",
    "ssl_cert_refresh",
    "ssl_ports",
    "ssl_proto_version",
    "ssl_session_resumption",
    "ssl_settings",
    "ssl_verify_modes",
    "stats-conns",
    "stats-detail",
    "stats",
    "strtol-testing",
    "touch",
    "unixsocket",
    "watcher",
    "watcher_connid",
]
# Subtests that fail here, by the beginning of their names, and why.
KNOWN_FAILURES = {
    "binary-sasl": {
        "list_mechs": "PLAIN is the only mechanism; CRAM-MD5 needs the passwords in the clear",
    },
    "lru-crawler": {
        "slab1 has 30 reclaims": "no crawler reclaims items here, expired segments are dropped whole",
        "slab1 now has 0 used chunks": "a slab class that no item would occupy has no rows",
    },
    "restart": {
        "starting hash level": "the level is that of our index, which has lines of seven slots",
        "new hash power level": "the same",
        "restarted hash power level": "the same; the index is built for the items that were recovered",
    },
}
# What binary-sasl.t reads: its user, in the form of memcached's own password database, whose file is
# named by a variable. The Cyrus database that it fills by saslpasswd2 is not read.
SASL_USERS = "testuser@memcached.realm:testpass\n"

# The slowest file waits some 20 seconds by itself; this bounds a file that hangs.
FILE_TIMEOUT_S = 120

WRAPPER = """#!/bin/sh
MEMCACHED_DEBUG=1
export MEMCACHED_DEBUG
GLASSCACHE_PUBLIC=true
export GLASSCACHE_PUBLIC
MEMCACHED_SASL_PWDB={folder}/users
export MEMCACHED_SASL_PWDB
exec {command} "$@"
"""


@dataclass
class Result:
    """The result of one test file."""

    name: str
    passed_subtests: int = 0
    failed_subtests: int = 0
    skipped_subtests: int = 0
    known_failures: int = 0
    plan: int | None = None
    seconds: float = 0.0
    reason: str = ""
    output: str = field(default="", repr=False)

    @property
    def has_passed(self) -> bool:
        return not self.reason

    def is_known_failure(self, subtest_name: str) -> bool:
        """Whether this subtest fails for a reason in the table."""
        known_names = KNOWN_FAILURES.get(self.name, {})
        return any(f" - {beginning}" in subtest_name for beginning in known_names)

    def count_tap_lines(self, output: str, exit_code: int | None) -> None:  # noqa: C901 - a case for each line
        """Counts the lines of the TAP stream and sets `reason` if the file failed."""
        self.output = output
        reason_to_skip_all = ""
        for line in output.splitlines():
            if match := re.match(r"1\.\.(\d+)\s*(?:#\s*skip\s*(.*))?$", line, re.IGNORECASE):
                self.plan = int(match[1])
                reason_to_skip_all = match[2] or ("no tests" if self.plan == 0 else "")
            elif match := re.match(r"(not )?ok\b(.*)", line):
                if re.search(r"#\s*skip", match[2], re.IGNORECASE):
                    self.skipped_subtests += 1
                elif match[1] and self.is_known_failure(match[2]):
                    self.known_failures += 1
                elif match[1]:
                    self.failed_subtests += 1
                else:
                    self.passed_subtests += 1
        finished = (
            self.passed_subtests
            + self.failed_subtests
            + self.skipped_subtests
            + self.known_failures
        )
        if exit_code is None:
            self.reason = f"no end after {FILE_TIMEOUT_S} s"
        elif reason_to_skip_all:
            self.reason = f"skips itself: {reason_to_skip_all}"
        elif self.plan is None:
            self.reason = f"ended without a plan, exit code {exit_code}"
        elif self.failed_subtests or finished != self.plan:
            self.reason = f"{self.failed_subtests} failed, {finished} of {self.plan} run"
        elif exit_code != self.known_failures:  # Test::More's exit code is the number of failures.
            self.reason = f"exit code {exit_code}"


def prepare_test_folder(tree: pathlib.Path, command: list[str], folder: pathlib.Path) -> None:
    """Fills a folder that looks to the tests like a built source tree of memcached."""
    (folder / "t").symlink_to(tree / "t")
    if (tree / "timedrun").exists():
        shutil.copy(tree / "timedrun", folder / "timedrun")
    else:
        subprocess.run(["cc", "-o", folder / "timedrun", tree / "timedrun.c"], check=True)
    wrapper = folder / "memcached-debug"
    wrapper.write_text(WRAPPER.format(command=" ".join(command), folder=folder))
    wrapper.chmod(0o755)
    (folder / "users").write_text(SASL_USERS)
    saslpasswd = folder / "saslpasswd2"
    saslpasswd.write_text("#!/bin/sh\n")
    saslpasswd.chmod(0o755)


def run_test_file(name: str, folder: pathlib.Path) -> Result:
    """Runs one file to its end, or kills it with everything it started."""
    result = Result(name)
    started_at = time.monotonic()
    with tempfile.TemporaryFile() as output_file:
        process = subprocess.Popen(
            ["perl", "-It/lib", f"t/{name}.t"],
            cwd=folder,
            env={
                **os.environ,
                "RUN_SASL_TESTS": "1",
                "PATH": f"{folder}:{os.environ['PATH']}",
                # The library then connects by TLS in every file, so only these are run with it.
                **({"SSL_TEST": "1"} if name.startswith("ssl_") else {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=output_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code: int | None = process.wait(timeout=FILE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            exit_code = None
        # A test that died leaves its server running; a daemon has left the group by itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output_file.seek(0)
        output = output_file.read().decode(errors="replace")
    result.seconds = time.monotonic() - started_at
    result.count_tap_lines(output, exit_code)
    return result


def summary_line(results: list[Result]) -> str:
    """The sums over all files."""
    passed_files = sum(result.has_passed for result in results)
    passed_files_with_known_failures = sum(
        result.has_passed and result.known_failures > 0 for result in results
    )
    passed_subtests, failed_subtests, skipped_subtests, known_failures = (
        sum(getattr(result, field_name) for result in results)
        for field_name in (
            "passed_subtests",
            "failed_subtests",
            "skipped_subtests",
            "known_failures",
        )
    )
    return (
        f"{passed_files} of {len(results)} files pass,"
        f" {passed_files_with_known_failures} of them but for known failures;"
        f" subtests: {passed_subtests} ok, {failed_subtests} failed, {skipped_subtests} skipped,"
        f" {known_failures} known failures"
    )


def main() -> int:
    """Prints one line a file and the sum; returns 0 when all passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=pathlib.Path, help="a memcached source tree (1.6.45)")
    parser.add_argument(
        "names",
        nargs="*",
        default=TEST_FILES,
        help=f"files without .t; default: all {len(TEST_FILES)}",
    )
    parser.add_argument("--server", default="target/release/glasscache serve", help="the command")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--verbose", action="store_true", help="print the output of failing files")
    args = parser.parse_args()
    tree = args.tree.resolve()
    if not (tree / "t" / "lib" / "MemcachedTest.pm").exists():
        print(
            f"{args.tree} is no memcached source tree (no t/lib/MemcachedTest.pm)", file=sys.stderr
        )
        return 2
    command = args.server.split()
    command[0] = str(pathlib.Path(command[0]).resolve()) if "/" in command[0] else command[0]
    results = []
    with tempfile.TemporaryDirectory(prefix="memcached-tests-") as folder:
        prepare_test_folder(tree, command, pathlib.Path(folder))
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for result in pool.map(
                lambda name: run_test_file(name, pathlib.Path(folder)), args.names
            ):
                results.append(result)
                mark = "pass" if result.has_passed else "FAIL"
                counts = (
                    f"{result.passed_subtests:5} ok {result.failed_subtests:3} failed"
                    f" {result.skipped_subtests:2} skipped {result.known_failures} known"
                )
                print(
                    f"{mark}  {result.name:20} {counts} {result.seconds:6.1f} s  {result.reason}",
                    flush=True,
                )
                if args.verbose and not result.has_passed:
                    print(result.output)
    print(summary_line(results))
    passed_files = sum(result.has_passed for result in results)
    return 0 if passed_files == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
