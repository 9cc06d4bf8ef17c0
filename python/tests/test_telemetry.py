"""Spans, durations and the slow-call log; and no work while no one listens."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from glasscache import AsyncClient, BadKey, Client, Server, ServerUnavailable
from glasscache.telemetry import instrument, log_slow_calls
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    use_span,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def client_of_test(glasscache_server: Server) -> Iterator[Client]:
    """A client that a test may wrap."""
    with Client(glasscache_server.address, timeout=5.0) as client:
        yield client


def _provider_and_exporter() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def _span_attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_without_a_provider_the_client_is_left_alone(client_of_test: Client) -> None:
    attributes_before = dict(vars(client_of_test))
    assert not instrument(client_of_test)
    assert vars(client_of_test) == attributes_before


def test_a_call_is_a_span_with_hit_and_size_and_without_its_key(client_of_test: Client) -> None:
    provider, exporter = _provider_and_exporter()
    assert instrument(client_of_test, tracer_provider=provider)
    client_of_test.set("secret", b"12345")
    assert client_of_test.get("secret") == b"12345"
    assert client_of_test.get("missing", b"default") == b"default"
    set_span, hit_span, miss_span = exporter.get_finished_spans()
    assert [span.name for span in (set_span, hit_span, miss_span)] == ["set", "get", "get"]
    assert all(span.kind is SpanKind.CLIENT for span in (set_span, hit_span, miss_span))
    host, _, port = client_of_test.server_of("secret").rpartition(":")
    assert _span_attributes(hit_span) == {
        "server.address": host,
        "server.port": int(port),
        "db.system.name": "memcached",
        "db.operation.name": "get",
        "glasscache.hit": True,
        "cache.hit": True,
        "cache.item_size": 5,
    }
    assert _span_attributes(miss_span)["cache.hit"] is False
    assert "cache.item_size" not in _span_attributes(miss_span)
    assert "secret" not in str([span.to_json() for span in exporter.get_finished_spans()])


def test_no_span_is_made_without_a_processor_and_spans_start_when_one_is_added(
    client_of_test: Client,
) -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    assert instrument(client_of_test, tracer_provider=provider)
    client_of_test.get("k")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    client_of_test.get("k")
    assert len(exporter.get_finished_spans()) == 1


def test_with_sampling_only_slow_failed_and_sampled_calls_are_spans(client_of_test: Client) -> None:
    provider, exporter = _provider_and_exporter()
    instrument(client_of_test, tracer_provider=provider, slower_than=60)
    client_of_test.get("k")
    assert not exporter.get_finished_spans()
    with pytest.raises(BadKey):
        client_of_test.get("a key")
    assert [span.name for span in exporter.get_finished_spans()] == ["get"]
    with Client(client_of_test.server_of("k")) as sampled_client:
        instrument(sampled_client, tracer_provider=provider, slower_than=60, sample=1.0)
        sampled_client.get("k")
    assert len(exporter.get_finished_spans()) == 2


def test_a_call_follows_the_trace_around_it(client_of_test: Client) -> None:
    provider, exporter = _provider_and_exporter()
    instrument(client_of_test, tracer_provider=provider)
    tracer = provider.get_tracer("around")
    with tracer.start_as_current_span("page") as page_span:
        client_of_test.get("k")
    call_span = exporter.get_finished_spans()[0]
    assert call_span.parent is not None
    assert call_span.parent.span_id == page_span.get_span_context().span_id
    unsampled_span = NonRecordingSpan(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(0)))
    exporter.clear()
    with use_span(unsampled_span):
        client_of_test.get("k")
    assert not exporter.get_finished_spans()


def test_a_bulk_call_reports_its_width_and_its_keys_if_configured(client_of_test: Client) -> None:
    provider, exporter = _provider_and_exporter()
    instrument(client_of_test, tracer_provider=provider, keys=True)
    client_of_test.set_many({"a": 1, "b": 2})
    client_of_test.get_many(["a", "b", "never"])
    client_of_test.get("a")
    set_span, bulk_get_span, single_get_span = exporter.get_finished_spans()
    assert (set_span.name, bulk_get_span.name) == ("BATCH set", "BATCH get")
    assert _span_attributes(bulk_get_span)["db.operation.batch.size"] == 3
    assert _span_attributes(bulk_get_span)["glasscache.hit.count"] == 2
    assert _span_attributes(single_get_span)["cache.key"] == "'a'"


def test_a_failure_is_an_error_on_its_span_and_is_raised() -> None:
    provider, exporter = _provider_and_exporter()
    with Client("127.0.0.1:1", timeout=0.2) as client:
        instrument(client, tracer_provider=provider)
        with pytest.raises(ServerUnavailable):
            client.get("k")
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert _span_attributes(span)["error.type"] == "ServerUnavailable"


def test_durations_are_a_histogram_by_operation(client_of_test: Client) -> None:
    reader = InMemoryMetricReader()
    instrument(client_of_test, meter_provider=MeterProvider([reader]))
    client_of_test.set("k", 1)
    for _ in range(3):
        client_of_test.get("k")
    metrics_data = reader.get_metrics_data()
    assert metrics_data is not None
    metrics = {
        metric.name: metric for metric in metrics_data.resource_metrics[0].scope_metrics[0].metrics
    }
    metric = metrics["db.client.operation.duration"]
    assert metric.unit == "s"
    counts = {
        str((point.attributes or {})["db.operation.name"]): getattr(point, "count", 0)
        for point in metric.data.data_points
    }
    assert counts == {"set": 1, "get": 3}
    connections = {
        str((point.attributes or {})["db.client.connection.state"]): getattr(point, "value", None)
        for point in metrics["db.client.connection.count"].data.data_points
    }
    assert connections == {"idle": 1, "used": 0}
    calls = {
        str((point.attributes or {})["operation"]): getattr(point, "value", None)
        for point in metrics["glasscache.client.calls"].data.data_points
    }
    assert calls == {"read": 3, "write": 1}
    # Prometheus has the same under the names that its exporters make of these.
    text = client_of_test.report().prometheus({"job": "web"})
    assert 'glasscache_client_calls_total{job="web",operation="read",bytes_from="0"} 3' in text
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    observed = {name for name in metrics if name.startswith("glasscache.")}
    names.discard("glasscache_client_network_duration_seconds")
    suffix = re.compile("(_seconds|_bytes)?(_total)?$")
    assert {suffix.sub("", name) for name in names} == {name.replace(".", "_") for name in observed}


def test_the_report_is_valid_prometheus_text(glasscache_server: Server) -> None:
    with Client(glasscache_server.address, timeout=5.0) as client:
        client.set("k", b"x" * 5000)
        client.get_many(["k", "missing"])
        text = client.report().prometheus({"app": 'a "b"\\\n'})
    assert text.endswith("\n")
    assert 'app="a \\"b\\"\\\\\\n"' in text
    buckets = [
        int(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("glasscache_client_network_duration_seconds_bucket") and '"bulk"' in line
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 1
    if promtool := shutil.which("promtool"):
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr


def test_awaited_calls_are_spans_over_the_whole_wait(glasscache_server: Server) -> None:
    provider, exporter = _provider_and_exporter()

    async def run() -> None:
        async with AsyncClient(glasscache_server.address, timeout=5.0) as client:
            instrument(client, tracer_provider=provider)
            await asyncio.gather(*(client.set(f"k{number}", number) for number in range(3)))
            assert await client.get("k2") == 2

    asyncio.run(run())
    spans = exporter.get_finished_spans()
    assert sorted(span.name for span in spans) == ["get", "set", "set", "set"]
    assert all((span.end_time or 0) > (span.start_time or 0) for span in spans)


def test_awaited_calls_of_a_recorded_client_are_spans_over_the_whole_wait(
    glasscache_server: Server, tmp_path: Path
) -> None:
    provider, exporter = _provider_and_exporter()

    async def run() -> None:
        async with AsyncClient(glasscache_server.address, timeout=5.0) as client:
            await client.set("recorded", b"x")
            recorder = client.recorder(tmp_path)
            instrument(client, tracer_provider=provider)
            assert await client.get("recorded") == b"x"
            with recorder.request():
                assert await client.get("recorded") == b"x"
            assert recorder.close()

    asyncio.run(run())
    spans = exporter.get_finished_spans()
    assert [_span_attributes(span)["cache.hit"] for span in spans] == [True, True]


def test_slow_calls_are_logged_with_their_width_and_without_keys(
    client_of_test: Client, caplog: pytest.LogCaptureFixture
) -> None:
    log_slow_calls(client_of_test, threshold=0.0)
    with caplog.at_level(logging.WARNING, "glasscache.slow"):
        client_of_test.get_many(["secret", "b"])
        client_of_test.get("secret")
    first_message, second_message = (record.getMessage() for record in caplog.records)
    assert first_message.startswith("slow call: get_many of 2 keys took ")
    assert second_message.startswith("slow call: get took ")


def test_a_call_within_the_threshold_is_not_logged(
    client_of_test: Client, caplog: pytest.LogCaptureFixture
) -> None:
    log_slow_calls(client_of_test, threshold=60.0)
    client_of_test.get("k")
    assert not caplog.records
