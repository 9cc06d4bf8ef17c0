"""Canonical URLs: which spellings of host, path and query name one response."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glasscache.web._message import Request

__all__ = ["Canonical", "canonical_of"]


@dataclass(frozen=True)
class Canonical:
    """What is done with a URL before it becomes a key; the application sees it as it was sent."""

    sort: bool
    dropped: re.Pattern[str] | None
    kept: re.Pattern[str] | None
    host: bytes | None
    slash: str | None
    lower_path: bool

    def apply(self, request: Request) -> tuple[bytes, bytes, bytes]:
        """Return host, path and query of the canonical URL."""
        path = request.path
        if self.lower_path:
            path = path.lower()
        if self.slash == "strip" and len(path) > 1:
            path = path.rstrip(b"/") or b"/"
        elif self.slash == "add" and not path.endswith(b"/"):
            path += b"/"
        return self.host or request.host, path, self._query(request.query)

    def _query(self, query: bytes) -> bytes:
        if not query:
            return b""
        parts = [part for part in query.split(b"&") if part]
        if self.dropped is not None or self.kept is not None:
            parts = [part for part in parts if self._keeps(part.split(b"=")[0].decode("latin-1"))]
        if self.sort:
            # By name only: the order of equal names may matter to the application.
            parts.sort(key=lambda part: part.split(b"=")[0])
        return b"&".join(parts)

    def _keeps(self, name: str) -> bool:
        if self.kept is not None:
            return self.kept.fullmatch(name) is not None
        return self.dropped is None or self.dropped.fullmatch(name) is None


def canonical_of(table: Mapping[str, Any], where: str) -> Canonical:
    """Return what a rule's `canonicalise` says.

    Raises:
        BadSetting: a word is unknown, or `query_keep` and `query_drop` contradict each other.

    """
    known = {"query_sort", "query_drop", "query_keep", "host", "trailing_slash", "lower_path"}
    if unknown := table.keys() - known:
        names = ", ".join(sorted(known))
        raise BadSetting(f"{where}: canonicalise has no {min(unknown)!r}; one of {names}")
    if "query_keep" in table and "query_drop" in table:
        raise BadSetting(
            f"{where}: query_keep and query_drop contradict each other; keep one of them"
        )
    slash = table.get("trailing_slash")
    if slash not in {None, "strip", "add"}:
        raise BadSetting(f'{where}: trailing_slash = {slash!r}: "strip" or "add"')
    host = table.get("host")
    dropped, kept = _names(table.get("query_drop")), _names(table.get("query_keep"))
    return Canonical(
        bool(table.get("query_sort", False)), dropped, kept,
        None if host is None else str(host).lower().encode(), slash, bool(table.get("lower_path", False)),
    )  # fmt: skip


def _names(globs: Any) -> re.Pattern[str] | None:
    if globs is None:
        return None
    patterns = [re.escape(str(glob)).replace(r"\*", ".*") for glob in globs]
    return re.compile("|".join(patterns) or r"(?!)")
