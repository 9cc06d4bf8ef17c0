"""Why a URL is cached or not: the rules that decide, the key, and what is stored under it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from glasscache._steps import call
from glasscache.web._entry import Entry, PendingRecord, UncacheableRecord
from glasscache.web._exchange import Exchange
from glasscache.web._message import Request
from glasscache.web._run_steps import run_steps
from glasscache.web._shared_state import DEFAULTS, URL_TAG_PREFIX, SharedState
from glasscache.web._urls import request_of_url

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._fields import Fields
    from glasscache.web._lookup import Lookup
    from glasscache.web._message import Settings
    from glasscache.web._shared_state import RuleSet
    from glasscache.web.settings import CacheSettings

__all__ = ["COLUMN", "explain"]

COLUMN = 12
"""Characters of a line before its value."""


def explain(
    client: Any,
    url: str,
    fields: Fields | None = None,
    *,
    rules: RuleSet | None = None,
    method: str = "GET",
    settings: CacheSettings = DEFAULTS,
    mount: str = "",
    now: float,
) -> str:
    """Return a text of lines: request, rules, key, and what is stored with its age, lifetime and tags.

    Args:
        client: a `Client` of the middleware's servers.
        url: absolute.
        fields: of the request, with lower-case names.
        rules: those of the middleware.
        method: of the request.
        settings: those of the middleware.
        mount: prefix of the URL's path at which the application is mounted, such as "/shop".
        now: Unix time.

    Raises:
        ValueError: the URL is not absolute, or its path does not begin with `mount`.

    """
    shared = SharedState(rules, settings, clock=lambda: now)
    absolute_request = request_of_url(url, fields)
    request = Request(
        method.upper(),
        absolute_request.scheme,
        absolute_request.path,
        absolute_request.query,
        absolute_request.fields,
    )
    mount = mount.rstrip("/")
    if mount and not f"{request.path_text}/".startswith(f"{mount}/"):
        raise ValueError(f"{mount!r} is not where {url!r} begins: write the prefix, such as /shop")
    request.set_surroundings(mount.encode(), b"")
    exchange = Exchange(shared, client, request)
    lines = [("request", f"{request.method} {url}"), *_lines_of_rules(exchange.settings)]
    bypass_reason = exchange.bypass_reason
    if bypass_reason is not None:
        lines.append(("past cache", bypass_reason.decode().replace("; detail=", ": ")))
        return _format_lines(lines)
    run_steps(_read_lookup(exchange.lookup, client))
    lines += [("url", exchange.url.decode("latin-1")), ("key", exchange.lookup.response_key)]
    return _format_lines(lines + _lines_of_record(exchange.lookup, now))


def _read_lookup(lookup: Lookup, client: Any) -> Generator[Any, Any, None]:
    keys = lookup.first_keys()
    while keys:
        keys = lookup.add_values(keys, (yield call(client, "get_many", keys)))


def _lines_of_rules(request_settings: Settings) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for rule in request_settings.matched_rules:
        condition_text = ", if the response fits" if rule.when.is_of_response else ""
        lines.append(("rule", f"{rule.location}{condition_text}"))
    for name, rule_name in request_settings.deciding_rules.items():
        attribute = "url" if name == "canonicalise" else name
        value: Any = getattr(request_settings, attribute)
        if attribute == "url":
            value = " ".join(part.decode("latin-1") for part in value)
        elif isinstance(value, tuple | frozenset):
            value = ", ".join(map(str, cast("Any", value)))
        lines.append((name, f"{value} (rule {rule_name!r})"))
    return lines or [("rules", "none matches: the RFC decides")]


def _lines_of_record(lookup: Lookup, now: float) -> list[tuple[str, str]]:
    record = lookup.record
    match record:
        case None:
            return [
                ("stored", "nothing: a miss" + (", unreadable" if lookup.is_unreadable else ""))
            ]
        case PendingRecord():
            return [("stored", f"being fetched for {now - record.begun_at:.1f} s")]
        case UncacheableRecord():
            return [("stored", f"not storable: {record.reason or 'the last response'}")]
        case Entry():
            return _lines_of_entry(lookup, record, now)
        case _:
            return [("stored", "a record of variants")]


def _lines_of_entry(lookup: Lookup, entry: Entry, now: float) -> list[tuple[str, str]]:
    reuse = lookup.reuse_at(now)
    states_by_kind = {
        "fresh": "a hit",
        "stale": "stale, sent while it is refreshed",
        "pass": "not for requests with cookies or credentials",
        "validate": f"validated first: {reuse.reason if reuse else ''}",
    }
    state = "purged: a miss" if reuse is None else states_by_kind[reuse.kind]
    body_location = "in chunks" if entry.write_id else "in the record"
    lines = [
        ("stored", state),
        ("status", str(entry.status)),
        ("age", f"{entry.age(now):.0f} s of {entry.fresh_s} s"),
        (
            "stale",
            f"{entry.stale_while_revalidate_s} s while refreshed, {entry.stale_if_error_s} s for errors",
        ),
        ("body", f"{entry.length} bytes {body_location}"),
        ("cost", f"{entry.cost_ms} ms"),
    ]
    tags = [tag.decode("latin-1") for tag in entry.tags if not tag.startswith(URL_TAG_PREFIX)]
    if tags:
        lines.append(("tags", ", ".join(tags)))
    if lookup.vary_record is not None:
        lines.append(
            ("varies on", ", ".join(name.decode("latin-1") for name in lookup.vary_record.names))
        )
    return lines


def _format_lines(lines: list[tuple[str, str]]) -> str:
    return "".join(f"{name:<{COLUMN}}{value}\n" for name, value in lines)
