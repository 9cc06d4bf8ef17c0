"""One rule: its conditions, its settings, and how both are read from a TOML table."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from glasscache.errors import BadSetting
from glasscache.web._canonical import UrlCanonicaliser, parse_canonicaliser

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from glasscache.web._message import Request

__all__ = ["REQUEST_SETTINGS", "Rule", "When", "parse_rule"]

_CONDITION_NAMES: Final = (
    "path",
    "path_regex",
    "method",
    "host",
    "header",
    "cookie",
    "status",
    "content_type",
)
_SETTING_TYPES: Final = {
    "bypass": bool, "ttl": (int, float, dict), "grace": (int, float), "keep": (int, float),
    "no_store": bool, "tags": list, "tag_field": str, "vary_on": list, "pass_cookies": list,
    "strip_cookies": bool, "max_bytes": int, "compress": bool, "canonicalise": dict,
    "ignore_request_directives": bool,
}  # fmt: skip
REQUEST_SETTINGS: Final = frozenset({
    "bypass", "vary_on", "pass_cookies", "canonicalise", "ignore_request_directives",
})  # fmt: skip
"""Settings that count before the application responds: rules with them have no conditions on the response."""


def _glob_to_regex(glob: str) -> str:
    """Return the regular expression of a glob: `*` within a segment, `**` across them, `?` one character."""
    regex, position = "", 0
    while position < len(glob):
        if glob.startswith("**", position):
            regex, position = regex + ".*", position + 2
        elif glob[position] == "*":
            regex, position = regex + "[^/]*", position + 1
        elif glob[position] == "?":
            regex, position = regex + "[^/]", position + 1
        else:
            regex, position = regex + re.escape(glob[position]), position + 1
    return regex


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
        if when.path is not None and when.path_regex is not None:
            raise BadSetting(
                f"{self.location}: path and path_regex are two conditions on one thing; keep one of them"
            )
        self._path_pattern = _compile_condition(
            self, "path", _glob_to_regex(when.path) if when.path else when.path_regex
        )
        self._host_pattern = _compile_condition(
            self, "host", _glob_to_regex(when.host.lower()) if when.host else None
        )
        self._header_tests = [
            (header_name.lower().encode(), _ValueTest(self, expected))
            for header_name, expected in when.header.items()
        ]
        self._cookie_tests = [
            (cookie_name, _ValueTest(self, expected))
            for cookie_name, expected in when.cookie.items()
        ]
        self._content_type_pattern = _compile_condition(
            self,
            "content_type",
            _glob_to_regex(when.content_type.lower()) if when.content_type else None,
        )
        self.canonicaliser: UrlCanonicaliser | None = (
            parse_canonicaliser(self.then["canonicalise"], self.location)
            if "canonicalise" in self.then
            else None
        )

    @property
    def location(self) -> str:
        """Return the rule's name and line, for messages."""
        return f"rule {self.name!r}" + (f" (line {self.line})" if self.line else "")

    @property
    def literal_path(self) -> str:
        """Return the literal beginning of the path, up to its last slash before a wildcard."""
        path = self.when.path
        if path is None:
            return ""
        literal_beginning = re.split(r"[*?]", path, maxsplit=1)[0]
        return (
            literal_beginning
            if literal_beginning == path
            else literal_beginning[: literal_beginning.rfind("/") + 1]
        )

    def matches(self, request: Request, path: str, cookies: dict[str, str] | None) -> bool:
        """Whether the conditions on the request hold.

        Args:
            request: its method, host and header lines.
            path: the path of its URL as it was sent, percent-encoded, as text.
            cookies: those of the request, where the caller has parsed them for several rules.

        """
        when = self.when
        if when.method and request.method not in when.method:
            return False
        if self._path_pattern is not None and self._path_pattern.fullmatch(path) is None:
            return False
        if (
            self._host_pattern is not None
            and self._host_pattern.fullmatch(request.host.decode("latin-1")) is None
        ):
            return False
        for header_name, test in self._header_tests:
            if not test(_decode_or_none(request.headers.get(header_name))):
                return False
        if self._cookie_tests:
            request_cookies = request.cookies() if cookies is None else cookies
            return all(
                test(request_cookies.get(cookie_name)) for cookie_name, test in self._cookie_tests
            )
        return True

    def matches_response(self, status: int, content_type: str) -> bool:
        """Whether the conditions on the response hold."""
        if self.when.status and not any(
            _status_matches(status, status_pattern) for status_pattern in self.when.status
        ):
            return False
        if self._content_type_pattern is None:
            return True
        media_type = content_type.partition(";")[0].strip().lower()
        return self._content_type_pattern.fullmatch(media_type) is not None


def _decode_or_none(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _compile_condition(
    rule: Rule, condition_name: str, regex: str | None
) -> re.Pattern[str] | None:
    if regex is None:
        return None
    try:
        return re.compile(regex)
    except re.error as error:
        raise BadSetting(f"{rule.location}: {condition_name}: {error}") from None


class _ValueTest:
    """The test of a header's or cookie's value: true (is there), false (is not), or a regular expression."""

    def __init__(self, rule: Rule, expected: Any) -> None:
        if not isinstance(expected, bool | str):
            raise BadSetting(
                f"{rule.location}: {expected!r} is not true, false or a regular expression"
            )
        self._must_be_present = expected is not False
        self._pattern = (
            _compile_condition(rule, "value", expected) if isinstance(expected, str) else None
        )

    def __call__(self, value: str | None) -> bool:
        if value is None or not self._must_be_present:
            return (value is None) is not self._must_be_present
        return self._pattern is None or self._pattern.search(value) is not None


def _status_matches(status: int, status_pattern: str) -> bool:
    return str(status) == status_pattern or (
        status_pattern[1:] == "xx" and str(status)[0] == status_pattern[0]
    )


def parse_rule(table: Any, rule_number: int, line: int) -> Rule:
    """Return the rule of a TOML table."""
    location = f"rule {rule_number} (line {line})"
    if not isinstance(table, dict):
        raise BadSetting(f"{location}: not a table")
    rule_table = cast("dict[str, Any]", table)
    if unknown := rule_table.keys() - {"name", "when", "then"}:
        raise BadSetting(f"{location}: unknown {min(unknown)!r}; a rule has name, when and then")
    name = str(rule_table.get("name", f"{rule_number}"))
    location = f"rule {name!r} (line {line})"
    then: Any = rule_table.get("then")
    if not then or not isinstance(then, dict):
        raise BadSetting(f"{location}: nothing under then")
    for setting, value in cast("dict[str, Any]", then).items():
        _check_setting(location, setting, value)
    return Rule(
        name,
        _parse_conditions(location, rule_table.get("when", {})),
        cast("dict[str, Any]", then),
        line,
    )


def _check_setting(location: str, setting: str, value: Any) -> None:
    """Refuse a setting that is unknown or of the wrong type."""
    accepted_types: Any = _SETTING_TYPES.get(setting)
    if accepted_types is None:
        raise BadSetting(
            f"{location}: unknown setting {setting!r}; one of {', '.join(_SETTING_TYPES)}"
        )
    if not isinstance(value, accepted_types) or (
        isinstance(value, bool) and accepted_types is not bool
    ):
        raise BadSetting(f"{location}: {setting} = {value!r} is of the wrong type")
    if accepted_types is list:
        _check_members(location, setting, cast("list[Any]", value), str)
    elif isinstance(value, dict) and setting == "ttl":
        _check_members(location, setting, cast("dict[str, Any]", value).values(), (int, float))
        for seconds in cast("dict[str, float]", value).values():
            _check_number(location, setting, seconds)
    elif isinstance(value, int | float):
        _check_number(location, setting, value)


def _check_members(
    location: str, setting: str, members: Iterable[Any], accepted_types: Any
) -> None:
    for member in members:
        if not isinstance(member, accepted_types) or isinstance(member, bool):
            raise BadSetting(f"{location}: {setting} has {member!r}, a member of the wrong type")


def _check_number(location: str, setting: str, number: float) -> None:
    if not 0 <= number < math.inf:
        raise BadSetting(f"{location}: {setting} = {number}: write 0 or more")


def _parse_conditions(location: str, when: Any) -> When:
    """Return the conditions of a TOML table."""
    if not isinstance(when, dict):
        raise BadSetting(
            f"{location}: when = {when!r} is not a table of conditions, "
            'such as when = { path = "/shop/**" }'
        )
    when_table = cast("dict[str, Any]", when)
    if unknown := when_table.keys() - set(_CONDITION_NAMES):
        raise BadSetting(
            f"{location}: unknown condition {min(unknown)!r}; one of {', '.join(_CONDITION_NAMES)}"
        )
    conditions: dict[str, Any] = {
        name: _as_tuple(value) if name in {"method", "status"} else value
        for name, value in when_table.items()
    }
    for name in ("path", "path_regex", "host", "content_type"):
        if not isinstance(conditions.get(name, ""), str):
            raise BadSetting(f"{location}: {name} = {conditions[name]!r} is not a text")
    for name in ("header", "cookie"):
        if not isinstance(conditions.get(name, {}), dict):
            raise BadSetting(
                f"{location}: {name} is a table of names, such as {{ {name} = {{ name = true }} }}"
            )
    return When(**conditions)


def _as_tuple(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, or the one text of another value."""
    return tuple(map(str, cast("Any", value))) if isinstance(value, list | tuple) else (str(value),)
