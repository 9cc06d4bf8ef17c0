"""What others have stored costs a reader no more memory than its bounds, and raises no foreign error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import (
    AsyncClient,
    Client,
    Codec,
    GlasscacheError,
    UnreadableValue,
    UnwritableValue,
    _native,
)

if TYPE_CHECKING:
    from glasscache import Server

VALUES = int(os.environ.get("GLASSCACHE_TEST_VALUES", "4000"))
"""1,000,000 in a long run."""
SEED = int(os.environ.get("GLASSCACHE_TEST_SEED", "0")) or random.randrange(1, 1 << 30)
BATCH = 500
VALUE_BYTES_MAX = 1 << 20
GROWTH_MAX = 48 << 20
"""Above the bounds of a value and of a call: Python's objects for a megabyte of JSON take several."""

DIALECTS = [
    "own", "pymemcache", "pylibmc", "python-memcached", "bmemcached", "php-memcached",
    "pecl-memcache", "dalli", "spymemcached", "raw",
]  # fmt: skip
MARK = 0x9C << 24
INTS, ARRAY, JSON, PACKED_ARRAY, TYPED, MANIFEST = 6, 7, 8, 12, 13, 14
NUMPY = 0x80
ZLIB, ZSTD = 1 << 20, 2 << 20


class PeakMemory:
    """How far the resident memory rises."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._read("VmRSS")

    def growth(self) -> int:
        return self._read("VmHWM") - self._before

    def _read(self, name: str) -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) << 10
        raise AssertionError(name)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def array_body(itemsize: int, shape: list[int], elements: bytes = b"") -> bytes:
    return bytes([itemsize, len(shape)]) + b"".join(map(varint, shape)) + elements


ARRAYS = [
    ("no bytes an element", NUMPY | ord("O"), array_body(0, [1 << 26])),
    ("text of no characters", NUMPY | ord("S"), array_body(0, [1 << 33])),
    ("no bytes an element, none of them", NUMPY | ord("S"), array_body(0, [0, 1 << 60])),
    ("objects", NUMPY | ord("O"), array_body(8, [1], b"\0" * 8)),
    ("no objects", NUMPY | ord("O"), array_body(8, [0])),
    ("structures", NUMPY | ord("V"), array_body(8, [1], b"\0" * 8)),
    ("another size than the type's", NUMPY | ord("d"), array_body(1, [8], b"\0" * 8)),
    ("text that is cut", NUMPY | ord("U"), array_body(3, [2], b"\0" * 6)),
    ("characters beyond Unicode", NUMPY | ord("U"), array_body(4, [1], b"\xff" * 4)),
    ("array.array of another size", ord("i"), array_body(1, [8], b"\0" * 8)),
    ("array.array of no size", ord("i"), array_body(0, [1 << 40])),
    ("a product beyond 64 bits", NUMPY | ord("b"), array_body(1, [1 << 40, 1 << 40])),
    ("a letter that is none", NUMPY | 1, array_body(1, [1], b"\0")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("parameter", "body"), [case[1:] for case in ARRAYS], ids=[case[0] for case in ARRAYS]
)
@pytest.mark.parametrize("kind", [ARRAY, PACKED_ARRAY])
def test_an_array_whose_elements_are_not_of_its_type_is_unreadable(
    kind: int, parameter: int, body: bytes
) -> None:
    memory = PeakMemory()
    with pytest.raises(UnreadableValue):
        Codec().decode(MARK | parameter << 8 | kind, body)
    assert memory.growth() < 16 << 20


def test_arrays_are_read_as_they_were_written() -> None:
    numpy = pytest.importorskip("numpy")
    codec = Codec()
    for array in (
        numpy.zeros((0, 1 << 40)), numpy.array(["a", "bc"]), numpy.array([b"", b"x"]),
        numpy.arange(9).reshape(3, 3),
        numpy.array([], dtype="S5"), numpy.array(1.5), numpy.array([True]), numpy.array(["", ""]),
    ):  # fmt: skip
        read = codec.decode(*codec.encode(array))
        assert (read.dtype, read.shape) == (array.dtype, array.shape)
        assert (read == array).all()


def bombs(plain_bytes: int) -> dict[str, tuple[int, bytes]]:
    """Small values that unpack to this many bytes, by the client's own hand."""
    own = Codec(decompressed_bytes_max=1 << 30, min_saving=0)
    text = "a" * plain_bytes
    made = {
        f"{method} text": Codec(compress=method, decompressed_bytes_max=1 << 30).encode(text)
        for method in ("zstd", "zlib", "lz4", "quicklz")
    }
    made["whole numbers"] = own.encode([7] * (plain_bytes // 8))
    return made


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", bombs(1 << 16))
def test_small_values_that_unpack_to_much_are_bounded_for_a_call_of_many(
    name: str, is_async: bool, server: Server, namespace: str
) -> None:
    flags, body = bombs(56 << 20)[name]
    keys = [f"k{number}" for number in range(8)]
    store_raw(server, {f"{namespace}{key}": (flags, body) for key in keys})
    blocking = Client(server.address, namespace=namespace, timeout=20)

    async def read_many() -> Any:
        async with AsyncClient(server.address, namespace=namespace, timeout=20) as client:
            return await client.get_many(keys)

    def read_pipelined() -> Any:
        with blocking.pipeline() as pipeline:
            for key in keys:
                pipeline.get(key)
        errors = [result for result in pipeline.results if isinstance(result, Exception)]
        if errors:
            raise errors[0]

    calls: list[Any] = (
        [lambda: asyncio.run(read_many())]
        if is_async
        else [lambda: blocking.get_many(keys), lambda: blocking.gets_many(keys), read_pipelined]
    )
    for call in calls:
        if len(body) * 32 * 8 > 8 * (56 << 20):
            continue  # such a method cannot make a bomb of it
        memory = PeakMemory()
        with pytest.raises(UnreadableValue, match="fewer keys"):
            call()
        assert memory.growth() < 360 << 20, name  # a fraction of eight, numbers with their objects
    assert len(blocking.get(keys[0])) in (56 << 20, 7 << 20)


def test_many_ordinary_values_are_read_in_one_call(client: Client) -> None:
    """A compressed page each: no bound of a call is in the way of what programs store."""
    pages = {f"page{number}": f"<p>{number} " * 20_000 for number in range(120)}
    assert client.set_many(pages) == {}
    assert client.get_many(pages) == pages


def store_raw(server: Server, items: dict[str, tuple[int, bytes]]) -> None:
    """Store items as another client of the cache would."""
    host, _, port = server.address.rpartition(":")
    with (
        socket.create_connection((host, int(port))) as connection,
        connection.makefile("rb") as replies,
    ):
        for key, (flags, body) in items.items():
            connection.sendall(
                b"set %s %d 0 %d\r\n" % (key.encode(), flags, len(body)) + body + b"\r\n"
            )
            assert replies.readline() == b"STORED\r\n"


def test_manifests_that_share_pieces_are_not_multiplied(
    server: Server, client: Client, namespace: str
) -> None:
    client = Client(server.address, namespace=namespace, timeout=20)
    client.set("whole", os.urandom(3 << 20), split=True)
    manifest = client._get_unjoined("whole")
    assert type(manifest) is _native.Manifest
    keys = [f"copy{number}" for number in range(50)]
    client.set_many(dict.fromkeys(keys, manifest))
    memory = PeakMemory()
    assert len(client.get_many(keys)) == 1
    assert memory.growth() < 40 << 20
    assert len(client.get("whole")) == 3 << 20
    # A manifest of a manifest is none of ours.
    nested = struct.pack("<BQQIII", 1, 7, 29, 512, MARK | MANIFEST, zlib.crc32(b"x" * 29))
    client.set_many({"nested": _native.Manifest(nested), f"~piece:{7:016x}.0": b"x" * 29})
    with pytest.raises(UnreadableValue):
        client.get("nested")


def samples(codec: Codec) -> list[tuple[int, bytes]]:
    """Values of each kind as the codec writes them."""
    values: list[Any] = [
        b"bytes", "text", "text " * 400, 0, -5, 10**30, 1.5, True, False, None, [1, 2, 3],
        list(range(2000)), [],
        {"a": [1, {"b": None}]}, ["x"] * 900, (1, 2), {1, 2}, {1: 2}, b"\0" * 3000,
    ]  # fmt: skip
    encoded = []
    for value in values:
        try:
            encoded.append(codec.encode(value))
        except GlasscacheError:
            continue
    return encoded


def random_value(choice: random.Random, made: list[tuple[int, bytes]]) -> tuple[int, bytes]:
    """A value that was made, with a few changes; or flags and bytes at random."""
    if choice.random() < 0.3:
        flags = choice.choice(
            [
                choice.randrange(1 << 32),
                choice.randrange(64),
                MARK | choice.randrange(1 << 24),
                choice.choice(made)[0],
            ]
        )
        return flags, choice.randbytes(choice.choice([0, 1, 4, 9, 20, 60, 300]))
    flags, body = choice.choice(made)
    changed = bytearray(body)
    for _ in range(choice.choice([0, 1, 1, 2, 5])):
        match choice.randrange(5):
            case 0 if changed:
                changed[choice.randrange(len(changed))] = choice.randrange(256)
            case 1 if changed:
                del changed[choice.randrange(len(changed)) :]
            case 2:
                changed += choice.randbytes(choice.randrange(9))
            case 3 if len(changed) > 4:
                index = choice.randrange(min(len(changed) - 4, 24))
                changed[index : index + 4] = struct.pack(
                    "<I", choice.choice([0, 1, 1 << 20, (1 << 32) - 1, 1 << 31])
                )
            case _:
                flags ^= 1 << choice.randrange(32)
    return flags, bytes(changed)


def codec_of(dialect: str) -> Codec:
    return Codec(dialect, decompressed_bytes_max=VALUE_BYTES_MAX)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_stored_value_is_read_or_refused_within_its_bounds(dialect: str) -> None:
    codec, choice = codec_of(dialect), random.Random(SEED)
    made = samples(codec) + samples(codec_of("own"))
    for _ in range(max(VALUES // len(DIALECTS) // BATCH, 1)):
        values = [random_value(choice, made) for _ in range(BATCH)]
        memory = PeakMemory()
        for flags, body in values:
            try:
                codec.decode(flags, body)
            except GlasscacheError:
                pass
            except Exception as error:  # noqa: BLE001
                pytest.fail(f"seed {SEED}, flags {flags:#x}, body {body!r}: {error!r}")
        outcomes = codec.decode_many(values)
        assert all(
            isinstance(outcome, GlasscacheError) or not isinstance(outcome, Exception)
            for outcome in outcomes
        )
        del outcomes
        assert memory.growth() < GROWTH_MAX, f"seed {SEED}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_stored_value_is_read_by_every_call_or_refused(
    dialect: str, server: Server, namespace: str
) -> None:
    codec, choice = codec_of(dialect), random.Random(SEED)
    made = samples(codec) + samples(codec_of("own"))
    keys = [str(number) for number in range(max(VALUES // 100, 40))]
    store_raw(server, {f"{namespace}{key}": random_value(choice, made) for key in keys})
    settings: Any = {"namespace": namespace, "codec": codec, "timeout": 20}
    groups = [keys[first : first + 20] for first in range(0, len(keys), 20)]
    memory = PeakMemory()
    read_by_blocking_calls(Client(server.address, **settings), keys, groups)
    asyncio.run(read_by_awaited_calls(AsyncClient(server.address, **settings), keys, groups))
    assert memory.growth() < GROWTH_MAX, f"seed {SEED}"
    missing = Client(server.address, on_error="miss", **settings)
    assert set(missing.get_many(keys)) <= set(keys)


def read_by_blocking_calls(client: Client, keys: list[str], groups: list[list[str]]) -> None:
    refused = contextlib.suppress(GlasscacheError)
    for key in keys:
        with refused:
            client.get(key)
        with refused:
            client.gets(key)
    for group in groups:
        with refused:
            client.get_many(group)
    with client.pipeline() as pipeline:
        for key in keys:
            pipeline.get(key)
    errors = [result for result in pipeline.results if isinstance(result, Exception)]
    assert all(isinstance(error, GlasscacheError) for error in errors)


async def read_by_awaited_calls(
    client: AsyncClient, keys: list[str], groups: list[list[str]]
) -> None:
    refused = contextlib.suppress(GlasscacheError)
    for key in keys:
        with refused:
            await client.get(key)
    for group in groups:
        with refused:
            await client.get_many(group)


@pytest.mark.parametrize("method", ["zlib", "zstd", "lz4", "quicklz"])
def test_bytes_after_the_end_of_a_compressed_value_are_not_dropped(method: str) -> None:
    codec = Codec(compress=method)
    for text in ("a" * 5000, "abc " * 3000):
        flags, body = codec.encode(text)
        assert len(body) < len(text)
        assert codec.decode(flags, body) == text
        for tail in (b"x", b"\0", b"x" * 300):
            with pytest.raises(UnreadableValue):
                codec.decode(flags, body + tail)


EXTENDED: list[tuple[str, Any, Any, Any]] = [
    ("text", "ab", "c", "abc"),
    ("bytes", b"ab", b"c", b"abc"),
    ("long text", "ab " * 500, "c", UnreadableValue),
    ("number", 5, "0", 50),
    ("number and text", 5, "x", None),
    ("text and bytes that are none", "ab", b"\xff", None),
    ("compressed text", "ab " * 2000, "c", None),
    ("compressed bytes", b"ab " * 2000, b"c", None),
    ("dict", {"a": 1}, "x", None),
    ("numbers", [1, 2, 3], "x", None),
    ("boolean", True, "0", None),
    ("None", None, "x", None),
    ("tuple", (1, 2), "x", None),
    ("float", 1.5, "x", None),
]


@pytest.mark.parametrize(
    ("value", "piece", "joined"),
    [case[1:] for case in EXTENDED],
    ids=[case[0] for case in EXTENDED],
)
@pytest.mark.parametrize("dialect", ["own", "pymemcache", "pylibmc", "quicklz", "classic"])
@pytest.mark.parametrize("call", ["append", "prepend", "pipelined", "awaited", "quiet"])
def test_an_append_joins_text_or_leaves_the_value_as_it_is(
    call: str, dialect: str, value: Any, piece: Any, joined: Any, server: Server, namespace: str
) -> None:
    compress = (
        "quicklz" if dialect == "quicklz" else "zstd" if dialect in ("own", "classic") else "zlib"
    )
    codec = Codec(
        "own" if dialect in ("quicklz", "classic") else dialect,
        compress=compress,
        objects="pickle" if dialect in ("pymemcache", "pylibmc") else "json",
    )
    settings: Any = {"codec": codec, "namespace": namespace, "timeout": 20}
    client = Client(server.address, **settings)
    assert client.append("none", "x") is False
    client.set("k", value)

    async def append_awaited() -> Any:
        async with AsyncClient(server.address, **settings) as awaited:
            return await awaited.append("k", piece)

    def append_pipelined() -> Any:
        with client.pipeline() as pipeline:
            pipeline.set("k", value)
            pipeline.append("k", piece)
            pipeline.get("k")
        outcome = pipeline.results[1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    begin = {
        "append": lambda: client.append("k", piece),
        "prepend": lambda: client.prepend("k", piece),
        "pipelined": append_pipelined,
        "awaited": lambda: asyncio.run(append_awaited()),
        "quiet": lambda: client.append("k", piece, noreply=True),
    }[call]
    try:
        outcome = begin()
    except UnwritableValue:
        outcome = False
    read = client.get("k")
    before, after = (piece, "") if call == "prepend" else ("", piece)
    if outcome:
        if isinstance(value, int):
            assert read == int(f"{before}{int(value)}{after}") or isinstance(value, bool)
        elif isinstance(value, str):
            after, before = (
                text.decode() if isinstance(text, bytes) else text for text in (after, before)
            )
            assert read == before + value + after
        else:
            assert isinstance(value, bytes)
            after, before = (
                text.encode() if isinstance(text, str) else text for text in (after, before)
            )
            assert read == before + value + after
    else:
        assert (read, type(read)) == (value, type(value))
        assert joined is None or joined is UnreadableValue or dialect not in ("own", "classic")
    if (
        joined is not None
        and joined is not UnreadableValue
        and dialect == "own"
        and call != "prepend"
    ):
        assert read == joined


def test_a_boolean_that_was_added_to_is_a_number(client: Client) -> None:
    client.set("flag", True)
    assert client.incr("flag") == 2
    assert client.get("flag") == 2
    assert client.decr("flag", 2) == 0
    assert client.get("flag") == 0
