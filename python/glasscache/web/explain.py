"""Why a URL is cached or not: the rules that decide, the key, and what is stored under it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from glasscache._plans import call
from glasscache.web._core import DEFAULTS, Core
from glasscache.web._drive import drive
from glasscache.web._entry import Entry, Pending, Uncacheable
from glasscache.web._exchange import Exchange
from glasscache.web._message import Request
from glasscache.web._urls import request_of_url

if TYPE_CHECKING:
    from collections.abc import Generator

    from glasscache.web._core import Lookup, RuleSet
    from glasscache.web._fields import Fields
    from glasscache.web._message import Settings
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
        now: Unix time.

    Raises:
        ValueError: the URL is not absolute.

    """
    core = Core(rules, settings, clock=lambda: now)
    named = request_of_url(url, fields)
    request = Request(method.upper(), named.scheme, named.path, named.query, named.fields)
    exchange = Exchange(core, client, request)
    lines = [("request", f"{request.method} {url}"), *_decided(exchange.settings)]
    past = exchange.bypass
    if past is not None:
        lines.append(("past cache", past.decode().replace("; detail=", ": ")))
        return _table(lines)
    drive(_read(exchange.look, client))
    lines += [("url", exchange.url.decode("latin-1")), ("key", exchange.look.target)]
    return _table(lines + _stored(exchange.look, now))


def _read(look: Lookup, client: Any) -> Generator[Any, Any, None]:
    keys = look.first_keys()
    while keys:
        keys = look.take(keys, (yield call(client, "get_many", keys)))


def _decided(settings: Settings) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for rule in settings.matched:
        when = ", if the response fits" if rule.when.is_of_response else ""
        lines.append(("rule", f"{rule.where}{when}"))
    for name, rule in settings.because.items():
        attribute = "url" if name == "canonicalise" else name
        value: Any = getattr(settings, attribute)
        if attribute == "url":
            value = " ".join(part.decode("latin-1") for part in value)
        elif isinstance(value, tuple | frozenset):
            value = ", ".join(map(str, cast("Any", value)))
        lines.append((name, f"{value} (rule {rule!r})"))
    return lines or [("rules", "none matches: the RFC decides")]


def _stored(look: Lookup, now: float) -> list[tuple[str, str]]:
    record = look.record
    match record:
        case None:
            return [("stored", "nothing: a miss" + (", unreadable" if look.is_unreadable else ""))]
        case Pending():
            return [("stored", f"being fetched for {now - record.begun:.1f} s")]
        case Uncacheable():
            return [("stored", f"not storable: {record.why or 'the last response'}")]
        case Entry():
            return _entry(look, record, now)
        case _:
            return [("stored", "a mark of variants")]


def _entry(look: Lookup, entry: Entry, now: float) -> list[tuple[str, str]]:
    use = look.use(now)
    kinds = {
        "fresh": "a hit",
        "stale": "stale, sent while it is refreshed",
        "pass": "not for requests with cookies or credentials",
        "validate": f"validated first: {use.why if use else ''}",
    }
    state = "purged: a miss" if use is None else kinds[use.kind]
    where = "in pieces" if entry.write_id else "in the record"
    lines = [
        ("stored", state),
        ("status", str(entry.status)),
        ("age", f"{entry.age(now):.0f} s of {entry.fresh} s"),
        ("stale", f"{entry.swr} s while refreshed, {entry.sie} s for errors"),
        ("body", f"{entry.length} bytes {where}"),
        ("cost", f"{entry.cost_ms} ms"),
    ]
    if entry.tags:
        lines.append(("tags", ", ".join(tag.decode("latin-1") for tag in entry.tags)))
    if look.mark is not None:
        lines.append(("varies on", ", ".join(name.decode("latin-1") for name in look.mark.names)))
    return lines


def _table(lines: list[tuple[str, str]]) -> str:
    return "".join(f"{name:<{COLUMN}}{value}\n" for name, value in lines)
