"""The steps of a call that makes several requests: what it does next, decided without waiting.

A generator yields the steps and is sent their outcomes; what a step raises is thrown into
it. `carry_out` does the steps blocking and `carry_out_async` awaits them, so that the clients share
every decision and differ in the waiting only.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeVar, cast

T = TypeVar("T")


class Call(NamedTuple):
    """A call of a client's method."""

    client: Any
    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def begin(self) -> Any:
        """Make the call; with an asyncio client the outcome is to be awaited."""
        return getattr(self.client, self.name)(*self.arguments, **self.options)


class Sleep(NamedTuple):
    """A pause."""

    seconds: float


class CallFunction(NamedTuple):
    """A call of the program's function; in asyncio it may be a coroutine function."""

    function: Callable[[], Any]


Step = Call | Sleep | CallFunction
Steps = Generator[Step, Any, T]


def call(client: Any, name: str, *arguments: Any, **options: Any) -> Call:
    """Return the step that calls a client's method."""
    return Call(client, name, arguments, options)


def carry_out(steps: Steps[T]) -> T:
    """Do the steps, and return what their generator returns."""

    def run_step(step: Step) -> Any:
        match step:
            case Call():
                return step.begin()
            case Sleep(seconds):
                return time.sleep(seconds)
            case CallFunction(function):
                return function()

    run = _StepRun(steps)
    while not run.is_over:
        try:
            run.outcome = run_step(run.step)
        except BaseException as error:  # noqa: BLE001 - thrown into the generator
            run.error = error
        run.advance()
    return cast("T", run.outcome)


async def carry_out_async(steps: Steps[T]) -> T:
    """Do the steps, awaiting each, and return what their generator returns."""
    import asyncio  # noqa: PLC0415 - importing the blocking client does not pay for it

    async def run_step(step: Step) -> Any:
        match step:
            case Call():
                return await step.begin()
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case CallFunction(function):
                result = function()
                return (
                    await cast("Awaitable[Any]", result) if hasattr(result, "__await__") else result
                )

    run = _StepRun(steps)
    while not run.is_over:
        try:
            run.outcome = await run_step(run.step)
        except (
            GeneratorExit
        ):  # the task is discarded while it waits: nothing can be awaited any more
            run.abandon()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the generator
            run.error = error
        run.advance()
    return cast("T", run.outcome)


class _Exit(BaseException):
    """Stands in steps for a `GeneratorExit`, which would close inner generators without their last steps."""


class _StepRun:
    """A generator of steps that is being carried out: the step to do, and its outcome once it is done."""

    def __init__(self, steps: Steps[Any]) -> None:
        self._steps = steps
        self.outcome: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self._generator_exit = GeneratorExit()
        self.step: Step = Sleep(0)
        self._resume_steps(lambda: next(steps))

    def advance(self) -> None:
        """Send the outcome and take the next step; at the end `outcome` is what the generator returned."""
        outcome, error = self.outcome, self.error
        self.outcome, self.error = None, None
        if error is None:
            self._resume_steps(lambda: self._steps.send(outcome))
        else:
            if isinstance(error, GeneratorExit):
                self._generator_exit, error = error, _Exit()
            self._resume_steps(lambda: self._steps.throw(error))

    def abandon(self) -> None:
        """End the generator without the steps that it would still do."""
        with contextlib.suppress(GeneratorExit):
            while not self.is_over:
                self._resume_steps(lambda: self._steps.throw(_Exit()))

    def _resume_steps(self, resume: Callable[[], Step]) -> None:
        try:
            self.step = resume()
        except StopIteration as end:
            self.outcome, self.is_over = end.value, True
        except _Exit:
            raise self._generator_exit from None
