"""140,000 ids of eight digits, as a list, an array and NumPy's, each against its pickle."""

from __future__ import annotations

import array
import pickle
import random
import zlib
from typing import TYPE_CHECKING, Any

import glasscache
from peers import installed
from rounds import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def number_rows(address: str) -> Iterator[Row]:
    """Yield 140,000 ids of eight digits, as a list, an array and NumPy's, each against its pickle."""
    chance = random.Random(140_000)
    ids = [10_000_000 + chance.randrange(50_000_000) for _ in range(140_000)]
    forms: dict[str, Any] = {"a list": ids, "an array": array.array("q", ids)}
    if numpy := installed("numpy"):
        forms["NumPy"] = numpy.array(ids)
    ours = glasscache.Client(address, timeout=5)
    plain = glasscache.Client(address, timeout=5, dialect="raw")

    def packed(value: Any) -> Any:
        return ours.get("ids") if ours.set("ids", value) else None

    def pickled(value: Any, level: int | None) -> Any:
        body = pickle.dumps(value, 5)
        plain.set("ids", body if level is None else zlib.compress(body, level))
        body = plain.get("ids")
        return pickle.loads(body if level is None else zlib.decompress(body))

    for form, value in forms.items():
        calls_by_client: dict[str, Callable[[], Any]] = {
            "glasscache": lambda v=value: packed(v),
            "pickle+zlib6": lambda v=value: pickled(v, 6),
            "pickle+zlib1": lambda v=value: pickled(v, 1),
        }
        if form == "a list":  # an array's pickle is too long for a server's usual bound of 1 MB
            calls_by_client["pickle alone"] = lambda v=value: pickled(v, None)
        yield Row(f"140,000 ids in {form}, write and read", 3, calls_by_client)
