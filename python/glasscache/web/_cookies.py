"""Cookies of a request, as every framework reads them, or the finding that frameworks differ.

Django, Starlette and Werkzeug strip names and take the last of two cookies with one name; `http.cookies`
stops at the first part that it does not understand, an empty one included, takes quotes for brackets around
semicolons, and some names for attributes. A field that all of them read alike is plain: rules read the
cookies of such a field only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from glasscache.web._fields import FIELD_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Cookies", "parse_cookies"]

_PART: Final = re.compile(
    r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)="  # a token (RFC 6265, section 4.1.1)
    r"""([!#%&'~_`><@,:/$*+\-.^|)(?}{=\[\]0-9A-Za-z]*|"[^"\\;]*")"""
)
_ATTRIBUTES: Final = frozenset({
    "comment", "domain", "expires", "httponly", "max-age", "partitioned", "path", "samesite", "secure",
    "version",
})  # fmt: skip
"""Names that `http.cookies` takes for attributes of the cookie before, as it does those with a dollar."""


class Cookies(NamedTuple):
    """The cookies of a field."""

    values: dict[str, str]
    """Values by name; of several with one name the last."""
    repeated_names: frozenset[str]
    """Names of several cookies."""
    is_plain: bool
    """Whether all frameworks read the same cookies."""

    def are_ambiguous(self, names: Iterable[str]) -> bool:
        """Whether frameworks may read other values of the named cookies than this."""
        if not self.is_plain:
            return True
        return any(
            name in self.repeated_names or self.values.get(name, "").startswith('"')
            for name in names
        )


NO_COOKIES: Final = Cookies({}, frozenset(), True)


def parse_cookies(field_value: bytes) -> Cookies:
    """Return the cookies of a Cookie field."""
    if len(field_value) > FIELD_BYTES_MAX:
        return Cookies({}, frozenset(), False)
    values: dict[str, str] = {}
    repeated_names: set[str] = set()
    is_plain, is_after_empty_part = True, False
    for part in field_value.decode("latin-1").split(";"):
        cookie = part.strip(" \t")
        if not cookie:
            is_after_empty_part = True
            continue
        match = _PART.fullmatch(cookie)
        is_plain = is_plain and not is_after_empty_part
        if match is None:
            is_plain = False
            name, _, value = cookie.partition("=")
            values[name.strip()] = value.strip()
            continue
        name, value = match.groups()
        if name[0] == "$" or name.lower() in _ATTRIBUTES:
            is_plain = False
        if name in values:
            repeated_names.add(name)
        values[name] = value
    return Cookies(values, frozenset(repeated_names), is_plain)
