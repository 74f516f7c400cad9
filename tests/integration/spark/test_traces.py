"""A traced worker on real Kafka: its spans, its outputs, and Spark's agreement with both."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import SparkSession

import penstock as ps
from penstock.state.log import Headers
from penstock.streams.ports.record_traces import traceparent_of
from penstock.streams.spark import Connection, verify
from penstock.topologies.graph.topology import Topology
from tests.integration.spark.live import Live
from tests.integration.worker.application import Cluster, until

RECORDS = 60


def headers_of(n: int) -> Headers:
    """Every third record is traced, by a trace and a span of its own."""
    return (("traceparent", b"00-%032x-%016x-01" % (n + 1, n + 1)),) if n % 3 == 0 else ()


@pytest.mark.integration
def test_a_traced_worker_writes_what_spark_computes_except_for_the_ids_of_spans(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    source, out = live.topic("in"), live.topic("out")
    live.create(2, source, out)

    def build() -> Topology:
        b = ps.StreamsBuilder("traced", value=str)
        b.stream(source).group_by(lambda key, value: value[-1:]).count(name="n").to_stream().to(out)
        return b.build()

    cluster = Cluster(live.bootstrap_servers, "traced")
    places = range(RECORDS)
    cluster.write(
        source,
        [b"v%d" % n for n in places],
        keys=[b"k%d" % (n % 5) for n in places],
        headers=[headers_of(n) for n in places],
    )
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = ps.WorkerSettings(
        application_id=live.application_id,
        bootstrap_servers=live.bootstrap_servers,
        state_dir=str(tmp_path),
        guarantee="exactly_once",
        repartition_retention_ms=-1,
    )
    worker = ps.Worker(build(), settings, tracer_provider=provider).start()
    until("the outputs", lambda: len(live.read(out)) == RECORDS)
    worker.stop()

    spans = {span.context.span_id: span for span in exporter.get_finished_spans()}
    traced = [n for n in range(RECORDS) if headers_of(n)]
    written = [traceparent_of(w.headers) for w in cluster.read(out, 2)]
    assert written.count(None) == RECORDS - len(traced)
    found = set()
    for parent in filter(None, written):
        # Starts at the span that the output names, and goes from parent to parent, to the span of the input's writer.
        span = spans[int(parent[36:52], 16)]
        path = [span.name]
        while span.parent is not None and span.parent.span_id in spans:
            span = spans[span.parent.span_id]
            path.append(span.name)
        assert [name.split(" ")[0] for name in path] == ["send", "process", "send", "process"]
        assert span.parent is not None and span.parent.span_id == span.context.trace_id
        found.add(span.context.trace_id - 1)
    assert found == set(traced)
    commits = [span for span in spans.values() if span.name == "commit"]
    assert {link.context.span_id for span in commits for link in span.links} == {
        span.context.span_id for span in spans.values() if span.name.startswith("process")
    }
    assert all([event.name for event in span.events][-2:] == ["committed", "stores_written"] for span in commits)

    agreed = verify(build, application_id=live.application_id, connection=connection)
    assert agreed.same, [str(c) for c in agreed.comparisons if c.differences]
    assert {c.name: c.stream_rows for c in agreed.comparisons if c.name == out} == {out: RECORDS}
