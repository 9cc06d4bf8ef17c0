"""What the objects of a JSON or MessagePack body would take, decided before they are made.

A body of empty lists or small maps becomes many times its size: a byte of MessagePack an object of 88.
A reader makes objects of at most `OBJECTS_PER_BYTE` times the bytes to which its codec lets a value unpack.
Text and bytes are not counted here: they take what the body takes.
"""

from __future__ import annotations

import re
from typing import Final

from glasscache.errors import UnreadableValue

__all__ = ["refuse_many_json_objects", "refuse_many_msgpack_objects"]

OBJECTS_PER_BYTE: Final = 4
"""By default, with 64 MiB of bytes, 256 MiB of objects."""
OBJECTS_BYTES_MIN: Final = 64 << 20
"""What is allowed under any codec: an item of a server, a megabyte, holds no more as JSON."""

# What CPython takes for each, with its pointer in the object that holds it.
_LIST_BYTES: Final = 88
_MAP_BYTES: Final = 216
_OTHER_BYTES: Final = 64

_BYTES_PER_JSON_BYTE_MAX: Final = _MAP_BYTES // 4 + 10
"""`{"":` is the shortest form of a map that is not empty."""
_BYTES_PER_MSGPACK_BYTE_MAX: Final = _MAP_BYTES // 2 + 10

_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PIECE: Final = rb'(?:[^"]{1,65536}+|%b){1,1024}+' % _TEXT
"""Some texts and what is between them: a replacement in the whole body would take many times its size."""


def _objects_bytes_max(unpacked_bytes_max: int) -> int:
    return max(OBJECTS_PER_BYTE * unpacked_bytes_max, OBJECTS_BYTES_MIN)


def refuse_many_json_objects(body: bytes, unpacked_bytes_max: int) -> None:
    """Raise UnreadableValue for JSON whose objects would take more than the bound."""
    bytes_max = _objects_bytes_max(unpacked_bytes_max)
    if len(body) * _BYTES_PER_JSON_BYTE_MAX <= bytes_max or _json_objects_bytes(body) <= bytes_max:
        return
    _refuse_above(_json_objects_bytes_outside_texts(body, bytes_max), bytes_max)


def _json_objects_bytes(body: bytes) -> int:
    """Return what the objects take if no bracket or comma is part of a text."""
    return (
        body.count(b"[") * _LIST_BYTES
        + body.count(b"{") * _MAP_BYTES
        + (body.count(b",") + body.count(b":")) * _OTHER_BYTES
    )


def _json_objects_bytes_outside_texts(body: bytes, bytes_max: int) -> int:
    """Return what the objects take, as far as the bound."""
    text_pattern, piece_pattern = re.compile(_TEXT, re.DOTALL), re.compile(_PIECE, re.DOTALL)
    position, objects_bytes = 0, 0
    while (piece := piece_pattern.match(body, position)) and objects_bytes <= bytes_max:
        objects_bytes += _json_objects_bytes(text_pattern.sub(b"", piece.group()))
        position = piece.end()
    return objects_bytes


def refuse_many_msgpack_objects(body: bytes, unpacked_bytes_max: int) -> None:
    """Raise UnreadableValue for MessagePack whose objects would take more than the bound."""
    bytes_max = _objects_bytes_max(unpacked_bytes_max)
    if len(body) * _BYTES_PER_MSGPACK_BYTE_MAX > bytes_max:
        _refuse_above(_msgpack_objects_bytes(body, bytes_max), bytes_max)


# The bytes of a form with its length or its number, and of the length alone, by first byte from 0xC0.
_FORM_BYTES: Final = (
    1, 1, 1, 1, 2, 3, 5, 3, 4, 6, 5, 9, 2, 3, 5, 9,
    2, 3, 5, 9, 3, 4, 6, 10, 18, 2, 3, 5, 3, 5, 3, 5,
)  # fmt: skip
_LENGTH_BYTES: Final = {
    0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4,
}  # fmt: skip
_FIRST_MAP, _FIRST_LIST, _FIRST_TEXT, _FIRST_FORM, _FIRST_NEGATIVE = 0x80, 0x90, 0xA0, 0xC0, 0xE0
_LISTS, _MAPS = (0xDC, 0xDD), (0xDE, 0xDF)


def _msgpack_objects_bytes(body: bytes, bytes_max: int) -> int:
    """Return what the objects take, as far as the bound."""
    position, objects_bytes = 0, 0
    while position < len(body) and objects_bytes <= bytes_max:
        first = body[position]
        is_map = _FIRST_MAP <= first < _FIRST_LIST or first in _MAPS
        is_list = _FIRST_LIST <= first < _FIRST_TEXT or first in _LISTS
        objects_bytes += _MAP_BYTES if is_map else _LIST_BYTES if is_list else _OTHER_BYTES
        position += _form_bytes(body, position)
    return objects_bytes


def _form_bytes(body: bytes, position: int) -> int:
    """Return the bytes of one form, without the elements of a list or map."""
    first = body[position]
    if _FIRST_TEXT <= first < _FIRST_FORM:
        return 1 + first - _FIRST_TEXT
    if not _FIRST_FORM <= first < _FIRST_NEGATIVE:
        return 1
    form_bytes = _FORM_BYTES[first - _FIRST_FORM]
    length_bytes = _LENGTH_BYTES.get(first, 0)
    return form_bytes + int.from_bytes(body[position + 1 : position + 1 + length_bytes], "big")


def _refuse_above(objects_bytes: int, bytes_max: int) -> None:
    if objects_bytes > bytes_max:
        raise UnreadableValue(
            f"its lists, maps and numbers would take more than {bytes_max >> 20} MiB of memory: raise "
            "decompressed_bytes_max, a quarter of that, or store it as several values"
        )
