"""Functions on Arrow batches, run by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema


def mapped(
    frame: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    """Apply ``function`` to the batches of each Spark partition, with the columns of ``schema``."""
    return frame.mapInArrow(function, from_arrow_schema(schema))
