"""Times libcachesim on a trace: CPU seconds of each replay alone.

Reads a file of 24-byte oracleGeneral records (u32 time, u64 key, u32 size, i64 next use) through
the library's own reader, as `bench/sim/run.py` writes it.
"""

import json
import sys
import time

import libcachesim as lcs

POLICIES = {
    "LRU": lcs.LRU,
    "FIFO": lcs.FIFO,
    "Clock": lcs.Clock,
    "SIEVE": lcs.Sieve,
    "S3-FIFO": lcs.S3FIFO,
    "LFU": lcs.LFU,
    "ARC": lcs.ARC,
    "2Q": lcs.TwoQ,
    "SLRU": lcs.SLRU,
    "LIRS": lcs.LIRS,
    "W-TinyLFU": lcs.WTinyLFU,
    "GDSF": lcs.GDSF,
    "LHD": lcs.LHD,
    "LeCaR": lcs.LeCaR,
    "Belady": lcs.Belady,
}


def replay(path: str, policy: str, capacity: int) -> tuple[float, float]:
    """Returns CPU seconds of one replay and its miss ratio."""
    reader = lcs.TraceReader(
        path, lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam(ignore_obj_size=True)
    )
    cache = POLICIES[policy](cache_size=capacity)
    started_at = time.process_time()
    miss_ratio, _ = cache.process_trace(reader)
    return time.process_time() - started_at, miss_ratio


def main() -> None:
    """Replays the (policy, capacity) pairs on the command line and prints one JSON list."""
    path, *pairs = sys.argv[1:]
    results = []
    for pair in pairs:
        policy, capacity = pair.split(":")
        cpu_s, miss_ratio = replay(path, policy, int(capacity))
        results.append(
            {
                "policy": policy,
                "capacity": int(capacity),
                "seconds": cpu_s,
                "miss_ratio": miss_ratio,
            }
        )
    print(json.dumps({"results": results}))


if __name__ == "__main__":
    main()
