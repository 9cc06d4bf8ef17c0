"""The types of arguments and results of both clients."""

# No `from __future__ import annotations`: with it, each field's type is a text that Python parses.

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator
    from typing import Literal, Protocol, TypeAlias, TypeVar

    from glasscache.errors import GlasscacheError

    K = TypeVar("K", bound=str | bytes)
    K_co = TypeVar("K_co", bound=str | bytes, covariant=True)

    class ManyKeys(Protocol[K_co]):
        """Any collection of keys, except a text: that is a collection of texts to a type checker."""

        def __iter__(self) -> Iterator[K_co]:
            """Return an iterator of the keys."""
            ...

        def __contains__(self, item: object, /) -> bool:
            """Whether a key is among them. A text's takes only texts, so a text does not fit."""
            ...

    KeysOf: TypeAlias = ManyKeys[K] | Iterator[K]
    Keys: TypeAlias = KeysOf[str | bytes]
    Servers: TypeAlias = str | tuple[str, int] | Iterable[str | tuple[str, int]]
    OnError: TypeAlias = Literal["raise", "miss"] | Callable[[GlasscacheError], bool]
    Ttl: TypeAlias = float | dt.timedelta
    Password: TypeAlias = str | bytes | Callable[[], str | bytes]
    Login: TypeAlias = tuple[bytes, bytes | Callable[[], str | bytes]]

__all__ = ["Item", "Key", "item_of"]

Key = str | bytes


class Item(NamedTuple):
    """A value and what the server knows of it."""

    value: Any
    """The value."""
    cas: int | None
    """Its CAS unique."""
    ttl: int | None
    """Seconds left; None never expires."""
    last_access: int | None
    """Seconds since it was read or written before this call."""
    was_hit: bool | None
    """Whether it was read before this call."""
    is_stale: bool
    """Whether it is kept past its worth."""
    value_bytes: int
    """Bytes of the value on the wire."""
    compute_info: tuple[float, float] | None = None
    """When it was made (Unix time) and the seconds that took, if `get_or_set` stored it with `early=True`."""


def item_of(fields: tuple[Any, ...] | None) -> Item | None:
    """Return the item whose fields the native client has read, with -1 seconds left for none."""
    if fields is None:
        return None
    item = Item(*fields)
    return item._replace(ttl=None) if item.ttl == -1 else item
