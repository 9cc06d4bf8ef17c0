"""How each client is installed and run: functions that take the port of a server and return its output."""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = HERE / "build"
MEMJS = "memjs@1.3.2"
SPYMEMCACHED = "net.spy:spymemcached:2.12.3"
CLIENT_TIMEOUT_S = 120
DOWNLOAD_TIMEOUT_S = 300
BUILD_TIMEOUT_S = 900


class ClientNotInstalled(Exception):
    """The client is not installed; the message explains how to install it."""


def require_program(program: str, package: str) -> str:
    """The path of a program; raises `ClientNotInstalled` with the package if there is none."""
    path = shutil.which(program)
    if not path:
        raise ClientNotInstalled(f"no {program} (apt install {package})")
    return path


def run_program(
    command: list[str], seconds: float = CLIENT_TIMEOUT_S, **keywords: object
) -> tuple[bool, str]:
    """Whether a command ends with 0, and what it printed."""
    completed = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
        **keywords,
    )  # type: ignore[call-overload]
    return completed.returncode == 0, completed.stdout.decode(errors="replace")


def output_of(command: list[str], **keywords: object) -> str:
    """What a command printed, whether it failed or not."""
    _, output = run_program(command, **keywords)  # type: ignore[arg-type]
    return output


def last_line(text: str) -> str:
    """The last line that a program printed."""
    return (text.strip().splitlines() or ["no reason given"])[-1]


def download_client(source: str, command: list[str]) -> None:
    """Runs a package manager that installs a client in `BUILD`."""
    is_downloaded, text = run_program(command, DOWNLOAD_TIMEOUT_S)
    if not is_downloaded:
        raise ClientNotInstalled(f"{source} failed: {last_line(text)}")


def python_client(name: str) -> Callable[[int], str]:
    """A client of `python_clients.py`, in the virtual environment of the peers."""

    def run_client(port: int) -> str:
        environment = subprocess.run(
            [str(ROOT / "scripts" / "peers-python")], stdout=subprocess.PIPE, text=True, check=False
        )
        if environment.returncode:
            raise ClientNotInstalled(
                "the virtual environment cannot be made (pip install -r tests/peers.txt)"
            )
        client = [environment.stdout.strip(), str(HERE / "python_clients.py"), name, str(port)]
        # pylibmc's wheel holds a Cyrus SASL of its own, which would look elsewhere.
        folders = (pathlib.Path("/usr").glob(pattern) for pattern in ("lib*/sasl2", "lib*/*/sasl2"))
        plugin_path = ":".join(map(str, itertools.chain(*folders)))
        if "sasl" in name and not plugin_path:
            raise ClientNotInstalled("no plugins of Cyrus SASL (apt install libsasl2-modules)")
        return output_of(client, env={**os.environ, "SASL_PATH": plugin_path})

    return run_client


def dalli(version: str, protocol: str) -> Callable[[int], str]:
    """A version of Dalli over the meta or the binary protocol."""

    def run_client(port: int) -> str:
        ruby = require_program("ruby", "ruby")
        arguments = dalli_arguments(ruby, version)
        return output_of([ruby, *arguments, str(HERE / "dalli.rb"), str(port), protocol])

    return run_client


def dalli_arguments(ruby: str, version: str) -> list[str]:
    """Ruby's arguments for a version of Dalli: a checkout, the version installed, or a gem in `BUILD`."""
    checkout = BUILD / f"dalli-{version}"
    if checkout.exists():
        return ["-I", str(checkout / "lib")]
    if run_program([ruby, "-e", "require 'dalli'; print Dalli::VERSION"]) == (True, version):
        return []
    gems_folder = BUILD / "gems"
    gem_folder = gems_folder / "gems" / f"dalli-{version}"
    if not gem_folder.exists():
        options = ["--install-dir", str(gems_folder), "--no-document"]
        download_client(
            f"no checkout in {checkout.relative_to(ROOT)}, and RubyGems",
            [require_program("gem", "ruby"), "install", *options, "--version", version, "dalli"],
        )
    return ["-I", str(gem_folder / "lib")]


def memjs(port: int) -> str:
    """memjs, over the binary protocol."""
    node = require_program("node", "nodejs")
    folder = BUILD / "npm"
    if not (folder / "node_modules" / "memjs").exists():
        quiet_options = ["--no-audit", "--no-fund", "--loglevel=error"]
        download_client(
            "npm",
            [
                require_program("npm", "npm"),
                "install",
                "--prefix",
                str(folder),
                *quiet_options,
                MEMJS,
            ],
        )
    environment = {**os.environ, "NODE_PATH": str(folder / "node_modules")}
    return output_of([node, str(HERE / "memjs.js"), str(port)], env=environment)


def php(protocol: str) -> Callable[[int], str]:
    """php-memcached over the text or the binary protocol."""

    def run_client(port: int) -> str:
        program = require_program("php", "php-cli php-memcached")
        if "memcached" not in output_of([program, "-m"]).split():
            raise ClientNotInstalled("no php-memcached (apt install php-memcached)")
        return output_of([program, str(HERE / "phpmemcached.php"), str(port), protocol])

    return run_client


def gomemcache(port: int) -> str:
    """gomemcache."""
    go = require_program("go", "golang")
    program = BUILD / "gomemcache"
    is_built, text = run_program([go, "build", "-o", str(program), "."], cwd=HERE / "gomemcache")
    if not is_built:
        raise ClientNotInstalled(f"the Go module cannot be built: {text.strip()[-200:]}")
    return output_of([str(program), str(port)])


def spymemcached(protocol: str) -> Callable[[int], str]:
    """spymemcached over the text or the binary protocol."""

    def run_client(port: int) -> str:
        jar = BUILD / "spymemcached-2.12.3.jar"
        if not jar.exists():
            options = [f"-Dartifact={SPYMEMCACHED}", f"-DoutputDirectory={BUILD}"]
            download_client(
                "Maven", [require_program("mvn", "maven"), "-q", "dependency:copy", *options]
            )
        javac_command = [require_program("javac", "default-jdk"), "-cp", str(jar), "-d", str(BUILD)]
        is_compiled, text = run_program([*javac_command, str(HERE / "Spy.java")])
        if not is_compiled:
            return text
        java_command = [require_program("java", "default-jdk"), "-cp", f"{BUILD}:{jar}"]
        return output_of([*java_command, "Spy", str(port), protocol])

    return run_client


def rust_memcache(port: int) -> str:
    """aisk's rust-memcache, over TLS by OpenSSL."""
    program = BUILD / "rustmemcache"
    build_command = [
        require_program("cargo", "cargo"),
        "build",
        "--quiet",
        "--locked",
        "--target-dir",
        str(program),
    ]
    is_built, text = run_program(build_command, cwd=HERE / "rustmemcache", seconds=BUILD_TIMEOUT_S)
    if not is_built:
        raise ClientNotInstalled(f"the crate cannot be built (libssl-dev): {text.strip()[-200:]}")
    return output_of([str(program / "debug" / "rustmemcache"), str(port)])


def memccapable(flag: str) -> Callable[[int], str]:
    """libmemcached's memccapable, its text or its binary cases."""

    def run_client(port: int) -> str:
        program = require_program("memccapable", "libmemcached-tools")
        _, text = run_program([program, "-h", "127.0.0.1", "-p", str(port), flag])
        passed_count, failed_names = 0, []
        for line in text.splitlines():
            if "[pass]" in line:
                passed_count += 1
            elif "[FAIL]" in line or "[fail]" in line or "[not supported]" in line:
                failed_names.append(line.split("[")[0].strip())
        return failures_and_sum(passed_count, failed_names, "operations")

    return run_client


def failures_and_sum(passed_count: int, failed_names: list[str], unit: str) -> str:
    """The output of a client: a line for each failure, and the sum."""
    lines = [
        *(f"  FAIL {name}" for name in failed_names),
        f"{passed_count} of {passed_count + len(failed_names)} {unit}",
    ]
    return "\n".join(lines)
