"""One rule: its conditions, its settings, and how both are read from a TOML table."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from glasscache.errors import BadSetting
from glasscache.web._canonical import Canonical, canonical_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glasscache.web._message import Request

__all__ = ["FOR_REQUEST", "Rule", "When", "rule_of"]

_WHEN: Final = (
    "path",
    "path_regex",
    "method",
    "host",
    "header",
    "cookie",
    "status",
    "content_type",
)
_THEN: Final = {
    "bypass": bool, "ttl": (int, float, dict), "grace": (int, float), "keep": (int, float),
    "no_store": bool, "tags": list, "tag_field": str, "vary_on": list, "pass_cookies": list,
    "strip_cookies": bool, "max_bytes": int, "compress": bool, "canonicalise": dict,
    "ignore_request_directives": bool,
}  # fmt: skip
FOR_REQUEST: Final = frozenset({
    "bypass", "vary_on", "pass_cookies", "canonicalise", "ignore_request_directives",
})  # fmt: skip
"""Settings that count before the application responds: rules with them have no conditions on the response."""


def glob_pattern(glob: str) -> str:
    """Return the regular expression of a glob: `*` within a segment, `**` across them, `?` one character."""
    made, at = "", 0
    while at < len(glob):
        if glob.startswith("**", at):
            made, at = made + ".*", at + 2
        elif glob[at] == "*":
            made, at = made + "[^/]*", at + 1
        elif glob[at] == "?":
            made, at = made + "[^/]", at + 1
        else:
            made, at = made + re.escape(glob[at]), at + 1
    return made


@dataclass(frozen=True)
class When:
    """Conditions that must all hold; None and empty ones hold always."""

    path: str | None = None
    path_regex: str | None = None
    method: tuple[str, ...] = ()
    host: str | None = None
    header: Mapping[str, str | bool] = field(default_factory=dict[str, str | bool])
    cookie: Mapping[str, str | bool] = field(default_factory=dict[str, str | bool])
    status: tuple[str, ...] = ()
    content_type: str | None = None

    @property
    def is_of_response(self) -> bool:
        """Whether a condition concerns the response."""
        return bool(self.status) or self.content_type is not None


class Rule:
    """One rule."""

    def __init__(self, name: str, when: When, then: Mapping[str, Any], line: int = 0) -> None:
        """Compile a rule.

        Raises:
            BadSetting: a condition or a setting is malformed.

        """
        self.name, self.when, self.then, self.line = name, when, dict(then), line
        self._path = _compiled(
            self, "path", glob_pattern(when.path) if when.path else when.path_regex
        )
        self._host = _compiled(self, "host", glob_pattern(when.host.lower()) if when.host else None)
        self._headers = [(k.lower().encode(), _Test(self, v)) for k, v in when.header.items()]
        self._cookies = [(k, _Test(self, v)) for k, v in when.cookie.items()]
        self._types = _compiled(
            self,
            "content_type",
            glob_pattern(when.content_type.lower()) if when.content_type else None,
        )
        self.canonical: Canonical | None = (
            canonical_of(self.then["canonicalise"], self.where)
            if "canonicalise" in self.then
            else None
        )

    @property
    def where(self) -> str:
        """Return the rule's name and line, for messages."""
        return f"rule {self.name!r}" + (f" (line {self.line})" if self.line else "")

    @property
    def literal(self) -> str:
        """Return the literal beginning of the path, up to its last slash before a wildcard."""
        path = self.when.path
        if path is None:
            return ""
        stem = re.split(r"[*?]", path, maxsplit=1)[0]
        return stem if stem == path else stem[: stem.rfind("/") + 1]

    def matches(self, request: Request, path: str, cookies: dict[str, str] | None) -> bool:
        """Whether the conditions on the request hold."""
        when = self.when
        if when.method and request.method not in when.method:
            return False
        if self._path is not None and self._path.fullmatch(path) is None:
            return False
        if self._host is not None and self._host.fullmatch(request.host.decode("latin-1")) is None:
            return False
        for name, test in self._headers:
            if not test(_text(request.named.get(name))):
                return False
        if self._cookies:
            found = request.cookies() if cookies is None else cookies
            return all(test(found.get(name)) for name, test in self._cookies)
        return True

    def matches_response(self, status: int, content_type: str) -> bool:
        """Whether the conditions on the response hold."""
        if self.when.status and not any(_is_status(status, one) for one in self.when.status):
            return False
        if self._types is None:
            return True
        return self._types.fullmatch(content_type.partition(";")[0].strip().lower()) is not None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _compiled(rule: Rule, what: str, pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise BadSetting(f"{rule.where}: {what}: {error}") from None


class _Test:
    """The test of a header's or cookie's value: true (is there), false (is not), or a regular expression."""

    def __init__(self, rule: Rule, wanted: Any) -> None:
        if not isinstance(wanted, bool | str):
            raise BadSetting(f"{rule.where}: {wanted!r} is not true, false or a regular expression")
        self._is_there = wanted is not False
        self._pattern = _compiled(rule, "value", wanted) if isinstance(wanted, str) else None

    def __call__(self, value: str | None) -> bool:
        if value is None or not self._is_there:
            return (value is None) is not self._is_there
        return self._pattern is None or self._pattern.search(value) is not None


def _is_status(status: int, wanted: str) -> bool:
    return str(status) == wanted or (wanted[1:] == "xx" and str(status)[0] == wanted[0])


def rule_of(table: Any, number: int, line: int) -> Rule:
    """Return the rule of a TOML table."""
    at = f"rule {number} (line {line})"
    if not isinstance(table, dict):
        raise BadSetting(f"{at}: not a table")
    given = cast("dict[str, Any]", table)
    if unknown := given.keys() - {"name", "when", "then"}:
        raise BadSetting(f"{at}: unknown {min(unknown)!r}; a rule has name, when and then")
    name = str(given.get("name", f"{number}"))
    at = f"rule {name!r} (line {line})"
    then: Any = given.get("then")
    if not then or not isinstance(then, dict):
        raise BadSetting(f"{at}: nothing under then")
    for setting, value in cast("dict[str, Any]", then).items():
        _check_setting(at, setting, value)
    return Rule(name, _when_of(at, given.get("when", {})), cast("dict[str, Any]", then), line)


def _check_setting(at: str, setting: str, value: Any) -> None:
    """Refuse a setting that is unknown or of the wrong type."""
    kinds: Any = _THEN.get(setting)
    if kinds is None:
        raise BadSetting(f"{at}: unknown setting {setting!r}; one of {', '.join(_THEN)}")
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise BadSetting(f"{at}: {setting} = {value!r} is of the wrong type")
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        raise BadSetting(f"{at}: {setting} = {value}: not negative")


def _when_of(at: str, when: dict[str, Any]) -> When:
    """Return the conditions of a TOML table."""
    if unknown := when.keys() - set(_WHEN):
        raise BadSetting(f"{at}: unknown condition {min(unknown)!r}; one of {', '.join(_WHEN)}")
    listed: dict[str, Any] = {
        key: _many(value) if key in {"method", "status"} else value for key, value in when.items()
    }
    for key in ("path", "path_regex", "host", "content_type"):
        if not isinstance(listed.get(key, ""), str):
            raise BadSetting(f"{at}: {key} = {listed[key]!r} is not a text")
    for key in ("header", "cookie"):
        if not isinstance(listed.get(key, {}), dict):
            raise BadSetting(
                f"{at}: {key} is a table of names, such as {{ {key} = {{ name = true }} }}"
            )
    return When(**listed)


def _many(value: Any) -> tuple[str, ...]:
    return tuple(map(str, cast("Any", value))) if isinstance(value, list) else (str(value),)
