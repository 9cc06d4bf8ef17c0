"""Names of other clients for methods of this one: an unknown name's error suggests ours.

Also the error for one key where an iterable of keys is expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_TTL: Final = "ttl=, in seconds or as a timedelta"

KEYWORDS: Final = {
    **dict.fromkeys(
        ("expire", "expires", "expires_in", "expire_after", "expiration", "exptime", "ex", "exp", "time"),
        _TTL,
    ),
    "timeout": f"{_TTL}; the seconds that the call itself may take are deadline=",
    "px": "ttl=, in seconds: 250 ms is 0.25",
    "nx": "add(), which stores only if there is none",
    "xx": "replace(), which stores only if there is one",
    "cas_unique": "cas=",
    "cas_id": "cas=",
    "no_reply": "noreply=",
    "value_default": "default=",
    "default_value": "initial=",
    "key_prefix": "Client(..., namespace=)",
    "flags": "Codec(dialect), which chooses the flags",
    "min_compress_len": "Codec(threshold=)",
}  # fmt: skip
"""Keywords of other clients' calls, and what is written for them here."""

METHODS: Final = {
    "get_multi": "get_many", "mget": "get_many", "gets_multi": "gets_many", "set_multi": "set_many",
    "mset": "set_many", "delete_multi": "delete_many", "flush_all": "flush", "flushall": "flush",
    "expire": "touch", "setex": "set(key, value, ttl)", "setnx": "add",
    "incrby": "incr", "decrby": "decr", "increment": "incr", "decrement": "decr", "remove": "delete",
    "unlink": "delete", "get_stats": "server_stats", "fetch": "get_or_set", "has_key": "get",
    "exists": "get", "disconnect_all": "close", "quit": "close", "add_server": "set_servers",
    "remove_server": "set_servers", "clone": "Client(...)", "get_and_touch": "gat",
    "check_and_set": "cas",
}  # fmt: skip
"""Methods of other clients, and ours."""


def unknown_keywords_error(method: str, keywords: Iterable[str]) -> TypeError:
    """Return the error for keywords that a method does not have."""
    keyword = next(iter(keywords))
    replacement = KEYWORDS.get(keyword)
    hint = f": write {replacement}" if replacement else ""
    return TypeError(f"{method}() got an unexpected keyword argument {keyword!r}{hint}")


def unknown_attribute_error(owner: object, name: str) -> AttributeError:
    """Return the error for an attribute that an object does not have."""
    replacement = METHODS.get(name)
    hint = f": write {replacement}" if replacement else ""
    return AttributeError(
        f"{type(owner).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=owner
    )


def one_key_error(key: Any) -> TypeError:
    """Return the error for one key where an iterable of keys is expected."""
    type_name = type(key).__name__
    return TypeError(
        f"keys is one {type_name}, not an iterable of keys: write [key], or call get or delete"
    )


def keys_of(keys: Any) -> list[Any]:
    """Return the keys of an iterable as a list; one text is not a list of its letters."""
    if isinstance(keys, str | bytes | bytearray | memoryview):
        raise one_key_error(keys)
    return list(keys)
