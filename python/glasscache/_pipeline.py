"""Calls that are recorded first and sent together."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from glasscache._requests import REQUESTS
from glasscache._suggestions import SuggestsNames, keys_of
from glasscache.errors import GlasscacheError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from glasscache._types import Key, Keys, Ttl

__all__ = ["Pipeline"]

_PipelineCall: TypeAlias = "tuple[str, Key, Any, Ttl | None, int]"
"""Method, key, value, ttl, and the CAS unique or the delta; None or 0 where there is none."""


class Pipeline(SuggestsNames):
    """A block of calls, one round trip a server; `results` has their outcomes in order afterwards.

    The outcome of a call that failed is its exception: the others are not lost by it.
    """

    def __init__(self, client: Any) -> None:
        """Begin with no calls."""
        self._client = client
        self._calls: list[_PipelineCall] = []
        self._bulks: list[tuple[int, list[Key], Callable[[list[Key], list[Any]], Any]]] = []
        """Of each bulk call the index of its first call, its keys, and what joins their outcomes."""
        self.results: list[Any] = []

    def get(self, key: Key) -> None:
        """Read a value, or None."""
        self._calls.append(("get", key, None, None, 0))

    def gets(self, key: Key) -> None:
        """Read (value, CAS unique), or None."""
        self._calls.append(("gets", key, None, None, 0))

    def gat(self, key: Key, ttl: Ttl) -> None:
        """Read a value, or None, and give it a new ttl."""
        self._calls.append(("gat", key, None, ttl, 0))

    def set(self, key: Key, value: Any, ttl: Ttl | None = None) -> None:
        """Store a value."""
        self._calls.append(("set", key, value, ttl, 0))

    def add(self, key: Key, value: Any, ttl: Ttl | None = None) -> None:
        """Store a value if there is none."""
        self._calls.append(("add", key, value, ttl, 0))

    def replace(self, key: Key, value: Any, ttl: Ttl | None = None) -> None:
        """Store a value if there is one."""
        self._calls.append(("replace", key, value, ttl, 0))

    def append(self, key: Key, value: Key) -> None:
        """Append str or bytes to the value under key."""
        self._calls.append(("append", key, value, None, 0))

    def prepend(self, key: Key, value: Key) -> None:
        """Prepend str or bytes to the value under key."""
        self._calls.append(("prepend", key, value, None, 0))

    def cas(self, key: Key, value: Any, cas: int, ttl: Ttl | None = None) -> None:
        """Store a value if the CAS unique still holds."""
        self._calls.append(("cas", key, value, ttl, cas))

    def delete(self, key: Key) -> None:
        """Remove a key."""
        self._calls.append(("delete", key, None, None, 0))

    def touch(self, key: Key, ttl: Ttl) -> None:
        """Give a key a new ttl."""
        self._calls.append(("touch", key, None, ttl, 0))

    def incr(self, key: Key, delta: int = 1) -> None:
        """Add to a number."""
        self._calls.append(("incr", key, None, None, delta))

    def decr(self, key: Key, delta: int = 1) -> None:
        """Subtract from a number."""
        self._calls.append(("decr", key, None, None, delta))

    def get_many(self, keys: Keys) -> None:
        """Read many values: the outcome is a dict of those that were there."""
        self._record_bulk("gets", dict.fromkeys(keys_of(keys)), None, _join_values)

    def set_many(self, values: Mapping[Any, Any], ttl: Ttl | None = None) -> None:
        """Store a mapping's values: the outcome is the exception of each key that failed."""
        self._record_bulk("set", values, ttl, _join_failures)

    def delete_many(self, keys: Keys) -> None:
        """Remove keys: the outcome is the exception of each key that failed."""
        self._record_bulk("delete", dict.fromkeys(keys_of(keys)), None, _join_failures)

    def _record_bulk(
        self,
        name: str,
        values_by_key: Mapping[Any, Any],
        ttl: Ttl | None,
        join: Callable[[list[Key], list[Any]], Any],
    ) -> None:
        """Record a call for each key; their outcomes will be joined into one."""
        keys = list(values_by_key)
        self._bulks.append((len(self._calls), keys, join))
        self._calls += [(name, key, values_by_key[key], ttl, 0) for key in keys]

    def run(self, *, deadline: float | None = None) -> list[Any]:
        """Send the recorded calls and return the outcomes in order."""
        calls, self._calls = self._calls, []
        bulks, self._bulks = self._bulks, []
        self.results = self._run_in_order(calls, deadline)
        for start, keys, join in reversed(bulks):
            end = start + len(keys)
            self.results[start:end] = [join(keys, self.results[start:end])]
        return self.results

    def _run_in_order(self, calls: list[_PipelineCall], deadline: float | None) -> list[Any]:
        """Return the outcomes; calls that look at a value before they change it are made by themselves."""
        ends_at = None if deadline is None else time.monotonic() + deadline
        outcomes: list[Any] = []
        for is_alone, group in itertools.groupby(calls, self._is_made_alone):
            remaining_s = ends_at and max(ends_at - time.monotonic(), 1e-6)
            if is_alone:
                outcomes += [self._outcome_of(call, remaining_s) for call in group]
            else:
                outcomes += self._client._run_pipeline(list(group), deadline=remaining_s)
        return outcomes

    def _is_made_alone(self, call: _PipelineCall) -> bool:
        return REQUESTS[call[0]].reads_first and self._client.codec.has_types

    def _outcome_of(self, call: _PipelineCall, remaining_s: float | None) -> Any:
        name, key, value, _, _ = call
        try:
            return getattr(self._client, name)(key, value, deadline=remaining_s)
        except GlasscacheError as error:
            return error

    def __enter__(self) -> Self:
        """Return the pipeline, which runs at the end of the block."""
        return self

    def __exit__(self, exception_type: type[BaseException] | None, *_details: object) -> None:
        """Run, unless the block raised."""
        if exception_type is None:
            self.run()


def _join_values(keys: list[Key], outcomes: list[Any]) -> Any:
    """Return the values that were there, or the error that `get_many` would have raised."""
    values: dict[Key, Any] = {}
    errors: dict[Key, Exception] = {}
    for key, outcome in zip(keys, outcomes, strict=True):
        if isinstance(outcome, Exception):
            errors[key] = outcome
        elif outcome is not None:
            values[key] = outcome[0]
    for error in errors.values():
        if isinstance(error, GlasscacheError):
            error.unanswered, error.arrived = list(errors), values
        return error
    return values


def _join_failures(keys: list[Key], outcomes: list[Any]) -> dict[Key, Exception]:
    pairs = zip(keys, outcomes, strict=True)
    return {key: outcome for key, outcome in pairs if isinstance(outcome, Exception)}
