"""One request through the cache: what is sent from the store, what is fetched, and which request fetches.

What waits is done in steps (`glasscache._steps`): generators yield calls of the client, pauses and waits, and
are sent the outcomes, so that ASGI and WSGI share every decision. A response is visible only when its last
byte is stored, by compare-and-swap on what its fetch replaces: a key that was purged or invalidated
meanwhile stays so.

A cold key holds a `PendingRecord` while one request fetches; others of the process wait for its flight, and
one a process reads the store for it. A store that fails, or has no clock of purges, makes the request an
ordinary one.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from glasscache._chunks import CHUNK_BYTES
from glasscache._key_lease import KeyLease
from glasscache._steps import Acquire, CallFunction, Sleep
from glasscache._steps import package_call as call
from glasscache.errors import GlasscacheError
from glasscache.web._entry import Entry, PendingRecord, UncacheableRecord, encode_record
from glasscache.web._lease import SELF_REDIRECT, UNCOLLAPSED_S, Fetch, Lease
from glasscache.web._lookup import Lookup
from glasscache.web._message import CONDITIONAL_FIELDS, PASSED_ON_FIELDS
from glasscache.web._policy import reads_credentials
from glasscache.web._purge_log import TagPurges, new_purge_log
from glasscache.web._reply import Reply, gateway_timeout, reply_of
from glasscache.web._shared_state import new_token

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._fields import Fields
    from glasscache.web._message import Request, Settings
    from glasscache.web._policy import Reuse
    from glasscache.web._shared_state import SharedState
    from glasscache.web._single_flight import Flight, SingleFlight

__all__ = ["Exchange", "StoredReply"]

_POLL_FIRST_S: Final = 0.002
_POLL_LAST_S: Final = 0.02
URL_TAG_S: Final = 30 * 86400
"""A URL's tag outlives the responses under it, which are kept as long at most; without it they are misses."""
UNCOLLAPSED_WAIT_S: Final = 0.5
"""So long a HEAD or a request for a range waits for the whole response that another request fetches."""


@dataclass(slots=True)
class StoredReply:
    """A stored response is sent; with `refresh` the key is to be fetched again in the background."""

    reply: Reply
    refresh: Fetch | None = None
    chunks: list[bytes] | None = None
    """The first chunks of its body, if that is in chunks."""


class Exchange:
    """One request and its response."""

    __slots__ = (
        "_decision_key", "_waits_until", "client", "lookup", "request", "sent_request", "settings", "shared",
    )  # fmt: skip

    def __init__(
        self,
        shared: SharedState,
        client: Any,
        request: Request,
        decision_key: bytes | None = None,
        began_at: float | None = None,
    ) -> None:
        """Begin an exchange.

        Args:
            shared: of the middleware.
            client: of the store.
            request: as it was sent.
            decision_key: `_message.decision_key_of` the request; a decision is kept under it.
            began_at: when the store was read for it, by `time.monotonic`; None if nothing is read yet.

        """
        self._waits_until = (time.monotonic() if began_at is None else began_at) + shared.wait_s
        """For the whole request: whatever it has waited for, reads of the store included, counts once."""
        self.shared, self.client, self.sent_request = shared, client, request
        self._decision_key = decision_key
        self.settings: Settings = shared.settings_of(request)
        self.request = request.canonical(self.settings)
        """What the key is made of, and what the application gets unless the request bypasses the cache."""
        self.lookup = Lookup(shared, self.request, self.settings)

    @property
    def url(self) -> bytes:
        """Return the canonical host, path and query."""
        return self.request.url

    def lease_of(self, fetch: Fetch) -> Lease:
        """Return what a fetch may store."""
        return Lease(self.shared, self.client, self.lookup, fetch)

    # ---- what a request may do ----------------------------------------------------------------

    @property
    def bypass_reason(self) -> bytes | None:
        """Why this request bypasses the cache, or None."""
        request = self.request
        if request.method not in {"GET", "HEAD"}:
            return b"method"
        if self.settings.bypass:
            return b"bypass; detail=rule"
        ambiguity = request.ambiguity or self.settings.ambiguity
        if ambiguity:
            return b"bypass; detail=" + ambiguity.encode()
        if not PASSED_ON_FIELDS.isdisjoint(request.headers):
            return b"bypass; detail=conditional"
        if "no-store" in request.directives and not self.settings.ignore_request_directives:
            return b"request; detail=no-store"
        return None

    @property
    def _is_uncollapsed(self) -> bool:
        """Whether the response is likely this request's only, so that others must not wait for it."""
        request = self.request
        return (
            request.method != "GET"
            or b"authorization" in request.headers
            or b"range" in request.headers
        )

    def fresh_hit(self, keys: list[str], values: dict[str, Any]) -> StoredReply | None:
        """Return the reply if what was read first is a fresh response in one record: the path of a hit."""
        lookup = self.lookup
        if lookup.add_values(keys, values):
            return None
        entry = lookup.entry
        if entry is None or entry.write_id:
            return None
        now = self.shared.clock()
        reuse = lookup.reuse_at(now)
        if reuse is None or reuse.kind != "fresh" or lookup.is_due_for_early_refresh(now):
            return None
        self.shared.counters["hits"] += 1
        self._keep_decision(entry)
        return StoredReply(reply_of(entry, self.request, now))

    def _keep_decision(self, entry: Entry) -> None:
        """Keep the decision to send a fresh entry, unless values count beside those of Host and by Vary."""
        settings = self.settings
        if (
            self._decision_key is None
            or settings.reads_fields
            or settings.changes_requests
            or entry.is_bodiless
            or entry.write_id
            or self.request.is_keyed_by_fields(settings)
            or reads_credentials(entry, self.request)
        ):
            return
        vary_record = self.lookup.vary_record
        names = () if vary_record is None else vary_record.names
        self.shared.keep_hit(self._decision_key, names, self.request, self.lookup.kept_hit(entry))

    @property
    def shares_fetch(self) -> bool:
        """Whether requests like this one wait for each other, by what was read."""
        if self._is_uncollapsed or isinstance(self.lookup.record, UncacheableRecord):
            return False
        reuse = self.lookup.reuse_at(self.shared.clock())
        return reuse is None or (
            reuse.kind == "validate" and reuse.reason in {"stale", "must-revalidate"}
        )

    def stale_reply(self) -> StoredReply | None:
        """Return the stale reply of a key that is being refreshed by this process already."""
        now = self.shared.clock()
        reuse, entry = self.lookup.reuse_at(now), self.lookup.entry
        if reuse is None or reuse.kind != "stale" or entry is None or entry.write_id:
            return None
        self.shared.counters["stale"] += 1
        return StoredReply(reply_of(entry, self.request, now, b"hit; detail=stale"))

    def _remaining_wait(self) -> float:
        """Return the seconds that this request may still wait for others, in whichever way it does."""
        return self._waits_until - time.monotonic()

    def _forward_after_wait(self) -> Fetch:
        """Return the fetch of a request that has waited for another's in vain."""
        self.shared.counters["waits_given_up"] += 1
        return self._forward(b"uri-miss; detail=waited")

    # ---- the slow path --------------------------------------------------------------------------

    def decide_in_flight(
        self, flights: SingleFlight, refreshes: SingleFlight
    ) -> Generator[Any, Any, StoredReply | Fetch]:
        """Decide what is not a plain hit; of the requests for a key one does, and others wait (as steps).

        Args:
            flights: the fetches of this process that others wait for.
            refreshes: its fetches in the background, meanwhile others get the stale response.

        """
        lookup = self.lookup
        if (
            refreshes.is_under_way(lookup.response_key)
            and (stale_reply := self.stale_reply()) is not None
        ):
            return stale_reply
        while self.shares_fetch:
            flight = flights.begin(lookup.response_key, self.shared.lease_s)
            if flight is not None:
                return (yield from self._decide_with_flight(flight))
            if (remaining_s := self._remaining_wait()) <= 0:
                return self._forward_after_wait()
            yield CallFunction(partial(flights.wait, lookup.response_key, remaining_s))
            lookup.reset()
            keys = lookup.first_keys()
            try:
                hit = self.fresh_hit(keys, (yield call(self.client, "get_many", keys)))
            except GlasscacheError:
                break
            if hit is not None:
                return hit
        return (yield from self.decide())

    def _decide_with_flight(self, flight: Flight) -> Generator[Any, Any, StoredReply | Fetch]:
        is_fetched = False
        try:
            action = yield from self.decide()
            if type(action) is Fetch and action.is_leased:
                flight.renew(self.shared.lease_s)
                action.flight, is_fetched = flight, True
        finally:
            if not is_fetched:
                flight.end()
        return action

    def decide(self) -> Generator[Any, Any, StoredReply | Fetch]:
        """Decide what is sent for this request, or that it is fetched (as steps)."""
        try:
            action = yield from self._decide()
            if type(action) is Fetch and action.may_store and not action.is_leased:
                yield from self._make_url_tag()
        except GlasscacheError:
            self.shared.counters["store_errors"] += 1
            return self._forward(b"bypass; detail=store-failed")
        return action

    def _decide(self) -> Generator[Any, Any, StoredReply | Fetch]:
        shared, lookup = self.shared, self.lookup
        pause_s, began_at, has_waited = _POLL_FIRST_S, time.monotonic(), False
        while True:
            yield from self._read()
            if lookup.purge_log is None and not (yield from self._make_purge_log()):
                return self._forward(b"bypass; detail=store-failed")
            now = shared.clock()
            reuse = lookup.reuse_at(now)
            if reuse is not None and reuse.kind in {"fresh", "stale"}:
                stored_reply = yield from self._reply_stored(reuse.kind, has_waited)
                if stored_reply is not None:
                    return stored_reply
                continue
            action = yield from self._decide_without_lease(reuse, time.monotonic() - began_at)
            if action is not None:
                return action
            if not self._is_uncollapsed:
                fetch = yield from (self._lease_cold() if reuse is None else self._lease_stale())
                if fetch is not None:
                    return fetch
            if (remaining_s := self._remaining_wait()) <= 0:
                return self._forward_after_wait()
            has_waited = True
            yield Sleep(min(pause_s, remaining_s))
            pause_s = min(2 * pause_s, _POLL_LAST_S)
            lookup.reset()

    def _decide_without_lease(  # noqa: PLR0911 - one line a case
        self, reuse: Reuse | None, waited_s: float
    ) -> Generator[Any, Any, StoredReply | Fetch | None]:
        """Return what a request does that neither uses what is stored nor waits for another's fetch."""
        lookup = self.lookup
        ignores_directives = self.settings.ignore_request_directives
        if "only-if-cached" in self.request.directives and not ignores_directives:
            return StoredReply(gateway_timeout())
        if isinstance(lookup.record, UncacheableRecord):
            if lookup.record.reason == SELF_REDIRECT:
                return self.forward_as_sent()
            return self._forward(b"uri-miss; detail=uncacheable", may_store=True)
        if reuse is not None and reuse.kind == "pass":
            fetch = self._forward(b"bypass; detail=" + reuse.reason.encode())
            fetch.entry = None  # not even instead of an error
            return fetch
        if reuse is not None and (reuse.reason.startswith("request") or reuse.reason == "no-cache"):
            forward_reason = (
                b"request" if reuse.reason.startswith("request") else b"stale; detail=no-cache"
            )
            return (yield from self._validate_without_lease(forward_reason))
        is_being_fetched = (
            isinstance(lookup.record, PendingRecord) and waited_s < UNCOLLAPSED_WAIT_S
        )
        if self._is_uncollapsed and not is_being_fetched:
            return (yield from self._forward_uncollapsed(b"stale" if reuse else b"uri-miss"))
        return None

    def _read(self) -> Generator[Any, Any, None]:
        lookup = self.lookup
        keys = lookup.add_values([], {}) if lookup.keys_read else lookup.first_keys()
        while keys:
            values = yield call(self.client, "get_many", keys)
            keys = lookup.add_values(keys, values)

    def _make_purge_log(self) -> Generator[Any, Any, bool]:
        """Store the record of purges that is not there; whether there is one now."""
        key = self.shared.purge_log_key
        yield call(self.client, "add", key, new_purge_log().encode())
        purge_log_bytes = yield call(self.client, "get", key)
        self.lookup.reset()
        yield from self._read()
        return (
            self.shared.decode_purge_log(purge_log_bytes) is not None
            and self.lookup.purge_log is not None
        )

    def _make_url_tag(self) -> Generator[Any, Any, None]:
        """Store the tag of a URL whose key has fields in it, if there is none: a purge looks for it.

        It is there before the application makes the response, so that no purge overlooks the fetch.
        """
        shared, purge_log = self.shared, self.lookup.purge_log
        if purge_log is None or not self.request.is_keyed_by_fields(self.settings):
            return
        key = shared.tag_key(shared.url_tag(self.request, self.settings))
        yield call(self.client, "add", key, TagPurges(purge_log.seq, 0).encode(), ttl=URL_TAG_S)

    def _reply_stored(
        self, reuse_kind: str, has_waited: bool
    ) -> Generator[Any, Any, StoredReply | None]:
        """Return a stored response to send; None if a chunk of it is lost."""
        lookup, shared = self.lookup, self.shared
        entry = lookup.entry
        assert entry is not None  # noqa: S101 - what can be reused has an entry
        now = shared.clock()
        cache_status_parameters = b"hit; detail=stale" if reuse_kind == "stale" else b"hit"
        if has_waited:
            cache_status_parameters += b"; collapsed"
        reply = reply_of(entry, self.request, now, cache_status_parameters)
        chunks = None
        if entry.write_id and reply.has_body:
            chunks = yield from self.read_chunks(entry, reply.start // CHUNK_BYTES)
            if chunks is None:
                yield from self._discard_incomplete()
                lookup.reset()
                return None
        refresh = None
        is_refresh_due = reuse_kind == "stale" or lookup.is_due_for_early_refresh(now)
        if is_refresh_due and shared.may_lease_stale(lookup.response_key, now):
            # Last of all: nothing can fail between the lease and its fetch.
            refresh = yield from self._lease_stale()
            if refresh is not None:
                shared.forget_lease_attempt(lookup.response_key)
        if reuse_kind == "fresh" and not is_refresh_due:
            self._keep_decision(entry)
        shared.counters["stale" if reuse_kind == "stale" else "hits"] += 1
        return StoredReply(reply, refresh, chunks)

    def read_chunks(
        self, entry: Entry, first_chunk_index: int
    ) -> Generator[Any, Any, list[bytes] | None]:
        """Return the chunks of a body from the first on, as many as one read takes; None if one is lost."""
        chunks = self.shared.chunks(entry.write_id, entry.length)
        return (yield from chunks.read(self.client, first_chunk_index))

    def _discard_incomplete(self) -> Generator[Any, Any, None]:
        """Delete a response of which a chunk is lost, so that it is fetched again."""
        self.shared.counters["lost_chunks"] += 1
        yield call(self.client, "delete", self.lookup.response_key)

    def read_more_chunks(
        self, entry: Entry, first_chunk_index: int
    ) -> Generator[Any, Any, list[bytes]]:
        """Return further chunks of a body whose head was sent (as steps).

        Raises:
            RuntimeError: a chunk was evicted. With it the server closes the connection, by which the client
                sees that the body is not whole.

        """
        chunks = yield from self.read_chunks(entry, first_chunk_index)
        if chunks is None:
            with contextlib.suppress(GlasscacheError):
                yield from self._discard_incomplete()
            raise RuntimeError(f"a chunk of the stored body of {self.url!r} was evicted")
        return chunks

    # ---- which request fetches --------------------------------------------------------------------------

    def _lease_cold(self) -> Generator[Any, Any, Fetch | None]:
        """Reserve a key that holds nothing usable; None if another fetches it."""
        shared, lookup = self.shared, self.lookup
        now = shared.clock()
        if (
            isinstance(lookup.record, PendingRecord)
            and now - lookup.record.begun_at < shared.lease_s
        ):
            return None
        pending_bytes = encode_record(PendingRecord(lookup.digest, new_token(), now))

        def give_back() -> Generator[Any, Any, None]:
            value_and_cas = yield call(self.client, "gets", lookup.response_key)
            if value_and_cas is not None and value_and_cas[0] == pending_bytes:
                # Stored with a life that is over: a removal if the record is still this one.
                yield call(self.client, "cas", lookup.response_key, b"", value_and_cas[1], ttl=-1)

        cas_unique = yield Acquire(self._store_pending(pending_bytes), give_back)
        if cas_unique is None:
            return None
        forward_reason = b"vary-miss" if lookup.vary_record is not None else b"uri-miss"
        shared.counters["misses"] += 1
        return Fetch(
            forward_reason,
            self._plain_fields(),
            "GET",
            None,
            cas_unique,
            may_store=True,
            is_leased=True,
        )

    def _store_pending(self, pending_bytes: bytes) -> Generator[Any, Any, int | None]:
        """Store the record of a fetch that is under way; its unique, or None if another was quicker."""
        client, lookup, key = self.client, self.lookup, self.lookup.response_key
        lifetime_s = max(1, int(self.shared.lease_s * 2))
        if lookup.record is None and not lookup.is_unreadable:
            is_stored = yield call(client, "add", key, pending_bytes, ttl=lifetime_s)
        else:
            # A pending fetch whose time is over, a purged response, or something unreadable.
            value_and_cas = yield call(client, "gets", key)
            if value_and_cas is None or not lookup.is_unchanged(value_and_cas[0]):
                return None
            is_stored = yield call(
                client, "cas", key, pending_bytes, value_and_cas[1], ttl=lifetime_s
            )
        if is_stored is not True:
            return None
        yield from self._make_url_tag()
        value_and_cas = yield call(client, "gets", key)
        if value_and_cas is None or value_and_cas[0] != pending_bytes:
            return None
        cas_unique: int = value_and_cas[1]
        return cas_unique

    def _lease_stale(self) -> Generator[Any, Any, Fetch | None]:
        """Take the right to refresh what is stored; None if another has it."""
        shared, lookup = self.shared, self.lookup
        lease = KeyLease(self.client, lookup.lease_key, max(1, int(shared.lease_s)))
        if not (yield from lease.acquire()):
            return None
        fetch = None
        try:
            value_and_cas = yield call(self.client, "gets", lookup.response_key)
            # Else another was quicker: what it stored is to be read.
            if value_and_cas is not None and lookup.is_unchanged(value_and_cas[0]):
                yield from self._make_url_tag()
                shared.counters["refreshes"] += 1
                fetch = self._validation_fetch(b"stale", value_and_cas[1], lease)
        finally:
            if fetch is None:
                yield from lease.release()
        return fetch

    def _validate_without_lease(self, forward_reason: bytes) -> Generator[Any, Any, Fetch]:
        """Validate what is stored for this request only."""
        value_and_cas = yield call(self.client, "gets", self.lookup.response_key)
        cas_unique = (
            value_and_cas[1]
            if value_and_cas is not None and self.lookup.is_unchanged(value_and_cas[0])
            else None
        )
        fetch = self._validation_fetch(forward_reason, cas_unique, None)
        if cas_unique is None or self._is_uncollapsed:
            fetch.may_store = False
        return fetch

    def _validation_fetch(
        self, forward_reason: bytes, cas_unique: int | None, refresh_lease: KeyLease | None
    ) -> Fetch:
        entry = self.lookup.entry
        fields = self._plain_fields()
        if entry is not None and not self._is_uncollapsed:
            if (etag := entry.field_value(b"etag")) is not None:
                fields.append((b"if-none-match", etag))
            if (last_modified := entry.field_value(b"last-modified")) is not None:
                fields.append((b"if-modified-since", last_modified))
        elif self._is_uncollapsed:
            fields = self.request.fields
        method = self.request.method if self._is_uncollapsed else "GET"
        return Fetch(
            forward_reason,
            fields,
            method,
            entry,
            cas_unique,
            may_store=True,
            is_leased=refresh_lease is not None,
            refresh_lease=refresh_lease,
        )

    def _plain_fields(self) -> Fields:
        """Return the request's fields without what concerns this client's copy only."""
        dropped_names = CONDITIONAL_FIELDS | {b"if-range", b"range"}
        return [pair for pair in self.request.fields if pair[0] not in dropped_names]

    def _forward_uncollapsed(self, forward_reason: bytes) -> Generator[Any, Any, Fetch]:
        """Return a fetch without a lease; what it may store replaces a record that a purge removes."""
        may_store = self.request.method == "GET" and b"range" not in self.request.headers
        if may_store and self.lookup.record is None and not self.lookup.is_unreadable:
            record_bytes = encode_record(UncacheableRecord(self.lookup.digest, "", new_token()))
            may_store = yield call(
                self.client, "add", self.lookup.response_key, record_bytes, ttl=UNCOLLAPSED_S
            )
            self.lookup.remember_stored(record_bytes)
        return self._forward(forward_reason, may_store=may_store)

    def forward_as_sent(self) -> Fetch:
        """Return a fetch of the request as it was sent: the application redirects the canonical URL."""
        fetch = self._forward(b"bypass; detail=" + SELF_REDIRECT.encode())
        fetch.fields, fetch.entry, fetch.is_as_sent = self.sent_request.fields, None, True
        return fetch

    def _forward(self, forward_reason: bytes, *, may_store: bool = False) -> Fetch:
        """Return a fetch without a lease."""
        self.shared.counters["passes"] += 1
        may_store = may_store and b"range" not in self.request.headers
        fields = self.request.fields
        if may_store:
            fields = self._plain_fields()
        return Fetch(
            forward_reason, fields, self.request.method, self.lookup.entry, None, may_store
        )
