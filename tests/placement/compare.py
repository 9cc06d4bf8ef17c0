"""Compares our placement with the clients it claims to equal, key by key: `make placement`.

A judge (see `references`) that is not installed is named in the table and makes the run fail, unless
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
    Missing,
    ReferencePlacement,
    dalli,
    gomemcache,
    jump_of_the_paper,
    libmemcached,
    ours,
    pecl,
    php,
    pylibmc,
    pymemcache,
    python_memcached,
    spymemcached,
)
from servers import memcacheds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def make_keys(count: int) -> list[str]:
    """Keys of the kinds that users have: short, long, numbered, some beyond ASCII."""
    shapes = (
        "k{}",
        "user:{}:profile",
        "shop:item/{}",
        "session_{:032x}",
        "a.b.c-{}",
        "caf\u00e9:{}",
    )
    return [shapes[i % len(shapes)].format(i * 2654435761 % 2**40) for i in range(count)]


def server_lists(live: list[str]) -> dict[str, list[str]]:
    """Three and seven servers, on memcached's port and others, with and without weights."""
    offline = [f"10.1.{i}.{i * 37 % 250}:{11211 + i % 3}" for i in range(7)]
    weigh = lambda servers: [f"{server}*{1 + i * i % 5}" for i, server in enumerate(servers)]  # noqa: E731
    return {
        "3": offline[:3],
        "7": offline,
        "3 weighted": weigh(offline[:3]),
        "7 weighted": weigh(offline),
        "3 live": live[:3],
        "7 live": live,
        "3 live weighted": weigh(live[:3]),
        "7 live weighted": weigh(live),
    }


PLAIN, WEIGHTED = ("3", "7"), ("3", "7", "3 weighted", "7 weighted")
LIVE, LIVE_WEIGHTED = (
    ("3 live", "7 live"),
    ("3 live", "7 live", "3 live weighted", "7 live weighted"),
)


def comparisons(
    build: Path,
) -> list[tuple[str, str, Callable[[], ReferencePlacement], Sequence[str]]]:
    """(placement, library, judge, server lists) of each row."""
    return [
        ("ketama", "libmemcached", lambda: libmemcached("ketama", build), WEIGHTED),
        ("ketama", "php-memcached LIBKETAMA_COMPATIBLE", lambda: php("ketama"), WEIGHTED),
        (
            "ketama",
            "pylibmc ketama_weighted",
            lambda: pylibmc({"ketama_weighted": True}),
            LIVE_WEIGHTED,
        ),
        (
            "ketama",
            "spymemcached KetamaConnectionFactory",
            lambda: spymemcached("ketama", build),
            LIVE,
        ),
        (
            "ketama-oneatatime",
            "libmemcached",
            lambda: libmemcached("ketama-oneatatime", build),
            WEIGHTED,
        ),
        (
            "ketama-oneatatime",
            "php-memcached CONSISTENT",
            lambda: php("ketama-oneatatime"),
            WEIGHTED,
        ),
        # Not "7 live weighted": there pylibmc 1.6.3's own libmemcached writes past its continuum and aborts.
        (
            "ketama-oneatatime",
            "pylibmc ketama",
            lambda: pylibmc({"ketama": True}),
            (*LIVE, "3 live weighted"),
        ),
        ("modula", "libmemcached", lambda: libmemcached("modula", build), PLAIN),
        ("modula", "php-memcached default", lambda: php("modula"), PLAIN),
        ("modula", "pylibmc default", lambda: pylibmc({}), LIVE),
        ("rendezvous", "pymemcache", pymemcache, PLAIN),
        ("crc", "python-memcached", python_memcached, WEIGHTED),
        ("crc", "libmemcached hash crc", lambda: libmemcached("crc", build), PLAIN),
        ("pecl", "pecl-memcache standard", pecl, LIVE_WEIGHTED),
        ("crc32", "gomemcache", lambda: gomemcache(build), WEIGHTED),
        ("dalli", "Dalli", dalli, WEIGHTED),
        ("spymemcached", "spymemcached default", lambda: spymemcached("spymemcached", build), LIVE),
        ("jump", "the paper's loop (no library)", jump_of_the_paper, WEIGHTED),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--only", help="one placement")
    parser.add_argument("--memcached", default=shutil.which("memcached"))
    parser.add_argument("--allow-missing", action="store_true")
    options = parser.parse_args()
    build = Path(tempfile.gettempdir()) / "glasscache-placement"
    build.mkdir(exist_ok=True)
    keys, failed = make_keys(options.keys), 0
    print(f"{'placement':18} {'library':38} {'servers':18} {'equal':>8} of {len(keys)}")
    with memcacheds(7, options.memcached) as live:
        lists = server_lists(live)
        for placement, library, make, names in comparisons(build):
            if options.only not in (None, placement):
                continue
            try:
                reference = make()
            except Missing as why:
                print(f"{placement:18} {library:38} not compared: {why}")
                failed += not options.allow_missing
                continue
            for name in names:
                theirs, mine = reference(lists[name], keys), ours(placement)(lists[name], keys)
                equal = sum(a == b for a, b in zip(theirs, mine, strict=True))
                failed += equal != len(keys)
                print(f"{placement:18} {library:38} {name:18} {equal:>8}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
