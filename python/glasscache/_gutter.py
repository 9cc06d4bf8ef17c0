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

from glasscache._plans import Make, call, carry_out, carry_out_async
from glasscache._refresh import seconds_of
from glasscache._suggestions import keys_of
from glasscache.errors import GlasscacheError, ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from glasscache._near import Scopes
    from glasscache._plans import Plan, Step
    from glasscache._types import Ttl

_TTL_INDEX: Final = {
    "_reserve": 2, "set": 2, "add": 2, "replace": 2, "cas": 3, "gat": 1, "touch": 1,
}  # fmt: skip
"""The index of the ttl among the arguments of the calls that always have one."""

_ONCE: Final = frozenset({"incr", "decr", "append", "prepend", "cas"})
"""Calls that are not made again when the first may have been done."""

_SINGLE: Final[dict[str, Any]] = {
    "get": None, "gets": None, "gat": None, "get_with_meta": None, "set": False, "add": False,
    "replace": False, "append": False, "prepend": False, "cas": None, "delete": False,
    "touch": False, "incr": None, "decr": None, "_reserve": None, "_reservation": None,
}  # fmt: skip
"""The calls about one key, and what a miss returns."""


class _Again(NamedTuple):
    """A call to be made on the gutter."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Gutter:
    """What the blocking and the asyncio half share."""

    gutter: Any
    """The client of the gutter's servers."""

    _gutter_ttl: float
    _whole_timeout: float
    _counts_as_miss: Callable[[GlasscacheError], bool] | None
    _moved: int
    _missed: int
    _scopes: Scopes | None

    if TYPE_CHECKING:

        def _forget_near(self, key: Any) -> None: ...

    def _open_gutter(
        self,
        gutter: Any,
        ttl: float,
        timeout: float,
        counts_as_miss: Callable[[GlasscacheError], bool] | None,
    ) -> None:
        """Take the client of the gutter's servers; called once, when the client is made."""
        self.gutter, self._gutter_ttl, self._whole_timeout = gutter, ttl, timeout
        self._counts_as_miss, self._moved, self._missed = counts_as_miss, 0, 0

    def _short(self, ttl: Ttl | None) -> float:
        seconds = seconds_of(ttl)
        return min(seconds, self._gutter_ttl) if seconds else self._gutter_ttl

    def _remaining_s(self, began: float, deadline: float | None) -> float:
        whole = self._whole_timeout if deadline is None else deadline
        return whole - (time.monotonic() - began)

    def _again(
        self,
        name: str,
        began: float,
        error: GlasscacheError,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Again | None:
        """Return the call as it is made on the gutter, or None if it is not."""
        remaining_s = self._remaining_s(began, kwargs.get("deadline"))
        if not isinstance(error, ServerUnavailable) or remaining_s <= 0:
            return None
        if name in _ONCE and not error.retry_is_safe:
            return None
        self._moved += 1
        self._forget([args[0] if args else kwargs["key"]])
        kwargs = {**kwargs, "deadline": remaining_s}
        index = _TTL_INDEX.get(name)
        if index is not None and len(args) > index:
            args = (*args[:index], self._short(args[index]), *args[index + 1 :])
        elif index is not None or kwargs.get("initial") is not None:
            kwargs["ttl"] = self._short(kwargs.get("ttl"))
        return _Again(args, kwargs)

    def _forget(self, keys: Iterable[Any]) -> None:
        """Forget what the process keeps of keys that are changed on the gutter, where no write is seen."""
        if self._scopes is not None:
            for key in keys:
                self._forget_near(key)

    def _failed(self, error: GlasscacheError, miss: Any) -> Any:
        """Raise, or return a counted miss where that is configured."""
        if self._counts_as_miss is not None and self._counts_as_miss(error):
            self._missed += 1
            return miss
        raise error

    def _bulk_read(
        self, name: str, own_call: Callable[[], Any], deadline: float | None
    ) -> Plan[dict[Any, Any]]:
        """Read from the servers, and what those that failed had from the gutter."""
        began = time.monotonic()
        try:
            found: dict[Any, Any] = yield Make(own_call)
        except GlasscacheError as error:
            remaining_s = self._remaining_s(began, deadline)
            if not isinstance(error, ServerUnavailable) or remaining_s <= 0:
                return dict(self._failed(error, error.arrived))
            self._moved += 1
            from_gutter: dict[Any, Any] = yield call(
                self.gutter, name, error.unanswered, deadline=remaining_s
            )
            return error.arrived | from_gutter
        return found

    def _bulk_write(
        self,
        own_call: Callable[[], Any],
        again: Callable[[list[Any], float], Step],
        deadline: float | None,
    ) -> Plan[dict[Any, GlasscacheError]]:
        """Write to the servers, and what those that failed would have taken to the gutter."""
        began = time.monotonic()
        failures: dict[Any, GlasscacheError] = yield Make(own_call)
        lost = [key for key, error in failures.items() if isinstance(error, ServerUnavailable)]
        remaining_s = self._remaining_s(began, deadline)
        if not lost or remaining_s <= 0:
            return failures
        self._moved += 1
        self._forget(lost)
        from_gutter: dict[Any, GlasscacheError] = yield again(lost, remaining_s)
        return {key: error for key, error in failures.items() if key not in lost} | from_gutter

    def _set_many(
        self,
        own_call: Callable[[], Any],
        items: Mapping[Any, Any],
        ttl: Ttl | None,
        deadline: float | None,
    ) -> Plan[dict[Any, GlasscacheError]]:
        def again(lost: list[Any], remaining_s: float) -> Step:
            part = {key: items[key] for key in lost}
            return call(self.gutter, "set_many", part, self._short(ttl), deadline=remaining_s)

        return self._bulk_write(own_call, again, deadline)

    def _delete_many(
        self, own_call: Callable[[], Any], deadline: float | None
    ) -> Plan[dict[Any, GlasscacheError]]:
        def again(lost: list[Any], remaining_s: float) -> Step:
            return call(self.gutter, "delete_many", lost, deadline=remaining_s)

        return self._bulk_write(own_call, again, deadline)

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
        counted: dict[str, Any] = self._own_call("stats")()
        counted["misses_by_error"] += self._missed
        return {**counted, "gutter": {**self.gutter.stats(), "calls": self._moved}}


def _miss_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    index = {"get": 1, "gat": 2}.get(name)
    if index is None:
        return _SINGLE[name]
    return args[index] if len(args) > index else kwargs.get("default")


class SyncGutter(_Gutter):
    """The blocking half."""

    def get_many(self, keys: Iterable[Any], *, deadline: float | None = None) -> dict[Any, Any]:
        """Return the values under keys; those of a failed server from the gutter."""
        own_call = self._own_call("get_many", keys_of(keys), deadline=deadline)
        return carry_out(self._bulk_read("get_many", own_call, deadline))

    def gets_many(self, keys: Iterable[Any], *, deadline: float | None = None) -> dict[Any, Any]:
        """Return values and CAS uniques; those of a failed server from the gutter."""
        own_call = self._own_call("gets_many", keys_of(keys), deadline=deadline)
        return carry_out(self._bulk_read("gets_many", own_call, deadline))

    def set_many(
        self, items: Mapping[Any, Any], ttl: Ttl | None = None, *, deadline: float | None = None
    ) -> dict[Any, GlasscacheError]:
        """Store values; those of a failed server on the gutter."""
        own_call = self._own_call("set_many", items, ttl, deadline=deadline)
        return carry_out(self._set_many(own_call, items, ttl, deadline))

    def delete_many(
        self, keys: Iterable[Any], *, deadline: float | None = None
    ) -> dict[Any, GlasscacheError]:
        """Remove keys; those of a failed server from the gutter."""
        own_call = self._own_call("delete_many", keys_of(keys), deadline=deadline)
        return carry_out(self._delete_many(own_call, deadline))

    def close(self) -> None:
        """Close the connections, the gutter's too."""
        self.gutter.close()
        self._own_call("close")()


class AsyncGutter(_Gutter):
    """The asyncio half."""

    async def get_many(
        self, keys: Iterable[Any], *, deadline: float | None = None
    ) -> dict[Any, Any]:
        """Return the values under keys; those of a failed server from the gutter."""
        own_call = self._own_call("get_many", keys_of(keys), deadline=deadline)
        return await carry_out_async(self._bulk_read("get_many", own_call, deadline))

    async def gets_many(
        self, keys: Iterable[Any], *, deadline: float | None = None
    ) -> dict[Any, Any]:
        """Return values and CAS uniques; those of a failed server from the gutter."""
        own_call = self._own_call("gets_many", keys_of(keys), deadline=deadline)
        return await carry_out_async(self._bulk_read("gets_many", own_call, deadline))

    async def set_many(
        self, items: Mapping[Any, Any], ttl: Ttl | None = None, *, deadline: float | None = None
    ) -> dict[Any, GlasscacheError]:
        """Store values; those of a failed server on the gutter."""
        own_call = self._own_call("set_many", items, ttl, deadline=deadline)
        return await carry_out_async(self._set_many(own_call, items, ttl, deadline))

    async def delete_many(
        self, keys: Iterable[Any], *, deadline: float | None = None
    ) -> dict[Any, GlasscacheError]:
        """Remove keys; those of a failed server from the gutter."""
        own_call = self._own_call("delete_many", keys_of(keys), deadline=deadline)
        return await carry_out_async(self._delete_many(own_call, deadline))

    async def close(self) -> None:
        """Close the connections, the gutter's too."""
        await self.gutter.close()
        await self._own_call("close")()


def _blocking(name: str) -> Callable[..., Any]:
    def done(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        try:
            return self._own_call(name, *args, **kwargs)()
        except GlasscacheError as error:
            again = self._again(name, began, error, args, kwargs)
            if again is None:
                return self._failed(error, _miss_of(name, args, kwargs))
        return getattr(self.gutter, name)(*again.args, **again.kwargs)

    return done


def _awaited(name: str) -> Callable[..., Any]:
    async def done(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        try:
            return await self._own_call(name, *args, **kwargs)()
        except GlasscacheError as error:
            again = self._again(name, began, error, args, kwargs)
            if again is None:
                return self._failed(error, _miss_of(name, args, kwargs))
        return await getattr(self.gutter, name)(*again.args, **again.kwargs)

    return done


for _name in _SINGLE:
    setattr(SyncGutter, _name, _blocking(_name))
    setattr(AsyncGutter, _name, _awaited(_name))


_kinds: dict[tuple[type[Any], type[Any]], type[Any]] = {}


def with_gutter(kind: type[Any], half: type[Any]) -> Any:
    """Return a client's class with the gutter added."""
    if (kind, half) not in _kinds:
        named = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        _kinds[kind, half] = type(kind.__name__, (half, kind), named)
    return _kinds[kind, half]
