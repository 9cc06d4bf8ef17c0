"""A client's counters as metrics: one table of names for Prometheus and OpenTelemetry.

Names are OpenTelemetry's; Prometheus gets them as its exporters translate them, with the unit and
`_total`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Final


class Metric(NamedTuple):
    """One metric of a client."""

    name: str
    """As OpenTelemetry names it."""
    is_counter: bool
    unit: str
    """`s`, `By`, or a thing in braces."""
    description: str


class Sample(NamedTuple):
    """One value of a metric."""

    metric: Metric
    labels: Mapping[str, str]
    value: float


_CALLS: Final = Metric("glasscache.client.calls", True, "{call}", "Calls, by kind and size.")
_BYTES: Final = Metric(
    "glasscache.client.transferred", True, "By", "Bytes of values on the wire, by kind and size."
)
_TIME: Final = Metric(
    "glasscache.client.call.time", True, "s", "Time of the parts of calls, by kind and size."
)
CONNECTIONS: Final = Metric(
    "glasscache.client.connections", False, "{connection}", "Connections to each server."
)
_UP: Final = Metric("glasscache.client.server.up", False, "1", "1 unless a server counts as down.")
_OF_CLIENT: Final = {
    "misses_by_error": Metric(
        "glasscache.client.misses_by_error", True, "{key}", "Keys that missed because of an error."
    ),
    "near_hits": Metric(
        "glasscache.client.near_hits", True, "{read}", "Reads that the near cache served."
    ),
    "fills_not_stored": Metric(
        "glasscache.client.fills_not_stored", True, "{fill}", "Made values that were not stored."
    ),
    "incomplete_values": Metric(
        "glasscache.client.incomplete_values", True, "{value}", "Split values with parts missing."
    ),
}
_OF_SERVER: Final = {
    "faults": Metric("glasscache.client.server.faults", True, "{fault}", "Failures of a server."),
    "times_down": Metric(
        "glasscache.client.server.times_down", True, "{time}", "Times a server counted as down."
    ),
}

METRICS: Final = (
    _CALLS,
    _BYTES,
    _TIME,
    CONNECTIONS,
    _UP,
    *_OF_CLIENT.values(),
    *_OF_SERVER.values(),
)

_DURATION: Final = "glasscache_client_network_duration_seconds"
"""A histogram, for Prometheus alone: OpenTelemetry has `db.client.operation.duration`."""


def read_samples(stats: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield the values of a client's `stats()`."""
    for labels, row in _call_rows(stats):
        yield Sample(_CALLS, labels, row["calls"])
        yield Sample(_BYTES, labels, row["bytes"])
        for part, seconds in row["seconds"].items():
            yield Sample(_TIME, {**labels, "part": part}, seconds)
    for name, metric in _OF_CLIENT.items():
        if name in stats:
            yield Sample(metric, {}, stats[name])
    for server, row in stats["servers"].items():
        yield Sample(_UP, {"server": server}, 0 if row["is_down"] else 1)
        for name, metric in _OF_SERVER.items():
            yield Sample(metric, {"server": server}, row[name])
        if "idle" in row:
            states = {"idle": row["idle"], "used": row["connections"] - row["idle"]}
            for state, count in states.items():
                yield Sample(CONNECTIONS, {"server": server, "state": state}, count)


def _call_rows(stats: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], Mapping[str, Any]]]:
    """Yield the labels and the counters of each kind of call that was made."""
    for row in stats["by_size"]:
        if row["calls"]:
            labels = {"operation": row["operation"], "bytes_from": str(row["bytes_from"])}
            yield labels, row
    for row in stats["by_width"]:
        if row["calls"]:
            yield {"operation": "bulk", "keys_from": str(row["keys_from"])}, row


def format_prometheus(stats: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return the counters in the text format of Prometheus, version 0.0.4."""
    samples_by_metric: dict[Metric, list[Sample]] = {}
    for sample in read_samples(stats):
        samples_by_metric.setdefault(sample.metric, []).append(sample)
    lines: list[str] = []
    for metric, samples in samples_by_metric.items():
        name = _prometheus_name(metric)
        lines += _head(name, "counter" if metric.is_counter else "gauge", metric.description)
        lines += [_line(name, {**labels, **sample.labels}, sample.value) for sample in samples]
    lines += _duration_lines(stats, labels)
    return "\n".join([*lines, ""])


def _prometheus_name(metric: Metric) -> str:
    unit = {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
    total = "_total" if metric.is_counter else ""
    return metric.name.replace(".", "_") + unit + total


def _duration_lines(stats: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the histogram of the time in network and server, by kind of call.

    Its bounds are powers of two of a microsecond.
    """
    counts_by_operation: dict[str, list[int]] = {}
    seconds_by_operation: dict[str, float] = {}
    for row_labels, row in _call_rows(stats):
        operation, counts = row_labels["operation"], row["latency_us_log2"]
        earlier = counts_by_operation.get(operation, [0] * len(counts))
        counts_by_operation[operation] = [a + b for a, b in zip(earlier, counts, strict=True)]
        seconds = row["seconds"]["network+server"]
        seconds_by_operation[operation] = seconds_by_operation.get(operation, 0.0) + seconds
    if counts_by_operation:
        yield from _head(_DURATION, "histogram", "Time of calls in network and server.")
    for operation, counts in counts_by_operation.items():
        operation_labels = {**labels, "operation": operation}
        count_so_far = 0
        # The last bucket has no bound.
        for exponent, count in enumerate(counts[:-1]):
            count_so_far += count
            bucket_labels = {**operation_labels, "le": repr(2**exponent / 1e6)}
            yield _line(f"{_DURATION}_bucket", bucket_labels, count_so_far)
        yield _line(f"{_DURATION}_bucket", {**operation_labels, "le": "+Inf"}, sum(counts))
        yield _line(f"{_DURATION}_sum", operation_labels, seconds_by_operation[operation])
        yield _line(f"{_DURATION}_count", operation_labels, sum(counts))


def _head(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {value!r}" if pairs else f"{name} {value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
