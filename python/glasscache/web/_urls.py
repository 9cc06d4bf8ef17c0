"""Requests that stand for URLs: of a purge, and of what an unsafe request invalidates."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from glasscache.web._fields import combined_value
from glasscache.web._message import Request

if TYPE_CHECKING:
    from glasscache.web._fields import Fields

__all__ = ["invalidated_requests", "request_of_url"]


def request_of_url(url: str, fields: Fields | None = None) -> Request:
    """Return the GET that an absolute URL stands for.

    Raises:
        ValueError: the URL has no scheme or host.

    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"{url!r} is not an absolute URL: write http://host/path")
    host = parts.netloc.rpartition("@")[2].encode("idna" if not parts.netloc.isascii() else "ascii")
    request_fields = [(b"host", host), *(pair for pair in fields or [] if pair[0] != b"host")]
    path = parts.path or "/"
    return Request("GET", parts.scheme, path.encode(), parts.query.encode(), request_fields)


def invalidated_requests(request: Request, response_fields: Fields) -> list[Request]:
    """Return requests for what an unsafe one invalidates: its URL, and those that its response names."""
    requests = [request]
    base_url = (
        f"{request.scheme}://{request.host.decode('latin-1')}{request.path.decode('latin-1')}"
    )
    forwarded_fields = [
        pair for pair in request.fields if pair[0] not in {b"content-length", b"transfer-encoding"}
    ]
    for name in (b"location", b"content-location"):
        value = combined_value(response_fields, name)
        if value is None:
            continue
        try:
            named_request = request_of_url(
                urljoin(base_url, value.decode("latin-1")), forwarded_fields
            )
        except ValueError:
            continue
        # Another site's responses are not this one's to remove.
        if named_request.host == request.host:
            requests.append(named_request)
    return requests
