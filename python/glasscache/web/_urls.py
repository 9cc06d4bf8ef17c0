"""Requests that stand for URLs: of a purge, and of what an unsafe request invalidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urljoin, urlsplit

from glasscache.web._fields import combined_value, host_of, text_of
from glasscache.web._message import KEYED_FIELDS, Request

if TYPE_CHECKING:
    from glasscache.web._fields import Fields
    from glasscache.web._shared_state import SharedState

__all__ = [
    "invalidated_requests",
    "redirects_to_itself",
    "redirects_to_sent_url",
    "request_of_url",
]

_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


def request_of_url(url: str, fields: Fields | None = None) -> Request:
    """Return the GET that an absolute URL stands for.

    Raises:
        ValueError: the URL has no scheme or host.

    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"{url!r} is not an absolute URL: write http://host/path")
    host = host_of(parts.netloc)
    request_fields = [(b"host", host), *(pair for pair in fields or [] if pair[0] != b"host")]
    path, query = parts.path or "/", quote(parts.query, safe=_ASCII)  # browsers encode letters, too
    return Request("GET", parts.scheme, path.encode(), query.encode(), request_fields)


def invalidated_requests(request: Request, response_fields: Fields) -> list[Request]:
    """Return requests for what an unsafe one invalidates: its URL, and those that its response names."""
    requests = [request.as_get()]
    for name in (b"location", b"content-location"):
        named_request = _named_request(request, combined_value(response_fields, name))
        # Another site's responses are not this one's to remove.
        if named_request is not None and named_request.host == request.host:
            requests.append(named_request)
    return requests


def _named_request(request: Request, reference: bytes | None) -> Request | None:
    """Return the GET that a client of this one sends to follow a reference; None if it cannot."""
    if reference is None:
        return None
    own_url = f"{request.scheme}://{request.url.decode('latin-1')}"
    fields = [
        pair for pair in request.fields if pair[0] not in {b"content-length", b"transfer-encoding"}
    ]
    try:
        return request_of_url(urljoin(own_url, text_of(reference)), fields)
    except ValueError:
        return None


def redirects_to_itself(
    shared: SharedState, request: Request, status: int, response_fields: Fields
) -> bool:
    """Whether a response sends its client to a URL with the key of the request.

    Behind a proxy that says so in its fields the host is another than the client's, and is not compared.
    """
    if status not in _REDIRECTS:
        return False
    target = _named_request(request, combined_value(response_fields, b"location"))
    if target is None:
        return False
    own, other = (each.canonical(shared.settings_of(each)) for each in (request, target))
    return _is_same_url(own, other)


def redirects_to_sent_url(request: Request, status: int, response_fields: Fields) -> bool:
    """Whether a response sends its client to the very URL that the client has sent."""
    if status not in _REDIRECTS:
        return False
    target = _named_request(request, combined_value(response_fields, b"location"))
    return target is not None and _is_same_url(request, target)


def _is_same_url(request: Request, target: Request) -> bool:
    is_same_host = (request.scheme, request.host) == (target.scheme, target.host)
    is_same_path = (request.path, request.query) == (target.path, target.query)
    return is_same_path and (is_same_host or not KEYED_FIELDS.isdisjoint(request.headers))
