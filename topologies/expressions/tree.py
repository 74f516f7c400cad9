"""Expressions as trees of frozen values.

A node says what is computed, not how: it holds no user function and no closure, so that it can be printed, typed, run
row by row, or compiled to columns. Python's operators on an expression build a larger one, ``==`` and ``!=`` too; use
``same_as`` to compare two trees. Expressions have no truth value: use ``&``, ``|`` and ``~`` for ``and``, ``or`` and
``not``.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar, dataclass_transform
from typing import Literal as OneOf

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.fluent import AggregateMethods, StringMethods, TimeMethods
from penstock.topologies.expressions.types import (
    BOOL,
    BYTES,
    DECIMAL,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    schema_of,
)
from penstock.topologies.windows.durations import offset_ms

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LOGIC = ("&", "|")


class Expression(StringMethods, TimeMethods, AggregateMethods):
    """The base of all nodes, which users combine."""

    __slots__ = ()
    __hash__ = object.__hash__

    def children(self) -> tuple[Expression, ...]:
        """The child nodes, in the order of evaluation."""
        return ()

    def text(self) -> str:
        """The expression as text: what ``describe`` prints, and the name of an unnamed result. Equal trees have equal
        texts."""
        from penstock.topologies.expressions.text import text_of

        return text_of(self)

    def same_as(self, other: object) -> bool:
        """Whether the other is an equal tree (``==`` would build a comparison)."""
        return isinstance(other, Expression) and _shape(self) == _shape(other)

    def __repr__(self) -> str:
        return self.text()

    def _call(self, function: str, *args: object) -> Expression:
        return Call(function, (self, *(as_expression(a) for a in args)))

    def _aggregate(self, function: str, *args: object) -> AggregateExpression:
        return AggregateExpression(function, self, tuple(args))

    # -- what Python offers and an expression cannot give ---------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise TopologyError(
            f"the expression {self.text()} has no truth value before there is a row; combine conditions with & | ~ "
            "instead of and, or, not (with brackets around comparisons), and use is_in() instead of in, between() "
            "instead of a < b < c"
        )

    def __iter__(self) -> NoReturn:
        raise TopologyError(f"the expression {self.text()} cannot be looped over; take its elements with element(i)")

    def __contains__(self, item: object) -> NoReturn:
        raise TopologyError(
            f"the expression {self.text()} has no elements before there is a row; use is_in() or contains()"
        )

    # -- operators ---------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # builds a comparison, as documented
        return _compared("==", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]  # builds a comparison, as documented
        return _compared("!=", self, other)

    def __lt__(self, other: object) -> Expression:
        return _compared("<", self, other)

    def __le__(self, other: object) -> Expression:
        return _compared("<=", self, other)

    def __gt__(self, other: object) -> Expression:
        return _compared(">", self, other)

    def __ge__(self, other: object) -> Expression:
        return _compared(">=", self, other)

    def __add__(self, other: object) -> Expression:
        return Binary("+", self, as_expression(other))

    def __radd__(self, other: object) -> Expression:
        return Binary("+", as_expression(other), self)

    def __sub__(self, other: object) -> Expression:
        return Binary("-", self, as_expression(other))

    def __rsub__(self, other: object) -> Expression:
        return Binary("-", as_expression(other), self)

    def __mul__(self, other: object) -> Expression:
        return Binary("*", self, as_expression(other))

    def __rmul__(self, other: object) -> Expression:
        return Binary("*", as_expression(other), self)

    def __truediv__(self, other: object) -> Expression:
        return Binary("/", self, as_expression(other))

    def __rtruediv__(self, other: object) -> Expression:
        return Binary("/", as_expression(other), self)

    def __floordiv__(self, other: object) -> Expression:
        return Binary("//", self, as_expression(other))

    def __rfloordiv__(self, other: object) -> Expression:
        return Binary("//", as_expression(other), self)

    def __mod__(self, other: object) -> Expression:
        return Binary("%", self, as_expression(other))

    def __rmod__(self, other: object) -> Expression:
        return Binary("%", as_expression(other), self)

    def __and__(self, other: object) -> Expression:
        return Binary("&", self, as_expression(other))

    def __rand__(self, other: object) -> Expression:
        return Binary("&", as_expression(other), self)

    def __or__(self, other: object) -> Expression:
        return Binary("|", self, as_expression(other))

    def __ror__(self, other: object) -> Expression:
        return Binary("|", as_expression(other), self)

    def __neg__(self) -> Expression:
        if isinstance(self, Literal) and self.type in (INT64, FLOAT64) and self.value != -(2**63):
            return literal(-self.value)
        return Unary("-", self)

    def __invert__(self) -> Expression:
        return Unary("~", self)

    def __getitem__(self, item: str | int) -> Expression:
        """A struct's field by name, or a list's element by its index."""
        if isinstance(item, str):
            return Field(self, item)
        if isinstance(item, int) and not isinstance(item, bool):
            return self._call("element", item)
        raise TopologyError(f"{self.text()}[{item!r:.100}]: give the name of a field or the number of an element")

    # -- nulls, types and names --------------------------------------------------------------------------------

    def is_null(self) -> Expression:
        """Whether it is null; never null itself."""
        return self._call("is_null")

    def is_not_null(self) -> Expression:
        """Whether it is not null; never null itself."""
        return self._call("is_not_null")

    def is_nan(self) -> Expression:
        """Whether a float64 is not a number."""
        return self._call("is_nan")

    def is_in(self, *values: object) -> Expression:
        """Whether it equals one of the values (or of one list or set of values, which may be empty); null if it is null, or
        if it equals none and one of them is null."""
        if len(values) == 1 and isinstance(values[0], (list, tuple, set, frozenset)):
            given = values[0]
            if not given:
                return Case(((self.is_null(), literal(None)),), literal(False))
            # a set has no order, but the text of an expression must be the same in every process
            values = tuple(sorted(given, key=repr)) if isinstance(given, (set, frozenset)) else tuple(given)
        return self._call("is_in", *values)

    def between(self, low: object, high: object) -> Expression:
        """``(low <= x) & (x <= high)``."""
        return self._call("between", low, high)

    def cast(self, to: object, *, strict: bool = True) -> Expression:
        """The value as another type (anything that ``schema_of`` takes). A value that cannot be cast is an error, or
        null with ``strict=False``."""
        return Cast(self, schema_of(to), strict)

    def alias(self, name: str) -> Expression:
        """The expression under another name, for results named after their expression."""
        return Alias(self, name)

    # -- numbers -------------------------------------------------------------------------------------------------

    def abs(self) -> Expression:
        """The absolute value."""
        return self._call("abs")

    def round(self, digits: int = 0) -> Expression:
        """Round to ``digits`` decimal places, ties to the even digit; the type stays."""
        return self._call("round", digits)

    def floor(self) -> Expression:
        """The greatest whole number that is not greater; the type stays."""
        return self._call("floor")

    def ceil(self) -> Expression:
        """The least whole number that is not less; the type stays."""
        return self._call("ceil")

    def sqrt(self) -> Expression:
        """The square root, a float64; of a negative number an error."""
        return self._call("sqrt")


def _compared(op: str, left: Expression, right: object) -> Expression:
    if right is None:
        raise TopologyError(
            f"{left.text()} {op} None would be null for every row; use is_null() or is_not_null() (or lit(None))"
        )
    return Binary(op, left, as_expression(right))


def as_expression(value: object) -> Expression:
    """Return an expression unchanged; turn ``None``, bool, int (64 bits), float, str, bytes, Decimal, datetime or
    timedelta into a literal. Raises ``TopologyError`` for anything else."""
    return value if isinstance(value, Expression) else literal(value)


_LITERALS: dict[type, DataType] = {
    bool: BOOL,
    int: INT64,
    float: FLOAT64,
    str: STRING,
    bytes: BYTES,
    decimal.Decimal: DECIMAL,
    type(None): NULL,
}


def literal(value: Any) -> Literal:
    """The literal of a Python value; of a ``timedelta`` its milliseconds, as int64."""
    if isinstance(value, datetime.datetime):
        return Literal(datetime_ms(value), TIMESTAMP)
    if isinstance(value, datetime.timedelta):
        return Literal(offset_ms(value), INT64)
    tp = _LITERALS.get(type(value))
    if tp is None:
        raise TopologyError(
            f"{value!r:.100} ({type(value).__name__}) is not allowed in an expression; use None, bool, int, float, str, "
            "bytes, Decimal, datetime, timedelta, or col(…)"
        )
    if tp is INT64 and not -(2**63) <= value < 2**63:
        raise TopologyError(f"{value} does not fit into int64; use a Decimal")
    return Literal(value, tp)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def datetime_ms(value: datetime.datetime) -> int:
    """Milliseconds since 1970, floored; a datetime without a zone is taken to be UTC."""
    since = (value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


Side = OneOf["value", "key", "timestamp", "left", "right"]

_T = TypeVar("_T")


@dataclass_transform(eq_default=False, frozen_default=True)
def _node(cls: type[_T]) -> type[_T]:
    return dataclasses.dataclass(frozen=True, eq=False, repr=False, slots=True)(cls)


@_node
class Literal(Expression):
    """A constant. ``value`` is its run-time form (milliseconds for a timestamp)."""

    value: Any
    type: DataType


@_node
class Input(Expression):
    """An input of the row function: the record's value, key or timestamp, or one side of a join."""

    which: Side


@_node
class HeaderValue(Expression):
    """The last header of this name, as bytes; null where there is none."""

    name: str


@_node
class Field(Expression):
    """A field of a struct. ``col("x")`` is the field ``x`` of the record's value."""

    of: Expression
    name: str

    def children(self) -> tuple[Expression, ...]:
        return (self.of,)


@_node
class Unary(Expression):
    """``-`` or ``~``."""

    op: str
    of: Expression

    def children(self) -> tuple[Expression, ...]:
        return (self.of,)


@_node
class Binary(Expression):
    """Arithmetic, comparison or logic, with Python's symbols. ``&`` and ``|`` evaluate the right side only if the left
    one does not decide."""

    op: str
    left: Expression
    right: Expression

    def children(self) -> tuple[Expression, ...]:
        return (self.left, self.right)


@_node
class Call(Expression):
    """A function of the catalogue (``penstock.topologies.expressions.catalog``)."""

    function: str
    args: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.args


@_node
class Case(Expression):
    """The value of the first branch whose condition is true, else ``default``. Only what is needed is evaluated."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression

    def children(self) -> tuple[Expression, ...]:
        return (*(e for branch in self.branches for e in branch), self.default)

    def when(self, condition: object) -> When:
        """Add a branch."""
        return When(self.branches, as_expression(condition))

    def otherwise(self, value: object) -> Case:
        """The value if no condition is true (default: null)."""
        return Case(self.branches, as_expression(value))


@dataclasses.dataclass(frozen=True, eq=False)
class When:
    """A condition that still needs its ``then``."""

    branches: tuple[tuple[Expression, Expression], ...]
    condition: Expression

    def then(self, value: object) -> Case:
        """The value if the condition is true; if it is null or false, the next branch is tried."""
        return Case((*self.branches, (self.condition, as_expression(value))), literal(None))


@_node
class Cast(Expression):
    """A cast. ``strict``: a value that cannot be cast is an error, else null."""

    of: Expression
    to: DataType
    strict: bool = True

    def children(self) -> tuple[Expression, ...]:
        return (self.of,)


@_node
class Alias(Expression):
    """A name for the result; the value is that of ``of``."""

    of: Expression
    name: str

    def children(self) -> tuple[Expression, ...]:
        return (self.of,)


@_node
class StructOf(Expression):
    """A struct of named expressions: a dict, or an instance of ``python``. Null if ``of`` is set and null."""

    fields: tuple[tuple[str, Expression], ...]
    python: type | None = None
    of: Expression | None = None

    def children(self) -> tuple[Expression, ...]:
        return (*([] if self.of is None else [self.of]), *(e for _, e in self.fields))


@_node
class Extend(Expression):
    """A struct with fields added or replaced: always a dict. Null if the struct is null."""

    of: Expression
    fields: tuple[tuple[str, Expression], ...]

    def children(self) -> tuple[Expression, ...]:
        return (self.of, *(e for _, e in self.fields))


@_node
class AggregateExpression(Expression):
    """An aggregate over rows: only allowed where rows are grouped. ``of`` is ``None`` for ``count()`` of rows; ``args``
    are plain values; ``condition`` selects the rows."""

    function: str
    of: Expression | None
    args: tuple[Any, ...] = ()
    condition: Expression | None = None

    def children(self) -> tuple[Expression, ...]:
        return tuple(e for e in (self.of, self.condition) if e is not None)

    def where(self, condition: object) -> AggregateExpression:
        """Only over the rows for which the condition is true."""
        extra = as_expression(condition)
        both = extra if self.condition is None else Binary("&", self.condition, extra)
        return dataclasses.replace(self, condition=both)


def walk(expression: Expression) -> Iterator[Expression]:
    """The node and all nodes below it, each before its children."""
    yield expression
    for child in expression.children():
        yield from walk(child)


def rebuild(expression: Expression, replace: Callable[[Expression], Expression | None]) -> Expression:
    """The tree with nodes replaced, from the top: a node that ``replace`` returns replaces the old one and all below
    it; if it returns ``None``, the node stays, with rebuilt children."""
    found = replace(expression)
    if found is not None:
        return found
    changed = {
        f.name: _rebuilt(getattr(expression, f.name), replace)
        for f in dataclasses.fields(expression)  # type: ignore[arg-type]  # every node is a dataclass
    }
    return dataclasses.replace(expression, **changed)  # type: ignore[type-var]  # as above


def _rebuilt(part: Any, replace: Callable[[Expression], Expression | None]) -> Any:
    if isinstance(part, Expression):
        return rebuild(part, replace)
    return tuple(_rebuilt(p, replace) for p in part) if isinstance(part, tuple) else part


def _shape(part: Any) -> Any:
    """Nested tuples that are equal exactly for equal trees. Constants compare by their text, so that 1 differs from 1.0
    and true, and a NaN equals itself."""
    if isinstance(part, Expression):
        return type(part).__name__, tuple(_shape(getattr(part, f.name)) for f in dataclasses.fields(part))  # type: ignore[arg-type]  # every node is a dataclass
    if isinstance(part, tuple):
        return tuple(_shape(p) for p in part)
    if isinstance(part, (DataType, type)):
        return part
    return type(part).__name__, repr(part)
