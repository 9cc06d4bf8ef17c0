"""One rule: its conditions, its settings, and how both are read from a TOML table."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from glasscache.errors import BadSetting
from glasscache.web._canonical import UrlCanonicaliser, parse_canonicaliser

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from glasscache.web._message import Request

__all__ = ["DEFAULT_STATUSES", "REQUEST_SETTINGS", "Rule", "When", "parse_rule"]

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
    "ignore_request_directives": bool, "store_set_cookie": list,
}  # fmt: skip
REQUEST_SETTINGS: Final = frozenset({
    "bypass", "vary_on", "pass_cookies", "canonicalise", "ignore_request_directives",
})  # fmt: skip
"""Settings that count before the application responds: rules with them have no conditions on the response."""
DEFAULT_STATUSES: Final = frozenset({200, 203, 204, 300, 301, 308, 404, 410})
"""Statuses to which a `ttl` without statuses applies: not errors, and not redirects for once."""
_CACHE_FIELDS: Final = frozenset({
    b"cache-control", b"pragma", b"range", b"if-range", b"if-none-match", b"if-modified-since", b"host",
    b"cookie",
})  # fmt: skip
"""Fields that the cache itself handles: they are in no key because a condition reads them."""
_DIVERSE_FIELDS: Final = frozenset({
    b"user-agent", b"accept", b"accept-language", b"accept-encoding", b"referer", b"x-forwarded-for",
})  # fmt: skip


_WILDCARD: Final = re.compile(r"(\*\*|\*|\?)")
_WILDCARD_REGEXES: Final = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


def _glob_to_regex(glob: str) -> str:
    """Return the regular expression of a glob: `*` within a segment, `**` across them, `?` one character.

    What is percent-encoded in it is decoded, as the path is that it is compared with.
    """
    return "".join(
        _WILDCARD_REGEXES.get(part) or re.escape(unquote(part)) for part in _WILDCARD.split(glob)
    )


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
        sent_beginning = re.split(r"[*?]", path, maxsplit=1)[0]
        literal_beginning = unquote(sent_beginning)
        return (
            literal_beginning
            if sent_beginning == path
            else literal_beginning[: literal_beginning.rfind("/") + 1]
        )

    @property
    def reads_fields(self) -> bool:
        """Whether a condition is on a header field or a cookie."""
        return bool(self._header_tests or self._cookie_tests)

    def canonical_url(self, request: Request) -> tuple[bytes, bytes, bytes] | None:
        """Return host, path and query as this rule makes them; None if it leaves them."""
        if self.canonicaliser is None:
            return None
        return self.canonicaliser.apply(
            request.host, request.path, request.path_text, request.query
        )

    def matches_url(self, request: Request) -> bool:
        """Whether the conditions on the request's method, path and host hold."""
        when = self.when
        if when.method and request.method not in when.method:
            return False
        if self._path_pattern is not None and not self._path_pattern.fullmatch(request.path_text):
            return False
        if self._host_pattern is None:
            return True
        host = request.host if ":" in (when.host or "") else request.host_name
        return self._host_pattern.fullmatch(host.decode("latin-1")) is not None

    def matches_fields(self, request: Request) -> bool:
        """Whether the conditions on the request's header fields and cookies hold."""
        for header_name, test in self._header_tests:
            if not test(_decode_or_none(request.headers.get(header_name))):
                return False
        return not self._cookie_tests or all(
            test(request.cookies().get(cookie_name)) for cookie_name, test in self._cookie_tests
        )

    def keyed_conditions(self, request: Request) -> Iterator[tuple[bytes, bytes]]:
        """Yield what the conditions on fields read of a request, for its key: values, or whether they hold.

        Fields that nearly every client sends with another value are keyed by whether their conditions hold.
        """
        for header_name, test in self._header_tests:
            value = request.headers.get(header_name)
            if value is None or header_name in _CACHE_FIELDS:
                continue
            if header_name in _DIVERSE_FIELDS:
                label = b"if:%b:%b" % (header_name, test.source.encode())
                yield label, b"1" if test(value.decode("latin-1")) else b"0"
            else:
                yield b"if:" + header_name, value
        for cookie_name, _ in self._cookie_tests:
            cookie = request.cookies().get(cookie_name)
            if cookie is not None:
                yield b"if:cookie:" + cookie_name.encode(), cookie.encode("latin-1")

    @property
    def header_names(self) -> Iterator[bytes]:
        """Return the names of the header fields that conditions read."""
        return (header_name for header_name, _ in self._header_tests)

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
        return re.compile(regex, re.DOTALL)
    except re.error as error:
        raise BadSetting(f"{rule.location}: {condition_name}: {error}") from None


class _ValueTest:
    """The test of a header's or cookie's value: true (is there), false (is not), or a regular expression."""

    def __init__(self, rule: Rule, expected: Any) -> None:
        if not isinstance(expected, bool | str):
            raise BadSetting(
                f"{rule.location}: {expected!r} is not true, false or a regular expression"
            )
        self.source = str(expected)
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
