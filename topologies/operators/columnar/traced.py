"""Which batches the expression of a traced function may compute: those whose columns hold exactly what is declared.

An expression takes an int where a float is declared, and a dict where a class is; a function would see the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, is_typeddict

import numpy as np

from penstock.topologies.columnar.encoded_columns import EncodedColumn, ParsedColumn
from penstock.topologies.columnar.json_writing import DictOf, InstanceOf
from penstock.topologies.expressions.leaves import leaves_of
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tree import Expression, Input, literal, rebuild
from penstock.topologies.expressions.types import DataType
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn, StructColumn

_ARRAYS: dict[str, Any] = {"int64": np.int64, "float64": np.float64, "bool": np.bool_}
_CLASSES: dict[str, type] = {"int64": int, "float64": float, "bool": bool, "string": str, "bytes": bytes}


class _Read(NamedTuple):
    """A part of a record that is read: the key, or a part of the value, and its type."""

    which: str
    path: tuple[str, ...]
    type: DataType


def exact_columns(parts: tuple[ExpressionFunction, ...]) -> Callable[[ColumnBatch], bool]:
    """Whether the columns of a batch that the expressions read hold what is declared."""
    scope = parts[0].scope
    reads = {leaf for fn in parts for leaf in leaves_of(rebuild(fn.expression, _of_record))}
    wanted: list[_Read] = []
    for which, name in reads:
        path = () if name is None else (name,) if isinstance(name, str) else name
        tp = scope.key if which == "key" else scope.value
        wanted.append(_Read(which, path, tp))

    def exact(batch: ColumnBatch) -> bool:
        return all(
            _is_exact(batch.key_column if which == "key" else batch.value_column, tp, path)
            for which, path, tp in wanted
        )

    return exact


def _of_record(node: Expression) -> Expression | None:
    """The left side of a join as the value of a record. The right one is a row as its serde reads it."""
    if not isinstance(node, Input):
        return None
    return {"left": Input("value"), "right": literal(None)}.get(node.which)


def _is_exact(column: Column | None, tp: DataType, path: tuple[str, ...]) -> bool:
    if tp.kind != "struct":
        return column is not None and _holds(column, tp.kind)
    if not isinstance(column, StructColumn) or not _makes(column, tp.python):
        return False
    if not path or isinstance(column, ParsedColumn):  # what is parsed is what the serde reads
        return True
    inner = tp.field(path[0])
    return inner is not None and _is_exact(column.fields.get(path[0]), inner, path[1:])


def _makes(column: StructColumn, python: type | None) -> bool:
    """Whether the records are instances of the class, or dicts that have all of their fields."""
    if isinstance(column, ParsedColumn):
        declared = column.serde.declared
        return declared is python if python is not None else is_typeddict(declared)
    build = column.build
    if python is None:
        return isinstance(build, DictOf)
    return isinstance(build, InstanceOf) and build.python is python


def _holds(column: Column, kind: str) -> bool:
    """Whether each value is null or of the very class of the kind."""
    if isinstance(column, NumberColumn):
        return kind in _ARRAYS and bool(column.array.dtype == _ARRAYS[kind])
    if isinstance(column, EncodedColumn) and column.serde.exact is not None:
        return column.serde.exact is _CLASSES[kind]
    if isinstance(column, CodedColumn):
        return {_CLASSES[kind], type(None)}.issuperset(map(type, column.values))
    return isinstance(column, BytesColumn) and kind == "bytes"
