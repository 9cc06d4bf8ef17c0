"""Generations: a number in the cache that stands in keys, so that a new one makes all of those keys misses.

Old values fall out by age. A generation that was evicted, or cannot be read, gets a number that was never
used: then the values are misses, and never old ones.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from glasscache._steps import carry_out
from glasscache._steps import package_call as call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glasscache._steps import Steps

__all__ = ["read_generation", "read_generations", "start_generation"]


def generation_token() -> str:
    """Return a generation as it stands in keys: 8 characters."""
    return secrets.token_hex(4)


def read_generations(
    client: Any, keys: Sequence[str], make: Callable[[], Any] = generation_token
) -> Steps[list[Any]]:
    """Return the generations under keys, by one request if all of them are there (as steps)."""
    generations = yield call(client, "get_many", keys)
    for key in keys:
        if generations.get(key) is None:
            generations[key] = make()
            if not (yield call(client, "add", key, generations[key])):
                # Another was quicker, and its generation counts; or there is no server.
                generations[key] = yield call(client, "get", key, generations[key])
    return [generations[key] for key in keys]


def read_generation(client: Any, key: str) -> Any:
    """Return the generation under a key, of a blocking client."""
    return carry_out(read_generations(client, [key]))[0]


def start_generation(client: Any, key: str) -> bool:
    """Make all values of the generation under a key misses; whether that was done."""
    return bool(client.set(key, generation_token()))
