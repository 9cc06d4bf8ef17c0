"""What JSON and MessagePack become in memory is bounded before it is made, in every dialect."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Any

import glasscache.compat.pylibmc as our_pylibmc
import glasscache.compat.pymemcache as our_pymemcache
import pytest
from glasscache import Client, Codec, UnreadableValue, _object_bounds
from glasscache.compat.pymemcache import serde as our_serde
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bounds import ZLIB, PeakMemory, store_raw

if TYPE_CHECKING:
    from glasscache import Server

msgspec = pytest.importorskip("msgspec")

MIB = 1 << 20

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False)
    | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=9), inner, max_size=9),
    max_leaves=25,
)  # fmt: skip


def objects_of(value: Any) -> tuple[int, int]:
    """Return how many objects a value consists of, and their bytes without those of texts."""
    if isinstance(value, str):
        return 1, sys.getsizeof("") + 8
    own_bytes = (
        sys.getsizeof(value) + 8 + 16 * isinstance(value, list | dict)
    )  # with the collector's head
    if isinstance(value, dict):
        inner = [objects_of(each) for pair in value.items() for each in pair]
        own_bytes = min(own_bytes, 240 + 8) + 100 * max(0, len(value) - 5)
    elif isinstance(value, list):
        inner = [objects_of(each) for each in value]
        own_bytes -= 8 * len(value)
    else:
        inner = []
    return 1 + sum(count for count, _ in inner), own_bytes + sum(size for _, size in inner)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_every_object_of_a_body_is_counted(value: Any) -> None:
    count, objects_bytes = objects_of(value)
    packed = msgspec.msgpack.encode(value)
    estimate = _object_bounds._msgpack_objects_bytes(packed, sys.maxsize)
    assert count * _object_bounds._OTHER_BYTES <= estimate <= count * _object_bounds._MAP_BYTES
    text = msgspec.json.encode(value)
    json_estimate = _object_bounds._json_objects_bytes_outside_texts(text, sys.maxsize)
    for found in (estimate, json_estimate + _object_bounds._OTHER_BYTES):
        assert objects_bytes <= 2 * found
    assert _object_bounds._msgpack_objects_bytes(packed, 0) <= estimate


@given(st.binary(max_size=200))
def test_the_objects_of_any_bytes_are_counted(body: bytes) -> None:
    assert (
        _object_bounds._msgpack_objects_bytes(body, sys.maxsize)
        <= len(body) * _object_bounds._MAP_BYTES
    )
    _object_bounds.refuse_many_json_objects(body, 1)
    _object_bounds.refuse_many_msgpack_objects(body, 1)


def json_bodies(size: int) -> dict[str, bytes]:
    """Bodies of about this many bytes that become many times as much."""
    return {
        "empty lists": b"[" + b"[]," * (size // 3) + b"1]",
        "empty maps": b"[" + b"{}," * (size // 3) + b"1]",
        "maps in maps": b"[" + (b'{"":' * 50 + b"1" + b"}" * 50 + b",") * (size // 252) + b"1]",
        "lists in lists": b"[" + (b"[" * 50 + b"]" * 50 + b",") * (size // 101) + b"1]",
        "texts": b"[" + b'"ab",' * (size // 5) + b"1]",
    }


def msgpack_bodies(size: int) -> dict[str, bytes]:
    forms = {
        "empty lists": b"\x90", "empty maps": b"\x80", "maps in maps": b"\x81\0" * 99 + b"\x80",
        "lists in lists": b"\x91" * 99 + b"\x90", "texts": b"\xa2xy",
    }  # fmt: skip
    return {
        name: b"\xdd" + (size // len(form)).to_bytes(4, "big") + form * (size // len(form))
        for name, form in forms.items()
    }


OTHER_DIALECTS = [("php-memcached", "json"), ("php-memcached", "msgpack"), ("dalli", "json")]


@pytest.mark.parametrize(
    ("dialect", "objects", "name"),
    [("own", objects, name) for objects in ("json", "msgpack") for name in json_bodies(100)]
    + [(dialect, objects, "empty lists") for dialect, objects in OTHER_DIALECTS],
)
def test_a_body_of_many_objects_is_refused_before_they_are_made(
    dialect: str, objects: Any, name: str
) -> None:
    """Under the least bound, 64 MiB: some megabytes of one kind of object would take hundreds."""
    flags, _ = Codec(dialect, objects=objects).encode({"a": [1]})
    body = (json_bodies(6 * MIB) if objects == "json" else msgpack_bodies(4 * MIB))[name]
    codec = Codec(dialect, objects=objects, decompressed_bytes_max=10 * MIB)
    memory = PeakMemory()
    with pytest.raises(UnreadableValue, match="would take more than 64 MiB"):
        codec.decode(flags, body)
    (outcome,) = codec.decode_many([(flags, body)])
    assert isinstance(outcome, UnreadableValue)
    assert memory.growth() < 3 * len(body)


def test_a_compressed_body_of_many_objects_is_refused_by_every_read(
    server: Server, namespace: str
) -> None:
    flags, body = Codec().encode({"a": [1]})[0], json_bodies(12 * MIB)["empty lists"]
    store_raw(server, {f"{namespace}k": (flags | ZLIB, zlib.compress(body))})
    client = Client(server.address, namespace=namespace, timeout=20)
    memory = PeakMemory()
    for read in (lambda: client.get("k"), lambda: client.get_many(["k"]), lambda: client.gets("k")):
        with pytest.raises(UnreadableValue, match="would take more than 256 MiB"):
            read()
    assert memory.growth() < 6 * len(body)


def test_ordinary_values_of_a_megabyte_are_read() -> None:
    codec = Codec(decompressed_bytes_max=MIB)
    for value in (
        ["[{,:" * 300_000],
        [1] * 100_000,
        [[]] * 300_000,
        [{"a": "b"}] * 90_000,
        [0.5] * 90_000,
    ):
        flags, body = codec.encode(value)
        assert len(body) < 1.3 * MIB
        assert codec.decode(flags, body) == value


@pytest.mark.parametrize("module_name", ["pylibmc", "pymemcache"])
def test_what_a_drop_in_module_unpacks_is_bounded(
    module_name: str, server: Server, namespace: str
) -> None:
    """Sixty-five megabytes from a few kilobytes; both clients' flags of a compressed value are 8."""
    packed = zlib.compress(bytes(65 * MIB), 9)
    error_class = our_pylibmc.Error if module_name == "pylibmc" else our_pymemcache.MemcacheError
    key, other_key = f"{namespace}bomb", f"{namespace}other"
    host, port = server.address.split(":")
    client: Any = (
        our_pylibmc.Client([server.address])
        if module_name == "pylibmc"
        else our_pymemcache.Client((host, int(port)), serde=our_serde.compressed_serde, timeout=20)
    )
    store_raw(server, {key: (8, packed), other_key: (8, zlib.compress(b"x" * 1000))})
    memory = PeakMemory()
    reads = [
        lambda: client.get(key),
        lambda: client.gets(key),
        lambda: client.get_multi([other_key, key]),
    ]
    for read in reads:
        with pytest.raises(error_class, match=f"more than {64 * MIB} bytes"):
            read()
    assert memory.growth() < 200 * MIB
    assert client.get(other_key) == b"x" * 1000
