"""What the middlewares share: settings, counters, keys, and how what was read is understood. No I/O.

`Core` belongs to one middleware in one process. Keys are `namespace:` and 32 hexadecimal digits for a
response, with a suffix for its variants, its pieces and the lease of its refresh.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from glasscache.web._entry import Entry, Unreadable, VaryMark, decode
from glasscache.web._message import NO_SETTINGS, Request, Settings, normal_value
from glasscache.web._policy import decide_reuse
from glasscache.web._purged import Site, Tag
from glasscache.web.settings import CacheSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from glasscache.web._entry import Record
    from glasscache.web._fields import Fields
    from glasscache.web._policy import Use

__all__ = ["Core", "Lookup", "RuleSet"]

PIECE_BYTES: Final = 512 << 10
"""Bodies are stored in pieces of so many bytes, which fit a server with the usual limit of 1 MiB."""
INLINE_BYTES_MAX: Final = 512 << 10
"""A body of at most so many bytes is stored with its head in one record."""
WINDOW_PIECES: Final = 8
"""Pieces that a hit reads at once: 4 MiB of memory."""
EARLY_COSTS_MAX: Final = 20
"""Before the last 20 costs of a lifetime the chance of an early refresh is below one in 10^8."""
HINTS_MAX: Final = 16384
"""Keys whose variant and tags are remembered, to be read in the same round trip."""
DEFAULTS: Final = CacheSettings()


class RuleSet(Protocol):
    """What the core needs of `glasscache.web.Rules`."""

    def decide(self, request: Request) -> Settings:
        """Return what rules say of a request."""
        ...

    def decide_response(
        self, settings: Settings, request: Request, status: int, fields: Fields
    ) -> Settings:
        """Return what rules say of a response, its request's settings included."""
        ...


class Core:
    """Settings, counters and hints of a middleware."""

    def __init__(
        self,
        rules: RuleSet | None = None,
        settings: CacheSettings = DEFAULTS,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set the middleware up."""
        self.rules, self.settings, self.clock = rules, settings, clock
        self.namespace, self.version = settings.namespace, settings.version.encode()
        self.max_bytes, self.lease, self.early = settings.max_bytes, settings.lease, settings.early
        self.wait = settings.lease if settings.wait is None else settings.wait
        self.site_key = f"{settings.namespace}:site"
        self.counters: Counter[str] = Counter()
        self._hints: dict[str, tuple[str, ...]] = {}
        self._site: tuple[Any, Site | None] = (None, None)

    def settings_of(self, request: Request) -> Settings:
        """Return what the rules say of a request."""
        return NO_SETTINGS if self.rules is None else self.rules.decide(request)

    def key_of(self, digest: bytes) -> str:
        """Return the key of a digest."""
        return f"{self.namespace}:{digest.hex()}"

    def tag_key(self, tag: bytes) -> str:
        """Return the key of a tag's record."""
        import hashlib  # noqa: PLC0415 - few responses have tags

        return f"{self.namespace}:t:{hashlib.blake2b(tag, digest_size=12).hexdigest()}"

    def variant_key(self, key: str, mark: VaryMark, request: Request) -> str:
        """Return the key of the variant that a request selects."""
        import hashlib  # noqa: PLC0415 - likewise

        named = request.named
        values = b"\n".join(normal_value(name, named.get(name)) for name in mark.names)
        return f"{key}.{mark.id}{hashlib.blake2b(values, digest_size=8).hexdigest()}"

    def piece_key(self, write_id: int, index: int) -> str:
        """Return the key of a piece of a body."""
        return f"{self.namespace}:b:{write_id:016x}.{index}"

    def hint(self, key: str) -> tuple[str, ...]:
        """Return the keys that were needed beside `key` the last time."""
        return self._hints.get(key, ())

    def remember(self, key: str, more: tuple[str, ...]) -> None:
        """Keep the keys that were needed beside `key`."""
        if self._hints.get(key, ()) != more:
            if len(self._hints) >= HINTS_MAX:
                self._hints.pop(next(iter(self._hints)))
            self._hints[key] = more

    def site_of(self, data: Any) -> Site | None:
        """Return the record of purges that a value holds; it is parsed only when it has changed."""
        known, site = self._site
        if data is not None and data == known:
            return site
        site = None if data is None else Site.decode(data)
        self._site = (data, site)
        return site


class Lookup:
    """What the store holds for one request: read in one trip, or in two when there is no hint yet."""

    __slots__ = (
        "_core", "_found", "_is_early", "_request", "digest", "entry", "is_soft", "key", "keys_read", "mark",
        "record", "settings", "site", "target",
    )  # fmt: skip

    def __init__(self, core: Core, request: Request, settings: Settings) -> None:
        """Begin to look."""
        self._core, self._request, self.settings = core, request, settings
        self.digest = request.digest(core.version, settings)
        self.key = core.key_of(self.digest)
        self.reset()

    def reset(self) -> None:
        """Forget what was read."""
        self._found: dict[str, Any] = {}
        self._is_early: bool | None = None
        self.keys_read: set[str] = set()
        self.site: Site | None = None
        self.mark: VaryMark | None = None
        self.record: Record | None = None
        self.entry: Entry | None = None
        self.is_soft = False
        self.target = self.key
        """The key at which the response is stored: the variant's if it varies."""

    def first_keys(self) -> list[str]:
        """Return the keys to read first."""
        return [self._core.site_key, self.key, *self._core.hint(self.key)]

    def take(self, keys: list[str], found: dict[str, Any]) -> list[str]:
        """Take what was read under keys; return those that must be read too, if any."""
        self._found.update(found)
        self.keys_read.update(keys)
        core = self._core
        self.site = core.site_of(self._found.get(core.site_key))
        self.mark, self.record, self.entry, self.is_soft = None, None, None, False
        record = self._record(self.key)
        needed: tuple[str, ...] = ()
        if isinstance(record, VaryMark):
            self.mark = record
            self.target = core.variant_key(self.key, record, self._request)
            needed = (self.target,)
            if self.target not in self.keys_read:
                return [self.target]
            record = self._record(self.target)
        self.record = record
        if not isinstance(record, Entry) or self.site is None:
            return []
        if record.tags:
            needed += tuple(core.tag_key(tag) for tag in record.tags)
            missing = [key for key in needed if key not in self.keys_read]
            if missing:
                return missing
        if needed:
            core.remember(self.key, needed)
        self.entry = self._valid(record)
        return []

    def _record(self, key: str) -> Record | None:
        data = self._found.get(key)
        if data is None:
            return None
        try:
            return decode(data, self.digest)
        except Unreadable:
            self._core.counters["unreadable"] += 1
            return None

    @property
    def is_unreadable(self) -> bool:
        """Whether the key holds something that cannot be read, which must go before another is stored."""
        return self.record is None and self._found.get(self.target) is not None

    def holds(self, data: Any, key: str | None = None) -> bool:
        """Whether `data` is what was read at a key, the target by default."""
        return data is not None and data == self._found.get(key or self.target)

    def put(self, data: bytes) -> None:
        """Note that `data` was stored at the target."""
        self._found[self.target] = data

    def _valid(self, entry: Entry) -> Entry | None:
        """Return the entry unless it was purged; notes whether it was purged softly."""
        site = self.site
        if site is None:
            return None
        is_gone, self.is_soft = site.state_of(entry.url, entry.seq)
        if self.mark is not None and entry.seq < self.mark.soft:
            self.is_soft = True
        for tag in entry.tags:
            state = Tag.decode(self._found.get(self._core.tag_key(tag)))
            if state is None or entry.seq < state.hard:
                return None
            if entry.seq < state.soft:
                self.is_soft = True
        return None if is_gone else entry

    def use(self, now: float) -> Use | None:
        """Return what may be done with the entry; None if there is none."""
        if self.entry is None:
            return None
        return decide_reuse(self.entry, self._request, self.settings, now, self.is_soft)

    def is_due_early(self, now: float) -> bool:
        """Whether to refresh a fresh entry already, the likelier the closer its end and the dearer it is.

        Vattani et al., "Optimal Probabilistic Cache Stampede Prevention", 2015, with the measured cost.
        """
        entry = self.entry
        if entry is None or not self._core.early:
            return False
        left = entry.fresh - entry.age(now)
        early = self._core.early
        cost = entry.cost_ms / 1000 if early is True else float(early)
        if left > EARLY_COSTS_MAX * cost:
            return False
        if self._is_early is None:  # decided once a request: two decisions would make it rarer
            self._is_early = left <= -cost * math.log(1 - random.random())  # noqa: S311 - spreads refreshes
        return self._is_early


def new_token() -> str:
    """Return a name that no other writer has."""
    return secrets.token_hex(8)


def new_write_id() -> int:
    """Return a name of a body's pieces that no other write has; never 0."""
    return secrets.randbits(64) | 1
