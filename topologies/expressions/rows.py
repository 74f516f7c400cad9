"""The row interpreter: the reference for every other way to run an expression.

A tree becomes a tree of closures, each of ``(key, value, timestamp, headers)``; in the functions of joins ``value`` is the
left value and the place of the headers holds the right one. Rules:

* operands are evaluated from left to right, all of them, except that ``&`` and ``|`` stop where the left side decides,
  and that ``when`` and ``coalesce`` evaluate only what they need;
* a column is checked against its declared type when it is read; every column of a null record is null;
* an operator or function of null is null, except ``& | is_null is_not_null is_in coalesce when present``.

Failures are an ``ExpressionError`` with the expression's text and the row's values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.topologies.expressions import special
from penstock.topologies.expressions.casts import caster
from penstock.topologies.expressions.catalog import CATALOG, SPECIAL
from penstock.topologies.expressions.columns import RowReader, column, read_input
from penstock.topologies.expressions.dynamic import COMPARE, arithmetic, comparison, expecting, widened_comparison
from penstock.topologies.expressions.errors import ExpressionError, Fault
from penstock.topologies.expressions.inference import ExpressionScope, Inference, constants_of, scope_of
from penstock.topologies.expressions.numbers import DECIMAL_KERNELS, FLOATS, INTEGERS, Kernel, negative
from penstock.topologies.expressions.readers import member
from penstock.topologies.expressions.signature import GROUPS
from penstock.topologies.expressions.tree import (
    COMPARISONS,
    LOGIC,
    Alias,
    Binary,
    Call,
    Case,
    Cast,
    Expression,
    Extend,
    Field,
    HeaderValue,
    Input,
    Literal,
    StructOf,
    Unary,
    walk,
)
from penstock.topologies.expressions.types import UNKNOWN, DataType, common_type


def compile_row(
    expression: Expression, schema: Any = UNKNOWN, *, operator: str | None = None, condition: bool = False
) -> RowReader:
    """The function of one row. ``schema``: as ``infer``, which is run first and raises ``TopologyError``.
    ``condition``: refuse results other than true, false and null."""
    run, failure = compile_parts(expression, schema, operator=operator, condition=condition)

    def row(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        try:
            return run(key, value, timestamp, headers)
        except Exception as exc:
            raise failure(exc, key, value, timestamp, headers) from exc

    return row


def compile_parts(
    expression: Expression, schema: Any, *, operator: str | None = None, condition: bool = False
) -> tuple[RowReader, Callable[..., ExpressionError]]:
    """As ``compile_row``, but the caller raises ``ExpressionError``. Returns the function of one row, and a function of
    an exception and the row that returns the error to raise from it."""
    scope = scope_of(schema)
    inference = Inference(scope)
    inference.checked(expression, operator, condition=condition)
    compiler = _RowCompiler(inference)
    run = compiler.condition(expression) if condition else compiler.compile(expression)

    def failure(exc: Exception, key: Any, value: Any, timestamp: int, headers: Any) -> ExpressionError:
        problem = str(exc) if isinstance(exc, Fault) else f"{type(exc).__name__}: {exc}"
        held = _held(expression, scope, key, value, timestamp, headers)
        return ExpressionError(f"expression {expression.text()}: {problem}. The row has {held}")

    return run, failure


def _held(expression: Expression, scope: ExpressionScope, key: Any, value: Any, timestamp: int, headers: Any) -> str:
    """The row's values of the columns that the expression reads."""
    inside = {id(n.of) for n in walk(expression) if isinstance(n, Field)}
    shown: dict[str, str] = {}
    for node in walk(expression):
        if not isinstance(node, (Field, Input)) or id(node) in inside:
            continue
        path: list[str] = []
        owner: Expression = node
        while isinstance(owner, Field):
            path.insert(0, owner.name)
            owner = owner.of
        if not isinstance(owner, Input):
            continue
        held = {"key": key, "timestamp": timestamp, "right": headers}.get(owner.which, value)
        try:
            for name in path:
                held = None if held is None else member(held, name)
        except Fault:
            held = "nothing of that name"
        shown[node.text()] = f"{node.text()} = {held!r:.100}"
    return ", ".join(list(shown.values())[:8]) or "no part in it"


class _RowCompiler:
    def __init__(self, inference: Inference) -> None:
        self._types = inference

    def compile(self, e: Expression) -> RowReader:
        """Compile a node to a closure."""
        match e:
            case Literal(constant, _):
                return lambda key, value, timestamp, headers: constant
            case Input(which):
                return read_input(which, self._types.of(e), e.text())
            case HeaderValue(name):
                return special.header(name)
            case Field():
                return self._field(e)
            case Alias(of, _):
                return self.compile(of)
            case Unary(op, of):
                return self._unary(op, of)
            case Binary(op, left, right):
                return self._logic(op, left, right) if op in LOGIC else self._binary(op, left, right)
            case Call():
                return self._special(e) if e.function in SPECIAL else self._call(e)
            case Case():
                return self._case(e)
            case Cast(of, to, strict):
                return special.cast(self.compile(of), caster(self._types.of(of), to), strict)
            case StructOf(fields, python, of):
                made = special.struct([(n, self.compile(f)) for n, f in fields], python)
                return made if of is None else special.unless_null(self.compile(of), made)
            case Extend(of, fields):
                return special.extend(self.compile(of), self._types.of(of), [(n, self.compile(f)) for n, f in fields])
        raise AssertionError(f"{type(e).__name__} cannot be run on a row")

    def _field(self, e: Field) -> RowReader:
        owner = e.of
        which = owner.which if isinstance(owner, Input) else None
        source = None if which in ("value", "left") else self.compile(owner)
        return column(source, self._types.of(owner), e.name, self._types.of(e), e.text())

    def _unary(self, op: str, of: Expression) -> RowReader:
        if op == "~":
            return special.inverse(self.condition(of))
        return special.strict((self._argument(of, "number", "-"),), negative)

    def condition(self, e: Expression) -> RowReader:
        """Compile a node that must be a condition."""
        run = self.compile(e)
        return special.checked_condition(run) if self._types.of(e).kind == "unknown" else run

    def _argument(self, e: Expression, group: str, function: str) -> RowReader:
        run = self.compile(e)
        if group == "any" or self._types.of(e).kind != "unknown":
            return run
        return special.strict((run,), expecting(GROUPS[group], function))

    def _logic(self, op: str, left: Expression, right: Expression) -> RowReader:
        first, second = self.condition(left), self.condition(right)
        return special.conjunction(first, second) if op == "&" else special.disjunction(first, second)

    def _binary(self, op: str, left: Expression, right: Expression) -> RowReader:
        kernel = binary_kernel(op, self._types.of(left), self._types.of(right))
        if isinstance(right, Literal) and right.value is not None:
            return special.with_constant(self.compile(left), kernel, right.value)
        return special.strict_pair(self.compile(left), self.compile(right), kernel)

    def _call(self, e: Call) -> RowReader:
        function = CATALOG[e.function]
        kernel = function.make(constants_of(e, function))
        constant = function.constant_places()
        args = [self._argument(a, function.parameter(i), e.function) for i, a in enumerate(e.args) if i not in constant]
        if e.function in ("least", "greatest"):
            common = self._types.of(e)
            args = [special.widened(r, self._types.of(a), common) for r, a in zip(args, e.args, strict=True)]
        return special.strict(tuple(args), kernel)

    def _special(self, e: Call) -> RowReader:
        runs = [self.compile(a) for a in e.args]
        types = [self._types.of(a) for a in e.args]
        if e.function in ("is_null", "is_not_null"):
            return special.null_test(runs[0], e.function == "is_null")
        if e.function == "coalesce":
            common = self._types.of(e)
            return special.coalesce([special.widened(r, t, common) for r, t in zip(runs, types, strict=True)])
        if e.function == "present":
            return special.present(runs[0])
        if e.function == "provided":
            return special.provided(runs[0], runs[1:])
        if e.function == "between":
            low, high = binary_kernel(">=", types[0], types[1]), binary_kernel("<=", types[0], types[2])
            return special.between(runs[0], runs[1], runs[2], low, high)
        kernels = [binary_kernel("==", types[0], t) for t in types[1:]]
        return special.is_in(runs[0], list(zip(runs[1:], kernels, strict=True)))

    def _case(self, e: Case) -> RowReader:
        common = self._types.of(e)
        branches = [
            (self.condition(c), special.widened(self.compile(v), self._types.of(v), common)) for c, v in e.branches
        ]
        return special.case(branches, special.widened(self.compile(e.default), self._types.of(e.default), common))


def binary_kernel(op: str, a: DataType, b: DataType) -> Kernel:
    """The kernel of an operator on two types, for values that are not null."""
    kinds = {a.kind, b.kind}
    dynamic = bool(kinds & {"unknown", "null"})
    if op in COMPARISONS:
        if dynamic:
            return comparison(op)
        return widened_comparison(op) if kinds == {"int64", "float64"} else COMPARE[op]
    if dynamic or "string" in kinds:
        return arithmetic(op)
    common = common_type(a, b)
    assert common is not None
    return {"float64": FLOATS, "decimal": DECIMAL_KERNELS}.get(common.kind, INTEGERS)[op]
