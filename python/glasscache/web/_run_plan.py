"""Runs plans: blocking for WSGI, awaited for ASGI. Waiting is all that differs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

from glasscache._plans import Call, Sleep

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

__all__ = ["run_plan", "run_plan_async"]


def run_plan(plan: Generator[Any, Any, T]) -> T:
    """Carry a plan out and return what it returns."""
    try:
        step = next(plan)
        while True:
            try:
                outcome = _run_step(step)
            except Exception as error:  # noqa: BLE001 - thrown into the plan
                step = plan.throw(error)
            else:
                step = plan.send(outcome)
    except StopIteration as end:
        value: T = end.value
        return value


def _run_step(step: Any) -> Any:
    if type(step) is Call:
        return step.begin()
    if type(step) is Sleep:
        time.sleep(step.seconds)
    return None


async def run_plan_async(plan: Generator[Any, Any, T]) -> T:
    """Carry a plan out, awaiting its steps, and return what it returns."""
    try:
        step = next(plan)
        while True:
            try:
                if type(step) is Call:
                    outcome = await step.begin()
                else:
                    outcome = None
                    if type(step) is Sleep:
                        await asyncio.sleep(step.seconds)
            except Exception as error:  # noqa: BLE001 - thrown into the plan
                step = plan.throw(error)
            else:
                step = plan.send(outcome)
    except StopIteration as end:
        value: T = end.value
        return value
