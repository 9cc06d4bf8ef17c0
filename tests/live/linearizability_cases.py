"""Small histories with known results: what `linearizability` must accept, and what it must find."""

from __future__ import annotations

import linearizability
from linearizability import NEVER, Operation


def operation(
    start: float,
    end: float,
    verb: str,
    result: str = "done",
    value: object = None,
    **more_fields: object,
) -> Operation:
    """One operation."""
    return Operation(start, end, verb, result, value, **more_fields)  # type: ignore[arg-type]


POSSIBLE_HISTORIES: dict[str, list[Operation]] = {
    "a read during a set sees either value": [
        operation(0, 1, "set", value=1),
        operation(2, 6, "set", value=2),
        operation(3, 4, "get", value=1),
        operation(4, 5, "get", value=2),
    ],
    "a cache may forget": [
        operation(0, 1, "set", value=1),
        operation(2, 3, "get", "miss"),
        operation(4, 5, "add", value=2),
    ],
    "a set that was cut off may happen late": [
        operation(0, 1, "set", value=1),
        operation(2, NEVER, "set", "unknown", 2),
        operation(5, 6, "get", value=1),
        operation(7, 8, "get", value=2),
    ],
    "a flush and a set at once": [
        operation(0, 5, "flush"),
        operation(1, 2, "set", value=1),
        operation(6, 7, "get", value=1),
    ],
    "an empty item is won anew once the cache forgot it": [
        operation(0, 1, "lease", value=b"", unique=1, flags="NW"),
        operation(2, 3, "lease", value=b"", unique=2, flags="NW"),
    ],
    "an invalidated value is won once and stale for the others": [
        operation(0, 1, "set", value=1),
        operation(2, 3, "invalidate"),
        operation(4, 5, "lease", value=1, flags="WX"),
        operation(6, 7, "lease", value=1, flags="XZ"),
        operation(8, 9, "set", value=2),
        operation(10, 11, "lease", value=2),
    ],
    "a touch of a cut off set": [
        operation(0, NEVER, "set", "unknown", 1),
        operation(1, 2, "touch"),
        operation(3, 4, "get", value=1),
    ],
}

IMPOSSIBLE_HISTORIES: dict[str, list[Operation]] = {
    "an old value after a newer one": [
        operation(0, 1, "set", value=1),
        operation(2, 3, "set", value=2),
        operation(4, 5, "get", value=1),
    ],
    "two reads that see two sets in reverse": [
        operation(0, 1, "set", value=1),
        operation(2, 9, "set", value=2),
        operation(3, 4, "get", value=2),
        operation(5, 6, "get", value=1),
    ],
    "a value after the flush's reply": [
        operation(0, 1, "set", value=1),
        operation(2, 3, "flush"),
        operation(4, 5, "get", value=1),
    ],
    "what was derived from a flushed value": [
        operation(0, 1, "set", value=b"1;"),
        operation(2, 3, "flush"),
        operation(4, 5, "append", value=b"2;"),
    ],
    "a value after its delete": [
        operation(0, 1, "set", value=1),
        operation(2, 3, "delete"),
        operation(4, 5, "get", value=1),
    ],
    "a value after a miss": [
        operation(0, 1, "set", value=1),
        operation(2, 3, "get", "miss"),
        operation(4, 5, "get", value=1),
    ],
    "a cas under a unique that is not the present one": [
        operation(0, 1, "set", value=1, unique=1),
        operation(2, 3, "set", value=2, unique=2),
        operation(4, 5, "cas", value=3, unique=1),
    ],
    "two cas from one unique": [
        operation(0, 1, "set", value=1, unique=1),
        operation(2, 9, "cas", value=2, unique=1),
        operation(2, 9, "cas", value=3, unique=1),
    ],
    "a cas under the unique from before an invalidation": [
        operation(0, 1, "set", value=1, unique=1),
        operation(2, 3, "invalidate"),
        operation(4, 5, "cas", value=2, unique=1),
    ],
    "a number counted twice": [
        operation(0, 1, "set", value=1),
        operation(2, 9, "incr", value=2),
        operation(2, 9, "incr", value=2),
    ],
    "two winners of one stale value": [
        operation(0, 1, "set", value=1),
        operation(2, 3, "invalidate"),
        operation(4, 9, "lease", value=1, unique=1, flags="WX"),
        operation(4, 9, "lease", value=1, unique=1, flags="WX"),
    ],
    "two winners of one empty item": [
        operation(0, 1, "lease", value=b"", unique=1, flags="NW"),
        operation(2, 3, "lease", value=b"", unique=1, flags="W"),
    ],
    "an invalidated value that is served as fresh": [
        operation(0, 1, "set", value=1),
        operation(2, 3, "invalidate"),
        operation(4, 5, "lease", value=1),
    ],
}


def check_all_cases() -> None:
    """Raises an error if a history is not decided as expected."""
    for name, history in POSSIBLE_HISTORIES.items():
        result = linearizability.check_history(history)
        assert not result.violation, f"{name}: {result}"
        assert not result.is_undecided, name
    for name, history in IMPOSSIBLE_HISTORIES.items():
        assert linearizability.check_history(history).violation, f"{name} is not found"
    assert linearizability.find_reused_unique(
        [
            operation(0, 1, "get", value=1, unique=7),
            operation(2, 3, "get", value=2, unique=7),
        ]
    )
    history = [
        operation(0, 1, "set", value=1, ttl_s=2),
        operation(2, 3, "get", value=1),
    ]
    assert not linearizability.find_expired_hit(history, 1.3)
    assert linearizability.find_expired_hit([*history, operation(5, 6, "get", value=1)], 1.3)
    print(
        f"{len(POSSIBLE_HISTORIES)} right and {len(IMPOSSIBLE_HISTORIES)} wrong histories"
        " are decided as expected"
    )
