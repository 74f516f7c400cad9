"""The outputs of a replay, as one reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.streams.batch.published import OutputFile


def output_rows(spark: SparkSession, output: str, files: Sequence[OutputFile]) -> DataFrame:
    """The rows of these files, at least one, with their ``topic``, and with ``seq`` and ``running_max_ms`` as if each task
    had been processed in one piece."""
    by_topic: dict[str, list[OutputFile]] = {}
    for file in files:
        by_topic.setdefault(file.topic, []).append(file)
    parts = [_of_topic(spark, output, found).withColumn("topic", F.lit(t)) for t, found in sorted(by_topic.items())]
    return reduce(DataFrame.unionByName, parts)


def _of_topic(spark: SparkSession, output: str, files: Sequence[OutputFile]) -> DataFrame:
    rows = spark.read.parquet(*[f"{output}/{file.path}" for file in files])
    if not any(file.first_seq for file in files):
        return rows
    names = [file.path.rpartition("/")[2] for file in files]
    before = [(name, file.first_seq, file.floor_ms) for name, file in zip(names, files, strict=True)]
    of_file = spark.createDataFrame(before, "file_name string, first_seq long, floor_ms long")
    whole = rows.withColumn("file_name", F.col("_metadata.file_name")).join(F.broadcast(of_file), "file_name")
    shifted = whole.withColumn("seq", F.col("seq") + F.col("first_seq")).withColumn(
        "running_max_ms", F.greatest("running_max_ms", "floor_ms")
    )
    return shifted.select(*rows.columns)
