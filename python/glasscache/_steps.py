"""The steps of a call that makes several requests: what it does next, decided without waiting.

A generator yields the steps and is sent their outcomes; what a step raises is thrown into
it. `carry_out` does the steps blocking and `carry_out_async` awaits them, so that the clients share
every decision and differ in the waiting only.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from glasscache._contexts import is_package_call, reset_variable
from glasscache._requests import REQUESTS, Request
from glasscache.errors import DeadlineExceeded, GlasscacheError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Call(NamedTuple):
    """A call of a client's method."""

    client: Any
    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    fills: bool = False
    """Whether it is a step of storing a value that the package made, and not the application's."""

    def begin(self) -> Any:
        """Make the call; with an asyncio client the outcome is to be awaited."""
        return getattr(self.client, self.name)(*self.arguments, **self.options)

    def run(self) -> Any:
        """Make the call, and return its outcome."""
        if not self._is_package_call:
            return self.begin()
        token = is_package_call.set(True)
        try:
            return self.begin()
        finally:
            reset_variable(is_package_call, token)

    async def run_async(self) -> Any:
        """Do as `run`, awaited."""
        if not self._is_package_call:
            return await self.begin()
        token = is_package_call.set(True)
        try:
            return await self.begin()
        finally:
            reset_variable(is_package_call, token)

    @property
    def _is_package_call(self) -> bool:
        return self.fills and REQUESTS.get(self.name, Request()).changes_items


class Sleep(NamedTuple):
    """A pause."""

    seconds: float


class CallFunction(NamedTuple):
    """A call of the program's function; in asyncio it may be a coroutine function."""

    function: Callable[[], Any]


class Acquire(NamedTuple):
    """Steps that acquire something, carried out to their end even if the caller is cancelled meanwhile.

    A caller that is no longer there, or gets an error, cannot release what was acquired: then the steps that
    `give_back` makes are carried out. They must also be right where nothing was acquired.
    """

    steps: Generator[Any, Any, Any]
    give_back: Callable[[], Generator[Any, Any, None]]


class Release(NamedTuple):
    """Steps that release something, carried out to their end whatever happens to the caller.

    They are not subject to the caller's deadline, and a cache that fails then is no error.
    """

    steps: Generator[Any, Any, None]


Step = Call | Sleep | CallFunction | Acquire | Release
Steps = Generator[Step, Any, T]


def call(client: Any, name: str, *arguments: Any, **options: Any) -> Call:
    """Return the step that calls a client's method."""
    return Call(client, name, arguments, options)


def package_call(client: Any, name: str, *arguments: Any, **options: Any) -> Call:
    """Return the step that calls a client's method to store, or to find, a value that the package made."""
    return Call(client, name, arguments, options, fills=True)


def carry_out(steps: Steps[T]) -> T:
    """Do the steps, and return what their generator returns."""

    def run_step(step: Step) -> Any:
        match step:
            case Call():
                return step.run()
            case Sleep(seconds):
                return time.sleep(seconds)
            case CallFunction(function):
                return function()
            case Acquire():
                return _acquire(step)
            case Release(release_steps):
                return release(release_steps)

    run = _StepRun(steps)
    while not run.is_over:
        try:
            run.outcome = run_step(run.step)
        except BaseException as error:  # noqa: BLE001 - thrown into the generator
            run.error = error
        run.advance()
    return cast("T", run.outcome)


def methods_of(
    make_steps: Callable[..., Steps[Any]], name: str
) -> tuple[Callable[..., Any], Callable[..., Awaitable[Any]]]:
    """Return the blocking and the awaited method that carry out `make_steps(self, name, ...)`."""

    def blocking(self: Any, *args: Any, **kwargs: Any) -> Any:
        return carry_out(make_steps(self, name, *args, **kwargs))

    async def awaited(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await carry_out_async(make_steps(self, name, *args, **kwargs))

    return blocking, awaited


def _acquire(step: Acquire) -> Any:
    try:
        return carry_out(step.steps)
    except BaseException as error:
        # A cache that failed would take as long again.
        if not isinstance(error, Exception) or isinstance(error, DeadlineExceeded):
            release(step.give_back())
        raise


def release(steps: Steps[None]) -> None:
    """Do the steps of a release, without the caller's deadline."""
    with contextlib.suppress(GlasscacheError):
        contextvars.Context().run(carry_out, steps)


async def carry_out_async(steps: Steps[T]) -> T:
    """Do the steps, awaiting each, and return what their generator returns."""
    import asyncio  # noqa: PLC0415 - importing the blocking client does not pay for it

    async def run_step(step: Step) -> Any:
        match step:
            case Call():
                return await step.run_async()
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case CallFunction(function):
                result = function()
                return (
                    await cast("Awaitable[Any]", result) if hasattr(result, "__await__") else result
                )
            case Acquire():
                return await _Acquisition(step).run()
            case Release(release_steps):
                return await asyncio.shield(run_in_background(release_steps))

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


_background_tasks: set[asyncio.Task[Any]] = set()
"""Referred to here until they are done: an event loop refers to its tasks weakly."""


def run_in_background(steps: Steps[None]) -> asyncio.Task[None]:
    """Start steps in a task of their own, which no caller's cancellation or deadline ends.

    A cache that fails is no error then.
    """

    async def run() -> None:
        with contextlib.suppress(GlasscacheError):
            await carry_out_async(steps)

    return _start_task(run, contextvars.Context())


def _start_task(
    function: Callable[[], Any], context: contextvars.Context | None = None
) -> asyncio.Task[Any]:
    import asyncio  # noqa: PLC0415 - as above

    loop = asyncio.get_running_loop()  # before there is a coroutine, which would need one
    task = loop.create_task(function(), context=context)
    _background_tasks.add(task)
    task.add_done_callback(_forget_task)
    return task


def _forget_task(task: asyncio.Task[Any]) -> None:
    _background_tasks.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved: whoever waits for the task gets it, and others need no log of it


async def settle_background_tasks() -> None:
    """Wait until everything that was acquired or released in the background of this event loop is done."""
    import asyncio  # noqa: PLC0415 - as above

    loop = asyncio.get_running_loop()
    while tasks := [task for task in _background_tasks if task.get_loop() is loop]:
        await asyncio.wait(tasks)


class _Acquisition:
    """Steps of an `Acquire` in a task of their own, and whether their caller is still there."""

    def __init__(self, step: Acquire) -> None:
        self._step, self._has_caller, self._is_used = step, True, False

    async def run(self) -> Any:
        import asyncio  # noqa: PLC0415 - as above

        try:
            return await asyncio.shield(_start_task(self._carry_out))
        except BaseException as error:
            self._has_caller = False
            if self._is_used and not isinstance(
                error, Exception
            ):  # cancelled with the outcome at hand
                run_in_background(self._step.give_back())
            raise

    async def _carry_out(self) -> Any:
        try:
            outcome = await carry_out_async(self._step.steps)
            self._is_used = self._has_caller
            return outcome
        finally:
            if not self._is_used:
                task = run_in_background(self._step.give_back())
                if not self._has_caller:  # else it need not wait for more than its error
                    await task


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
