"""Run expressions over the columns of a batch. The row interpreter (``rows``) is the reference; here its work is
shared:

* an expression that reads only coded columns runs in the row interpreter once per distinct value, or combination of
  values;
* comparisons, logic and arithmetic of number columns are kernels over arrays (``kernels``), with separate nulls and
  errors; comparisons of decimals that are made of whole numbers, too (``fixed_point``);
* functions of time run once per step within which they give the same, and branches of texts by arrays (``value_kernels``);
* lengths and parts of texts, and what is found or replaced in them, are computed of their bytes (``text_kernels``);
* if numbers have no kernel, their distinct values are used.

If a row would raise, or an expression cannot read a column, the result is ``None``: the caller must take the row path,
so that the policy applies to each error at its row. A branch that a row does not take raises nothing, as in the row
interpreter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.state.serdes.serde import BYTES, STRING
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.decimal_columns import DecimalColumn
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.expressions import kernels as k
from penstock.topologies.expressions.catalog import CATALOG
from penstock.topologies.expressions.columns import RowReader
from penstock.topologies.expressions.fixed_point import compared_decimals, computed_decimals
from penstock.topologies.expressions.frame import Frame
from penstock.topologies.expressions.generated import ROW, generated
from penstock.topologies.expressions.inference import ExpressionScope, Inference, constants_of
from penstock.topologies.expressions.leaves import Leaf, leaf_of, leaves_of
from penstock.topologies.expressions.readers import EXACT
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.rows import compile_parts
from penstock.topologies.expressions.text_kernels import NUMBERS, TEXTS, TextChoice, is_of_texts, of_number, of_texts
from penstock.topologies.expressions.text_memo import SHARED, TextMemo
from penstock.topologies.expressions.times import step_ms_of
from penstock.topologies.expressions.tree import (
    COMPARISONS,
    LOGIC,
    Alias,
    Binary,
    Call,
    Case,
    Cast,
    Expression,
    Field,
    Input,
    Unary,
)
from penstock.topologies.expressions.types import DataType
from penstock.topologies.expressions.value_kernels import by_steps, chosen_values
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Mask, NumberColumn

MANY = 500
"""For this number of values of a batch, a part is made into a generated function."""
PRESENCE = ("is_null", "is_not_null")
COMBINED_MAX = 1 << 11
"""The most combinations of values that an expression is computed of as a whole. With more its parts are, if they can be."""


class Vectors:
    """One compiled expression. Never raises a row's errors."""

    def __init__(self, expression: Expression, scope: ExpressionScope, *, condition: bool = False) -> None:
        self._expression = expression
        self._scope = scope
        self._condition = condition
        self._types = Inference(scope)
        self._leaves: dict[int, tuple[Leaf, ...]] = {}
        self._rows: dict[tuple[int, bool, bool], RowReader] = {}
        self._stepped: dict[int, tuple[int, Callable[[int], Any]] | None] = {}
        self._of_texts: dict[int, TextChoice] = {}
        self._memos: dict[int, TextMemo] = {}
        self._whole: set[int] = set()
        """Parts that cannot be evaluated by their own parts."""
        self._coder = Coder()

    @classmethod
    def of(cls, fn: ExpressionFunction) -> Vectors:
        """The expression as a row function."""
        return cls(fn.expression, fn.scope, condition=fn.condition)

    def mask(self, batch: Batch) -> Mask | None:
        """The rows for which the condition is true."""
        try:
            found = self._sure(Frame(batch))
        except k.Unsure:
            return None
        if isinstance(found, k.Distinct):
            return k.gathered([bool(v) for v in found.values], found.codes)
        if isinstance(found, k.EncodedTexts) or found.array.dtype != np.bool_:
            return None
        return _in_full(found.array if found.nulls is None else found.array & ~found.nulls, len(batch))

    def column(self, batch: Batch, absent: Mask | None = None) -> Column | None:
        """The values. Rows marked ``absent`` are not evaluated and yield null."""
        frame = Frame(batch)
        try:
            if (objects := self._objects(frame, absent)) is not None:
                return objects
            if absent is None and (undecoded := self._undecoded(frame)) is not None:
                return undecoded
            if (decimals := self._decimals(frame, len(batch), absent)) is not None:
                return decimals
            found = self._sure(frame, absent)
        except k.Unsure:
            return None
        if isinstance(found, k.Distinct):
            # each row needs its own copy of a mutable value
            if not found.shared and not SHARED.issuperset(map(type, found.values)):
                return None
            return nulled(CodedColumn(found.codes, found.values), absent)
        if isinstance(found, k.EncodedTexts):
            nulls = k.either(found.raw.nulls, absent)
            return EncodedColumn(BytesColumn(found.raw.data, found.raw.offsets, nulls), STRING, self._coder)
        rows = len(batch)
        nulls = None if found.nulls is None or not found.nulls.any() else _in_full(found.nulls, rows)
        return nulled(NumberColumn(_in_full(found.array, rows), nulls), absent)

    def _decimals(self, frame: Frame, rows: int, absent: Mask | None) -> DecimalColumn | None:
        """The decimals that it yields, if they are made of columns of whole numbers."""
        e = self._expression
        if self._types.of(e).kind != "decimal" or all(map(frame.coded, self._leaves_of(e, frame))):
            return None
        try:
            found = computed_decimals(e, self._types, frame, self._vec)
        except k.NoKernel:
            return None
        if found is None or found.vec.failed(None if absent is None else ~absent):
            return None
        nulls = None if found.vec.nulls is None else _in_full(found.vec.nulls, rows)
        return DecimalColumn(_in_full(np.asarray(found.vec.array), rows), found.scale, k.either(nulls, absent))

    def failing(self, batch: Batch, absent: Mask | None = None) -> Mask | None:
        """The rows on which it fails; ``None``: none, or unknown."""
        try:
            found = self._part(self._expression, Frame(batch))
        except k.Unsure:
            return None
        if found.errors is None:
            return None
        errors = found.errors if absent is None else found.errors & ~absent
        return _in_full(errors, len(batch)) if errors.any() else None

    def _sure(self, frame: Frame, absent: Mask | None = None) -> k.Operand:
        found = self._part(self._expression, frame)
        if found.failed(None if absent is None else ~absent):
            raise k.Unsure
        return found

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _part(self, e: Expression, frame: Frame) -> k.Operand:
        leaves = self._leaves_of(e, frame)
        coded = all(frame.coded(leaf) for leaf in leaves) and not self._takes_texts(e, leaves, frame)
        if coded and (id(e) in self._whole or not frame.combine_to_more_than(COMBINED_MAX, leaves)):
            return self._by_value(e, leaves, frame)
        try:
            found = self._kernel(e, frame)
        except k.NoKernel:
            found = None
        if found is None and coded:
            self._whole.add(id(e))
        return self._by_value(e, leaves, frame) if found is None else found

    def _takes_texts(self, e: Expression, leaves: tuple[Leaf, ...], frame: Frame) -> bool:
        """Whether it is computed of the bytes of texts."""
        if (choice := self._of_texts.get(id(e))) is None:
            choice = self._of_texts[id(e)] = TextChoice(is_of_texts(e))
        return choice.possible and all(map(frame.has_texts, leaves)) and choice.by_bytes()

    def _texts(self, e: Expression, frame: Frame) -> k.EncodedTexts:
        if isinstance(e, Alias):
            return self._texts(e.of, frame)
        if isinstance(e, Call) and e.function in TEXTS:
            return of_texts(e, self._texts(e.args[0], frame))
        leaf = self._leaf_of(e, frame)
        if leaf is None:
            raise k.NoKernel
        return frame.texts(leaf, self._types.of(e))

    def _kernel(self, e: Expression, frame: Frame) -> k.Operand | None:
        """Evaluate by arrays. Without a kernel returns ``None`` or raises ``NoKernel``."""
        match e:
            case Input() | Field():
                leaf = self._leaf_of(e, frame)
                return None if leaf is None else frame.numbers(leaf, self._types.of(e))
            case Alias(of, _):
                return self._part(of, frame)
            case Unary("~", of):
                return k.inverse(self._condition_of(of, frame))
            case Unary(_, of):
                return k.negative(self._vec(of, frame))
            case Binary(op, left, right) if op in LOGIC:
                both = self._condition_of(left, frame), self._condition_of(right, frame)
                return k.conjunction(*both) if op == "&" else k.disjunction(*both)
            case Binary(op, left, right):
                if op in COMPARISONS and (fixed := compared_decimals(e, self._types, frame, self._vec)) is not None:
                    return fixed
                kernel = k.compared if op in COMPARISONS else k.arithmetic
                return kernel(op, self._vec(left, frame), self._vec(right, frame))
            case Call():
                return self._call(e, frame)
            case Case():
                return self._case(e, frame)
            case Cast(of, to, _):
                return k.cast(self._vec(of, frame), to.kind)
        return None

    def _call(self, e: Call, frame: Frame) -> k.Operand | None:
        if e.function in TEXTS:
            return self._texts(e, frame)
        if e.function in NUMBERS:
            return of_number(e, self._texts(e.args[0], frame))
        if e.function in PRESENCE:
            (of,) = e.args
            leaf = self._leaf_of(of, frame)
            absent = None if leaf is None else frame.absence(leaf, self._types.of(of))
            found = self._part(of, frame).null_test() if absent is None else absent
            return found if e.function == "is_null" else k.inverse(found)
        if e.function == "present":
            return self._part(e.args[0], frame).present()
        if e.function == "provided":
            return self._part(e.args[0], frame).failing_too(*(self._condition_of(c, frame) for c in e.args[1:]))
        if e.function == "abs":
            return k.absolute(self._vec(e.args[0], frame))
        if (stepped := self._by_steps(e, frame)) is not None:
            return stepped
        if e.function not in ("between", "is_in", "coalesce"):
            return None
        if e.function == "coalesce" and self._types.of(e).kind == "string":
            return self._coalesced_values(e, frame)
        args = [self._vec(a, frame) for a in e.args]
        if e.function == "between":
            return k.strictly(
                args, k.conjunction(k.compared(">=", args[0], args[1]), k.compared("<=", args[0], args[2]))
            )
        if e.function == "is_in":
            found = k.compared("==", args[0], args[1])
            for other in args[2:]:
                found = k.disjunction(found, k.compared("==", args[0], other))
            return k.strictly(args, found)
        return k.coalesced([k.widened(a, self._types.of(e).kind) for a in args])

    def _by_steps(self, e: Call, frame: Frame) -> k.Distinct | None:
        """A function of time that gives the same within a step of it; ``None``: of others."""
        if id(e) not in self._stepped:
            function = CATALOG[e.function]
            constants = constants_of(e, function)
            step_ms = step_ms_of(e.function, constants)
            self._stepped[id(e)] = None if step_ms is None else (step_ms, function.make(constants))
        stepped = self._stepped[id(e)]
        if stepped is None:
            return None
        return by_steps(self._vec(e.args[0], frame), *stepped)

    def _case(self, e: Case, frame: Frame) -> k.Operand:
        kind = self._types.of(e).kind
        if kind == "string":
            return self._case_of_values(e, frame)
        branches = [
            (self._condition_of(holds, frame), k.widened(self._vec(then, frame), kind)) for holds, then in e.branches
        ]
        return k.chosen(branches, k.widened(self._vec(e.default, frame), kind))

    def _case_of_values(self, e: Case, frame: Frame) -> k.Operand:
        conditions = [self._condition_of(holds, frame) for holds, _ in e.branches]
        values = [self._part(then, frame) for _, then in e.branches]
        default = self._part(e.default, frame)
        branches = [(c, v) for c, v in zip(conditions, values, strict=True) if isinstance(v, k.Distinct)]
        if len(branches) < len(values) or not isinstance(default, k.Distinct):
            raise k.NoKernel
        return chosen_values(branches, default)

    def _coalesced_values(self, e: Call, frame: Frame) -> k.Distinct:
        parts = [self._part(arg, frame) for arg in e.args]
        values = [part for part in parts if isinstance(part, k.Distinct)]
        if len(values) < len(parts):
            raise k.NoKernel
        return chosen_values([(k.inverse(v.null_test()), v) for v in values[:-1]], values[-1])

    def _vec(self, e: Expression, frame: Frame) -> k.Vec:
        return self._part(e, frame).vec()

    def _condition_of(self, e: Expression, frame: Frame) -> k.Vec:
        return self._part(e, frame).condition()

    # -- distinct values -------------------------------------------------------------------------------------------

    def _by_value(self, e: Expression, leaves: tuple[Leaf, ...], frame: Frame) -> k.Distinct:
        """Run the row interpreter once per combination of inputs."""
        leaf = self._leaf_of(e, frame)
        if leaf is not None and (same := self._as_read(e, leaf, frame)) is not None:
            return same
        if (remembered := self._remembered(e, leaves, frame)) is not None:
            return remembered
        codes, count, records = frame.records(leaves)
        if (choice := self._of_texts.get(id(e))) is not None:
            choice.saw(count, len(codes))
        row = self._row(e, dicts=frame.of_fields, many=count >= MANY)
        values: list[Any] = []
        wrong: list[bool] = []
        for key, value, timestamp in records:
            try:
                values.append(row(key, value, timestamp, ()))
                wrong.append(False)
            except Exception:  # not swallowed: a row with this value takes the row path, which raises it again
                values.append(None)
                wrong.append(True)
        errors = np.array(wrong, np.bool_)[codes] if any(wrong) else None
        return k.Distinct(codes, values, errors)

    def _remembered(self, e: Expression, leaves: tuple[Leaf, ...], frame: Frame) -> k.Distinct | None:
        """Results by the text that they depend on; ``None``: they depend on others, or texts hardly come again."""
        found = frame.texts_alone(leaves)
        if found is None:
            return None
        row = self._row(e, dicts=frame.of_fields, many=len(found.values) >= MANY)
        ((which, name),) = leaves

        def compute(text: str | None) -> Any:
            held: Any = {name: text} if isinstance(name, str) else text
            return row(held, None, 0, ()) if which == "key" else row(None, held, 0, ())

        if (memo := self._memos.get(id(e))) is None:
            memo = self._memos[id(e)] = TextMemo()
        known = memo.results(found.values, compute)
        if known is None:
            return None
        results, wrong = known
        if (choice := self._of_texts.get(id(e))) is not None:
            choice.saw(len(results), len(found.codes))
        if not wrong:
            return k.Distinct(found.codes, results, shared=memo.shared)
        flags = np.zeros(len(results), np.bool_)
        flags[wrong] = True
        return k.Distinct(found.codes, results, flags[found.codes])

    def _row(self, e: Expression, *, dicts: bool, many: bool) -> RowReader:
        """The row interpreter of a part. ``dicts``: values are dicts of their fields, whatever their type. ``many``: as
        one generated function, which is faster, and takes a while to make."""
        row = self._rows.get((id(e), dicts, many))
        if row is None:
            scope = dataclasses.replace(self._scope, value=_of_dicts(self._scope.value)) if dicts else self._scope
            condition = self._condition and e is self._expression
            row, _ = compile_parts(e, scope, condition=condition)
            if many:
                row = generated(e, scope, ROW, row, condition=condition)
            self._rows[id(e), dicts, many] = row
        return row

    def _as_read(self, e: Expression, leaf: Leaf, frame: Frame) -> k.Distinct | None:
        """A column whose values a reader of its type passes unchanged. It may fail on nulls."""
        tp, column = self._types.of(e), frame.column(leaf)
        exact = EXACT.get(tp.kind)
        if exact is None or not isinstance(column, CodedColumn):
            return None
        seen = set(map(type, column.values))
        if not seen <= {exact, type(None)}:
            return None
        if tp.nullable or type(None) not in seen:
            return k.Distinct(column.codes, column.values, shared=exact in SHARED)
        if leaf[1] is None:
            return None
        missing = frame.missing(k.gathered([v is None for v in column.values], column.codes))
        return k.Distinct(column.codes, column.values, missing if missing.any() else None)

    def _objects(self, frame: Frame, absent: Mask | None) -> Column | None:
        """The column of objects that the expression only passes on. They are null where what they are within is."""
        e = self._expression
        while isinstance(e, Alias):
            e = e.of
        leaf = self._leaf_of(e, frame)
        column = None if leaf is None else frame.objects(leaf)
        if column is None or column.nulls is None or self._types.of(e).nullable:
            return column
        if frame.missing(column.nulls if absent is None else column.nulls & ~absent).any():
            raise k.Unsure
        return column

    def _undecoded(self, frame: Frame) -> Column | None:
        """The column that the expression only passes on, without building its values."""
        e = self._expression
        while isinstance(e, Call) and e.function == "present":
            (e,) = e.args  # a column with nulls is none of these
        leaf = self._leaf_of(e, frame)
        if leaf is None:
            return None
        column = frame.column(leaf)
        if not isinstance(column, EncodedColumn) or column.serde not in (STRING, BYTES) or nulls_of(column) is not None:
            return None
        return column if EXACT.get(self._types.of(e).kind) is column.serde.exact else None

    def _leaves_of(self, e: Expression, frame: Frame) -> tuple[Leaf, ...]:
        """The inputs, as far as the columns go: a field of what is not a record of columns is read by row."""
        found = self._leaves.get(id(e))
        if found is None:
            found = self._leaves[id(e)] = leaves_of(e)
        if any(isinstance(name, tuple) or (which == "key" and name is not None) for which, name in found):
            return tuple(dict.fromkeys(map(frame.reached, found)))
        return found

    def _leaf_of(self, e: Expression, frame: Frame) -> Leaf | None:
        """The input that a node is; ``None``: it is more than that."""
        leaf = leaf_of(e)
        return leaf if leaf is None or frame.reached(leaf) == leaf else None


def _of_dicts(tp: DataType) -> DataType:
    """The type with dicts for the instances of classes."""
    if tp.kind != "struct":
        return tp
    return dataclasses.replace(tp, python=None, fields=tuple((n, _of_dicts(t)) for n, t in tp.fields))


def _in_full(array: k.Array, rows: int) -> k.Array:
    return np.full(rows, array) if array.ndim == 0 else array


def nulled(column: CodedColumn | NumberColumn, nulls: Mask | None) -> Column:
    """The column with additional nulls at these rows."""
    if nulls is None:
        return column
    if isinstance(column, NumberColumn):
        return NumberColumn(column.array, nulls if column.nulls is None else column.nulls | nulls)
    return CodedColumn(np.where(nulls, np.int32(len(column.values)), column.codes), [*column.values, None])
