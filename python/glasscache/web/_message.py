"""Requests and responses as the cache sees them: parsed heads without bodies, and what rules set about them.

A head is parsed once, on the way in. The key of a request holds its host, path and query and every field by
which a proxy or a client could make the application reply as if the URL were another one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from glasscache.web._fields import Directives, Fields, parse_cache_control

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NO_SETTINGS", "Request", "Settings"]

URL_BYTES_MAX: Final = 8192
"""Longer URLs go to the application uncached: they are hardly reused, and their keys are cheap to make up."""

KEYED_FIELDS: Final = frozenset({
    b"forwarded", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-scheme", b"x-forwarded-port",
    b"x-forwarded-prefix", b"x-forwarded-server", b"x-forwarded-ssl", b"x-original-url", b"x-rewrite-url",
    b"x-original-host", b"x-host", b"x-http-method-override", b"x-http-method", b"x-method-override",
    b"front-end-https", b"x-url-scheme",
})  # fmt: skip
"""Fields that frameworks take for parts of the URL: without them in the key a request could poison others."""

_SINGLE_FIELDS: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
"""Fields of which servers differ in what they make of two."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH"})


@dataclass(slots=True)
class Settings:
    """What rules decided for a request or its response; None leaves it to the RFC.

    Attributes:
        bypass: send the request to the application and store nothing.
        ttl: seconds of freshness, instead of what the response says.
        grace: seconds of staleness in which the old response is sent while one request refreshes it.
        keep: further seconds for which a response is kept for validation and for failing applications.
        no_store: do not store the response.
        tags: tags of the response besides those of its field.
        tag_field: the response field that lists tags, in lower case.
        vary_on: request fields ("header:x"), cookies ("cookie:x"), "device" or "language" in the key.
        pass_cookies: the request's cookies that the application gets; None passes all.
        strip_cookies: remove Set-Cookie from the response.
        max_bytes: longest body that is stored.
        compress: compress the stored body when the response is not compressed yet.
        url: the canonical host, path and query; None if rules left them.
        ignore_request_directives: clients cannot force validation by Cache-Control or Pragma.
        deciding_rules: which rule decided each setting, by its name.
        matched_rules: the rules whose conditions on the request hold.

    """

    bypass: bool = False
    ttl: float | None = None
    grace: float | None = None
    keep: float | None = None
    no_store: bool = False
    tags: tuple[str, ...] = ()
    tag_field: bytes | None = None
    vary_on: tuple[str, ...] = ()
    pass_cookies: frozenset[str] | None = None
    strip_cookies: bool = False
    max_bytes: int | None = None
    compress: bool = False
    url: tuple[bytes, bytes, bytes] | None = None
    ignore_request_directives: bool = False
    deciding_rules: dict[str, str] = field(default_factory=dict[str, str])
    matched_rules: tuple[Any, ...] = ()


NO_SETTINGS: Final = Settings()


class Request:
    """The head of a request."""

    __slots__ = (
        "directives",
        "fields",
        "headers",
        "host",
        "is_ambiguous",
        "method",
        "path",
        "query",
        "scheme",
    )

    def __init__(
        self,
        method: str,
        scheme: str,
        path: bytes,
        query: bytes,
        fields: Iterable[tuple[bytes, bytes]],
    ) -> None:
        """Parse a head.

        Args:
            method: in upper case.
            scheme: "http" or "https".
            path: as it was sent, percent-encoded.
            query: without its question mark.
            fields: pairs with lower-case names.

        """
        self.method, self.scheme, self.path, self.query = method, scheme, path, query
        self.fields: Fields = fields if isinstance(fields, list) else list(fields)
        headers, is_ambiguous = dict(self.fields), False
        if len(headers) != len(self.fields):
            headers, is_ambiguous = _combine_headers(self.fields)
        self.headers = headers
        self.host = headers.get(b"host", b"").strip().lower()
        cache_control = headers.get(b"cache-control")
        if cache_control is not None:
            self.directives: Directives = parse_cache_control(cache_control)
        elif b"no-cache" in headers.get(b"pragma", b""):
            self.directives = {"no-cache": None}
        else:
            self.directives = {}
        content_length = headers.get(b"content-length")
        # A GET with a body, two hosts or two lengths: servers differ in what they make of it. A name with an
        # underscore is another field to some gateways (WSGI, Django) and the one with a hyphen to others.
        self.is_ambiguous = (
            is_ambiguous
            or b"transfer-encoding" in headers
            or (content_length is not None and content_length.strip() not in {b"0", b""})
            or len(path) + len(query) > URL_BYTES_MAX
            or b"_" in b"".join(headers)
            or b"\0" in path
        )

    @property
    def is_safe(self) -> bool:
        """Whether the method changes nothing at the origin."""
        return self.method in SAFE_METHODS

    def digest(self, version: bytes, settings: Settings) -> bytes:
        """Return the 16 bytes that name this request's responses.

        Args:
            version: of the deployment; responses of another version are not found.
            settings: what rules made of the URL, and what they vary on.

        """
        return digest_of(self.key_text(version, settings))

    def key_text(self, version: bytes, settings: Settings) -> bytes:
        """Return what the digest is of: the URL, and fields that are part of the key."""
        text = self._url_text(version, settings)
        if self.is_keyed_by_fields(settings):
            text += self._fields_text(settings)
        return text

    def url_digest(self, version: bytes, settings: Settings) -> bytes:
        """Return the 16 bytes that name the URL, which all its requests share whatever their fields are."""
        return digest_of(self._url_text(version, settings))

    def is_keyed_by_fields(self, settings: Settings) -> bool:
        """Whether the URL alone is not the key: by a field that may change it, or by a rule's `vary_on`."""
        return bool(settings.vary_on) or not KEYED_FIELDS.isdisjoint(self.headers)

    def _url_text(self, version: bytes, settings: Settings) -> bytes:
        host, path, query = settings.url or (self.host, self.path, self.query)
        return b"\0".join((version, self.scheme.encode(), host, path, query))

    def _fields_text(self, settings: Settings) -> bytes:
        headers = self.headers
        # Sorted: the order of a set differs from process to process, and keys must not.
        parts = [
            b"\n" + name + b":" + headers[name] for name in sorted(KEYED_FIELDS & headers.keys())
        ]
        parts += [
            b"\n" + selector.encode() + b"=" + self.vary_value(selector)
            for selector in settings.vary_on
        ]
        return b"".join(parts)

    def cookies(self) -> dict[str, str]:
        """Return the cookies by name; of several with one name the first."""
        cookies: dict[str, str] = {}
        for part in self.headers.get(b"cookie", b"").decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name:
                cookies.setdefault(name, value)
        return cookies

    def vary_value(self, selector: str) -> bytes:
        """Return what a rule's `vary_on` finds in this request."""
        selector_kind, _, name = selector.partition(":")
        match selector_kind:
            case "cookie":
                return self.cookies().get(name, "").encode("latin-1")
            case "device":
                return _device_of(self.headers.get(b"user-agent", b""))
            case "language":
                return _preferred_language(self.headers.get(b"accept-language", b""))
            case _:
                return normalized_value(name.encode(), self.headers.get(name.encode()))


def digest_of(text: bytes) -> bytes:
    """Return the 16 bytes that stand for a text in keys."""
    return hashlib.blake2b(text, digest_size=16).digest()


def _combine_headers(fields: Fields) -> tuple[dict[bytes, bytes], bool]:
    """Return the values by name, those of repeated fields joined, and whether one may not be repeated."""
    headers: dict[bytes, bytes] = {}
    is_ambiguous = False
    for name, value in fields:
        if name in headers:
            is_ambiguous = is_ambiguous or name in _SINGLE_FIELDS
            separator = b"; " if name == b"cookie" else b", "
            headers[name] = headers[name] + separator + value
        else:
            headers[name] = value
    return headers, is_ambiguous


def _device_of(user_agent: bytes) -> bytes:
    lowered = user_agent.lower()
    if b"ipad" in lowered or b"tablet" in lowered:
        return b"tablet"
    return b"mobile" if b"mobi" in lowered or b"android" in lowered else b"desktop"


def _preferred_language(accept_language: bytes) -> bytes:
    """Return the primary language that the client prefers, such as b"de"."""
    best, best_quality = b"", -1.0
    for part in accept_language.lower().split(b","):
        tag, _, parameter = part.partition(b";")
        try:
            quality = float(parameter.strip()[2:]) if parameter.strip().startswith(b"q=") else 1.0
        except ValueError:
            quality = 0.0
        if tag.strip() and quality > best_quality:
            best, best_quality = tag.strip().split(b"-")[0], quality
    return best


def normalized_value(name: bytes, value: bytes | None) -> bytes:
    """Return a selecting field in a form that equal requests share (RFC 9111, section 4.1).

    White space around commas is removed; codings and languages are compared without case, and codings without
    order. An absent field differs from an empty one.
    """
    if value is None:
        return b"\0"
    parts = [b" ".join(part.split()) for part in value.split(b",")]
    if name == b"accept-encoding":
        return b",".join(sorted(part.lower().replace(b" ", b"") for part in parts if part))
    if name == b"accept-language":
        parts = [part.lower().replace(b" ", b"") for part in parts if part]
    return b",".join(parts)
