"""The own tests of two clients: functions that take the server's command.

The tests expect servers at fixed addresses, and that nobody else uses these. python-binary-memcached starts
them itself, as `memcached` in the PATH; for rust-memcache they are started here, as its own script does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from logins import PASSWORD, USER, sasl_environment
from programs import BUILD, BUILD_SECONDS, HERE, Missing, get, last_line, need, report, run

sys.path.insert(0, str(HERE.parent))

from sources import KEPT, source

if TYPE_CHECKING:
    from collections.abc import Iterator

Address = int | str
Servers = dict[Address, list[str]]
SUITE_SECONDS = 600
# Where both suites expect a server.
SOCKET = "/tmp/memcached.sock"  # noqa: S108
SECOND_SOCKET = "/tmp/memcached2.sock"  # noqa: S108
BMEMCACHED_NEEDS = ["pytest", "trustme", "six"]
# The one with TLS, at port 5001, is started by its test.
BMEMCACHED_SERVERS: Servers = {
    11211: [],
    5000: [],
    5002: ["-l", "::1"],
    5003: ["-S"],
    SOCKET: [],
}
# What the suite finds as `memcached` in the PATH.
WRAPPER = """#!/bin/sh
exec {command} -l 127.0.0.1 "$@"
"""


def python_binary_memcached(command: list[str]) -> str:
    """python-binary-memcached's tests, in a virtual environment of their own."""
    pins = (HERE.parent / "peers.txt").read_text().split()
    (client,) = (pin for pin in pins if pin.startswith("python-binary-memcached=="))
    try:
        folder = source(client)
    except subprocess.CalledProcessError as error:
        raise Missing(f"PyPI does not give the source of {client}") from error
    shutil.copy(HERE / "bmemcached_conftest.py", folder / "test" / "conftest.py")
    python = bmemcached_python(client)
    require_free_ports([*BMEMCACHED_SERVERS, 5001])
    with tempfile.TemporaryDirectory(prefix="bmemcached-suite-") as temporary:
        home = Path(temporary)
        (home / "memcached").write_text(WRAPPER.format(command=" ".join(command)))
        (home / "memcached").chmod(0o755)
        environment = {
            **os.environ,
            **sasl_environment(home, USER, PASSWORD),
            "SASL_USER": USER,
            "SASL_PASSWORD": PASSWORD,
            "MEMCACHED_HOST": "localhost",
            "PATH": f"{home}:{os.environ['PATH']}",
        }
        results = home / "results.xml"
        pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={results}"]
        with servers(command, BMEMCACHED_SERVERS, environment):
            _, text = run([*pytest, "test/"], SUITE_SECONDS, cwd=folder, env=environment)
        if not results.exists():
            return text
        return text + "\n" + junit_report(results)


def bmemcached_python(client: str) -> str:
    """The Python of the suite's virtual environment, made once."""
    home = BUILD / "bmemcached"
    made = home / "made"
    wanted = "\n".join([client, *BMEMCACHED_NEEDS])
    if not made.exists() or made.read_text() != wanted:
        get("Python", [sys.executable, "-m", "venv", str(home)])
        get("PyPI", [str(home / "bin" / "pip"), "install", "--quiet", client, *BMEMCACHED_NEEDS])
        made.write_text(wanted)
    return str(home / "bin" / "python")


def junit_report(results: Path) -> str:
    """The failures in pytest's results; a test that was skipped counts as one."""
    passed, failed = 0, []
    for case in ET.parse(results).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        outcome = next(
            (part.tag for part in case if part.tag in {"failure", "error", "skipped"}), ""
        )
        if outcome:
            mark = " (skipped)" if outcome == "skipped" else ""
            failed.append(f"{case.get('classname')}.{case.get('name')}{mark}")
        else:
            passed += 1
    return report(passed, failed, "tests")


def rust_memcache(command: list[str]) -> str:
    """rust-memcache's tests, with all its features, one at a time as its own workflow runs them."""
    cargo = need("cargo", "cargo")
    folder = rust_source(cargo)
    build = [cargo, "test", "--target-dir", str(BUILD / "rustmemcache-suite"), "--all-features"]
    good, text = run([*build, "--no-run"], BUILD_SECONDS, cwd=folder)
    if not good:
        raise Missing(f"its tests cannot be built (libssl-dev): {last_line(text)}")
    require_free_ports([*rust_servers(folder)])
    with servers(command, rust_servers(folder), dict(os.environ)):
        tests = [*build, "--no-fail-fast", "--", "--test-threads=1"]
        _, text = run(tests, SUITE_SECONDS, cwd=folder)
    announced = sum(map(int, re.findall(r"^running (\d+) tests?$", text, re.MULTILINE)))
    outcomes = re.findall(r"^test (.+) \.\.\. (ok|FAILED|ignored)", text, re.MULTILINE)
    passed = sum(outcome == "ok" for _, outcome in outcomes)
    # Those that are ignored are marked so in their source.
    failed = [name for name, outcome in outcomes if outcome == "FAILED"]
    failed += ["a test without an outcome"] * (announced - len(outcomes))
    return text + "\n" + report(passed, failed, "tests")


def rust_source(cargo: str) -> Path:
    """A copy of the crate as Cargo has it, outside of any workspace: its tests write a lock file."""
    metadata = [cargo, "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(
        metadata, cwd=HERE / "rustmemcache", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Missing(f"crates.io does not give it: {last_line(done.stderr)}")
    (crate,) = (one for one in json.loads(done.stdout)["packages"] if one["name"] == "memcache")
    copy = KEPT / f"memcache-{crate['version']}"
    if not copy.exists():
        shutil.copytree(Path(crate["manifest_path"]).parent, copy)
    return copy


def rust_servers(folder: Path) -> Servers:
    """The servers of rust-memcache's `setup_tests.sh`."""
    assets = folder / "tests" / "assets"
    certificate = f"ssl_key={assets}/localhost.key,ssl_chain_cert={assets}/localhost.crt"
    verified = f"{certificate},ssl_verify_mode=2,ssl_ca_cert={assets}/RUST_MEMCACHE_TEST_CERT.crt"
    return {
        **{port: [] for port in range(12345, 12350)},
        12350: ["-Z", "-o", certificate],
        12351: ["-Z", "-o", verified],
        22345: ["-U", "22345"],
        SOCKET: [],
        SECOND_SOCKET: [],
    }


@contextlib.contextmanager
def servers(command: list[str], options: Servers, environment: dict[str, str]) -> Iterator[None]:
    """Servers at fixed addresses, on this machine alone."""
    with contextlib.ExitStack() as stack:
        for address, more in options.items():
            port = ["-p", str(address), "-l", "127.0.0.1"]
            where = port if isinstance(address, int) else ["-s", address]
            server = subprocess.Popen(
                [*command, *where, *more],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            stack.callback(end, server, address)
            # One that ends at once, because it has no UDP, is missed by its tests.
            deadline = time.monotonic() + 10
            while server.poll() is None and not is_taken(address) and time.monotonic() < deadline:
                time.sleep(0.02)
        yield


def end(server: subprocess.Popen[bytes], address: Address) -> None:
    """Ends a server and removes its socket."""
    server.kill()
    server.wait()
    if isinstance(address, str):
        Path(address).unlink(missing_ok=True)


def is_taken(address: Address) -> bool:
    """Whether a server listens there."""
    if isinstance(address, str):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(address) == 0
    for host in ("127.0.0.1", "::1"):
        with contextlib.suppress(OSError), socket.create_connection((host, address), 1):
            return True
    return False


def require_free_ports(addresses: list[Address]) -> None:
    """The suites flush what they find at their addresses, so nothing of others may be there."""
    if taken := [str(address) for address in addresses if is_taken(address)]:
        raise Missing(f"its tests need addresses that another server has: {', '.join(taken)}")
