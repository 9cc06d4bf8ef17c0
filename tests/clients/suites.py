"""The test suites of two clients: functions that take the server's command.

The tests expect servers at fixed addresses that no other program uses. python-binary-memcached starts
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
from programs import (
    BUILD,
    BUILD_TIMEOUT_S,
    HERE,
    ClientNotInstalled,
    download_client,
    failures_and_sum,
    last_line,
    require_program,
    run_program,
)

sys.path.insert(0, str(HERE.parent))

from sources import DOWNLOADS, source_distribution

if TYPE_CHECKING:
    from collections.abc import Iterator

Address = int | str
OptionsByAddress = dict[Address, list[str]]
SUITE_TIMEOUT_S = 600
# Where both suites expect a server.
SOCKET_PATH = "/tmp/memcached.sock"  # noqa: S108
SECOND_SOCKET_PATH = "/tmp/memcached2.sock"  # noqa: S108
BMEMCACHED_PACKAGES = ["pytest", "trustme", "six"]
# The one with TLS, at port 5001, is started by its test.
BMEMCACHED_SERVERS: OptionsByAddress = {
    11211: [],
    5000: [],
    5002: ["-l", "::1"],
    5003: ["-S"],
    SOCKET_PATH: [],
}
# What the suite finds as `memcached` in the PATH.
MEMCACHED_WRAPPER = """#!/bin/sh
exec {command} -l 127.0.0.1 "$@"
"""


def python_binary_memcached(command: list[str]) -> str:
    """python-binary-memcached's tests, in a virtual environment of their own."""
    pins = (HERE.parent / "peers.txt").read_text().split()
    (client,) = (pin for pin in pins if pin.startswith("python-binary-memcached=="))
    try:
        folder = source_distribution(client)
    except subprocess.CalledProcessError as error:
        raise ClientNotInstalled(f"downloading from PyPI failed: the source of {client}") from error
    shutil.copy(HERE / "bmemcached_conftest.py", folder / "test" / "conftest.py")
    python = bmemcached_python(client)
    require_free_addresses([*BMEMCACHED_SERVERS, 5001])
    with tempfile.TemporaryDirectory(prefix="bmemcached-suite-") as temporary_folder:
        suite_home = Path(temporary_folder)
        (suite_home / "memcached").write_text(MEMCACHED_WRAPPER.format(command=" ".join(command)))
        (suite_home / "memcached").chmod(0o755)
        environment = {
            **os.environ,
            **sasl_environment(suite_home, USER, PASSWORD),
            "SASL_USER": USER,
            "SASL_PASSWORD": PASSWORD,
            "MEMCACHED_HOST": "localhost",
            "PATH": f"{suite_home}:{os.environ['PATH']}",
        }
        results = suite_home / "results.xml"
        pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={results}"]
        with servers_at_fixed_addresses(command, BMEMCACHED_SERVERS, environment):
            _, output = run_program(
                [*pytest, "test/"], SUITE_TIMEOUT_S, cwd=folder, env=environment
            )
        if not results.exists():
            return output
        return output + "\n" + junit_report(results)


def bmemcached_python(client: str) -> str:
    """The Python of the suite's virtual environment, made once."""
    virtual_environment = BUILD / "bmemcached"
    packages_file = virtual_environment / "made"
    packages = "\n".join([client, *BMEMCACHED_PACKAGES])
    if not packages_file.exists() or packages_file.read_text() != packages:
        download_client("Python", [sys.executable, "-m", "venv", str(virtual_environment)])
        download_client(
            "PyPI",
            [
                str(virtual_environment / "bin" / "pip"),
                "install",
                "--quiet",
                client,
                *BMEMCACHED_PACKAGES,
            ],
        )
        packages_file.write_text(packages)
    return str(virtual_environment / "bin" / "python")


def junit_report(results: Path) -> str:
    """The failures in pytest's results; a test that was skipped counts as one."""
    passed_count, failed_names = 0, []
    for case in ET.parse(results).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        outcome = next(
            (part.tag for part in case if part.tag in {"failure", "error", "skipped"}), ""
        )
        if outcome:
            suffix = " (skipped)" if outcome == "skipped" else ""
            failed_names.append(f"{case.get('classname')}.{case.get('name')}{suffix}")
        else:
            passed_count += 1
    return failures_and_sum(passed_count, failed_names, "tests")


def rust_memcache(command: list[str]) -> str:
    """rust-memcache's tests, with all its features, one at a time as its own workflow runs them."""
    cargo = require_program("cargo", "cargo")
    folder = copy_of_rust_memcache(cargo)
    build_command = [
        cargo,
        "test",
        "--target-dir",
        str(BUILD / "rustmemcache-suite"),
        "--all-features",
    ]
    is_built, output = run_program([*build_command, "--no-run"], BUILD_TIMEOUT_S, cwd=folder)
    if not is_built:
        raise ClientNotInstalled(f"its tests cannot be built (libssl-dev): {last_line(output)}")
    require_free_addresses([*rust_servers(folder)])
    with servers_at_fixed_addresses(command, rust_servers(folder), dict(os.environ)):
        test_command = [*build_command, "--no-fail-fast", "--", "--test-threads=1"]
        _, output = run_program(test_command, SUITE_TIMEOUT_S, cwd=folder)
    announced_tests = sum(map(int, re.findall(r"^running (\d+) tests?$", output, re.MULTILINE)))
    outcomes = re.findall(r"^test (.+) \.\.\. (ok|FAILED|ignored)", output, re.MULTILINE)
    passed_count = sum(outcome == "ok" for _, outcome in outcomes)
    # Those that are ignored are marked so in their source.
    failed_names = [name for name, outcome in outcomes if outcome == "FAILED"]
    failed_names += ["a test without an outcome"] * (announced_tests - len(outcomes))
    return output + "\n" + failures_and_sum(passed_count, failed_names, "tests")


def copy_of_rust_memcache(cargo: str) -> Path:
    """A copy of the crate as Cargo has it, outside of any workspace: its tests write a lock file."""
    metadata_command = [cargo, "metadata", "--format-version", "1", "--locked"]
    completed = subprocess.run(
        metadata_command, cwd=HERE / "rustmemcache", capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise ClientNotInstalled(
            f"downloading from crates.io failed: {last_line(completed.stderr)}"
        )
    (crate,) = (
        package
        for package in json.loads(completed.stdout)["packages"]
        if package["name"] == "memcache"
    )
    crate_copy = DOWNLOADS / f"memcache-{crate['version']}"
    if not crate_copy.exists():
        shutil.copytree(Path(crate["manifest_path"]).parent, crate_copy)
    return crate_copy


def rust_servers(folder: Path) -> OptionsByAddress:
    """The servers of rust-memcache's `setup_tests.sh`."""
    assets = folder / "tests" / "assets"
    certificate = f"ssl_key={assets}/localhost.key,ssl_chain_cert={assets}/localhost.crt"
    certificate_and_client_check = (
        f"{certificate},ssl_verify_mode=2,ssl_ca_cert={assets}/RUST_MEMCACHE_TEST_CERT.crt"
    )
    return {
        **{port: [] for port in range(12345, 12350)},
        12350: ["-Z", "-o", certificate],
        12351: ["-Z", "-o", certificate_and_client_check],
        22345: ["-U", "22345"],
        SOCKET_PATH: [],
        SECOND_SOCKET_PATH: [],
    }


@contextlib.contextmanager
def servers_at_fixed_addresses(
    command: list[str], options_by_address: OptionsByAddress, environment: dict[str, str]
) -> Iterator[None]:
    """Servers at fixed addresses, on this machine alone."""
    with contextlib.ExitStack() as stack:
        for address, address_options in options_by_address.items():
            port_options = ["-p", str(address), "-l", "127.0.0.1"]
            listen_options = port_options if isinstance(address, int) else ["-s", address]
            server = subprocess.Popen(
                [*command, *listen_options, *address_options],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            stack.callback(stop_server, server, address)
            # One that ends at once, because it has no UDP, is missed by its tests.
            deadline = time.monotonic() + 10
            while (
                server.poll() is None
                and not is_address_in_use(address)
                and time.monotonic() < deadline
            ):
                time.sleep(0.02)
        yield


def stop_server(server: subprocess.Popen[bytes], address: Address) -> None:
    """Ends a server and removes its socket."""
    server.kill()
    server.wait()
    if isinstance(address, str):
        Path(address).unlink(missing_ok=True)


def is_address_in_use(address: Address) -> bool:
    """Whether a server listens there."""
    if isinstance(address, str):
        with socket.socket(socket.AF_UNIX) as probe_socket:
            return probe_socket.connect_ex(address) == 0
    for host in ("127.0.0.1", "::1"):
        with contextlib.suppress(OSError), socket.create_connection((host, address), 1):
            return True
    return False


def require_free_addresses(addresses: list[Address]) -> None:
    """The suites flush the servers at their addresses, so no server of another program may listen there."""
    if used := [str(address) for address in addresses if is_address_in_use(address)]:
        raise ClientNotInstalled(
            f"its tests need addresses that another server uses: {', '.join(used)}"
        )
