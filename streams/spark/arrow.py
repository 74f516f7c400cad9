"""Functions on Arrow batches, run by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.streams.spark.executor import executor_work

OnBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def mapped(frame: DataFrame, function: OnBatches, schema: pa.Schema) -> DataFrame:
    """Apply ``function`` to the batches of each Spark partition, with the columns of ``schema``."""
    return frame.mapInArrow(partial(_in_executor, function), from_arrow_schema(schema))


def _in_executor(function: OnBatches, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with executor_work():
        yield from function(batches)
