"""The stores of a savepoint as a DataFrame of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.streams.batch.savepoint import Savepoint
from penstock.streams.batch.snapshot_entries import SCHEMA, manifests_of, read_entries
from penstock.streams.spark.arrow import mapped


def stored_entries(spark: SparkSession, repository: str, savepoint: Savepoint, stores: Sequence[str]) -> DataFrame:
    """``name``, ``partition``, ``store_key`` and ``value`` of all entries; a snapshot is one Spark partition."""
    manifests = manifests_of(repository, savepoint, stores)
    if not manifests:
        return spark.createDataFrame([], from_arrow_schema(SCHEMA))
    places = spark.sparkContext.parallelize([(i,) for i in range(len(manifests))], len(manifests)).toDF("place int")
    return mapped(places, partial(read_entries, repository, manifests), SCHEMA)
