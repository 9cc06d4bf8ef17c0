"""Requests and responses as the cache sees them: parsed heads without bodies, and what rules set about them.

A head is parsed once, on the way in. The key of a request holds its host, path and query and every field by
which a proxy or a client could make the application reply as if the URL were another one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from glasscache import _native
from glasscache.web._canonical import PLAIN_PATH_BYTES, canonical_host, canonical_path
from glasscache.web._cookies import NO_COOKIES, parse_cookies
from glasscache.web._fields import (
    FIELD_BYTES_MAX,
    Directives,
    Fields,
    has_long_fields,
    has_odd_fields,
    parse_cache_control,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from glasscache.web._cookies import Cookies

__all__ = ["NO_SETTINGS", "Request", "Settings"]

_NO_NAMES: Final[frozenset[bytes]] = frozenset()
_EXACT_FIELDS: Final = frozenset({b"cookie", b"authorization"})
"""Fields in which white space and case may matter to the application."""

HOST_BYTES_READ: Final = 512
"""No host is longer: what is cut off makes it ambiguous in any case."""
URL_BYTES_MAX: Final = 8192
"""Longer URLs go to the application uncached: they are hardly reused, and their keys are cheap to make up."""

KEYED_FIELDS: Final = frozenset({
    b"forwarded", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-scheme", b"x-forwarded-port",
    b"x-forwarded-prefix", b"x-forwarded-server", b"x-forwarded-ssl", b"x-original-url", b"x-rewrite-url",
    b"x-original-host", b"x-host", b"front-end-https", b"x-url-scheme", b"x-forwarded-protocol",
    b"x-forwarded-uri", b"x-forwarded-path", b"x-script-name", b"x-scheme", b"x-original-uri",
    b"x-envoy-original-path", b"x-http-host-override", b"x-forwarded-base", b"x-forwarded-url",
    b"x-proxy-host", b"x-http-destinationurl", b"x-ingress-path", b"x-arr-ssl", b"x-appengine-https",
    b"cf-visitor", b"cloudfront-forwarded-proto",
})  # fmt: skip
"""Fields that frameworks take for parts of the URL: without them in the key a request could poison others."""

_METHOD_FIELDS: Final = frozenset(
    {b"x-http-method-override", b"x-http-method", b"x-method-override"}
)
"""Fields by which some applications take a request for one of another method."""
CONDITIONAL_FIELDS: Final = frozenset({b"if-none-match", b"if-modified-since"})
"""Fields by which a client gets a response only if it is another than the one that it has."""
PART_FIELDS: Final = CONDITIONAL_FIELDS | {b"range"}
"""Fields without which a GET gets the whole response."""
PASSED_ON_FIELDS: Final = frozenset({b"if-match", b"if-unmodified-since", b"upgrade"})
"""Fields with which a request is passed on to the application."""
_DELIMITERS: Final = re.compile(rb"[\n\0]")
"""What stands between values in keys, and for a field that is absent."""
_CONTROL_CHARACTERS: Final = re.compile(rb"[\x00-\x1f\x7f]")

_SINGLE_FIELDS: Final = KEYED_FIELDS | {b"host", b"content-length", b"transfer-encoding"}
"""Fields of which servers differ in what they make of two."""

SAFE_METHODS: Final = frozenset({
    "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY",
})  # fmt: skip

_SCANNER: Final = _native.HeadScanner(
    special_names=_METHOD_FIELDS
    | {b"transfer-encoding", b"content-length", b"cache-control", b"pragma"},
    decisive_names=KEYED_FIELDS | PART_FIELDS | PASSED_ON_FIELDS | {b"if-range"},
    plain_path_bytes=PLAIN_PATH_BYTES,
    url_bytes_max=URL_BYTES_MAX,
    fields_bytes_max=FIELD_BYTES_MAX,
)
"""Tells the heads, nearly all, in which nothing is to be read closely."""
decision_key_of: Final = _SCANNER.decision_key
"""Returns what a decision about a GET is made from, unless a value of its fields counts: see `_kept_hits`."""


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
        reads_fields: rules have read fields or cookies of the request.
        keyed_conditions: what conditions of rules read of the request, and its value, in the key.
        ambiguity: why applications may read otherwise what rules read of the request; empty if they do not.
        store_set_cookie: names of the cookies that a stored response may set.
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
    reads_fields: bool = False
    keyed_conditions: tuple[tuple[bytes, bytes], ...] = ()
    ambiguity: str = ""
    store_set_cookie: tuple[str, ...] = ()
    vary_on: tuple[str, ...] = ()
    pass_cookies: frozenset[str] | None = None
    strip_cookies: bool = False
    max_bytes: int | None = None
    compress: bool = False
    url: tuple[bytes, bytes, bytes] | None = None
    ignore_request_directives: bool = False
    deciding_rules: dict[str, str] = field(default_factory=dict[str, str])
    matched_rules: tuple[Any, ...] = ()

    @property
    def changes_requests(self) -> bool:
        """Whether the application gets another request than was sent, or the key more than the URL."""
        return bool(
            self.vary_on
            or self.url is not None
            or self.keyed_conditions
            or self.pass_cookies is not None
        )

    @property
    def vary_names(self) -> tuple[bytes, ...]:
        """Return the fields of the request that `vary_on` puts into the key, for Vary."""
        return tuple(dict.fromkeys(map(_field_of_selector, self.vary_on)))


def _field_of_selector(selector: str) -> bytes:
    kind, _, name = selector.partition(":")
    fields = {"cookie": b"cookie", "device": b"user-agent", "language": b"accept-language"}
    return fields.get(kind) or name.lower().encode()


NO_SETTINGS: Final = Settings()


class Request:
    """The head of a request, in the one spelling that keys, rules and the application read.

    Attributes:
        method: in upper case.
        scheme: "http" or "https".
        host: the Host field, without a final dot and the scheme's own port.
        host_name: the host without its port.
        path: percent-encoded in one way.
        path_text: the path decoded, as applications read it.
        query: without its question mark.
        fields: pairs with lower-case names, as the application gets them.
        headers: the values by name, those of repeated fields joined.
        directives: of Cache-Control.
        names: of the fields that were sent, with line feeds between them.
        repeated_names: of fields that were sent more than once.
        ambiguity: why servers and applications may read the request differently; empty if they do not.
        is_identified: whether something outside this cache has found out who the client is.
        surroundings: what the application reads beside the head, in the key: names and values.

    """

    __slots__ = (
        "_cookies", "_keyed_text", "ambiguity", "directives", "fields", "headers", "host", "host_name",
        "is_identified", "method", "names", "path", "path_text", "query", "repeated_names", "scheme",
        "surroundings",
    )  # fmt: skip

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
            path: percent-encoded in any way.
            query: without its question mark.
            fields: pairs with lower-case names.

        """
        self.method, self.scheme, self.path, self.query = method, scheme, path, query
        self.fields: Fields = fields if isinstance(fields, list) else list(fields)
        self.repeated_names = _NO_NAMES
        self.is_identified, self.ambiguity = False, ""
        self.surroundings: tuple[tuple[bytes, bytes], ...] = ()
        self.directives: Directives = {}
        self._keyed_text: bytes | None = None
        self._cookies: Cookies | None = None
        plain_head = _SCANNER.scan(path, query, self.fields)
        if plain_head is None:
            self._read_head(path)
            return
        self.headers, self.names, self.path_text = plain_head
        sent_host = self._read_host()
        if not self.ambiguity and self.host != sent_host:
            self._unify_fields(sent_host)

    def _read_host(self) -> bytes:
        """Set the host from its field, whose value is returned."""
        sent_host = self.headers.get(b"host", b"")
        self.host, self.host_name, is_ambiguous = canonical_host(
            sent_host[:HOST_BYTES_READ], self.scheme
        )
        if is_ambiguous:
            self.ambiguity = "ambiguous-host"
        return sent_host

    def _read_head(self, path: bytes) -> None:
        """Read a head that may have something of which servers and applications differ in what they make."""
        self.path, self.path_text, is_path_ambiguous = canonical_path(path)
        headers, query = dict(self.fields), self.query
        if len(headers) != len(self.fields):
            headers, self.repeated_names = _combine_headers(self.fields)
        self.headers, self.names = headers, b"\n".join(headers)
        sent_host = self._read_host()
        if b"cache-control" in headers or b"pragma" in headers:
            self.directives = self._parse_directives()
        # A body, two hosts, a name with an underscore, which is another field to some gateways and the one
        # with a hyphen to others.
        if (are_odd := has_odd_fields(self.fields)) and has_long_fields(self.fields):
            self.ambiguity = "long-field"
        elif not _METHOD_FIELDS.isdisjoint(headers):
            self.ambiguity = "ambiguous-method"
        elif (
            b"_" in self.names
            or b"transfer-encoding" in headers
            or (
                b"content-length" in headers
                and headers[b"content-length"].strip() not in {b"0", b""}
            )
            or (self.repeated_names and not self.repeated_names.isdisjoint(_SINGLE_FIELDS))
            or (are_odd and any(map(_DELIMITERS.search, headers.values())))
        ):
            self.ambiguity = "ambiguous-request"
        elif self.ambiguity:  # of the host
            pass
        elif len(self.path) + len(query) > URL_BYTES_MAX or (
            query and _CONTROL_CHARACTERS.search(query)
        ):
            self.ambiguity = "ambiguous-request"
        elif is_path_ambiguous:
            self.ambiguity = "ambiguous-path"
        if not self.ambiguity and (self.host != sent_host or self.repeated_names):
            self._unify_fields(sent_host)

    def _parse_directives(self) -> Directives:
        cache_control = self.headers.get(b"cache-control")
        if cache_control is not None:
            return parse_cache_control(cache_control)
        return {"no-cache": None} if b"no-cache" in self.headers.get(b"pragma", b"") else {}

    def _unify_fields(self, sent_host: bytes) -> None:
        """Give the application the host in its one spelling, and one field of each name."""
        if self.host != sent_host:
            self._replace_fields({b"host": self.host})
        # Some frameworks read the first of several fields, others the last, or all as one.
        self._replace_fields({name: self.headers[name] for name in sorted(self.repeated_names)})

    def _replace_fields(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Give fields other values; None removes one."""
        kept_fields = [pair for pair in self.fields if pair[0] not in changes]
        new_fields = [(name, value) for name, value in changes.items() if value is not None]
        self.fields = new_fields + kept_fields
        self.headers = {**self.headers, **dict(new_fields)}
        for name, value in changes.items():
            if value is None:
                self.headers.pop(name, None)

    def with_url(self, url: tuple[bytes, bytes, bytes]) -> Request:
        """Return the request with another host, path and query."""
        changed = self._copy()
        host, path, changed.query = url
        changed.host, changed.host_name, _ = canonical_host(host, self.scheme)
        changed.path, changed.path_text, is_ambiguous = canonical_path(path)
        if is_ambiguous and not changed.ambiguity:
            changed.ambiguity = "ambiguous-path"
        if changed.host != self.host:
            changed._replace_fields({b"host": changed.host})  # noqa: SLF001 - of the same class
        return changed

    def canonical(self, settings: Settings) -> Request:
        """Return what the application gets: URL, cookies and values exactly as they are in the key."""
        if self._keyed_text is not None:
            return self
        changes_nothing = settings is NO_SETTINGS or not settings.changes_requests
        if changes_nothing and not self.surroundings and KEYED_FIELDS.isdisjoint(self.headers):
            self._keyed_text = b""
            return self
        keyed_parts = self.keyed_fields()
        changes = self._passed_cookies(settings.pass_cookies)
        for selector in settings.vary_on:
            value, changed_fields = _vary_value(self, selector)
            keyed_parts.append((selector.encode(), value))
            changes.update(changed_fields)
        keyed_parts += settings.keyed_conditions
        changed = self
        if settings.url is not None and settings.url != (self.host, self.path, self.query):
            changed = self.with_url(settings.url)
        elif changes:
            changed = self._copy()
        changed._keyed_text = b"".join(  # noqa: SLF001 - of the same class
            b"\n%b:%d:%b" % (label, len(value), value) for label, value in keyed_parts
        )
        if changes:
            changed._replace_fields(changes)  # noqa: SLF001
            changed._cookies = None  # noqa: SLF001
        return changed

    def as_get(self) -> Request:
        """Return the GET for the same URL: what is stored for it concerns requests of other methods, too."""
        get_request = self._copy()
        get_request.method, get_request._keyed_text = "GET", None  # noqa: SLF001 - of the same class
        return get_request

    def _copy(self) -> Request:
        copied = object.__new__(Request)
        for name in Request.__slots__:
            setattr(copied, name, getattr(self, name))
        return copied

    def keyed_fields(self) -> list[tuple[bytes, bytes]]:
        """Return what is in the key beside the URL whatever rules say: names and values."""
        headers = self.headers
        # Sorted: the order of a set differs from process to process, and keys must not.
        names = sorted(KEYED_FIELDS & headers.keys())
        return [*self.surroundings, *((name, headers[name]) for name in names)]

    def set_surroundings(self, mount: bytes, server: bytes) -> None:
        """Put into the key where the application is mounted, and who its server is where no Host says so."""
        parts = ((b"mount", mount), (b"server", b"" if self.host else server))
        self.surroundings = tuple((label, value) for label, value in parts if value)

    def _passed_cookies(self, names: frozenset[str] | None) -> dict[bytes, bytes | None]:
        """Return the Cookie field without the cookies that rules keep from the application."""
        if names is None or b"cookie" not in self.headers:
            return {}
        passed = "; ".join(
            f"{name}={value}" for name, value in self.cookies().items() if name in names
        )
        return {b"cookie": passed.encode("latin-1") if passed else None}

    @property
    def is_safe(self) -> bool:
        """Whether the method changes nothing at the origin, in whichever case servers let it through."""
        return self.method.upper() in SAFE_METHODS

    @property
    def is_ambiguous(self) -> bool:
        """Whether servers and applications may read the request differently."""
        return bool(self.ambiguity)

    def digest(self, version: bytes, settings: Settings) -> bytes:
        """Return the 16 bytes that name this request's responses.

        Args:
            version: of the deployment; responses of another version are not found.
            settings: what rules made of the URL, and what they vary on.

        """
        return digest_of(self.key_text(version, settings))

    def key_text(self, version: bytes, settings: Settings) -> bytes:
        """Return what the digest is of: the URL, and fields that are part of the key."""
        canonical = self if self._keyed_text is not None else self.canonical(settings)
        return canonical._url_text(version) + (canonical._keyed_text or b"")  # noqa: SLF001

    def url_digest(self, version: bytes, settings: Settings) -> bytes:
        """Return the 16 bytes that name the URL, which all its requests share whatever their fields are."""
        return digest_of(self.canonical(settings)._url_text(version))  # noqa: SLF001

    def is_keyed_by_fields(self, settings: Settings) -> bool:
        """Whether the URL alone is not the key: by a field that may change it, or by what rules read."""
        return bool(self.canonical(settings)._keyed_text)  # noqa: SLF001

    def _url_text(self, version: bytes) -> bytes:
        return b"\0".join((version, self.scheme.encode(), self.host, self.path, self.query))

    @property
    def url(self) -> bytes:
        """Return host, path and query."""
        return self.host + self.path + (b"?" + self.query if self.query else b"")

    def parsed_cookies(self) -> Cookies:
        """Return the cookies, and whether frameworks read them alike."""
        if self._cookies is None:
            cookie_field = self.headers.get(b"cookie")
            self._cookies = NO_COOKIES if cookie_field is None else parse_cookies(cookie_field)
        return self._cookies

    def cookies(self) -> dict[str, str]:
        """Return the cookies by name; of several with one name the last."""
        return self.parsed_cookies().values


def tag_of(text: str) -> str:
    """Return the tag that a text names: blanks stand between tags, so that in a tag they are hyphens."""
    return "-".join(text.split())


def digest_of(text: bytes) -> bytes:
    """Return the 16 bytes that stand for a text in keys."""
    return hashlib.blake2b(text, digest_size=16).digest()


def _combine_headers(fields: Fields) -> tuple[dict[bytes, bytes], frozenset[bytes]]:
    """Return the values by name, those of repeated fields joined, and the names of those."""
    values_by_name: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        values_by_name.setdefault(name, []).append(value)
    headers = {
        name: (b"; " if name == b"cookie" else b", ").join(values)
        for name, values in values_by_name.items()
    }
    return headers, frozenset(name for name, values in values_by_name.items() if len(values) > 1)


_ABSENT: Final = b"\0"
_USER_AGENTS: Final = {
    b"desktop": b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120 "
    b"Safari/537.36",
    b"mobile": b"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120 "
    b"Mobile Safari/537.36",
    b"tablet": b"Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    b"Version/17.0 Mobile/15E148 Safari/604.1",
}
"""What the application gets for a device: one field for all clients whose responses have one key."""


def _vary_value(request: Request, selector: str) -> tuple[bytes, dict[bytes, bytes | None]]:
    """Return what a rule's `vary_on` finds in a request, and the fields that say the same and no more."""
    selector_kind, _, name = selector.partition(":")
    headers = request.headers
    match selector_kind:
        case "cookie":
            cookie = request.cookies().get(name)
            return _ABSENT if cookie is None else cookie.encode("latin-1"), {}
        case "device":
            device = _device_of(headers.get(b"user-agent", b""))
            return device, {b"user-agent": _USER_AGENTS[device]}
        case "language":
            language = _preferred_language(headers.get(b"accept-language", b""))
            return language, {b"accept-language": language or None}
        case _:
            encoded_name = name.lower().encode()
            value = headers.get(encoded_name)
            if value is None:
                return _ABSENT, {}
            if encoded_name in _NEGOTIATED_FIELDS:
                value = normalized_value(encoded_name, value)
            return value, {encoded_name: value}


_NEGOTIATED_FIELDS: Final = frozenset({b"accept-encoding", b"accept-language"})


def _device_of(user_agent: bytes) -> bytes:
    lowered = user_agent.lower()
    if b"ipad" in lowered or b"tablet" in lowered:
        return b"tablet"
    return b"mobile" if b"mobi" in lowered or b"android" in lowered else b"desktop"


_LANGUAGE: Final = re.compile(
    rb"[ \t]*([a-z]{1,8}|\*)(?:-[a-z0-9]{1,8})*[ \t]*(?:;[ \t]*q=([01](?:\.[0-9]{0,3})?)[ \t]*)?"
)


def _preferred_language(accept_language: bytes) -> bytes:
    """Return the primary language that the client prefers, such as b"de"; empty if it names none."""
    best, best_quality = b"", 0.0
    for part in accept_language[:_LANGUAGES_BYTES_MAX].lower().split(b","):
        match = _LANGUAGE.fullmatch(part)
        quality = 0.0 if match is None else float(match[2] or 1)
        if match is not None and quality > best_quality:
            best, best_quality = match[1], quality
    return best


_LANGUAGES_BYTES_MAX: Final = 1024


def normalized_value(name: bytes, value: bytes | None) -> bytes:
    """Return a selecting field in a form that equal requests share (RFC 9111, section 4.1).

    White space around commas is removed; codings and languages are compared without case, and codings without
    order. An absent field differs from an empty one.
    """
    if value is None:
        return _ABSENT
    if name in _EXACT_FIELDS:
        return value
    parts = [b" ".join(part.split()) for part in value.split(b",")]
    if name == b"accept-encoding":
        return b",".join(sorted(part.lower().replace(b" ", b"") for part in parts if part))
    if name == b"accept-language":
        parts = [part.lower().replace(b" ", b"") for part in parts if part]
    return b",".join(parts)
