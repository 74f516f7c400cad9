"""Spark's stages of one job tag, from the status store of its own pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.streams.batch.cluster import now_ms
from penstock.streams.spark.report.record import StageRecord

_SETTLE_MS = 10_000
_PLACE = re.compile(r" at (NativeMethodAccessorImpl.*|.*/)")
"""The place of a call in Java says nothing, and of one in Python the file does."""


def stage_data(store: Any, tag: str) -> Iterator[Any]:
    """The stages of the tag's jobs, the last attempt of each, in the order in which they were created."""
    jobs = store.jobsList(None)
    ids: set[int] = set()
    for i in range(jobs.size()):
        job = jobs.apply(i)
        if tag in job.jobTags().mkString(" "):
            stages = job.stageIds()
            ids.update(stages.apply(j) for j in range(stages.size()))
    for number in sorted(ids):
        yield store.lastStageAttempt(number)


def stage_records(spark: SparkSession, tag: str) -> list[StageRecord]:
    """The stages that ran under the tag, as far as the session still knows it."""
    context: Any = spark.sparkContext._jsc.sc()
    found: list[StageRecord] = []
    with suppress(Py4JError):  # a context that has stopped: the job itself reports it
        context.listenerBus().waitUntilEmpty(_SETTLE_MS)
        store = context.statusStore()
        found += [_record(spark, store, stage) for stage in stage_data(store, tag) if stage.numCompleteTasks()]
    return found


def _record(spark: SparkSession, store: Any, stage: Any) -> StageRecord:
    return StageRecord(
        name=call_of(stage.name()),
        tasks=stage.numTasks(),
        failed=stage.numFailedTasks() + stage.numKilledTasks(),
        began_ms=_ms(stage.submissionTime()),
        ended_ms=_ms(stage.completionTime()),
        read_bytes=stage.inputBytes(),
        shuffled_bytes=stage.shuffleWriteBytes(),
        spilled_bytes=stage.diskBytesSpilled(),
        run_ms=_run_ms(spark, store, stage),
    )


def call_of(name: str) -> str:
    """A stage's name without folders."""
    return _PLACE.sub(lambda found: "" if found[1].startswith("Native") else " at ", name)


def _ms(option: Any) -> int:
    """A time that Spark may not know yet."""
    return int(option.get().getTime()) if option.isDefined() else now_ms()


def _run_ms(spark: SparkSession, store: Any, stage: Any) -> tuple[int, int, int] | None:
    gateway: Any = spark.sparkContext._gateway
    quantiles = gateway.new_array(gateway.jvm.double, 3)
    for i, q in enumerate((0.0, 0.5, 1.0)):
        quantiles[i] = q
    found = store.taskSummary(stage.stageId(), stage.attemptId(), quantiles)
    if not found.isDefined():
        return None
    times = found.get().executorRunTime()
    fastest, median, slowest = (int(times.apply(i)) for i in range(3))
    return fastest, median, slowest
