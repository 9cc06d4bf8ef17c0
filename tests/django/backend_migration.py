"""Moves a Django site from its old backend to `GlassCache` and back, processes of both running together.

`make django-moving`: PyMemcacheCache and PyLibMCCache, one and three servers, memcached and ours, with `like`
and without. Each line lists what a process found of the other's values: with `like` everything, without it
nothing, and in neither case an exception, a response of 500 or a wrong value.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from servers import memcacheds  # noqa: E402

KINDS = 10
OLD: dict[str, dict[str, Any]] = {
    "pymemcache": {"BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache"},
    "pylibmc": {"BACKEND": "django.core.cache.backends.memcached.PyLibMCCache"},
}
# The examples of Django's documentation, but for what needs another server.
DOCUMENTED: dict[str, dict[str, Any]] = {
    "pymemcache": {"no_delay": True, "ignore_exc": True, "max_pool_size": 4, "use_pooling": True},
    "pylibmc": {"behaviors": {"ketama": True}},
}
NEW = {"BACKEND": "glasscache.contrib.django.GlassCache"}


class Site:
    """A process of one backend."""

    def __init__(
        self, writer: str, name: str, cache: dict[str, Any], folder: str, values: int
    ) -> None:
        self.site_settings = {
            "writer": writer,
            "name": name,
            "cache": cache,
            "folder": folder,
            "values": values,
        }

    def start(self, mode: str, seed: int = 0) -> subprocess.Popen[str]:
        settings = json.dumps({**self.site_settings, "mode": mode, "seed": seed})
        command = [sys.executable, str(HERE / "migrating_site.py"), settings]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, mode: str) -> dict[str, Any]:
        return result_of(self.start(mode))


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate("", timeout=600)
    return (
        dict(json.loads(output.strip().splitlines()[-1]))
        if process.returncode == 0
        else {"exceptions": 1}
    )


def run_mixed(old: Site, new: Site, seconds: float) -> list[dict[str, Any]]:
    """Two processes of each backend at once, storing and finding under the same keys."""
    running = [site.start("mix", seed) for seed, site in enumerate([old, new, old, new])]
    time.sleep(seconds)
    return [result_of(process) for process in running]


def check(label: str, results: list[dict[str, Any]], *, shares: bool, expected: int | None) -> bool:
    total = {
        name: sum(r.get(name, 0) for r in results)
        for name in ("found", "missed", "wrong", "exceptions", "500")
    }
    warnings = max(r.get("warnings", 0) for r in results)
    has_passed = (
        not total["wrong"] and not total["exceptions"] and not total["500"] and warnings <= 1
    )
    if shares:
        has_passed &= total["missed"] == 0 and (
            total["found"] == expected if expected else total["found"] > 0
        )
    elif expected:
        has_passed &= total["found"] == 0 and total["missed"] == expected
    displayed = ", ".join(f"{name} {count}" for name, count in total.items())
    print(
        f"{'ok ' if has_passed else 'NOT'} {label:62} {displayed}, warnings {warnings}", flush=True
    )
    if not has_passed:
        for result in results:
            for error in result.get("errors", []):
                print(f"      {error}")
    return has_passed


def move(
    name: str, options: dict[str, Any], servers: list[str], like: bool, arguments: Any, of: str
) -> bool:
    """Store with either backend, find with the other; then both at once."""
    with tempfile.TemporaryDirectory() as folder:
        old = Site(
            "old",
            name,
            {**OLD[name], "LOCATION": servers, "OPTIONS": options},
            folder,
            arguments.values,
        )
        given = {**options, "timeout": 5, **({"like": name} if like else {})}
        new = Site(
            "new", name, {**NEW, "LOCATION": servers, "OPTIONS": given}, folder, arguments.values
        )
        with_what = f"{'like' if like else 'no like'}, {'options' if options else 'none'}"
        label = f"{name}, {len(servers)} of {of}, {with_what}"
        expected = KINDS * arguments.values
        has_passed = True
        for writer, reader, direction in ((old, new, "moving"), (new, old, "rolling back")):
            flush(servers)
            wrote = writer.run("store")
            has_passed &= check(
                f"{label}: {direction}", [wrote, reader.run("find")], shares=like, expected=expected
            )
        # What the new process wrote is there; now what the old one wrote as well.
        old.run("store")
        has_passed &= check(
            f"{label}: together", run_mixed(old, new, arguments.seconds), shares=like, expected=None
        )
    return has_passed


def flush(servers: list[str]) -> None:
    import socket

    for server in servers:
        host, port = server.split(":")
        with socket.create_connection((host, int(port)), 5) as peer:
            peer.sendall(b"flush_all\r\n")
            peer.recv(100)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--django", help="version of Django; without it the installed one")
    parser.add_argument(
        "--memcached", default=shutil.which("memcached"), help="the server's binary"
    )
    parser.add_argument("--server", help="ours, such as 'target/release/glasscache serve'")
    parser.add_argument("--values", type=int, default=300, help="values of each kind")
    parser.add_argument(
        "--seconds", type=float, default=5, help="of old and new processes together"
    )
    parser.add_argument("--counts", type=int, nargs="*", default=[1, 3], help="of servers")
    parser.add_argument(
        "--short", action="store_true", help="one and three servers, not every combination"
    )
    arguments = parser.parse_args()
    if arguments.django:
        from sources import source

        django = source(f"django=={arguments.django}")
        path = [str(django), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
        print(f"{django.name}, Python {sys.version.split()[0]}", flush=True)
    has_passed = True
    programs = [program for program in (arguments.memcached, arguments.server) if program]
    for program in programs:
        of = Path(program.split()[0]).name
        for count in arguments.counts:
            with memcacheds(count, program) as servers:
                for name in OLD:
                    for like in (True, False):
                        options = DOCUMENTED[name] if count == 3 else {}
                        for tested_options in (
                            [options] if arguments.short or count == 1 else [{}, options]
                        ):
                            has_passed &= move(name, tested_options, servers, like, arguments, of)
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
