"""Spans of the test driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.state.log import Headers, TaskId, TopicPartition
from penstock.streams.events.facts import Committed
from penstock.streams.events.port import EventSink, Fanout
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task.output import Output


class DriverTraces:
    """Reports what a worker's ports would. Without a provider it does nothing."""

    def __init__(self, provider: Any, application_id: str) -> None:
        self._spans: Any = None
        if provider is not None:
            from penstock.streams.worker.record_spans import RecordSpans

            self._spans = RecordSpans(provider, application_id)

    def watching(self, events: EventSink) -> EventSink:
        """The events of the tasks, so that a record that fails shows in its span."""
        return events if self._spans is None else Fanout(events, self._spans)

    def received(self, chunk: Chunk) -> None:
        """Records were given to a task."""
        if self._spans is not None:
            self._spans.received(chunk)

    def sent(self, output: Output) -> list[Headers] | None:
        """An output was taken from a task; returns its headers as a worker would write them."""
        if self._spans is None or output.headers is None:
            return output.headers
        return list(self._spans.sent(output.topic, output.headers))

    def committed(self, task: TaskId, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A task was committed."""
        if self._spans is not None:
            self._spans.committed({tp: position.offset for tp, position in positions.items()})
            self._spans.emit(Committed((task,), 0, 0.0))
            self._spans.step("stores_written")
