"""The Python half of `glasscache tour`: a folder through `Client`, and where the time of its calls went.

`python -m glasscache.tour FOLDER SERVER` stores every file under FOLDER, reads all of them back singly and by
bulk reads, compares every byte, and prints as JSON what `client.stats()` has counted. The command prints it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glasscache.client import Client
from glasscache.errors import GlasscacheError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["main", "visit"]

FILES_MAX = 5000
"""Files that are taken: enough for each size decade, and a matter of seconds."""

FILE_BYTES_MAX = 900_000
"""Longer files are left out: a server with default settings refuses them."""

SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})
"""What is inside the folder of the standard library and not part of it."""

KEYS_PER_GET = 100
KEY_BYTES_MAX = 250


def is_key(name: str) -> bool:
    """Return whether a path can be a key as it is."""
    is_short = len(name.encode("utf-8", "replace")) <= KEY_BYTES_MAX
    return is_short and name.isprintable() and " " not in name


def files_of(folder: Path) -> Iterator[tuple[str, str | bytes]]:
    """Yield path and content, text where it is text, of the files under a folder in order."""
    file_count = 0
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(root, name)
            key = str(path.relative_to(folder))
            try:
                if not is_key(key) or path.stat().st_size > FILE_BYTES_MAX:
                    continue
                content = path.read_bytes()
            except OSError:
                continue
            try:
                yield key, content.decode()
            except UnicodeDecodeError:
                yield key, content
            file_count += 1
            if file_count == FILES_MAX:
                return


def visit(folder: Path, server: str) -> dict[str, Any]:
    """Return how long storing and reading a folder took, and what its calls cost."""
    files = dict(files_of(folder))
    keys = list(files)
    seconds: dict[str, float] = {}
    wrong_count = 0

    def time_step(label: str, run_step: Callable[[], None]) -> None:
        began_at = time.perf_counter()
        run_step()
        seconds[label] = time.perf_counter() - began_at

    def count_wrong(values_by_key: dict[str, Any]) -> None:
        nonlocal wrong_count
        wrong_count += sum(values_by_key.get(key) != files[key] for key in values_by_key)

    with Client(server, timeout=30) as client:

        def store_files() -> None:
            for key, value in files.items():
                client.set(key, value)

        time_step("store", store_files)
        time_step("read singly", lambda: count_wrong({key: client.get(key) for key in keys}))

        def read_many() -> None:
            for first_index in range(0, len(keys), KEYS_PER_GET):
                batch = keys[first_index : first_index + KEYS_PER_GET]
                values_by_key = client.get_many(batch)
                count_wrong({key: values_by_key.get(key) for key in batch})

        time_step("read by multi-get", read_many)
        stats = client.stats()
        wire_bytes = _count_wire_bytes(client, files)
    return {
        "files": len(files),
        "bytes": sum(map(len, files.values())),
        "wrong": wrong_count,
        "seconds": seconds,
        "by_size": stats["by_size"],
        "by_width": stats["by_width"],
        "wire_bytes": wire_bytes,
    }


def _count_wire_bytes(client: Client, files: dict[str, str | bytes]) -> int:
    """Return the bytes of the files on the wire."""
    return sum(len(client.encode(value)[1]) for value in files.values())


def main() -> int:
    """Visit the folder and server of the command line."""
    folder, server = sys.argv[1:3]
    try:
        sys.stdout.write(json.dumps(visit(Path(folder), server)) + "\n")
    except GlasscacheError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
