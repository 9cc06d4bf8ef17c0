"""Whole numbers as the native module takes them: a buffer where there is one, else an array."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, cast

from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias

    from typing_extensions import Buffer

    IntegersLike: TypeAlias = Buffer | Sequence[int]


def to_integer_buffer(values: IntegersLike, argument_name: str) -> Buffer:
    """Return whole numbers from 0 as a buffer."""
    if is_integer_buffer(values):
        return cast("Buffer", values)
    try:
        return array("Q", cast("Sequence[int]", values))
    except (TypeError, OverflowError) as error:
        raise BadSetting(f"{argument_name}: {error}") from None


def is_integer_buffer(values: Any) -> bool:
    """Whether a buffer holds whole numbers, as far as is known without a copy."""
    try:
        view = memoryview(values)
    except TypeError:
        return False
    return view.format.lstrip("@=<>!") in set("bBhHiIlLqQnN")
