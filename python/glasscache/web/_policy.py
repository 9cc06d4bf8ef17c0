"""What RFC 9111 lets a shared cache store, reuse and change; RFC 5861 and RFC 9213 with it. No I/O, no clock.

Times are Unix seconds that the caller passes in. Where the RFC leaves room, the cautious reading counts: a
lifetime or an age that cannot be read makes a response stale, and heuristics never store a response that sets
a cookie, or the response to a request with one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from glasscache.web._entry import HAS_GRACE, HEURISTIC, MUST_REVALIDATE, NO_CACHE, Entry
from glasscache.web._fields import (
    Directives,
    Fields,
    combined_value,
    parse_cache_control,
    parse_date,
    parse_targeted,
    parse_whole_number,
    split_list,
)

if TYPE_CHECKING:
    from glasscache.web._message import Request, Settings

__all__ = [
    "Lifetime",
    "Refusal",
    "Reuse",
    "decide_reuse",
    "lifetime_of",
    "merge_fields",
    "storable_fields",
]

TARGETED_FIELDS: Final = (b"cdn-cache-control",)
"""Targeted fields that this cache obeys instead of Cache-Control, the first of them that is valid."""

_HEURISTIC_STATUSES: Final = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501})
_UNDERSTOOD_STATUSES: Final = frozenset({
    200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412,
    413, 414, 415, 416, 417, 421, 422, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 511,
})  # fmt: skip
_HEURISTIC_DIVISOR: Final = 10
_HEURISTIC_MAX_S: Final = 86400
_KEEP_VALIDATED_S: Final = 86400
"""A response with a validator is kept this long beyond its lifetime, for a 304 costs less than a fetch."""
_KEEP_S: Final = 600
VARY_MAX: Final = 16
"""A response that varies on more fields is not stored: hardly any request would find it."""

HOP_BY_HOP: Final = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te", b"trailer",
    b"proxy-authenticate", b"proxy-authentication-info", b"proxy-authorization",
})  # fmt: skip
_NOT_UPDATED: Final = HOP_BY_HOP | {
    b"content-encoding", b"content-length", b"content-md5", b"content-range", b"etag", b"age",
}  # fmt: skip
_MALFORMED: Final = re.compile(rb"[\r\n\0]")
"""What would end a field early: of an application's response to a server, or in a stored record."""
CREDENTIALS: Final = frozenset({b"cookie", b"authorization"})
STALE_FOR_ERROR: Final = frozenset({500, 502, 503, 504})


class Refusal(NamedTuple):
    """A response may not be stored, and why."""

    reason: str


class Lifetime(NamedTuple):
    """How long a response may be used: seconds, and the moment at which its age was 0."""

    born_at: float
    fresh_s: int
    stale_while_revalidate_s: int
    stale_if_error_s: int
    keep_s: int
    flags: int
    vary_names: tuple[bytes, ...]


class Reuse(NamedTuple):
    """What may be done with a stored response: "fresh", "stale" (send and refresh), "validate" or "pass"."""

    kind: str
    reason: str


_FRESH: Final = Reuse("fresh", "")


def lifetime_of(
    request: Request,
    settings: Settings,
    status: int,
    fields: Fields,
    sent_at: float,
    received_at: float,
) -> Lifetime | Refusal:
    """Return how long the response to a request may be used, or why it may not be stored.

    Args:
        request: a GET.
        settings: what rules decided.
        status: of the response.
        fields: of the response, with lower-case names.
        sent_at: when the request was sent to the application.
        received_at: when the response's head was received.

    """
    directives, is_targeted = response_directives(fields)
    if refusal := _find_refusal(request, settings, status, fields, directives):
        return refusal
    vary = combined_value(fields, b"vary")
    vary_names = tuple(sorted({name.lower() for name in split_list(vary)})) if vary else ()
    if b"*" in vary_names:
        return Refusal("vary-star")
    if len(vary_names) > VARY_MAX:
        return Refusal("vary-huge")
    now = int(received_at)
    date = parse_date(combined_value(fields, b"date") or b"")
    stated_lifetime_s = _stated_lifetime(
        directives, is_targeted, fields, now if date is None else date
    )
    fresh_s = stated_lifetime_s
    if settings.ttl is not None:
        fresh_s = int(settings.ttl)
    elif fresh_s is None:
        fresh_s = _heuristic_lifetime(
            request, directives, status, fields, now if date is None else date
        )
        if fresh_s is None:
            return Refusal("no-lifetime")
    age = _initial_age(fields, date, sent_at, received_at)
    flags = NO_CACHE if "no-cache" in directives and settings.ttl is None else 0
    if directives.keys() & {"must-revalidate", "proxy-revalidate", "s-maxage"} and (
        settings.grace is None or "must-revalidate" in directives
    ):
        flags |= MUST_REVALIDATE
    if stated_lifetime_s is None and settings.ttl is None and "public" not in directives:
        flags |= HEURISTIC
    stale_while_revalidate_s = parse_whole_number(directives.get("stale-while-revalidate")) or 0
    if settings.grace is not None:
        stale_while_revalidate_s, flags = int(settings.grace), flags | HAS_GRACE
    stated_if_error_s = parse_whole_number(directives.get("stale-if-error"))
    has_validator = any(name in {b"etag", b"last-modified"} for name, _ in fields)
    keep_s = int(settings.keep) if settings.keep is not None else (
        _KEEP_VALIDATED_S if has_validator else _KEEP_S
    )  # fmt: skip
    stale_if_error_s = (
        keep_s
        if settings.keep is not None and stated_if_error_s is None
        else (stated_if_error_s or 0)
    )
    return Lifetime(
        received_at - age,
        fresh_s,
        stale_while_revalidate_s,
        stale_if_error_s,
        max(stale_while_revalidate_s, stale_if_error_s, keep_s),
        flags,
        vary_names,
    )


def response_directives(fields: Fields) -> tuple[Directives, bool]:
    """Return the directives that count for this cache, and whether they are of a targeted field."""
    for target in TARGETED_FIELDS:
        value = combined_value(fields, target)
        if value is not None and (directives := parse_targeted(value)) is not None:
            return directives, True
    cache_control = combined_value(fields, b"cache-control")
    if cache_control is not None:
        return parse_cache_control(cache_control), False
    if b"no-cache" in (combined_value(fields, b"pragma") or b"").lower():
        return {"no-cache": None}, False
    return {}, False


def _find_refusal(  # noqa: PLR0911 - a list of reasons
    request: Request, settings: Settings, status: int, fields: Fields, directives: Directives
) -> Refusal | None:
    if settings.no_store:
        return Refusal("rule")
    if status < 200 or status in {206, 304}:  # noqa: PLR2004 - interim responses
        return Refusal("status")
    must_understand = "must-understand" in directives
    if must_understand and status not in _UNDERSTOOD_STATUSES:
        return Refusal("must-understand")
    if "no-store" in directives and not must_understand:
        return Refusal("no-store")
    if "no-store" in request.directives and not settings.ignore_request_directives:
        return Refusal("request-no-store")
    if "private" in directives:
        return Refusal("private")
    if b"authorization" in request.headers and not (
        directives.keys() & {"public", "s-maxage", "must-revalidate"}
    ):
        return Refusal("authorization")
    if any(_MALFORMED.search(name) or _MALFORMED.search(value) for name, value in fields):
        return Refusal("malformed-field")
    if len({value.strip() for name, value in fields if name == b"content-length"}) > 1:
        return Refusal("two-lengths")
    return None


def _stated_lifetime(
    directives: Directives, is_targeted: bool, fields: Fields, date: int
) -> int | None:
    """Return the lifetime that the response states, in seconds; None if it states none."""
    for name in ("s-maxage", "max-age"):
        if name in directives:
            return parse_whole_number(directives[name]) or 0
    if is_targeted:
        return None
    expires = combined_value(fields, b"expires")
    if expires is None:
        return None
    expires_at = parse_date(expires)
    return 0 if expires_at is None else max(0, expires_at - date)


def _heuristic_lifetime(
    request: Request, directives: Directives, status: int, fields: Fields, date: int
) -> int | None:
    """Return a lifetime of a tenth of the time since the last change; None if the response is not stored."""
    is_public = "public" in directives
    if status not in _HEURISTIC_STATUSES and not is_public:
        return None
    names = {name for name, _ in fields}
    if (b"set-cookie" in names or b"cookie" in request.headers) and not is_public:
        return None
    last_modified = parse_date(combined_value(fields, b"last-modified") or b"")
    if last_modified is None or last_modified > date:
        # Without a lifetime it can only be validated, which needs something to validate by.
        return (
            0 if b"etag" in names or last_modified is not None or "no-cache" in directives else None
        )
    return min((date - last_modified) // _HEURISTIC_DIVISOR, _HEURISTIC_MAX_S)


def _initial_age(fields: Fields, date: int | None, sent_at: float, received_at: float) -> float:
    """Return the corrected initial age (RFC 9111, section 4.2.3).

    Of several ages the first counts, and one that is not a number is ignored (section 5.1).
    """
    apparent_age = 0.0 if date is None else max(0.0, int(received_at) - date)
    stated_age = combined_value(fields, b"age")
    if stated_age is None:
        return max(apparent_age, received_at - sent_at if apparent_age else 0.0)
    first_member = stated_age.split(b",")[0].split(b";")[0].strip()
    stated_age_s = parse_whole_number(first_member.decode("latin-1"))
    return (
        apparent_age
        if stated_age_s is None
        else max(apparent_age, stated_age_s + received_at - sent_at)
    )


def decide_reuse(  # noqa: C901, PLR0911, PLR0912 - the order of the conditions is the rule
    entry: Entry, request: Request, settings: Settings, now: float, is_soft_purged: bool
) -> Reuse:
    """Return what may be done with a stored response for a request at a time."""
    age = entry.age(now)
    remaining_s = entry.fresh_s - age
    if remaining_s > 0 and not (entry.flags or is_soft_purged or request.directives):
        return _FRESH  # the usual hit: none of the conditions below can hold
    if is_soft_purged:
        remaining_s = min(remaining_s, 0.0)
    request_directives = {} if settings.ignore_request_directives else request.directives
    if entry.flags & HEURISTIC and not CREDENTIALS.isdisjoint(request.headers):
        return Reuse("pass", "heuristic")
    if entry.flags & NO_CACHE:
        return Reuse("validate", "no-cache")
    if request_directives:
        if "no-cache" in request_directives:
            return Reuse("validate", "request-no-cache")
        max_age_s = parse_whole_number(request_directives.get("max-age"))
        if max_age_s is not None and age > max_age_s:
            return Reuse("validate", "request-max-age")
        min_fresh_s = parse_whole_number(request_directives.get("min-fresh"))
        if min_fresh_s is not None and remaining_s < min_fresh_s:
            return Reuse("validate", "request-min-fresh")
    if remaining_s > 0:
        return _FRESH
    if entry.flags & MUST_REVALIDATE:
        return Reuse("validate", "must-revalidate")
    # What was purged softly is as stale as if its lifetime had just ended, however long ago the purge was.
    if (
        is_soft_purged and not entry.fresh_s - age < 0
    ) or -remaining_s < entry.stale_while_revalidate_s:
        return Reuse("stale", "grace")
    if "max-stale" in request_directives:
        max_stale_s = parse_whole_number(request_directives["max-stale"])
        if request_directives["max-stale"] is None or (
            max_stale_s is not None and -remaining_s <= max_stale_s
        ):
            return Reuse("fresh", "max-stale")
    return Reuse("validate", "stale")


def may_replace_error(entry: Entry, now: float, *, is_exception: bool) -> bool:
    """Whether a stale response may be sent instead of an application's error (RFC 5861, RFC 9111, 4.2.4)."""
    if entry.flags & (MUST_REVALIDATE | NO_CACHE):
        return False
    stale_for_s = entry.age(now) - entry.fresh_s
    return stale_for_s < max(entry.stale_if_error_s, entry.stale_while_revalidate_s) or is_exception


def storable_fields(fields: Fields) -> Fields:
    """Return the fields of a response that may be stored and sent again (RFC 9111, section 3.1)."""
    connection_options = combined_value(fields, b"connection")
    dropped_names = (
        HOP_BY_HOP | {name.lower() for name in split_list(connection_options)}
        if connection_options
        else HOP_BY_HOP
    )
    return [pair for pair in fields if pair[0] not in dropped_names]


def merge_fields(stored_fields: Fields, new_fields: Fields) -> Fields:
    """Return the stored fields with those of a 304 or a HEAD in place of theirs (RFC 9111, section 3.2)."""
    updates = [pair for pair in storable_fields(new_fields) if pair[0] not in _NOT_UPDATED]
    names = {name for name, _ in updates}
    return [pair for pair in stored_fields if pair[0] not in names and pair[0] != b"age"] + updates
