"""Look aside: read the cache; on a miss compute the value and store it.

Usage: python examples/look_aside.py [HOST:PORT]; without an address it starts a server of its own.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

from glasscache import Client, Server


def profile_of(user: int) -> dict[str, object]:
    """Return a profile after the time that a query of a database would take."""
    time.sleep(0.02)
    return {"id": user, "name": f"user {user}", "visits": user * 7}


def main() -> None:
    """Read ten profiles twice and print what each round took."""
    with ExitStack() as stack:
        address = sys.argv[1] if len(sys.argv) > 1 else stack.enter_context(Server()).address
        cache = stack.enter_context(Client(address, timeout=1, on_error="miss"))
        for round_name in ("cold", "warm"):
            started_at = time.perf_counter()
            for user in range(10):
                cache.get_or_set(f"example:user:{user}", lambda user=user: profile_of(user), ttl=60)
            print(
                f"{round_name}: {(time.perf_counter() - started_at) * 1000:.1f} ms for 10 profiles"
            )
        cache.delete_many(f"example:user:{user}" for user in range(10))


if __name__ == "__main__":
    main()
