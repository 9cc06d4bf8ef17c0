"""Names of other clients for methods of this one: an unknown name's error suggests ours.

They are descriptors that raise, not a `__getattr__`: the interpreter looks up no method fast on a class that
has one, which costs a get 7 % of its instructions.

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


class _ForeignMethod:
    """The name of a method of another client: reading it raises an AttributeError that names our method."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        """Raise the error of a missing attribute, with our method in its text."""
        kind = (
            f"type object {owner.__name__!r}" if instance is None else f"{owner.__name__!r} object"
        )
        raise AttributeError(
            f"{kind} has no attribute {self.name!r}: write {METHODS[self.name]}",
            name=self.name,
            obj=owner if instance is None else instance,
        )


def _is_foreign(owner: type, name: str) -> bool:
    """Return whether a class has this name only as a `_ForeignMethod`, its own or inherited."""
    attributes = (vars(base)[name] for base in owner.__mro__ if name in vars(base))
    return isinstance(next(attributes, None), _ForeignMethod)


class _HidesForeignNames(type):
    """The metaclass of the clients: `dir` of a class leaves out the names of other clients."""

    def __dir__(cls) -> list[str]:
        """Return the names that can be used."""
        return [name for name in super().__dir__() if not _is_foreign(cls, name)]


class SuggestsNames(metaclass=_HidesForeignNames):
    """A base class of the clients: the names of other clients raise an error that names our method."""

    def __dir__(self) -> list[str]:
        """Return the names that can be used."""
        own_names: dict[str, Any] = getattr(self, "__dict__", {})
        names = super().__dir__()
        return [name for name in names if name in own_names or not _is_foreign(type(self), name)]


for _name in METHODS:
    setattr(SuggestsNames, _name, _ForeignMethod(_name))


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
