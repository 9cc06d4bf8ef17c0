"""Header fields: lists, Cache-Control, dates, targeted cache control and entity tags.

Fields are pairs of bytes with lower-case names, as ASGI passes them. A field that cannot be parsed never
makes a response fresher: an unreadable age or lifetime counts as "stale". Follows RFC 9110 (fields, dates,
entity tags), RFC 9111 (Cache-Control, Age) and RFC 9213 with RFC 8941 (targeted fields are structured
dictionaries).
"""

from __future__ import annotations

import calendar
import re
import time
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Directives",
    "Fields",
    "combined_value",
    "has_long_fields",
    "has_odd_fields",
    "host_of",
    "http_date",
    "opaque_tag",
    "parse_cache_control",
    "parse_date",
    "parse_targeted",
    "parse_whole_number",
    "split_list",
    "text_of",
    "with_vary",
]

Fields = list[tuple[bytes, bytes]]
Directives = dict[str, str | None]

FIELD_BYTES_MAX: Final = 8192
"""A longer field is not parsed: a request with one bypasses the cache, a response with one is not stored."""
FIELDS_BYTES_MAX: Final = 64 << 10
"""The same for all fields of a request or a response together."""
_KEPT_BYTES_MAX: Final = 256
"""Of longer values the parsed form is not kept: what others send must not decide what memory is used."""

SECONDS_MAX: Final = 2**31
"""A lifetime that does not fit is this long (RFC 9111, section 1.2.2)."""

_DIRECTIVE: Final = re.compile(
    r"""\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)      # the name
        (?:=("(?:[^"\\]|\\.)*"|[^\s,;"]*))?    # its argument, a token or a quoted string
        \s*(?:,|$)""",
    re.VERBOSE,
)
_NAME: Final = re.compile(r"[a-z-]+")
_RESTRICTING: Final = frozenset({
    "no-store", "private", "no-cache", "must-revalidate", "proxy-revalidate", "max-age", "s-maxage",
})  # fmt: skip
"""Directives that count in a member that is malformed as well; a lifetime without its number is none."""


def combined_value(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return all values of a field as one list, or None if it is absent."""
    values = [value for field_name, value in fields if field_name == name]
    if not values:
        return None
    return values[0] if len(values) == 1 else b", ".join(values)


def text_of(value: bytes) -> str:
    """Return the text of a field that may have letters beyond ASCII, in UTF-8 as browsers read them."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def split_list(value: bytes) -> list[bytes]:
    """Return the members of a list field, without those in quotes being cut."""
    if b'"' not in value:
        return [member for member in (chunk.strip() for chunk in value.split(b",")) if member]
    members, member, is_quoted, is_escaped = list[bytes](), bytearray(), False, False
    for byte in value:
        char = bytes((byte,))
        if is_escaped:
            is_escaped = False
        elif is_quoted and char == b"\\":
            is_escaped = True
        elif char == b'"':
            is_quoted = not is_quoted
        elif char == b"," and not is_quoted:
            members.append(bytes(member).strip())
            member.clear()
            continue
        member += char
    members.append(bytes(member).strip())
    return [member for member in members if member]


def with_vary(fields: Fields, names: Iterable[bytes]) -> Fields:
    """Return fields whose Vary has these names, too."""
    vary = combined_value(fields, b"vary")
    known_names = {name.lower() for name in split_list(vary or b"")}
    missing_names = [name for name in dict.fromkeys(names) if name not in known_names]
    if not missing_names or b"*" in known_names:
        return fields
    members = ([vary] if vary else []) + missing_names
    return [pair for pair in fields if pair[0] != b"vary"] + [(b"vary", b", ".join(members))]


def has_long_fields(fields: Fields) -> bool:
    """Whether a field, or all fields together, are longer than this cache takes."""
    total_bytes = sum(map(len, chain.from_iterable(fields)))
    return total_bytes > FIELD_BYTES_MAX and (
        total_bytes > FIELDS_BYTES_MAX
        or any(len(name) + len(value) > FIELD_BYTES_MAX for name, value in fields)
    )


def has_odd_fields(fields: Fields) -> bool:
    """Whether fields may be too long, or have what stands between values in keys."""
    joined = b"".join(chain.from_iterable(fields))
    return len(joined) > FIELD_BYTES_MAX or b"\n" in joined or b"\0" in joined


def parse_cache_control(value: bytes) -> Directives:
    """Return the directives of a Cache-Control field by their lower-case names.

    The first of several equal directives counts, unless another is shorter: the most restrictive one is kept.
    A member that is not a directive is skipped to the next comma, but for what it names that restricts: of
    "private max-age=60" that is private, and no lifetime. Of a field that is too long to be parsed the most
    restrictive reading counts.
    """
    if len(value) <= _KEPT_BYTES_MAX:
        return _kept_cache_control(value)
    return _parse_cache_control(value) if len(value) <= FIELD_BYTES_MAX else {"no-store": None}


def _parse_cache_control(value: bytes) -> Directives:
    text, directives, position = value.decode("latin-1"), Directives(), 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            next_comma = text.find(",", position)
            member_end = len(text) if next_comma < 0 else next_comma
            names = _NAME.findall(text[position:member_end].lower())
            directives |= dict.fromkeys(_RESTRICTING.intersection(names))
            position = member_end + 1
            continue
        position = match.end()
        name, argument = match[1].lower(), match[2]
        if argument is not None and argument.startswith('"'):
            argument = re.sub(r"\\(.)", r"\1", argument[1:-1])
        if name in directives and not _is_stricter(argument, directives[name]):
            continue
        directives[name] = argument
    return directives


_kept_cache_control = lru_cache(maxsize=1024)(_parse_cache_control)


def _is_stricter(new: str | None, old: str | None) -> bool:
    """Whether an argument given again leaves less than the first."""
    if old is None:
        return False  # no-cache without names is stricter than with
    if new is None:
        return True
    new_seconds, old_seconds = parse_whole_number(new), parse_whole_number(old)
    return new_seconds is None or (old_seconds is not None and new_seconds < old_seconds)


def parse_whole_number(text: str | None) -> int | None:
    """Return the number that a text of digits writes, at most 2**31; None for another text."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return min(int(text), SECONDS_MAX) if len(text) < 20 else SECONDS_MAX  # noqa: PLR2004 - digits


_DICTIONARY_MEMBER: Final = re.compile(
    r"""(?P<key>[a-z*][a-z0-9_\-.*]*)
        (?:=(?:(?P<integer>-?[0-9]{1,15})(?![0-9.])
              |(?P<decimal>-?[0-9]{1,12}\.[0-9]{1,3})(?![0-9.])
              |(?P<string>"(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*")
              |(?P<token>[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*)
              |(?P<binary>:[A-Za-z0-9+/=]*:)
              |(?P<boolean>\?[01])))?
        (?:[ ]*;[ ]*[a-z*][a-z0-9_\-.*]*(?:=(?:-?[0-9.]+|"[^"\\]*"|[A-Za-z*][^ ,;]*|\?[01]))?)*
        [ \t]*(?P<end>,[ \t]*|$)""",
    re.VERBOSE,
)


def parse_targeted(value: bytes) -> Directives | None:
    """Return the directives of a targeted field (CDN-Cache-Control); None if it is not well formed or empty.

    A lifetime of another type than a whole number is ignored, as RFC 9213, section 2.1 says.
    """
    if len(value) <= _KEPT_BYTES_MAX:
        return _kept_targeted(value)
    return _parse_targeted(value) if len(value) <= FIELD_BYTES_MAX else None


def _parse_targeted(value: bytes) -> Directives | None:
    text, position, directives = value.decode("latin-1").strip(), 0, Directives()
    while position < len(text):
        match = _DICTIONARY_MEMBER.match(text, position)
        if match is None or (match["end"] and match.end() == len(text)):
            return None
        position = match.end()
        name = match["key"]
        directives.pop(name, None)
        if match["boolean"] == "?0":
            continue
        if match["integer"] is not None:
            directives[name] = match["integer"]
        elif match["string"] is not None or match["decimal"] is not None:
            if name not in {"max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"}:
                directives[name] = (match["string"] or match["decimal"]).strip('"')
        else:
            directives[name] = match["token"]
    return directives or None


_kept_targeted = lru_cache(maxsize=256)(_parse_targeted)

_MONTHS: Final = {name: month_number for month_number, name in enumerate(
    "jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}  # fmt: skip  # noqa: SIM905
_IMF_FIXDATE: Final = re.compile(
    r"(?:[a-z]{3}, )?([0-9]{1,2}) ([a-z]{3}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) gmt"
)
_RFC850_DATE: Final = re.compile(
    r"[a-z]{6,9}, ([0-9]{2})-([a-z]{3})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) gmt"
)
_ASCTIME_DATE: Final = re.compile(
    r"[a-z]{3} ([a-z]{3}) ([ 0-9][0-9]) ([0-9]{2}):([0-9]{2}):([0-9]{2}) ([0-9]{4})"
)


_DATE_BYTES_MAX: Final = 64
"""The longest form is that of RFC 850, with 33 bytes."""


def parse_date(value: bytes) -> int | None:
    """Return the Unix time of an HTTP date in one of its three forms; None if it is not one."""
    return _parse_date(value) if len(value) <= _DATE_BYTES_MAX else None


@lru_cache(maxsize=4096)
def _parse_date(value: bytes) -> int | None:
    text = value.decode("latin-1").strip().lower()
    if match := _IMF_FIXDATE.fullmatch(text):
        day, month, year, hour, minute, second = match.groups()
    elif match := _RFC850_DATE.fullmatch(text):
        day, month, year, hour, minute, second = match.groups()
        current_year = time.gmtime().tm_year
        full_year = current_year - current_year % 100 + int(year)
        year = str(full_year - 100 if full_year > current_year + 50 else full_year)
    elif match := _ASCTIME_DATE.fullmatch(text):
        month, day, hour, minute, second, year = match.groups()
    else:
        return None
    month_number = _MONTHS.get(month)
    if month_number is None or not 1 <= int(day) <= 31:  # noqa: PLR2004
        return None
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:  # noqa: PLR2004 - a leap second
        return None
    try:
        return calendar.timegm(
            (int(year), month_number, int(day), int(hour), int(minute), int(second))
        )
    except (ValueError, OverflowError):
        return None


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@lru_cache(maxsize=4096)
def http_date(unix_time: int) -> bytes:
    """Return a Unix time as an HTTP date."""
    utc_time = time.gmtime(unix_time)
    month = list(_MONTHS)[utc_time.tm_mon - 1].capitalize()
    return (
        f"{_DAYS[utc_time.tm_wday]}, {utc_time.tm_mday:02} {month} {utc_time.tm_year:04} "
        f"{utc_time.tm_hour:02}:{utc_time.tm_min:02}:{utc_time.tm_sec:02} GMT"
    ).encode()


def opaque_tag(tag: bytes) -> bytes:
    """Return an entity tag without its mark of weakness, for the weak comparison."""
    tag = tag.strip()
    return tag[2:] if tag[:2] in {b"W/", b"w/"} else tag


def host_of(authority: str) -> bytes:
    """Return the Host field that a client sends for the authority of a URL."""
    return authority.rpartition("@")[2].encode("ascii" if authority.isascii() else "idna")
