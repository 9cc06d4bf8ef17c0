"""Moving from another client's ring and dialect without starting cold.

    cache = MigratingClient(
        ["a:11211", "b:11211"],
        old={"placement": "ketama-oneatatime", "dialect": "pylibmc", "codec": "pickle"},
    )

A read queries the server where this client puts the key and, on a miss, where the old one did; what it
finds there is copied with its remaining TTL. A write goes to the new server, after the key was removed
from the old one, so that an old value never returns when the new one is evicted. If that removal fails
the write fails. Programs that still use the old client see misses for what was written here, and what
they write is seen here only until this client writes the key: move the readers last. Values are written
in the own dialect, whose mark separates them from the old ones where both rings put a key on the same
server. When the old ring has nothing left to give, use `Client`.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, Final, Self

from glasscache import _steps
from glasscache._requests import REQUESTS, default_of
from glasscache._suggestions import keys_of
from glasscache.aio import AsyncClient
from glasscache.client import Client
from glasscache.errors import BadSetting, GlasscacheError, UnreadableValue, UnwritableValue
from glasscache.values import Codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    # To a type checker they have the methods of the clients.
    from glasscache._steps import Call, Steps
    from glasscache.aio import AsyncClient as _AsyncMethods
    from glasscache.client import Client as _SyncMethods
else:
    from glasscache._caching import AsyncCaching as _AsyncMethods
    from glasscache._caching import SyncCaching as _SyncMethods

__all__ = ["AsyncMigratingClient", "MigratingClient"]

_MISSING: Final = object()
_OWN_MARK: Final = 0x9C00_0000
_OWN_BITS: Final = 0xFF00_0000
"""How the flags of the own dialect are known (docs/reference/formats.md)."""


class _Rings:
    """The two clients, on which the steps of each call run."""

    new: Any
    """Where values are written."""
    old: Any
    """Where they may still be."""

    if TYPE_CHECKING:

        def __new__(cls, *_: Any, **__: Any) -> Self:
            """Take what `__init__` takes, and not what the clients' `__new__` does."""
            ...

    def __init__(
        self,
        servers: str | Iterable[str],
        *,
        old: Mapping[str, Any],
        codec: Codec | str | None = None,
        dialect: str | None = None,
        **options: Any,
    ) -> None:
        """Make a client of these servers and one of the old ring.

        Args:
            servers: those of the new ring.
            old: the arguments of `Client` for the old ring: placement, dialect, codec, namespace, servers.
            codec: as `Client` takes it.
            dialect: "own", or that of the old ring.
            options: as `Client` takes them, for both rings.

        Raises:
            BadSetting: values of the two rings could not be distinguished.

        """
        old_dialect = str(old.get("dialect", "own"))
        if dialect not in (None, "own", old_dialect):
            raise BadSetting(
                f"moving from dialect {old_dialect} writes own or {old_dialect}, not {dialect}"
            )
        if not isinstance(codec, Codec) and dialect != old_dialect:
            objects: Any = codec or "json"
            codec = Codec(
                objects=objects, migrate_from=None if old_dialect == "own" else old_dialect
            )
        self.new = self._client_of(servers, codec=codec, dialect=dialect, **options)
        self.old = self._client_of(**{"servers": servers, **options, **old})

    @property
    def _has_reservations(self) -> bool:
        """Whether the new ring's dialect has a form for reservations."""
        return bool(self.new._has_reservations)

    def _count_unstored(self) -> None:
        """Count a value that was made and not stored, as `stats` of the new ring's client shows it."""
        self.new._count_unstored()

    def _client_of(self, servers: Any, **options: Any) -> Any:
        raise NotImplementedError


class _RingsCall:
    """A call of a method, as its steps on the rings: each has what is left of the call's deadline."""

    def __init__(self, rings: _Rings, method_name: str, deadline: float | None = None) -> None:
        self.rings, self.method_name = rings, method_name
        # Without one each step has the client's timeout.
        self._ends_at = None if deadline is None else time.monotonic() + deadline

    def new(self, *args: Any, method: str | None = None, **options: Any) -> Call:
        """Return the step that calls the new ring's method, or another of its methods."""
        return self._step(self.rings.new, method, args, options)

    def old(self, *args: Any, method: str | None = None, **options: Any) -> Call:
        """Return the step that calls the old ring's method, or another of its methods."""
        return self._step(self.rings.old, method, args, options)

    def _step(
        self, client: Any, method: str | None, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Call:
        if self._ends_at is not None:
            options["deadline"] = max(self._ends_at - time.monotonic(), 1e-6)
        return _steps.call(client, method or self.method_name, *args, **options)


def _read_steps(call: _RingsCall, key: Any, *args: Any, **options: Any) -> Steps[Any]:
    """Make a call that returns None or False when there is no item; copy the old one if so."""
    result = yield call.new(key, *args, **options)
    if result is None or (result is False and call.method_name != "cas"):
        if (yield from _copy_from_old(call, key)) is _MISSING:
            return result
        result = yield call.new(key, *args, **options)
    return result


def _get_steps(call: _RingsCall, key: Any, *args: Any, **options: Any) -> Steps[Any]:
    default = default_of(call.method_name, (key, *args), options)
    options.pop("default", None)
    read_args = (key, *args)[1 : REQUESTS[call.method_name].default_index]
    stored_value = yield call.new(key, *read_args, default=_MISSING, **options)
    if stored_value is _MISSING:
        stored_value = yield from _copy_from_old(call, key)
        if stored_value is not _MISSING and call.method_name == "gat":
            yield call.new(key, *read_args, method="touch", **options)
    return default if stored_value is _MISSING else stored_value


def _get_many_steps(call: _RingsCall, keys: Iterable[Any], **options: Any) -> Steps[dict[Any, Any]]:
    """Read from both rings; nothing is copied, since a bulk read does not return TTLs."""
    key_list = keys_of(keys)
    stored_values = yield call.new(key_list, **options)
    missing_keys = [key for key in key_list if key not in stored_values]
    if missing_keys:
        try:
            stored_values |= yield call.old(missing_keys)
        except UnreadableValue as error:
            if not _is_own_dialect(error):
                raise
            for key in missing_keys:
                value = yield from _copy_from_old(call, key)
                if value is not _MISSING:
                    stored_values[key] = value
    return dict(stored_values)


def _new_ring_only_steps(call: _RingsCall, key: Any, **options: Any) -> Steps[Any]:
    """Make a call that concerns the new ring alone."""
    return (yield call.new(key, **options))


def _set_steps(call: _RingsCall, key: Any, *args: Any, **options: Any) -> Steps[Any]:
    yield call.old(key, method="delete")
    return (yield call.new(key, *args, **options))


def _add_steps(call: _RingsCall, key: Any, *args: Any, **options: Any) -> Steps[Any]:
    yield from _copy_from_old(call, key)
    return (yield call.new(key, *args, **options))


def _delete_steps(call: _RingsCall, key: Any, **options: Any) -> Steps[bool]:
    was_in_old = yield call.old(key, **options)
    was_in_new = yield call.new(key, **options)
    return bool(was_in_old or was_in_new)


def _set_many_steps(
    call: _RingsCall, values: Mapping[Any, Any], ttl: float | None = None
) -> Steps[dict[Any, GlasscacheError]]:
    old_failures = yield call.old(list(values), method="delete_many")
    values_to_store = {key: value for key, value in values.items() if key not in old_failures}
    return dict(old_failures | (yield call.new(values_to_store, ttl)))


def _delete_many_steps(call: _RingsCall, keys: Iterable[Any]) -> Steps[dict[Any, GlasscacheError]]:
    key_list = keys_of(keys)
    old_failures = yield call.old(key_list)
    return dict(old_failures | (yield call.new(key_list)))


def _is_own_dialect(error: UnreadableValue) -> bool:
    """Whether the item that cannot be read is in the own dialect: one server is in both rings."""
    return error.flags & _OWN_BITS == _OWN_MARK


def _copy_from_old(call: _RingsCall, key: Any) -> Steps[Any]:
    """Copy an item from the old ring if it is there; return its value."""
    try:
        stored_item = yield call.old(key, method="get_with_meta")
    except UnreadableValue as error:
        if _is_own_dialect(error):
            return _MISSING
        raise
    if stored_item is None:
        return _MISSING
    if stored_item.ttl is None or stored_item.ttl > 0:
        # A value that only the old codec can write stays where it is.
        with contextlib.suppress(UnwritableValue):
            copy = call.new(key, stored_item.value, stored_item.ttl, method="add")
            yield copy._replace(fills=True)
    return stored_item.value


_STEPS_BY_METHOD: Final[dict[str, Any]] = {
    **{
        name: _read_steps if row.default_index is None else _get_steps
        for name, row in REQUESTS.items()
        if name != "gets_many"  # in which ring a key is, its unique does not say
    },
    "get_many": _get_many_steps,
    "set": _set_steps,
    "set_many": _set_many_steps,
    "add": _add_steps,
    "_reserve": _add_steps,
    "_reservation": _new_ring_only_steps,
    "delete": _delete_steps,
    "delete_many": _delete_many_steps,
}
"""How each call is made: without more to know of it, with the item copied first."""


class MigratingClient(_Rings, _SyncMethods):
    """A blocking client of two rings: the calls about keys that `Client` has."""

    def _client_of(self, servers: Any, **options: Any) -> Any:
        return Client(servers, **options)

    def close(self) -> None:
        """Close both clients."""
        self.new.close()
        self.old.close()

    def __enter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close both clients."""
        self.close()


class AsyncMigratingClient(_Rings, _AsyncMethods):
    """An asyncio client of two rings: the calls about keys that `AsyncClient` has."""

    def _client_of(self, servers: Any, **options: Any) -> Any:
        return AsyncClient(servers, **options)

    async def close(self) -> None:
        """Close both clients."""
        await self.new.close()
        await self.old.close()

    async def __aenter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close both clients."""
        await self.close()


def _steps_of(rings: _Rings, method_name: str, *args: Any, **kwargs: Any) -> Steps[Any]:
    call = _RingsCall(rings, method_name, kwargs.pop("deadline", None))
    steps: Steps[Any] = _STEPS_BY_METHOD[method_name](call, *args, **kwargs)
    return steps


for _name in _STEPS_BY_METHOD:
    _blocking_method, _async_method = _steps.methods_of(_steps_of, _name)
    for _class, _client_class, _method in (
        (MigratingClient, Client, _blocking_method),
        (AsyncMigratingClient, AsyncClient, _async_method),
    ):
        setattr(_class, _name, functools.wraps(getattr(_client_class, _name))(_method))
