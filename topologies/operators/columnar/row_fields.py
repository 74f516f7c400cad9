"""Read fields of a table's rows from the JSON in the store, for many records that each meet a different row.

A row stored as text need not become an object for that. If most records of a batch meet the same few rows, it is better
to decode each of these once and keep it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from penstock.state.serdes.serde import Serde
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.encoded_columns import EncodedColumn, ParsedColumn
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.expressions.inference import ExpressionScope
from penstock.topologies.expressions.leaves import leaves_of
from penstock.topologies.expressions.tree import Expression, Input, rebuild
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.columns import BytesColumn, Column
from penstock.topologies.operators.columnar.row_texts import RowTexts, row_texts
from penstock.topologies.operators.columnar.source import json_decoder

_REPEATED = 2
"""With this many records per row, decoding rows is better."""


class RowFields:
    """Works out expressions of the right side of a join, each of which reads fields of it; see ``row_fields``."""

    def __init__(self, texts: RowTexts, projection: JsonProjection, vectors: Mapping[str, Vectors]) -> None:
        self._texts = texts
        self._projection = projection
        self._vectors = vectors

    def rows(self, keys: BytesColumn, state: KeyValueStoreView) -> ParsedColumn | None:
        """The rows of non-null keys; null where there is no row. ``None``: take the row path."""
        found = self._texts.of(keys, state)
        if found is None:
            return None
        columns, failed = self._projection.read(found.raw)
        return None if failed else ParsedColumn(found.raw, found.serde, columns, found.raw.nulls)

    def columns(self, batch: Batch, rows: ParsedColumn) -> dict[str, Column] | None:
        """Results of the expressions, by name, for records that have met these rows, of which none is null. ``None``: row
        by row, also where one raises."""
        met = batch.replace(values=rows)
        out: dict[str, Column] = {}
        for name, vectors in self._vectors.items():
            column = vectors.column(met)
            if column is None:
                return None
            out[name] = column
        return out


def row_fields(serde: Serde[object], scope: ExpressionScope, expressions: Mapping[str, Expression]) -> RowFields | None:
    """For rows that are immutable, of a type of plain texts, whole numbers and truth values, and written as JSON. ``None``:
    others, or an expression reads more than fields of the right side."""
    texts, decoder = row_texts(serde), json_decoder(serde)
    if texts is None or decoder is None or scope.right is None or not expressions:
        return None
    as_value = {
        n: rebuild(e, lambda node: Input("value") if isinstance(node, Input) else None) for n, e in expressions.items()
    }
    leaves = [leaf for e in as_value.values() for leaf in leaves_of(e)]
    names = sorted({name for _, name in leaves if isinstance(name, str)})
    if (
        not names
        or any(not isinstance(name, str) for _, name in leaves)
        or why_not_projected(decoder.type, names) is not None
    ):
        return None
    of_rows = dataclasses.replace(scope, value=scope.right, right=None, record=False, keyed=False)
    projection = JsonProjection(decoder.type, names, serde.deserialize)
    return RowFields(texts, projection, {n: Vectors(e, of_rows) for n, e in as_value.items()})


def mostly_different(keys: Column | None) -> bool:
    """Whether most records have a key of their own."""
    if not isinstance(keys, EncodedColumn):
        return False
    codes = keys.encoded.codes
    return len(set(codes.tolist())) * _REPEATED > len(codes)
