"""Expressions as the row functions that operators call.

An ``ExpressionFunction`` takes the place of a user's function in an ``OperatorSpec``: operators call it, ``describe``
prints its text, a planner reads its tree. Two with equal trees, scopes and arguments are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.columns import RowReader
from penstock.topologies.expressions.errors import ExpressionError
from penstock.topologies.expressions.generated import generated
from penstock.topologies.expressions.inference import ExpressionScope, infer, scope_of
from penstock.topologies.expressions.rows import compile_parts
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.expressions.types import UNKNOWN, DataType


class ExpressionFunction:
    """A row function that keeps its tree: ``expression``, ``scope`` and ``result``, its type. ``arguments`` names its
    parameters. Raises ``ExpressionError`` when called with a row on which the expression fails."""

    arguments: tuple[str, ...] = ()
    _parameters: tuple[str, ...] = ()
    """The arguments, under the names that they have in a ``RowReader``."""

    def __init__(
        self, expression: Expression, scope: ExpressionScope, operator: str | None = None, condition: bool = False
    ) -> None:
        self.expression = expression
        self.scope = scope
        self.operator = operator
        self.condition = condition
        self.result: DataType = infer(expression, scope, operator=operator)
        run, failure = compile_parts(expression, scope, operator=operator, condition=condition)
        self.reference: Callable[..., Any] = self._called(run, failure)
        """The row interpreter."""
        self.plain: Callable[..., Any] = generated(
            expression, scope, self._parameters, self.reference, condition=condition
        )
        """The row function as a plain function, which is faster to call in a loop."""

    def _called(self, run: RowReader, failure: Callable[..., ExpressionError]) -> Callable[..., Any]:
        raise AssertionError(f"{type(self).__name__} says how it is called")

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args)

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
    _parameters = ("value",)

    def _called(self, run: RowReader, failure: Callable[..., ExpressionError]) -> Callable[..., Any]:
        def plain(value: Any) -> Any:
            try:
                return run(None, value, 0, ())
            except Exception as exc:
                raise failure(exc, None, value, 0, ()) from exc

        return plain


class OfKeyValue(ExpressionFunction):
    """``fn(key, value)``."""

    arguments = ("key", "value")
    _parameters = ("key", "value")

    def _called(self, run: RowReader, failure: Callable[..., ExpressionError]) -> Callable[..., Any]:
        def plain(key: Any, value: Any) -> Any:
            try:
                return run(key, value, 0, ())
            except Exception as exc:
                raise failure(exc, key, value, 0, ()) from exc

        return plain


class OfRecord(ExpressionFunction):
    """``fn(key, value, timestamp, headers)``."""

    arguments = ("key", "value", "timestamp", "headers")
    _parameters = ("key", "value", "timestamp", "headers")

    def _called(self, run: RowReader, failure: Callable[..., ExpressionError]) -> Callable[..., Any]:
        def plain(key: Any, value: Any, timestamp: Any, headers: Any) -> Any:
            try:
                return run(key, value, timestamp, headers)
            except Exception as exc:
                raise failure(exc, key, value, timestamp, headers) from exc

        return plain


class OfSides(ExpressionFunction):
    """``fn(left, right)``."""

    arguments = ("left", "right")
    _parameters = ("value", "headers")

    def _called(self, run: RowReader, failure: Callable[..., ExpressionError]) -> Callable[..., Any]:
        def plain(left: Any, right: Any) -> Any:
            try:
                return run(None, left, 0, right)
            except Exception as exc:
                raise failure(exc, None, left, 0, right) from exc

        return plain


class OfKeySides(ExpressionFunction):
    """``fn(key, left, right)``."""

    arguments = ("key", "left", "right")
    _parameters = ("key", "value", "headers")

    def _called(self, run: RowReader, failure: Callable[..., ExpressionError]) -> Callable[..., Any]:
        def plain(key: Any, left: Any, right: Any) -> Any:
            try:
                return run(key, left, 0, right)
            except Exception as exc:
                raise failure(exc, key, left, 0, right) from exc

        return plain


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
