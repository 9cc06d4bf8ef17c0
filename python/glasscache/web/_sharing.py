"""Whether a response may be stored and sent to other clients: one decision, for every front end.

RFC 9111, section 3, and beyond it what Varnish, nginx and Django refuse, too: a response that sets a cookie,
and one that was made with a cookie, a user or credentials that are not in its key, unless it says itself that
it is for everyone. A rule's `ttl` replaces the lifetime and none of this.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from glasscache.web._fields import combined_value, has_long_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from glasscache.web._fields import Directives, Fields
    from glasscache.web._message import Request, Settings

__all__ = ["Refusal", "find_refusal", "unkeyed_credential"]

UNDERSTOOD_STATUSES: Final = frozenset({
    200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412,
    413, 414, 415, 416, 417, 421, 422, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 511,
})  # fmt: skip
_MALFORMED: Final = re.compile(rb"[\r\n\0]")
"""What would end a field early: of an application's response to a server, or in a stored record."""
_ENDLESS_TYPES: Final = (b"text/event-stream", b"multipart/x-mixed-replace")
"""Of bodies that end when the client leaves, whatever Cache-Control says of them."""
CREDENTIAL_FIELDS: Final = frozenset({
    b"proxy-authorization", b"remote-user", b"x-remote-user", b"x-forwarded-user", b"x-forwarded-email",
    b"x-forwarded-preferred-username", b"x-forwarded-groups", b"x-forwarded-access-token",
    b"x-auth-request-user", b"x-auth-request-email", b"x-auth-request-access-token", b"x-auth-user",
    b"x-auth-token", b"x-access-token", b"x-api-key", b"api-key", b"x-authenticated-user", b"x-user",
    b"x-user-id", b"x-username", b"x-user-email", b"x-session", b"x-session-id", b"x-session-token",
    b"x-amzn-oidc-data", b"x-amzn-oidc-identity", b"x-amzn-oidc-accesstoken",
    b"x-goog-authenticated-user-email", b"x-goog-authenticated-user-id", b"x-goog-iap-jwt-assertion",
    b"cf-access-jwt-assertion", b"cf-access-authenticated-user-email", b"x-ms-client-principal",
    b"x-ms-client-principal-name", b"x-client-cert", b"x-ssl-client-cert", b"x-forwarded-client-cert",
})  # fmt: skip
"""Fields in which proxies and clients name a user, or carry what stands for one."""
_CREDENTIAL_WORDS: Final = re.compile(
    rb"(?:\A|-)(?:user(?!-agent)|users?id|username|uid|email|login|token|jwt|auth|authn|authenticated|"
    rb"authorization|session|sessionid|apikey|principal|identity|oidc|saml|dn|cert|groups?|roles?|consumer|"
    rb"account|customer|tenant|member|credentials?|secret|password|dpop|csrf|xsrf|csrftoken)(?=-|\Z)"
)
"""Words by which a field of any other name is one of these, too."""
_UNSUSPICIOUS: Final = frozenset({b"authorization", b"sec-fetch-user"})
_NAMES_BYTES_KEPT: Final = 1024
"""Of names that are longer together it is not kept which of them are credentials."""
FOR_EVERYONE: Final = frozenset({"public", "s-maxage"})
"""Directives by which a response says that a shared cache may keep it whoever asked for it."""
AUTHORIZED: Final = frozenset({"public", "s-maxage", "must-revalidate"})
"""Directives that permit the same for a request with Authorization (RFC 9111, section 3.5)."""


class Refusal(NamedTuple):
    """A response may not be stored, and why."""

    reason: str


def find_refusal(
    request: Request,
    settings: Settings,
    status: int,
    fields: Fields,
    directives: Directives,
    vary_names: Collection[bytes],
) -> Refusal | None:
    """Return why a response to a GET may not be shared; None if it may.

    Args:
        request: as the application got it.
        settings: what rules decided.
        status: of the response.
        fields: of the response, with lower-case names.
        directives: of the field that counts for this cache.
        vary_names: fields of the request that are in the key beside those of rules.

    """
    reason = (
        _forbidden_reason(request, settings, status, directives)
        or _personal_reason(request, settings, fields, directives, vary_names)
        or _malformed_reason(fields)
    )
    return Refusal(reason) if reason else None


def _forbidden_reason(
    request: Request, settings: Settings, status: int, directives: Directives
) -> str:
    """Return why the response says itself that it is not stored, or a rule or the request does."""
    must_understand = "must-understand" in directives
    if settings.no_store:
        return "rule"
    if status < 200 or status in {206, 304}:  # noqa: PLR2004 - interim responses
        return "status"
    if must_understand and status not in UNDERSTOOD_STATUSES:
        return "must-understand"
    if "no-store" in directives and not must_understand:
        return "no-store"
    if "no-store" in request.directives and not settings.ignore_request_directives:
        return "request-no-store"
    return "private" if "private" in directives else ""


def _personal_reason(
    request: Request,
    settings: Settings,
    fields: Fields,
    directives: Directives,
    vary_names: Collection[bytes],
) -> str:
    """Return what the response has of one client, that is not in the key."""
    if b"*" in vary_names:
        return "vary-star"
    if b"authorization" in request.headers and AUTHORIZED.isdisjoint(directives):
        return "authorization"
    if _sets_other_cookies(fields, settings.store_set_cookie):
        return "set-cookie"
    if FOR_EVERYONE.isdisjoint(directives):
        return unkeyed_credential(request, settings, vary_names)
    return ""


def _malformed_reason(fields: Fields) -> str:
    """Return why nothing can be made of the response as a whole."""
    content_type = (combined_value(fields, b"content-type") or b"").strip().lower()
    if content_type.startswith(_ENDLESS_TYPES):
        return "stream"
    if has_long_fields(fields):
        return "long-field"
    if any(_MALFORMED.search(name) or _MALFORMED.search(value) for name, value in fields):
        return "malformed-field"
    lengths = {value.strip() for name, value in fields if name == b"content-length"}
    if len(lengths) > 1:
        return "two-lengths"
    return "" if all(map(bytes.isdigit, lengths)) else "malformed-field"


def _sets_other_cookies(fields: Fields, allowed_names: Iterable[str]) -> bool:
    """Whether a response sets a cookie whose name no rule allows; a `*` in a name stands for anything."""
    set_names = [
        value.partition(b"=")[0].strip().decode("latin-1")
        for name, value in fields
        if name in {b"set-cookie", b"set-cookie2"}
    ]
    if not set_names:
        return False
    patterns = [re.escape(name).replace(r"\*", ".*") for name in allowed_names]
    allowed = re.compile("|".join(patterns) or r"(?!)")
    return any(not allowed.fullmatch(name) for name in set_names)


def names_a_client(request: Request) -> bool:
    """Whether a request has anything that may stand for a user."""
    headers = request.headers
    return request.is_identified or b"cookie" in headers or bool(_credentials_of(request.names))


def _credentials_of(names: bytes) -> frozenset[bytes]:
    """Return which names of fields stand for a user, apart from Cookie and Authorization."""
    return _kept_credentials(names) if len(names) <= _NAMES_BYTES_KEPT else _credentials_in(names)


def _credentials_in(names: bytes) -> frozenset[bytes]:
    return frozenset(
        name
        for name in names.split(b"\n")
        if name in CREDENTIAL_FIELDS
        or (name not in _UNSUSPICIOUS and _CREDENTIAL_WORDS.search(name))
    )


_kept_credentials: Final = lru_cache(maxsize=512)(_credentials_in)


def unkeyed_credential(request: Request, settings: Settings, vary_names: Collection[bytes]) -> str:
    """Return what of a request stands for a user and is not in its key; empty if nothing does."""
    headers = request.headers
    if request.is_identified:
        return "user"
    if (
        b"cookie" in headers
        and b"cookie" not in vary_names
        and _has_unkeyed_cookie(request, settings)
    ):
        return "cookie"
    credentials = _credentials_of(request.names)
    if not credentials:
        return ""
    keyed_names = {
        selector.removeprefix("header:").lower().encode() for selector in settings.vary_on
    }
    keyed_names |= {label.removeprefix(b"if:") for label, _ in settings.keyed_conditions}
    return "" if credentials <= keyed_names.union(vary_names) else "credentials"


def _has_unkeyed_cookie(request: Request, settings: Settings) -> bool:
    """Whether the application gets a cookie that is not in the key."""
    keyed_labels = {selector.encode() for selector in settings.vary_on}
    if b"header:cookie" in keyed_labels:
        return False
    keyed_labels |= {label.removeprefix(b"if:") for label, _ in settings.keyed_conditions}
    cookies = request.parsed_cookies()
    return not cookies.is_plain or any(
        b"cookie:" + name.encode("latin-1") not in keyed_labels for name in cookies.values
    )
