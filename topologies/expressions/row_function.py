"""Expressions as the row functions that operators call.

An ``ExpressionFunction`` stands in an ``OperatorSpec`` where a user's function would: operators call it, ``describe`` prints
its text, a planner reads its tree. Two of equal trees, scopes and arguments are equal.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.inference import Scope, infer, scope_of
from penstock.topologies.expressions.rows import Row, compile_row
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.expressions.types import UNKNOWN, DataType


class ExpressionFunction:
    """A row function that keeps the tree it was made of: ``expression``, ``scope`` and ``result``, its type. ``arguments``
    says what it is called with. Raises ``ExpressionError`` when called with a row on which the expression fails."""

    arguments: tuple[str, ...] = ()

    def __init__(
        self, expression: Expression, scope: Scope, operator: str | None = None, condition: bool = False
    ) -> None:
        self.expression = expression
        self.scope = scope
        self.operator = operator
        self.condition = condition
        self.result: DataType = infer(expression, scope, operator=operator)
        self.row: Row = compile_row(expression, scope, operator=operator, condition=condition)
        """Of key, value, timestamp and headers; of a join: key, left, 0 and right."""

    def __call__(self, *args: Any) -> Any:
        raise AssertionError(f"{type(self).__name__} says how it is called")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ExpressionFunction)
            and self.arguments == other.arguments
            and (self.scope, self.condition) == (other.scope, other.condition)
            and self.expression.same_as(other.expression)
        )

    def __hash__(self) -> int:
        return hash((self.arguments, self.expression.text()))

    def __repr__(self) -> str:
        return self.expression.text()

    def __reduce__(self) -> Any:
        return type(self), (self.expression, self.scope, self.operator, self.condition)


class OfValue(ExpressionFunction):
    """``fn(value)``."""

    arguments = ("value",)

    def __call__(self, value: Any) -> Any:
        return self.row(None, value, 0, ())


class OfKeyValue(ExpressionFunction):
    """``fn(key, value)``."""

    arguments = ("key", "value")

    def __call__(self, key: Any, value: Any) -> Any:
        return self.row(key, value, 0, ())


class OfRecord(ExpressionFunction):
    """``fn(key, value, timestamp, headers)``."""

    arguments = ("key", "value", "timestamp", "headers")

    def __call__(self, key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        return self.row(key, value, timestamp, headers)


class OfSides(ExpressionFunction):
    """``fn(left, right)``."""

    arguments = ("left", "right")

    def __call__(self, left: Any, right: Any) -> Any:
        return self.row(None, left, 0, right)


class OfKeySides(ExpressionFunction):
    """``fn(key, left, right)``."""

    arguments = ("key", "left", "right")

    def __call__(self, key: Any, left: Any, right: Any) -> Any:
        return self.row(key, left, 0, right)


_FORMS: dict[tuple[str, ...], type[ExpressionFunction]] = {
    form.arguments: form for form in (OfValue, OfKeyValue, OfRecord, OfSides, OfKeySides)
}


def to_function(
    expression: Expression,
    arguments: tuple[str, ...] = ("key", "value"),
    schema: Any = UNKNOWN,
    *,
    operator: str | None = None,
    condition: bool = False,
) -> ExpressionFunction:
    """The expression as a function of these arguments, typed over the schema (as ``infer``). ``condition``: it must give
    true, false or null, which filters take for false. Raises ``TopologyError``."""
    form = _FORMS.get(arguments)
    if form is None:
        raise TopologyError(f"no row function has the arguments {arguments}; use one of {list(_FORMS)}")
    scope = scope_of(schema)
    scope = dataclasses.replace(scope, record="timestamp" in arguments, keyed="key" in arguments)
    return form(expression, scope, operator, condition)
