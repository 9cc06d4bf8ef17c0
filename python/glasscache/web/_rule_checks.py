"""Checks of rules when they are made: contradictions, rules that never decide, conditions that never hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glasscache.web._rule import Rule, When

__all__ = ["check"]

_FOR_REQUEST: Final = (
    "bypass",
    "vary_on",
    "pass_cookies",
    "canonicalise",
    "ignore_request_directives",
)
_FOR_STORING: Final = ("ttl", "grace", "keep", "tags", "tag_field", "max_bytes", "compress")
_METHODS_STORED: Final = frozenset({"GET", "HEAD"})


def check(rules: Sequence[Rule]) -> None:
    """Check rules one by one, and each against the ones before it.

    Raises:
        BadSetting: with the rule's name and line, and the reason.

    """
    names: dict[str, Rule] = {}
    for number, rule in enumerate(rules):
        if rule.name in names:
            raise BadSetting(f"{rule.where}: {names[rule.name].where} has the same name")
        names[rule.name] = rule
        _check_one(rule)
        _check_shadows(rule, rules[:number])


def _check_one(rule: Rule) -> None:  # noqa: C901, PLR0912 - a list of checks
    when, then = rule.when, rule.then
    if when.path is not None and when.path_regex is not None:
        raise BadSetting(
            f"{rule.where}: path and path_regex are two conditions on one thing; keep one of them"
        )
    if when.path is not None and not when.path.startswith(("/", "*")):
        raise BadSetting(f'{rule.where}: path = {when.path!r} cannot match: paths begin with "/"')
    for name, value in (*when.header.items(), *when.cookie.items()):
        if name.strip() != name or not name:
            raise BadSetting(f"{rule.where}: {name!r} cannot match: it is not a name")
        del value
    for method in when.method:
        if method != method.upper():
            raise BadSetting(
                f"{rule.where}: method = {method!r} cannot match: methods are upper case"
            )
    for status in when.status:
        if not re.fullmatch(r"[1-5](xx|[0-9][0-9])", status):
            raise BadSetting(f'{rule.where}: status = {status!r} cannot match: write 404 or "4xx"')
    if when.is_of_response:
        for name in _FOR_REQUEST:
            if name in then:
                raise BadSetting(
                    f"{rule.where}: {name} is decided before the response, on which this rule has a condition"
                )
    stored = [name for name in _FOR_STORING if name in then]
    if stored and (then.get("bypass") or then.get("no_store")):
        why = "bypass" if then.get("bypass") else "no_store"
        raise BadSetting(f"{rule.where}: {why} and {stored[0]} contradict each other")
    if stored and when.method and _METHODS_STORED.isdisjoint(when.method):
        raise BadSetting(
            f"{rule.where}: {stored[0]} has no effect: responses to {when.method[0]} are not stored"
        )
    for on in then.get("vary_on", ()):
        kind, _, name = str(on).partition(":")
        if not (on in {"device", "language"} or (kind in {"header", "cookie"} and name)):
            raise BadSetting(
                f'{rule.where}: vary_on {on!r}: "header:x", "cookie:x", "device" or "language"'
            )


def _check_shadows(rule: Rule, earlier: Sequence[Rule]) -> None:
    """Raise if each setting of a rule is decided by earlier ones wherever the rule matches."""
    for one in earlier:
        if one.then.get("bypass") and not one.when.is_of_response and _covers(one.when, rule.when):
            raise BadSetting(
                f"{rule.where} never decides: {one.where} bypasses all that it matches"
            )
    left = set(rule.then) - {"tags"}
    if not left or "tags" in rule.then:
        return
    for one in earlier:
        decides = {
            name
            for name, value in one.then.items()
            if not isinstance(value, dict) or name == "canonicalise"
        }
        if left & decides and _covers(one.when, rule.when):
            left -= decides
            if not left:
                raise BadSetting(
                    f"{rule.where} never decides: {one.where} matches all that it matches"
                )


def _covers(wide: When, narrow: When) -> bool:  # noqa: PLR0911 - one line a condition
    """Whether one set of conditions holds for certain wherever the other does."""
    if wide.path_regex is not None and wide.path_regex != narrow.path_regex:
        return False
    if wide.path is not None and not _path_covers(wide.path, narrow.path):
        return False
    if wide.method and not (narrow.method and set(narrow.method) <= set(wide.method)):
        return False
    if wide.host is not None and wide.host != narrow.host:
        return False
    if wide.content_type is not None and wide.content_type != narrow.content_type:
        return False
    if wide.status and not (narrow.status and set(narrow.status) <= set(wide.status)):
        return False
    return all(narrow.header.get(k) == v for k, v in wide.header.items()) and all(
        narrow.cookie.get(k) == v for k, v in wide.cookie.items()
    )


def _path_covers(wide: str, narrow: str | None) -> bool:
    if narrow is None:
        return wide in {"**", "/**"}
    if wide == narrow or wide in {"**", "/**"}:
        return True
    stem = wide.removesuffix("**")
    return stem != wide and not re.search(r"[*?]", stem) and narrow.startswith(stem)
