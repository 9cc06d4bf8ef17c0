"""What belongs to a context, as of a task or a greenlet: deadlines, leaving a block, and whose call it is."""

from __future__ import annotations

import contextlib
import contextvars
import time
from typing import TYPE_CHECKING, Any

from glasscache.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["deadline_block", "is_package_call", "reset_variable", "seconds_left"]

is_package_call: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "glasscache_package_call", default=False
)
"""Whether the package makes the current call, to store a value that it made: then the call is no sign that
the application changes its key in place, which a strategy would no longer keep."""


class _DeadlineBlock:
    """An open `with client.deadline(...)`."""

    __slots__ = ("ends_at", "is_open", "state")

    def __init__(self, state: Any, ends_at: float) -> None:
        self.state, self.ends_at, self.is_open = state, ends_at, True


_deadline_blocks: contextvars.ContextVar[tuple[_DeadlineBlock, ...]] = contextvars.ContextVar(
    "glasscache_deadlines", default=()
)


@contextlib.contextmanager
def deadline_block(client: Any, seconds: float) -> Generator[None]:
    """Give all calls of a client in this context, and in those that it starts, this many seconds together.

    The client counts its open blocks: without any, its calls do not look here.
    """
    if not seconds > 0:
        raise BadSetting(f"a time-out of {seconds} s: it must be above 0")
    block = _DeadlineBlock(client._state, time.monotonic() + seconds)
    token = _deadline_blocks.set((*_deadline_blocks.get(), block))
    client._count_deadline_blocks(1)  # noqa: SLF001 - of this package
    try:
        yield
    finally:
        client._count_deadline_blocks(-1)  # noqa: SLF001 - likewise
        block.is_open = False
        reset_variable(_deadline_blocks, token)


def seconds_left(state: Any) -> float | None:
    """Return what is left of this context's blocks of a client, 0 or more; None: it has none."""
    ends = [
        block.ends_at for block in _deadline_blocks.get() if block.state is state and block.is_open
    ]
    return max(min(ends) - time.monotonic(), 0.0) if ends else None


def reset_variable(variable: contextvars.ContextVar[T], token: contextvars.Token[T]) -> None:
    """Give a variable its former value, unless the block is left in another context.

    A generator that a framework finishes elsewhere does so; that context keeps what it had.
    """
    try:  # noqa: SIM105 - at each recorded request: `suppress` would be an object with two more calls
        variable.reset(token)
    except ValueError:
        pass
