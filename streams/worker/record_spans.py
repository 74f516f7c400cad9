"""Spans of records and commits, by OpenTelemetry.

A batch may hold thousands of records, so a record has spans only if its writer's trace is sampled
(``penstock.streams.ports.record_traces``):

* ``process TOPIC``: a child of the writer's span, from when the record was read until its commit. If that does not come
  about, the record is read again and gets another span; this one ends with an error, or unseen if nothing was sent yet.
* ``send TOPIC``: one for each output that inherited the record's headers, a child of ``process``. The output carries it
  on. If several records under way name one span of their writer, which of them caused an output is not known: then that
  span is the parent. So it is for outputs of later commits, such as those of windows.
* ``commit``: one for each commit with a traced record. It links to their spans, and they to it; its events are the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import penstock
from penstock.state.log import Headers, TopicPartition
from penstock.streams.events.facts import (
    CommitAborted,
    Committed,
    Fact,
    RecordDeadLettered,
    RecordFailed,
    RecordHeld,
    RecordSkipped,
    WorkerStopped,
)
from penstock.streams.events.measurements import CommitStep, Measurement
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.record_traces import TRACEPARENT, TRACESTATE, traceparent_of, with_span

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, TracerProvider

OPEN_MAX = 10_000
"""The most traced records under way; further ones get no spans."""
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of OpenTelemetry's conventions that the attributes follow."""
LINKS_MAX = 100
"""The most links of a commit; the SDK keeps 128 by default."""


class _Traced:
    """A traced record under way. ``span`` is started when it is needed."""

    __slots__ = ("context", "parent", "partition", "place", "read_ns", "span")

    def __init__(self, partition: TopicPartition, place: int, parent: bytes, context: Any, read_ns: int) -> None:
        self.partition = partition
        self.place = place
        self.parent = parent
        self.context = context
        self.read_ns = read_ns
        self.span: Span | None = None


class RecordSpans:
    """See the module. A ``RecordTraces`` and an ``EventSink``; ``step`` is called after each step of a commit."""

    def __init__(self, provider: TracerProvider, application_id: str, now_ns: Callable[[], int] = time.time_ns) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("penstock", penstock.__version__, schema_url=SCHEMA_URL)
        self._application_id = application_id
        self._now_ns = now_ns
        self._extract = TraceContextTextMapPropagator().extract
        self._open: dict[TopicPartition, dict[int, _Traced]] = {}
        self._by_parent: dict[bytes, list[_Traced]] = {}
        self._open_count = 0
        self._settled: list[tuple[_Traced, int]] = []
        """Records whose positions are committed, and since when; their spans end with the commit's."""
        self._steps: list[tuple[CommitStep, int]] = []
        self._commit: Span | None = None
        """Its log part is done; its stores are being written."""

    # -- records -------------------------------------------------------------------------------------------------

    def received(self, chunk: Chunk) -> None:
        """See the port."""
        if chunk.headers is None:
            return
        partition, now_ns = TopicPartition(chunk.topic, chunk.partition), self._now_ns()
        for offset, headers in zip(chunk.offsets, chunk.headers, strict=True):
            parent = traceparent_of(headers) if headers else None
            if parent is None or self._open_count >= OPEN_MAX:
                continue
            traced = _Traced(partition, offset, parent, self._context_of(headers, parent), now_ns)
            before = self._open.setdefault(partition, {}).get(offset)
            if before is not None:
                self._forget(before)
            self._open[partition][offset] = traced
            self._by_parent.setdefault(parent, []).append(traced)
            self._open_count += 1

    def _context_of(self, headers: Headers, parent: bytes) -> Any:
        states = [v.decode("ascii", "replace") for name, v in headers if name == TRACESTATE and v is not None]
        carrier = {TRACEPARENT: parent.decode()} | ({TRACESTATE: ",".join(states)} if states else {})
        from opentelemetry.context import Context

        return self._extract(carrier, Context())

    def placed(self, partition: TopicPartition, offset: int) -> None:
        """See the port."""
        for at in [at for at in self._open.get(partition, ()) if at >= offset]:
            self._forget(self._open[partition][at])

    def _forget(self, traced: _Traced) -> None:
        self._remove(traced)
        if traced.span is not None:
            self._fail(traced.span, "not_committed", "not committed; the record is read again")
            traced.span.end(self._now_ns())

    def _remove(self, traced: _Traced) -> None:
        del self._open[traced.partition][traced.place]
        others = self._by_parent[traced.parent]
        others.remove(traced)
        if not others:
            del self._by_parent[traced.parent]
        self._open_count -= 1

    def sent(self, topic: str, headers: Sequence[Headers]) -> Sequence[Headers]:
        """See the port."""
        out: list[Headers] | None = None
        for i, some in enumerate(headers):
            parent = traceparent_of(some) if some else None
            if parent is not None and (span_id := self._send(topic, some, parent)) is not None:
                out = list(headers) if out is None else out
                out[i] = with_span(some, span_id)
        return headers if out is None else out

    def _send(self, topic: str, headers: Headers, parent: bytes) -> bytes | None:
        from opentelemetry.trace import SpanKind, format_span_id, set_span_in_context

        causes = self._by_parent.get(parent, ())
        if len(causes) == 1:
            context = set_span_in_context(self._span_of(causes[0]))
        else:
            context = self._context_of(headers, parent)
        span = self._tracer.start_span(
            f"send {topic}",
            context,
            SpanKind.PRODUCER,
            _attributes("send", "send", topic),
            start_time=self._now_ns(),
        )
        sampled = span.is_recording()  # the sampler of this process may drop the trace
        span.end(self._now_ns())
        return format_span_id(span.get_span_context().span_id).encode() if sampled else None

    def _span_of(self, traced: _Traced) -> Span:
        from opentelemetry.trace import SpanKind

        if traced.span is None:
            topic, partition = traced.partition
            traced.span = self._tracer.start_span(
                f"process {topic}",
                traced.context,
                SpanKind.CONSUMER,
                {
                    **_attributes("process", "process", topic),
                    "messaging.destination.partition.id": str(partition),
                    "messaging.kafka.offset": traced.place,
                    "messaging.consumer.group.name": self._application_id,
                },
                start_time=traced.read_ns,
            )
        return traced.span

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        now_ns = self._now_ns()
        for partition, position in positions.items():
            for offset in [at for at in self._open.get(partition, ()) if at < position]:
                traced = self._open[partition][offset]
                self._remove(traced)
                self._span_of(traced)
                self._settled.append((traced, now_ns))

    # -- commits -------------------------------------------------------------------------------------------------

    def step(self, step: CommitStep) -> None:
        """A step of a commit was done."""
        if step == "stores_written":
            self._end_commit(step)
        elif step != "begun":  # that is when the transaction opens, with the first output
            self._steps = [*([] if step == "prepared" else self._steps), (step, self._now_ns())]

    def emit(self, fact: Fact) -> None:
        """See ``EventSink``."""
        if isinstance(fact, Committed):
            self._end_commit()
            if self._settled:
                settled, self._settled = self._settled, []
                self._commit = self._commit_span(fact.seconds, [traced for traced, _ in settled])
                self._commit.set_attribute("penstock.tasks", [str(task) for task in fact.tasks])
                self._commit.set_attribute("penstock.records", fact.records)
                self._end_settled(settled, self._commit.get_span_context())
            self._steps = []
        elif isinstance(fact, CommitAborted):
            self._aborted(fact)
        elif isinstance(fact, RecordFailed | RecordSkipped | RecordDeadLettered | RecordHeld):
            self._failed(fact)
        elif isinstance(fact, WorkerStopped):
            self.close()

    def measure(self, measurement: Measurement) -> None:
        """See ``EventSink``. Measurements are of batches."""

    def _commit_span(self, seconds: float, records: Sequence[_Traced]) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, SpanKind

        now_ns = self._now_ns()
        span = self._tracer.start_span(
            "commit",
            Context(),
            SpanKind.CLIENT,
            {
                **_attributes("commit", "settle"),
                "messaging.consumer.group.name": self._application_id,
            },
            links=[Link(self._span_of(traced).get_span_context()) for traced in records[:LINKS_MAX]],
            start_time=min([now_ns - int(seconds * 1e9), *(at for _, at in self._steps)]),
        )
        for step, at_ns in self._steps:
            span.add_event(step, timestamp=at_ns)
        return span

    def _end_settled(self, settled: Iterable[tuple[_Traced, int]], commit: SpanContext | None = None) -> None:
        for traced, at_ns in settled:
            span = self._span_of(traced)
            if commit is not None:
                span.add_link(commit)
            span.end(at_ns)

    def _end_commit(self, step: CommitStep | None = None) -> None:
        if self._commit is not None:
            now_ns = self._now_ns()
            if step is not None:
                self._commit.add_event(step, timestamp=now_ns)
            self._commit.end(now_ns)
            self._commit = None

    def _aborted(self, fact: CommitAborted) -> None:
        begun = [traced for some in self._open.values() for traced in some.values() if traced.span is not None]
        if begun and self._steps:
            span = self._commit_span(0.0, begun)
            self._fail(span, type(fact.cause).__name__)
            span.end(self._now_ns())
        self._steps = []

    def _failed(self, fact: RecordFailed | RecordSkipped | RecordDeadLettered | RecordHeld) -> None:
        if fact.place is None:
            return
        topic, partition, offset = fact.place
        traced = self._open.get(TopicPartition(topic, partition), {}).get(offset)
        if traced is not None:
            span = self._span_of(traced)
            attributes = {"error.type": fact.error, "penstock.operator": fact.operator, "penstock.kind": fact.kind}
            span.add_event(type(fact).__name__, attributes, timestamp=self._now_ns())
            if isinstance(fact, RecordFailed):
                self._fail(span, fact.error)

    @staticmethod
    def _fail(span: Span, error: str, why: str | None = None) -> None:
        from opentelemetry.trace import Status, StatusCode

        if "error.type" not in (getattr(span, "attributes", None) or ()):  # else the span has its reason
            span.set_status(Status(StatusCode.ERROR, why or error))
            span.set_attribute("error.type", error)

    def close(self) -> None:
        """End every span that was started."""
        self._end_commit()
        self._end_settled(self._settled)
        self._settled = []
        for partition in list(self._open):
            self.placed(partition, 0)


def _attributes(name: str, kind: str, topic: str | None = None) -> dict[str, str]:
    """By OpenTelemetry's conventions for messaging and Kafka."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        **({} if topic is None else {"messaging.destination.name": topic}),
    }
