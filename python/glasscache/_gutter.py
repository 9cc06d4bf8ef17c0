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
from glasscache._settings import miss_rule_of
from glasscache._steps import CallFunction, call, carry_out, carry_out_async
from glasscache._suggestions import keys_of
from glasscache.errors import GlasscacheError, ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from glasscache import _native
    from glasscache._near import RequestScopes
    from glasscache._steps import Step, Steps
    from glasscache._types import Key, Ttl

_TTL_INDEX_BY_METHOD: Final = {
    "_reserve": 2, "set": 2, "add": 2, "replace": 2, "cas": 3, "gat": 1, "touch": 1,
}  # fmt: skip
"""The index of the ttl among the arguments of the calls that always have one."""

_NOT_REPEATABLE: Final = frozenset({"incr", "decr", "append", "prepend", "cas"})
"""Calls that are not made again when the first may have been done."""

_MISS_BY_METHOD: Final[dict[str, Any]] = {
    "get": None, "gets": None, "gat": None, "get_with_meta": None, "set": False, "add": False,
    "replace": False, "append": False, "prepend": False, "cas": None, "delete": False,
    "touch": False, "incr": None, "decr": None, "_reserve": None, "_reservation": None,
}  # fmt: skip
"""The calls about one key, and what a miss returns."""


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
        if name in _NOT_REPEATABLE and not error.retry_is_safe:
            return None
        self._gutter_call_count += 1
        self._forget([args[0] if args else kwargs["key"]])
        kwargs = {**kwargs, "deadline": remaining_s}
        ttl_index = _TTL_INDEX_BY_METHOD.get(name)
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

    def _bulk_read_steps(
        self, name: str, own_call: Callable[[], Any], deadline: float | None
    ) -> Steps[dict[Any, Any]]:
        """Read from the servers, and what those that failed had from the gutter."""
        started_at = time.monotonic()
        try:
            values: dict[Any, Any] = yield CallFunction(own_call)
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

    def _set_many_steps(
        self,
        own_call: Callable[[], Any],
        items: Mapping[Any, Any],
        ttl: Ttl | None,
        deadline: float | None,
    ) -> Steps[dict[Any, GlasscacheError]]:
        def make_gutter_step(failed_keys: list[Any], remaining_s: float) -> Step:
            failed_items = {key: items[key] for key in failed_keys}
            return call(
                self.gutter,
                "set_many",
                failed_items,
                self._gutter_ttl_for(ttl),
                deadline=remaining_s,
            )

        return self._bulk_write_steps(own_call, make_gutter_step, deadline)

    def _delete_many_steps(
        self, own_call: Callable[[], Any], deadline: float | None
    ) -> Steps[dict[Any, GlasscacheError]]:
        def make_gutter_step(failed_keys: list[Any], remaining_s: float) -> Step:
            return call(self.gutter, "delete_many", failed_keys, deadline=remaining_s)

        return self._bulk_write_steps(own_call, make_gutter_step, deadline)

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


def _set_calls(items: Mapping[Any, Any], ttl: Ttl | None) -> Generator[tuple[Any, ...]]:
    return (("set", key, items[key], ttl) for key in items)


def _delete_calls(keys: Iterable[Any]) -> Generator[tuple[Any, ...]]:
    return (("delete", key) for key in keys_of(keys))


def _miss_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    default_index = {"get": 1, "gat": 2}.get(name)
    if default_index is None:
        return _MISS_BY_METHOD[name]
    return args[default_index] if len(args) > default_index else kwargs.get("default")


class SyncGutter(_Gutter):
    """The blocking half."""

    def get_many(
        self, keys: Iterable[Any], *, deadline: float | None = None, parent: Key | None = None
    ) -> dict[Any, Any]:
        """Return the values under keys; those of a failed server from the gutter."""
        own_call = self._own_call("get_many", keys_of(keys), deadline=deadline, parent=parent)
        return carry_out(self._bulk_read_steps("get_many", own_call, deadline))

    def gets_many(self, keys: Iterable[Any], *, deadline: float | None = None) -> dict[Any, Any]:
        """Return values and CAS uniques; those of a failed server from the gutter."""
        own_call = self._own_call("gets_many", keys_of(keys), deadline=deadline)
        return carry_out(self._bulk_read_steps("gets_many", own_call, deadline))

    def set_many(
        self,
        items: Mapping[Any, Any],
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> dict[Any, GlasscacheError]:
        """Store values; those of a failed server on the gutter."""
        if noreply:
            return carry_out(self._quiet_write_steps(_set_calls(items, ttl), deadline))
        own_call = self._own_call("set_many", items, ttl, deadline=deadline)
        return carry_out(self._set_many_steps(own_call, items, ttl, deadline))

    def delete_many(
        self, keys: Iterable[Any], *, noreply: bool = False, deadline: float | None = None
    ) -> dict[Any, GlasscacheError]:
        """Remove keys; those of a failed server from the gutter."""
        if noreply:
            return carry_out(self._quiet_write_steps(_delete_calls(keys), deadline))
        own_call = self._own_call("delete_many", keys_of(keys), deadline=deadline)
        return carry_out(self._delete_many_steps(own_call, deadline))

    def close(self) -> None:
        """Close the connections, the gutter's too."""
        self.gutter.close()
        self._own_call("close")()


class AsyncGutter(_Gutter):
    """The asyncio half."""

    async def get_many(
        self, keys: Iterable[Any], *, deadline: float | None = None, parent: Key | None = None
    ) -> dict[Any, Any]:
        """Return the values under keys; those of a failed server from the gutter."""
        own_call = self._own_call("get_many", keys_of(keys), deadline=deadline, parent=parent)
        return await carry_out_async(self._bulk_read_steps("get_many", own_call, deadline))

    async def gets_many(
        self, keys: Iterable[Any], *, deadline: float | None = None
    ) -> dict[Any, Any]:
        """Return values and CAS uniques; those of a failed server from the gutter."""
        own_call = self._own_call("gets_many", keys_of(keys), deadline=deadline)
        return await carry_out_async(self._bulk_read_steps("gets_many", own_call, deadline))

    async def set_many(
        self,
        items: Mapping[Any, Any],
        ttl: Ttl | None = None,
        *,
        noreply: bool = False,
        deadline: float | None = None,
    ) -> dict[Any, GlasscacheError]:
        """Store values; those of a failed server on the gutter."""
        if noreply:
            return await carry_out_async(self._quiet_write_steps(_set_calls(items, ttl), deadline))
        own_call = self._own_call("set_many", items, ttl, deadline=deadline)
        return await carry_out_async(self._set_many_steps(own_call, items, ttl, deadline))

    async def delete_many(
        self, keys: Iterable[Any], *, noreply: bool = False, deadline: float | None = None
    ) -> dict[Any, GlasscacheError]:
        """Remove keys; those of a failed server from the gutter."""
        if noreply:
            return await carry_out_async(self._quiet_write_steps(_delete_calls(keys), deadline))
        own_call = self._own_call("delete_many", keys_of(keys), deadline=deadline)
        return await carry_out_async(self._delete_many_steps(own_call, deadline))

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
                return self._raise_or_count_miss(error, _miss_of(name, args, kwargs))
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
                return self._raise_or_count_miss(error, _miss_of(name, args, kwargs))
        return await getattr(self.gutter, name)(*gutter_arguments.args, **gutter_arguments.kwargs)

    return call_with_gutter


for _name in _MISS_BY_METHOD:
    setattr(SyncGutter, _name, _blocking_method(_name))
    setattr(AsyncGutter, _name, _async_method(_name))


_gutter_classes: dict[tuple[type[Any], type[Any]], type[Any]] = {}


def with_gutter(client_class: type[Any], gutter_mixin: type[Any]) -> Any:
    """Return a client's class with the gutter added."""
    if (client_class, gutter_mixin) not in _gutter_classes:
        class_attributes = {"__module__": client_class.__module__, "__doc__": client_class.__doc__}
        _gutter_classes[client_class, gutter_mixin] = type(
            client_class.__name__, (gutter_mixin, client_class), class_attributes
        )
    return _gutter_classes[client_class, gutter_mixin]
