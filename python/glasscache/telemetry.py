"""OpenTelemetry spans and metrics, and a log of slow calls, free until they are switched on.

`instrument(client)` replaces the client's public methods, on this one object, by traced ones; with
no provider set up it leaves the object alone. A span is made when its call has ended, with all its
attributes at once, and only if it can be exported: the SDK takes longer to make one than the cache
to reply (docs/decisions/python.md, 0061). Names follow the semantic conventions for
databases (`db.system.name` = memcached); a hit is `glasscache.hit`, sizes and names as Sentry reads
them (`cache.*`). Keys are personal data and are left out by default. Only the API package is
imported, and only here.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Iterator, Sized
from typing import TYPE_CHECKING, Any

from glasscache._call_observer import (
    CallObserver,
    FinishedCall,
    ObserverSettings,
    report_calls,
)
from glasscache._requests import BULK_METHODS, READ_METHODS

if TYPE_CHECKING:
    from typing import Final

_log = logging.getLogger("glasscache.slow")

_NOOP_PROVIDERS: Final = frozenset(
    {"ProxyTracerProvider", "_ProxyMeterProvider", "NoOpTracerProvider", "NoOpMeterProvider"}
)
"""What the API gives while no provider is set up."""


def instrument(
    client: Any,
    *,
    tracer_provider: Any = None,
    meter_provider: Any = None,
    keys: bool = False,
    slower_than: float = 0.0,
    sample: float = 0.0,
) -> bool:
    """Make a client's calls spans and durations; return whether there is a provider to do it for.

    Inside a trace that is not sampled, and while the provider has no processor, no span is made.

    Args:
        client: a `Client` or an `AsyncClient`.
        tracer_provider: makes the spans; None takes the global one.
        meter_provider: takes durations, and the counters of `stats()`; None takes the global one.
        keys: put keys into `db.query.text` and `cache.key`.
        slower_than: seconds; a faster call that did not fail gets no span. 0 gives one to every call.
        sample: the share, 0 to 1, of faster calls that get a span all the same.

    """
    from opentelemetry import metrics, trace  # noqa: PLC0415 - it is optional

    usable_tracer_provider = _provider_or_none(tracer_provider or trace.get_tracer_provider())
    usable_meter_provider = _provider_or_none(meter_provider or metrics.get_meter_provider())
    if usable_tracer_provider is None and usable_meter_provider is None:
        return False
    if usable_meter_provider is not None:
        meter = usable_meter_provider.get_meter("glasscache")
        durations = meter.create_histogram(
            "db.client.operation.duration", unit="s", description="Duration of cache operations."
        )
        _observe_counters(client, meter)
        report_calls(
            client,
            ObserverSettings(functools.partial(_duration_observer, durations), _never_disabled),
        )
    if usable_tracer_provider is not None:
        spans = _Spans(client, usable_tracer_provider.get_tracer("glasscache"), keys)
        report_calls(
            client,
            ObserverSettings(
                spans.observer_for,
                _is_disabled_function(usable_tracer_provider),
                int(slower_than * 1e9),
                sample,
            ),
        )
    return True


def _provider_or_none(provider: Any) -> Any:
    """Return the provider, or None when it is the API's default."""
    return None if type(provider).__name__ in _NOOP_PROVIDERS else provider


def _never_disabled() -> bool:
    return False


def _is_disabled_function(tracer_provider: Any) -> Callable[[], bool]:
    """Return a function: would every span be dropped? Only the SDK's provider knows; for another, no."""
    processor: Any = getattr(tracer_provider, "_active_span_processor", None)
    if not hasattr(processor, "_span_processors"):
        return _never_disabled
    return lambda: not processor._span_processors  # noqa: SLF001 - the SDK has no other way to query it


def _base_attributes_of(name: str) -> dict[str, Any]:
    operation = (
        f"BATCH {name.removesuffix('_many')}" if name in BULK_METHODS else name.removesuffix("_by")
    )
    return {"db.system.name": "memcached", "db.operation.name": operation}


def _duration_observer(durations: Any, name: str) -> CallObserver:
    base_attributes = _base_attributes_of(name)

    def report(finished_call: FinishedCall) -> None:
        attributes = base_attributes
        if finished_call.error is not None:
            attributes = {**base_attributes, "error.type": type(finished_call.error).__qualname__}
        durations.record(finished_call.seconds, attributes)

    return report


def _observe_counters(client: Any, meter: Any) -> None:
    """Let a meter read the client's counters, under the names that `report().prometheus()` has too."""
    from opentelemetry.metrics import Observation  # noqa: PLC0415 - likewise

    from glasscache._metrics import CONNECTIONS, METRICS, read_samples  # noqa: PLC0415 - likewise

    client_ref = weakref.ref(client)

    def observe_one(metric: Any, _options: Any) -> Iterator[Any]:
        live_client = client_ref()
        for sample in read_samples(live_client.stats()) if live_client else ():
            if sample.metric is metric:
                yield Observation(sample.value, sample.labels)

    def observe_connections(_options: Any) -> Iterator[Any]:
        live_client = client_ref()
        for sample in read_samples(live_client.stats()) if live_client else ():
            if sample.metric is CONNECTIONS:
                attributes = {
                    "db.client.connection.pool.name": sample.labels["server"],
                    "db.client.connection.state": sample.labels["state"],
                }
                yield Observation(sample.value, attributes)

    for metric in METRICS:
        create = (
            meter.create_observable_counter if metric.is_counter else meter.create_observable_gauge
        )
        create(
            metric.name,
            callbacks=[functools.partial(observe_one, metric)],
            unit=metric.unit,
            description=metric.description,
        )
    meter.create_observable_up_down_counter(
        "db.client.connection.count",
        callbacks=[observe_connections],
        unit="{connection}",
        description="Connections to each server.",
    )


class _Spans:
    """Makes a span of each ended call that deserves one."""

    def __init__(self, client: Any, tracer: Any, keys: bool) -> None:
        from opentelemetry.trace import SpanKind, StatusCode, get_current_span  # noqa: PLC0415

        self._client, self._tracer, self._includes_keys = client, tracer, keys
        self._span_kind, self._error_status, self._get_current_span = (
            SpanKind.CLIENT,
            StatusCode.ERROR,
            get_current_span,
        )
        # A parent-based sampler drops what belongs to a trace that is not sampled.
        self._follows_parent = type(getattr(tracer, "sampler", None)).__name__.startswith("Parent")

    def observer_for(self, name: str) -> CallObserver:
        """Return what makes spans of one method's calls."""
        base_attributes = _base_attributes_of(name)

        def report(finished_call: FinishedCall) -> None:
            if self._follows_parent:
                parent_context = self._get_current_span().get_span_context()
                if parent_context.is_valid and not parent_context.trace_flags.sampled:
                    return
            self._make_span(base_attributes, finished_call)

        return report

    def _make_span(self, base_attributes: dict[str, Any], finished_call: FinishedCall) -> None:
        attributes = {**base_attributes, **self._call_attributes(finished_call)}
        span = self._tracer.start_span(
            base_attributes["db.operation.name"],
            kind=self._span_kind,
            attributes=attributes,
            start_time=finished_call.began_ns,
        )
        if finished_call.error is not None:
            span.set_status(self._error_status)
        span.end(finished_call.ended_ns)

    def _call_attributes(self, finished_call: FinishedCall) -> dict[str, Any]:
        attributes: dict[str, Any] = self._server_attributes(finished_call)
        key_count = finished_call.key_count
        if key_count is not None:
            attributes["db.operation.batch.size"] = key_count
        if self._includes_keys:
            attributes["db.query.text"] = f"{finished_call.name} {finished_call.display_key}"
            attributes["cache.key"] = finished_call.display_key
        if finished_call.error is not None:
            attributes["error.type"] = type(finished_call.error).__qualname__
            return attributes
        if finished_call.name in READ_METHODS:
            attributes["glasscache.hit"] = attributes["cache.hit"] = finished_call.is_hit
        if isinstance(finished_call.result, str | bytes) and finished_call.is_hit:
            attributes["cache.item_size"] = len(finished_call.result)
        if finished_call.name == "get_many" and isinstance(finished_call.result, Sized):
            attributes["glasscache.hit.count"] = len(finished_call.result)
        return attributes

    def _server_attributes(self, finished_call: FinishedCall) -> dict[str, Any]:
        """Where the call went; a bulk call may go to many."""
        server_name = getattr(finished_call.error, "server", "")
        if not server_name and finished_call.name not in BULK_METHODS and finished_call.args:
            try:
                server_name = self._server_of(finished_call.args[0])
            except Exception:  # noqa: BLE001 - a key that cannot be sent goes nowhere
                return {}
        if not server_name:
            return {}
        if server_name.startswith("/"):
            return {"server.address": server_name}
        host, _, port = server_name.rpartition(":")
        return {"server.address": host.strip("[]"), "server.port": int(port)}

    def _server_of(self, key: Any) -> str:
        return str(self._client.server_of(key))


def log_slow_calls(
    client: Any, *, threshold: float = 0.05, keys: bool = False, logger: logging.Logger = _log
) -> None:
    """Log each call that takes longer than `threshold` seconds: a warning with what and how long."""

    def report(finished_call: FinishedCall) -> None:
        seconds = finished_call.seconds
        if seconds >= threshold:  # a call that failed comes here however fast it was
            width_text = (
                "" if finished_call.key_count is None else f" of {finished_call.key_count} keys"
            )
            key_text = f" {finished_call.display_key}" if keys else width_text
            error_text = f", {type(finished_call.error).__name__}" if finished_call.error else ""
            logger.warning(
                "slow call: %s%s took %.1f ms%s",
                finished_call.name,
                key_text,
                seconds * 1e3,
                error_text,
            )

    def observer_for(_name: str) -> CallObserver:
        return report

    report_calls(client, ObserverSettings(observer_for, _never_disabled, int(threshold * 1e9)))
