"""The progress of a Spark job, in lines: from the status store of Spark's own pages, read every few seconds."""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from penstock.streams.batch.background import in_background
from penstock.streams.spark.report.record import phase
from penstock.streams.spark.report.stages import stage_data, stage_records

Say = Callable[[str], None]
"""Takes one line."""
EVERY_S = 10.0
Count = Accumulator[int]


@dataclasses.dataclass(frozen=True)
class JobProgress:
    """One reading of a job's progress. ``records`` were read of ``records_total`` (0: unknown), ``tasks`` are done of
    ``tasks_total``; ``size_bytes``: read or sorted; ``stage_s``: how long the current stage has run; ``in_stage``:
    the part of it that is done, if known."""

    what: str
    records: int
    records_total: int
    size_bytes: int
    tasks: int
    tasks_total: int
    seconds: float
    stage_s: float
    in_stage: float

    @property
    def left_s(self) -> float | None:
        """The estimated remaining time of the current stage; ``None`` if unknown."""
        if not 0 < self.in_stage < 1 or not self.stage_s:
            return None
        return self.stage_s * (1 - self.in_stage) / self.in_stage

    def __str__(self) -> str:
        of_all = (
            f" of {self.records_total:,} ({100 * self.records // self.records_total} %)" if self.records_total else ""
        )
        line = (
            f"{self.what}: {self.records:,}{of_all} records read, {self.size_bytes / 1e6:,.1f} MB, "
            f"{self.tasks} of {self.tasks_total} Spark tasks done, {self.seconds:.0f} s"
        )
        return line if self.left_s is None else f"{line}; about {self.left_s:.0f} s left in this stage"


@contextmanager
def watched(
    spark: SparkSession, what: str, say: Say | None, records_total: int = 0, every_s: float = EVERY_S
) -> Iterator[Count]:
    """Report the progress of the jobs that this thread starts inside, and note them as a phase of the job's record.
    ``say``: ``None`` reports nothing. Yields a count, to which tasks add the records that they read themselves, when they
    are done: Spark does not know of those."""
    count = spark.sparkContext.accumulator(0)
    with phase(what) as noted:
        if say is None and noted is None:
            yield count
            return
        tag = f"penstock-{uuid.uuid4().hex}"
        watch = _Watch(spark, what, tag, records_total, count)
        spark.sparkContext.addJobTag(tag)
        try:
            with in_background(partial(watch.run, say, every_s), "progress") if say is not None else nullcontext():
                yield count
        finally:
            spark.sparkContext.removeJobTag(tag)
            if noted is not None:
                noted.stages += stage_records(spark, tag)


class _Watch:
    """The jobs of one tag."""

    def __init__(self, spark: SparkSession, what: str, tag: str, records_total: int, count: Count) -> None:
        assert spark._jvm is not None
        self._store: Any = spark.sparkContext._jsc.sc().statusStore()
        self._what = what
        self._tag = tag
        self._records_total = records_total
        self._count = count
        self._began_s = time.monotonic()
        self._stage: tuple[int, float] = (-1, self._began_s)

    def run(self, say: Say, every_s: float, stop: threading.Event) -> None:
        """Report until ``stop`` is set."""
        while not stop.wait(every_s):
            try:
                found = self.look()
            except Py4JError:
                continue  # a stage that was just removed, or a context that is stopping: the job itself reports it
            if found is not None:
                say(str(found))

    def look(self) -> JobProgress | None:
        """The current progress; ``None`` before a job has started."""
        stages = list(stage_data(self._store, self._tag))
        if not stages:
            return None
        now_s = time.monotonic()
        present = next((s for s in stages if str(s.status()) == "ACTIVE"), stages[-1])
        if present.stageId() != self._stage[0]:
            self._stage = (present.stageId(), now_s)
        counted = self._count.value
        read = sum(s.inputRecords() for s in stages) + counted
        here = present.inputRecords() or counted
        done = (
            here / self._records_total
            if here and self._records_total
            else present.numCompleteTasks() / present.numTasks()
        )
        return JobProgress(
            what=self._what,
            records=read,
            records_total=self._records_total,
            size_bytes=sum(max(s.inputBytes(), s.shuffleWriteBytes()) for s in stages),
            tasks=sum(s.numCompleteTasks() for s in stages),
            tasks_total=sum(s.numTasks() for s in stages),
            seconds=now_s - self._began_s,
            stage_s=now_s - self._stage[1],
            in_stage=done,
        )
