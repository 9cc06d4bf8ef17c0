"""`@cached(client, ttl=...)`: the result of a function, kept under a key made of its name and its arguments.

A key distinguishes types (`f(1)` and `f(True)` are two), and is the same in every process: no
`hash()`, no `repr` of an object that shows its address. Arguments that cannot be named so are
refused with a sentence unless `key=` is given, and so are functions of which several have one name:
lambdas, closures, methods of objects without a `cache_key`.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from dataclasses import dataclass
from threading import Lock
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from glasscache._get_or_set import AsyncLeases, SyncLeases
from glasscache._refresh import GetOrSetOptions, GetOrSetSettings
from glasscache._steps import call, carry_out, carry_out_async
from glasscache.leases import renew_steps
from glasscache.tags import tagged_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Required, Self, Unpack

    from glasscache._steps import Steps
    from glasscache._types import Ttl

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


class CacheInfo(NamedTuple):
    """What a cached function has done in this process: calls, and how many of them had to make the value."""

    calls: int
    fills: int

    @property
    def hits(self) -> int:
        """Calls with a result from the cache, stale values and waited-for ones included."""
        return self.calls - self.fills


class _CachedFunctionMethods(Protocol[P]):
    """What a decorated function has whichever client keeps its results."""

    __name__: str
    __qualname__: str

    def cache_key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key of the result for these arguments; under tags theirs are added to it."""
        ...

    def cache_info(self) -> CacheInfo:
        """Return how many calls there were in this process, and how many had to make the value."""
        ...


class Cached(_CachedFunctionMethods[P], Protocol[P, R_co]):
    """A function whose results are stored in the cache."""

    @property
    def __wrapped__(self) -> Callable[P, R_co]:
        """The function itself."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Return the result, kept or made."""
        ...

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Compute the result again, store it unless it was invalidated meanwhile, and return it."""
        ...

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Throw the result away; whether there was one."""
        ...

    @overload
    def __get__(self, instance: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(
        self: Cached[Concatenate[S, Q], R], instance: S, owner: type[Any], /
    ) -> Callable[Q, R]: ...


class AsyncCached(_CachedFunctionMethods[P], Protocol[P, R_co]):
    """A coroutine function whose results are stored in the cache."""

    @property
    def __wrapped__(self) -> Callable[P, Awaitable[R_co]]:
        """The function itself."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Return the result, kept or made."""
        ...

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Compute the result again, store it and return it."""
        ...

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, bool]:
        """Throw the result away; whether there was one."""
        ...

    @overload
    def __get__(self, instance: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(
        self: AsyncCached[Concatenate[S, Q], R], instance: S, owner: type[Any], /
    ) -> Callable[Q, Coroutine[Any, Any, R]]: ...


class Options(GetOrSetSettings, total=False):
    """The settings of `cached`."""

    ttl: Required[Ttl | None]
    key: Callable[..., str] | None
    ignore: Iterable[str]
    tags: Iterable[str]


@dataclass
class _CallCounts:
    calls: int = 0
    fills: int = 0

    def __post_init__(self) -> None:
        self._lock = Lock()

    def count_call(self) -> None:
        with self._lock:
            self.calls += 1

    def count_fill(self) -> None:
        with self._lock:
            self.fills += 1


@overload
def cached(
    client: SyncLeases, **options: Unpack[Options]
) -> Callable[[Callable[P, R]], Cached[P, R]]: ...
@overload
def cached(
    client: AsyncLeases, **options: Unpack[Options]
) -> Callable[[Callable[P, Awaitable[R]]], AsyncCached[P, R]]: ...
def cached(
    client: SyncLeases | AsyncLeases,
    *,
    ttl: Ttl | None,
    stale: float = 0,
    lease: float = 5,
    wait: float | None = None,
    early: float | bool = 0,
    none_ttl: Ttl | None = None,
    stale_if_error: bool = False,
    split: bool = False,
    key: Callable[..., str] | None = None,
    ignore: Iterable[str] = (),
    tags: Iterable[str] = (),
) -> Any:
    """Return a decorator that keeps a function's results in the cache.

    A coroutine function needs an asyncio client, a function a blocking one. On the decorated function are
    `cache_key(*args)`, `invalidate(*args)`, `refresh(*args)`, `cache_info()` and `__wrapped__`.

    Args:
        client: where results are kept.
        ttl: seconds for which a result is fresh; None for ever.
        stale: seconds after `ttl` in which one caller refills and the others take the old value.
        lease: seconds that the filler has before another may try.
        wait: seconds to wait for another's value before making it oneself; None takes `lease`.
        early: refill now and then before the end: True by what making took, or a number of seconds.
        none_ttl: ttl of a None; None takes `ttl`, 0 does not store it.
        stale_if_error: return the old value when making a new one fails.
        split: store a long result in pieces, as `set` with split.
        key: makes the key from the arguments; without it the function's name and its arguments are the key.
        ignore: names of parameters that do not belong to the key. Of a method `self` belongs to it by its
            `cache_key`, an attribute or a method, unless it is named here.
        tags: `client.invalidate_tag` of any of them throws the results away.

    Raises:
        TypeError: the function and the client do not go together, or the function cannot be told from
            another one of its name, or (at a call) an argument has no stable name.

    """
    get_or_set_options = GetOrSetOptions(
        ttl, stale, lease, wait, early, none_ttl, stale_if_error, split
    )

    def decorate(function: Callable[..., Any]) -> Any:
        key_builder = _KeyBuilder(function, key, frozenset(ignore))
        cached_function = _CachedFunction(
            client, function, key_builder, get_or_set_options, tuple(tags), _CallCounts()
        )
        if inspect.iscoroutinefunction(function):
            if not isinstance(client, AsyncLeases):
                raise TypeError(
                    f"{key_builder.function_name} is a coroutine function: it needs an AsyncClient"
                )
            return _wrap_async(cached_function)
        if not isinstance(client, SyncLeases):
            raise TypeError(f"{key_builder.function_name} is a plain function: it needs a Client")
        return _wrap_blocking(cached_function)

    return decorate


class _CachedFunction(NamedTuple):
    """A decorated function; its methods are steps."""

    client: Any
    function: Callable[..., Any]
    key_builder: _KeyBuilder
    get_or_set_options: GetOrSetOptions
    tags: tuple[str, ...]
    counts: _CallCounts

    def key_steps(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Steps[str]:
        """Name the result; under tags that takes a round trip."""
        key = self.key_builder.build_key(args, kwargs)
        return (yield from tagged_key(self.client, key, self.tags)) if self.tags else key

    def call_steps(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Steps[Any]:
        """Return the result, kept or made."""

        def make() -> Any:
            self.counts.count_fill()
            return self.function(*args, **kwargs)

        self.counts.count_call()
        key = yield from self.key_steps(args, kwargs)
        return (yield call(self.client, "get_or_set_by", key, make, self.get_or_set_options))

    def refresh_steps(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Steps[Any]:
        """Compute the result again, and store it unless it was invalidated meanwhile."""
        key = yield from self.key_steps(args, kwargs)
        return (
            yield from renew_steps(
                self.client,
                key,
                self.get_or_set_options,
                lambda: self.function(*args, **kwargs),
            )
        )

    def invalidate_steps(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Steps[bool]:
        """Throw the result away."""
        key = yield from self.key_steps(args, kwargs)
        return bool((yield call(self.client, "delete", key)))


def _wrap_blocking(cached_function: _CachedFunction) -> Any:
    @functools.wraps(cached_function.function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return carry_out(cached_function.call_steps(args, kwargs))

    return _attach_methods(wrapper, cached_function, carry_out)


def _wrap_async(cached_function: _CachedFunction) -> Any:
    @functools.wraps(cached_function.function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await carry_out_async(cached_function.call_steps(args, kwargs))

    return _attach_methods(wrapper, cached_function, carry_out_async)


def _attach_methods(
    wrapper: Any, cached_function: _CachedFunction, run_steps: Callable[[Steps[Any]], Any]
) -> Any:
    wrapper.cache_key = _pack_arguments(cached_function.key_builder.build_key)
    wrapper.cache_info = lambda: CacheInfo(
        cached_function.counts.calls, cached_function.counts.fills
    )
    wrapper.refresh = _pack_arguments(
        lambda args, kwargs: run_steps(cached_function.refresh_steps(args, kwargs))
    )
    wrapper.invalidate = _pack_arguments(
        lambda args, kwargs: run_steps(cached_function.invalidate_steps(args, kwargs))
    )
    return wrapper


def _pack_arguments(
    packed_function: Callable[[tuple[Any, ...], dict[str, Any]], Any],
) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return packed_function(args, kwargs)

    return method


_PREFIX_LENGTH_MAX: Final = 120
"""Of a longer name of a function its end is part of the key, and all of it of the digest."""


class _KeyBuilder:
    """The key of a call: the function's name and a digest of its bound arguments."""

    def __init__(
        self,
        function: Callable[..., Any],
        custom_key_of: Callable[..., str] | None,
        ignored_parameters: frozenset[str],
    ) -> None:
        self.function_name = _function_name(function)
        if custom_key_of is None:
            _refuse_ambiguous(function, self.function_name)
        readable_name = self.function_name.replace("<locals>.", "").replace("<lambda>", "lambda")
        self._prefix = readable_name[-_PREFIX_LENGTH_MAX:]
        self._is_name_cut = len(readable_name) > _PREFIX_LENGTH_MAX
        self._signature = inspect.signature(function)
        self._custom_key_of = custom_key_of
        self._ignored_parameters = ignored_parameters
        self._bound_object: object = function.__self__ if inspect.ismethod(function) else None

    def build_key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        if self._custom_key_of is not None:
            return self._custom_key_of(*args, **kwargs)
        bound_arguments = self._signature.bind(*args, **kwargs)
        bound_arguments.apply_defaults()
        hasher = hashlib.blake2b(digest_size=16)
        if self._is_name_cut:
            hasher.update(f"{self.function_name}:".encode())
        named_values = bound_arguments.arguments
        if self._bound_object is not None:
            named_values = {"self": self._bound_object, **named_values}
        for parameter, argument in named_values.items():
            if parameter not in self._ignored_parameters:
                hasher.update(f"{parameter}=".encode())
                _write_stable_name(argument, hasher.update, f"{self.function_name}({parameter})")
        return f"{self._prefix}:{hasher.hexdigest()}"


def _function_name(function: Any) -> str:
    """Return the name of a function; of an object that can be called, that of its class."""
    named: Any = function if hasattr(function, "__qualname__") else cast("Any", type(function))
    return f"{named.__module__}.{named.__qualname__}"


def _refuse_ambiguous(function: Any, name: str) -> None:
    """Refuse a function that has its name in common with others: their results would have one key."""
    if not inspect.isroutine(function):
        raise TypeError(
            f"{name} is not a function, and the results of every {name} would have the same keys: pass key= "
            "to cached"
        )
    if getattr(inspect.unwrap(function), "__name__", "") == "<lambda>":
        raise TypeError(
            f"{name} is a lambda, and every lambda there has this name: write a def, or pass key= to cached"
        )
    layer: Any = function
    while layer is not None:
        if variables := _variables_of_closure(layer):
            raise TypeError(
                f"{name} is a closure over {', '.join(variables)}, and every such closure has this "
                "name: make them parameters, or pass key= to cached"
            )
        layer = getattr(layer, "__wrapped__", None)


def _variables_of_closure(function: Any) -> list[str]:
    """Return the names of the values that a function has of the function around it.

    The class is none, which methods have that call super(). A decorator's function is told from others
    by what it wraps, but not by the numbers and texts that the decorator was given.
    """
    function = getattr(function, "__func__", function)
    names: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    is_wrapper = hasattr(function, "__wrapped__")
    return [
        name
        for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True)
        if name != "__class__" and (not is_wrapper or _holds_plain_value(cell))
    ]


def _holds_plain_value(cell: Any) -> bool:
    try:
        return isinstance(cell.cell_contents, bool | int | float | str | bytes)
    except ValueError:  # not yet assigned
        return False


def _write_stable_name(value: Any, write_part: Callable[[bytes], None], label: str) -> None:
    """Write a text that is the same for equal values of one type in every process, and for no other."""
    type_name = type(value).__qualname__
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        encoded = value if isinstance(value, bytes) else repr(value).encode()
        write_part(f"{type_name}:{len(encoded)}:".encode() + encoded)
    elif isinstance(value, list | tuple):
        elements = cast("Sequence[Any]", value)
        write_part(f"{type_name}[{len(elements)}".encode())
        for element in elements:
            _write_stable_name(element, write_part, label)
    elif isinstance(value, set | frozenset | dict):
        unordered_elements = cast(
            "Iterable[Any]", value.items() if isinstance(value, dict) else value
        )
        parts: list[bytes] = []
        for element in unordered_elements:
            part = bytearray()
            _write_stable_name(element, part.extend, label)
            parts.append(bytes(part))
        write_part(f"{type_name}{{{len(parts)}".encode() + b"".join(sorted(parts)))
    elif isinstance(value, type) and "<locals>" not in value.__qualname__:
        encoded = f"{value.__module__}.{value.__qualname__}".encode()
        write_part(f"{type_name}:{len(encoded)}:".encode() + encoded)
    elif (cache_key := getattr(value, "cache_key", None)) is not None:
        write_part(f"{type_name}=".encode())
        _write_stable_name(cache_key() if callable(cache_key) else cache_key, write_part, label)
    elif type(value).__module__ in {"datetime", "decimal", "uuid", "fractions", "pathlib", "enum"}:
        encoded = repr(value).encode()
        write_part(f"{type_name}:{len(encoded)}:".encode() + encoded)
    else:
        raise TypeError(
            f"{label} is a {type_name}, which has no stable name: give it a cache_key, name the parameter in "
            "ignore=, or pass key= to cached"
        )
