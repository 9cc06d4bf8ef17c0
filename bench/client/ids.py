"""140,000 ids of eight digits, as a list, an array and NumPy's, each against its pickle."""

from __future__ import annotations

import array
import pickle
import random
import zlib
from typing import TYPE_CHECKING, Any

import glasscache
from peers import import_if_installed
from rounds import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def id_rows(address: str) -> Iterator[Row]:
    """Yield 140,000 ids of eight digits, as a list, an array and NumPy's, each against its pickle."""
    rng = random.Random(140_000)
    ids = [10_000_000 + rng.randrange(50_000_000) for _ in range(140_000)]
    containers: dict[str, Any] = {"a list": ids, "an array": array.array("q", ids)}
    if numpy := import_if_installed("numpy"):
        containers["NumPy"] = numpy.array(ids)
    client = glasscache.Client(address, timeout=5)
    raw_client = glasscache.Client(address, timeout=5, dialect="raw")

    def write_and_read(value: Any) -> Any:
        return client.get("ids") if client.set("ids", value) else None

    def write_and_read_pickled(value: Any, level: int | None) -> Any:
        body = pickle.dumps(value, 5)
        raw_client.set("ids", body if level is None else zlib.compress(body, level))
        body = raw_client.get("ids")
        return pickle.loads(body if level is None else zlib.decompress(body))

    for container_name, value in containers.items():
        calls_by_client: dict[str, Callable[[], Any]] = {
            "glasscache": lambda value=value: write_and_read(value),
            "pickle+zlib6": lambda value=value: write_and_read_pickled(value, 6),
            "pickle+zlib1": lambda value=value: write_and_read_pickled(value, 1),
        }
        if (
            container_name == "a list"
        ):  # an array's pickle is too long for a server's usual bound of 1 MB
            calls_by_client["pickle alone"] = lambda value=value: write_and_read_pickled(
                value, None
            )
        yield Row(f"140,000 ids in {container_name}, write and read", 3, calls_by_client)
