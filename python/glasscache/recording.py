"""A record of what each request of an application reads from the cache, for `glasscache simulate`.

`client.recorder("log/")` records the calls of a client that are made within a request:

    recorder = client.recorder("log/", sample=0.01, parent_of="course:{id}/lesson:{n}")
    with recorder.request(page="course:7/lesson:3", route="lesson"):
        client.get("course:7/lesson:3")

`glasscache.middleware` makes each HTTP request such a block. Recording never makes a request fail:
beyond its bounds requests are dropped and counted in `stats()`. The files are described in
docs/reference/formats.md.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any, Final, cast

from glasscache import _at_exit, _native
from glasscache._contexts import is_package_call
from glasscache._requests import BULK_METHODS, PACKAGE_METHODS, PUBLIC_METHODS, REQUESTS
from glasscache.errors import BadSetting

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from typing import Self, TypedDict

    from glasscache._types import Key

    ParentOf = str | Iterable[str] | Callable[[Any], Key | None] | None
    _BeginRecord = Callable[[_native.RecordedRequest, Any, Any], tuple[Any, bool]]

    class Settings(TypedDict, total=False):
        """The settings of a `Recorder` besides its folder."""

        sample: float
        parent_of: ParentOf
        format: str
        salt: str | bytes | None
        salt_prefixes: Iterable[str]
        rotate_seconds: float
        rotate_bytes: int
        memory_bytes: int


__all__ = ["Recorder"]

_log = logging.getLogger("glasscache")

_RECORDED_NATIVELY: Final[tuple[str, ...]] = ("get", "get_many")
"""Methods whose own native code begins the record of a call, where nothing stands in their place."""

_NO_PARENTS: Final[list[Key | None]] = []


class Recorder:
    """Records the requests of one or more clients into a folder; made by `Client.recorder`.

    Args:
        folder: is created; several processes may record into one folder.
        sample: the share, 0 to 1, of requests that are recorded.
        parent_of: a pattern such as "course:{id}/lesson:{n}" or a list of them, whose keys have the part
            before their last "/" as parent; or a function that returns the parent of a key, or None. A parent
            that a call names (`get(key, parent=...)`, `get_many`) comes before it.
        format: "parquet" or "jsonl".
        salt: if given, keys are recorded as hashes of salt and key.
        salt_prefixes: prefixes of keys that are credentials, besides those of sessions. What follows
            the prefix is recorded as a hash, and a strategy does not keep these keys.
        rotate_seconds: a part of the log is written when it is this old ...
        rotate_bytes: ... or when its requests take this much memory, or half of `memory_bytes`.
        memory_bytes: most memory for requests that are not written; further ones are dropped and counted.

    Raises:
        BadSetting: a setting has no meaning. A folder that cannot be written is not an error: one warning
            goes to the logger `glasscache`, and requests go on without being recorded.

    """

    def __init__(  # noqa: D107 - the class has it
        self,
        folder: str | os.PathLike[str],
        *,
        sample: float = 1.0,
        parent_of: ParentOf = None,
        format: str = "parquet",
        salt: str | bytes | None = None,
        salt_prefixes: Iterable[str] = (),
        rotate_seconds: float = 600.0,
        rotate_bytes: int = 16 << 20,
        memory_bytes: int = 64 << 20,
    ) -> None:
        # Each recorder has its own, for one may record inside a block of another: two Django caches.
        self._current_request: contextvars.ContextVar[_native.RecordedRequest | None]
        self._current_request = contextvars.ContextVar("glasscache_recorded_request", default=None)
        # An entry for each block that records: while there is none, no call looks for the current request.
        self._blocks: list[None] = []
        self._parent_of = parent_of if callable(parent_of) else None
        patterns = [parent_of] if isinstance(parent_of, str) else parent_of
        self._native = _native.Recorder(
            folder,
            sample=sample,
            format=format,
            salt=salt.encode() if isinstance(salt, str) else salt,
            salt_prefixes=_prefixes(salt_prefixes),
            parents=[] if patterns is None or callable(patterns) else list(patterns),
            rotate_seconds=rotate_seconds,
            rotate_bytes=rotate_bytes,
            memory_bytes=memory_bytes,
            current_request=self._current_request,
            blocks=self._blocks,
        )
        # The native method: a Python function around it costs more than a request that is not recorded.
        self.request = self._native.request  # type: ignore[method-assign]
        _at_exit.recorders.add(self)

    def request(
        self, page: Key | None = None, route: str | None = None
    ) -> AbstractContextManager[None]:
        """Record the calls inside the block as one request.

        Args:
            page: the key of the item that the page is about.
            route: the kind of request.

        """
        return self._native.request(page, route)

    def set_page(self, key: Key) -> None:
        """Name the item that the current request's page is about, where that is known only later."""
        if (request := self._current_request.get()) is not None:
            request.set_page(key)

    def set_route(self, route: str) -> None:
        """Name the kind of the current request, where that is known only later."""
        if (request := self._current_request.get()) is not None:
            request.set_route(route)

    def attach(self, client: Any) -> None:
        """Record the calls of a client too; `Client.recorder` has done so for its own."""
        if "recorder" in vars(client):
            raise BadSetting("this client has a recorder already")
        client.recorder = self._refuse_second_recorder
        client._recorder = self  # noqa: SLF001 - of this package
        if all(_is_native_method(client, name) for name in _RECORDED_NATIVELY):
            begin = None if self._parent_of is None else self._begin_read
            client._record_gets(self._native, begin)  # noqa: SLF001
            recorded = _RECORDED_NATIVELY
        else:
            client.get = functools.wraps(client.get)(self._recording_get(client.get))
            recorded = ("get",)
        for name in PUBLIC_METHODS:
            if name not in recorded:
                self._record_method(client, name, self._begin_record_of(name))
        for name in PACKAGE_METHODS:
            self._record_method(client, name, _begin_write_record)
        # The pipeline of the asyncio client calls its methods.
        if (run := getattr(client, "_run_pipeline", None)) is not None:
            client._run_pipeline = functools.wraps(run)(self._recording_pipeline(run))
        _close_recorder_on_close(client, self)

    def _begin_record_of(self, name: str) -> _BeginRecord:
        begin_record: _BeginRecord
        if not REQUESTS[name].is_read:
            begin_record = _begin_write_record
        else:
            begin_record = (
                self._begin_bulk_record if name in BULK_METHODS else self._begin_read_record
            )
        return _noting_changes(begin_record) if REQUESTS[name].changes_items else begin_record

    def _refuse_second_recorder(self, *_args: Any, **_kwargs: Any) -> Self:
        raise BadSetting("this client has a recorder already")

    def stats(self) -> dict[str, int]:
        """Return the counts so far: requests, recorded, dropped, parts (files) and bytes of these."""
        return self._native.stats()

    def close(self) -> bool:
        """Write what is not written yet, within a second; return whether the log is complete.

        It is not if requests were dropped, as for want of a folder or of memory: see `stats`.
        """
        return self._native.close()

    def _close_at_exit(self) -> None:
        self._native._close_at_exit()  # noqa: SLF001 - of this package

    def __enter__(self) -> Self:
        """Return the recorder, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the recorder."""
        self.close()

    def _begin_read(
        self, request: _native.RecordedRequest, keys: list[Any], parent: Any = None
    ) -> bool:
        """Begin the record of a read; false if its keys or parent are none, which the call itself refuses."""
        try:
            if parent is not None:
                request.begin(keys, [parent] * len(keys), True)
            elif self._parent_of is None:
                request.begin(keys, _NO_PARENTS)
            else:
                request.begin(keys, self._parents_of(self._parent_of, keys))
        except TypeError:
            return False
        return True

    def _begin_read_record(
        self, request: _native.RecordedRequest, key: Any, parent: Any
    ) -> tuple[Any, bool]:
        return key, self._begin_read(request, [key], parent)

    def _begin_bulk_record(
        self, request: _native.RecordedRequest, keys: Any, parent: Any
    ) -> tuple[Any, bool]:
        if isinstance(keys, str | bytes):
            return keys, self._begin_read(request, [])
        # An iterator can be read once only, so the call gets what was read here. Its errors are the caller's.
        keys = list(keys)
        return keys, self._begin_read(request, keys, parent)

    def _recording_pipeline(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return what runs a pipeline and records it as one call that reads several keys."""
        blocks, current_request = self._blocks, self._current_request.get

        def run_pipeline(calls: list[tuple[Any, ...]], *, deadline: float | None = None) -> Any:
            if not blocks or (request := current_request()) is None:
                return run(calls, deadline=deadline)
            read_keys = [key for name, key, *_ in calls if REQUESTS[name].is_read]
            for _ in range(len(calls) - len(read_keys)):
                request.begin_write()
                request.end()
            request.note_changed([key for name, key, *_ in calls if REQUESTS[name].changes_items])
            for _, key, _, ttl, *_ in calls:
                if ttl is not None:
                    _note_ttl(request, key, ttl)
            is_recorded = self._begin_read(request, read_keys)
            try:
                return run(calls, deadline=deadline)
            finally:
                if is_recorded:
                    request.end()

        return run_pipeline

    def _parents_of(
        self, parent_of: Callable[[Any], Key | None], keys: list[Any]
    ) -> list[Key | None]:
        try:
            parents = [parent_of(key) for key in keys]
            for parent in parents:
                if parent is not None:
                    _native.check_parent(parent)
        except Exception:  # noqa: BLE001 - a function of the user's must not make a request fail
            _log.exception("parent_of failed; from now on keys are recorded without parents")
            self._parent_of = None
            return _NO_PARENTS
        return parents

    def _recording_get(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """As `_record_method`, of the most frequent call: named parameters cost less than packed ones."""
        blocks, current_request = self._blocks, self._current_request.get
        begin_read = self._begin_read

        def get(
            key: Any, default: Any = None, *, deadline: float | None = None, parent: Any = None
        ) -> Any:
            if not blocks or (request := current_request()) is None:
                if deadline is None and parent is None:
                    return method(key, default)
                return method(key, default, deadline=deadline, parent=parent)
            is_recorded = begin_read(request, [key], parent)
            try:
                return method(key, default, deadline=deadline, parent=parent)
            finally:
                if is_recorded:
                    request.end()

        def awaitable_get(
            key: Any, default: Any = None, *, deadline: float | None = None, parent: Any = None
        ) -> Any:
            # Not a coroutine around the client's: one more of them costs several times this function.
            if not blocks or (request := current_request()) is None:
                if deadline is None and parent is None:
                    return method(key, default)
                return method(key, default, deadline=deadline, parent=parent)
            return recorded_get(request, key, default, deadline, parent)

        async def recorded_get(
            request: _native.RecordedRequest,
            key: Any,
            default: Any,
            deadline: float | None,
            parent: Any,
        ) -> Any:
            is_recorded = begin_read(request, [key], parent)
            try:
                return await method(key, default, deadline=deadline, parent=parent)
            finally:
                if is_recorded:
                    request.end()

        return _mark_coroutine_function(awaitable_get) if _is_async(method) else get

    def _record_method(self, client: Any, name: str, begin_record: _BeginRecord) -> None:
        """Replace a method, on this one object, by one that records its calls within a request.

        `begin_record` takes the first argument of the call, its key or keys, and the parent of these, and
        returns what the call shall get, and whether a record was begun.
        """
        method = getattr(client, name, None)
        if method is None:
            return
        # A reservation's ttl is not that of the value which replaces it.
        ttl_index = None if name in PACKAGE_METHODS else REQUESTS[name].ttl_index
        first_parameter = next(iter(inspect.signature(method).parameters))
        begin_call = _make_call_beginner(first_parameter, begin_record, ttl_index)

        blocks, current_request = self._blocks, self._current_request.get

        def sync_wrapper(*args: Any, **kwargs: Any) -> Any:
            if not blocks or (request := current_request()) is None:
                return method(*args, **kwargs)
            args, kwargs, is_recorded = begin_call(request, args, kwargs)
            try:
                return method(*args, **kwargs)
            finally:
                if is_recorded:
                    request.end()

        def awaitable_wrapper(*args: Any, **kwargs: Any) -> Any:
            if not blocks or (request := current_request()) is None:
                return method(*args, **kwargs)
            return recorded_call(request, args, kwargs)

        async def recorded_call(
            request: _native.RecordedRequest, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            args, kwargs, is_recorded = begin_call(request, args, kwargs)
            try:
                return await method(*args, **kwargs)
            finally:
                if is_recorded:
                    request.end()

        wrapper = _mark_coroutine_function(awaitable_wrapper) if _is_async(method) else sync_wrapper
        setattr(client, name, functools.wraps(method)(wrapper))


def _is_native_method(client: Any, name: str) -> bool:
    own_method = getattr(client.__class__, name, None)
    return own_method is getattr(_native.Client, name) and name not in vars(client)


def _prefixes(salt_prefixes: Iterable[str]) -> list[str]:
    prefixes = list(salt_prefixes)
    texts = cast("list[Any]", prefixes)
    if isinstance(salt_prefixes, str) or not all(isinstance(text, str) for text in texts):
        raise BadSetting(f'salt_prefixes={salt_prefixes!r}: write a tuple of texts, as ("token:",)')
    return prefixes


def _is_async(method: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(method))


def _mark_coroutine_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `inspect.iscoroutinefunction` true of it, from Python 3.12 on."""
    mark: Callable[..., Any] | None = getattr(inspect, "markcoroutinefunction", None)
    return function if mark is None else mark(function)


def _begin_write_record(
    request: _native.RecordedRequest, key: Any, _parent: Any
) -> tuple[Any, bool]:
    request.begin_write()
    return key, True


def _note_ttl(request: _native.RecordedRequest, key_or_values: Any, ttl: Any) -> None:
    """Note the ttl of a key, or of those of a mapping; what is neither, the call itself refuses."""
    keys = list(key_or_values) if hasattr(key_or_values, "keys") else [key_or_values]
    request.note_ttl(keys, ttl)


def _noting_changes(begin_record: _BeginRecord) -> _BeginRecord:
    """Return what also notes that the application changes the key of the call, or the keys, in place."""

    def begin_change_record(
        request: _native.RecordedRequest, key: str | bytes | list[str | bytes], parent: Any
    ) -> tuple[Any, bool]:
        key, is_recorded = begin_record(request, key, parent)
        if not is_package_call.get():
            request.note_changed(key if isinstance(key, list) else [key])
        return key, is_recorded

    return begin_change_record


def _close_recorder_on_close(client: Any, recorder: Recorder) -> None:
    """Make the client's `close` complete the log."""
    close = client.close

    def close_with_recorder() -> Any:
        recorder.close()
        return close()

    client.close = functools.wraps(close)(close_with_recorder)


def _make_call_beginner(
    first_parameter: str, begin_record: _BeginRecord, ttl_index: int | None
) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any], bool]]:
    """Return a function that begins the record of a call whose first parameter has this name.

    It also notes the ttl of a call that has one.
    """

    def begin_call(
        request: _native.RecordedRequest, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
        """Begin the record of a call; return the call's arguments, and whether a record was begun."""
        if ttl_index is not None:
            ttl = args[ttl_index] if len(args) > ttl_index else kwargs.get("ttl")
            if ttl is not None:
                _note_ttl(request, args[0] if args else kwargs.get(first_parameter), ttl)
        if args:
            argument, is_recorded = begin_record(request, args[0], kwargs.get("parent"))
            return (argument, *args[1:]), kwargs, is_recorded
        if first_parameter in kwargs:
            argument, is_recorded = begin_record(
                request, kwargs[first_parameter], kwargs.get("parent")
            )
            return args, {**kwargs, first_parameter: argument}, is_recorded
        return args, kwargs, False

    return begin_call
