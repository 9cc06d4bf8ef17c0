"""Compares our placement with that of the clients that it must equal, key by key: `make placement`.

A library (see `references`) that is not installed is named in the table and makes the run fail, unless
`--allow-missing`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from references import (
    ReferenceNotInstalled,
    ReferencePlacement,
    dalli,
    gomemcache,
    jump_hash_of_the_paper,
    libmemcached,
    our_placement,
    pecl,
    php,
    pylibmc,
    pymemcache,
    python_memcached,
    spymemcached,
)
from servers import memcached_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def make_keys(count: int) -> list[str]:
    """Keys of the kinds that users have: short, long, numbered, some beyond ASCII."""
    formats = (
        "k{}",
        "user:{}:profile",
        "shop:item/{}",
        "session_{:032x}",
        "a.b.c-{}",
        "caf\u00e9:{}",
    )
    return [
        formats[number % len(formats)].format(number * 2654435761 % 2**40)
        for number in range(count)
    ]


def server_lists(live_servers: list[str]) -> dict[str, list[str]]:
    """Three and seven servers, on memcached's port and others, with and without weights."""
    offline = [f"10.1.{number}.{number * 37 % 250}:{11211 + number % 3}" for number in range(7)]

    def add_weights(servers: list[str]) -> list[str]:
        return [f"{server}*{1 + number * number % 5}" for number, server in enumerate(servers)]

    return {
        "3": offline[:3],
        "7": offline,
        "3 weighted": add_weights(offline[:3]),
        "7 weighted": add_weights(offline),
        "3 live": live_servers[:3],
        "7 live": live_servers,
        "3 live weighted": add_weights(live_servers[:3]),
        "7 live weighted": add_weights(live_servers),
    }


UNWEIGHTED_LISTS, ALL_LISTS = ("3", "7"), ("3", "7", "3 weighted", "7 weighted")
LIVE_LISTS, ALL_LIVE_LISTS = (
    ("3 live", "7 live"),
    ("3 live", "7 live", "3 live weighted", "7 live weighted"),
)


def comparisons(
    build_folder: Path,
) -> list[tuple[str, str, Callable[[], ReferencePlacement], Sequence[str]]]:
    """(placement, library, function that makes the reference, server lists) of each row."""
    return [
        ("ketama", "libmemcached", lambda: libmemcached("ketama", build_folder), ALL_LISTS),
        ("ketama", "php-memcached LIBKETAMA_COMPATIBLE", lambda: php("ketama"), ALL_LISTS),
        (
            "ketama",
            "pylibmc ketama_weighted",
            lambda: pylibmc({"ketama_weighted": True}),
            ALL_LIVE_LISTS,
        ),
        (
            "ketama",
            "spymemcached KetamaConnectionFactory",
            lambda: spymemcached("ketama", build_folder),
            LIVE_LISTS,
        ),
        (
            "ketama-oneatatime",
            "libmemcached",
            lambda: libmemcached("ketama-oneatatime", build_folder),
            ALL_LISTS,
        ),
        (
            "ketama-oneatatime",
            "php-memcached CONSISTENT",
            lambda: php("ketama-oneatatime"),
            ALL_LISTS,
        ),
        # Not "7 live weighted": there pylibmc 1.6.3's own libmemcached writes past its continuum and aborts.
        (
            "ketama-oneatatime",
            "pylibmc ketama",
            lambda: pylibmc({"ketama": True}),
            (*LIVE_LISTS, "3 live weighted"),
        ),
        ("modula", "libmemcached", lambda: libmemcached("modula", build_folder), UNWEIGHTED_LISTS),
        ("modula", "php-memcached default", lambda: php("modula"), UNWEIGHTED_LISTS),
        ("modula", "pylibmc default", lambda: pylibmc({}), LIVE_LISTS),
        ("rendezvous", "pymemcache", pymemcache, UNWEIGHTED_LISTS),
        ("crc", "python-memcached", python_memcached, ALL_LISTS),
        (
            "crc",
            "libmemcached hash crc",
            lambda: libmemcached("crc", build_folder),
            UNWEIGHTED_LISTS,
        ),
        ("pecl", "pecl-memcache standard", pecl, ALL_LIVE_LISTS),
        ("crc32", "gomemcache", lambda: gomemcache(build_folder), ALL_LISTS),
        ("dalli", "Dalli", dalli, ALL_LISTS),
        (
            "spymemcached",
            "spymemcached default",
            lambda: spymemcached("spymemcached", build_folder),
            LIVE_LISTS,
        ),
        ("jump", "the paper's loop (no library)", jump_hash_of_the_paper, ALL_LISTS),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--only", help="one placement")
    parser.add_argument("--memcached", default=shutil.which("memcached"))
    parser.add_argument("--allow-missing", action="store_true")
    options = parser.parse_args()
    build_folder = Path(tempfile.gettempdir()) / "glasscache-placement"
    build_folder.mkdir(exist_ok=True)
    keys, failure_count = make_keys(options.keys), 0
    print(f"{'placement':18} {'library':38} {'servers':18} {'equal':>8} of {len(keys)}")
    with memcached_servers(7, options.memcached) as live_servers:
        servers_by_name = server_lists(live_servers)
        for placement, library, make_reference, list_names in comparisons(build_folder):
            if options.only not in (None, placement):
                continue
            try:
                reference = make_reference()
            except ReferenceNotInstalled as reason:
                print(f"{placement:18} {library:38} not compared: {reason}")
                failure_count += not options.allow_missing
                continue
            for list_name in list_names:
                their_indices, our_indices = (
                    reference(servers_by_name[list_name], keys),
                    our_placement(placement)(servers_by_name[list_name], keys),
                )
                equal_count = sum(
                    theirs == ours for theirs, ours in zip(their_indices, our_indices, strict=True)
                )
                failure_count += equal_count != len(keys)
                print(f"{placement:18} {library:38} {list_name:18} {equal_count:>8}", flush=True)
    return min(failure_count, 1)


if __name__ == "__main__":
    sys.exit(main())
