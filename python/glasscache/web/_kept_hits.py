"""Fresh responses that were decided on a moment ago: what the next hit need not decide again.

Of most requests for a fresh response nothing counts but the URL and which fields there are. What was decided
for one of them holds for all with the same `_message.decision_key_of`, as long as the store holds the same
bytes under the same keys and no moment has come at which the decision may be another one. A hit reads the
store as before and compares; whatever differs is decided by `_exchange` from the beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from glasscache.web._bounded_cache import BoundedCache
from glasscache.web._reply import hit_fields

if TYPE_CHECKING:
    from glasscache.web._entry import Entry
    from glasscache.web._fields import Fields

__all__ = ["FirstRead", "KeptHit", "KeptHits"]

KEPT_BYTES_MAX: Final = 3 << 20
"""For the decisions of a middleware, with the responses."""
_HIT_BYTES: Final = 4096
"""What a decision takes in memory beside its key and the values."""


class FirstRead(NamedTuple):
    """What was read for a request before it is decided on: when, which keys, and their values."""

    began_at: float
    keys: list[str]
    values: dict[str, Any]


class KeptHit:
    """A decision to send a stored response as it is, and all that it was made from.

    Attributes:
        keys: which were read for it.
        entry: the response, whose body is in it.

    """

    __slots__ = ("_fresh_until", "_rendered", "_values", "entry", "keys")

    def __init__(
        self, keys: list[str], values: dict[str, Any], entry: Entry, fresh_until: float
    ) -> None:
        """Keep a decision that holds for these values before the moment `fresh_until`."""
        self.keys, self._values, self.entry = keys, values, entry
        self._fresh_until = fresh_until
        self._rendered: tuple[float, float, Fields] = (0.0, 0.0, [])
        """Fields, and from when until when they are sent: a second, in which the age is the same."""

    @property
    def kept_bytes(self) -> int:
        """Return about what it takes in memory: the values and the parts of the record made of them."""
        return 2 * sum(map(len, self._values.values())) + _HIT_BYTES

    def fields_at(self, values: dict[str, Any], now: float) -> Fields | None:
        """Return the fields to send now if these values were read; None if it is to be decided anew."""
        if now >= self._fresh_until or values != self._values:
            return None
        begins_at, ends_at, fields = self._rendered
        if not begins_at <= now < ends_at:
            fields, born_at = hit_fields(self.entry, now), self.entry.born_at
            begins_at = born_at + int(self.entry.age(now))
            self._rendered = begins_at, begins_at + 1, fields
        return fields.copy()


class KeptHits:
    """The decisions of a middleware by their keys; of responses that vary, by the selecting values, too."""

    def __init__(self) -> None:
        """Begin without decisions."""
        self._hits = BoundedCache[bytes, KeptHit](KEPT_BYTES_MAX)
        self._vary_names = BoundedCache[bytes, tuple[bytes, ...]](KEPT_BYTES_MAX // 4)

    def find(self, decision_key: bytes | None, fields: Fields) -> KeptHit | None:
        """Return the kept decision for a request with this key and these fields, if there is one."""
        if decision_key is None:
            return None
        names = self._vary_names.entries.get(decision_key)
        if names:
            decision_key = _key_of_variant(decision_key, names, fields)
        return self._hits.entries.get(decision_key)

    def keep(
        self, decision_key: bytes, names: tuple[bytes, ...], fields: Fields, kept_hit: KeptHit
    ) -> None:
        """Keep a decision for requests with this key, and with the values of the fields of these names."""
        if self._vary_names.entries.get(decision_key, ()) != names:
            self._vary_names.put(decision_key, names, len(decision_key) + sum(map(len, names)))
        key = _key_of_variant(decision_key, names, fields) if names else decision_key
        self._hits.put(key, kept_hit, len(key) + kept_hit.kept_bytes)


def _key_of_variant(decision_key: bytes, names: tuple[bytes, ...], fields: Fields) -> bytes:
    """Return a key with the values of fields, in which neither a zero byte nor a line feed can be."""
    headers = dict(fields)
    return decision_key + b"".join([b"\0" + headers.get(name, b"\n") for name in names])
