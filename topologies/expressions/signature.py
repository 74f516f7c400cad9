"""The signature of an expression function, as a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from penstock.topologies.expressions.types import UNKNOWN, DataType, common_type

GROUPS: dict[str, frozenset[str]] = {
    "string": frozenset(("string",)),
    "int64": frozenset(("int64",)),
    "float64": frozenset(("float64",)),
    "number": frozenset(("int64", "float64", "decimal")),
    "time": frozenset(("timestamp", "int64")),
    "ordered": frozenset(("int64", "float64", "decimal", "timestamp", "string", "bytes", "bool")),
    "sized": frozenset(("string", "bytes", "list")),
    "list": frozenset(("list",)),
}
"""The groups that a parameter may be declared to take, besides ``any``."""


class Mismatch(Exception):
    """An expression does not match its schema. Says what was seen and what to do, without the operator's name."""


def _no_kernel(constants: Sequence[Any]) -> Callable[..., Any]:
    raise AssertionError("the row interpreter runs this function itself")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FunctionOptions:
    make: Callable[[Sequence[Any]], Callable[..., Any]] = _no_kernel
    variadic: bool = False
    optional: int = 0
    constants: int = 0
    may_be_null: bool = False
    never_null: bool = False
    comparable: bool = False


@dataclasses.dataclass(frozen=True)
class FunctionSignature(_FunctionOptions):
    """``parameters``: the group of each argument. ``variadic``: the last one repeats. ``optional``: how many of the last
    may be left out. The last ``constants`` parameters must be literals: ``make`` gets the values of those that were given,
    raises ``Mismatch`` if it refuses them, and returns the function of the other arguments. That function never gets a null.

    ``result``: the type, or a function of the arguments' types. It is nullable if an argument is nullable or ``may_be_null``
    is set, and never nullable with ``never_null``. ``comparable``: all arguments must have a common type that can be
    compared.
    """

    parameters: tuple[str, ...]
    result: DataType | Callable[[Sequence[DataType]], DataType]

    def least_arguments(self) -> int:
        """How many arguments must be given."""
        return len(self.parameters) - self.optional

    def parameter(self, place: int) -> str:
        """The group of the argument at this index."""
        return self.parameters[min(place, len(self.parameters) - 1)]

    def constant_places(self) -> range:
        """The indices of the arguments that must be literals."""
        return range(len(self.parameters) - self.constants, len(self.parameters)) if self.constants else range(0)


def common_of_all(types: Sequence[DataType]) -> DataType:
    """The common type. Raises ``Mismatch``."""
    result = types[0]
    for other in types[1:]:
        both = common_type(result, other)
        if both is None:
            raise Mismatch(f"{result} and {other} have no common type; cast one of them")
        result = both
    return result


def same(types: Sequence[DataType]) -> DataType:
    """The first argument's type."""
    return types[0]


def nothing_known(types: Sequence[DataType]) -> DataType:
    """The unknown type, for a result whose type only shows at run time."""
    return UNKNOWN
