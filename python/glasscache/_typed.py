"""Dates, decimals, UUIDs and registered classes as payloads of typed values, which the native half writes.

`Types` has the classes of a program that a codec may write and make: enumerations and dataclasses, each
under a name. Nothing is ever imported, and no class found, by a name that was read from a cache.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from glasscache.errors import BadSetting, UnwritableValue

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

__all__ = ["Types", "kind_and_payload_of", "value_from_payload"]

KindAndPayload = tuple[str, Any]
TimePayload = tuple[int, int, int, int, bool, Any]

_ZONE_NAME: Final = r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*"
_ZONE_NAME_LENGTH_MAX: Final = 100


class Types:
    """The enumerations and dataclasses of a program, by the names under which they are stored."""

    def __init__(
        self, registered_classes: Iterable[type[Any]] | Mapping[str, type[Any]] = ()
    ) -> None:
        """Register classes; without names of their own they have those of their modules and classes."""
        if isinstance(registered_classes, Mapping):
            classes_by_name = dict(cast("Mapping[str, type[Any]]", registered_classes))
        else:
            classes_by_name = {_name_of(cls): cls for cls in registered_classes}
        self.classes = {name: _check_class(name, cls) for name, cls in classes_by_name.items()}
        self.names = {cls: name for name, cls in classes_by_name.items()}
        if len(self.names) != len(self.classes):
            raise BadSetting("types: a class has two names; register it once")
        self.field_names = {cls: _list_field_names(cls) for cls in self.names if _is_dataclass(cls)}


def _name_of(cls: Any) -> str:
    if not isinstance(cls, type):
        raise BadSetting(f"types: {cls!r} is not a class; list enumerations and dataclasses")
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_dataclass(cls: Any) -> bool:
    return hasattr(cls, "__dataclass_fields__")


def _is_enum(cls: type) -> bool:
    enum = sys.modules.get("enum")
    return enum is not None and isinstance(cls, enum.EnumMeta)


def _check_class(name: Any, cls: Any) -> type[Any]:
    if type(name) is not str or not name:
        raise BadSetting(f"types: the name {name!r} of {cls!r} is not a text")
    if not isinstance(cls, type) or not (_is_dataclass(cls) or _is_enum(cls)):
        raise BadSetting(f"types: {cls!r} is neither an Enum nor a dataclass")
    if _is_dataclass(cls) and (_is_enum(cls) or cast("Any", cls).__new__ is not object.__new__):
        raise BadSetting(f"types: {name} is made by a __new__ of its own, which is not called")
    return cast("type[Any]", cls)


def _list_field_names(cls: type[Any]) -> tuple[str, ...]:
    import dataclasses  # noqa: PLC0415 - only programs that register one pay for it

    return tuple(field.name for field in dataclasses.fields(cls))


# ---- to payloads -----------------------------------------------------------------------------------


def kind_and_payload_of(types: Types, value: Any, is_nested: bool) -> KindAndPayload:
    """Return the kind and the payload of a value, or raise `UnwritableValue` with what to do instead."""
    cls = cast("Any", type(value))
    if cls in types.names:
        field_names = types.field_names.get(cls)
        if field_names is None:
            return "enum", (types.names[cls], _member_payload(value))
        return "record", (types.names[cls], _field_values(value, field_names))
    converter = _CONVERTERS.get((cls.__module__, cls.__qualname__))
    # A class of that name elsewhere is another class.
    if converter and getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls:
        return converter(value)
    raise _unwritable_error(value, is_nested)


def _member_payload(value: Any) -> str | int:
    """Return the name of a member; a combination of flags has its number."""
    members = cast("Any", type(value)).__members__
    if members.get(value.name) is value:
        return str(value.name)
    if isinstance(value, sys.modules["enum"].Flag):
        return int(value.value)
    raise UnwritableValue(f"{value!r} is not a member of {type(value).__name__}")


def _field_values(value: Any, field_names: tuple[str, ...]) -> list[tuple[str, Any]]:
    extra_names = set(getattr(value, "__dict__", ())) - set(field_names)
    if extra_names:
        raise UnwritableValue(
            f"{type(value).__name__} has attributes that are not fields and would be lost: "
            f'{", ".join(sorted(extra_names))} (codec="pickle" keeps them)'
        )
    try:
        return [(name, getattr(value, name)) for name in field_names]
    except AttributeError as error:
        raise UnwritableValue(f"{type(value).__name__} lacks a field: {error}") from error


def _time_payload(value: dt.time | dt.datetime) -> TimePayload:
    zone = _zone_payload(value.tzinfo)
    return value.hour, value.minute, value.second, value.microsecond, bool(value.fold), zone


def _zone_payload(zone: Any) -> Any:
    if zone is None:
        return None
    cls = cast("Any", type(zone))
    if cls is sys.modules["datetime"].timezone:
        offset, *name = zone.__getinitargs__()
        offset_us = (offset.days * 86_400 + offset.seconds) * 1_000_000 + offset.microseconds
        return (offset_us, name[0]) if name else offset_us
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is not None and cls is zoneinfo.ZoneInfo and _is_zone_name(zone.key):
        return zone.key
    raise UnwritableValue(
        f"a time in the zone {zone!r}: only datetime.timezone and named zoneinfo.ZoneInfo come back as "
        "they were (value.astimezone(datetime.UTC) has one)"
    )


def _is_zone_name(name: Any) -> bool:
    return (
        type(name) is str
        and len(name) <= _ZONE_NAME_LENGTH_MAX
        and re.fullmatch(_ZONE_NAME, name) is not None
    )


_CONVERTERS: Final[dict[tuple[str, str], Callable[[Any], KindAndPayload]]] = {
    ("datetime", "date"): lambda day: ("date", (day.year, day.month, day.day)),
    ("datetime", "time"): lambda time: ("time", _time_payload(time)),
    ("datetime", "datetime"): lambda moment: (
        "datetime",
        (moment.year, moment.month, moment.day, _time_payload(moment)),
    ),
    ("datetime", "timedelta"): lambda span: ("delta", (span.days, span.seconds, span.microseconds)),
    ("decimal", "Decimal"): lambda number: ("decimal", str(number)),
    ("uuid", "UUID"): lambda uuid: ("uuid", uuid.bytes),
}

_BASES: Final = (str, bytes, bytearray, bool, int, float, dict, list, tuple, set, frozenset)


def _unwritable_error(value: Any, is_nested: bool) -> UnwritableValue:  # noqa: PLR0911 - a sentence a case
    """Return the error text for a value without a form, with what to write instead."""
    cls = cast("Any", type(value))
    name = cls.__qualname__
    if cls.__module__ == "numpy" and name == "ndarray":
        reason = "inside a container has none" if is_nested else f"of {value.dtype} has none"
        return UnwritableValue(f'NumPy array {reason} of our forms (codec="pickle" keeps it)')
    if cls.__module__ == "array" and is_nested:
        return UnwritableValue(
            'array.array inside a container has no form (value.tolist(), or codec="pickle")'
        )
    if cls.__module__ == "numpy" and hasattr(value, "item"):
        return UnwritableValue(f"numpy.{name} would come back as another type (write value.item())")
    if cls is memoryview:
        return UnwritableValue("memoryview would come back as bytes (write bytes(value))")
    if _is_enum(cls) or _is_dataclass(cls):
        kind_name = "an Enum" if _is_enum(cls) else "a dataclass"
        return UnwritableValue(
            f"{name} is {kind_name} that this codec does not know (Codec(types=[{name}]) names it)"
        )
    for base in _BASES:
        if isinstance(value, base):
            return UnwritableValue(
                f"{name} would come back as {base.__name__}, its base "
                f'(write {base.__name__}(value), or take codec="pickle")'
            )
    return UnwritableValue(
        f"{name} would not come back as what it was "
        '(make it a dict or list, or take codec="pickle")'
    )


# ---- from payloads ---------------------------------------------------------------------------------


def value_from_payload(types: Types, kind: str, payload: Any) -> Any:
    """Return the value of a kind and its payload; what they do not fit is a `ValueError`."""
    match kind:
        case "enum":
            return _enum_from_payload(types, *payload)
        case "record":
            return _record_from_payload(types, *payload)
        case "decimal":
            import decimal  # noqa: PLC0415 - only users of such values pay for the module

            try:
                return decimal.Decimal(payload)
            except decimal.InvalidOperation as error:
                raise ValueError("an invalid decimal number") from error
        case "uuid":
            import uuid  # noqa: PLC0415 - likewise

            return uuid.UUID(bytes=payload)
        case _:
            return _time_from_payload(kind, payload)


def _time_from_payload(kind: str, payload: Any) -> Any:
    import datetime as dt  # noqa: PLC0415 - likewise

    match kind:
        case "date":
            return dt.date(*payload)
        case "delta":
            return dt.timedelta(*payload)
        case "time":
            hour, minute, second, microsecond, fold, zone_payload = payload
            tz = _zone_from_payload(zone_payload)
            return dt.time(hour, minute, second, microsecond, tz, fold=fold)
        case _:
            year, month, day, (hour, minute, second, microsecond, fold, zone_payload) = payload
            tz = _zone_from_payload(zone_payload)
            return dt.datetime(year, month, day, hour, minute, second, microsecond, tz, fold=fold)


def _zone_from_payload(zone_payload: Any) -> dt.tzinfo | None:
    import datetime as dt  # noqa: PLC0415 - likewise

    match zone_payload:
        case None:
            return None
        case int():
            return dt.timezone(dt.timedelta(microseconds=zone_payload)) if zone_payload else dt.UTC
        case (offset_us, name):
            return dt.timezone(dt.timedelta(microseconds=offset_us), name)
        case _:
            return _named_zone(zone_payload)


def _named_zone(name: str) -> dt.tzinfo:
    import zoneinfo  # noqa: PLC0415 - likewise

    if not _is_zone_name(name):
        raise ValueError(f"a time zone of the name {name!r}")
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"the time zone {name!r} is not known on this machine") from error


def _class_of(types: Types, name: str) -> type[Any]:
    cls = types.classes.get(name)
    if cls is None:
        raise ValueError(f"the type {name!r} is not registered here (Codec(types=...))")
    return cls


def _enum_from_payload(types: Types, name: str, member_payload: Any) -> Any:
    cls = cast("Any", _class_of(types, name))
    if not _is_enum(cls):
        raise ValueError(f"{name} is not an Enum here")
    if type(member_payload) is str:
        member = cls.__members__.get(member_payload)
        if member is None:
            raise ValueError(f"{name} has no member {member_payload!r} here")
        return member
    if type(member_payload) is int and issubclass(cls, sys.modules["enum"].Flag):
        return cls(member_payload)
    raise ValueError(f"{name} has no member {member_payload!r} here")


def _record_from_payload(types: Types, name: str, values: dict[str, Any]) -> Any:
    cls = _class_of(types, name)
    field_names = types.field_names.get(cls)
    if field_names is None or values.keys() != set(field_names):
        local_form = (
            "not a dataclass" if field_names is None else f"a dataclass of {', '.join(field_names)}"
        )
        raise ValueError(
            f"{name} is {local_form} here, and the cache has {', '.join(values) or 'nothing'}"
        )
    # As unpickling does: what __init__ would do has been done before the value was stored.
    instance = object.__new__(cls)
    for field_name in field_names:
        object.__setattr__(instance, field_name, values[field_name])
    return instance
