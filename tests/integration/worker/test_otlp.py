"""Traces of a command line's workers, as a collector gets them: spans of two processes on real Kafka, over OTLP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind

from tests.integration.worker.application import PARTITIONS, UNDISTURBED, Cluster, until
from tests.otlp_receiver import ReceivedSpan, otlp_receiver

RECORDS = 40
NAMES = {
    value
    for module in (messaging_attributes, error_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
"""The attributes that OpenTelemetry's conventions know."""
TYPES = {v.value for v in messaging_attributes.MessagingOperationTypeValues}
TOPOLOGY = """
import penstock as ps

builder = ps.StreamsBuilder("traced", value=str)
builder.stream({source!r}).group_by(lambda key, value: value[-1:]).count(name="n").to_stream().to({out!r})
topology = builder.build()
"""


def worker(folder: Path, name: str, servers: str, application_id: str, endpoint: str) -> subprocess.Popen[bytes]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "PENSTOCK_"))}
    command = [sys.executable, "-m", "penstock.streams.cli.main", "worker", "traced:topology", "--tracing", "otel"]
    settings = {
        "APPLICATION_ID": application_id,
        "BOOTSTRAP_SERVERS": servers,
        "GUARANTEE": "exactly_once",
        "STATE_DIR": str(folder / name),
        "COMMIT_INTERVAL_MS": "50",
        **{name.upper(): str(value) for name, value in UNDISTURBED.items()},
    }
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={
                **env,
                **{f"PENSTOCK_{k}": v for k, v in settings.items()},
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_BSP_SCHEDULE_DELAY": "200",
            },
            stderr=log,
        )


def path_of(span: ReceivedSpan, spans: dict[bytes, ReceivedSpan]) -> list[str]:
    """The names from a span up to the writer's, whose id stands for it."""
    path = [span.span.name]
    while span.span.parent_span_id in spans:
        span = spans[span.span.parent_span_id]
        path.append(span.span.name)
    return [*path, span.span.parent_span_id.hex()]


@pytest.mark.integration
def test_a_collector_gets_each_record_s_way_through_two_workers(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "otlp")
    source, out = cluster.create("in"), cluster.create("out")
    (tmp_path / "traced.py").write_text(TOPOLOGY.format(source=source, out=out))
    processes: list[subprocess.Popen[bytes]] = []
    with otlp_receiver() as receiver:
        try:
            for name in ("one", "two"):
                processes.append(
                    worker(tmp_path, name, kafka, cluster.name, receiver.endpoint),
                )
            until(
                "both have tasks",
                lambda: all("Task has caught up" in (tmp_path / f"{n}.log").read_text() for n in ("one", "two")),
            )
            cluster.write(
                source,
                [b"v%d" % n for n in range(RECORDS)],
                keys=[b"k%d" % n for n in range(RECORDS)],
                headers=[(("traceparent", b"00-%032x-%016x-01" % (n + 1, n + 1)),) for n in range(RECORDS)],
            )
            until("the outputs", lambda: len(cluster.read(out)) == RECORDS)
            for process in processes:
                process.send_signal(signal.SIGTERM)
            assert [process.wait() for process in processes] == [0, 0]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        received = receiver.spans()
    logs = "".join((tmp_path / f"{name}.log").read_text() for name in ("one", "two"))
    assert "penstock.traces" not in logs, logs

    spans = {span.span.span_id: span for span in received}
    last = [span for span in received if span.span.name == f"send {out}"]
    between = last and path_of(last[0], spans)[1].removeprefix("process ")
    way = [f"send {out}", f"process {between}", f"send {between}", f"process {source}"]
    assert sorted(path_of(span, spans) for span in last) == [[*way, f"{n + 1:016x}"] for n in range(RECORDS)]
    assert all(span.span.trace_id.hex() == f"{int(path_of(span, spans)[-1], 16):032x}" for span in last)
    assert Counter(span.span.name for span in received if span.span.name != "commit") == dict.fromkeys(way, RECORDS)

    assert {span.resource["service.name"] for span in received} == {cluster.name}
    assert len({span.resource["service.instance.id"] for span in received}) == 2
    kinds = {"send": SpanKind.PRODUCER, "process": SpanKind.CONSUMER, "commit": SpanKind.CLIENT}
    for span in received:
        found = span.attributes
        assert {name for name in found if not name.startswith("penstock.")} <= NAMES
        operation = found["messaging.operation.name"]
        assert span.span.name == " ".join([operation, *filter(None, [found.get("messaging.destination.name")])])
        assert found["messaging.operation.type"] in TYPES
        assert span.span.kind == kinds[operation].value + 1  # the protocol begins with "unspecified"
        assert found["messaging.system"] == "kafka"
    first = [span.attributes for span in received if span.span.name == f"process {source}"]
    places = {(w.partition, w.offset) for w in cluster.read(source)}
    assert {(int(a["messaging.destination.partition.id"]), a["messaging.kafka.offset"]) for a in first} == places
    assert {a["messaging.consumer.group.name"] for a in first} == {cluster.name}
    assert len(places) == RECORDS and len({partition for partition, _ in places}) == PARTITIONS
