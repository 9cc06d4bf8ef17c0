"""A reply made of a stored response: conditions, ranges, HEAD, Age and Cache-Status.

Follows RFC 9110, sections 13 (conditions) and 14 (one range; several get the whole), and RFC 9211. A
condition that does not hold for certain gets the whole response.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from glasscache.web._entry import GZIP
from glasscache.web._fields import opaque_tag, parse_date, split_list
from glasscache.web._message import CONDITIONAL_FIELDS, PART_FIELDS

if TYPE_CHECKING:
    from glasscache.web._entry import Entry
    from glasscache.web._fields import Fields
    from glasscache.web._message import Request

__all__ = ["Reply", "gateway_timeout", "hit_fields", "reply_of"]

CACHE_NAME: Final = b"glasscache"
HIT: Final = b"hit"
_KEPT_BY_304: Final = frozenset({
    b"cache-control", b"content-location", b"date", b"etag", b"expires", b"vary", b"last-modified",
    b"cdn-cache-control", b"set-cookie",
})  # fmt: skip
_REPLACED_BY_206: Final = frozenset({b"content-length", b"content-range", b"age"})
_RANGE: Final = re.compile(rb"bytes[ \t]*=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.IGNORECASE)

_POSITION_DIGITS_MAX: Final = 18


@dataclass(slots=True)
class Reply:
    """A response from the store.

    Attributes:
        status: the status code.
        fields: the fields to send.
        start: the first byte of the stored body to send.
        stop: the byte after the last.
        entry: where the body is; None if there is none.

    """

    status: int
    fields: Fields
    start: int = 0
    stop: int = 0
    entry: Entry | None = None

    @property
    def has_body(self) -> bool:
        """Whether any byte of a body is to be sent."""
        return self.stop > self.start


def gateway_timeout(detail: bytes = b"only-if-cached") -> Reply:
    """Return the reply to a request that takes stored responses only, when there is none."""
    cache_status = CACHE_NAME + b"; fwd=request; detail=" + detail
    return Reply(504, [(b"content-length", b"0"), (b"cache-status", cache_status)])


def reply_of(
    entry: Entry, request: Request, now: float, cache_status_parameters: bytes = HIT
) -> Reply:
    """Return the reply that a stored response gives to a request.

    Args:
        entry: selected for the request.
        request: a GET or HEAD.
        now: Unix time.
        cache_status_parameters: parameters of the Cache-Status field.

    """
    headers = request.headers
    is_plain = request.method == "GET" and PART_FIELDS.isdisjoint(headers)
    if is_plain and cache_status_parameters is HIT and not entry.is_bodiless:
        return Reply(entry.status, hit_fields(entry, now), 0, entry.length, entry)
    generated_fields = _generated_fields(entry, now, cache_status_parameters)
    if entry.status == 200:  # noqa: PLR2004
        if not CONDITIONAL_FIELDS.isdisjoint(headers) and is_not_modified(entry, request):
            validator_fields = [pair for pair in entry.fields_to_send() if pair[0] in _KEPT_BY_304]
            return Reply(304, validator_fields + generated_fields)
        if b"range" in headers and request.method == "GET" and _range_applies(entry, request):
            byte_range = _parse_range(headers[b"range"], entry.length)
            if byte_range is not None:
                return _partial_reply(entry, generated_fields, byte_range)
    fields = entry.fields_to_send() + generated_fields
    if request.method == "HEAD" or entry.is_bodiless:
        return Reply(entry.status, fields)
    return Reply(entry.status, fields, 0, entry.length, entry)


def _generated_fields(entry: Entry, now: float, cache_status_parameters: bytes) -> Fields:
    """Return the fields that each reply makes."""
    age = entry.age(now)
    cache_status = b"%b; %b; ttl=%d" % (CACHE_NAME, cache_status_parameters, entry.fresh_s - age)
    return [(b"age", b"%d" % age), (b"cache-status", cache_status)]


def hit_fields(entry: Entry, now: float) -> Fields:
    """Return the fields of a plain hit, which are made once a second; the caller may change the list."""
    age = int(entry.age(now))
    age_and_fields = entry.hit_fields
    if age_and_fields is None or age_and_fields[0] != age:
        age_and_fields = age, entry.fields_to_send() + _generated_fields(entry, now, HIT)
        if entry.length:  # an entry that is still being stored has no length yet
            entry.hit_fields = age_and_fields
    return age_and_fields[1].copy()


def is_not_modified(entry: Entry, request: Request) -> bool:
    """Whether the client holds what is stored (RFC 9110, section 13.1)."""
    stored_etag = entry.field_value(b"etag")
    if_none_match = request.headers.get(b"if-none-match")
    if if_none_match is not None:
        if if_none_match.strip() == b"*":
            return True
        if stored_etag is None:
            return False
        opaque = opaque_tag(stored_etag)
        return any(opaque_tag(tag) == opaque for tag in split_list(if_none_match))
    modified_since = parse_date(request.headers.get(b"if-modified-since", b""))
    if modified_since is None:
        return False
    last_modified = entry.field_value(b"last-modified") or entry.field_value(b"date")
    last_modified_at = parse_date(last_modified) if last_modified is not None else None
    return last_modified_at is not None and last_modified_at <= modified_since


def _range_applies(entry: Entry, request: Request) -> bool:
    condition = request.headers.get(b"if-range")
    if condition is None:
        return True
    if entry.coding == GZIP:
        return False  # the client's part may be of the body as the application made it
    condition = condition.strip()
    if condition.startswith(b'"'):
        return condition == entry.field_value(b"etag")
    condition_date, last_modified = parse_date(condition), entry.field_value(b"last-modified")
    return (
        condition_date is not None
        and last_modified is not None
        and parse_date(last_modified) == condition_date
    )


def _parse_range(value: bytes, length: int) -> tuple[int, int] | None:
    """Return the bytes of a single range, (0, 0) if there are none; None if it is to be ignored."""
    match = _RANGE.fullmatch(value.strip())
    if match is None or (not match[1] and not match[2]):
        return None
    first_byte, last_byte = _parse_position(match[1]), _parse_position(match[2])
    if first_byte is None:
        suffix_length = last_byte or 0
        return (max(0, length - suffix_length), length) if suffix_length and length else (0, 0)
    if last_byte is not None and last_byte < first_byte:
        return None
    last_byte = length - 1 if last_byte is None else min(last_byte, length - 1)
    return (first_byte, last_byte + 1) if first_byte < length else (0, 0)


def _parse_position(digits: bytes) -> int | None:
    """Return a position in a body; one of more digits than any body has bytes is beyond its end."""
    if len(digits) > _POSITION_DIGITS_MAX:
        digits = digits.lstrip(b"0")[: _POSITION_DIGITS_MAX + 1] or b"0"
    return int(digits) if digits else None


def _partial_reply(entry: Entry, generated_fields: Fields, byte_range: tuple[int, int]) -> Reply:
    start, stop = byte_range
    sent_fields = [pair for pair in entry.fields_to_send() if pair[0] not in _REPLACED_BY_206]
    sent_fields += generated_fields
    if start == stop:
        bounds = b"bytes */%d" % entry.length
        return Reply(416, [*sent_fields, (b"content-range", bounds), (b"content-length", b"0")])
    bounds = b"bytes %d-%d/%d" % (start, stop - 1, entry.length)
    sent_fields += ((b"content-range", bounds), (b"content-length", b"%d" % (stop - start)))
    return Reply(206, sent_fields, start, stop, entry)
