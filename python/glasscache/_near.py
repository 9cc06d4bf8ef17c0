"""The strategy of a client: its settings, the scope of a request, and its counters.

What is kept in the process and fetched together is decided by the native client
(docs/decisions/strategies.md, 0073); here is how Python names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from glasscache import _native
from glasscache.errors import BadSetting

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Literal, TypedDict

    from glasscache._types import Key
    from glasscache.recording import Recorder

    ChildrenOf = Callable[[Any], Iterable[Key]]
    ShareBy = Literal["request", "process"]

    class NearStats(TypedDict):
        """The counters of a strategy."""

        reads: int
        fixed_hits: int
        near_hits: int
        held_hits: int
        calls: int
        keys: int
        bytes: int
        used_keys: int
        kept_calls: int
        kept_keys: int
        invalidated: int
        changed_by_others: int
        watch_clears: int
        fixed_keys: int
        fixed_loaded: int
        near_items: int
        near_bytes: int
        fixed_bytes: int
        rules_bytes: int
        missing_keys: list[str]
        disabled: str | None


__all__ = ["RequestMethods", "strategy_of"]


_UNRECORDED: Final[AbstractContextManager[None]] = _native.UnrecordedBlock()
"""The block of a client that neither runs a strategy nor has a recorder."""


class RequestScopes:
    """The scope of the current request of one client: each thread and task has its own."""

    def __init__(self) -> None:
        """Make a context variable without a scope."""
        import contextvars  # noqa: PLC0415 - few programs need it

        self.current: contextvars.ContextVar[_native.RequestScope | None] = contextvars.ContextVar(
            "glasscache_request_scope", default=None
        )


def strategy_of(
    settings: Mapping[str, Any],
) -> tuple[_native.Strategy | None, RequestScopes | None]:
    """Return what the native client takes as its strategy, and where its scopes are; None without one."""
    if settings["strategy"] is None:
        return None, None
    near_ttl: float | None = settings["near_ttl"]
    children_of: ChildrenOf | None = settings["children_of"]
    if near_ttl is not None and not near_ttl > 0:
        raise BadSetting(f"near_ttl={near_ttl}: seconds above 0, or None for until the TTL")
    if children_of is not None and not callable(children_of):
        raise BadSetting(f"children_of={children_of!r}: a function from a key to its children")
    both = set(settings["near_never"]) & set(settings["near_allow"])
    if both:
        raise BadSetting(
            f"near_never= and near_allow= both have {min(both)!r}: leave it out of one of them"
        )
    from glasscache._contexts import is_package_call  # noqa: PLC0415 - few programs need it

    scopes = RequestScopes()
    native_strategy = _native.Strategy(
        settings["strategy"],
        near_ttl=near_ttl,
        coherent=settings["coherent"],
        children_of=None if children_of is None else _without_exceptions(children_of),
        scopes=scopes.current,
        package_call=is_package_call,
        share=settings["share"],
        share_by=settings["share_by"],
        near_check=settings["near_check"],
        never=list(settings["near_never"]),
        allow=list(settings["near_allow"]),
    )
    return native_strategy, scopes


def _without_exceptions(children_of: ChildrenOf) -> Callable[[Any], list[bytes]]:
    """Return the function with keys as bytes; where it fails it names no children, which is logged once."""
    was_logged = False

    def children(key: Any) -> list[bytes]:
        nonlocal was_logged
        try:
            return [_key_bytes(child) for child in _iterable_of_keys(children_of(key))]
        except Exception:
            if not was_logged:
                was_logged = True
                import logging  # noqa: PLC0415 - few programs need it

                logging.getLogger("glasscache").exception(
                    "children_of failed; the key is fetched without children"
                )
            return []

    return children


def _iterable_of_keys(children: Any) -> Iterable[Any]:
    if isinstance(children, str | bytes):
        raise TypeError(
            f"children_of returned one {type(children).__name__}: return a list of keys"
        )
    keys: Iterable[Any] = children
    return keys


def _key_bytes(key: Any) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    raise TypeError(f"children_of returned {type(key).__name__}: a key is str or bytes")


class RequestMethods:
    """The methods of both clients about requests of the application."""

    _state: _native.ClientState
    """What the client consists of."""

    _scopes: RequestScopes | None = None
    _recorder: Recorder | None = None

    def request(
        self, page: Key | None = None, route: str | None = None
    ) -> AbstractContextManager[None]:
        """Make the reads inside the block one request of the application.

        Under a strategy the request holds what it fetched: one key is fetched once, also by tasks and threads
        of the block that read it at the same time, and the rules of the strategy fetch together what belongs
        together. A held value may be as old as the block; own writes replace it. A recorder records the
        request. Without either the block does nothing.

        Args:
            page: the key of the item that the request is about.
            route: the kind of request, for the recorder and for a roll-out, which compares what the requests
                of each route wait.

        >>> with client.request(page="course:7"):  # doctest: +SKIP
        ...     _ = client.get("course:7"), client.get("course:7/lesson:1")

        """
        recorder = self._recorder
        recorded_request = None if recorder is None else recorder.request(page, route)
        if recorded_request is not None and self._scopes is None:
            return recorded_request
        return self._request_block(page, recorded_request, route)

    def _request_block(
        self,
        page: Key | None = None,
        recorded_request: AbstractContextManager[None] | None = None,
        route: str | None = None,
    ) -> AbstractContextManager[None]:
        """Return a request with a record that the caller has begun, or none."""
        scope = self._state.begin_request(page)
        if scope is None and recorded_request is None:
            return _UNRECORDED
        if scope is not None and route is not None:
            scope.set_route(route)
        return _RequestBlock(self._scopes, scope, recorded_request)

    def set_route(self, route: str) -> None:
        """Name the kind of the current request, where that is known only later."""
        if self._scopes is not None and (scope := self._scopes.current.get()) is not None:
            scope.set_route(route)
        if self._recorder is not None:
            self._recorder.set_route(route)

    def near_stats(self) -> NearStats:
        """Return the counters of the strategy: what it served, fetched and keeps. No network.

        `fixed_hits`, `near_hits` and `held_hits` of `reads` needed no call; `calls`, `keys` and `bytes` were
        fetched, `used_keys` of them for keys that were read; `kept_calls` loaded and refreshed the fixed set,
        whose `missing_keys` the servers do not have. `near_bytes` is the memory of `near_items`,
        `fixed_bytes` that of the fixed set's values, `rules_bytes` that of the rules. `invalidated`
        values were removed by own writes; with `coherent=True`, `changed_by_others` by those of others, and
        everything `watch_clears` times, when reports of changes were lost or were about many keys.
        `disabled` is why a strategy with `share=` has disabled itself, or None. Requests of the control group
        are not counted here; `report(json=True)` has both groups.

        Reads by `get`, `get_many`, `get_or_set` and `cached` use the strategy; with `stale` or `early` while
        the value is fresh by the TTL that came with it, and one that is due for a refill is read from the
        server. All others go to the server and are not counted here: `gets` for a CAS unique that is still
        current, `get_with_meta` for what is left of the value's life, `gat` to change it, and a pipeline
        because its reads follow its writes in one call anyway.

        Raises:
            BadSetting: the client was made without a strategy.

        """
        stats = self._state.near_stats()
        if stats is None:
            raise BadSetting("near_stats() needs a client with strategy=: name a strategy file")
        return stats


class _RequestBlock:
    """One request: its scope under a strategy, and its record if there is a recorder."""

    __slots__ = ("_recorded_request", "_scope", "_scopes", "_token")

    def __init__(
        self,
        scopes: RequestScopes | None,
        scope: _native.RequestScope | None,
        recorded_request: AbstractContextManager[None] | None,
    ) -> None:
        self._scopes = scopes
        self._scope = scope
        self._recorded_request = recorded_request
        self._token: contextvars.Token[_native.RequestScope | None] | None = None

    def __enter__(self) -> None:
        if self._recorded_request is not None:
            self._recorded_request.__enter__()
        if self._scopes is not None:
            self._token = self._scopes.current.set(self._scope)

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._scope is not None:
            self._scope.end()
        try:
            if self._recorded_request is not None:
                self._recorded_request.__exit__(exception_type, error, traceback)
        finally:
            if self._scopes is not None and self._token is not None:
                from glasscache._contexts import reset_variable  # noqa: PLC0415 - likewise

                reset_variable(self._scopes.current, self._token)
