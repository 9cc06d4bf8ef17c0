"""Canonical URLs: which spellings of host, path and query name one response."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glasscache.web._message import Request

__all__ = ["UrlCanonicaliser", "parse_canonicaliser"]


@dataclass(frozen=True)
class UrlCanonicaliser:
    """What is done with a URL before it becomes a key; the application sees it as it was sent."""

    sorts_query: bool
    dropped_names: re.Pattern[str] | None
    kept_names: re.Pattern[str] | None
    host: bytes | None
    trailing_slash: str | None
    lowers_path: bool

    def apply(self, request: Request) -> tuple[bytes, bytes, bytes]:
        """Return host, path and query of the canonical URL."""
        path = request.path
        if self.lowers_path:
            path = path.lower()
        if self.trailing_slash == "strip" and len(path) > 1:
            path = path.rstrip(b"/") or b"/"
        elif self.trailing_slash == "add" and not path.endswith(b"/"):
            path += b"/"
        return self.host or request.host, path, self._canonical_query(request.query)

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
            # By name only: the order of equal names may matter to the application.
            parameters.sort(key=lambda parameter: parameter.split(b"=")[0])
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
