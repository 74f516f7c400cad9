"""Ranks of records as numbers that are in the same order: of one part, or of several, of which the first that differs
decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.state.serdes.serde import Serde
from penstock.topologies.aggregators.best_of import comparable, kinds_of
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.encoded_columns import ParsedColumn
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, NumberColumn
from penstock.topologies.operator_api.required_columns import FieldPath, path_of
from penstock.topologies.operators.columnar.source import json_decoder
from penstock.topologies.operators.columnar.stateless import reads


class RankColumns:
    """Reads the parts of ranks, ``by`` expressions of values of ``serde``, which reads JSON of a type."""

    def __init__(self, serde: Serde[Any], by: Sequence[ExpressionFunction]) -> None:
        self._serde = serde
        self._vectors = [Vectors.of(fn) for fn in by]
        fields: set[FieldPath] = set()
        for fn in by:
            needs = reads(fn)
            assert not isinstance(needs, str), needs
            fields |= needs.fields
        decoder = json_decoder(serde)
        assert decoder is not None
        self._projection = JsonProjection(decoder.type, sorted(fields, key=path_of), serde.deserialize)

    def of(self, batch: ColumnBatch) -> list[Column] | None:
        """The parts of a batch's ranks. ``None``: one is null, or cannot be computed."""
        parts: list[Column] = []
        for vectors in self._vectors:
            column = vectors.column(batch)
            if column is None or nulls_of(column) is not None:
                return None
            parts.append(column)
        return parts

    def of_texts(self, texts: BytesColumn) -> list[Column] | None:
        """The parts of the ranks of values, by their texts. ``None``: as above, or one cannot be read."""
        found = self._projection.read(texts)
        if found.failed:
            return None
        rows = np.arange(len(texts), dtype=np.int64)
        values = ParsedColumn(texts, self._serde, found.columns, None)
        return self.of(ColumnBatch(NumberColumn(rows), values, rows, rows))


def rank_numbers(sets: Sequence[list[Column]]) -> Ints | None:
    """The ranks of several sets of records, one behind the other, as numbers from 0 that are equal where ranks are, and
    higher where they are. Each set has its parts. ``None``: they have no order without doubt."""
    keys: list[NDArray[Any]] = []
    for columns in zip(*sets, strict=True):
        key = _sortable(columns)
        if key is None:
            return None
        keys.append(key)
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), np.bool_)
    for key in keys:
        placed = key[order]
        new[1:] |= placed[1:] != placed[:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new)
    return numbers


def _sortable(columns: tuple[Column, ...]) -> NDArray[Any] | None:
    """One part of all sets as an array that sorts as its values do."""
    arrays = [c.array for c in columns if isinstance(c, NumberColumn)]
    if len(arrays) == len(columns) and len({a.dtype for a in arrays}) == 1:
        whole = np.concatenate(arrays)
        return None if whole.dtype == np.float64 and bool(np.isnan(whole).any()) else whole
    values = [value for c in columns for value in c.to_list()]
    if not comparable(kinds_of(values)) or any(v != v for v in values):
        return None
    index = {value: number for number, value in enumerate(sorted(set(values)))}
    return np.fromiter(map(index.__getitem__, values), np.int64, len(values))
