"""OpenTelemetry spans and metrics, and a log of slow calls, free until they are switched on.

`instrument(client)` replaces the client's public methods, on this one object, by traced ones; with
no provider set up it leaves the object alone. Names follow the semantic conventions for databases
(`db.system.name` = memcached); a hit is `glasscache.hit`, sizes and names as Sentry reads them
(`cache.*`). Keys are personal data and stay out unless asked for. Only the API package is imported,
and only here.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Sized
from typing import Any, Final

_READS: Final = frozenset({"get", "gets", "gat", "get_with_meta"})
_DEFAULT_PLACE: Final = {"get": 1, "gat": 2}
"""Where a read's default stands among its arguments: getting it back is a miss."""

_BATCHES: Final = frozenset({"get_many", "set_many", "delete_many"})
_METHODS: Final = (
    "get", "gets", "gat", "get_with_meta", "get_many", "set", "add", "replace", "append", "prepend",
    "cas", "set_many", "delete", "delete_many", "touch", "incr", "decr", "get_or_set_by",
)  # fmt: skip

_log = logging.getLogger("glasscache.slow")


def instrument(
    client: Any,
    *,
    tracer_provider: Any = None,
    meter_provider: Any = None,
    keys: bool = False,
) -> bool:
    """Make a client's calls spans and durations; return whether there is a provider to do it for.

    Args:
        client: a `Client` or an `AsyncClient`.
        tracer_provider: makes the spans; None takes the global one.
        meter_provider: makes the histogram; None takes the global one.
        keys: put keys into `db.query.text` and `cache.key`.

    """
    from opentelemetry import metrics, trace  # noqa: PLC0415 - not everybody has it

    tracers = tracer_provider or _set_up(trace.get_tracer_provider(), "ProxyTracerProvider")
    meters = meter_provider or _set_up(metrics.get_meter_provider(), "_ProxyMeterProvider")
    if tracers is None and meters is None:
        return False
    tracer = None if tracers is None else tracers.get_tracer("glasscache")
    durations = None
    if meters is not None:
        durations = meters.get_meter("glasscache").create_histogram(
            "db.client.operation.duration", unit="s", description="Duration of cache operations."
        )
    _wrap(client, lambda name, call: _observed(name, call, tracer, durations, keys))
    return True


def _set_up(provider: Any, stand_in: str) -> Any:
    """Return the provider, or None when it is the API's stand-in for none."""
    return (
        None
        if type(provider).__name__ in {stand_in, "NoOpTracerProvider", "NoOpMeterProvider"}
        else provider
    )


def log_slow_calls(
    client: Any, *, threshold: float = 0.05, keys: bool = False, logger: logging.Logger = _log
) -> None:
    """Log each call that takes longer than `threshold` seconds: a warning with what and how long."""

    def observe(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(begin: float, args: tuple[Any, ...], error: BaseException | None) -> None:
            took = time.perf_counter() - begin
            if took >= threshold:
                what = f" {_shown(args)}" if keys else _width(name, args)
                end = f", {type(error).__name__}" if error else ""
                logger.warning("slow call: %s%s took %.1f ms%s", name, what, took * 1e3, end)

        return _around(
            call,
            lambda args, _: (time.perf_counter(), args),
            lambda state, _, error: slow(state[0], state[1], error),
        )

    _wrap(client, observe)


def _width(name: str, args: tuple[Any, ...]) -> str:
    return (
        f" of {len(args[0])} keys"
        if name in _BATCHES and args and isinstance(args[0], Sized)
        else ""
    )


def _shown(args: tuple[Any, ...]) -> str:
    return repr(args[0])[:200] if args else ""


def _wrap(client: Any, observe: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    for name in _METHODS:
        call = getattr(client, name, None)
        if call is not None:
            setattr(client, name, observe(name, call))


def _around(
    call: Callable[..., Any],
    before: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    after: Callable[[Any, Any, BaseException | None], None],
) -> Callable[..., Any]:
    """Return the call between two others, awaited if it is a coroutine function."""
    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            state = before(args, kwargs)
            try:
                result = await call(*args, **kwargs)
            except BaseException as error:
                after(state, None, error)
                raise
            after(state, result, None)
            return result

        return awaited

    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        state = before(args, kwargs)
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            after(state, None, error)
            raise
        after(state, result, None)
        return result

    return called


def _observed(
    name: str, call: Callable[..., Any], tracer: Any, durations: Any, keys: bool
) -> Callable[..., Any]:
    from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415 - likewise

    operation = (
        f"BATCH {name.removesuffix('_many')}" if name in _BATCHES else name.removesuffix("_by")
    )
    common = {"db.system.name": "memcached", "db.operation.name": operation}

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, float, Any]:
        span = (
            None
            if tracer is None
            else tracer.start_span(operation, kind=SpanKind.CLIENT, attributes=common)
        )
        if span is not None and span.is_recording():
            if name in _BATCHES and args and isinstance(args[0], Sized):
                span.set_attribute("db.operation.batch.size", len(args[0]))
            if keys and args:
                span.set_attribute("db.query.text", f"{name} {_shown(args)}")
                span.set_attribute("cache.key", _shown(args))
        place = _DEFAULT_PLACE.get(name, len(args))
        default = args[place] if place < len(args) else kwargs.get("default")
        return span, time.perf_counter(), default

    def after(state: tuple[Any, float, Any], result: Any, error: BaseException | None) -> None:
        span, begin, default = state
        attributes = common if error is None else {**common, "error.type": type(error).__qualname__}
        if durations is not None:
            durations.record(time.perf_counter() - begin, attributes)
        if span is None:
            return
        if span.is_recording():
            if error is None:
                _describe(span, name, result, default)
            else:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(StatusCode.ERROR)
        span.end()

    return _around(call, before, after)


def _describe(span: Any, name: str, result: Any, default: Any) -> None:
    is_hit = result is not default
    if name in _READS:
        span.set_attribute("glasscache.hit", is_hit)
        span.set_attribute("cache.hit", is_hit)
    if is_hit and isinstance(result, str | bytes):
        span.set_attribute("cache.item_size", len(result))
    if name == "get_many" and isinstance(result, Sized):
        span.set_attribute("glasscache.hit.count", len(result))
