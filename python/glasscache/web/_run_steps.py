"""Runs steps: blocking for WSGI, awaited for ASGI. Waiting is all that differs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

from glasscache._steps import Call, Sleep

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

__all__ = ["run_steps", "run_steps_async"]


def run_steps(steps: Generator[Any, Any, T]) -> T:
    """Carry steps out and return what their generator returns."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = _run_step(step)
            except Exception as error:  # noqa: BLE001 - thrown into the generator
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        value: T = end.value
        return value


def _run_step(step: Any) -> Any:
    if type(step) is Call:
        return step.begin()
    if type(step) is Sleep:
        time.sleep(step.seconds)
    return None


async def run_steps_async(steps: Generator[Any, Any, T]) -> T:
    """Carry steps out, awaiting each, and return what their generator returns."""
    try:
        step = next(steps)
        while True:
            try:
                if type(step) is Call:
                    outcome = await step.begin()
                else:
                    outcome = None
                    if type(step) is Sleep:
                        await asyncio.sleep(step.seconds)
            except Exception as error:  # noqa: BLE001 - thrown into the generator
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        value: T = end.value
        return value
