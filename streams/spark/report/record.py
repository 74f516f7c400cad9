"""A record of a job, noted while it runs: its phases, Spark's stages in them, and the records of each task.

Jobs note unconditionally. Nothing is kept unless a record is open in this context.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import now_ms
from penstock.streams.batch.handover.piece import PieceReport
from penstock.streams.batch.published import TaskReport


@dataclasses.dataclass(frozen=True)
class StageRecord:
    """One of Spark's stages. ``began_ms`` and ``ended_ms``: by the clock; ``run_ms``: the fastest, the median and the
    slowest task, if known; ``failed``: attempts of tasks that failed, or were lost with their executor."""

    name: str
    tasks: int
    failed: int
    began_ms: int
    ended_ms: int
    read_bytes: int
    shuffled_bytes: int
    spilled_bytes: int
    run_ms: tuple[int, int, int] | None

    @property
    def skew(self) -> float | None:
        """How many times as long as the median task the slowest has run; ``None`` if unknown."""
        if self.run_ms is None or self.tasks < 2 or not self.run_ms[1]:
            return None
        return self.run_ms[2] / self.run_ms[1]


@dataclasses.dataclass
class Phase:
    """A part of the job, in order. ``ranges``: what it was to read; ``tasks`` and ``pieces``: what was done of it."""

    name: str
    began_ms: int
    ended_ms: int
    stages: list[StageRecord] = dataclasses.field(default_factory=list)
    ranges: dict[TopicPartition, tuple[int, int]] = dataclasses.field(default_factory=dict)
    tasks: list[TaskReport] = dataclasses.field(default_factory=list)
    pieces: list[PieceReport] = dataclasses.field(default_factory=list)


class JobRecord:
    """The phases of one job. ``spark``: the release and master that it ran on, if it came so far."""

    def __init__(self) -> None:
        self.began_ms = now_ms()
        self.phases: list[Phase] = []
        self.spark: str | None = None
        self._began_s = time.monotonic()

    @property
    def stages(self) -> list[StageRecord]:
        """The stages of all phases."""
        return [stage for phase in self.phases for stage in phase.stages]

    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._began_s


_record: ContextVar[JobRecord | None] = ContextVar("penstock_job_record", default=None)
_phase: ContextVar[Phase | None] = ContextVar("penstock_job_phase", default=None)


@contextmanager
def recorded() -> Iterator[JobRecord]:
    """A record of what is done inside."""
    record = JobRecord()
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def current() -> JobRecord | None:
    """The open record."""
    return _record.get()


@contextmanager
def phase(name: str) -> Iterator[Phase | None]:
    """A phase of the job, while inside; ``None`` without an open record. What is inside another phase belongs to that."""
    record = _record.get()
    if record is None or _phase.get() is not None:
        yield _phase.get()
        return
    opened = Phase(name, now_ms(), 0)
    record.phases.append(opened)
    token = _phase.set(opened)
    try:
        yield opened
    finally:
        opened.ended_ms = now_ms()
        _phase.reset(token)


def note_ranges(ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """The present phase is to read these."""
    if (at := _phase.get()) is not None:
        at.ranges.update(ranges)


def note_tasks(reports: Iterable[TaskReport]) -> None:
    """The present phase has run these tasks."""
    if (at := _phase.get()) is not None:
        at.tasks.extend(reports)


def note_pieces(reports: Iterable[PieceReport]) -> None:
    """The present phase has worked off these pieces."""
    if (at := _phase.get()) is not None:
        at.pieces.extend(reports)
