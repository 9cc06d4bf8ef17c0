"""Values through a codec, without a server: an encoded value is decoded unchanged, or refused."""

from __future__ import annotations

import array
import enum
import resource
from typing import Any

import pytest
from glasscache import BadSetting, Codec, RawJSON, UnreadableValue, UnwritableValue
from hypothesis import given, settings
from hypothesis import strategies as st

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda json_values: st.lists(json_values) | st.dictionaries(st.text(), json_values),
    max_leaves=20,
)
SCALARS = st.text() | st.binary(max_size=5000) | st.integers() | st.floats(allow_nan=False)


class Hue(enum.Enum):
    """A registered enumeration."""

    RED = 1


def is_same_value(left: Any, right: Any) -> bool:
    """Whether two values are equal and of the same types throughout."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same_value, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            is_same_value(left[key], right[key]) for key in left
        )
    return bool(left == right)


@settings(max_examples=200, deadline=None)
@given(value=SCALARS | JSON_VALUES | st.lists(st.integers()))
def test_what_was_stored_comes_back_as_it_was(value: Any) -> None:
    for codec in (Codec(), Codec(threshold=0, min_saving=0), Codec(objects="pickle")):
        flags, body = codec.encode(value)
        assert is_same_value(codec.decode(flags, body), value)


@settings(max_examples=50, deadline=None)
@given(value=JSON_VALUES)
def test_messagepack_brings_back_what_json_does(value: Any) -> None:
    codec = Codec(objects="msgpack")
    flags, body = codec.encode(value)
    assert is_same_value(codec.decode(flags, body), value)


@pytest.mark.parametrize("value", [object(), float, {"a": object()}, [memoryview(b"")], 1j])
def test_what_would_come_back_changed_is_refused(value: Any) -> None:
    with pytest.raises(UnwritableValue):
        Codec().encode(value)


def test_arrays_come_back_with_their_type() -> None:
    import numpy as np

    numbers = array.array("I", range(1000))
    codec = Codec()
    assert is_same_value(codec.decode(*codec.encode(numbers)), numbers)
    for array_value in (
        np.arange(12, dtype="f4").reshape(3, 4),
        np.array([[True, False]]),
        np.array(["ab", "c"]),
        np.zeros((0, 3)),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ):
        decoded = codec.decode(*codec.encode(array_value))
        assert decoded.dtype == array_value.dtype
        assert np.array_equal(decoded, array_value)


def test_raw_json_is_stored_as_it_is() -> None:
    flags, body = Codec().encode(RawJSON(b'{"a": 1}'))
    assert body == b'{"a": 1}'
    assert is_same_value(Codec().decode(flags, body), RawJSON(b'{"a": 1}'))


def test_a_decompression_bomb_is_refused() -> None:
    flags, body = Codec().encode(b"\0" * 10_000_000)
    assert len(body) < 10_000
    with pytest.raises(UnreadableValue):
        Codec(decompressed_bytes_max=1_000_000).decode(flags, body)


def test_stored_text_that_is_not_utf8_is_refused() -> None:
    codec = Codec()
    flags, _ = codec.encode("text")
    for body in (b"\xff", b"half a letter \xc3", b"\xed\xa0\x80"):
        with pytest.raises(UnreadableValue, match="text that is not UTF-8"):
            codec.decode(flags, body)
    assert codec.decode(flags, "h\u00fbt \U0001f600".encode()) == "h\u00fbt \U0001f600"


def test_a_codec_prints_the_expression_that_makes_it() -> None:
    assert repr(Codec()) == "Codec()"
    codec = Codec(
        "own", objects="msgpack", compress="zstd", level=3, threshold=64, types={"hue": Hue}
    )
    text = repr(codec)
    assert text == (
        "Codec(objects='msgpack', compress='zstd', level=3, threshold=64, types={'hue': Hue})"
    )
    assert repr(eval(text)) == text  # noqa: S307 - the text is ours
    assert repr(Codec("pylibmc", compress=None)) == "Codec('pylibmc', compress=None)"


def test_an_error_names_unknown_flags() -> None:
    with pytest.raises(UnreadableValue) as error:
        Codec().decode(1, b"\x80\x05.")
    assert error.value.flags == 1


def test_the_memory_of_a_long_list_is_retained_for_the_next() -> None:
    codec = Codec()
    flags, body = codec.encode(list(range(1_000_000, 1_140_000)))

    def count_page_faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    codec.decode(flags, body)
    faults_before = count_page_faults()
    for _ in range(10):
        codec.decode(flags, body)
    assert count_page_faults() - faults_before < 10 * 300, (
        "about 1,000 each if the memory is returned"
    )


@pytest.mark.parametrize("text", ["\ud800", {"a": "\ud800"}, {"\ud800": 1}, ["\ud83d\ude00"]])
def test_text_without_a_utf8_form_is_refused_or_pickled(text: Any) -> None:
    for objects in ("json", "msgpack"):
        with pytest.raises(UnwritableValue, match="UTF-8"):
            Codec(objects=objects).encode(text)
    pickle_codec = Codec(objects="pickle")
    assert pickle_codec.decode(*pickle_codec.encode(text)) == text


def test_a_value_that_no_serialiser_takes_is_unwritable() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for codec in (Codec(), Codec(objects="msgpack")):
        assert codec.decode(*codec.encode(10**5000)) == 10**5000
    for value in (nested, lambda: 1, (item for item in "ab")):
        with pytest.raises(UnwritableValue):
            Codec().encode(value)
        with pytest.raises(UnwritableValue, match="pickle"):
            Codec(objects="pickle").encode(value)
    pickle_codec = Codec(objects="pickle")
    assert pickle_codec.decode(*pickle_codec.encode(10**5000)) == 10**5000


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">U3", "<U3", "S5", "?", "f2", "g", "G"])
@pytest.mark.parametrize("shape", [(), (0,), (5, 0), (300, 4)])
def test_numpy_arrays_keep_their_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    numpy = pytest.importorskip("numpy")
    array_value = numpy.ones(shape, dtype)
    for codec in (Codec(), Codec(compress=None), Codec(objects="pickle")):
        decoded = codec.decode(*codec.encode(array_value))
        assert (decoded.dtype, decoded.shape) == (array_value.dtype, array_value.shape)
        assert decoded.dtype.byteorder == array_value.dtype.byteorder
        assert (decoded == array_value).all()
        assert decoded.flags.writeable


@pytest.mark.parametrize("dtype", ["O", "M8[s]", "i4,f8", "S300", "V4"])
def test_numpy_arrays_without_a_form_are_refused_or_pickled(dtype: str) -> None:
    numpy = pytest.importorskip("numpy")
    array_value = numpy.zeros((2, 3), dtype)
    with pytest.raises(UnwritableValue, match="pickle"):
        Codec().encode(array_value)
    pickle_codec = Codec(objects="pickle")
    decoded = pickle_codec.decode(*pickle_codec.encode(array_value))
    assert decoded.dtype == array_value.dtype
    assert decoded.tolist() == array_value.tolist()


@pytest.mark.parametrize("compress", ["zstd", "zlib", "lz4", "quicklz"])
def test_nothing_is_written_that_could_not_be_read(compress: str) -> None:
    codec = Codec(compress=compress, decompressed_bytes_max=10_000)
    for body in (b"x" * 10_000, b"x" * 10_001, array.array("q", range(2000))):
        assert codec.decode(*codec.encode(body)) == body
    with pytest.raises(UnwritableValue, match="decompressed_bytes_max"):
        codec.encode(list(range(2000)))


@pytest.mark.parametrize("codec", [Codec(), Codec(objects="msgpack"), Codec(objects="pickle")])
@pytest.mark.parametrize(
    "value",
    ["x" * 5000, b"x" * 5000, [1, 2], {"a": [1, "b"]}, 1.5, True, None, array.array("d", [1])],
)
def test_what_was_appended_to_a_packed_value_is_never_overlooked(codec: Codec, value: Any) -> None:
    flags, body = codec.encode(value)
    for changed_body in (body + b"x", b"x" + body):
        with pytest.raises(UnreadableValue):
            codec.decode(flags, changed_body)


@pytest.mark.parametrize(
    "setting",
    [
        {"objects": "yaml"},
        {"threshold": -1},
        {"min_saving": 101},
        {"decompressed_bytes_max": -1},
        {"compress": "quicklz", "level": 2},
        {"compress": "zlib", "level": 10},
    ],
)
def test_an_error_names_a_setting_out_of_range(setting: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=str(next(reversed(setting.values())))):
        Codec(**setting)
