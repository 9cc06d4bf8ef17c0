"""The head of a request: what one native pass reads of a plain head is what the close look reads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from glasscache._native import environ_fields
from glasscache.web import _message
from glasscache.web._fields import FIELD_BYTES_MAX
from glasscache.web._message import URL_BYTES_MAX, Request
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from glasscache.web._fields import Fields

PATHS = st.one_of(
    st.text("abZ09-._~:@!$&'()*+,;=/", max_size=12).map(lambda text: b"/" + text.encode()),
    st.binary(max_size=8),
    st.sampled_from([b"", b"a", b"/a%2fb", b"/" + b"x" * URL_BYTES_MAX, "/ü".encode()]),
)
QUERIES = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"page=2", b"q=\x7f", b"q=%00"]))
NAMES = st.sampled_from(
    [
        b"host", b"accept", b"cookie", b"x-tag", b"user_id", b"content-length", b"transfer-encoding",
        b"cache-control", b"pragma", b"x-method-override", b"x-http-method", b"x-forwarded-host",
        b"if-none-match", b"a\nb", b"", b"x" * 70,
    ]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from([
        b"", b"0", b"5", b"shop.example", b"Shop.example:80", b"a b", b"no-cache", b"a\nb", b"a\0b",
        b"x" * FIELD_BYTES_MAX,
    ]),
    st.binary(max_size=5),
)  # fmt: skip
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=6)


class NoScanner:
    """Takes no head for a plain one."""

    def scan(self, path: bytes, query: bytes, fields: Fields) -> None:
        """Leave the head to the close look."""


def attributes_of(request: Request) -> dict[str, object]:
    return {name: getattr(request, name) for name in Request.__slots__}


@settings(max_examples=2000, deadline=None)
@given(path=PATHS, query=QUERIES, fields=FIELDS, scheme=st.sampled_from(["http", "https"]))
def test_a_plain_head_is_read_as_by_the_close_look(
    path: bytes, query: bytes, fields: Fields, scheme: str
) -> None:
    request = Request("GET", scheme, path, query, list(fields))
    with mock.patch.object(_message, "_SCANNER", NoScanner()):
        closely_read = Request("GET", scheme, path, query, list(fields))
    assert attributes_of(request) == attributes_of(closely_read)


def test_the_head_of_a_browser_needs_no_close_look() -> None:
    fields = [
        (b"host", b"shop.example"), (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64)"),
        (b"accept", b"text/html,*/*"), (b"cookie", b"session=1"), (b"if-none-match", b'"x"'),
    ]  # fmt: skip
    scan = _message._SCANNER.scan
    headers, names, path_text = scan(b"/lamps/17", b"page=2", fields) or ({}, b"", "")
    assert (headers, path_text) == (dict(fields), "/lamps/17")
    assert names == b"host\nuser-agent\naccept\ncookie\nif-none-match"
    for path, query, field in [
        (b"/a//b", b"", (b"accept", b"x")),
        (b"/a/../b", b"", (b"accept", b"x")),
        (b"/a", b"q=\n", (b"accept", b"x")),
        (b"/a", b"", (b"user_id", b"x")),
        (b"/a", b"", (b"pragma", b"x")),
        (b"/a", b"", (b"host", b"two")),
        (b"/" + b"a" * URL_BYTES_MAX, b"q", (b"accept", b"x")),
        (b"/a", b"", (b"accept", b"x" * FIELD_BYTES_MAX)),
    ]:
        assert scan(path, query, [*fields, field]) is None, (path, query, field)
    assert scan(b"/a", b"", [("accept", "x")]) is None  # type: ignore[list-item]


VARIABLES = st.one_of(
    st.sampled_from(
        [
            "HTTP_HOST", "HTTP_X_Forwarded_HOST", "HTTP_", "HTTP__A", "http_host", "CONTENT_TYPE",
            "CONTENT_LENGTH", "HTTP_CONTENT_TYPE", "PATH_INFO", "wsgi.input", "\ud800", "HTTP_\xc4_\xb5",
        ]
    ),
    st.text(max_size=4).map("HTTP_".__add__),
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=4), st.sampled_from(["", "a b", "\xff", "\u0100", "\udc80"]))


def read_environ(environ: dict[str, str]) -> Any:
    """Return the fields of an environ as PEP 3333 defines them, or the class of the error."""
    fields = []
    try:
        for variable, value in environ.items():
            is_content = variable in {"CONTENT_TYPE", "CONTENT_LENGTH"} and value != ""
            if is_content or variable.startswith("HTTP_"):
                name = variable.removeprefix("HTTP_").replace("_", "-").lower()
                fields.append((name.encode("latin-1"), value.encode("latin-1")))
    except UnicodeEncodeError:
        return UnicodeEncodeError
    return fields


@settings(max_examples=1000, deadline=None)
@given(environ=st.dictionaries(VARIABLES, TEXTS, max_size=5))
def test_the_fields_of_an_environ_are_read_in_one_pass(environ: dict[str, str]) -> None:
    expected = read_environ(environ)
    if expected is UnicodeEncodeError:
        with pytest.raises(UnicodeEncodeError):
            environ_fields(environ)
    else:
        assert environ_fields(environ) == expected


def test_a_value_of_an_environ_that_is_no_text_raises() -> None:
    assert environ_fields({"wsgi.version": (1, 0), "CONTENT_LENGTH": None, 5: ""}) == []  # type: ignore[dict-item]
    with pytest.raises(AttributeError):
        environ_fields({"HTTP_X": 5})
