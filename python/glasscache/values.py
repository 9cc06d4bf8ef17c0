"""Values on the wire: the dialect, how objects are serialised, what is compressed.

Whatever is stored comes back equal and of the same type, nested too, or is refused with what to write
instead. `str`, `bytes`, `int`, `float`, `bool`, `None`, lists of whole numbers and arrays have forms of
their own; lists and dicts that JSON carries faithfully go as JSON or MessagePack. Everything else that
is supported (docs/reference/values.md) goes as typed bytes: tuples, sets, dates, decimals, UUIDs, keys
that are not `str`, and the enumerations and dataclasses that were registered. Pickle is used only where
it is enabled explicitly, since reading one can run code.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from glasscache import _native, _object_bounds, _typed
from glasscache.errors import BadSetting, UnreadableValue, UnwritableValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

__all__ = ["Codec", "RawJSON"]

ObjectFormat = Literal["json", "msgpack", "pickle"]

_ELEMENT_BYTES_MAX: Final = 255
"""Longest element of an array: its length is one byte on the wire."""

_ARRAY_KINDS: Final = "biufcSU"
"""Kinds of NumPy's elements that are plain bytes: numbers, booleans and text of a fixed length."""

_DEPTH_MAX: Final = 200
"""Deepest nesting of containers that is taken; a ring of references is deeper than any bound."""


class RawJSON(bytes):
    """JSON that the application holds as bytes already: stored as it is, and read as it was.

    >>> RawJSON(b'{"a": 1}')
    RawJSON(b'{"a": 1}')
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the form that makes it."""
        return f"RawJSON({bytes(self)!r})"


class Codec(_native.Codec):
    """How values become bytes and bytes values.

    Args:
        dialect: the client whose flags are used: "own", "pymemcache", "pylibmc", "python-memcached",
            "bmemcached", "php-memcached", "pecl-memcache", "dalli", "spymemcached" or "raw".
        objects: how dicts and lists are serialised: "json", "msgpack" (needs msgspec) or "pickle".
        compress: "zstd", "zlib", "gzip", "lz4", "quicklz", "fastlz" (if the dialect has a flag for it)
            or None; by default the dialect's own.
        level: of the compression; None takes the method's usual one.
        threshold: values of fewer bytes are never compressed.
        min_saving: what compression must save, in percent, or the value goes as it is.
        decompressed_bytes_max: a value that would be larger unpacked is refused; so are JSON and MessagePack
            whose lists, maps and numbers would take more than four times as much memory (64 MiB at least).
        migrate_from: also read this dialect while a cache filled by another client is emptied.
        types: enumerations and dataclasses that may be stored, as a list, or by the names under
            which they are stored; every program that shares the cache registers the same names.

    >>> Codec().encode("text")[1]
    b'text'
    >>> flags, body = Codec().encode([1, 2, 3])
    >>> Codec().decode(flags, body)
    [1, 2, 3]
    >>> import datetime
    >>> Codec().decode(*Codec().encode({"on": datetime.date(2026, 3, 14), "ids": {7, 8}}))
    {'on': datetime.date(2026, 3, 14), 'ids': {8, 7}}

    """

    objects: ObjectFormat
    dialect: str = "flagged"
    migrate_from: str | None = None
    _arguments: Mapping[str, Any]

    def __new__(
        cls,
        dialect: str = "own",
        *,
        objects: ObjectFormat = "json",
        compress: str | None = "default",
        level: int | None = None,
        threshold: int = 1024,
        min_saving: int = 10,
        decompressed_bytes_max: int = 64 << 20,
        migrate_from: str | None = None,
        types: Iterable[type[Any]] | Mapping[str, type[Any]] = (),
    ) -> Self:
        """Make a codec; the class documents the arguments."""
        if objects not in _DUMPERS:
            raise BadSetting(f"objects={objects!r}: one of {', '.join(_DUMPERS)}")
        _check_bound("threshold", threshold)
        _check_bound("min_saving", min_saving, 100)
        _check_bound("decompressed_bytes_max", decompressed_bytes_max)
        is_own_dialect = dialect == "own"
        registered_types = _typed.Types(types)
        if registered_types.classes and (not is_own_dialect or objects == "pickle"):
            raise BadSetting('types=... needs dialect="own" and objects="json" or "msgpack"')
        writes_typed = is_own_dialect and objects != "pickle"
        codec = super().__new__(
            cls,
            functools.partial(_DUMPERS[objects], is_own_dialect=is_own_dialect),
            functools.partial(_load_kind, registered_types, decompressed_bytes_max),
            kind_and_payload_of=functools.partial(_kind_and_payload, registered_types)
            if writes_typed
            else None,
            dialect=dialect,
            compress=compress,
            level=level,
            threshold=threshold,
            min_saving=min_saving,
            decompressed_bytes_max=decompressed_bytes_max,
            pickle=objects == "pickle",
            migrate_from=migrate_from,
        )
        codec.objects, codec.dialect, codec.migrate_from = objects, dialect, migrate_from
        codec._arguments = {
            "objects": objects,
            "compress": compress,
            "level": level,
            "threshold": threshold,
            "min_saving": min_saving,
            "decompressed_bytes_max": decompressed_bytes_max,
            "migrate_from": migrate_from,
            "types": registered_types.classes,
        }
        return codec

    def __repr__(self) -> str:
        """Return the expression that makes the codec, with the arguments that are not the default."""
        defaults: dict[str, Any] = {**(Codec.__new__.__kwdefaults__ or {}), "types": {}}
        texts = [repr(self.dialect)] if self.dialect != "own" else []
        for name, value in self._arguments.items():
            if value == defaults[name]:
                continue
            value_text = repr(value)
            if name == "types":
                named_classes = (f"{key!r}: {cls.__qualname__}" for key, cls in value.items())
                value_text = f"{{{', '.join(named_classes)}}}"
            texts.append(f"{name}={value_text}")
        return f"Codec({', '.join(texts)})"


def _check_bound(name: str, number: int, maximum: int = sys.maxsize) -> None:
    if not 0 <= number <= maximum:
        raise BadSetting(f"{name}={number}: 0 to {maximum}")


def resolve_codec(codec: Codec | str | None, dialect: str | None) -> Codec:
    """Return the codec for a client's `codec=` and `dialect=`."""
    match codec:
        case None:
            return Codec(dialect or "own")
        case "json" | "msgpack" | "pickle":
            return Codec(dialect or "own", objects=codec)
        case _ if dialect is not None:
            raise BadSetting(
                f"dialect={dialect!r} together with a codec that has its own: Codec(dialect)"
            )
        case Codec():
            return codec
        case str():
            try:
                return Codec(codec)
            except BadSetting as error:
                formats = ", ".join(f'"{name}"' for name in _DUMPERS)
                raise BadSetting(f"codec={codec!r}: one of {formats}, or a {error}") from None
        case _:
            raise BadSetting(f"no codec {codec!r}: a Codec, or the name of one")


def _raw_json_or_array_payload(value: Any) -> tuple[str, Any] | None:
    """Return the kind and parts of raw JSON or of an array that has a form of its own."""
    if type(value) is RawJSON:
        return "raw_json", bytes(value)
    if type(value).__module__ == "array":
        shape = [len(value)]
        return "array", (
            value.typecode,
            False,
            False,
            value.itemsize,
            shape,
            _little_endian_bytes(value),
        )
    if _is_numpy_array(value):
        dtype = value.dtype
        if dtype.kind not in _ARRAY_KINDS or not 0 < dtype.itemsize <= _ELEMENT_BYTES_MAX:
            return None
        body = value.astype(dtype.newbyteorder("<"), copy=False).tobytes()
        shape = list(value.shape)
        return "array", (dtype.char, True, not dtype.isnative, dtype.itemsize, shape, body)
    return None


def _is_numpy_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _little_endian_bytes(value: Any) -> bytes:
    """Return an array's elements, little-endian."""
    if sys.byteorder == "big":
        value = value[:]
        value.byteswap()
    body: bytes = value.tobytes()
    return body


def _refuse_lossy_value(value: Any, depth: int = 0) -> None:
    """Raise for what JSON and MessagePack would bring back as something else."""
    cls = cast("Any", type(value))
    if cls is str or cls is int or cls is bool or cls is float or value is None:
        return
    if depth > _DEPTH_MAX:
        raise UnwritableValue(f"nested deeper than {_DEPTH_MAX} (or a list that holds itself)")
    if cls is dict:
        for key, element in value.items():
            if type(key) is not str:
                raise UnwritableValue(
                    f"a dict key of type {type(key).__name__} would come back as str "
                    '(codec="pickle" keeps it)'
                )
            _refuse_lossy_value(element, depth + 1)
    elif cls is list:
        for element in value:
            _refuse_lossy_value(element, depth + 1)
    elif _is_numpy_array(value):
        raise UnwritableValue(f'no form for a NumPy array of {value.dtype} (codec="pickle" has)')
    else:
        raise UnwritableValue(
            f"{cls.__name__} would not come back as what it was "
            '(make it a dict or list, or take codec="pickle")'
        )


def _kind_and_payload(types: _typed.Types, value: Any, is_nested: bool) -> tuple[str, Any]:
    """Return the kind and payload of a value that is neither a container nor a plain scalar."""
    if not is_nested and (kind_and_payload := _raw_json_or_array_payload(value)):
        return kind_and_payload
    return _typed.kind_and_payload_of(types, value, is_nested)


def _import_if_installed(name: str) -> Any:
    """Return a module that makes things faster where it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _find_json_functions() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return the fastest JSON writer and reader at hand, found on first use."""
    if msgspec := _import_if_installed("msgspec"):
        return msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    import json  # noqa: PLC0415 - where msgspec is there, it is not needed

    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return lambda value: encoder.encode(value).encode(), json.loads


_cached_json_functions: tuple[Callable[[Any], bytes], Callable[[bytes], Any]] | None = None


def _json_writer_and_reader() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    global _cached_json_functions  # noqa: PLW0603 - found once, on first use, so that importing stays cheap
    if _cached_json_functions is None:
        _cached_json_functions = _find_json_functions()
    return _cached_json_functions


def _dump_json(value: Any, *, is_own_dialect: bool) -> tuple[str, Any]:
    if not is_own_dialect:  # in the own dialect the native half has looked
        _refuse_lossy_value(value)
        _refuse_nan(value)
    return "json", _encode_or_refuse(_json_writer_and_reader()[0], value)


def _encode_or_refuse(write: Callable[[Any], bytes], value: Any) -> bytes:
    """Return a writer's form of a value; what it cannot write raises UnwritableValue."""
    try:
        return write(value)
    except UnicodeEncodeError as error:
        raise UnwritableValue(
            f'text without a UTF-8 form: {error} (codec="pickle" keeps it)'
        ) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise UnwritableValue(f"{type(value).__name__}: {error}") from error


def _refuse_nan(value: Any) -> None:
    """Raise for numbers that JSON does not have, and some writers make null of."""
    if type(value) is float and (value != value or value in (_INF, -_INF)):  # noqa: PLR0124
        raise UnwritableValue(f'JSON has no {value} (codec="msgpack" or "pickle" has)')
    if type(value) is dict:
        for element in cast("dict[str, Any]", value).values():
            _refuse_nan(element)
    elif type(value) is list:
        for element in cast("Any", value):
            _refuse_nan(element)


_INF: Final = float("inf")


def _msgpack_module() -> Any:
    msgspec = _import_if_installed("msgspec")
    if msgspec is None:
        raise UnwritableValue('objects="msgpack" needs the package msgspec')
    return msgspec.msgpack


def _dump_msgpack(value: Any, *, is_own_dialect: bool) -> tuple[str, Any]:
    if not is_own_dialect:  # as above
        _refuse_lossy_value(value)
    return "msgpack", _encode_or_refuse(_msgpack_module().encode, value)


def _dump_pickle(value: Any, *, is_own_dialect: bool) -> tuple[str, Any]:
    import pickle  # noqa: PLC0415 - enabled explicitly

    if is_own_dialect and (kind_and_payload := _raw_json_or_array_payload(value)):
        return kind_and_payload
    try:
        return "pickle", pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UnwritableValue(f"pickle: {error}") from error


_DUMPERS: Final[dict[str, Callable[..., tuple[str, Any]]]] = {
    "json": _dump_json,
    "msgpack": _dump_msgpack,
    "pickle": _dump_pickle,
}


def _load_kind(types: _typed.Types, bytes_max: int, kind: str, payload: Any) -> Any:
    """Return the value of a kind that the native half leaves to Python; some have one field, a body."""
    match kind:
        case "json":
            _object_bounds.refuse_many_json_objects(payload, bytes_max)
            return _json_writer_and_reader()[1](payload)
        case "raw_json":
            return RawJSON(payload)
        case "msgpack":
            _object_bounds.refuse_many_msgpack_objects(payload, bytes_max)
            return _msgpack_module().decode(payload)
        case "date_ms":
            import datetime as dt  # noqa: PLC0415 - only one dialect has dates

            return dt.datetime.fromtimestamp(payload / 1000, dt.UTC)
        case "array":
            return _load_array(*payload)
        case _:
            return _typed.value_from_payload(types, kind, payload)


def _array_error(typecode: str, itemsize: int) -> UnreadableValue:
    return UnreadableValue(f"an array of {typecode!r} with {itemsize} bytes an element")


def _load_array(
    typecode: str,
    is_numpy: bool,
    is_swapped: bool,
    itemsize: int,
    shape: tuple[int, ...],
    body: bytes,
) -> Any:
    if is_numpy:
        numpy = importlib.import_module("numpy")
        bytes_per_character = {"S": 1, "U": 4}.get(typecode)
        dtype = numpy.dtype(
            f"{typecode}{itemsize // bytes_per_character}" if bytes_per_character else typecode
        )
        if (
            dtype.kind not in _ARRAY_KINDS
            or (dtype.char, dtype.itemsize) != (typecode, itemsize)
            or (typecode == "U" and (numpy.frombuffer(body, "<u4") > sys.maxunicode).any())
        ):
            raise _array_error(typecode, itemsize)
        original_dtype = dtype.newbyteorder("S") if is_swapped else dtype
        if not body:
            return numpy.zeros(shape, original_dtype)
        return (
            numpy.frombuffer(body, dtype=dtype.newbyteorder("<"))
            .reshape(shape)
            .astype(original_dtype)
        )
    import array  # noqa: PLC0415

    value = cast("Any", array.array(typecode))
    if value.itemsize != itemsize:
        raise _array_error(typecode, itemsize)
    value.frombytes(body)
    if sys.byteorder == "big":
        value.byteswap()
    return value
