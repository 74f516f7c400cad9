"""Differing rows as a table for people and programs, and the tolerance that decides whether they differ at all.

Rows come as bytes: ``kind`` (topic or store), ``name``, ``partition``, ``key``, ``left`` and ``right``, each side null where
it has no row. In the table keys and values are texts: the JSON of what they mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.streams.batch.shipping import ShippedTopology
from penstock.streams.batch.values_as_text import StoredForm, Tolerance, forms_of
from penstock.streams.spark.failures import translated

ROW_SCHEMA = "kind string, name string, partition int, key binary, left binary, right binary"


@dataclasses.dataclass(frozen=True)
class Forms:
    """How each side's bytes are read, wherever that is asked. ``names``: the right side's name of a topic, where it has
    another one."""

    left: ShippedTopology
    left_id: str
    right: ShippedTopology
    right_id: str
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @cached_property
    def known(self) -> tuple[dict[tuple[str, str], StoredForm], dict[tuple[str, str], StoredForm]]:
        """The forms of both sides, by kind and name."""
        return forms_of(self.left.load(), self.left_id), forms_of(self.right.load(), self.right_id)

    def of(self, kind: str, name: str) -> tuple[StoredForm, StoredForm]:
        """The forms of one subject, on both sides."""
        left, right = self.known
        return left[kind, name], right[kind, self.names.get(name, name)]


def texts(frame: DataFrame, forms: Forms, left: str, right: str) -> DataFrame:
    """Rows of ``ROW_SCHEMA`` as a table whose value columns are named ``left`` and ``right``."""
    schema = f"kind string, name string, partition int, key string, `{left}` string, `{right}` string"
    return frame.select("kind", "name", "partition", "key", "left", "right").mapInArrow(partial(_texts, forms), schema)


def _texts(forms: Forms, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(i).to_pylist() for i in range(batch.num_columns)]
        shown: tuple[list[str | None], list[str | None], list[str | None]] = ([], [], [])
        for kind, name, _, key, left, right in zip(*columns, strict=True):
            one, other = forms.of(kind, name)
            shown[0].append(one.key_text(key))
            shown[1].append(one.value_text(left))
            shown[2].append(other.value_text(right))
        arrays = [*(batch.column(i) for i in range(3)), *(pa.array(texts, pa.string()) for texts in shown)]
        yield pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(6)])


def write_table(rows: DataFrame, place: str) -> None:
    """Differing rows as Parquet, instead of what was there."""
    with translated("writing the differences"):
        rows.coalesce(1).write.mode("overwrite").parquet(place)


def too_far(forms: Forms, tolerance: Tolerance, kind: str, name: Column, left: Column, right: Column) -> Column:
    """Whether two values differ by more than the tolerance. Rows for which the values are null on both sides cost
    nothing."""

    def differs(name: str | None, left: bytes | None, right: bytes | None) -> bool:
        if name is None or left is None or right is None:
            return left is not right
        one, _ = forms.of(kind, name)
        return not one.close(bytes(left), bytes(right), tolerance)

    return F.udf(differs, "boolean")(name, left, right)
