#!/usr/bin/env python3
"""Runs unchanged clients of other projects against a server, each through all its operations.

A client that is not on this machine is named with the way to get it, and counts as not passed. Names
with -tls connect to a server that encrypts, and verify it by the authority in TLS_AUTHORITY. Dalli
is taken from the folder in DALLI when it is set (a checkout of 3.2 or newer), else from the gems.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "live"))

from certificates import Authority  # noqa: E402
from harness import Protection, Server, Tls  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

SPYMEMCACHED = "net.spy:spymemcached:2.12.3"
# memcached itself fails these two of memccapable's cases: it has no delete with a time any more.
MEMCCAPABLE_KNOWN = {"ascii delete", "ascii delete noreply"}
SECONDS = 120
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
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
        **keywords,
    )  # type: ignore[call-overload]
    return done.returncode == 0, done.stdout.decode(errors="replace")


def python(name: str) -> Callable[[int], tuple[bool, str]]:
    """A client of `python_clients.py`, in the virtual environment of the peers."""

    def test(port: int) -> tuple[bool, str]:
        made = subprocess.run(
            [str(ROOT / "scripts" / "peers-python")], stdout=subprocess.PIPE, text=True, check=False
        )
        if made.returncode:
            raise Missing("the virtual environment cannot be made (pip install -r tests/peers.txt)")
        return run([made.stdout.strip(), str(HERE / "python_clients.py"), name, str(port)])

    return test


def dalli(port: int, protocol: str = "meta") -> tuple[bool, str]:
    """Dalli over the meta or the binary protocol."""
    ruby = need("ruby", "ruby ruby-dalli")
    folder = os.environ.get("DALLI")
    path = ["-I", str(pathlib.Path(folder) / "lib")] if folder else []
    found = subprocess.run(
        [ruby, *path, "-e", "require 'dalli'; puts Dalli::VERSION"],
        capture_output=True,
        text=True,
        check=False,
    )
    version = found.stdout.strip() or "none"
    # 3.2 brought the meta protocol, 4 took the binary one away.
    oldest, newest = ((3, 2), (9, 0)) if protocol == "meta" else ((3, 0), (4, 0))
    numbers = (0,) if version == "none" else tuple(int(part) for part in version.split(".")[:2])
    if not oldest <= numbers < newest:
        wanted = f"from {oldest[0]}.{oldest[1]}, below {newest[0]}"
        raise Missing(f"Dalli {wanted} (here: {version}); gem install dalli, or DALLI=a checkout")
    return run([ruby, *path, str(HERE / "dalli.rb"), str(port), protocol])


def php(port: int, protocol: str = "text") -> tuple[bool, str]:
    """php-memcached."""
    program = need("php", "php-cli php-memcached")
    if "memcached" not in run([program, "-m"])[1].split():
        raise Missing("no php-memcached (apt install php-memcached)")
    return run([program, str(HERE / "phpmemcached.php"), str(port), protocol])


def gomemcache(port: int) -> tuple[bool, str]:
    """gomemcache."""
    go = need("go", "golang")
    program = HERE / "build" / "gomemcache"
    good, text = run([go, "build", "-o", str(program), "."], cwd=HERE / "gomemcache")
    if not good:
        raise Missing(f"the Go module cannot be built: {text.strip()[-200:]}")
    return run([str(program), str(port)])


def spymemcached(port: int, protocol: str = "text") -> tuple[bool, str]:
    """spymemcached over the text or the binary protocol."""
    build = HERE / "build"
    jar = build / "spymemcached-2.12.3.jar"
    if not jar.exists():
        fetch = [
            need("mvn", "maven"),
            "-q",
            "dependency:copy",
            f"-Dartifact={SPYMEMCACHED}",
            f"-DoutputDirectory={build}",
        ]
        good, text = run(fetch)
        if not good:
            raise Missing(f"Maven does not give {SPYMEMCACHED}: {text.strip()[-200:]}")
    good, text = run(
        [need("javac", "default-jdk"), "-cp", str(jar), "-d", str(build), str(HERE / "Spy.java")]
    )
    if not good:
        return False, text
    return run([need("java", "default-jdk"), "-cp", f"{build}:{jar}", "Spy", str(port), protocol])


def rust_memcache(port: int) -> tuple[bool, str]:
    """aisk's rust-memcache, over TLS by OpenSSL."""
    program = HERE / "build" / "rustmemcache"
    build = [need("cargo", "cargo"), "build", "--quiet", "--locked", "--target-dir", str(program)]
    good, text = run(build, cwd=HERE / "rustmemcache", seconds=BUILD_SECONDS)
    if not good:
        raise Missing(f"the crate cannot be built (libssl-dev): {text.strip()[-200:]}")
    return run([str(program / "debug" / "rustmemcache"), str(port)])


def memccapable(port: int, flag: str = "-a") -> tuple[bool, str]:
    """libmemcached's memccapable, its text or its binary cases."""
    program = need("memccapable", "libmemcached-tools")
    _, text = run([program, "-h", "127.0.0.1", "-p", str(port), flag])
    bad, good = [], 0
    for line in text.splitlines():
        if "[pass]" in line:
            good += 1
        elif "[FAIL]" in line or "[fail]" in line or "[not supported]" in line:
            bad.append(line.split("[")[0].strip())
    new = [name for name in bad if name not in MEMCCAPABLE_KNOWN]
    known = [name for name in bad if name in MEMCCAPABLE_KNOWN]
    lines = [f"  FAIL {name}" for name in new]
    lines.append(
        f"{good} of {good + len(bad)} operations; as with memcached not: {', '.join(known) or 'none'}"
    )
    return not new and good > 0, "\n".join(lines)


CLIENTS: dict[str, Callable[[int], tuple[bool, str]]] = {
    **{
        name: python(name)
        for name in (
            "pymemcache",
            "pylibmc",
            "pylibmc-binary",
            "python-binary-memcached",
            "python-memcached",
            "emcache",
            "aiomcache",
            "meta-memcache",
            "pymemcache-tls",
            "python-binary-memcached-tls",
            "emcache-tls",
            "aiomcache-tls",
        )
    },
    "dalli": dalli,
    "dalli-binary": lambda port: dalli(port, "binary"),
    # Dalli 3.0, which is that of the binary protocol here, fails in get_multi over TLS, with memcached too.
    "dalli-tls": dalli,
    "php-memcached": php,
    "php-memcached-binary": lambda port: php(port, "binary"),
    "gomemcache": gomemcache,
    "gomemcache-tls": gomemcache,
    "rust-memcache-tls": rust_memcache,
    "spymemcached": spymemcached,
    "spymemcached-binary": lambda port: spymemcached(port, "binary"),
    "memccapable": memccapable,
    "memccapable-binary": lambda port: memccapable(port, "-b"),
}


def start(command: list[str], name: str) -> Server:
    """The server for a client: with TLS if its name says so, and then its authority in the environment."""
    Protection.tls = None
    os.environ.pop("TLS_AUTHORITY", None)
    if not name.endswith("-tls"):
        return Server(command)
    authority = Authority()
    os.environ["TLS_AUTHORITY"] = str(authority.file)
    Protection.tls = Tls(authority.sign("server").options(), authority.context())
    return Server(command)


def main() -> int:
    """Prints one line a client; returns 0 when all passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="client", help=f"default: {' '.join(CLIENTS)}")
    parser.add_argument(
        "--server", default="target/release/glasscache serve", help="command without options"
    )
    args = parser.parse_args()
    unknown = set(args.names) - set(CLIENTS)
    if unknown:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    (HERE / "build").mkdir(exist_ok=True)
    passed = 0
    names = args.names or list(CLIENTS)
    for name in names:
        server = start(args.server.split(), name)
        try:
            good, text = CLIENTS[name](server.port)
        except Missing as missing:
            good, text = False, f"not here: {missing}"
        except subprocess.TimeoutExpired:
            good, text = False, f"no end after {SECONDS} s"
        finally:
            server.kill()
        passed += good
        lines = text.strip().splitlines() or [""]
        print(f"{'pass' if good else 'FAIL'}  {name:27} {lines[-1]}", flush=True)
        for line in lines[:-1] if not good else []:
            print(f"      {line}")
    print(f"{passed} of {len(names)} clients pass")
    return 0 if passed == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
