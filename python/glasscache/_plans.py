"""Plans: what a call of several steps does next, decided without waiting.

A plan is a generator that yields steps and is sent their outcomes; what a step raises is thrown into
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

    make: Callable[[], Any]


Step = Call | Sleep | CallFunction
Plan = Generator[Step, Any, T]


def call(client: Any, name: str, *arguments: Any, **options: Any) -> Call:
    """Return the step that calls a client's method."""
    return Call(client, name, arguments, options)


def carry_out(plan: Plan[T]) -> T:
    """Do a plan's steps, and return what it returns."""

    def run_step(step: Step) -> Any:
        match step:
            case Call():
                return step.begin()
            case Sleep(seconds):
                return time.sleep(seconds)
            case CallFunction(make):
                return make()

    run = _PlanRun(plan)
    while not run.is_over:
        try:
            run.outcome = run_step(run.step)
        except BaseException as error:  # noqa: BLE001 - thrown into the plan
            run.error = error
        run.advance()
    return cast("T", run.outcome)


async def carry_out_async(plan: Plan[T]) -> T:
    """Do a plan's steps, awaiting them, and return what it returns."""
    import asyncio  # noqa: PLC0415 - importing the blocking client does not pay for it

    async def run_step(step: Step) -> Any:
        match step:
            case Call():
                return await step.begin()
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case CallFunction(make):
                result = make()
                return (
                    await cast("Awaitable[Any]", result) if hasattr(result, "__await__") else result
                )

    run = _PlanRun(plan)
    while not run.is_over:
        try:
            run.outcome = await run_step(run.step)
        except (
            GeneratorExit
        ):  # the task is discarded while it waits: nothing can be awaited any more
            run.abandon()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the plan
            run.error = error
        run.advance()
    return cast("T", run.outcome)


class _Exit(BaseException):
    """Stands in a plan for a `GeneratorExit`, which would close its inner plans without their last steps."""


class _PlanRun:
    """The state of a plan: the step to do, and its outcome once it is done."""

    def __init__(self, plan: Plan[Any]) -> None:
        self._plan = plan
        self.outcome: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self._exit = GeneratorExit()
        self.step: Step = Sleep(0)
        self._resume_plan(lambda: next(plan))

    def advance(self) -> None:
        """Hand the outcome to the plan and take the next step; `outcome` is the plan's at the end."""
        outcome, error = self.outcome, self.error
        self.outcome, self.error = None, None
        if error is None:
            self._resume_plan(lambda: self._plan.send(outcome))
        else:
            if isinstance(error, GeneratorExit):
                self._exit, error = error, _Exit()
            self._resume_plan(lambda: self._plan.throw(error))

    def abandon(self) -> None:
        """End the plan without the steps that it would still do."""
        with contextlib.suppress(GeneratorExit):
            while not self.is_over:
                self._resume_plan(lambda: self._plan.throw(_Exit()))

    def _resume_plan(self, resume: Callable[[], Step]) -> None:
        try:
            self.step = resume()
        except StopIteration as end:
            self.outcome, self.is_over = end.value, True
        except _Exit:
            raise self._exit from None
