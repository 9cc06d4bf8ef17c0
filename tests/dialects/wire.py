"""The typed values that are compared, and raw text commands to store and fetch them with their flags."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Case(NamedTuple):
    """One value that is stored and read."""

    key: str
    kind: str
    payload: str


def cases() -> list[Case]:
    """Return each value under its key."""
    long_text = "".join(f"line {number} of a page; " for number in range(400))
    texts = {
        "ascii": "hello",
        "unicode": "caf\u00e9 \u2603",
        "empty": "",
        "digits": "42",
        "long": long_text,
    }
    byte_strings = {
        "binary": bytes(range(128, 256)),
        "nul": b"\0\xff\0",
        "long": b"\xff\xfe\x00" * 3000,
    }
    numbers = (0, 1, 42, -7, 255, -300, 65536, 2**31 - 1, -(2**31), 2**40, -(2**62))
    floats = (0.0, 1.5, -0.1, 1e300, 3.0, 1 / 3)
    fields = [
        *((f"str.{name}", "str", text.encode().hex()) for name, text in texts.items()),
        *((f"bytes.{name}", "bytes", value.hex()) for name, value in byte_strings.items()),
        *((f"int.{number}", "int", str(number)) for number in numbers),
        *((f"float.{number!r}", "float", repr(number)) for number in floats),
        ("bool.true", "bool", "1"),
        ("bool.false", "bool", "0"),
        ("none", "none", ""),
        ("list", "list", ""),
    ]
    return [Case(*key_kind_and_payload) for key_kind_and_payload in fields]


def python_value(kind: str, payload: str) -> Any:
    value_makers: dict[str, Callable[[str], Any]] = {
        "str": lambda text: bytes.fromhex(text).decode(),
        "bytes": bytes.fromhex,
        "int": int,
        "float": float,
        "bool": lambda text: text == "1",
        "none": lambda _: None,
        "list": lambda _: [1, "a", 2.5],
    }
    return value_makers[kind](payload)


def kind_and_payload(value: Any) -> tuple[str, str]:  # noqa: PLR0911 - a line for each type
    match value:
        case None:
            return "none", ""
        case bool():
            return "bool", str(int(value))
        case int():
            return "int", str(value)
        case float():
            return "float", repr(value)
        case str():
            return "str", value.encode().hex()
        case bytes():
            return "bytes", value.hex()
        case _:
            return "list", repr(value)


def fetch_items(server: str, keys: list[str]) -> dict[str, tuple[int, bytes]]:
    """Flags and bytes of each item, read by text commands of our own."""
    host, port = server.split(":")
    items = {}
    with (
        socket.create_connection((host, int(port))) as connection,
        connection.makefile("rb") as replies,
    ):
        for key in keys:
            connection.sendall(f"get {key}\r\n".encode())
            header = replies.readline().split()
            if header == [b"END"]:
                continue
            items[key] = int(header[2]), replies.read(int(header[3]))
            replies.readline()
            replies.readline()
    return items


def store_items(server: str, items: dict[str, tuple[int, bytes]]) -> None:
    host, port = server.split(":")
    with (
        socket.create_connection((host, int(port))) as connection,
        connection.makefile("rb") as replies,
    ):
        for key, (flags, body) in items.items():
            connection.sendall(f"set {key} {flags} 0 {len(body)}\r\n".encode() + body + b"\r\n")
            reply = replies.readline()
            if reply != b"STORED\r\n":
                raise RuntimeError(f"set {key}: {reply!r}")
