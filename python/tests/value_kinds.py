"""Values of every kind a program stores, examples and random ones, and when two of them are the same."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import enum
import math
import uuid
import zoneinfo
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from glasscache import Codec, GlasscacheError, RawJSON

if TYPE_CHECKING:
    from random import Random


class Colour(enum.Enum):
    RED = "r"
    GREEN = ("g", 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9


class TextEnum(enum.StrEnum):
    YES = "yes"


class Permission(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class User:
    name: Any
    tags: Any = field(default_factory=list[Any])
    made: Any = field(init=False, default=None)


@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any


@dataclass
class UnregisteredDataclass:
    a: int = 1


class UnregisteredEnum(enum.Enum):
    A = 1


class CustomZone(dt.tzinfo):
    def utcoffset(self, _: Any) -> dt.timedelta:
        return dt.timedelta(hours=1)

    def __eq__(self, other: object) -> bool:
        return type(other) is CustomZone

    def __hash__(self) -> int:
        return 1


class PairTuple(NamedTuple):
    left: int
    right: int


class TextSubclass(str):
    __slots__ = ()


class IntSubclass(int):
    __slots__ = ()


class DictSubclass(dict[Any, Any]):
    pass


class ListSubclass(list[Any]):
    pass


class DatetimeSubclass(dt.datetime):
    pass


REGISTERED = [Colour, Level, TextEnum, Permission, User, Point]

VIENNA_ZONE = zoneinfo.ZoneInfo("Europe/Vienna")
NEPAL_ZONE = dt.timezone(dt.timedelta(hours=5, minutes=45), "Nepal")

EXAMPLES: dict[str, list[Any]] = {
    "str": ["", "plain", "grüße 🎈", "x" * 5000],
    "bytes that are not UTF-8": [b"\xff\x00", b"\xff" * 5000],
    "bytes that are UTF-8": [b"", b"abc"],
    "int": [0, -7, 2**31, 2**63 - 1, -(2**63)],
    "int beyond 64 bits": [2**63, -(2**63) - 1, 2**200],
    "float": [1.5, -0.0, 1e300, math.inf, math.nan],
    "bool": [True, False],
    "None": [None],
    "list of int": [[1, 2, 3], list(range(500))],
    "list, dict with str keys": [[], {}, {"a": [1, "b", None, 2.5, True]}, [[], [{}]]],
    "dict with other keys": [{1: 2}, {None: 0, (1, 2): 3, True: 4}],
    "NaN or inf inside": [[math.nan, "x"], {"a": math.inf}],
    "bytes or bytearray inside": [[b"\xff"], {"a": b""}, [bytearray(b"x")]],
    "tuple": [(), (1, "a", (2,)), [1, (2,)]],
    "set, frozenset": [set(), {1, "a"}, frozenset({(1, 2)}), {"a": {3}}],
    "bytearray": [bytearray(), bytearray(b"abc")],
    "datetime.datetime": [
        dt.datetime(2026, 3, 14, 15, 9, 26, 535),  # noqa: DTZ001 - naive ones are values too
        dt.datetime(2026, 3, 14, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 14, tzinfo=NEPAL_ZONE),
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=VIENNA_ZONE),
        {"at": dt.datetime.max},  # noqa: DTZ901 - likewise
    ],
    "datetime.date, time, timedelta": [
        dt.date(1, 1, 1),
        dt.time(23, 59, 59, 999_999, tzinfo=dt.UTC),
        dt.timedelta(days=-1, microseconds=1),
        dt.timedelta.max,
    ],
    "decimal.Decimal": [decimal.Decimal("1.50"), decimal.Decimal("-0E+7"), decimal.Decimal("NaN")],
    "uuid.UUID": [uuid.UUID(int=7)],
    "Enum, registered": [
        Colour.GREEN,
        Level.HIGH,
        TextEnum.YES,
        Permission.READ | Permission.WRITE,
        Permission(0),
    ],
    "dataclass, registered": [User("a", [1]), Point(1, (2, 3)), [User(None)]],
    "Enum or dataclass, not registered": [UnregisteredEnum.A, UnregisteredDataclass()],
    "datetime in another zone": [
        dt.datetime(2026, 1, 1, tzinfo=CustomZone()),
        dt.time(1, tzinfo=CustomZone()),
    ],
    "array.array, numpy.ndarray": [array.array("d", [1.5]), np.arange(6, dtype="i4").reshape(2, 3)],
    "array inside": [[array.array("d", [1.5])], {"a": np.arange(3)}],
    "NumPy scalar": [np.float64(1.5), np.int64(2), np.bool_(True), np.str_("a")],
    "RawJSON": [RawJSON(b'{"a": 1}')],
    "memoryview": [memoryview(b"abc")],
    "subclass of str, int, dict, list": [
        TextSubclass("a"),
        IntSubclass(1),
        DictSubclass(a=1),
        ListSubclass([1]),
        DatetimeSubclass(2026, 1, 1),
    ],
    "namedtuple": [PairTuple(1, 2)],
    "OrderedDict, defaultdict, Counter, deque": [
        collections.OrderedDict(a=1),
        collections.defaultdict(int, a=1),
        collections.Counter("ab"),
        collections.deque([1]),
    ],
    "complex, range, function": [1j, range(3), len],
}


def is_same(left: Any, right: Any) -> bool:  # noqa: PLR0911 - a case a type
    """Whether two values are equal and of the same types throughout."""
    if type(left) is not type(right):
        return False
    match left:
        case float():
            is_equal = left == right and math.copysign(1, left) == math.copysign(1, right)
            return is_equal or (math.isnan(left) and math.isnan(right))
        case decimal.Decimal():
            return bool(left.as_tuple() == right.as_tuple())
        case list() | tuple():
            return len(left) == len(right) and all(map(is_same, left, right))
        case dict():
            return is_same(list(left.items()), list(right.items()))
        case set() | frozenset():
            return len(left) == len(right) and all(
                any(is_same(item, other) for other in right) for item in left
            )
        case dt.datetime() | dt.time():
            fields = ("hour", "minute", "second", "microsecond", "fold")
            is_equal = all(getattr(left, name) == getattr(right, name) for name in fields)
            return is_equal and left == right and _is_same_zone(left.tzinfo, right.tzinfo)
        case User() | Point():
            return all(
                is_same(getattr(left, field_name), getattr(right, field_name))
                for field_name in left.__match_args__
            )
        case np.ndarray():
            return left.dtype == right.dtype and np.array_equal(left, right)
        case _:
            return bool(left == right)


def _is_same_zone(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    return (
        left is right or (left == right and repr(left) == repr(right)) or type(left) is CustomZone
    )


def round_trip_result(codec: Codec, value: Any) -> str:
    """What becomes of a value: "same", the name of the type it comes back as, or "refused"."""
    try:
        decoded = codec.decode(*codec.encode(value))
    except GlasscacheError:
        return "refused"
    if is_same(value, decoded):
        return "same"
    return type(decoded).__name__ if type(decoded) is not type(value) else "changed"


ZONES = [
    None,
    dt.UTC,
    NEPAL_ZONE,
    dt.timezone(dt.timedelta(microseconds=-1)),
    VIENNA_ZONE,
    zoneinfo.ZoneInfo("UTC"),
]


def _random_datetime(rng: Random) -> dt.datetime:
    local_time = dt.datetime(rng.randint(2, 9998), 1, 1) + dt.timedelta(  # noqa: DTZ001 - the zone comes below
        days=rng.randrange(365), microseconds=rng.randrange(86_400_000_000)
    )
    return local_time.replace(tzinfo=rng.choice(ZONES), fold=rng.randrange(2))


def _random_text(rng: Random) -> str:
    return "".join(rng.choices('ab ü€🎈\0\n"\\', k=rng.randrange(12)))


SCALAR_MAKERS = [
    lambda _: None,
    lambda rng: rng.random() < 0.5,
    lambda rng: rng.randint(-300, 300),
    lambda rng: rng.getrandbits(rng.randrange(1, 200)) * rng.choice([-1, 1]),
    lambda rng: rng.choice([0.0, -0.0, math.inf, -math.inf, rng.gauss(0, 1e9)]),
    _random_text,
    lambda rng: rng.randbytes(rng.randrange(12)),
    _random_datetime,
    lambda rng: _random_datetime(rng).date(),
    lambda rng: _random_datetime(rng).timetz().replace(tzinfo=rng.choice(ZONES[:4])),
    lambda rng: dt.timedelta(rng.randint(-999_999, 999_999), rng.randrange(10**6), 7),
    lambda rng: decimal.Decimal(rng.getrandbits(80)).scaleb(rng.randint(-90, 90)),
    lambda rng: uuid.UUID(int=rng.getrandbits(128)),
    lambda rng: rng.choice(
        [*Colour, *Level, *TextEnum, *Permission, Permission.READ | Permission.WRITE]
    ),
]
"""Makers of values that can be keys of a dict."""

UNHASHABLE_MAKERS = [
    lambda _: math.nan,
    lambda rng: bytearray(rng.randbytes(rng.randrange(12))),
]


def _random_key(rng: Random) -> Any:
    key_choice = rng.randrange(12)
    if key_choice == 0:
        return tuple(rng.choice(SCALAR_MAKERS)(rng) for _ in range(2))
    if key_choice == 1:
        return frozenset(rng.choice(SCALAR_MAKERS)(rng) for _ in range(2))
    return rng.choice(SCALAR_MAKERS)(rng)


def random_value(rng: Random, depth: int = 4) -> Any:  # noqa: PLR0911 - likewise
    """Return a value of any supported type, nested up to `depth`."""
    if depth == 0 or rng.random() < 0.4:
        return rng.choice([*SCALAR_MAKERS, *UNHASHABLE_MAKERS])(rng)
    items = [random_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    match rng.randrange(9):
        case 0 | 1:
            return items
        case 2:
            return tuple(items)
        case 3:
            return {_random_key(rng) for _ in items}
        case 4:
            return frozenset(_random_key(rng) for _ in items)
        case 5:
            return {_random_key(rng): item for item in items}
        case 6:
            return {_random_text(rng): item for item in items}
        case 7:
            user = User(_random_text(rng), items)
            user.made = random_value(rng, depth - 1)
            return user
        case _:
            return Point(random_value(rng, depth - 1), items)
