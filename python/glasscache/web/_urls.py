"""Which stored responses a URL names: for invalidation by unsafe requests, and for purges."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from glasscache.web._fields import joined
from glasscache.web._message import Request

if TYPE_CHECKING:
    from glasscache.web._core import Core
    from glasscache.web._fields import Fields
    from glasscache.web._message import Settings

__all__ = ["key_of_url", "request_of_url", "targets"]


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


def key_of_url(core: Core, url: str, fields: Fields | None = None) -> str:
    """Return the key of the response to a GET of a URL."""
    request = request_of_url(url, fields)
    return core.key_of(request.digest(core.version, core.settings_of(request)))


def targets(core: Core, request: Request, settings: Settings, fields: Fields) -> list[str]:
    """Return the keys that an unsafe request invalidates: its URL's and those that its response names."""
    keys = [core.key_of(request.digest(core.version, settings))]
    base = f"{request.scheme}://{request.host.decode('latin-1')}{request.path.decode('latin-1')}"
    kept = [
        pair for pair in request.fields if pair[0] not in {b"content-length", b"transfer-encoding"}
    ]
    for name in (b"location", b"content-location"):
        value = joined(fields, name)
        if value is None:
            continue
        try:
            named_request = request_of_url(urljoin(base, value.decode("latin-1")), kept)
        except ValueError:
            continue
        if (
            named_request.host == request.host
        ):  # another site's responses are not this one's to remove
            keys.append(
                core.key_of(named_request.digest(core.version, core.settings_of(named_request)))
            )
    return keys
