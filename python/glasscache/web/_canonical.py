"""Canonical URLs: which spellings of host, path and query name one response.

Host and path have one spelling in keys, in rules and in what the application gets: the host in lower case
without its final dot and the scheme's own port, the path percent-decoded and encoded again (RFC 3986,
section 6.2). What servers and applications may read in several ways is ambiguous, and is not cached.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PLAIN_PATH_BYTES",
    "UrlCanonicaliser",
    "canonical_host",
    "canonical_path",
    "parse_canonicaliser",
]

_PLAIN_HOST: Final = re.compile(rb"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_HOST: Final = re.compile(rb"([a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])\.?(?::([0-9]{0,5}))?")
_HOST_BYTES_MAX: Final = 262
"""A name of 253 bytes, white space and dots at its ends, and a port."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PATH_SAFE: Final = "/:@!$&'()*+,;=-._~"
"""What a path may have unencoded (RFC 3986, section 3.3)."""
PLAIN_PATH_BYTES: Final = (
    bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123)) + (_PATH_SAFE.encode())
)
_AMBIGUOUS_PATH: Final = re.compile(rb"//|/\.{1,2}(?:/|\Z)|[\x00-\x1f\x7f\\]|\A[^/]")
"""Empty and dot segments, control characters and backslashes: some applications resolve them, some do not."""


@lru_cache(maxsize=256)
def canonical_host(host: bytes, scheme: str) -> tuple[bytes, bytes, bool]:
    """Return a Host field in its one spelling, the name alone, and whether it is ambiguous."""
    if _PLAIN_HOST.fullmatch(host) or not host:
        return host, host, False
    if len(host) > _HOST_BYTES_MAX:
        return b"", b"", True
    match = _HOST.fullmatch(host.strip().lower())
    if match is None:
        return host, host, True
    name, port = match[1], int(match[2] or 0)
    if not match[2] or port == _DEFAULT_PORTS.get(scheme):
        return name, name, False
    return b"%b:%d" % (name, port), name, False


def canonical_path(path: bytes) -> tuple[bytes, str, bool]:
    """Return a path encoded in one way, its text as applications read it, and whether it is ambiguous."""
    path = path or b"/"
    if (
        path.startswith(b"/")
        and not path.translate(None, PLAIN_PATH_BYTES)
        and b"/." not in path
        and b"//" not in path
    ):
        return path, path.decode("ascii"), False
    decoded_path = unquote_to_bytes(path)
    return (
        quote(decoded_path, safe=_PATH_SAFE).encode("ascii"),
        decoded_path.decode("utf-8", "replace"),
        _AMBIGUOUS_PATH.search(decoded_path) is not None,
    )


@dataclass(frozen=True)
class UrlCanonicaliser:
    """What is done with a URL before it becomes a key; the application gets the same URL."""

    sorts_query: bool
    dropped_names: re.Pattern[str] | None
    kept_names: re.Pattern[str] | None
    host: bytes | None
    trailing_slash: str | None
    lowers_path: bool

    def apply(
        self, host: bytes, path: bytes, path_text: str, query: bytes
    ) -> tuple[bytes, bytes, bytes]:
        """Return host, path and query of the canonical URL; `path_text` is the path decoded."""
        if self.lowers_path:
            path = canonical_path(path_text.lower().encode())[0]
        if self.trailing_slash == "strip" and len(path) > 1:
            path = path.rstrip(b"/") or b"/"
        elif self.trailing_slash == "add" and not path.endswith(b"/"):
            path += b"/"
        return self.host or host, path, self._canonical_query(query)

    def _canonical_query(self, query: bytes) -> bytes:
        if not query:
            return b""
        parameters = [parameter for parameter in query.split(b"&") if parameter]
        if self.dropped_names is not None or self.kept_names is not None:
            parameters = [
                parameter
                for parameter in parameters
                if self._keeps(parameter.split(b"=")[0].decode("latin-1"))
            ]
        if self.sorts_query:
            # By name only: the order of equal names, however they are encoded, may matter to the application.
            parameters.sort(key=lambda parameter: unquote_to_bytes(parameter.split(b"=")[0]))
        return b"&".join(parameters)

    def _keeps(self, name: str) -> bool:
        if self.kept_names is not None:
            return self.kept_names.fullmatch(name) is not None
        return self.dropped_names is None or self.dropped_names.fullmatch(name) is None


def parse_canonicaliser(table: Mapping[str, Any], rule_location: str) -> UrlCanonicaliser:
    """Return what a rule's `canonicalise` says.

    Raises:
        BadSetting: a word is unknown, or `query_keep` and `query_drop` contradict each other.

    """
    known_settings = {
        "query_sort",
        "query_drop",
        "query_keep",
        "host",
        "trailing_slash",
        "lower_path",
    }
    if unknown := table.keys() - known_settings:
        known_names = ", ".join(sorted(known_settings))
        raise BadSetting(
            f"{rule_location}: canonicalise has no {min(unknown)!r}; one of {known_names}"
        )
    if "query_keep" in table and "query_drop" in table:
        raise BadSetting(
            f"{rule_location}: query_keep and query_drop contradict each other; keep one of them"
        )
    trailing_slash = table.get("trailing_slash")
    if trailing_slash not in (None, "strip", "add"):
        raise BadSetting(f'{rule_location}: trailing_slash = {trailing_slash!r}: "strip" or "add"')
    host = table.get("host")
    if host is not None and canonical_host(str(host).encode(), "http")[2]:
        raise BadSetting(f'{rule_location}: host = {host!r}: a name such as "www.shop.example"')
    for setting in ("query_drop", "query_keep"):
        globs = table.get(setting)
        if globs is not None and not isinstance(globs, list | tuple):
            raise BadSetting(f'{rule_location}: {setting} = {globs!r}: a list such as ["utm_*"]')
    dropped_names, kept_names = (
        _names_pattern(table.get("query_drop")),
        _names_pattern(table.get("query_keep")),
    )
    return UrlCanonicaliser(
        bool(table.get("query_sort", False)), dropped_names, kept_names,
        None if host is None else str(host).lower().encode(), trailing_slash,
        bool(table.get("lower_path", False)),
    )  # fmt: skip


def _names_pattern(globs: Any) -> re.Pattern[str] | None:
    if globs is None:
        return None
    patterns = [re.escape(str(glob)).replace(r"\*", ".*") for glob in globs]
    return re.compile("|".join(patterns) or r"(?!)")
