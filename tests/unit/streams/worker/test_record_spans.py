"""Spans of sampled records and of their commits, by the SDK's own exporter in memory; and what is left alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import penstock as ps
from penstock.state.errors import SettingsError
from penstock.state.log import Headers, TaskId, TopicPartition
from penstock.streams.events.facts import CommitAborted, Committed, RecordFailed
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import TopicSpec
from penstock.streams.ports.record_traces import SPAN_FROM, SPAN_TO, traceparent_of
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.streams.worker.record_spans import OPEN_MAX, RecordSpans
from penstock.streams.worker.traced_log import TracedLog
from tests.memory_worker_log import MemoryWorkerLog

PARENT = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
UNSAMPLED = PARENT[:-1] + b"0"
TRACED: Headers = (("one", b"1"), ("traceparent", PARENT), ("tracestate", b"vendor=x"), ("two", None))
IN, OUT, BETWEEN = TopicPartition("in", 0), "out", "test-in-group-by-repartition"
LIMIT_S = 60.0


class Spans:
    """A provider, and what it has exported."""

    def __init__(self, **more: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**more)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def names(self) -> set[str]:
        return {span.name for span in self._exporter.get_finished_spans()}


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def id_of(span: ReadableSpan) -> int:
    return span.context.span_id


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def counted() -> ps.Topology:
    b = ps.StreamsBuilder("counted", value=dict)
    b.stream("in").group_by(lambda key, value: value["city"]).count(name="n").to_stream().to(OUT)
    return b.build()


def chunk(*headers: Headers, offset: int = 0) -> Chunk:
    n = len(headers)
    return Chunk("in", 0, list(range(offset, offset + n)), [b"k"] * n, [b"v"] * n, [0] * n, list(headers))


def test_a_sampled_record_is_followed_through_a_repartition_topic_to_the_output(spans: Spans) -> None:
    with ps.TopologyTestDriver(counted(), tracer_provider=spans.provider) as driver:
        driver.pipe("in", "k", {"city": "Oslo"}, 1, TRACED)
        (out,) = driver.read(OUT)
    first, second = spans.one("process in"), spans.one(f"process {BETWEEN}")
    assert f"{parent_of(first):x}" == "b" * 16 and first.parent is not None and first.parent.is_remote
    assert {f"{span.context.trace_id:x}" for span in (first, second, spans.one(f"send {OUT}"))} == {"a" * 32}
    assert parent_of(spans.one(f"send {BETWEEN}")) == id_of(first)
    assert parent_of(second) == id_of(spans.one(f"send {BETWEEN}"))
    assert parent_of(spans.one(f"send {OUT}")) == id_of(second)
    assert first.context.trace_state.get("vendor") == "x"
    # The output names the span that wrote it. Everything else is as it came, in its order.
    span_id = f"{id_of(spans.one(f'send {OUT}')):016x}".encode()
    assert out.headers == (TRACED[0], ("traceparent", PARENT[:SPAN_FROM] + span_id + PARENT[SPAN_TO:]), *TRACED[2:])
    commits = spans.named("commit")
    assert {link.context.span_id for commit in commits for link in commit.links} == {id_of(first), id_of(second)}
    assert {link.context.span_id for span in (first, second) for link in span.links} == {id_of(c) for c in commits}


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("traceparent", UNSAMPLED),),
        (("traceparent", b"rubbish"),),
        (("traceparent", None),),
        (("traceparent", b"01" + PARENT[2:]),),
        (("traceparent", PARENT), ("traceparent", UNSAMPLED)),
    ],
)
def test_other_records_get_no_span_and_keep_their_headers(spans: Spans, headers: Headers) -> None:
    with ps.TopologyTestDriver(counted(), tracer_provider=spans.provider) as driver:
        driver.pipe("in", "k", {"city": "Oslo"}, 1, headers)
        assert [r.headers for r in driver.read(OUT)] == [headers]
    assert spans.names() == set()


def test_a_sampler_that_drops_the_trace_leaves_the_headers_alone() -> None:
    spans = Spans(sampler=ALWAYS_OFF)
    with ps.TopologyTestDriver(counted(), tracer_provider=spans.provider) as driver:
        driver.pipe("in", "k", {"city": "Oslo"}, 1, TRACED)
        assert [r.headers for r in driver.read(OUT)] == [TRACED]
    assert spans.names() == set()


def test_functions_see_the_headers_of_the_log_and_answers_are_the_same(spans: Spans) -> None:
    def topology() -> ps.Topology:
        b = ps.StreamsBuilder("seen", value=dict)
        seen = b.stream("in").map_records(
            lambda r: r._replace(
                value={**r.value, "seen": [[k, None if v is None else v.decode()] for k, v in r.headers]}
            )
        )
        seen.to(OUT)
        return b.build()

    answers = []
    for provider in (None, spans.provider):
        with ps.TopologyTestDriver(topology(), tracer_provider=provider) as driver:
            for n in range(3):
                driver.pipe("in", "k", {"n": n}, n, TRACED if n != 1 else ())
            answers.append([r[:3] for r in driver.read(OUT)])
    assert answers[0] == answers[1]
    assert len(spans.named(f"send {OUT}")) == 2


def test_records_that_share_a_span_of_their_writer_have_outputs_below_that_span(spans: Spans) -> None:
    traces = RecordSpans(spans.provider, "app")
    traces.received(chunk(TRACED, TRACED))
    traces.sent(OUT, [TRACED])
    assert f"{parent_of(spans.one(f'send {OUT}')):x}" == "b" * 16
    traces.committed({IN: 1})
    traces.sent(OUT, [(), TRACED])  # only the second is under way now
    traces.committed({IN: 2})
    traces.close()
    one, two = sorted(spans.named("process in"), key=lambda span: (span.attributes or {})["messaging.kafka.offset"])
    assert parent_of(spans.named(f"send {OUT}")[1]) == id_of(two) != id_of(one)


def test_work_that_is_not_committed_ends_with_an_error_and_the_record_gets_another_span(spans: Spans) -> None:
    traces = RecordSpans(spans.provider, "app")
    traces.received(chunk(TRACED, (("traceparent", PARENT.replace(b"b", b"c")),)))
    traces.sent(OUT, [TRACED])
    traces.step("prepared")
    traces.step("sent")
    traces.emit(CommitAborted(RuntimeError("away")))
    traces.placed(IN, 0)
    # Nothing was sent for the second record, so nobody refers to it.
    failed = spans.one("process in")
    assert not failed.status.is_ok and failed.status.description is not None
    aborted = spans.one("commit")
    assert not aborted.status.is_ok and [event.name for event in aborted.events] == ["prepared", "sent"]
    traces.received(chunk(TRACED))
    traces.sent(OUT, [TRACED])
    for step in ("begun", "prepared", "sent", "flushed", "offsets_added"):
        traces.step(step)
    traces.committed({IN: 1})
    traces.step("committed")
    traces.emit(Committed((TaskId(0, 0),), 1, 0.5))
    traces.step("stores_written")
    again = spans.named("process in")[1]
    assert again.status.is_unset and parent_of(spans.named(f"send {OUT}")[1]) == id_of(again)
    names = [event.name for event in spans.named("commit")[1].events]
    assert names == ["prepared", "sent", "flushed", "offsets_added", "committed", "stores_written"]


def test_a_record_that_fails_marks_its_span_without_its_contents(spans: Spans) -> None:
    b = ps.StreamsBuilder("failing", value=dict)
    b.stream("in").map_values(lambda v: 1 // v["secret"], value=int).to(OUT)
    policies = ps.Policies(processing="dead_letter", dead_letter_topic="dead")
    options = TaskOptions(policies=policies)
    with ps.TopologyTestDriver(b.build(), options=options, tracer_provider=spans.provider) as driver:
        driver.pipe("in", "k", {"secret": 0}, 1, TRACED)
        (letter,) = driver.read_raw("dead")
    span = spans.one("process in")
    (event,) = span.events
    assert event.name == "RecordDeadLettered"
    assert dict(event.attributes or {}) == {
        "error.type": "ZeroDivisionError",
        "penstock.operator": "in-map-values",
        "penstock.kind": "processing",
    }
    assert traceparent_of(letter.headers) not in (None, PARENT)


def test_the_record_that_stops_a_worker_has_an_error(spans: Spans) -> None:
    traces = RecordSpans(spans.provider, "app")
    traces.received(chunk((), TRACED))
    traces.emit(RecordFailed(TaskId(0, 0), "processing", "op", ("in", 0, 1), "KeyError", "the secret"))
    traces.close()
    span = spans.one("process in")
    assert not span.status.is_ok
    assert "secret" not in span.to_json()


def test_what_is_kept_of_records_under_way_is_bounded(spans: Spans) -> None:
    traces = RecordSpans(spans.provider, "app")
    traces.received(chunk(*[TRACED] * (OPEN_MAX + 5)))
    traces.committed({IN: OPEN_MAX + 5})
    traces.close()
    assert len(spans.named("process in")) == OPEN_MAX


@pytest.mark.parametrize("guarantee", ["at_most_once", "at_least_once", "exactly_once"])
@pytest.mark.parametrize("partitions", [None, (0,)], ids=["group", "fixed"])
def test_a_worker_traces_at_the_ports_of_its_log(
    spans: Spans, tmp_path: Path, guarantee: Guarantee, partitions: tuple[int, ...] | None
) -> None:
    log = MemoryLog()
    for topic in ("in", OUT):
        log.create(TopicSpec(topic, 1))
    b = ps.StreamsBuilder("passed", value=str)
    b.stream("in").map_values(lambda value: value.upper()).to(OUT)
    settings = ps.WorkerSettings(
        application_id="app", state_dir=str(tmp_path), guarantee=guarantee, commit_interval_ms=20
    )
    for n in range(4):
        log.append(IN, LogEntry(b"k", b"v", 1_000 + n, TRACED if n % 2 else ()))
    clients = MemoryWorkerLog(log)
    worker = ps.Worker(
        b.build(), settings, partitions=partitions, open_log=lambda *_: clients, tracer_provider=spans.provider
    )
    worker.start()
    deadline = time.monotonic() + LIMIT_S
    while len(spans.named("process in")) < 2:
        assert time.monotonic() < deadline, spans.names()
        time.sleep(0.01)
    worker.stop()
    assert len(log.read(OUT)) == 4
    sent = [f"{id_of(span):016x}".encode() for span in spans.named(f"send {OUT}")]
    written = [traceparent_of(entry.headers) for _, _, entry in log.read(OUT)]
    assert [None if w is None else w[SPAN_FROM:SPAN_TO] for w in written] == [None, sent[0], None, sent[1]]
    assert {link.context.span_id for c in spans.named("commit") for link in c.links} == set(
        map(id_of, spans.named("process in"))
    )


def test_without_tracing_the_log_is_not_watched(tmp_path: Path) -> None:
    log = MemoryWorkerLog(MemoryLog())
    settings = ps.WorkerSettings(application_id="app", state_dir=str(tmp_path))
    assert not isinstance(ps.Worker(counted(), settings, open_log=lambda s, e: log)._log, TracedLog)


def test_tracing_is_off_or_otel() -> None:
    with pytest.raises(SettingsError, match=r"tracing='on'; choose one of off, otel"):
        ps.WorkerSettings(application_id="app", tracing="on")  # type: ignore[arg-type]  # refused at run time, too
