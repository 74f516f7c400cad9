"""Expressions as generated Python functions: one function instead of a tree of closures.

The closures of ``rows`` are the reference. A generated function computes only what cannot fail or surprise: it leaves a row
to the reference if the record's value is null or of another class than declared, and if anything raises. So nulls, the
order of evaluation and errors need no second implementation. Equal parts of an expression are computed once; expressions
have no side effects, so that nobody can tell.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Hashable
from dataclasses import fields as fields_of
from typing import Any

from penstock.topologies.expressions import special
from penstock.topologies.expressions.casts import caster
from penstock.topologies.expressions.catalog import CATALOG, SPECIAL
from penstock.topologies.expressions.columns import RowReader
from penstock.topologies.expressions.dynamic import comparison, condition, expecting
from penstock.topologies.expressions.generated_reads import INT64_TEST, Reads
from penstock.topologies.expressions.inference import ExpressionScope, Inference, constants_of, scope_of
from penstock.topologies.expressions.numbers import FLOATS, INTEGERS, negative
from penstock.topologies.expressions.python_source import PythonSource, TooDeepError, is_plain_name
from penstock.topologies.expressions.readers import as_dict
from penstock.topologies.expressions.rows import binary_kernel, compile_row
from penstock.topologies.expressions.signature import GROUPS
from penstock.topologies.expressions.times import as_datetime
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
)
from penstock.topologies.expressions.types import UNKNOWN, DataType, schema_of

_SCALARS = frozenset((int, float, bool, str, bytes))
"""Classes whose instances compare without a fault."""
_INLINE = ("+", "-", "*")
"""Arithmetic that Python's operators compute as the kernels do."""
ROW = ("key", "value", "timestamp", "headers")
"""The parameters of a ``RowReader``."""


def generated(
    expression: Expression,
    scope: ExpressionScope,
    parameters: tuple[str, ...],
    reference: Callable[..., Any],
    *,
    condition: bool = False,
) -> Callable[..., Any]:
    """A faster function with the answers of ``reference``, which takes these parameters: some of ``key``, ``value``,
    ``timestamp`` and ``headers`` (as ``RowReader``). The expression has been checked. Returns the reference itself if the
    expression is nested too deeply."""
    writer = ExpressionWriter(PythonSource(), Inference(scope))
    try:
        result = writer.condition(expression) if condition else writer.write(expression)
        return writer.function(parameters, result, reference)
    except (TooDeepError, RecursionError):
        return reference


def generated_row(
    expression: Expression, schema: Any = UNKNOWN, *, operator: str | None = None, condition: bool = False
) -> RowReader:
    """As ``compile_row``, whose answers it has."""
    row = compile_row(expression, schema, operator=operator, condition=condition)
    return generated(expression, scope_of(schema), ROW, row, condition=condition)


class ExpressionWriter:
    """Writes expressions into one function. Methods return the name of the variable that holds the result."""

    def __init__(self, source: PythonSource, inference: Inference) -> None:
        self.source = source
        self._types = inference
        self._reads = Reads(source)
        self._numbers: dict[Hashable, int] = {}
        self._number_of: dict[int, int] = {}
        self._met: list[Expression] = []
        """Keeps expressions alive, so that no two have one ``id``."""

    def function(self, parameters: tuple[str, ...], result: str, reference: Callable[..., Any]) -> Callable[..., Any]:
        """Compile what was written into a function that returns the variable ``result``."""
        return self.source.function(", ".join(parameters), result, reference, self._reads.start)

    def given(self, e: Field, text: str) -> None:
        """Say what the text of a column's value is, instead of reading it."""
        made = self._set(text)
        self._reads.check(made, self._types.of(e), e.text())
        self.source.remember(self._number(e), made)

    def write(self, e: Expression) -> str:
        """Write a node, unless its result is known already."""
        number = self._number(e)
        known = self.source.known(number)
        return known if known is not None else self.source.remember(number, self._written(e))

    def _number(self, e: Expression) -> int:
        """Equal trees have equal numbers. Constants compare by their text, so that 1 differs from 1.0 and true."""
        number = self._number_of.get(id(e))
        if number is None:
            shape = (type(e), tuple(self._shape(getattr(e, f.name)) for f in fields_of(e)))  # type: ignore[arg-type]  # every node is a dataclass
            number = self._number_of[id(e)] = self._numbers.setdefault(shape, len(self._numbers))
            self._met.append(e)
        return number

    def _shape(self, part: Any) -> Hashable:
        if isinstance(part, Expression):
            return Expression, self._number(part)
        if isinstance(part, tuple):
            return tuple(map(self._shape, part))
        return part if isinstance(part, (DataType, type)) else (type(part), repr(part))

    def _written(self, e: Expression) -> str:
        match e:
            case Literal(constant, _):
                return self._constant(constant)
            case Input():
                return self._input(e)
            case HeaderValue(name):
                return self._set(f"{self.source.bound(special.header(name))}(None, None, 0, headers)")
            case Field():
                return self._field(e)
            case Alias(of, _):
                return self.write(of)
            case Unary(op, of):
                return self._unary(op, of)
            case Binary(op, left, right):
                return self._logic(op, left, right) if op in LOGIC else self._binary(op, left, right)
            case Call():
                return self._special(e) if e.function in SPECIAL else self._call(e)
            case Case():
                return self._case(e)
            case Cast():
                return self._cast(e)
            case StructOf(fields, python, of):
                return self._unless_null(None if of is None else self.write(of), lambda: self._struct(fields, python))
            case Extend(of, fields):
                owner, tp = self.write(of), self._types.of(of)
                return self._unless_null(owner, lambda: self._extended(owner, tp, fields))
        raise AssertionError(f"{type(e).__name__} cannot be run on a row")

    # -- variables -------------------------------------------------------------------------------------------------

    def _set(self, text: str, *, never_null: bool = False) -> str:
        made = self.source.variable()
        self.source.line(f"{made} = {text}")
        if never_null:
            self.source.never_null.add(made)
        return made

    def _constant(self, value: Any) -> str:
        if value is None:
            return "None"
        name = self.source.bound(value)
        self.source.never_null.add(name)
        return name

    def _null_test(self, *names: str) -> str:
        """The condition that one of the variables is null; empty if none can be."""
        return " or ".join(f"{name} is None" for name in dict.fromkeys(names) if name not in self.source.never_null)

    def _strict(self, text: str, *names: str, may_be_null: bool = True) -> str:
        """Write the text's result, but null where a variable is."""
        test = self._null_test(*names)
        if test:
            return self._set(f"None if {test} else {text}")
        return self._set(text, never_null=not may_be_null)

    def _unless_null(self, owner: str | None, then: Callable[[], str]) -> str:
        """Write what ``then`` writes, but null where the variable is."""
        if owner is None or owner in self.source.never_null:
            return then()
        made = self.source.variable()
        self.source.line(f"if {owner} is None: {made} = None")
        self.source.never_null.add(owner)  # within the block
        self._else(made, then)
        self.source.never_null.discard(owner)
        return made

    def _else(self, made: str, then: Callable[[], str]) -> None:
        self.source.line("else:")
        with self.source.block():
            self.source.line(f"{made} = {then()}")

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _input(self, e: Input) -> str:
        if e.which == "timestamp":
            return "timestamp"
        tp = self._types.of(e)
        if e.which in ("value", "left"):
            return self._reads.copied(self._reads.value(tp), tp, e.text())
        return self._reads.copied("key" if e.which == "key" else "headers", tp, e.text())

    def _field(self, e: Field) -> str:
        owner, tp = e.of, self._types.of(e.of)
        of_value = isinstance(owner, Input) and owner.which in ("value", "left")
        name = self._reads.value(tp) if of_value else self.write(owner)
        return self._reads.field(name, tp, e.name, self._types.of(e), e.text())

    def _unary(self, op: str, of: Expression) -> str:
        if op == "~":
            given = self.condition(of)
            return self._strict(f"not {given}", given, may_be_null=False)
        given = self._argument(of, "number", "-")
        return self._strict(f"{self.source.bound(negative)}({given})", given, may_be_null=False)

    def condition(self, e: Expression) -> str:
        """Write a node that must be a condition."""
        given = self.write(e)
        if self._types.of(e).kind != "unknown":
            return given
        return self._set(
            f"{given} if {given} is None or {given} is True or {given} is False "
            f"else {self.source.bound(condition)}({given})"
        )

    def _argument(self, e: Expression, group: str, function: str) -> str:
        given = self.write(e)
        if group == "any" or self._types.of(e).kind != "unknown":
            return given
        return self._strict(f"{self.source.bound(expecting(GROUPS[group], function))}({given})", given)

    def _logic(self, op: str, left: Expression, right: Expression) -> str:
        first, made = self.condition(left), self.source.variable()
        decides, other = ("False", "True") if op == "&" else ("True", "False")
        self.source.line(f"if {first} is {decides}: {made} = {decides}")

        def undecided() -> str:
            second = self.condition(right)
            if first in self.source.never_null:
                return second
            return f"{second} if {first} is {other} or {second} is {decides} else None"

        self._else(made, undecided)
        return made

    def _binary(self, op: str, left: Expression, right: Expression) -> str:
        a, b = self.write(left), self.write(right)
        ta, tb = self._types.of(left), self._types.of(right)
        if op in COMPARISONS:
            return self._strict(self._compared(op, a, b, ta, tb), a, b, may_be_null=False)
        kernel = binary_kernel(op, ta, tb)
        if kernel is FLOATS[op] and op in _INLINE:
            return self._strict(f"{a} {op} {b}", a, b, may_be_null=False)
        if kernel is INTEGERS[op] and op in _INLINE and not self._null_test(a, b):
            made = self._set(f"{a} {op} {b}", never_null=True)
            self.source.line(f"if not {INT64_TEST.format(made)}: {self.source.bound(kernel)}({a}, {b})")
            return made
        return self._strict(f"{self.source.bound(kernel)}({a}, {b})", a, b, may_be_null=False)

    def _compared(self, op: str, a: str, b: str, ta: DataType, tb: DataType) -> str:
        """The text of a comparison of two variables that are not null."""
        kinds = {ta.kind, tb.kind}
        if kinds & {"unknown", "null"}:
            constant = self.source.constants.get(b)
            if type(constant) in _SCALARS:
                alike = f"type({a}) is {self.source.bound(type(constant))}"
            else:
                alike = f"type({a}) is type({b}) and type({a}) in {self.source.bound(_SCALARS)}"
            return f"({a} {op} {b} if {alike} else {self.source.bound(comparison(op))}({a}, {b}))"
        return f"(float({a}) {op} float({b}))" if kinds == {"int64", "float64"} else f"({a} {op} {b})"

    def _call(self, e: Call) -> str:
        function = CATALOG[e.function]
        kernel = function.make(constants_of(e, function))
        constant = function.constant_places()
        args = [self._argument(a, function.parameter(i), e.function) for i, a in enumerate(e.args) if i not in constant]
        if e.function in ("least", "greatest"):
            common = self._types.of(e)
            args = [self._widened(a, self._types.of(n), common) for a, n in zip(args, e.args, strict=True)]
        return self._strict(f"{self.source.bound(kernel)}({', '.join(args)})", *args, may_be_null=function.may_be_null)

    def _special(self, e: Call) -> str:
        types = [self._types.of(a) for a in e.args]
        if e.function == "coalesce":
            return self._coalesce(list(e.args), types, self._types.of(e))
        given = [self.write(a) for a in e.args]
        if e.function in ("is_null", "is_not_null"):
            return self._set(f"{given[0]} is {'not ' if e.function == 'is_not_null' else ''}None", never_null=True)
        if e.function in ("present", "provided"):
            check = special.not_null if e.function == "present" else special.if_true
            return self._set(f"{self.source.bound(check)}({', '.join(given)})", never_null=e.function == "present")
        return self._between(given, types) if e.function == "between" else self._is_in(given, types)

    def _coalesce(self, args: list[Expression], types: list[DataType], common: DataType) -> str:
        made = self._set(self._widened(self.write(args[0]), types[0], common))
        if len(args) > 1:
            self.source.line(f"if {made} is None:")
            with self.source.block():
                self.source.line(f"{made} = {self._coalesce(args[1:], types[1:], common)}")
        return made

    def _between(self, given: list[str], types: list[DataType]) -> str:
        x, low, high = given
        above = self._compared(">=", x, low, types[0], types[1])
        below = self._compared("<=", x, high, types[0], types[2])
        if not self._null_test(low, high):
            return self._strict(f"{above} and {below}", x, may_be_null=False)
        first = self._strict(above, x, low, may_be_null=False)
        second = self._strict(below, x, high, may_be_null=False)
        if_null = f"None if {self._null_test(first, second)} else True"
        return self._set(f"False if {first} is False or {second} is False else {if_null}")

    def _is_in(self, given: list[str], types: list[DataType]) -> str:
        x, others = given[0], list(zip(given[1:], types[1:], strict=True))
        tests = []
        for other, tp in others:
            equal = self._compared("==", x, other, types[0], tp)
            tests.append(f"({other} is not None and {equal})" if self._null_test(other) else equal)
        nulls = self._null_test(*given[1:])
        otherwise = f"None if {nulls} else False" if nulls else "False"
        return self._strict(f"True if {' or '.join(tests)} else {otherwise}", x, may_be_null=bool(nulls))

    def _case(self, e: Case) -> str:
        common, made = self._types.of(e), self.source.variable()

        def value(of: Expression) -> str:
            return self._widened(self.write(of), self._types.of(of), common)

        def rest(branches: tuple[tuple[Expression, Expression], ...]) -> str:
            if not branches:
                return value(e.default)
            (holds, then), *others = branches
            self.source.line(f"if {self.condition(holds)}:")
            with self.source.block():
                self.source.line(f"{made} = {value(then)}")
            self._else(made, lambda: rest(tuple(others)))
            return made

        return rest(e.branches)

    def _widened(self, name: str, of: DataType, to: DataType) -> str:
        if of.kind != "int64" or to.kind not in ("float64", "decimal"):
            return name
        wider = self.source.bound(float if to.kind == "float64" else decimal.Decimal)
        return self._strict(f"{wider}({name})", name, may_be_null=False)

    def _cast(self, e: Cast) -> str:
        given, convert = self.write(e.of), caster(self._types.of(e.of), e.to)
        made = convert if e.strict else special.lenient(convert)
        return self._strict(f"{self.source.bound(made)}({given})", given)

    def _struct(self, fields: tuple[tuple[str, Expression], ...], python: type | None) -> str:
        if python is None:
            return self._set(self._items([(n, self.write(f)) for n, f in fields]), never_null=True)
        wanted = schema_of(python)
        made = []
        for name, field in fields:
            tp = wanted.field(name)
            assert tp is not None
            copy = self._set(self.write(field))
            self._reads.check(copy, tp, f"{python.__name__}.{name}")
            if tp.kind == "timestamp":
                copy = self._strict(f"{self.source.bound(as_datetime)}({copy})", copy)
            made.append((name, copy))
        plain = all(is_plain_name(name) for name, _ in made)
        given = ", ".join(f"{n}={v}" for n, v in made) if plain else f"**{self._items(made)}"
        return self._set(f"{self.source.bound(python)}({given})", never_null=True)

    def _items(self, fields: list[tuple[str, str]]) -> str:
        return f"{{{', '.join(f'{self.source.bound(n)}: {v}' for n, v in fields)}}}"

    def _extended(self, owner: str, tp: DataType, fields: tuple[tuple[str, Expression], ...]) -> str:
        added = {n: self.write(f) for n, f in fields}
        if tp.kind != "struct":
            text = self._items(list(added.items()))
            return self._set(f"{{**{self.source.bound(as_dict)}({owner}), **{text}}}", never_null=True)
        found = {n: added[n] if n in added else self._reads.field(owner, tp, n, t, n) for n, t in tp.fields}
        return self._set(self._items(list((found | added).items())), never_null=True)
