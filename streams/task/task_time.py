"""Event time in a task: stream time, the watermark, and both at each place of the current batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.streams.ports.chunk import highest
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.engine import BatchTime
from penstock.streams.task.feed import Run
from penstock.streams.task.task_watermarks import TaskWatermarks
from penstock.topologies.graph.lockstep_plan import Plan
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.operator import NO_TIME


class EventTimeTracker:
    """The event time of one task. ``batch``: its operators' view. ``start``: what was committed with the position of
    each input."""

    def __init__(
        self, plan: Plan, batch: BatchTime, watermarks: TaskWatermarks, start: Mapping[str, CommitMetadata]
    ) -> None:
        self.batch = batch
        self.watermarks = watermarks
        self.stream_time_ms = max((m.stream_time_ms for m in start.values()), default=NO_TIME)
        self.consumed_ms = {topic: m.partition_time_ms for topic, m in start.items()}
        """Per input, as of the processed records: buffered records are checked again after a restart."""
        self._plan = plan
        self.begin_batch()

    @property
    def watermark_ms(self) -> int:
        """The watermark: no record with a timestamp up to it is expected."""
        if self.watermarks.strategies:
            return self.watermarks.watermark_ms
        return max(self.stream_time_ms - 1, NO_TIME)

    def begin_batch(self) -> None:
        """Start a batch from the present time."""
        self.batch.before_ms, self.batch.watermark_before_ms = self.stream_time_ms, self.watermark_ms

    def advance(self, runs: Sequence[Run]) -> None:
        """Advance the time by these records."""
        self.begin_batch()
        batch, consumed, before_ms = self.batch, self.consumed_ms, self.stream_time_ms
        for r in runs:
            latest = highest(r.chunk.times, r.start, r.stop)
            consumed[r.chunk.topic] = max(consumed[r.chunk.topic], latest)
            self.stream_time_ms = max(self.stream_time_ms, latest)
        by_place = _stream_time(runs, before_ms) if self._plan.timed else np.zeros(0, np.int64)
        if self.watermarks.strategies:
            batch.set(by_place, self.watermarks.after_all(runs))
            batch.idle_by_place = self.watermarks.idle_by_place
        else:
            batch.set(by_place, np.maximum(by_place - 1, NO_TIME) if self._plan.uses_watermark else by_place[:0])


def _stream_time(runs: Sequence[Run], before_ms: int) -> Ints:
    """Stream time after each record."""
    times = np.empty(sum(r.stop - r.start for r in runs), np.int64)
    at = 0
    for r in runs:
        end = at + r.stop - r.start
        times[slice(at, end) if r.places is None else r.places] = r.chunk.times[r.start : r.stop]
        at = end
    return np.maximum(np.maximum.accumulate(times), before_ms)
