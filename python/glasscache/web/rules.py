"""Rules: what a site decides about caching, as an ordered list of conditions and settings in TOML.

    [[rule]]
    name = "shop pages"
    when = { path = "/shop/**", method = "GET" }
    then = { ttl = 300, grace = 60, pass_cookies = ["theme"], vary_on = ["cookie:theme"] }

Each setting is decided by the first rule that matches and has it; `tags` of all matching rules add up.
Rules are checked when they are made: a contradiction, a rule that an earlier one shadows and a condition
that cannot match are errors with the line and the reason. Rules on paths are found by the path's literal
beginning, so that a thousand rules cost a request little more than one.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from glasscache.errors import BadSetting
from glasscache.web._fields import combined_value
from glasscache.web._message import NO_SETTINGS, Request, Settings, tag_of
from glasscache.web._rule import DEFAULT_STATUSES, REQUEST_SETTINGS, Rule, When, parse_rule
from glasscache.web._rule_checks import check_rules

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from glasscache.web._fields import Fields

__all__ = ["Rule", "Rules", "When"]


class Rules:
    """An ordered list of rules."""

    notes_what_it_reads: Final = True
    """Whether `decide` reads no values of a GET but URL and Host, unless its settings have `reads_fields`."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Index and check rules.

        Raises:
            BadSetting: rules contradict or shadow each other, or cannot match.

        """
        self.rules = tuple(rules)
        check_rules(self.rules)
        self._indices_by_path_prefix: dict[str, list[int]] = {}
        for index, rule in enumerate(self.rules):
            self._indices_by_path_prefix.setdefault(rule.literal_path, []).append(index)
        self._prefix_lengths = sorted({len(prefix) for prefix in self._indices_by_path_prefix})

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Return the rules of a TOML file.

        Raises:
            BadSetting: the file is not TOML, or its rules are wrong; the message has line and reason.
            OSError: the file cannot be read.

        """
        return cls.from_text(Path(path).read_text(encoding="utf-8"), str(path))

    @classmethod
    def from_text(cls, text: str, name: str = "rules") -> Self:
        """Return the rules of a text in TOML, as `from_toml`."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadSetting(f"{name}: {error}") from None
        if unknown := content.keys() - {"rule"}:
            raise BadSetting(f"{name}: unknown {min(unknown)!r}; rules are tables [[rule]]")
        rule_line_numbers = [
            line_number
            for line_number, line in enumerate(text.splitlines(), 1)
            if re.match(r"\s*\[\[\s*rule\s*\]\]", line)
        ]
        rule_tables: Any = content.get("rule", [])
        if not isinstance(rule_tables, list):
            raise BadSetting(f"{name}: rules are tables [[rule]]")
        tables: list[Any] = list(cast("Any", rule_tables))
        rule_line_numbers += [0] * len(tables)
        tables_with_lines = zip(tables, rule_line_numbers, strict=False)
        rules = [
            parse_rule(table, rule_number, line_number)
            for rule_number, (table, line_number) in enumerate(tables_with_lines, 1)
        ]
        return cls(rules)

    def _candidate_indices(self, url_path: str) -> Iterable[int]:
        """Return the indices of the rules whose literal beginning fits, in order."""
        indices_by_path_prefix = self._indices_by_path_prefix
        candidates: list[int] = []
        for length in self._prefix_lengths:
            if length > len(url_path):
                break
            indices = indices_by_path_prefix.get(url_path[:length])
            if indices:
                candidates += indices
        candidates.sort()
        return candidates

    def matching(self, request: Request) -> tuple[list[Rule], list[Rule]]:
        """Return the rules whose conditions on the request hold, in order, and those that read its fields."""
        matching_rules: list[Rule] = []
        reading_rules: list[Rule] = []
        for index in self._candidate_indices(request.path_text):
            rule = self.rules[index]
            if not rule.matches_url(request):
                continue
            if rule.reads_fields:
                reading_rules.append(rule)
                if not rule.matches_fields(request):
                    continue
            matching_rules.append(rule)
        return matching_rules, reading_rules

    def decide(self, request: Request) -> Settings:
        """Return what the rules say of a request.

        A rule's `canonicalise` is applied first, and the rules decide about the URL that it makes, which the
        application gets. A rule that bypasses the URL as it was sent counts, too.
        """
        settings = self._decide(request)
        if settings.url is None or settings.url == (request.host, request.path, request.query):
            return settings
        moved_request = request.with_url(settings.url)
        moved_settings = replace(self._decide(moved_request))
        moved_settings.url = (moved_request.host, moved_request.path, moved_request.query)
        moved_settings.ambiguity = (
            settings.ambiguity or moved_settings.ambiguity or moved_request.ambiguity
        )
        deciding_rules = dict(moved_settings.deciding_rules)
        moved_settings.deciding_rules = deciding_rules
        deciding_rules["canonicalise"] = settings.deciding_rules["canonicalise"]
        if settings.bypass:
            moved_settings.bypass = True
            deciding_rules["bypass"] = settings.deciding_rules["bypass"]
        return moved_settings

    def urls_of(self, request: Request) -> list[tuple[bytes, bytes, bytes]]:
        """Return each host, path and query under which responses for a URL may be stored.

        Whether a rule changes the URL may depend on fields of the request that is stored: any may apply.
        """
        urls = [(request.host, request.path, request.query)]
        for rule in self.rules:
            url = rule.canonical_url(request)
            if url is not None and rule.matches_url(request):
                moved = request.with_url(url)
                urls.append((moved.host, moved.path, moved.query))
        return list(dict.fromkeys(urls))

    def _decide(self, request: Request) -> Settings:
        matching_rules, reading_rules = self.matching(request)
        if not matching_rules and not reading_rules:
            return NO_SETTINGS
        settings = Settings()
        settings.matched_rules = tuple(matching_rules)
        for rule in matching_rules:
            if not rule.when.is_of_response:
                _apply_rule(settings, rule, request, None)
        if reading_rules or settings.vary_on:
            settings.reads_fields = True
            _note_what_is_read(settings, request, reading_rules)
        return settings

    def decide_response(
        self, settings: Settings, request: Request, status: int, fields: Fields
    ) -> Settings:
        """Return what the rules say of a response, with those of its request."""
        matched_rules: tuple[Rule, ...] = settings.matched_rules
        if not matched_rules:
            return settings
        content_type = (combined_value(fields, b"content-type") or b"").decode("latin-1")
        response_settings = replace(
            settings, ttl=None, grace=None, keep=None, no_store=False, tags=(), tag_field=None,
            strip_cookies=False, store_set_cookie=(), max_bytes=None, compress=False,
            deciding_rules={
                name: rule_name
                for name, rule_name in settings.deciding_rules.items() if name in REQUEST_SETTINGS
            },
        )  # fmt: skip
        for rule in matched_rules:
            if rule.matches_response(status, content_type):
                _apply_rule(response_settings, rule, request, status)
        return response_settings


def _note_what_is_read(settings: Settings, request: Request, reading_rules: list[Rule]) -> None:
    """Put what conditions read into the key, and note whether applications may read it otherwise."""
    settings.keyed_conditions = tuple(
        sorted({part for rule in reading_rules for part in rule.keyed_conditions(request)})
    )
    cookie_names = {name for rule in reading_rules for name in rule.when.cookie}
    header_names = {name for rule in reading_rules for name in rule.header_names}
    for selector in settings.vary_on:
        kind, _, name = selector.partition(":")
        if kind == "header":
            header_names.add(name.lower().encode())
        elif kind == "cookie" and settings.pass_cookies is None:
            cookie_names.add(name)
    if cookie_names and request.parsed_cookies().are_ambiguous(cookie_names):
        settings.ambiguity = "ambiguous-cookie"
    if not request.repeated_names.isdisjoint(header_names - {b"cookie"}):
        settings.ambiguity = "ambiguous-field"


def _apply_rule(settings: Settings, rule: Rule, request: Request, status: int | None) -> None:
    """Set what a rule has and no earlier one has set."""
    deciding_rules = settings.deciding_rules
    name: str
    value: Any
    for name, value in rule.then.items():
        if name == "tags":
            settings.tags += tuple(
                _expand_tag(tag_template, rule, request) for tag_template in value
            )
            deciding_rules.setdefault(name, rule.name)
            continue
        setting_value = _setting_value(rule, name, value, request, status)
        if name in deciding_rules or setting_value is None:
            continue
        deciding_rules[name] = rule.name
        setattr(settings, "url" if name == "canonicalise" else name, setting_value)


def _setting_value(  # noqa: PLR0911 - a line a setting
    rule: Rule, name: str, value: Any, request: Request, status: int | None
) -> Any:
    """Return a setting in the form that `Settings` has; None where it says nothing of this response."""
    match name:
        case "canonicalise":
            return rule.canonical_url(request)
        case "vary_on" | "store_set_cookie":
            return tuple(value)
        case "pass_cookies":
            return frozenset(value)
        case "tag_field":
            return value.lower().encode()
        case "ttl" if isinstance(value, dict):
            return _ttl_of(cast("dict[str, float]", value), status)
        case "ttl" if status is not None and not rule.when.status:
            return value if status in DEFAULT_STATUSES else None
        case _:
            return value


def _ttl_of(ttls_by_status: dict[str, float], status: int | None) -> float | None:
    if status is None:
        return None
    for status_key in (str(status), f"{status // 100}xx", "default"):
        if status_key in ttls_by_status:
            return ttls_by_status[status_key]
    return None


def _expand_tag(tag: str, rule: Rule, request: Request) -> str:
    """Return a tag, with `{1}` and the like replaced by the groups of the rule's `path_regex`."""
    if "{" not in tag:
        return tag_of(tag)
    match = re.fullmatch(rule.when.path_regex or ".*", request.path_text, re.DOTALL)
    groups = match.groups(default="") if match else ()
    for group_number, group in enumerate(groups, 1):
        tag = tag.replace(f"{{{group_number}}}", group)
    return tag_of(tag)
