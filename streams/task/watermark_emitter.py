"""How a task announces its watermark to the readers of a repartition topic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from penstock.streams.task.output import Output
from penstock.streams.task.task_watermarks import TaskWatermarks, WatermarkMark
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.operator import BatchTimes
from penstock.topologies.operators.records.source_sink import SourceSpec

RECORDS_PER_MARK: Final = 25
"""The input records of a task that pay for a mark in one partition."""
_CREDIT_ROUNDS: Final = 100
"""The marks in every partition that may be paid for in advance; a new task begins with as many."""


class WatermarkEmitter:
    """Sends the watermark to the readers of a repartition topic: a record in every partition, a *mark*, when the
    watermark passes a multiple of the interval, or the task becomes idle or active.

    Each input record pays for 1 / ``RECORDS_PER_MARK`` of a mark in one partition. A mark that another task sent to this one
    pays for one in every partition, or for its share of it if several tasks send them: so few records between two topics
    do not make the watermark slower. A mark that is not paid for is held back until it is, or until the watermark is
    ``hold_ms`` past the last one sent, or a source becomes idle. Everything follows from the task's records and journaled
    readings, never from batches or commits, and is committed with the watermark (``TaskWatermarks.sent``): a restart or a
    replay sends the same. Marks stay records of their own: as headers of data they would depend on which partition the
    producer chooses, and older readers would miss them."""

    def __init__(
        self,
        time: BatchTimes,
        topic: str,
        partitions: int,
        writer: int,
        writers: int,
        watermarks: TaskWatermarks,
        hold_ms: int,
    ) -> None:
        self.place = 0
        self._time = time
        self._topic = topic
        self._partitions = partitions
        self._writer, self._writers = writer, writers
        self._watermarks = watermarks
        self._hold_ms = hold_ms
        self._cost = partitions * RECORDS_PER_MARK
        start = (self._start_ms(), self._cost * _CREDIT_ROUNDS)
        self._sent_ms, self._credit = watermarks.sent.get(topic, start)
        self._sent_idle = watermarks.idle
        self._seen: Ints | None = None
        self._next = 0
        """The first of the batch's announcements that has not paid yet."""

    def _start_ms(self) -> int:
        """The watermark that counts as sent where none is noted."""
        return self._time.watermark_before_ms

    def marks_before(self, place: int) -> Iterator[tuple[int, Output]]:
        """Yield the watermark records caused by the records before ``place``, after the places of their causes."""
        marks, idle, interval = self._time.watermarks, self._watermarks.idle_by_place, self._watermarks.interval_ms
        self._enter(marks)
        while self.place < place:
            step_ms = (self._sent_ms // interval + 1) * interval
            step = self.place + int(marks[self.place : place].searchsorted(step_ms))
            held = step + int(marks[step:place].searchsorted(max(step_ms, self._sent_ms + self._hold_ms)))
            due = min(max(step, self._paid_at()), held)
            if (not self._sent_idle) in idle[self.place : due]:
                due = idle.index(not self._sent_idle, self.place)
            self._take_pay(min(due + 1, place))
            if due == place:
                return
            for mark in self._marks_if_due(int(marks[due]), int(self._time.times[due]), due, idle=idle[due]):
                yield due, mark

    def _paid_at(self) -> int:
        """Return the first place from which on a mark in every partition is paid for."""
        said_by, missing, start = self._watermarks.said_by, self._cost - self._credit, self.place
        for at, writers in itertools.islice(said_by, self._next, None):
            if missing <= at - start:
                break
            missing -= at - start + 1 + self._share(writers)
            start = at + 1
        return max(start + missing - 1, start - 1, self.place)

    def _take_pay(self, place: int) -> None:
        """Take what the records before ``place`` pay."""
        paid, said_by = place - self.place, self._watermarks.said_by
        while self._next < len(said_by) and said_by[self._next][0] < place:
            paid += self._share(said_by[self._next][1])
            self._next += 1
        self._credit = min(self._credit + paid, self._cost * _CREDIT_ROUNDS)
        self.place = place

    def _share(self, writers: int) -> int:
        """Return what a mark pays, besides being a record, if this many tasks send them."""
        return -(-self._cost // writers)

    def marks_at_reading(self) -> list[Output]:
        """Return the watermark records caused by a reading of the clock: sources became idle."""
        if not self._watermarks.became_idle:
            return []
        return self._marks_if_due(
            self._time.watermark_before_ms, self._time.before_ms, None, idle=self._watermarks.idle
        )

    def note(self) -> None:
        """Note for the commit what was sent."""
        self._watermarks.sent[self._topic] = (self._sent_ms, self._credit)

    def _enter(self, marks: Ints) -> None:
        """Start at the first place of a new batch. A commit's outputs come when a batch is over: they are not one."""
        if marks is not self._seen:
            self._seen, self.place, self._next = marks, 0, 0

    def _marks_if_due(self, watermark_ms: int, time_ms: int, place: int | None, *, idle: bool) -> list[Output]:
        interval = self._watermarks.interval_ms
        if watermark_ms // interval <= self._sent_ms // interval and idle == self._sent_idle:
            return []
        self._sent_ms, self._sent_idle = watermark_ms, idle
        self._credit = max(self._credit - self._cost, 0)
        return [self.output(WatermarkMark(self._writer, self._writers, watermark_ms, idle), time_ms, place)]

    def output(self, mark: WatermarkMark, time_ms: int, place: int | None) -> Output:
        """Return the watermark records. ``place``: of the causing input record; ``None``: a clock reading."""
        order = None if place is None else place * self._time.stride
        return mark_output(self._topic, mark, self._partitions, max(time_ms, 0), order)


class LoopWatermarkEmitter(WatermarkEmitter):
    """Sends watermarks to a feedback topic: the watermark of the task's other inputs as round 0, and what all tasks
    have sent in one round as the next round."""

    def _start_ms(self) -> int:
        return self._watermarks.base_ms

    def marks_before(self, place: int) -> Iterator[tuple[int, Output]]:
        """Yield the watermark records caused by the records before ``place``, after the places of their causes."""
        base, times = self._watermarks.base_by_place, self._time.by_place_ms
        self._enter(self._time.watermarks)
        relays = {at: m for at, topic, m in self._watermarks.relays if topic == self._topic}
        while self.place < place:
            at = self.place
            self.place += 1
            for mark in self._marks_if_due(base[at], times[at], at, idle=False):
                yield at, mark
            if (relay := relays.get(at)) is not None:
                yield at, self.output(relay._replace(writer=self._writer, writers=self._writers), times[at], at)

    def marks_at_reading(self) -> list[Output]:
        """Return the watermark records caused by a reading of the clock."""
        return self._marks_if_due(self._watermarks.base_ms, self._time.before_ms, None, idle=False)

    def note(self) -> None:
        """Nothing: these marks are never held back."""


def emitter_kind(reader: SourceSpec | None) -> type[WatermarkEmitter]:
    """The kind for a topic, by its reader in the same sub-topology, if it has one."""
    return LoopWatermarkEmitter if reader is not None and reader.loop_rounds else WatermarkEmitter


def mark_output(
    topic: str, mark: WatermarkMark, partitions: int, timestamp_ms: int, order: int | None = None
) -> Output:
    """Return a mark as a record in every partition of a repartition topic. ``order``: of its cause."""
    return Output(
        topic,
        [None] * partitions,
        [None] * partitions,
        [timestamp_ms] * partitions,
        [mark.headers] * partitions,
        list(range(partitions)),
        None if order is None else [order] * partitions,
    )
