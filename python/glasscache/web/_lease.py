"""A fetch from the application, and the lease under which it may be stored.

The lease of a cold key is a record at the key itself, that of a stale one a key beside it. Both end by
themselves, and a response is stored only in place of what was there when its fetch began. The fetch owns both
the lease, by which other processes wait for it, and the flight, by which others of this process do: what ends
the one ends the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from glasscache._steps import Release
from glasscache._steps import package_call as call
from glasscache.errors import GlasscacheError
from glasscache.web._entry import UncacheableRecord, encode_record
from glasscache.web._policy import STALE_FOR_ERROR, Refusal
from glasscache.web._shared_state import new_token

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache._key_lease import KeyLease
    from glasscache.web._entry import Entry
    from glasscache.web._fields import Fields
    from glasscache.web._lookup import Lookup
    from glasscache.web._shared_state import SharedState
    from glasscache.web._single_flight import Flight

__all__ = ["UNCACHEABLE_S", "UNCOLLAPSED_S", "Fetch", "Lease"]

UNCACHEABLE_S: Final = 120
"""So long after a response that could not be stored requests for its key do not wait for each other.

The first response that can be stored ends it.
"""
UNCOLLAPSED_S: Final = 10
"""The same while a request fetches whose response is likely of no use to others."""
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
        refresh_lease: that of a refresh.
        flight: what other requests of this process wait for.
        is_as_sent: whether the application gets the request as it was sent, past the cache.

    """

    forward_reason: bytes
    fields: Fields
    method: str
    entry: Entry | None = None
    cas_unique: int | None = None
    may_store: bool = False
    is_leased: bool = False
    refresh_lease: KeyLease | None = None
    flight: Flight | None = None
    is_as_sent: bool = False

    def end_flight(self) -> None:
        """Let the requests of this process that wait for this fetch look again."""
        flight, self.flight = self.flight, None
        if flight is not None:
            flight.end()


@dataclass(slots=True)
class Lease:
    """What a fetch may store, and where."""

    shared: SharedState
    client: Any
    lookup: Lookup
    fetch: Fetch

    def release(self) -> Generator[Any, Any, None]:
        """Give the lease back unless it has ended, so that another may fetch (as steps)."""
        is_pending = self.fetch.refresh_lease is None and self.fetch.cas_unique is not None
        # Stored with a life that is over: a removal on the condition that the record is still ours.
        yield from self._end(self._replace(b"", -1) if is_pending else None)

    def finish(self) -> Generator[Any, Any, None]:
        """End the lease of a fetch whose response was stored (as steps)."""
        yield from self._end(None)

    def mark_uncacheable(self, refusal: Refusal, status: int) -> Generator[Any, Any, None]:
        """Note that the response cannot be stored, so that no request waits for the next."""
        self.shared.counters["refused"] += 1
        is_failure = status in STALE_FOR_ERROR
        if self.fetch.cas_unique is None or (self.fetch.entry is not None and is_failure):
            yield from self.release()
            return
        record = encode_record(UncacheableRecord(self.lookup.digest, refusal.reason, new_token()))
        ttl = FAILED_S if is_failure else UNCACHEABLE_S
        self.fetch.is_leased = True
        yield from self._end(self._replace(record, ttl))

    def remove_stored(self) -> Generator[Any, Any, None]:
        """Remove what the fetch would have replaced, if that is still there (as steps)."""
        self.fetch.is_leased = True
        yield from self._end(self._replace(b"", -1))

    def mark_failed(self, reason: str) -> Generator[Any, Any, None]:
        """Note that there is no response to store this time, so that requests do not wait one by one."""
        yield from self.mark_uncacheable(Refusal(reason), 500)

    def _end(self, steps: Generator[Any, Any, None] | None) -> Generator[Any, Any, None]:
        fetch = self.fetch
        is_leased, fetch.is_leased = fetch.is_leased, False
        refresh_lease, fetch.refresh_lease = fetch.refresh_lease, None
        try:
            if is_leased and steps is not None:
                yield Release(steps)
        finally:
            try:
                if is_leased and refresh_lease is not None:
                    yield from refresh_lease.release()
            finally:
                fetch.end_flight()

    def _replace(self, record: bytes, ttl: int) -> Generator[Any, Any, None]:
        key, cas_unique = self.lookup.response_key, self.fetch.cas_unique
        try:
            yield call(self.client, "cas", key, record, cas_unique, ttl=ttl)
        except GlasscacheError:
            self.shared.counters["store_errors"] += 1
