"""Texts split into words over columns: every word of a batch once, as bytes, and each text's words as codes.

A word becomes an object only if it is used; with the compiled kernel this is about ten times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from penstock.state.serdes.serde import STRING
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder, split_words
from penstock.topologies.columnar.word_splitting import words
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.required_columns import InputMode, RequiredColumns
from penstock.topologies.operators.columnar.stateless import PYTHON


def children_mode(
    fn: Callable[..., Iterable[Any]], values_only: bool, with_key: bool, out: RequiredColumns
) -> InputMode:
    """The input mode of an operator that replaces a record by several."""
    if values_only and fn is words:
        return InputMode(RequiredColumns(key=out.key, value=True))
    return InputMode(RequiredColumns(key=out.key or with_key or not values_only, value=True, listed=True), PYTHON)


def words_of(fn: Callable[..., Iterable[Any]]) -> Callable[[ColumnBatch], Batch | None] | None:
    """The words of a batch of texts, each under its text's key; ``None`` where the rows must do it, as a function for
    functions that are not ``words``."""
    if fn is not words:
        return None
    coder = Coder()

    def children(batch: ColumnBatch) -> Batch | None:
        texts = batch.value_column
        if not isinstance(texts, EncodedColumn) or texts.serde != STRING or nulls_of(texts) is not None:
            return None
        found = split_words(texts.raw, lower=True)
        assert not found.failed, "what a serde is known to read is UTF-8"
        column = EncodedColumn.of_codes(found.codes, found.distinct, STRING, coder)
        return batch.pick(np.repeat(np.arange(len(batch)), found.counts)).replace(values=column)

    return children
