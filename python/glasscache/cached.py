"""`@cached(client, ttl=...)`: the result of a function, kept under a key made of its name and its arguments.

A key tells types apart (`f(1)` and `f(True)` are two), and is the same in every process: no
`hash()`, no `repr` of an object that shows its address. Arguments that cannot be named so are
refused with a sentence unless `key=` is given.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from .leases import AsyncLeases, Lease, SyncLeases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

P = ParamSpec("P")
R = TypeVar("R")


class CacheInfo(NamedTuple):
    """What a cached function has done in this process: calls, and how many of them had to make the value."""

    calls: int
    fills: int

    @property
    def hits(self) -> int:
        """Calls answered from the cache, stale values and waited-for ones included."""
        return self.calls - self.fills


@dataclass
class _Counts:
    calls: int = 0
    fills: int = 0

    def __post_init__(self) -> None:
        self._lock = Lock()

    def called(self) -> None:
        with self._lock:
            self.calls += 1

    def filled(self) -> None:
        with self._lock:
            self.fills += 1


def cached(
    client: SyncLeases | AsyncLeases,
    *,
    ttl: float | None,
    stale: float = 0,
    lease: float = 5,
    wait: float | None = None,
    early: float = 0,
    none_ttl: float | None = None,
    stale_if_error: bool = False,
    key: Callable[..., str] | None = None,
    ignore: Iterable[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that keeps a function's results in the cache.

    A coroutine function needs an asyncio client, a function a blocking one. On the decorated function are
    `cache_key(*args)`, `invalidate(*args)`, `refresh(*args)`, `cache_info()` and `__wrapped__`.

    Args:
        client: where results are kept.
        ttl: seconds for which a result is fresh; None for ever.
        stale: seconds after `ttl` in which one caller refills and the others take the old value.
        lease: seconds that the filler has before another may try.
        wait: seconds to wait for another's value before making it oneself; None takes `lease`.
        early: seconds that making usually takes, to refill now and then before the time.
        none_ttl: ttl of a None; None takes `ttl`, 0 does not store it.
        stale_if_error: return the old value when making a new one fails.
        key: makes the key from the arguments; without it the function's name and its arguments are the key.
        ignore: names of parameters that do not belong to the key; `self` and `cls` never do.

    Raises:
        TypeError: the function and the client do not go together, or (at a call) an argument has no
            stable name.

    """
    settings = Lease(ttl, stale, lease, wait, early, none_ttl, stale_if_error)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        naming = _Naming(function, key, frozenset(ignore) | {"self", "cls"})
        if inspect.iscoroutinefunction(function):
            if not isinstance(client, AsyncLeases):
                raise TypeError(f"{naming.name} is a coroutine function: it needs an AsyncClient")
            return cast("Callable[P, R]", _decorate_async(client, function, naming, settings))
        if not isinstance(client, SyncLeases):
            raise TypeError(f"{naming.name} is a plain function: it needs a Client")
        return cast("Callable[P, R]", _decorate_sync(client, function, naming, settings))

    return decorate


def _decorate_sync(
    client: SyncLeases, function: Callable[..., Any], naming: _Naming, lease: Lease
) -> Any:
    counts = _Counts()

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        def make() -> Any:
            counts.filled()
            return function(*args, **kwargs)

        counts.called()
        return client.get_or_set_by(naming.key(args, kwargs), make, lease)

    def refresh(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        cast("Any", client).set(naming.key(args, kwargs), value, ttl=lease.ttl_of(value))
        return value

    def invalidate(*args: Any, **kwargs: Any) -> bool:
        return bool(cast("Any", client).delete(naming.key(args, kwargs)))

    return _attach(wrapper, naming, counts, refresh, invalidate)


def _decorate_async(
    client: AsyncLeases, function: Callable[..., Any], naming: _Naming, lease: Lease
) -> Any:
    counts = _Counts()

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        def make() -> Any:
            counts.filled()
            return function(*args, **kwargs)

        counts.called()
        return await client.get_or_set_by(naming.key(args, kwargs), make, lease)

    async def refresh(*args: Any, **kwargs: Any) -> Any:
        value = await function(*args, **kwargs)
        await cast("Any", client).set(naming.key(args, kwargs), value, ttl=lease.ttl_of(value))
        return value

    async def invalidate(*args: Any, **kwargs: Any) -> bool:
        return bool(await cast("Any", client).delete(naming.key(args, kwargs)))

    return _attach(wrapper, naming, counts, refresh, invalidate)


def _attach(wrapper: Any, naming: _Naming, counts: _Counts, refresh: Any, invalidate: Any) -> Any:
    def cache_key(*args: Any, **kwargs: Any) -> str:
        return naming.key(args, kwargs)

    wrapper.cache_key = cache_key
    wrapper.cache_info = lambda: CacheInfo(counts.calls, counts.fills)
    wrapper.refresh = refresh
    wrapper.invalidate = invalidate
    return wrapper


class _Naming:
    """The key of a call: the function's name and a digest of its bound arguments."""

    def __init__(
        self, function: Callable[..., Any], key: Callable[..., str] | None, ignored: frozenset[str]
    ) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._prefix = self.name.replace("<locals>.", "").replace("<lambda>", "lambda")[-120:]
        self._signature = inspect.signature(function)
        self._made = key
        self._ignored = ignored

    def key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        if self._made is not None:
            return self._made(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        digest = hashlib.blake2b(digest_size=16)
        for name, value in bound.arguments.items():
            if name not in self._ignored:
                digest.update(f"{name}=".encode())
                _name(value, digest.update, f"{self.name}({name})")
        return f"{self._prefix}:{digest.hexdigest()}"


def _name(value: Any, write: Callable[[bytes], None], where: str) -> None:
    """Write a text that is the same for equal values of one type in every process, and for no other."""
    kind = type(value).__qualname__
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        text = value if isinstance(value, bytes) else repr(value).encode()
        write(f"{kind}:{len(text)}:".encode() + text)
    elif isinstance(value, list | tuple):
        parts_in_order = cast("Sequence[Any]", value)
        write(f"{kind}[{len(parts_in_order)}".encode())
        for item in parts_in_order:
            _name(item, write, where)
    elif isinstance(value, set | frozenset | dict):
        items = cast("Iterable[Any]", value.items() if isinstance(value, dict) else value)
        parts: list[bytes] = []
        for item in items:
            part = bytearray()
            _name(item, part.extend, where)
            parts.append(bytes(part))
        write(f"{kind}{{{len(parts)}".encode() + b"".join(sorted(parts)))
    elif hasattr(value, "cache_key"):
        write(f"{kind}=".encode())
        _name(value.cache_key() if callable(value.cache_key) else value.cache_key, write, where)
    elif type(value).__module__ in {"datetime", "decimal", "uuid", "fractions", "pathlib", "enum"}:
        text = repr(value).encode()
        write(f"{kind}:{len(text)}:".encode() + text)
    else:
        raise TypeError(
            f"{where} is a {kind}, which has no stable name: give it a cache_key, or pass key= to cached"
        )
