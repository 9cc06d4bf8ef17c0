"""The calls of a client about keys, in one table: what each takes, and what a miss returns.

The gutter, the migrating client, pipelines, recorders and observers of calls read it, so that a call is added
here and where it is made.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

__all__ = [
    "BULK_METHODS",
    "PACKAGE_METHODS",
    "PUBLIC_METHODS",
    "READ_METHODS",
    "REQUESTS",
    "Request",
]


class Request(NamedTuple):
    """A call: its row in the table. An index is one among the arguments, of which the key is the first."""

    is_read: bool = False
    is_bulk: bool = False
    """Whether it is about many keys."""
    miss: Any = None
    """What a miss returns, unless the call has a default."""
    default_index: int | None = None
    ttl_index: int | None = None
    """The index of a ttl that it always has."""
    is_repeatable: bool = True
    """Whether it may be made again when the first may have been done."""
    reads_first: bool = False
    """Whether it takes a request that reads before the one that writes."""
    changes_items: bool = False
    """Whether it depends on the present value of its key, or returns a unique on which a later call will: of
    such a key a strategy keeps no value, unless the package makes the call to store a value that it made."""


REQUESTS: Final = {
    "get": Request(is_read=True, default_index=1),
    "gets": Request(is_read=True, changes_items=True),
    "gat": Request(is_read=True, default_index=2, ttl_index=1),
    "get_with_meta": Request(is_read=True),
    "get_many": Request(is_read=True, is_bulk=True),
    "gets_many": Request(is_read=True, is_bulk=True, changes_items=True),
    "set": Request(miss=False, ttl_index=2),
    "add": Request(miss=False, ttl_index=2, changes_items=True),
    "replace": Request(miss=False, ttl_index=2),
    "append": Request(miss=False, is_repeatable=False, reads_first=True, changes_items=True),
    "prepend": Request(miss=False, is_repeatable=False, reads_first=True, changes_items=True),
    "cas": Request(ttl_index=3, is_repeatable=False, changes_items=True),
    "set_many": Request(is_bulk=True, ttl_index=1),
    "delete": Request(miss=False),
    "delete_many": Request(is_bulk=True),
    "touch": Request(miss=False, ttl_index=1),
    "incr": Request(is_repeatable=False, changes_items=True),
    "decr": Request(is_repeatable=False, changes_items=True),
    "_reserve": Request(ttl_index=2, changes_items=True),
    "_reservation": Request(changes_items=True),
}
"""The rows by method; those of the package itself begin with an underscore."""

PUBLIC_METHODS: Final = tuple(name for name in REQUESTS if not name.startswith("_"))
PACKAGE_METHODS: Final = tuple(name for name in REQUESTS if name.startswith("_"))
"""What the package calls itself, besides the public methods, before it stores a value that it made."""
BULK_METHODS: Final = frozenset(name for name, row in REQUESTS.items() if row.is_bulk)
READ_METHODS: Final = frozenset(
    name for name, row in REQUESTS.items() if row.is_read and not row.is_bulk
)
"""The reads of one key."""


def default_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a miss returns from a call with these arguments."""
    row = REQUESTS.get(name, Request())
    if row.default_index is None:
        return row.miss
    has_default = len(args) > row.default_index
    return args[row.default_index] if has_default else kwargs.get("default")
