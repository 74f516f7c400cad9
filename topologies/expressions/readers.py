"""Readers: check a row's values against their declared types.

A reader converts a column's value in a row to the value that expressions compute with, or raises ``Fault``. It widens
an int in a float64 column, turns a datetime into milliseconds, and refuses any other mismatch.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import Any

from penstock.state.serdes.record_classes import field_names
from penstock.topologies.expressions.errors import Fault
from penstock.topologies.expressions.numbers import INT64_MAX, INT64_MIN
from penstock.topologies.expressions.tree import datetime_ms
from penstock.topologies.expressions.types import DataType

Reader = Callable[[Any], Any]

EXACT: dict[str, type] = {
    "float64": float,
    "bool": bool,
    "string": str,
    "bytes": bytes,
    "decimal": decimal.Decimal,
}
"""Kinds whose values of exactly this class need no further check."""

_SCALARS = (str, bytes, bool, int, float, decimal.Decimal)

KIND_OF: dict[type, str] = {
    int: "int64",
    float: "float64",
    bool: "bool",
    str: "string",
    bytes: "bytes",
    decimal.Decimal: "decimal",
    list: "list",
    tuple: "list",
    dict: "struct",
    type(None): "null",
}
"""The kind of a value whose type was not declared."""


def kind_of(value: Any) -> str:
    """The kind of a value that a reader has passed."""
    return KIND_OF.get(type(value), "struct")


def reader(tp: DataType, what: str) -> Reader:
    """The reader of a type; ``what`` names the column in faults."""
    if tp.kind == "unknown":
        return plain
    check, kind, nullable = _CHECKS[tp.kind], tp.kind, tp.nullable

    def read(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise Fault(f"{what} is declared {kind} and is null; declare it nullable ({kind}?, or … | None)")
        try:
            return check(value)
        except (TypeError, ValueError, OverflowError) as exc:
            why = f" ({exc})" if str(exc) else ""
            raise Fault(f"{what} is declared {kind} and is {value!r:.100} ({type(value).__name__}){why}") from exc

    return read


def plain(value: Any) -> Any:
    """A value of undeclared type: a datetime as milliseconds, enums and other subclasses as their base type."""
    if type(value) in KIND_OF:
        return value
    if isinstance(value, datetime.datetime):
        return datetime_ms(value)
    if isinstance(value, str):
        return str.__str__(value)  # str() of an enum's member would give its name
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return value


def _int64(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    if not INT64_MIN <= value <= INT64_MAX:
        raise OverflowError("it does not fit into 64 bits")
    return int(value)


def _float64(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError
    return float(value)


def _timestamp(value: Any) -> int:
    return datetime_ms(value) if isinstance(value, datetime.datetime) else _int64(value)


def _decimal(value: Any) -> decimal.Decimal:
    if not isinstance(value, (int, decimal.Decimal)) or isinstance(value, bool):
        raise TypeError
    return decimal.Decimal(value)


def _struct(value: Any) -> Any:
    if isinstance(value, (*_SCALARS, list)):
        raise TypeError
    return value


def _instance(tp: type, made: Callable[[Any], Any]) -> Reader:
    def check(value: Any) -> Any:
        if not isinstance(value, tp):
            raise TypeError
        return value if type(value) is tp else made(value)

    return check


_CHECKS: dict[str, Reader] = {
    "int64": _int64,
    "float64": _float64,
    "bool": _instance(bool, bool),
    "string": _instance(str, str.__str__),
    "bytes": _instance(bytes, bytes),
    "timestamp": _timestamp,
    "decimal": _decimal,
    "list": lambda value: value if type(value) is list else _instance(tuple, list)(value),
    "struct": _struct,
    "null": _instance(type(None), bool),
}


def member(owner: Any, name: str) -> Any:
    """A field of the row's value: the item of a dict (null if missing), or the attribute of an object."""
    if type(owner) is dict or isinstance(owner, Mapping):  # the second is slow
        return owner.get(name)
    if not isinstance(owner, (*_SCALARS, list)):
        try:
            return getattr(owner, name)
        except AttributeError:
            pass
    raise Fault(f"{owner!r:.100} ({type(owner).__name__}) has no field {name!r}")


def as_dict(owner: Any) -> dict[str, Any]:
    """The fields of the row's value, in a new dict."""
    if isinstance(owner, Mapping):
        return dict(owner)
    if (names := field_names(type(owner))) is not None:
        return {n: plain(getattr(owner, n)) for n in names}
    if isinstance(owner, tuple) and hasattr(owner, "_fields"):
        return {n: plain(getattr(owner, n)) for n in owner._fields}
    raise Fault(f"{owner!r:.100} ({type(owner).__name__}) has no columns to add to")
