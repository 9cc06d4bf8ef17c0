"""What the store holds for one request, and what may be done with it. No I/O.

The keys of a response, of its variant and of its tags' purges are read in one trip where an earlier request
of the process needed the same ones, else in two or three.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any, Final

from glasscache.web._entry import Entry, VaryRecord
from glasscache.web._kept_hits import KeptHit
from glasscache.web._policy import decide_reuse
from glasscache.web._purge_log import TagPurges

if TYPE_CHECKING:
    from glasscache.web._entry import Record
    from glasscache.web._message import Request, Settings
    from glasscache.web._policy import Reuse
    from glasscache.web._purge_log import PurgeLog
    from glasscache.web._shared_state import SharedState

__all__ = ["Lookup"]

EARLY_COSTS_MAX: Final = 20
"""Before the last 20 costs of a lifetime the chance of an early refresh is below one in 10^8."""


class Lookup:
    """What the store holds for one request: read in one trip, or in two when there is no hint yet."""

    __slots__ = (
        "_refreshes_early", "_request", "_shared", "_values", "digest", "entry", "is_soft_purged",
        "keys_read", "primary_key", "purge_log", "record", "response_key", "settings", "vary_record",
    )  # fmt: skip

    def __init__(self, shared: SharedState, request: Request, settings: Settings) -> None:
        """Begin a lookup; nothing is read yet."""
        self._shared, self._request, self.settings = shared, request, settings
        self.digest, self.primary_key = shared.digest_and_key(request, settings)
        self.reset()

    def reset(self) -> None:
        """Forget what was read."""
        self._values: dict[str, Any] = {}
        self._refreshes_early: bool | None = None
        self.keys_read: set[str] = set()
        self.purge_log: PurgeLog | None = None
        self.vary_record: VaryRecord | None = None
        self.record: Record | None = None
        self.entry: Entry | None = None
        self.is_soft_purged = False
        self.response_key = self.primary_key
        """Where the response is stored: at the primary key, or at that of its variant (RFC 9111, 4.1)."""

    @property
    def lease_key(self) -> str:
        """The key of the lease under which a stored response is refreshed."""
        return f"{self.response_key}:l"

    def first_keys(self) -> list[str]:
        """Return the keys to read first."""
        return [
            self._shared.purge_log_key,
            self.primary_key,
            *self._shared.hinted_keys(self.primary_key),
        ]

    def add_values(self, keys: list[str], values: dict[str, Any]) -> list[str]:
        """Add the values that were read under keys; return the keys that must be read too, if any."""
        shared = self._shared
        # The usual lookup is one read, whose outcome needs no copy.
        self._values = {**self._values, **values} if self._values else values
        self.keys_read.update(keys)
        self.purge_log = shared.decode_purge_log(self._values.get(shared.purge_log_key))
        self.vary_record, self.record, self.entry, self.is_soft_purged = None, None, None, False
        record = self._decoded_record(self.primary_key)
        more_keys: tuple[str, ...] = ()
        if isinstance(record, VaryRecord):
            self.vary_record = record
            self.response_key = shared.variant_key(self.primary_key, record, self._request)
            more_keys = (self.response_key,)
            if self.response_key not in self.keys_read:
                return [self.response_key]
            record = self._decoded_record(self.response_key)
        self.record = record
        if not isinstance(record, Entry) or self.purge_log is None:
            return []
        if record.tags:
            more_keys += tuple(shared.tag_key(tag) for tag in record.tags)
            unread_keys = [key for key in more_keys if key not in self.keys_read]
            if unread_keys:
                return unread_keys
        if more_keys:
            shared.remember_keys(self.primary_key, more_keys)
        self.entry = self._entry_unless_purged(record)
        return []

    def _decoded_record(self, key: str) -> Record | None:
        data = self._values.get(key)
        return None if data is None else self._shared.decode_record(key, data, self.digest)

    @property
    def is_unreadable(self) -> bool:
        """Whether the key holds something that cannot be read, which must go before another is stored."""
        return self.record is None and self._values.get(self.response_key) is not None

    def is_unchanged(self, data: Any, key: str | None = None) -> bool:
        """Whether `data` is what was read at a key, the response key by default."""
        return data is not None and data == self._values.get(key or self.response_key)

    def remember_stored(self, data: bytes) -> None:
        """Remember that `data` was stored at the response key."""
        self._values[self.response_key] = data

    def _entry_unless_purged(self, entry: Entry) -> Entry | None:
        """Return the entry unless it was purged; notes whether it was purged softly."""
        purge_log = self.purge_log
        if purge_log is None:
            return None
        is_removed, self.is_soft_purged = purge_log.purge_state_of(entry.url, entry.purge_seq)
        if self.vary_record is not None and entry.purge_seq < self.vary_record.stale_before:
            self.is_soft_purged = True
        for tag in entry.tags:
            tag_purges = TagPurges.decode(self._values.get(self._shared.tag_key(tag)))
            if tag_purges is None or entry.purge_seq < tag_purges.removed_before:
                return None
            if entry.purge_seq < tag_purges.stale_before:
                self.is_soft_purged = True
        return None if is_removed else entry

    def reuse_at(self, now: float) -> Reuse | None:
        """Return what may be done with the entry; None if there is none."""
        if self.entry is None:
            return None
        return decide_reuse(self.entry, self._request, self.settings, now, self.is_soft_purged)

    def is_due_for_early_refresh(self, now: float) -> bool:
        """Whether to refresh a fresh entry already, likelier the closer its end is and the more it costs.

        Vattani et al., "Optimal Probabilistic Cache Stampede Prevention", 2015, with the measured cost.
        """
        entry = self.entry
        if entry is None or not self._shared.early:
            return False
        cost_s = self._early_cost_s_of(entry)
        remaining_s = entry.fresh_s - entry.age(now)
        if remaining_s > EARLY_COSTS_MAX * cost_s:
            return False
        # Decided once a request: two decisions would make it rarer.
        if self._refreshes_early is None:
            self._refreshes_early = remaining_s <= -cost_s * math.log(1 - random.random())  # noqa: S311 - spreads refreshes
        return self._refreshes_early

    def _early_cost_s_of(self, entry: Entry) -> float:
        """Return the seconds by which early refreshes of an entry reckon; 0 where there are none."""
        early = self._shared.early
        return entry.cost_ms / 1000 if early is True else float(early)

    def kept_hit(self, entry: Entry) -> KeptHit:
        """Return the decision to send the fresh entry, until it may be refreshed early or is stale."""
        fresh_until = entry.born_at + entry.fresh_s - EARLY_COSTS_MAX * self._early_cost_s_of(entry)
        # A copy: a refresh notes in the values of its lookup what it has stored.
        return KeptHit(list(self._values), dict(self._values), entry, fresh_until)
