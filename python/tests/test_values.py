"""Values of every kind through every dialect: they come back equal and of the same type, or are refused."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import functools
import random
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import value_kinds
from glasscache import BadSetting, Codec, UnreadableValue, UnwritableValue
from value_kinds import (
    EXAMPLES,
    REGISTERED,
    Colour,
    Point,
    User,
    is_same,
    random_value,
    round_trip_result,
)

PYTHON_DIALECTS = ("pymemcache", "pylibmc", "python-memcached", "bmemcached")

COLUMNS: dict[str, list[Codec]] = {
    "own": [
        Codec(types=REGISTERED),
        Codec(types=REGISTERED, objects="msgpack"),
        Codec(types=REGISTERED, threshold=0, min_saving=0),
    ],
    "own, pickle": [Codec(objects="pickle")],
    "Python": [Codec(dialect) for dialect in PYTHON_DIALECTS],
    "Python, pickle": [Codec(dialect, objects="pickle") for dialect in PYTHON_DIALECTS],
    "php-memcached": [Codec("php-memcached")],
    "pecl-memcache": [Codec("pecl-memcache")],
    "dalli": [Codec("dalli")],
    "spymemcached": [Codec("spymemcached")],
    "raw": [Codec("raw")],
}
"""The columns of the reference's table; "Python" are the four dialects of Python clients."""

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "values.md"


def read_table() -> dict[tuple[str, str], str]:
    """Return the cells of the reference's table by row and column."""
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in REFERENCE.read_text().splitlines()
        if line.startswith("|")
    ]
    header_index = next(index for index, row in enumerate(rows) if row[0] == "what goes in")
    column_names = rows[header_index]
    cells: dict[tuple[str, str], str] = {}
    for row in rows[header_index + 2 : header_index + 2 + len(EXAMPLES)]:
        cells.update(
            {(row[0], name): cell for name, cell in zip(column_names[1:], row[1:], strict=True)}
        )
    return cells


@functools.cache
def table_cells() -> dict[tuple[str, str], str]:
    return read_table()


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_cell_of_the_reference_table_is_what_the_codec_does(kind: str, column: str) -> None:
    for codec in COLUMNS[column]:
        results = {round_trip_result(codec, value) for value in EXAMPLES[kind]}
        assert results == {table_cells().get((kind, column))}


def test_the_table_has_a_row_for_each_kind_and_a_column_for_each_dialect() -> None:
    assert table_cells().keys() == {(kind, column) for kind in EXAMPLES for column in COLUMNS}


@pytest.mark.parametrize("column", ["own", "own, pickle", "Python, pickle"])
def test_ten_thousand_random_values_come_back_as_they_were(column: str) -> None:
    for codec in COLUMNS[column]:
        rng = random.Random(2026)
        for number in range(10_000):
            value = random_value(rng)
            decoded = codec.decode(*codec.encode(value))
            assert is_same(value, decoded), (number, value, decoded)


@pytest.mark.parametrize(
    "column", ["Python", "php-memcached", "pecl-memcache", "dalli", "spymemcached"]
)
def test_random_values_that_another_client_has_come_back_as_they_were(column: str) -> None:
    supported_kinds = [kind for kind in EXAMPLES if table_cells()[kind, column] == "same"]
    random_value_makers: dict[str, Any] = {
        "str": lambda rng: "".join(rng.choices("ab ü🎈\0", k=rng.randrange(2000))),
        "bytes that are not UTF-8": lambda rng: b"\xff" + rng.randbytes(rng.randrange(2000)),
        "bytes that are UTF-8": lambda rng: "".join(rng.choices("ab ü", k=9)).encode(),
        "int": lambda rng: rng.getrandbits(rng.randrange(1, 63)) * rng.choice([1, -1]),
        "int beyond 64 bits": lambda rng: rng.getrandbits(100) + 2**64,
        "float": lambda rng: rng.choice([-0.0, rng.gauss(0, 1e9)]),
        "bool": lambda rng: rng.random() < 0.5,
        "None": lambda _: None,
        "list of int": lambda rng: [rng.randrange(1000) for _ in range(rng.randrange(300))],
        "list, dict with str keys": json_value,
    }
    for codec in COLUMNS[column]:
        rng = random.Random(2026)
        for number in range(10_000):
            value = random_value_makers[rng.choice(supported_kinds)](rng)
            decoded = codec.decode(*codec.encode(value))
            assert is_same(value, decoded), (number, value, decoded)


def json_value(rng: random.Random, depth: int = 3) -> Any:
    """Return a list or dict that JSON carries."""
    scalars = ["text", rng.randrange(10**6), None, True, rng.random()]
    items = [
        rng.choice(scalars) if depth == 0 else json_value(rng, depth - 1)
        for _ in range(rng.randrange(4))
    ]
    return items if rng.random() < 0.5 else {f"k{index}": item for index, item in enumerate(items)}


@pytest.mark.parametrize(
    ("value", "replacement"),
    [
        (value_kinds.UnregisteredDataclass(), r"Codec\(types=\[UnregisteredDataclass\]\)"),
        ([Colour.RED], r"Codec\(types=\[Colour\]\)"),
        (memoryview(b"a"), r"bytes\(value\)"),
        (value_kinds.TextSubclass("a"), r"str\(value\)"),
        (value_kinds.PairTuple(1, 2), r"tuple\(value\)"),
        ({"a": value_kinds.DictSubclass()}, r"dict\(value\)"),
        (value_kinds.np.float64(1.5), r"value\.item\(\)"),
        (dt.datetime(2026, 1, 1, tzinfo=value_kinds.CustomZone()), "astimezone"),
        ([value_kinds.np.arange(3)], "inside a container"),
    ],
)
def test_a_refusal_names_what_to_write_instead(value: Any, replacement: str) -> None:
    with pytest.raises(UnwritableValue, match=replacement):
        Codec().encode(value)


def test_the_bytes_that_the_reference_shows_are_written_and_read() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    timestamp = dt.datetime(2026, 3, 14, 13, 5, 9, 250, zone)
    value = {7: (decimal.Decimal("1.50"), timestamp)}
    (displayed,) = re.findall(r"^    (0d [0-9a-f ]+)$", REFERENCE.read_text(), re.MULTILINE)
    assert Codec().encode(value) == (TYPED_FLAGS, bytes.fromhex(displayed))
    assert is_same(Codec().decode(TYPED_FLAGS, bytes.fromhex(displayed)), value)


def test_values_stored_before_there_were_types_are_still_read() -> None:
    values_by_stored_form = {
        (0, b"raw"): b"raw",
        (0x9C000001, b"text"): "text",
        (0x9C000002, b"42"): 42,
        (0x9C000008, b'{"a":[1,2.5,null]}'): {"a": [1, 2.5, None]},
        (0x9C00000A, b"\x92\x01\xa1b"): [1, "b"],
    }
    for (flags, body), value in values_by_stored_form.items():
        assert is_same(Codec().decode(flags, body), value)
    assert Codec().encode({"a": [1, 2.5, None]}) == (0x9C000008, b'{"a":[1,2.5,null]}')


def test_a_type_that_is_not_registered_is_neither_read_nor_imported() -> None:
    program = (
        "import sys\n"
        "from glasscache import Codec, UnreadableValue\n"
        "before = set(sys.modules)\n"
        "for tag in (20, 21):\n"
        "    name = b'antigravity.Evil'\n"
        "    body = bytes([tag, len(name)]) + name + (b'\\x06\\x01A' if tag == 20 else b'\\x00')\n"
        "    try:\n"
        "        Codec().decode(0x9c00000d, body)\n"
        "    except UnreadableValue as error:\n"
        "        assert 'antigravity.Evil' in str(error), error\n"
        "    else:\n"
        "        raise SystemExit('read')\n"
        "assert 'antigravity' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@dataclass
class ClassWithChangedFields:
    name: str
    mail: str


@dataclass
class ClassWithFewerFields:
    name: str


def test_a_record_whose_fields_have_changed_is_unreadable() -> None:
    stored = Codec(types={"user": User}).encode(User("a"))
    with pytest.raises(UnreadableValue, match="mail"):
        Codec(types={"user": ClassWithChangedFields}).decode(*stored)
    with pytest.raises(UnreadableValue, match="the cache has name, mail"):
        stored = Codec(types={"user": ClassWithChangedFields}).encode(
            ClassWithChangedFields("a", "b")
        )
        Codec(types={"user": ClassWithFewerFields}).decode(*stored)
    with pytest.raises(UnreadableValue, match="is not an Enum here"):
        flags, body = Codec(types={"user": Colour}).encode(Colour.RED)
        Codec(types={"user": User}).decode(flags, body)


def test_a_dataclass_with_more_than_its_fields_is_refused() -> None:
    user = User("a")
    user.__dict__["cached"] = 1
    with pytest.raises(UnwritableValue, match="cached"):
        Codec(types=[User]).encode(user)


@pytest.mark.parametrize("types", [[int], ["Colour"], {"": Colour}, {"a": Colour, "b": Colour}])
def test_only_enumerations_and_dataclasses_are_registered_once_and_by_name(types: Any) -> None:
    with pytest.raises(BadSetting, match="types"):
        Codec(types=types)


def test_types_are_refused_where_they_would_have_no_effect() -> None:
    for settings in ({"dialect": "pymemcache"}, {"objects": "pickle"}):
        with pytest.raises(BadSetting, match="types"):
            Codec(types=[Colour], **settings)  # type: ignore[arg-type]


TYPED_FLAGS = 0x9C00000D


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x09\xff\xff\xff\x7f" + b"\x00" * 8,  # a count beyond the bytes
        b"\x09\x01" * 5000 + b"\x00",  # nested too deep
        b"\x0b\x01\x09\x00",  # a set of a list
        b"\x0d\x01\x0d\x00\x00",  # a dict as a key
        b"\x12\x03abc",  # a decimal number
        b"\x12\x05sNaNx",
        b"\x0e\xea\x07\x02\x1f",  # 31 February
        b"\x10\xea\x07\x01\x01\x00\x00\x00\x00\x03\x09../../etc",  # a zone outside its folder
        b"\x10\xea\x07\x01\x01\x00\x00\x00\x00\x03\x07No/Zone",
        b"\x11\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00",  # days beyond any timedelta
        b"\x06\x02\xff\xff",  # not UTF-8
        b"\x16",  # a tag of a later version
        b"\x00\x00",  # something behind the value
    ],
)
def test_invalid_bytes_are_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableValue):
        Codec(types=REGISTERED).decode(TYPED_FLAGS, body)


def test_any_bytes_are_read_or_refused() -> None:
    codec = Codec(types=REGISTERED, decompressed_bytes_max=1 << 20)
    rng = random.Random(7)
    for _ in range(20_000):
        flags, body = codec.encode((random_value(rng, 2),))
        changed_body = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            changed_body[rng.randrange(len(changed_body))] = rng.randrange(40)
        with contextlib.suppress(UnreadableValue):
            codec.decode(flags, bytes(changed_body))


def test_keys_that_share_a_hash_are_refused_before_they_take_hours() -> None:
    hash_modulus = 2**61 - 1  # CPython's modulus of the hashes of numbers
    with pytest.raises(UnreadableValue, match="hash"):
        codec = Codec(compress=None)
        numbers = [index * hash_modulus for index in range(1, 3_000)]
        flags, body = codec.encode((numbers,))
        assert body[:2] == b"\x0a\x01"
        codec.decode(flags, b"\x0b" + body[3:])  # the list, claimed to be a set
    assert Codec().decode(*Codec().encode(set(range(200_000)))) == set(range(200_000))


def test_more_items_than_could_be_read_are_not_written() -> None:
    codec = Codec(decompressed_bytes_max=3200)
    assert codec.decode(*codec.encode(set(range(99)))) == set(range(99))
    with pytest.raises(UnwritableValue, match="decompressed_bytes_max"):
        codec.encode(set(range(100)))


def test_a_container_that_holds_itself_is_refused() -> None:
    self_containing_list: list[Any] = [()]
    self_containing_list.append(self_containing_list)
    for value in (
        self_containing_list,
        {"a": self_containing_list},
        (self_containing_list,),
        {1: self_containing_list},
    ):
        with pytest.raises(UnwritableValue, match="deeper"):
            Codec().encode(value)


def test_a_codec_of_json_and_one_of_messagepack_read_each_others_types() -> None:
    value = {1: (decimal.Decimal("1.5"), Point(1, Colour.RED))}
    for writer, reader in (("json", "msgpack"), ("msgpack", "json")):
        stored = Codec(types=REGISTERED, objects=writer).encode(value)  # type: ignore[arg-type]
        assert is_same(Codec(types=REGISTERED, objects=reader).decode(*stored), value)  # type: ignore[arg-type]
