"""What Penstock asks of a Spark session: a partition for each piece of work, and batches of bounded size."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.state.log import TaskId
from penstock.streams.spark.progress import watched
from penstock.streams.spark.replay_job import numbers_of
from penstock.streams.spark.session import prepare
from penstock.streams.spark.slots import spread


def test_each_task_has_a_spark_partition_of_its_own_the_largest_first(spark: SparkSession) -> None:
    """By the hash of (sub-topology, task) these 64 fall into 41 partitions, five into one."""
    tasks = [TaskId(sub, p) for sub in (0, 2) for p in range(32)]
    sizes = [100 if t == (2, 7) else 1 for t in tasks]
    rows = spark.createDataFrame([(*t, i) for t in tasks for i in range(3)], "sub int, task int, i int")
    number = F.element_at(F.element_at(numbers_of(tasks, {0: 32, 1: 5, 2: 32}), F.col("sub") + 1), F.col("task") + 1)
    placed = spread(rows, number, sizes).select("sub", "task", F.spark_partition_id().alias("at")).collect()
    by_place: dict[int, set[tuple[int, int]]] = {}
    for row in placed:
        by_place.setdefault(row["at"], set()).add((row["sub"], row["task"]))
    assert sorted(by_place) == list(range(64)) and all(len(found) == 1 for found in by_place.values())
    assert by_place[0] == {(2, 7)}


def sizes_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([batch.nbytes], pa.int64())], names=["size_bytes"])


def test_batches_of_fat_rows_are_bounded_in_bytes(spark: SparkSession) -> None:
    fat = prepare(spark).range(0, 64, numPartitions=1).select(F.repeat(F.lit("x"), 1_000_000).cast("binary").alias("v"))
    found = [row["size_bytes"] for row in fat.mapInArrow(sizes_of, "size_bytes long").collect()]
    assert sum(found) > 60_000_000 and max(found) < 20_000_000


def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.5)
        yield batch


def test_a_long_job_says_how_far_it_is(spark: SparkSession) -> None:
    said: list[str] = []
    with watched(spark, "the count", said.append, records_total=8, every_s=0.1):
        rows = spark.range(0, 8, numPartitions=8).mapInArrow(slowly, "id long")
        assert rows.repartition(2).count() == 8
    assert any(
        re.match(r"the count: \d+ of 8 \(\d+ %\) records read, .* of \d+ Spark tasks done, \d+ s", x) for x in said
    )
    assert any("left in this stage" in line for line in said)
    quiet = len(said)
    assert spark.range(3).count() == 3 and len(said) == quiet


@pytest.mark.long
def test_an_interrupt_between_two_sessions_is_one() -> None:
    """A schedule waits there for its next run, and Ctrl-C ends it."""
    program = """
        import os, signal
        from penstock.spark import SparkSettings, spark_session
        with spark_session(SparkSettings(master="local[1]")) as spark:
            assert spark.range(3).count() == 3
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted")
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300)
    assert done.stdout == "interrupted\n", done.stderr[-2_000:]
