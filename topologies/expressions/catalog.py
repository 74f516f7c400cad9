"""The catalogue of functions that ``Call`` names: parameters, results, and how to compute one row.

A planner that compiles trees to columns looks a function up here for its types, and compiles it by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.topologies.expressions import numbers, strings, times
from penstock.topologies.expressions.signature import FunctionSignature, common_of_all, nothing_known, same
from penstock.topologies.expressions.types import BOOL, INT64, DataType


def _element_type(types: Sequence[DataType]) -> DataType:
    return types[0].element or nothing_known(types)


def _element(of: Sequence[Any], place: int) -> Any:
    return of[place] if -len(of) <= place < len(of) else None


def _not_null(types: Sequence[DataType]) -> DataType:
    return types[0].not_null()


def _constant(kernel: Callable[..., Any]) -> Callable[[Sequence[Any]], Callable[..., Any]]:
    return lambda constants: kernel


_OTHERS: dict[str, FunctionSignature] = {
    # Functions that treat nulls specially, which the row interpreter (``rows``) runs itself.
    "is_null": FunctionSignature(("any",), BOOL, never_null=True),
    "is_not_null": FunctionSignature(("any",), BOOL, never_null=True),
    "coalesce": FunctionSignature(("any",), common_of_all, variadic=True),
    "is_in": FunctionSignature(("any", "any"), BOOL, variadic=True, comparable=True),
    "between": FunctionSignature(("any", "any", "any"), BOOL, comparable=True),
    # For functions that are traced: the value, and an error where it is null, or where a condition is not true.
    "present": FunctionSignature(("any",), _not_null, never_null=True),
    "provided": FunctionSignature(("any", "any"), same, variadic=True),
    "length": FunctionSignature(("sized",), INT64, make=_constant(len)),
    "element": FunctionSignature(("list", "int64"), _element_type, make=_constant(_element), may_be_null=True),
}

CATALOG: Mapping[str, FunctionSignature] = {**_OTHERS, **numbers.FUNCTIONS, **strings.FUNCTIONS, **times.FUNCTIONS}
"""Name → function."""

SPECIAL = frozenset(("is_null", "is_not_null", "coalesce", "is_in", "between", "present", "provided"))
"""Functions that treat nulls specially, which the row interpreter runs without a kernel."""
