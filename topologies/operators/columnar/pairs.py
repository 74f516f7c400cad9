"""Conditions and joiners over columns of pairs: the left and the right values of joined records.

A pair is a record with a field for each field of either side that an expression reads, ``left.price``, so that conditions
and fields of results run as any expression over columns. A side as a whole is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.encoded_columns import SAME_BYTES
from penstock.topologies.columnar.json_writing import DictOf
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.expressions.inference import ExpressionScope, Inference
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tracing.traced_function import TracedFunction
from penstock.topologies.expressions.tree import Alias, Call, Expression, Field, Input, StructOf, rebuild, walk
from penstock.topologies.expressions.types import DataType, schema_of, struct_of
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Column, Mask, NumberColumn, StructColumn
from penstock.topologies.operators.columnar.source import json_decoder
from penstock.topologies.operators.columnar.stateless import builder, expression_of, parts_of, why_not_built

SIDES = ("left", "right")


class PairValues(Protocol):
    """The values of pairs."""

    def whole(self, side: str) -> Column:
        """The values of a side."""

    def field(self, side: str, name: str) -> Column | None:
        """A field of them; ``None``: it cannot be read."""


def why_no_pairs(condition: Any, joiner: Any, serdes: Mapping[str, Serde[Any]]) -> str | None:
    """Why pairs of values of these serdes, by side, are joined one by one."""
    for fn in (condition, joiner):
        if fn is not None and isinstance(found := parts_of(fn), str):
            return found
    traced = any(isinstance(fn, TracedFunction) for fn in (condition, joiner))
    for side, serde in serdes.items():
        if serde in SAME_BYTES:
            continue
        if traced and not isinstance(serde.declared, type):
            return f"its {side} values are dicts that may lack fields, of which a function would see more than an expression"
        decoder = json_decoder(serde)
        if decoder is None:
            return f"its {side} values have the serde {serde.name}"
        names = sorted(fields_read(condition, side) | fields_read(joiner, side))
        why = why_not_projected(decoder.type, names)
        if why is not None:
            return f"fields of {serde.name} cannot be read apart: {why}"
    for fn in (condition, joiner):
        try:
            if fn is not None:
                (_condition if fn is condition else _result)(expression_of(fn))
        except _NoColumnsError as exc:
            return str(exc)
    return None


def still_means(*fns: Any) -> bool:
    """Whether the names that plain functions among these read mean what they did when they were traced."""
    return all(fn.unchanged() for fn in fns if isinstance(fn, TracedFunction))


def fields_read(fn: Any, side: str) -> set[str]:
    """The fields of a side's values that a function reads, if there is one."""
    if fn is None:
        return set()
    found = filter(None, map(_field_of, walk(expression_of(fn).expression)))
    return {name for of, name in found if of == side}


def _field_of(e: Expression) -> tuple[str, str] | None:
    """The side and the name of a field, if an expression is one of a side's values."""
    if isinstance(e, Field) and isinstance(e.of, Input) and e.of.which in SIDES:
        return e.of.which, e.name
    return None


def _test_of(e: Expression) -> tuple[str, bool] | None:
    """The side that an expression tests, and whether for being null."""
    if not isinstance(e, Call) or e.function not in ("is_null", "is_not_null"):
        return None
    of = _plain(e.args[0])
    return (of.which, e.function == "is_null") if isinstance(of, Input) and of.which in SIDES else None


class _NoColumnsError(Exception):
    """Says why an expression does not run over pairs."""


class _OverPairs:
    """An expression over the fields of pairs."""

    def __init__(self, e: Expression, scope: ExpressionScope, *, condition: bool = False) -> None:
        types = Inference(scope)
        self._leaves: dict[str, tuple[str, str | None]] = {}
        self._tests: dict[str, tuple[str, bool]] = {}
        """Whether a side is null, or is not, where it is tested as a whole."""
        fields: dict[str, DataType] = {}

        def as_field(node: Expression) -> Expression | None:
            if (test := _test_of(node)) is not None:
                text = f"{test[0]} is {'' if test[1] else 'not '}null"
                self._tests[text] = test
                fields[text] = schema_of(bool)
                return Field(Input("value"), text)
            leaf: tuple[str, str | None] | None = (node.which, None) if isinstance(node, Input) else _field_of(node)
            if leaf is None:
                return None
            side, name = leaf
            tp = types.of(node)
            if side not in SIDES or tp.kind in ("struct", "unknown", "list"):
                what = "its expression takes a side as a whole" if name is None else f"the type of {name} is {tp}"
                raise _NoColumnsError(what)
            text = side if name is None else f"{side}.{name}"
            self._leaves[text] = leaf
            fields[text] = tp
            return Field(Input("value"), text)

        rewritten = rebuild(e, as_field)
        self._vectors = Vectors(
            rewritten, ExpressionScope(struct_of(fields), record=False, keyed=False), condition=condition
        )

    def _batch(self, pairs: PairValues, like: ColumnBatch) -> ColumnBatch | None:
        columns: dict[str, Column] = {}
        for text, (side, name) in self._leaves.items():
            column = pairs.whole(side) if name is None else pairs.field(side, name)
            if column is None:
                return None
            columns[text] = column
        for text, (side, null) in self._tests.items():
            nulls = nulls_of(pairs.whole(side))
            nulls = np.zeros(len(like), np.bool_) if nulls is None else nulls
            columns[text] = NumberColumn(nulls if null else ~nulls)
        return ColumnBatch(like.key_column or [], StructColumn(columns, DictOf(columns)), like.times, like.orders)

    def mask(self, pairs: PairValues, like: ColumnBatch) -> Mask | None:
        """The pairs for which the condition is true; ``None``: by rows."""
        batch = self._batch(pairs, like)
        return None if batch is None else self._vectors.mask(batch)

    def column(self, pairs: PairValues, like: ColumnBatch) -> Column | None:
        """The results; ``None``: by rows."""
        batch = self._batch(pairs, like)
        return None if batch is None else self._vectors.column(batch)


Result = Callable[[PairValues, ColumnBatch], Column | None]
"""The joiner's results for pairs; ``None``: by rows. The batch has as many records as there are pairs."""


def condition_of(fn: Any) -> Callable[[PairValues, ColumnBatch], Mask | None]:
    """The pairs that a condition is true for, for one that ``why_no_pairs`` has nothing against."""
    return _condition(expression_of(fn))


def result_of(fn: Any) -> Result:
    """A joiner over columns, for one that ``why_no_pairs`` has nothing against."""
    return _result(expression_of(fn))


def _condition(fn: ExpressionFunction) -> Callable[[PairValues, ColumnBatch], Mask | None]:
    return _OverPairs(fn.expression, fn.scope, condition=True).mask


def _plain(e: Expression) -> Expression:
    return _plain(e.of) if isinstance(e, Alias) else e


def _result(fn: ExpressionFunction) -> Result:
    e = _plain(fn.expression)
    if not isinstance(e, StructOf):
        return _part(e, fn.scope)
    if e.of is not None:
        raise _NoColumnsError("its struct depends on more than its fields")
    names = [name for name, _ in e.fields]
    if e.python is not None:
        _check_class(e.python, dict(e.fields), fn.scope)
    build = builder(names, e.python)
    parts = {name: _part(field, fn.scope) for name, field in e.fields}

    def struct(pairs: PairValues, like: ColumnBatch) -> Column | None:
        made: dict[str, Column] = {}
        for name, part in parts.items():
            column = part(pairs, like)
            if column is None:
                return None
            made[name] = column
        return StructColumn(made, build)

    return struct


def _part(e: Expression, scope: ExpressionScope) -> Result:
    """A side as it is, or an expression."""
    e = _plain(e)
    if isinstance(e, Input) and e.which in SIDES:
        side = e.which
        return lambda pairs, like: pairs.whole(side)
    kind = Inference(scope).of(e).kind
    if kind in ("struct", "list"):
        raise _NoColumnsError(f"a {kind} within its result is built one by one")
    return _OverPairs(e, scope).column


def _check_class(python: type, fields: Mapping[str, Expression], scope: ExpressionScope) -> None:
    """A side as a whole fits a field of its class; others are checked as in any mapping."""
    types = Inference(scope)
    wanted = schema_of(python)
    others: dict[str, DataType] = {}
    for name, field in fields.items():
        tp, of = types.of(field), wanted.field(name)
        whole = isinstance(_plain(field), Input) and tp.kind == "struct"
        if not whole or of is None or of.not_null() != tp.not_null() or tp.python is None:
            others[name] = tp
    why = why_not_built(python, others)
    if why is not None:
        raise _NoColumnsError(why)
