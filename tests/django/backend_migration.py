"""Moves a Django site from its old backend to `GlassCache` and back, processes of both running together.

`make django-moving`: PyMemcacheCache and PyLibMCCache, one and three servers, memcached and ours, with `like`
and without. Each line reports how many values of the other backend a process found: with `like`
everything, without it nothing, and in neither case an exception, a response of 500 or a wrong value.
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

from servers import memcached_servers  # noqa: E402

KINDS_OF_VALUES = 10
OLD_BACKENDS: dict[str, dict[str, Any]] = {
    "pymemcache": {"BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache"},
    "pylibmc": {"BACKEND": "django.core.cache.backends.memcached.PyLibMCCache"},
}
# The options in the examples of Django's documentation, except those that need another server.
DOCUMENTED_OPTIONS: dict[str, dict[str, Any]] = {
    "pymemcache": {"no_delay": True, "ignore_exc": True, "max_pool_size": 4, "use_pooling": True},
    "pylibmc": {"behaviors": {"ketama": True}},
}
NEW_BACKEND = {"BACKEND": "glasscache.contrib.django.GlassCache"}


class SiteProcess:
    """A process that runs `migrating_site.py` with one backend."""

    def __init__(
        self,
        writer: str,
        backend_name: str,
        cache: dict[str, Any],
        folder: str,
        values_per_kind: int,
    ) -> None:
        self.site_settings = {
            "writer": writer,
            "name": backend_name,
            "cache": cache,
            "folder": folder,
            "values": values_per_kind,
        }

    def start(self, mode: str, seed: int = 0) -> subprocess.Popen[str]:
        settings = json.dumps({**self.site_settings, "mode": mode, "seed": seed})
        command = [sys.executable, str(HERE / "migrating_site.py"), settings]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run_to_end(self, mode: str) -> dict[str, Any]:
        return result_of(self.start(mode))


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate("", timeout=600)
    return (
        dict(json.loads(output.strip().splitlines()[-1]))
        if process.returncode == 0
        else {"exceptions": 1}
    )


def run_both_backends_at_once(
    old_site: SiteProcess, new_site: SiteProcess, seconds: float
) -> list[dict[str, Any]]:
    """Two processes of each backend at once, storing and finding under the same keys."""
    running = [
        site.start("mix", seed)
        for seed, site in enumerate([old_site, new_site, old_site, new_site])
    ]
    time.sleep(seconds)
    return [result_of(process) for process in running]


def check_counts(
    label: str, results: list[dict[str, Any]], *, is_shared: bool, expected_count: int | None
) -> bool:
    total_counts = {
        name: sum(result.get(name, 0) for result in results)
        for name in ("found", "missed", "wrong", "exceptions", "500")
    }
    warnings = max(result.get("warnings", 0) for result in results)
    has_passed = (
        not total_counts["wrong"]
        and not total_counts["exceptions"]
        and not total_counts["500"]
        and warnings <= 1
    )
    if is_shared:
        has_passed &= total_counts["missed"] == 0 and (
            total_counts["found"] == expected_count if expected_count else total_counts["found"] > 0
        )
    elif expected_count:
        has_passed &= total_counts["found"] == 0 and total_counts["missed"] == expected_count
    counts_text = ", ".join(f"{name} {count}" for name, count in total_counts.items())
    print(
        f"{'ok ' if has_passed else 'NOT'} {label:62} {counts_text}, warnings {warnings}",
        flush=True,
    )
    if not has_passed:
        for result in results:
            for error in result.get("errors", []):
                print(f"      {error}")
    return has_passed


def check_migration(
    backend_name: str,
    options: dict[str, Any],
    servers: list[str],
    has_like_option: bool,
    arguments: Any,
    server_program: str,
) -> bool:
    """Store with either backend, find with the other; then both at once."""
    with tempfile.TemporaryDirectory() as folder:
        old_site = SiteProcess(
            "old",
            backend_name,
            {**OLD_BACKENDS[backend_name], "LOCATION": servers, "OPTIONS": options},
            folder,
            arguments.values,
        )
        new_options = {
            **options,
            "timeout": 5,
            **({"like": backend_name} if has_like_option else {}),
        }
        new_site = SiteProcess(
            "new",
            backend_name,
            {**NEW_BACKEND, "LOCATION": servers, "OPTIONS": new_options},
            folder,
            arguments.values,
        )
        variant = f"{'like' if has_like_option else 'no like'}, {'options' if options else 'none'}"
        label = f"{backend_name}, {len(servers)} of {server_program}, {variant}"
        expected_count = KINDS_OF_VALUES * arguments.values
        has_passed = True
        for writer, reader, direction in (
            (old_site, new_site, "moving"),
            (new_site, old_site, "rolling back"),
        ):
            flush(servers)
            write_result = writer.run_to_end("store")
            has_passed &= check_counts(
                f"{label}: {direction}",
                [write_result, reader.run_to_end("find")],
                is_shared=has_like_option,
                expected_count=expected_count,
            )
        # The values of the new process are stored; now those of the old one as well.
        old_site.run_to_end("store")
        has_passed &= check_counts(
            f"{label}: together",
            run_both_backends_at_once(old_site, new_site, arguments.seconds),
            is_shared=has_like_option,
            expected_count=None,
        )
    return has_passed


def flush(servers: list[str]) -> None:
    import socket

    for server in servers:
        host, port = server.split(":")
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(b"flush_all\r\n")
            connection.recv(100)


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
        from sources import source_distribution

        django = source_distribution(f"django=={arguments.django}")
        python_path = [str(django), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(python_path)
        print(f"{django.name}, Python {sys.version.split()[0]}", flush=True)
    has_passed = True
    programs = [program for program in (arguments.memcached, arguments.server) if program]
    for program in programs:
        server_program = Path(program.split()[0]).name
        for count in arguments.counts:
            with memcached_servers(count, program) as servers:
                for backend_name in OLD_BACKENDS:
                    for has_like_option in (True, False):
                        options = DOCUMENTED_OPTIONS[backend_name] if count == 3 else {}
                        for tested_options in (
                            [options] if arguments.short or count == 1 else [{}, options]
                        ):
                            has_passed &= check_migration(
                                backend_name,
                                tested_options,
                                servers,
                                has_like_option,
                                arguments,
                                server_program,
                            )
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
