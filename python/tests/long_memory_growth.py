"""Ten million operations with values of 10 B to 1 MB: the client's process does not grow.

    scripts/client-long resident [--operations 10000000] [--seed N]

Sizes are such that each decade moves as many bytes as the next. Resident memory is read a hundred times; the
slope is that of a straight line through the readings after the first fifth, in which buffers find their size.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

from glasscache import Client
from glasscache.server import Server

VALUE_BYTES_MIN, VALUE_BYTES_MAX = 10, 1_000_000
READING_COUNT = 100
GROWTH_BYTES_MAX = 1 << 20
"""Bytes by which the line may rise over all operations: less than one value of the largest size."""


def resident_bytes() -> int:
    page_count = int(Path("/proc/self/statm").read_text().split()[1])
    return page_count * 4096


def random_size(rng: random.Random) -> int:
    """Return a length whose probability falls as it grows."""
    return int(
        1 / (1 / VALUE_BYTES_MAX + rng.random() * (1 / VALUE_BYTES_MIN - 1 / VALUE_BYTES_MAX))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    rng = random.Random(arguments.seed)
    random_bytes = rng.randbytes(VALUE_BYTES_MAX)
    keys = [f"key{number}" for number in range(1000)]
    sizes = dict.fromkeys(keys, 0)
    readings: list[tuple[int, int]] = []
    started_at = time.monotonic()
    with Server(memory="256M") as server, Client(server.address, timeout=30) as client:
        operations = 0
        while operations < arguments.operations:
            operations_at_next_reading = arguments.operations * (len(readings) + 1) // READING_COUNT
            while operations < operations_at_next_reading:
                chosen_keys = [keys[rng.randrange(1000)] for _ in range(20)]
                for key in chosen_keys[:5]:
                    sizes[key] = random_size(rng)
                    client.set(key, random_bytes[: sizes[key]])
                for key in chosen_keys[5:10]:
                    value = client.get(key)
                    assert value is None or value == random_bytes[: sizes[key]], key
                for key in chosen_keys[10:12]:
                    sizes[key] = random_size(rng)
                    client.set(key, random_bytes[: sizes[key]], noreply=True)
                values = client.get_many(chosen_keys)
                assert all(value == random_bytes[: sizes[key]] for key, value in values.items())
                operations += 12 + len(chosen_keys)
            readings.append((operations, resident_bytes()))
            if len(readings) % 10 == 0:
                duration_s = time.monotonic() - started_at
                print(
                    f"{operations:>12,}  {readings[-1][1] / 2**20:8.2f} MiB  {duration_s:6.0f} s",
                    flush=True,
                )
    readings_after_warm_up = readings[READING_COUNT // 5 :]
    regression = statistics.linear_regression(
        [operations for operations, _ in readings_after_warm_up],
        [resident for _, resident in readings_after_warm_up],
    )
    growth_bytes = regression.slope * arguments.operations
    print(
        f"slope {regression.slope:.6f} bytes an operation: {growth_bytes / 1024:.0f} KiB over all of them"
    )
    sys.exit(0 if growth_bytes <= GROWTH_BYTES_MAX else 1)


if __name__ == "__main__":
    main()
