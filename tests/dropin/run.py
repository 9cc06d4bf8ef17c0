"""Runs pymemcache's and pylibmc's own tests with the import changed to our drop-in modules.

The tests are those of the projects' distributions, on a real memcached. A test that uses the
internals of the other client (its socket objects, its C module's constants) is listed in `REASONS` with why
it cannot hold; every other failure fails the run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from reasons import REASONS  # noqa: E402
from servers import memcached_servers  # noqa: E402
from sources import source_distribution  # noqa: E402


def package_folder(package: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is not installed"
    assert spec.origin is not None, f"{package} is a namespace"
    return Path(spec.origin).parent


def run_pytest(
    name: str, folder: Path, work_folder: Path, *arguments: str
) -> tuple[int, dict[str, str]]:
    """Runs pytest with the aliases of `name`; returns how many passed, and why each other failed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [
                str(HERE),
                str(HERE.parent / "live"),
                str(work_folder),
                os.environ.get("PYTHONPATH", ""),
            ]
        ),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        f"alias_{name}",
        "-p",
        "no:cacheprovider",
        "-rfE",
        "--tb=short",
    ]
    completed = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    passed_match = re.search(r"(\d+) passed", completed.stdout)
    if passed_match is None:
        print(completed.stdout[-3000:], completed.stderr[-3000:])
    reason_by_failed_test: dict[str, str] = {}
    for test in re.findall(r"^(?:FAILED|ERROR) (\S+)", completed.stdout, re.MULTILINE):
        reason_by_failed_test[test] = REASONS[name].get(test.partition("::")[2], "")
    if os.environ.get("DROPIN_VERBOSE"):
        print(completed.stdout)
    return int(passed_match.group(1)) if passed_match else 0, reason_by_failed_test


def print_result(name: str, passed_count: int, reason_by_failed_test: dict[str, str]) -> bool:
    total = passed_count + len(reason_by_failed_test)
    unexplained = [test for test, reason in reason_by_failed_test.items() if not reason]
    print(
        f"{name:12} {passed_count} of {total} passed ({100 * passed_count / max(total, 1):.1f} %), "
        f"{len(unexplained)} without a reason"
    )
    for reason in sorted(set(reason_by_failed_test.values()) - {""}):
        print(
            f"    {sum(test_reason == reason for test_reason in reason_by_failed_test.values()):3} {reason}"
        )
    for test in REASONS[name].keys() - {test.partition("::")[2] for test in reason_by_failed_test}:
        print(f"    has a reason and passed: {test}")
    for test in unexplained:
        print(f"    FAILED {test}")
    return not unexplained and passed_count > 0


def run_pymemcache(server: str, work_folder: Path) -> bool:
    host, port = server.split(":")
    tests_folder = work_folder / "pymemcache_tests"
    package_home = package_folder("pymemcache")
    os.environ["PYMEMCACHE_HOME"] = str(package_home)
    shutil.copytree(package_home / "test", tests_folder)
    # Two files of benchmarks; and a class of hashing that is ours in Rust, compared with theirs by
    # `make placement`.
    ignored = [
        f"--ignore={tests_folder / name}"
        for name in ("test_benchmark.py", "test_compression.py", "test_rendezvous.py")
    ]
    # A server with TLS is not at hand; that client has none.
    return print_result(
        "pymemcache",
        *run_pytest(
            "pymemcache",
            tests_folder,
            work_folder,
            f"--server={host}",
            f"--port={port}",
            *ignored,
            "-k",
            "not tls",
            str(tests_folder),
        ),
    )


def run_pylibmc(server: str, work_folder: Path) -> bool:
    tests_folder = source_distribution("pylibmc==1.6.3")
    os.environ["MEMCACHED_HOST"], os.environ["MEMCACHED_PORT"] = server.split(":")
    return print_result("pylibmc", *run_pytest("pylibmc", tests_folder, work_folder, "tests"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memcached", default=shutil.which("memcached"))
    parser.add_argument("--only", choices=("pymemcache", "pylibmc"))
    options = parser.parse_args()
    has_passed = True
    for name, run_tests in (("pymemcache", run_pymemcache), ("pylibmc", run_pylibmc)):
        if options.only in (None, name):
            with (
                memcached_servers(1, options.memcached) as [server],
                tempfile.TemporaryDirectory() as work_folder,
            ):
                has_passed &= run_tests(server, Path(work_folder))
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
