"""New keys and values at once, by a traced function that gives pairs, over columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Column
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    NO_COLUMNS,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
)
from penstock.topologies.operators.columnar.stateless import (
    ColumnarStep,
    guarded,
    is_value,
    parts_of,
    read_by_values,
    step_of,
    values_layout,
)


def pair_mode(fn: Any, out: RequiredColumns) -> InputMode:
    """How a mapping of keys and values takes its records."""
    parts = parts_of(fn)
    if isinstance(parts, str):
        return InputMode(ALL_AS_ROWS, parts)
    keys, values = parts
    kept = dataclasses.replace(out, key=False)
    needed = NO_COLUMNS
    for found in (read_by_values(keys, NO_COLUMNS), kept if _passes_values(values) else read_by_values(values, out)):
        if isinstance(found, str):
            return InputMode(ALL_AS_ROWS, found)
        needed |= found
    return InputMode(needed)


def _passes_values(fn: ExpressionFunction) -> bool:
    """Whether it gives the record's value as it is."""
    return is_value(fn.expression) and fn.scope.value.kind == "struct"


def why_pairs_by_rows(fn: Any, given: EdgeLayout) -> str | None:
    """Why records in this layout are mapped by rows although ``pair_mode`` says columns."""
    parts = parts_of(fn)
    passes = not isinstance(parts, str) and _passes_values(parts[1])
    return "values come as lists" if passes and not given.values else None


def pair_layout(fn: Any, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
    """The layout of what a mapping of keys and values emits."""
    parts = parts_of(fn)
    if input_mode.rows is not None or isinstance(parts, str):
        return ROW_LAYOUT
    values = given if _passes_values(parts[1]) else values_layout(parts[1], given, input_mode)
    return dataclasses.replace(values, keys=True)


def pairs_of(fn: Any) -> Callable[[ColumnBatch], tuple[Column, Column] | None] | None:
    """The new keys and values of a batch; ``None`` where the function makes none of columns."""
    parts = parts_of(fn)
    if isinstance(parts, str) or isinstance(pair_mode(fn, NO_COLUMNS).rows, str):
        return None
    keys = step_of(parts[0])
    values = ColumnarStep(_value_column, lambda batch: None) if _passes_values(parts[1]) else step_of(parts[1])

    def made(batch: ColumnBatch) -> tuple[Column, Column] | None:
        made_keys = keys.make(batch)
        made_values = None if made_keys is None else values.make(batch)
        return None if made_values is None else (made_keys, made_values)

    return guarded(fn, ColumnarStep(made, lambda batch: None)).make


def _value_column(batch: ColumnBatch) -> Column | None:
    return batch.value_column
