"""How each client is got and run: a function that takes the server's port."""

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
SECONDS = 120
FETCH_SECONDS = 300
BUILD_SECONDS = 900


class Missing(Exception):
    """The client is not here; says how to get it."""


def need(program: str, package: str) -> str:
    """The path of a program, or how to get it."""
    found = shutil.which(program)
    if not found:
        raise Missing(f"no {program} (apt install {package})")
    return found


def run(command: list[str], seconds: float = SECONDS, **keywords: object) -> tuple[bool, str]:
    """Whether a command ends with 0, and what it printed."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
        **keywords,
    )  # type: ignore[call-overload]
    return done.returncode == 0, done.stdout.decode(errors="replace")


def last_line(text: str) -> str:
    """What a program that failed said last."""
    return (text.strip().splitlines() or ["no reason given"])[-1]


def get(source: str, command: list[str]) -> None:
    """Runs a package client that brings a client into `BUILD`."""
    good, text = run(command, FETCH_SECONDS)
    if not good:
        raise Missing(f"{source} does not give it: {last_line(text)}")


def python(name: str) -> Callable[[int], str]:
    """A client of `python_clients.py`, in the virtual environment of the peers."""

    def test(port: int) -> str:
        made = subprocess.run(
            [str(ROOT / "scripts" / "peers-python")], stdout=subprocess.PIPE, text=True, check=False
        )
        if made.returncode:
            raise Missing("the virtual environment cannot be made (pip install -r tests/peers.txt)")
        client = [made.stdout.strip(), str(HERE / "python_clients.py"), name, str(port)]
        # pylibmc's wheel holds a Cyrus SASL of its own, which would look elsewhere.
        folders = (pathlib.Path("/usr").glob(one) for one in ("lib*/sasl2", "lib*/*/sasl2"))
        plugins = ":".join(map(str, itertools.chain(*folders)))
        if "sasl" in name and not plugins:
            raise Missing("no plugins of Cyrus SASL (apt install libsasl2-modules)")
        return run(client, env={**os.environ, "SASL_PATH": plugins})[1]

    return test


def dalli(version: str, protocol: str) -> Callable[[int], str]:
    """A version of Dalli over the meta or the binary protocol."""

    def test(port: int) -> str:
        ruby = need("ruby", "ruby")
        path = dalli_path(ruby, version)
        return run([ruby, *path, str(HERE / "dalli.rb"), str(port), protocol])[1]

    return test


def dalli_path(ruby: str, version: str) -> list[str]:
    """Ruby's arguments for a version of Dalli: a checkout, the version installed, or a gem in `BUILD`."""
    checkout = BUILD / f"dalli-{version}"
    if checkout.exists():
        return ["-I", str(checkout / "lib")]
    if run([ruby, "-e", "require 'dalli'; print Dalli::VERSION"]) == (True, version):
        return []
    gems = BUILD / "gems"
    gem = gems / "gems" / f"dalli-{version}"
    if not gem.exists():
        where = ["--install-dir", str(gems), "--no-document"]
        get(
            f"no checkout in {checkout.relative_to(ROOT)}, and RubyGems",
            [need("gem", "ruby"), "install", *where, "--version", version, "dalli"],
        )
    return ["-I", str(gem / "lib")]


def memjs(port: int) -> str:
    """memjs, which speaks binary alone."""
    node = need("node", "nodejs")
    home = BUILD / "npm"
    if not (home / "node_modules" / "memjs").exists():
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        get("npm", [need("npm", "npm"), "install", "--prefix", str(home), *quiet, MEMJS])
    environment = {**os.environ, "NODE_PATH": str(home / "node_modules")}
    return run([node, str(HERE / "memjs.js"), str(port)], env=environment)[1]


def php(protocol: str) -> Callable[[int], str]:
    """php-memcached over the text or the binary protocol."""

    def test(port: int) -> str:
        program = need("php", "php-cli php-memcached")
        if "memcached" not in run([program, "-m"])[1].split():
            raise Missing("no php-memcached (apt install php-memcached)")
        return run([program, str(HERE / "phpmemcached.php"), str(port), protocol])[1]

    return test


def gomemcache(port: int) -> str:
    """gomemcache."""
    go = need("go", "golang")
    program = BUILD / "gomemcache"
    good, text = run([go, "build", "-o", str(program), "."], cwd=HERE / "gomemcache")
    if not good:
        raise Missing(f"the Go module cannot be built: {text.strip()[-200:]}")
    return run([str(program), str(port)])[1]


def spymemcached(protocol: str) -> Callable[[int], str]:
    """spymemcached over the text or the binary protocol."""

    def test(port: int) -> str:
        jar = BUILD / "spymemcached-2.12.3.jar"
        if not jar.exists():
            where = [f"-Dartifact={SPYMEMCACHED}", f"-DoutputDirectory={BUILD}"]
            get("Maven", [need("mvn", "maven"), "-q", "dependency:copy", *where])
        javac = [need("javac", "default-jdk"), "-cp", str(jar), "-d", str(BUILD)]
        good, text = run([*javac, str(HERE / "Spy.java")])
        if not good:
            return text
        java = [need("java", "default-jdk"), "-cp", f"{BUILD}:{jar}"]
        return run([*java, "Spy", str(port), protocol])[1]

    return test


def rust_memcache(port: int) -> str:
    """aisk's rust-memcache, over TLS by OpenSSL."""
    program = BUILD / "rustmemcache"
    build = [need("cargo", "cargo"), "build", "--quiet", "--locked", "--target-dir", str(program)]
    good, text = run(build, cwd=HERE / "rustmemcache", seconds=BUILD_SECONDS)
    if not good:
        raise Missing(f"the crate cannot be built (libssl-dev): {text.strip()[-200:]}")
    return run([str(program / "debug" / "rustmemcache"), str(port)])[1]


def memccapable(flag: str) -> Callable[[int], str]:
    """libmemcached's memccapable, its text or its binary cases."""

    def test(port: int) -> str:
        program = need("memccapable", "libmemcached-tools")
        _, text = run([program, "-h", "127.0.0.1", "-p", str(port), flag])
        passed, failed = 0, []
        for line in text.splitlines():
            if "[pass]" in line:
                passed += 1
            elif "[FAIL]" in line or "[fail]" in line or "[not supported]" in line:
                failed.append(line.split("[")[0].strip())
        return report(passed, failed, "operations")

    return test


def report(passed: int, failed: list[str], what: str) -> str:
    """What a client prints: a line for each failure, and the sum."""
    lines = [*(f"  FAIL {name}" for name in failed), f"{passed} of {passed + len(failed)} {what}"]
    return "\n".join(lines)
