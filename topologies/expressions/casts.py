"""Casts of one value. Each raises ``Fault`` for what cannot be cast."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from typing import Any

from penstock.topologies.expressions.errors import Fault
from penstock.topologies.expressions.numbers import DECIMALS, INT64_MAX, INT64_MIN
from penstock.topologies.expressions.readers import KIND_OF
from penstock.topologies.expressions.text import iso_text
from penstock.topologies.expressions.tree import datetime_ms
from penstock.topologies.expressions.types import DataType

_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)

_INT64_DIGITS = 19
_ZEROS_MAX = 10_000
"""A decimal is written without an exponent; what would need more zeros than these is not written out."""


def caster(of: DataType, to: DataType) -> Callable[[Any], Any]:
    """The cast between two types, for values that are not null."""
    if of.kind == "timestamp" and to.kind == "string":
        return _timestamp_text
    cast, kind = _CASTS[to.kind], to.kind

    def run(value: Any) -> Any:
        try:
            return cast(value)
        except (ValueError, TypeError, OverflowError, ArithmeticError) as exc:
            raise Fault(f"{value!r:.100} ({type(value).__name__}) cannot be cast to {kind}") from exc

    return run


def _timestamp_text(value: int) -> str:
    try:
        return iso_text(value)
    except OverflowError as exc:
        raise Fault(f"{value} ms since 1970 lies outside the years 1 to 9999") from exc


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value.strip()):
            raise ValueError
        result = int(value)
    elif isinstance(value, decimal.Decimal):
        result = _decimal_to_int(value)
    elif isinstance(value, (int, float)):
        result = int(value)
    else:
        raise TypeError
    if not INT64_MIN <= result <= INT64_MAX:
        raise OverflowError
    return result


def _to_float(value: Any) -> float:
    if isinstance(value, str):
        if not _REAL.fullmatch(value.strip()):
            raise ValueError
        return float(value)
    if isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool):
        return float(value)
    raise TypeError


def _decimal_to_int(value: decimal.Decimal) -> int:
    # A few characters may be a number of millions of digits: it is not written out only to be found too large.
    if value.is_finite() and value.adjusted() >= _INT64_DIGITS:
        if value:
            raise OverflowError
        return 0
    return int(value)


_WORDS = {"true": True, "false": False}


def _to_bool(value: Any) -> bool:
    if isinstance(value, str):
        if value.strip().lower() not in _WORDS:
            raise ValueError
        return _WORDS[value.strip().lower()]
    if isinstance(value, int):
        return bool(value)
    raise TypeError


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, decimal.Decimal):
        if value.is_finite() and abs(value.adjusted()) > _ZEROS_MAX:
            raise OverflowError
        return format(value, "f")
    raise TypeError


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    raise TypeError


def _to_timestamp(value: Any) -> int:
    if isinstance(value, str):
        return datetime_ms(datetime.datetime.fromisoformat(value.strip()))
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError


def _to_decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, str):
        if not _REAL.fullmatch(value.strip()):
            raise ValueError
        result = DECIMALS.create_decimal(value.strip())
    elif isinstance(value, float):
        result = DECIMALS.create_decimal(repr(value))
    elif isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool):
        result = DECIMALS.create_decimal(value)
    else:
        raise TypeError
    if not result.is_finite():
        raise ValueError
    return result


def _to_list(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    raise TypeError


def _to_struct(value: Any) -> Any:
    if KIND_OF.get(type(value), "struct") != "struct":
        raise TypeError
    return value


def _to_unknown(value: Any) -> Any:
    return value


def _to_null(value: Any) -> None:
    raise TypeError


_CASTS: dict[str, Callable[[Any], Any]] = {
    "int64": _to_int,
    "float64": _to_float,
    "bool": _to_bool,
    "string": _to_text,
    "bytes": _to_bytes,
    "timestamp": _to_timestamp,
    "decimal": _to_decimal,
    "list": _to_list,
    "struct": _to_struct,
    "unknown": _to_unknown,
    "null": _to_null,
}
