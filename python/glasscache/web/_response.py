"""What happens to the application's response to a fetch: it is stored, validated, passed on, or replaced.

A 304 makes the stored response fresh again, an error is replaced by a stale response that allows it, an
unsafe request invalidates what it may have changed, and a HEAD removes what it shows to be out of date.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from glasscache._steps import package_call as call
from glasscache.errors import GlasscacheError
from glasscache.web._entry import IDENTITY, Entry
from glasscache.web._exchange import StoredReply
from glasscache.web._fields import with_vary
from glasscache.web._lease import SELF_REDIRECT
from glasscache.web._message import CONDITIONAL_FIELDS
from glasscache.web._policy import (
    STALE_FOR_ERROR,
    Lifetime,
    Refusal,
    is_compressible,
    lifetime_of,
    may_replace_error,
    merge_fields,
    storable_fields,
)
from glasscache.web._reply import CACHE_NAME, reply_of
from glasscache.web._urls import invalidated_requests, redirects_to_itself, redirects_to_sent_url
from glasscache.web._writer import Writer

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._exchange import Exchange
    from glasscache.web._fields import Fields
    from glasscache.web._lease import Fetch
    from glasscache.web._message import Settings

__all__ = ["ResponseHandler", "ResponseHead"]

TAGS_MAX: Final = 128
"""A response with more tags is not stored: each is a key that a hit reads."""


@dataclass(slots=True)
class ResponseHead:
    """What to do with a response of the application.

    Attributes:
        status: to send.
        fields: to send.
        stored_reply: to send instead.
        writer: takes the body that is to be stored.
        follow_up_steps: what to carry out after the response was sent, if any.
        is_retried: nothing is sent: the application is to get the request again, as it was sent.

    """

    status: int
    fields: Fields
    stored_reply: StoredReply | None = None
    writer: Writer | None = None
    follow_up_steps: Any = None
    is_retried: bool = False


class ResponseHandler:
    """Decides about the response to one fetch of an exchange."""

    __slots__ = ("client", "exchange", "fetch", "lease", "lookup", "request", "settings", "shared")

    def __init__(self, exchange: Exchange, fetch: Fetch) -> None:
        """Bind to a fetch, which has not been sent to the application yet."""
        self.exchange, self.fetch, self.lease = exchange, fetch, exchange.lease_of(fetch)
        self.shared, self.client, self.lookup = exchange.shared, exchange.client, exchange.lookup
        self.request, self.settings = exchange.request, exchange.settings

    def receive(self, status: int, fields: Fields, requested_at: float) -> ResponseHead:
        """Return what to do with the head of the application's response, requested at `requested_at`."""
        request, now, entry = self.request, self.shared.clock(), self.fetch.entry
        if self.fetch.forward_reason == b"method" and not request.is_safe:
            head = ResponseHead(status, self._add_cache_status(fields, status))
            if 200 <= status < 400:  # noqa: PLR2004 - an error changes nothing
                head.follow_up_steps = self._invalidate(fields)
            return head
        if entry is not None:
            if status in STALE_FOR_ERROR and may_replace_error(entry, now):
                return self._stale_head_for_error(entry, now)
            if status == 304 and self.fetch.fields is not request.fields:  # noqa: PLR2004
                return self._revalidated_head(entry, fields, requested_at, now)
        if self._is_sent_back(status, fields):
            head = self._refused_head(status, fields, Refusal(SELF_REDIRECT))
            head.is_retried = True
            return head
        if self.fetch.may_store and self.fetch.method == "GET":
            return self._store_response(status, fields, requested_at, now)
        head = ResponseHead(status, self._add_cache_status(fields, status))
        if self.fetch.method == "HEAD" and entry is not None and status == 200:  # noqa: PLR2004
            head.follow_up_steps = self._remove_if_head_differs(fields, entry)
        return head

    def _is_sent_back(self, status: int, fields: Fields) -> bool:
        """Whether the application redirects the canonical URL to the one that the client has sent already."""
        sent_request = self.exchange.sent_request
        if self.fetch.is_as_sent or sent_request.url == self.request.url:
            return False
        return redirects_to_sent_url(sent_request, status, fields)

    def _store_response(
        self, status: int, fields: Fields, requested_at: float, now: float
    ) -> ResponseHead:
        """Return the head of a response that is stored unless it may not be."""
        shared, request, settings = self.shared, self.request, self.settings
        if shared.rules is not None:
            settings = shared.rules.decide_response(settings, request, status, fields)
            fields = _without_stripped_cookies(fields, settings)
        lifetime: Lifetime | Refusal = Refusal(SELF_REDIRECT)
        if not redirects_to_itself(shared, self.exchange.sent_request, status, fields):
            lifetime = lifetime_of(request, settings, status, fields, requested_at, now)
        if isinstance(lifetime, Refusal):
            return self._refused_head(status, fields, lifetime)
        tags = self._tags_of(settings, fields)
        if len(tags) > TAGS_MAX:
            return self._refused_head(status, fields, Refusal("too-many-tags"))
        sent_fields = self._add_cache_status(fields, status)
        entry = self._build_entry(settings, tags, lifetime, status, fields)
        writer = Writer(self.lease, request, entry, lifetime, settings, requested_at)
        if writer.stated_body_bytes is not None and writer.stated_body_bytes > writer.max_bytes:
            return self._refused_head(status, fields, Refusal("too-large"))
        head = ResponseHead(status, sent_fields, writer=writer)
        if not CONDITIONAL_FIELDS.isdisjoint(request.headers) and status == 200:  # noqa: PLR2004
            # The application was not sent the condition: this cache evaluates it.
            reply = reply_of(entry, request, now, b"fwd=" + self.fetch.forward_reason)
            if reply.status == 304:  # noqa: PLR2004
                head.status, head.fields = 304, reply.fields
        return head

    def _refused_head(self, status: int, fields: Fields, refusal: Refusal) -> ResponseHead:
        """Return the head of a response that is passed on and not stored."""
        sent_fields = self._add_cache_status(fields, status, refusal.reason)
        return ResponseHead(
            status, sent_fields, follow_up_steps=self.lease.mark_uncacheable(refusal, status)
        )

    def _tags_of(self, settings: Settings, fields: Fields) -> tuple[bytes, ...]:
        tags = [tag.encode() for tag in settings.tags]
        if settings.tag_field is not None:
            for name, value in fields:
                if name == settings.tag_field:
                    tags += value.replace(b",", b" ").split()
        if self.request.is_keyed_by_fields(self.settings):
            tags.append(self.shared.url_tag(self.request, self.settings))
        return tuple(dict.fromkeys(tags))

    def _build_entry(
        self,
        settings: Settings,
        tags: tuple[bytes, ...],
        lifetime: Lifetime,
        status: int,
        fields: Fields,
    ) -> Entry:
        purge_log = self.lookup.purge_log
        return Entry(
            self.lookup.digest,
            lifetime.born_at,
            lifetime.fresh_s,
            lifetime.stale_while_revalidate_s,
            lifetime.stale_if_error_s,
            status,
            lifetime.flags,
            purge_seq=purge_log.seq if purge_log is not None else 0,
            length=0,  # set with write_id and cost_ms when the body has been stored
            write_id=0,
            cost_ms=0,
            fields=storable_fields(fields),
            tags=tags,
            url=self.exchange.url,
            coding=IDENTITY if settings.compress and is_compressible(status, fields) else b"",
            added_vary=self.settings.vary_names,
        )

    def _add_cache_status(self, fields: Fields, status: int, detail: str = "") -> Fields:
        cache_status = CACHE_NAME + b"; fwd=" + self.fetch.forward_reason
        if detail and b"detail=" not in self.fetch.forward_reason:
            cache_status += b"; detail=" + detail.encode()
        if self.fetch.entry is not None:
            cache_status += b"; fwd-status=%d" % status
        if not self.fetch.is_as_sent:
            fields = with_vary(fields, self.settings.vary_names)
        return [*fields, (b"cache-status", cache_status)]

    def _revalidated_head(
        self, entry: Entry, fields: Fields, requested_at: float, now: float
    ) -> ResponseHead:
        """Return the stored response, which a 304 made fresh again (RFC 9111, section 4.3.4)."""
        shared, settings = self.shared, self.settings
        updated_fields = merge_fields(entry.fields, fields)
        if shared.rules is not None:
            settings = shared.rules.decide_response(
                settings, self.request, entry.status, updated_fields
            )
            updated_fields = _without_stripped_cookies(updated_fields, settings)
        fields_with_age = [*updated_fields, *(pair for pair in fields if pair[0] == b"age")]
        lifetime = lifetime_of(
            self.request, settings, entry.status, fields_with_age, requested_at, now
        )
        shared.counters["validated"] += 1
        if isinstance(lifetime, Refusal):
            validated_entry = replace(entry, fields=updated_fields)
            follow_up_steps = self.lease.mark_uncacheable(lifetime, 304)
        else:
            purge_log = self.lookup.purge_log
            validated_entry = replace(
                entry,
                fields=updated_fields,
                added_vary=self.settings.vary_names,
                born_at=lifetime.born_at,
                fresh_s=lifetime.fresh_s,
                stale_while_revalidate_s=lifetime.stale_while_revalidate_s,
                stale_if_error_s=lifetime.stale_if_error_s,
                flags=lifetime.flags,
                purge_seq=entry.purge_seq if purge_log is None else purge_log.seq,
            )
            follow_up_steps = self._store_validated(validated_entry, lifetime)
        reply = reply_of(
            validated_entry,
            self.request,
            now,
            b"fwd=" + self.fetch.forward_reason + b"; fwd-status=304",
        )
        return ResponseHead(
            reply.status, reply.fields, StoredReply(reply), follow_up_steps=follow_up_steps
        )

    def _stale_head_for_error(self, entry: Entry, now: float) -> ResponseHead:
        self.shared.counters["stale_for_error"] += 1
        reply = reply_of(entry, self.request, now, b"hit; detail=stale-if-error")
        return ResponseHead(
            reply.status,
            reply.fields,
            StoredReply(reply),
            follow_up_steps=self.lease.release(),
        )

    def receive_exception(self) -> ResponseHead | None:
        """Return what to send instead of an exception of the application, or None to raise it."""
        now = self.shared.clock()
        entry = self.fetch.entry
        self.shared.counters["application_errors"] += 1
        if (
            entry is None
            or self.request.method not in {"GET", "HEAD"}
            or not may_replace_error(entry, now)
        ):
            return None
        return self._stale_head_for_error(entry, now)

    def _store_validated(self, entry: Entry, lifetime: Lifetime) -> Generator[Any, Any, None]:
        lease, now = self.lease, self.shared.clock()
        writer = Writer(lease, self.request, entry, lifetime, self.settings, now)
        yield from writer.renew()

    def _remove_if_head_differs(self, fields: Fields, entry: Entry) -> Generator[Any, Any, None]:
        """Remove the stored response if that to a HEAD has other fields (RFC 9111, section 4.3.5)."""
        headers = dict(fields)
        for name in (b"etag", b"last-modified", b"content-length"):
            stored_value = entry.field_value(name)
            if name in headers and stored_value is not None and headers[name] != stored_value:
                try:
                    yield call(self.client, "delete", self.lookup.primary_key)
                except GlasscacheError:
                    self.shared.counters["store_errors"] += 1
                return

    def _invalidate(self, fields: Fields) -> Generator[Any, Any, None]:
        """Remove what an unsafe request may have changed (RFC 9111, section 4.4)."""
        # Imported late, for unsafe requests are few.
        from glasscache.web.purge import purge_request  # noqa: PLC0415

        self.shared.counters["invalidations"] += 1
        for request in invalidated_requests(self.exchange.sent_request, fields):
            try:
                yield from purge_request(self.shared, self.client, request, is_soft=False)
            except (GlasscacheError, TimeoutError):
                self.shared.counters["store_errors"] += 1


def _without_stripped_cookies(fields: Fields, settings: Settings) -> Fields:
    """Return fields without the cookies that a rule keeps from responses."""
    if not settings.strip_cookies:
        return fields
    return [pair for pair in fields if pair[0] not in {b"set-cookie", b"set-cookie2"}]
