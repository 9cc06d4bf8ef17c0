"""Observed calls of one client object: its methods are replaced by ones that report each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sized
from random import random
from time import time_ns
from typing import Any, Final, NamedTuple, cast

from glasscache._native import hashed_session_key
from glasscache._requests import BULK_METHODS, PUBLIC_METHODS, default_of

METHODS: Final = (*PUBLIC_METHODS, "get_or_set_by")


class FinishedCall(NamedTuple):
    """A call that has ended."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    began_ns: int
    """Unix time."""
    ended_ns: int
    result: Any
    error: BaseException | None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended_ns - self.began_ns) / 1e9

    @property
    def is_hit(self) -> bool:
        """Whether a read found something: its default coming back is a miss."""
        return self.result is not default_of(self.name, self.args, self.kwargs)

    @property
    def key_count(self) -> int | None:
        """How many keys a bulk call has, where that is known without reading an iterator."""
        is_counted = self.name in BULK_METHODS and self.args and isinstance(self.args[0], Sized)
        return len(self.args[0]) if is_counted else None

    @property
    def display_key(self) -> str:
        """The key, or the keys, cut to what can be formatted; of sessions their hashes."""
        if not self.args:
            return ""
        key_or_keys: Any = self.args[0]
        is_group = isinstance(key_or_keys, list | tuple | dict | set)
        formatted = (
            [_formatted_key(key) for key in cast("Iterable[object]", key_or_keys)]
            if is_group
            else _formatted_key(key_or_keys)
        )
        return repr(formatted)[:200]


def _formatted_key(key: object) -> object:
    """Return a key as a log may have it."""
    return (hashed_session_key(key) or key) if isinstance(key, str | bytes) else key


CallObserver = Callable[[FinishedCall], None]


class ObserverSettings(NamedTuple):
    """Which calls are reported."""

    observer_for: Callable[[str], CallObserver]
    """Returns the observer of the calls of one method."""
    is_disabled: Callable[[], bool]
    """Whether observed calls would be dropped just now."""
    slow_ns: int = 0
    """Calls that take less and do not fail are not reported ..."""
    sample: float = 0.0
    """... but for this share of them."""


def report_calls(client: Any, settings: ObserverSettings) -> None:
    """Replace the client's methods, on this one object, by ones that report their calls."""
    for name in METHODS:
        method = getattr(client, name, None)
        if method is None:
            continue
        wrap = _wrap_blocking
        if inspect.iscoroutinefunction(inspect.unwrap(method)):
            wrap = _wrap_async
        elif name == "get":
            wrap = _wrap_get
        setattr(client, name, functools.wraps(method)(wrap(name, method, settings)))


def _wrap_get(
    name: str, method: Callable[..., Any], settings: ObserverSettings
) -> Callable[..., Any]:
    """As `_wrap_blocking`; with its parameters named it costs half, and a get is what a cache is for."""
    observe, is_disabled, slow_ns, sample = settings.observer_for(name), *settings[1:]

    def get(
        key: Any, default: Any = None, *, deadline: float | None = None, parent: Any = None
    ) -> Any:
        has_options = deadline is not None or parent is not None
        if is_disabled():
            if has_options:
                return method(key, default, deadline=deadline, parent=parent)
            return method(key, default)
        began_ns = time_ns()
        try:
            if has_options:
                result = method(key, default, deadline=deadline, parent=parent)
            else:
                result = method(key, default)
        except BaseException as error:
            observe(FinishedCall(name, (key, default), {}, began_ns, time_ns(), None, error))
            raise
        ended_ns = time_ns()
        if ended_ns - began_ns >= slow_ns or (sample and random() < sample):  # noqa: S311 - a share
            observe(FinishedCall(name, (key, default), {}, began_ns, ended_ns, result, None))
        return result

    return get


def _wrap_blocking(
    name: str, method: Callable[..., Any], settings: ObserverSettings
) -> Callable[..., Any]:
    observe, is_disabled, slow_ns, sample = settings.observer_for(name), *settings[1:]

    def observed_call(*args: Any, **kwargs: Any) -> Any:
        if is_disabled():
            return method(*args, **kwargs)
        began_ns = time_ns()
        try:
            result = method(*args, **kwargs)
        except BaseException as error:
            observe(FinishedCall(name, args, kwargs, began_ns, time_ns(), None, error))
            raise
        ended_ns = time_ns()
        if ended_ns - began_ns >= slow_ns or (sample and random() < sample):  # noqa: S311 - a share
            observe(FinishedCall(name, args, kwargs, began_ns, ended_ns, result, None))
        return result

    return observed_call


def _wrap_async(
    name: str, method: Callable[..., Any], settings: ObserverSettings
) -> Callable[..., Any]:
    observe, is_disabled, slow_ns, sample = settings.observer_for(name), *settings[1:]

    async def observed_call(*args: Any, **kwargs: Any) -> Any:
        if is_disabled():
            return await method(*args, **kwargs)
        began_ns = time_ns()
        try:
            result = await method(*args, **kwargs)
        except BaseException as error:
            observe(FinishedCall(name, args, kwargs, began_ns, time_ns(), None, error))
            raise
        ended_ns = time_ns()
        if ended_ns - began_ns >= slow_ns or (sample and random() < sample):  # noqa: S311 - a share
            observe(FinishedCall(name, args, kwargs, began_ns, ended_ns, result, None))
        return result

    return observed_call
