"""Visitors of a small shop: something to watch with `glasscache stats`, `why` and `record_keys.py`.

Usage: python examples/visitors.py [HOST:PORT [SECONDS]]; without an address it starts a server of its own.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import ExitStack

from glasscache import Client, Server

TTLS = {"user": 60, "page": 60, "price": 1}
"""Seconds that each kind of item lives; prices are soon out of date."""


def visit(cache: Client, rng: random.Random) -> int:
    """Read one item of each kind, store those that are missing, and return how many were."""
    missing_count = 0
    for key_kind, ttl in TTLS.items():
        key = f"{key_kind}:{min(int(rng.paretovariate(0.8)), 2000)}"
        if cache.get(key) is None:
            missing_count += 1
            cache.set(key, {"kind": key_kind, "text": "x" * rng.randrange(20, 2000)}, ttl=ttl)
    return missing_count


def main() -> None:
    """Let visitors come until the time is over, and print how many did and what they missed."""
    with ExitStack() as stack:
        address = sys.argv[1] if sys.argv[1:] else stack.enter_context(Server()).address
        seconds = float(sys.argv[2]) if sys.argv[2:] else 1.0
        cache = stack.enter_context(Client(address, timeout=1, on_error="miss"))
        rng = random.Random(17)  # noqa: S311 - visitors, not secrets
        visit_count = missing_count = 0
        started_at = time.monotonic()
        while time.monotonic() - started_at < seconds:
            missing_count += visit(cache, rng)
            visit_count += 1
            time.sleep(0.002)
        print(
            f"{visit_count:,} visits, {missing_count:,} of {visit_count * len(TTLS):,} items had to be made"
        )


if __name__ == "__main__":
    main()
