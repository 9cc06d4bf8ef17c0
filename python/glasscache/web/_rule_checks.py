"""Checks of rules when they are made: contradictions, rules that never decide, conditions that never hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from glasscache.errors import BadSetting
from glasscache.web._rule import DEFAULT_STATUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glasscache.web._rule import Rule, When

__all__ = ["check_rules"]

_REQUEST_SETTINGS: Final = (
    "bypass",
    "vary_on",
    "pass_cookies",
    "canonicalise",
    "ignore_request_directives",
)
_STORING_SETTINGS: Final = (
    "ttl",
    "grace",
    "keep",
    "tags",
    "tag_field",
    "max_bytes",
    "compress",
    "store_set_cookie",
)
_STORED_METHODS: Final = frozenset({"GET", "HEAD"})
_STATUS_PATTERN: Final = re.compile(r"[1-5](xx|[0-9][0-9])")
_NAME_PATTERN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Names of header fields and cookies (RFC 9110, section 5.6.2)."""
_SENT_PATH_PATTERN: Final = re.compile(r"[!-\"$-~]*")
"""A path as it is sent: visible ASCII without "#"."""


def check_rules(rules: Sequence[Rule]) -> None:
    """Check rules one by one, and each against the ones before it.

    Raises:
        BadSetting: with the rule's name and line, and the reason.

    """
    rules_by_name: dict[str, Rule] = {}
    for rule_index, rule in enumerate(rules):
        if rule.name in rules_by_name:
            raise BadSetting(
                f"{rule.location}: {rules_by_name[rule.name].location} has the same name"
            )
        rules_by_name[rule.name] = rule
        _check_rule(rule)
        _check_shadows(rule, rules[:rule_index])
    _check_cookies_of_several(rules)


def _check_rule(rule: Rule) -> None:
    _check_path(rule)
    _check_fields(rule)
    _check_status(rule)
    _check_settings(rule)
    _check_tags(rule)
    _check_cookies(rule)


def _check_path(rule: Rule) -> None:
    """Refuse conditions on the path and the host that no request meets."""
    path, regex, host = rule.when.path, rule.when.path_regex, rule.when.host
    if path is not None and not path.startswith(("/", "*")):
        raise BadSetting(f'{rule.location}: path = {path!r} cannot match: paths begin with "/"')
    if path is not None and not _SENT_PATH_PATTERN.fullmatch(path):
        raise BadSetting(
            f"{rule.location}: path = {path!r} cannot match: write it percent-encoded, without its query"
        )
    if path is not None and re.search(r"//|/\.{1,2}(?:/|$)", path):
        raise BadSetting(
            f"{rule.location}: path = {path!r} cannot match: requests with empty or dot segments "
            "bypass the cache; write it without them"
        )
    if regex is not None and re.search(r"%[0-9A-Fa-f]{2}", regex):
        raise BadSetting(
            f"{rule.location}: path_regex = {regex!r} cannot match: it is compared with the decoded path; "
            f"write {unquote(regex)!r}"
        )
    if regex is not None and re.match(r"[A-Za-z0-9_-]", regex) and "|" not in regex:
        raise BadSetting(
            f'{rule.location}: path_regex = {regex!r} cannot match: paths begin with "/"'
        )
    if host is not None and ("/" in host or not host.isascii()):
        raise BadSetting(
            f"{rule.location}: host = {host!r} cannot match: write the name alone, in ASCII"
        )


def _check_fields(rule: Rule) -> None:
    """Refuse conditions on header fields, cookies and the method that no request meets."""
    when = rule.when
    for name in (*when.header, *when.cookie):
        if not _NAME_PATTERN.fullmatch(name):
            raise BadSetting(f"{rule.location}: {name!r} cannot match: it is not a name")
    values_by_lower_name = {name.lower(): value for name, value in when.header.items()}
    if values_by_lower_name.get("cookie") is False and any(
        value is not False for value in when.cookie.values()
    ):
        raise BadSetting(
            f"{rule.location}: header cookie = false and cookie {min(when.cookie)!r} contradict each other"
        )
    for method in when.method:
        if method != method.upper():
            raise BadSetting(
                f"{rule.location}: method = {method!r} cannot match: methods are upper case"
            )


def _check_tags(rule: Rule) -> None:
    for tag in rule.then.get("tags", ()):
        if not tag.strip():
            raise BadSetting(f"{rule.location}: tags has {tag!r}: write a name")


def _check_cookies(rule: Rule) -> None:
    """Refuse to send everyone what was made with one visitor's cookie."""
    then = rule.then
    for setting in ("pass_cookies", "store_set_cookie"):
        for name in then.get(setting, ()):
            if not _NAME_PATTERN.fullmatch(name):
                raise BadSetting(
                    f"{rule.location}: {setting} has {name!r}: it is not a cookie's name"
                )
    if "ttl" not in then:
        return
    for name in then.get("pass_cookies", ()):
        if f"cookie:{name}" not in then.get("vary_on", ()):
            raise BadSetting(
                f"{rule.location}: pass_cookies = [{name!r}] and ttl contradict each other: the response "
                f"to one visitor's {name!r} would be everyone's; write vary_on = ['cookie:{name}'] too, "
                "or leave the cookie out of pass_cookies"
            )


def _check_cookies_of_several(rules: Sequence[Rule]) -> None:
    """Refuse the same where one rule passes the cookie and another has the `ttl`, for the same requests."""
    settings = {"pass_cookies", "ttl", "vary_on"}
    deciders = [rule for rule in rules if not settings.isdisjoint(rule.then)]
    if not any("pass_cookies" in rule.then for rule in deciders):
        return
    keyed_names = {name for rule in rules for name in rule.when.cookie}
    for rule in deciders:
        deciding = [other for other in deciders if _includes(other.when, rule.when)]
        passing, storing, varying = (
            next((other for other in deciding if setting in other.then), None)
            for setting in ("pass_cookies", "ttl", "vary_on")
        )
        if passing is None or storing is None or passing is storing:
            continue
        selectors = varying.then["vary_on"] if varying is not None else ()
        for name in passing.then["pass_cookies"]:
            if name not in keyed_names and f"cookie:{name}" not in selectors:
                raise BadSetting(
                    f"{storing.location}: ttl and pass_cookies = [{name!r}] of {passing.location} contradict "
                    f"each other: nothing that is made with a visitor's {name!r} is stored; write vary_on = "
                    f"['cookie:{name}'] too, when = {{ cookie = {{ {name} = false }} }}, or leave the cookie "
                    "out of pass_cookies"
                )


def _check_status(rule: Rule) -> None:
    """Refuse conditions on the response that none meets, and lifetimes of statuses that are excluded."""
    when, ttl = rule.when, rule.then.get("ttl")
    for status in when.status:
        if not _STATUS_PATTERN.fullmatch(status):
            raise BadSetting(
                f'{rule.location}: status = {status!r} cannot match: write 404 or "4xx"'
            )
    if when.content_type is not None and ";" in when.content_type:
        raise BadSetting(
            f"{rule.location}: content_type = {when.content_type!r} cannot match: leave its parameters out"
        )
    for status in cast("dict[str, Any]", ttl) if isinstance(ttl, dict) else ():
        if status != "default" and not _STATUS_PATTERN.fullmatch(status):
            raise BadSetting(
                f'{rule.location}: ttl of {status!r} cannot match: write 404, "4xx" or default'
            )
        if when.status and status != "default" and not _statuses_overlap(status, when.status):
            raise BadSetting(
                f"{rule.location}: ttl of {status!r} cannot match: the rule is for {', '.join(when.status)}"
            )


def _statuses_overlap(status: str, condition_statuses: Sequence[str]) -> bool:
    return any(
        condition_status[0] == status[0]
        and (condition_status == status or "xx" in {condition_status[1:], status[1:]})
        for condition_status in condition_statuses
    )


def _check_settings(rule: Rule) -> None:
    """Refuse settings that contradict each other or the rule's conditions."""
    when, then = rule.when, rule.then
    if when.is_of_response:
        for setting in _REQUEST_SETTINGS:
            if setting in then:
                raise BadSetting(
                    f"{rule.location}: {setting} is decided before the response, "
                    "on which this rule has a condition"
                )
    storing_settings = [setting for setting in _STORING_SETTINGS if setting in then]
    if storing_settings and (then.get("bypass") or then.get("no_store")):
        refusing_setting = "bypass" if then.get("bypass") else "no_store"
        raise BadSetting(
            f"{rule.location}: {refusing_setting} and {storing_settings[0]} contradict each other"
        )
    if storing_settings and when.method and _STORED_METHODS.isdisjoint(when.method):
        raise BadSetting(
            f"{rule.location}: {storing_settings[0]} has no effect: "
            f"responses to {when.method[0]} are not stored"
        )
    for selector in then.get("vary_on", ()):
        selector_kind, _, name = selector.partition(":")
        if not (
            selector in {"device", "language"} or (selector_kind in {"header", "cookie"} and name)
        ):
            raise BadSetting(
                f'{rule.location}: vary_on {selector!r}: "header:x", "cookie:x", "device" or "language"'
            )


def _check_shadows(rule: Rule, earlier_rules: Sequence[Rule]) -> None:
    """Raise if each setting of a rule is decided by earlier ones wherever the rule matches."""
    undecided = set(rule.then)
    is_storing_allowed = any(
        earlier_rule.then.get("no_store") is False for earlier_rule in earlier_rules
    )
    for earlier_rule in earlier_rules:
        if not _includes(earlier_rule.when, rule.when):
            continue
        if earlier_rule.then.get("bypass") and not earlier_rule.when.is_of_response:
            raise BadSetting(
                f"{rule.location} never decides: {earlier_rule.location} bypasses all that it matches"
            )
        undecided -= _final_settings(earlier_rule, rule)
        if earlier_rule.then.get("no_store") and not is_storing_allowed:
            undecided -= set(_STORING_SETTINGS)
        if not undecided:
            raise BadSetting(
                f"{rule.location} never decides: {earlier_rule.location} matches all that it matches"
            )


def _final_settings(rule: Rule, later_rule: Rule) -> set[str]:
    """Return the settings that a later rule cannot change; tags add up, a table of lifetimes has gaps."""
    final_settings = {
        setting
        for setting, value in rule.then.items()
        if setting != "tags" and (not isinstance(value, dict) or setting == "canonicalise")
    }
    if not rule.when.status and _names_other_status(later_rule):
        final_settings.discard("ttl")
    return final_settings


def _names_other_status(rule: Rule) -> bool:
    """Whether a rule has a lifetime for a status to which one without statuses does not apply."""
    ttl = rule.then.get("ttl")
    named_statuses = rule.when.status or (tuple(cast("Any", ttl)) if isinstance(ttl, dict) else ())
    return not set(named_statuses) <= {str(status) for status in DEFAULT_STATUSES}


def _includes(wide: When, narrow: When) -> bool:  # noqa: PLR0911 - one line a condition
    """Whether one set of conditions holds for certain wherever the other does."""
    if wide.path_regex is not None and wide.path_regex != narrow.path_regex:
        return False
    if wide.path is not None and not _path_includes(wide.path, narrow.path):
        return False
    if wide.method and not (narrow.method and set(narrow.method) <= set(wide.method)):
        return False
    if wide.host is not None and wide.host != narrow.host:
        return False
    if wide.content_type is not None and wide.content_type != narrow.content_type:
        return False
    if wide.status and not (narrow.status and set(narrow.status) <= set(wide.status)):
        return False
    return all(
        narrow.header.get(name) == expected for name, expected in wide.header.items()
    ) and all(narrow.cookie.get(name) == expected for name, expected in wide.cookie.items())


def _path_includes(wide_path: str, narrow_path: str | None) -> bool:
    if narrow_path is None:
        return wide_path in {"**", "/**"}
    if wide_path == narrow_path or wide_path in {"**", "/**"}:
        return True
    stem = wide_path.removesuffix("**")
    return stem != wide_path and not re.search(r"[*?]", stem) and narrow_path.startswith(stem)
