"""A fetch from the application, and the lease under which it may be stored.

The lease of a cold key is a record at the key itself, that of a stale one a key beside it. Both end by
themselves, and a response is stored only in place of what was there when its fetch began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from glasscache._steps import call
from glasscache.errors import GlasscacheError
from glasscache.web._entry import UncacheableRecord, encode_record
from glasscache.web._policy import STALE_FOR_ERROR
from glasscache.web._shared_state import new_token

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._entry import Entry
    from glasscache.web._fields import Fields
    from glasscache.web._lookup import Lookup
    from glasscache.web._policy import Refusal
    from glasscache.web._shared_state import SharedState

__all__ = ["UNCACHEABLE_S", "Fetch", "Lease"]

UNCACHEABLE_S: Final = 10
"""So long requests for a response that could not be stored do not wait for each other."""
SELF_REDIRECT: Final = "self-redirect"
"""Why a redirect is not stored whose target has the same key: the application wants another spelling."""
FAILED_S: Final = 1
"""The same for a failed application."""


@dataclass(slots=True)
class Fetch:
    """The application is to reply.

    Attributes:
        forward_reason: parameter `fwd` of Cache-Status.
        fields: of the request to the application.
        method: of that request.
        entry: what is stored and stale, if anything.
        cas_unique: of what the response replaces; None to add it, if the key is free.
        may_store: whether the response may be stored.
        is_leased: whether this request holds the lease of the key.
        token: of the lease of a refresh.
        is_as_sent: whether the application gets the request as it was sent, past the cache.

    """

    forward_reason: bytes
    fields: Fields
    method: str
    entry: Entry | None = None
    cas_unique: int | None = None
    may_store: bool = False
    is_leased: bool = False
    token: str = ""
    is_as_sent: bool = False


@dataclass(slots=True)
class Lease:
    """What a fetch may store, and where."""

    shared: SharedState
    client: Any
    lookup: Lookup
    fetch: Fetch

    def release(self) -> Generator[Any, Any, None]:
        """Give the lease back, so that another may fetch (as steps)."""
        if not self.fetch.is_leased:
            return
        self.fetch.is_leased = False
        try:
            if self.fetch.token:
                yield call(self.client, "delete", self.lookup.lease_key)
            elif self.fetch.cas_unique is not None:
                # Stored with a life that is over: a removal on the condition that the record is still ours.
                yield call(
                    self.client, "cas", self.lookup.response_key, b"", self.fetch.cas_unique, ttl=-1
                )
        except GlasscacheError:
            self.shared.counters["store_errors"] += 1

    def mark_uncacheable(self, refusal: Refusal, status: int) -> Generator[Any, Any, None]:
        """Note that the response cannot be stored, so that no request waits for the next."""
        self.shared.counters["refused"] += 1
        is_failure = status in STALE_FOR_ERROR
        if self.fetch.cas_unique is None or (self.fetch.token and is_failure):
            yield from self.release()
            return
        record = encode_record(UncacheableRecord(self.lookup.digest, refusal.reason, new_token()))
        ttl = FAILED_S if is_failure else UNCACHEABLE_S
        try:
            yield call(
                self.client, "cas", self.lookup.response_key, record, self.fetch.cas_unique, ttl=ttl
            )
            if self.fetch.token:
                yield call(self.client, "delete", self.lookup.lease_key)
        except GlasscacheError:
            self.shared.counters["store_errors"] += 1
        self.fetch.is_leased = False
