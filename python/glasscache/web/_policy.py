"""What RFC 9111 lets a shared cache store, reuse and change; RFC 5861 and RFC 9213 with it. No I/O, no clock.

Times are Unix seconds that the caller passes in. Where the RFC leaves room, the cautious reading counts: a
lifetime or an age that cannot be read makes a response stale, and heuristics never store a response that sets
a cookie, or the response to a request with one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from glasscache.web._entry import (
    HAS_GRACE,
    HEURISTIC,
    MUST_REVALIDATE,
    NO_AUTHORIZATION,
    NO_CACHE,
    NO_CREDENTIALS,
    Entry,
)
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
from glasscache.web._sharing import (
    AUTHORIZED,
    FOR_EVERYONE,
    Refusal,
    find_refusal,
    names_a_client,
    unkeyed_credential,
)

if TYPE_CHECKING:
    from glasscache.web._message import Request, Settings

__all__ = [
    "Lifetime",
    "Refusal",
    "Reuse",
    "decide_reuse",
    "is_compressible",
    "lifetime_of",
    "merge_fields",
    "reads_credentials",
    "storable_fields",
]

TARGETED_FIELDS: Final = (b"cdn-cache-control",)
"""Targeted fields that this cache obeys instead of Cache-Control, the first of them that is valid."""

_HEURISTIC_STATUSES: Final = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501})
_HEURISTIC_DIVISOR: Final = 10
_HEURISTIC_MAX_S: Final = 86400
_KEEP_VALIDATED_S: Final = 86400
"""A response with a validator is kept this long beyond its lifetime, for a 304 costs less than a fetch."""
_KEEP_S: Final = 600
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VARY_MAX: Final = 16
"""A response that varies on more fields is not stored: hardly any request would find it."""

HOP_BY_HOP: Final = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te", b"trailer",
    b"proxy-authenticate", b"proxy-authentication-info", b"proxy-authorization",
})  # fmt: skip
_NOT_UPDATED: Final = HOP_BY_HOP | {
    b"content-encoding", b"content-length", b"content-md5", b"content-range", b"etag", b"age",
}  # fmt: skip
_COMPRESSED_TYPES: Final = (
    b"text/",
    b"application/json",
    b"application/javascript",
    b"image/svg+xml",
)
STALE_FOR_ERROR: Final = frozenset({500, 502, 503, 504})


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
_PERSONAL: Final = HEURISTIC | NO_CREDENTIALS | NO_AUTHORIZATION


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
    vary_names = vary_names_of(fields)
    if refusal := find_refusal(request, settings, status, fields, directives, vary_names):
        return refusal
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
    flags = _flags_of(directives, settings, has_lifetime=stated_lifetime_s is not None)
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


def _flags_of(directives: Directives, settings: Settings, *, has_lifetime: bool) -> int:
    """Return the conditions under which a stored response may be sent."""
    flags = NO_CACHE if "no-cache" in directives else 0
    if FOR_EVERYONE.isdisjoint(directives):
        flags |= NO_CREDENTIALS
        if AUTHORIZED.isdisjoint(directives):
            flags |= NO_AUTHORIZATION
    if directives.keys() & {"must-revalidate", "proxy-revalidate", "s-maxage"} and (
        settings.grace is None or "must-revalidate" in directives
    ):
        flags |= MUST_REVALIDATE
    if not has_lifetime and settings.ttl is None and "public" not in directives:
        flags |= HEURISTIC
    return flags


def vary_names_of(fields: Fields) -> tuple[bytes, ...]:
    """Return the names of Vary in lower case, each once; with one that is no name it is a "*"."""
    vary = combined_value(fields, b"vary")
    if not vary:
        return ()
    names = {name.lower() for name in split_list(vary)}
    return tuple(sorted(names)) if all(map(_TOKEN.fullmatch, names)) else (b"*",)


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
    if b"cookie" in request.headers and not is_public:
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
    if entry.flags & _PERSONAL and (reason := _find_personal(entry, request, settings)):
        return Reuse("pass", reason)
    if remaining_s > 0 and not (entry.flags & NO_CACHE or is_soft_purged or request.directives):
        return _FRESH  # the usual hit: none of the conditions below can hold
    if is_soft_purged:
        remaining_s = min(remaining_s, 0.0)
    request_directives = {} if settings.ignore_request_directives else request.directives
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


def reads_credentials(entry: Entry, request: Request) -> bool:
    """Whether more counts of a request's credentials than the names of their fields."""
    headers = request.headers
    return bool(entry.flags & _PERSONAL) and (b"cookie" in headers or b"authorization" in headers)


def _find_personal(entry: Entry, request: Request, settings: Settings) -> str:
    """Return why a response that does not say that it is for everyone is not for this request."""
    headers = request.headers
    if b"authorization" in headers and entry.flags & NO_AUTHORIZATION:
        return "authorization"
    if b"cookie" in headers and entry.flags & HEURISTIC:
        return "heuristic"
    if not (entry.flags & NO_CREDENTIALS and names_a_client(request)):
        return ""
    return unkeyed_credential(request, settings, vary_names_of(entry.fields))


def may_replace_error(entry: Entry, now: float) -> bool:
    """Whether a stale response may be sent instead of an application's error (RFC 5861, RFC 9111, 4.2.4)."""
    if entry.flags & (MUST_REVALIDATE | NO_CACHE):
        return False
    stale_for_s = entry.age(now) - entry.fresh_s
    return stale_for_s < max(entry.stale_if_error_s, entry.stale_while_revalidate_s)


def storable_fields(fields: Fields) -> Fields:
    """Return the fields of a response that may be stored and sent again (RFC 9111, section 3.1)."""
    connection_options = combined_value(fields, b"connection")
    dropped_names = (
        HOP_BY_HOP | {name.lower() for name in split_list(connection_options)}
        if connection_options
        else HOP_BY_HOP
    )
    return [pair for pair in fields if pair[0] not in dropped_names]


def is_compressible(status: int, fields: Fields) -> bool:
    """Whether the cache may compress a body: of text, in no coding yet, and no directive forbids it."""
    content_type = (combined_value(fields, b"content-type") or b"").strip().lower()
    return (
        status == 200  # noqa: PLR2004
        and content_type.startswith(_COMPRESSED_TYPES)
        and combined_value(fields, b"content-encoding") is None
        and "no-transform"
        not in parse_cache_control(combined_value(fields, b"cache-control") or b"")
    )


def merge_fields(stored_fields: Fields, new_fields: Fields) -> Fields:
    """Return the stored fields with those of a 304 or a HEAD in place of theirs (RFC 9111, section 3.2)."""
    updates = [pair for pair in storable_fields(new_fields) if pair[0] not in _NOT_UPDATED]
    names = {name for name, _ in updates}
    return [pair for pair in stored_fields if pair[0] not in names and pair[0] != b"age"] + updates
