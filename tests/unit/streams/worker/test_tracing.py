"""Where spans go: what the environment decides, and what the log says when no collector takes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.semconv import schemas
from opentelemetry.trace import StatusCode

from penstock.state.errors import SettingsError
from penstock.streams.worker import tracing
from penstock.streams.worker.record_spans import OPEN_MAX, SCHEMA_URL
from penstock.streams.worker.tracing import open_spans
from tests.integration.worker.application import until
from tests.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.unit.streams.worker.test_record_spans import IN, TRACED, Spans, chunk, spans

__all__ = ["spans"]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    for name in (
        "OTEL_SERVICE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_BSP_MAX_QUEUE_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")  # none ends while the machine stalls
    monkeypatch.setattr(tracing, "CLOSE_TIMEOUT_S", 300.0)
    with otlp_receiver() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        yield made


def trace(records: int = 1, at: int = 0) -> None:
    """Records that are read, answered and committed by an application ``app``, each with two spans."""
    made, close = open_spans("otel", "app")
    assert made is not None
    send(made, records, at)
    close()


def send(made: tracing.RecordSpans, records: int, at: int = 0) -> None:
    made.received(chunk(*[TRACED] * records, offset=at))
    for _ in range(records):
        made.sent("out", [TRACED])
    made.committed({IN: at + records})
    made.close()


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, "app"),
        ({"OTEL_SERVICE_NAME": "billing"}, "billing"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop,deployment.environment.name=test"}, "shop"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop", "OTEL_SERVICE_NAME": "billing"}, "billing"),
    ],
)
def test_the_service_has_the_name_that_the_environment_gives_it_else_the_applications(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], name: str
) -> None:
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    trace()
    assert {span.resource["service.name"] for span in receiver.spans()} == {name}
    assert {span.schema_url for span in receiver.spans()} == {SCHEMA_URL}
    assert SCHEMA_URL in {s.value for s in schemas.Schemas}


def test_no_span_of_a_large_commit_is_dropped(receiver: OtlpReceiver) -> None:
    trace(OPEN_MAX)
    assert sorted(span.span.name for span in receiver.spans()) == ["process in"] * (OPEN_MAX) + ["send out"] * (
        OPEN_MAX
    )


def test_another_protocol_is_refused(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(SettingsError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL=grpc, but spans are exported by http"):
        open_spans("otel", "app")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    trace()
    assert len(receiver.spans()) == 2


def test_a_collector_that_takes_none_is_one_line_and_its_return_another(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 400
    with caplog.at_level(logging.INFO):
        made, close = open_spans("otel", "app")
        assert made is not None
        for n in range(3):
            send(made, 1, n)
            until("a batch is dropped", lambda n=n: exporter(made).dropped >= 2 * n + 2)
        receiver.status = 200
        send(made, 1, 3)
        until("the spans are there", lambda: len(receiver.spans()) == 2 and not exporter(made).dropped)
        close()
    away, again = caplog.messages
    assert away.startswith(f"Spans cannot be exported to {receiver.endpoint}/v1/traces and are dropped, ")
    assert "so far: code: 400, reason: Bad Request. Records go on. See that a collector" in away
    assert again.startswith("Spans are exported again; 6 were dropped in ")
    assert {record.name for record in caplog.records} == {"penstock.traces"}


def exporter(made: tracing.RecordSpans) -> tracing.ReportedExporter:
    processor: Any = made._tracer.span_processor  # type: ignore[attr-defined]  # the SDK's tracer has it
    found = processor._span_processors[0].span_exporter
    assert isinstance(found, tracing.ReportedExporter)
    return found


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "Transient error HTTPConnectionPool(host='::1', port=1): Max retries exceeded with url: /v1/traces (Caused by "
            "NewConnectionError(\"HTTPConnection(host='::1', port=1): Failed to establish a new connection: [Errno 111] "
            'Connection refused")) encountered while exporting spans batch, retrying in 1.10s.',
            "Connection refused",
        ),
        ("Failed to export spans batch due to timeout, max retries or shutdown.", "it did not take them in time"),
        ("Failed to export spans batch code: 401, reason: Unauthorized", "code: 401, reason: Unauthorized"),
    ],
)
def test_the_line_has_the_cause_in_a_few_words(said: str, cause: str) -> None:
    assert tracing.cause_of(said) == cause


def test_a_collector_that_does_not_answer_does_not_hold_up_the_end(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_TIMEOUT_S", 0.2)
    receiver.answers.clear()
    with caplog.at_level(logging.INFO):
        trace(3_000)
    assert caplog.messages == ["The last spans are dropped: the collector has not taken them within 0.2 s."]


def test_a_failed_span_has_the_class_of_its_error_as_the_conventions_say(spans: Spans) -> None:
    made = tracing.RecordSpans(spans.provider, "app")
    made.received(chunk(TRACED))
    made.sent("out", [TRACED])
    made.placed(IN, 0)
    span = spans.one("process in")
    assert span.attributes is not None and span.attributes["error.type"] == "not_committed"
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "not committed; the record is read again"
