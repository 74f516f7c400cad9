"""One Spark partition for each piece of work.

Spark assigns rows to partitions by a hash, so several pieces can fall into one partition while others stay empty.
Here each piece gets a number whose hash selects its own partition. Spark itself computes the hashes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

_TRIES_PER_SLOT = 16
_SLOT = "slot"


def slot_numbers(spark: SparkSession, count: int) -> list[int]:
    """A number for each of ``count`` partitions: ``repartition(count, number)`` puts it into that partition."""
    found: dict[int, int] = {}
    first = 0
    tries = count * _TRIES_PER_SLOT
    while len(found) < count:
        place = F.pmod(F.hash(F.col("id").cast("int")), F.lit(count)).alias("place")
        numbers = spark.range(first, first + tries, numPartitions=1).select("id", place)
        rows = numbers.groupBy("place").agg(F.min("id").alias("id")).coalesce(1).collect()
        for row in rows:
            found.setdefault(row["place"], row["id"])
        first += tries
    return [found[place] for place in range(count)]


def spread(frame: DataFrame, work: Column, sizes: Sequence[int]) -> DataFrame:
    """The rows, with each piece of work in a Spark partition of its own. ``work``: the number of a row's piece, from
    0; ``sizes``: the size of each piece; the largest are started first."""
    largest_first = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    numbers = slot_numbers(frame.sparkSession, len(sizes))
    of_work = [0] * len(sizes)
    for place, piece in enumerate(largest_first):
        of_work[piece] = numbers[place]
    slot = F.element_at(F.array(*[F.lit(n).cast("int") for n in of_work]), work.cast("int") + 1)
    return frame.withColumn(_SLOT, slot).repartition(len(sizes), _SLOT).drop(_SLOT)
