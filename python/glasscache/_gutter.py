"""The gutter: servers that replace a failed one, with its keys kept there for a few seconds only.

A call whose server cannot be reached is repeated on the gutter's servers, within the same deadline.
What is stored there expires soon, so that an outage does not overload the database and its end does not
return old values: nothing is copied back, and the gutter is not used while the server replies. A server
that was out of reach but alive comes back with what it had; only its own TTLs bound that.
`Client(..., gutter=[...])` puts one of the two mixins before the class of the client.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from glasscache._refresh import seconds_of
from glasscache._requests import REQUESTS, default_of
from glasscache._settings import miss_rule_of
from glasscache._steps import CallFunction, call, methods_of
from glasscache._suggestions import keys_of
from glasscache.errors import GlasscacheError, ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from glasscache import _native
    from glasscache._near import RequestScopes
    from glasscache._steps import Step, Steps
    from glasscache._types import Ttl


class _GutterArguments(NamedTuple):
    """The arguments of a call as it is made on the gutter."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Gutter:
    """What the blocking and the asyncio half share."""

    gutter: Any
    """The client of the gutter's servers."""

    _gutter_ttl: float
    _call_timeout: float
    _counts_as_miss: Callable[[GlasscacheError], bool] | None
    _gutter_call_count: int
    _counted_miss_count: int
    _scopes: RequestScopes | None

    _state: _native.ClientState

    def _open_gutter(self, gutter: Any, settings: Mapping[str, Any]) -> None:
        """Take the client of the gutter's servers and the settings; called once, when the client is made."""
        self.gutter, self._gutter_ttl = gutter, settings["gutter_ttl"]
        self._call_timeout, self._counts_as_miss = (
            settings["timeout"],
            miss_rule_of(settings["on_error"]),
        )
        self._gutter_call_count = self._counted_miss_count = 0

    def _gutter_ttl_for(self, ttl: Ttl | None) -> float:
        seconds = seconds_of(ttl)
        return min(seconds, self._gutter_ttl) if seconds else self._gutter_ttl

    def _remaining_s(self, started_at: float, deadline: float | None) -> float:
        timeout = self._call_timeout if deadline is None else deadline
        return timeout - (time.monotonic() - started_at)

    def _prepare_gutter_arguments(
        self,
        name: str,
        started_at: float,
        error: GlasscacheError,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _GutterArguments | None:
        """Return the arguments with which a call is repeated on the gutter, or None if it is not."""
        remaining_s = self._remaining_s(started_at, kwargs.get("deadline"))
        if not isinstance(error, ServerUnavailable) or remaining_s <= 0:
            return None
        row = REQUESTS[name]
        if not row.is_repeatable and not error.retry_is_safe:
            return None
        self._gutter_call_count += 1
        self._forget([args[0] if args else kwargs["key"]])
        kwargs = {**kwargs, "deadline": remaining_s}
        ttl_index = row.ttl_index
        if ttl_index is not None and len(args) > ttl_index:
            gutter_ttl = self._gutter_ttl_for(args[ttl_index])
            args = (*args[:ttl_index], gutter_ttl, *args[ttl_index + 1 :])
        elif ttl_index is not None or kwargs.get("initial") is not None:
            kwargs["ttl"] = self._gutter_ttl_for(kwargs.get("ttl"))
        return _GutterArguments(args, kwargs)

    def _forget(self, keys: Iterable[Any]) -> None:
        """Forget what the process keeps of keys that are changed on the gutter, where no write is seen."""
        if self._scopes is not None:
            for key in keys:
                self._state.forget_near(key)

    def _raise_or_count_miss(self, error: GlasscacheError, miss: Any) -> Any:
        """Raise, or return a counted miss where that is configured."""
        if self._counts_as_miss is not None and self._counts_as_miss(error):
            self._counted_miss_count += 1
            return miss
        raise error

    def _read_many_steps(
        self, name: str, keys: Iterable[Any], *, deadline: float | None = None, **options: Any
    ) -> Steps[dict[Any, Any]]:
        """Read from the servers, and what those that failed had from the gutter."""
        started_at = time.monotonic()
        try:
            values: dict[Any, Any] = yield CallFunction(
                self._own_call(name, keys_of(keys), deadline=deadline, **options)
            )
        except GlasscacheError as error:
            remaining_s = self._remaining_s(started_at, deadline)
            if not isinstance(error, ServerUnavailable) or remaining_s <= 0:
                return dict(self._raise_or_count_miss(error, error.arrived))
            self._gutter_call_count += 1
            gutter_values: dict[Any, Any] = yield call(
                self.gutter, name, error.unanswered, deadline=remaining_s
            )
            return error.arrived | gutter_values
        return values

    def _set_many_steps(
        self,
        name: str,
        items: Mapping[Any, Any],
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
        **keywords: Any,
    ) -> Steps[dict[Any, GlasscacheError]]:
        if noreply and not keywords:
            calls = (("set", key, items[key], ttl) for key in items)
            return (yield from self._quiet_write_steps(calls, deadline))

        def make_gutter_step(failed_keys: list[Any], remaining_s: float) -> Step:
            failed_items = {key: items[key] for key in failed_keys}
            gutter_ttl = self._gutter_ttl_for(ttl)
            return call(self.gutter, name, failed_items, gutter_ttl, deadline=remaining_s)

        own_call = self._own_call(name, items, ttl, deadline=deadline, **keywords)
        return (yield from self._bulk_write_steps(own_call, make_gutter_step, deadline))

    def _delete_many_steps(
        self,
        name: str,
        keys: Iterable[Any],
        *,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> Steps[dict[Any, GlasscacheError]]:
        if noreply:
            calls = (("delete", key) for key in keys_of(keys))
            return (yield from self._quiet_write_steps(calls, deadline))

        def make_gutter_step(failed_keys: list[Any], remaining_s: float) -> Step:
            return call(self.gutter, name, failed_keys, deadline=remaining_s)

        own_call = self._own_call(name, keys_of(keys), deadline=deadline)
        return (yield from self._bulk_write_steps(own_call, make_gutter_step, deadline))

    def _bulk_write_steps(
        self,
        own_call: Callable[[], Any],
        make_gutter_step: Callable[[list[Any], float], Step],
        deadline: float | None,
    ) -> Steps[dict[Any, GlasscacheError]]:
        """Write to the servers, and what those that failed would have taken to the gutter."""
        started_at = time.monotonic()
        failures: dict[Any, GlasscacheError] = yield CallFunction(own_call)
        failed_keys = [
            key for key, error in failures.items() if isinstance(error, ServerUnavailable)
        ]
        remaining_s = self._remaining_s(started_at, deadline)
        if not failed_keys or remaining_s <= 0:
            return failures
        self._gutter_call_count += 1
        self._forget(failed_keys)
        gutter_failures: dict[Any, GlasscacheError] = yield make_gutter_step(
            failed_keys, remaining_s
        )
        return {
            key: error for key, error in failures.items() if key not in failed_keys
        } | gutter_failures

    def _quiet_write_steps(
        self, calls: Iterable[tuple[Any, ...]], deadline: float | None
    ) -> Steps[dict[Any, GlasscacheError]]:
        """Make calls of this client that do not wait, each on the gutter where its server failed."""
        started_at = time.monotonic()
        for name, *arguments in calls:
            remaining_s = max(self._remaining_s(started_at, deadline), 1e-6)
            yield call(self, name, *arguments, noreply=True, deadline=remaining_s)
        return {}

    def _own_call(self, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Return the client's own call, not yet made."""
        return functools.partial(getattr(super(), name), *args, **kwargs)

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Generator[None]:
        """Give all calls inside the block this many seconds together, wherever they are made."""
        with self._own_call("deadline", seconds)(), self.gutter.deadline(seconds):
            yield

    def stats(self) -> dict[str, Any]:
        """Return the client's counters, together with those of the gutter."""
        counters: dict[str, Any] = self._own_call("stats")()
        counters["misses_by_error"] += self._counted_miss_count
        return {**counters, "gutter": {**self.gutter.stats(), "calls": self._gutter_call_count}}


class SyncGutter(_Gutter):
    """The blocking half."""

    def close(self) -> None:
        """Close the connections, the gutter's too."""
        self.gutter.close()
        self._own_call("close")()


class AsyncGutter(_Gutter):
    """The asyncio half."""

    async def close(self) -> None:
        """Close the connections, the gutter's too."""
        await self.gutter.close()
        await self._own_call("close")()


def _blocking_method(name: str) -> Callable[..., Any]:
    def call_with_gutter(self: Any, *args: Any, **kwargs: Any) -> Any:
        started_at = time.monotonic()
        try:
            return self._own_call(name, *args, **kwargs)()
        except GlasscacheError as error:
            gutter_arguments = self._prepare_gutter_arguments(name, started_at, error, args, kwargs)
            if gutter_arguments is None:
                return self._raise_or_count_miss(error, default_of(name, args, kwargs))
        return getattr(self.gutter, name)(*gutter_arguments.args, **gutter_arguments.kwargs)

    return call_with_gutter


def _async_method(name: str) -> Callable[..., Any]:
    async def call_with_gutter(self: Any, *args: Any, **kwargs: Any) -> Any:
        started_at = time.monotonic()
        try:
            return await self._own_call(name, *args, **kwargs)()
        except GlasscacheError as error:
            gutter_arguments = self._prepare_gutter_arguments(name, started_at, error, args, kwargs)
            if gutter_arguments is None:
                return self._raise_or_count_miss(error, default_of(name, args, kwargs))
        return await getattr(self.gutter, name)(*gutter_arguments.args, **gutter_arguments.kwargs)

    return call_with_gutter


_BULK_STEPS: Final = {
    "get_many": "_read_many_steps",
    "gets_many": "_read_many_steps",
    "set_many": "_set_many_steps",
    "delete_many": "_delete_many_steps",
}


def _bulk_steps(gutter: Any, name: str, *args: Any, **kwargs: Any) -> Steps[dict[Any, Any]]:
    steps: Steps[dict[Any, Any]] = getattr(gutter, _BULK_STEPS[name])(name, *args, **kwargs)
    return steps


for _name, _row in REQUESTS.items():
    _methods = (
        methods_of(_bulk_steps, _name)
        if _row.is_bulk
        else (_blocking_method(_name), _async_method(_name))
    )
    setattr(SyncGutter, _name, _methods[0])
    setattr(AsyncGutter, _name, _methods[1])


_gutter_classes: dict[tuple[type[Any], type[Any]], type[Any]] = {}


def with_gutter(client_class: type[Any], gutter_mixin: type[Any]) -> Any:
    """Return a client's class with the gutter added."""
    if (client_class, gutter_mixin) not in _gutter_classes:
        class_attributes = {"__module__": client_class.__module__, "__doc__": client_class.__doc__}
        _gutter_classes[client_class, gutter_mixin] = type(
            client_class.__name__, (gutter_mixin, client_class), class_attributes
        )
    return _gutter_classes[client_class, gutter_mixin]
