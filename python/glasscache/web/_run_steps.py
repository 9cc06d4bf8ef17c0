"""Runs steps: blocking for WSGI, awaited for ASGI. Waiting is all that differs."""

from glasscache._steps import carry_out as run_steps
from glasscache._steps import carry_out_async as run_steps_async

__all__ = ["run_steps", "run_steps_async"]
