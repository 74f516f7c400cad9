"""Filters, projections and new keys by expressions, over columns. Each form returns ``None`` if the rows must be
used."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.json_writing import DictOf, InstanceOf
from penstock.topologies.expressions.inference import Inference
from penstock.topologies.expressions.kernels import either
from penstock.topologies.expressions.leaves import leaf_of
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tracing.traced_function import Columns, TracedFunction
from penstock.topologies.expressions.tree import (
    Alias,
    Call,
    Expression,
    Extend,
    Field,
    HeaderValue,
    Input,
    StructOf,
)
from penstock.topologies.expressions.types import DataType, schema_of
from penstock.topologies.expressions.vectors import PRESENCE, Vectors
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Column, Mask, StructColumn
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    NO_COLUMNS,
    EdgeLayout,
    FieldPath,
    InputMode,
    RequiredColumns,
    field_at,
    path_of,
)
from penstock.topologies.operators.columnar.traced import exact_columns

PYTHON = "it is given a Python function"
_SIMPLE = ("int64", "float64", "bool", "string", "bytes")


# -- what is read --------------------------------------------------------------------------------------------------------


def parts_of(fn: Any) -> tuple[ExpressionFunction, ...] | str:
    """The expressions of a row function, one, or two of pairs; or why it takes rows."""
    if isinstance(fn, ExpressionFunction):
        return (fn,)
    if not isinstance(fn, TracedFunction):
        return PYTHON
    found = fn.columns
    return f"{PYTHON}; {found}" if isinstance(found, str) else found.parts


def _one_of(fn: Any) -> ExpressionFunction | str:
    found = parts_of(fn)
    return found if isinstance(found, str) else found[0]


def reads(fn: Any) -> RequiredColumns | str:
    """The columns that a row function reads of a record, or why it takes rows."""
    found = _one_of(fn)
    return found if isinstance(found, str) else reads_of(found.expression, found)


def reads_of(e: Expression, fn: ExpressionFunction) -> RequiredColumns | str:
    """As ``reads``, of a part of the function's expression."""
    return _Reads(fn).of(e)


class _Reads:
    """Finds what the parts of a function's expression read."""

    def __init__(self, fn: ExpressionFunction) -> None:
        self._kind = fn.scope.value.kind
        self._types = Inference(fn.scope)

    def of(self, e: Expression) -> RequiredColumns | str:
        """The columns that a part reads, or why it takes rows."""
        if isinstance(e, HeaderValue):
            return "its expression reads headers"
        if isinstance(e, Input):
            return self._input(e.which)
        field = field_of(e)
        if field is not None:
            if self._types.of(e).kind == "struct":
                return f"its expression takes {e.text()} as a whole"
            return RequiredColumns(fields=frozenset((field,)))
        if isinstance(e, Call) and e.function in PRESENCE:
            if is_value(e.args[0]):
                return NO_COLUMNS
            if (field := field_of(e.args[0])) is not None:
                return RequiredColumns(fields=frozenset((field,)))
        needed = NO_COLUMNS
        for part in e.children():
            found = self.of(part)
            if isinstance(found, str):
                return found
            needed |= found
        return needed

    def _input(self, which: str) -> RequiredColumns | str:
        if which == "key":
            return RequiredColumns(key=True)
        if which == "value":
            if self._kind in ("struct", "unknown", "list"):
                return "its expression takes the value as a whole"
            return RequiredColumns(value=True)
        return NO_COLUMNS if which == "timestamp" else "its expression reads two sides"


def field_of(e: Expression) -> FieldPath | None:
    """The field of the value, or of objects within it, that an expression is; ``None``: it is more than that."""
    leaf = leaf_of(e)
    return None if leaf is None or leaf[0] != "value" else leaf[1]


def is_value(e: Expression) -> bool:
    """Whether it is the record's value, and nothing else."""
    return isinstance(e, Input) and e.which == "value"


# -- filters -------------------------------------------------------------------------------------------------------------


def filter_mode(fn: Any, values_only: bool, out: RequiredColumns) -> InputMode:
    """How a filter takes its records."""
    found = reads(fn)
    if isinstance(found, str):
        return InputMode(RequiredColumns(key=out.key or not values_only, value=True, listed=True) | out, found)
    return InputMode(found | out.later())


class ColumnarStep(NamedTuple):
    """A function over columns. ``make``: what it gives of a batch, a mask, or new keys or values; ``None``: by rows.
    ``failing``: the rows on which the function fails; ``None``: none, or it is not known."""

    make: Callable[[ColumnBatch], Any]
    failing: Callable[[ColumnBatch], Mask | None]


def mask_of(fn: Any) -> ColumnarStep | None:
    """The filter's mask; ``None`` where the function has none."""
    found = _one_of(fn)
    if isinstance(found, str) or isinstance(reads(fn), str):
        return None
    vectors = Vectors.of(found)
    return guarded(fn, ColumnarStep(vectors.mask, vectors.failing))


def guarded(fn: Any, step: ColumnarStep) -> ColumnarStep:
    """The step, which leaves batches to a traced function that it may compute otherwise."""
    if not isinstance(fn, TracedFunction):
        return step
    usable = usable_by(fn)
    return ColumnarStep(
        lambda batch: step.make(batch) if usable(batch) else None,
        lambda batch: step.failing(batch) if usable(batch) else None,
    )


def usable_by(fn: TracedFunction) -> Callable[[ColumnBatch], bool]:
    """Whether the expression of a function that was traced to one may compute a batch: only where it gives the same."""
    parts = parts_of(fn)
    assert not isinstance(parts, str)
    exact = exact_columns(parts)
    of_records = isinstance(fn.columns, Columns) and fn.columns.of_records

    def usable(batch: ColumnBatch) -> bool:
        if batch.key_column is None and batch.value_column is None:
            return False
        if of_records and (batch.value_column is None or nulls_of(batch.value_column) is not None):
            return False
        return fn.unchanged() and exact(batch)

    return usable


def expression_of(fn: Any) -> Any:
    """The expression of a row function, where it is traced to one; else the function itself."""
    found = _one_of(fn)
    return fn if isinstance(found, str) else found


def by_columns(
    ctx: OperatorContext,
    batch: ColumnBatch,
    form: ColumnarStep | None,
    emit: Callable[[Batch, Any], None],
    fn: Callable[..., Any],
    given: Callable[[Batch], tuple[Sequence[Any], ...]],
) -> Batch | None:
    """``emit`` the batch with what the form gives, less the rows on which ``fn``, of what it is ``given``, fails: they meet
    the policy. Returns what is left for the rows: the batch, or the rest of it; ``None``: nothing."""
    if form is None:
        return batch
    found = form.make(batch)
    if found is None and (left := _without_failing(ctx, batch, form, fn, given)) is not None:
        batch = left
        found = form.make(batch) if len(batch) else None
    if found is None:
        return batch
    emit(batch, found)
    return None


def _without_failing(
    ctx: OperatorContext,
    batch: ColumnBatch,
    form: ColumnarStep,
    fn: Callable[..., Any],
    given: Callable[[Batch], tuple[Sequence[Any], ...]],
) -> ColumnBatch | None:
    """The batch without the rows that fail; ``None``: it is not known which, and nothing was done."""
    failing = form.failing(batch)
    if failing is None:
        return None
    places = np.flatnonzero(failing)
    errors: list[Exception] = []
    for row in zip(*given(batch.pick(places).listed()), strict=True):
        try:
            fn(*row)
        except Exception as exc:  # not swallowed: it meets the policy below
            errors.append(exc)
        else:
            return None
    for place, error in zip(places.tolist(), errors, strict=True):
        ctx.failed(batch, place, error)
    return batch.where(~failing)


def branch_mode(predicates: Sequence[Any], out: Sequence[RequiredColumns]) -> InputMode:
    """How a branch takes its records."""
    needed = NO_COLUMNS
    for one in out:
        needed |= one.later()
    for fn in predicates:
        found = reads(fn)
        if isinstance(found, str):
            return InputMode(ALL_AS_ROWS, found)
        needed |= found
    return InputMode(needed)


def ports_of(predicates: Sequence[Any]) -> Callable[[ColumnBatch], list[Mask] | None] | None:
    """The mask of each port, one more than there are predicates, which is of the rest."""
    masks = [mask_of(p) for p in predicates]

    def ports(batch: ColumnBatch) -> list[Mask] | None:
        out: list[Mask] = []
        left: Mask = np.ones(len(batch), np.bool_)
        for mask in masks:
            found = None if mask is None else mask.make(batch)
            if found is None:
                return None
            out.append(found & left)
            left = left & ~found
        return [*out, left]

    return None if None in masks else ports


# -- values and keys -----------------------------------------------------------------------------------------------------


def values_mode(fn: Any, with_key: bool, out: RequiredColumns) -> InputMode:
    """How a mapping of values takes its records."""
    found = read_by_values(fn, out)
    if isinstance(found, str):
        return InputMode(RequiredColumns(key=out.key or with_key, value=True, listed=True), found)
    return InputMode(found | RequiredColumns(key=out.key))


def read_by_values(fn: Any, out: RequiredColumns) -> RequiredColumns | str:
    """Find what is read for new values, or keys, of which ``out`` is required; or why they are made by rows."""
    fn = _one_of(fn)
    if isinstance(fn, str):
        return fn
    fields = _fields(fn)
    if isinstance(fields, str):
        return fields
    below = [path_of(f) for f in out.fields]
    if fields is None:
        e = _plain(fn.expression)
        objects = objects_at(e, fn)
        if objects is None:
            return reads_of(e, fn)
        # for an operator that lists all objects, decoding whole records is faster than columns
        return _within(objects, below) | RequiredColumns(value=out.listed, listed=out.listed)
    needed = NO_COLUMNS
    for name, e in fields:
        objects = objects_at(_plain(e), fn)
        found = reads_of(e, fn) if objects is None else _within(objects, [p[1:] for p in below if p[0] == name])
        if isinstance(found, str):
            return found
        needed |= found
    return needed


def values_layout(fn: Any, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
    """The layout of what a mapping of values emits."""
    found = _one_of(fn)
    if input_mode.rows is not None or isinstance(found, str):
        return EdgeLayout(given.keys)
    objects = objects_at(_plain(found.expression), found)
    if objects is None:
        return EdgeLayout(given.keys, True)
    above = path_of(objects)
    below = [path[len(above) :] for f in input_mode.needs.fields if (path := path_of(f))[: len(above)] == above]
    return EdgeLayout(given.keys, True, fields=frozenset(field_at(path) for path in below if path))


def objects_at(e: Expression, fn: ExpressionFunction) -> FieldPath | None:
    """The field of the value whose objects an expression passes on as they are; ``None``: it does something else."""
    field = field_of(e)
    return field if field is not None and Inference(fn.scope).of(e).kind == "struct" else None


def _within(objects: FieldPath, paths: Iterable[tuple[str, ...]]) -> RequiredColumns:
    """Objects, and fields of theirs."""
    return RequiredColumns(fields=frozenset((objects, *(field_at(path_of(objects) + path) for path in paths))))


def _plain(e: Expression) -> Expression:
    return _plain(e.of) if isinstance(e, Alias) else e


def _fields(fn: ExpressionFunction) -> list[tuple[str, Expression]] | str | None:
    """The fields of the struct that the function makes of a value, in their order; ``None``: it makes something else; or
    why it cannot be made of columns."""
    e = _plain(fn.expression)
    types = Inference(fn.scope)
    if isinstance(e, StructOf):
        if e.of is not None and not is_value(e.of):
            return "its struct depends on more than the value"
        why = None if e.python is None else why_not_built(e.python, {n: types.of(f) for n, f in e.fields})
        return list(e.fields) if why is None else why
    if isinstance(e, Extend):
        known = types.of(e.of)
        if not is_value(e.of) or known.kind != "struct":
            return "the fields of its value are not declared"
        added = dict(e.fields)
        names = dict.fromkeys([*(n for n, _ in known.fields), *added])
        return [(n, added[n] if n in added else Field(e.of, n)) for n in names]
    return None


def why_not_built(python: type, given: dict[str, DataType]) -> str | None:
    """Why instances of a class cannot be made of columns as they are."""
    if hasattr(python, "__post_init__"):
        return f"{python.__name__} has a __post_init__"
    if not issubclass(python, msgspec.Struct) and not python.__dataclass_params__.init:  # type: ignore[attr-defined]  # one of the two
        return f"{python.__name__} has an __init__ of its own"
    wanted = schema_of(python)
    for name, tp in given.items():
        field = wanted.field(name)
        assert field is not None
        if tp.kind != field.kind or tp.kind not in _SIMPLE or (tp.nullable and not field.nullable):
            return f"{python.__name__}.{name} is {field}, which must be checked value by value"
    return None


def values_of(fn: Any) -> ColumnarStep | None:
    """The new values, or keys, of a batch; ``None`` where the function makes none of columns."""
    found = _one_of(fn)
    if isinstance(found, str) or isinstance(read_by_values(found, NO_COLUMNS), str):
        return None
    return guarded(fn, step_of(found))


def step_of(fn: ExpressionFunction) -> ColumnarStep:
    """The results of an expression that makes columns."""
    fields = _fields(fn)
    assert not isinstance(fields, str)
    if fields is None:
        return _result_of(fn)
    e = _plain(fn.expression)
    made = _Structs(fn, fields, e.python if isinstance(e, StructOf) else None, isinstance(e, Extend) or _null_kept(e))
    return ColumnarStep(made.column, made.failing)


def _result_of(fn: ExpressionFunction) -> ColumnarStep:
    vectors = Vectors.of(fn)
    return ColumnarStep(vectors.column, vectors.failing)


def _null_kept(e: Expression) -> bool:
    return isinstance(e, StructOf) and e.of is not None


class _Structs:
    """A struct of each value. ``null_kept``: a null value stays null."""

    def __init__(
        self, fn: ExpressionFunction, fields: list[tuple[str, Expression]], python: type | None, null_kept: bool
    ) -> None:
        self._fields = [(n, Vectors(e, fn.scope)) for n, e in fields]
        self._build = builder([n for n, _ in fields], python)
        self._null_kept = null_kept

    def column(self, batch: ColumnBatch) -> Column | None:
        """The structs; ``None``: by rows."""
        absent: Mask | None = None
        if self._null_kept:
            if batch.value_column is None:
                return None
            absent = nulls_of(batch.value_column)
        made: dict[str, Column] = {}
        for name, vectors in self._fields:
            column = vectors.column(batch, absent)
            if column is None:
                return None
            made[name] = column
        return StructColumn(made, self._build, absent)

    def failing(self, batch: ColumnBatch) -> Mask | None:
        """The rows for which the function fails, as far as known."""
        if batch.value_column is None:
            return None
        absent = nulls_of(batch.value_column) if self._null_kept else None
        return either(*(vectors.failing(batch, absent) for _, vectors in self._fields))


def builder(names: list[str], python: type | None) -> Callable[..., Any]:
    """Return the function that makes a struct of its fields' values: a dict, or an instance of the class."""
    return DictOf(names) if python is None else InstanceOf(names, python)


def key_mode(fn: Any, out: RequiredColumns) -> InputMode:
    """How a choice of new keys takes its records."""
    found = read_by_values(fn, NO_COLUMNS)
    if isinstance(found, str):
        return InputMode(ALL_AS_ROWS, found)
    return InputMode(found | dataclasses.replace(out, key=False))


def keys_of(fn: Any) -> ColumnarStep | None:
    """The new keys of a batch; ``None`` where the function makes none of columns."""
    return values_of(fn)
