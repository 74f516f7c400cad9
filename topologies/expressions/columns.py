"""Closures that read columns of a row. The interpreter spends most time here, so the common types are checked
inline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.topologies.expressions.numbers import INT64_MAX, INT64_MIN
from penstock.topologies.expressions.readers import EXACT, Reader, member, reader
from penstock.topologies.expressions.types import DataType

RowReader = Callable[[Any, Any, int, Any], Any]
"""A function of key, value, timestamp and headers (or the right value of a join)."""
Get = Callable[[Any], Any]


def read_input(which: str, tp: DataType, what: str) -> RowReader:
    """The record's key, value or timestamp, or a side of a join. Null if it is null, for any declared type."""
    if which == "timestamp":
        return lambda key, value, timestamp, headers: timestamp
    check = reader(tp.or_null(), what)
    if which == "key":
        return lambda key, value, timestamp, headers: check(key)
    if which == "right":
        return lambda key, value, timestamp, headers: check(headers)
    return lambda key, value, timestamp, headers: check(value)


def column(source: RowReader | None, owner: DataType, name: str, tp: DataType, what: str) -> RowReader:
    """The field of the result of ``source``, or of the record's value (``None``). ``tp``: the field's type; ``what``:
    its text. Reads items if dicts were declared, attributes if a class was; if the row holds the other kind, reads that
    instead."""
    check = reader(tp, what)
    if source is not None:
        return _nested(source, _getter(owner, name), check)
    if owner.python is None:
        return _int64_item(name, check) if tp.kind == "int64" else _item(name, EXACT.get(tp.kind), check)
    if tp.kind == "int64":
        return _int64_attribute(owner.python, name, check)
    return _attribute(owner.python, name, EXACT.get(tp.kind), check)


def _getter(owner: DataType, name: str) -> Get:
    if owner.python is None:
        return lambda row: row.get(name) if type(row) is dict else member(row, name)
    expected = owner.python
    return lambda row: getattr(row, name) if type(row) is expected else member(row, name)


def _nested(source: RowReader, get: Get, check: Reader) -> RowReader:
    def read(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        owner = source(key, value, timestamp, headers)
        return None if owner is None else check(get(owner))

    return read


# Repeated four times, because one call less per column saves a large part of an expression's time.


def _int64_item(name: str, check: Reader) -> RowReader:
    def read(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        if type(value) is dict:
            found = value.get(name)
        elif value is None:
            return None
        else:
            found = member(value, name)
        return found if type(found) is int and INT64_MIN <= found <= INT64_MAX else check(found)

    return read


def _int64_attribute(expected: type, name: str, check: Reader) -> RowReader:
    def read(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        if type(value) is expected:
            found = getattr(value, name)
        elif value is None:
            return None
        else:
            found = member(value, name)
        return found if type(found) is int and INT64_MIN <= found <= INT64_MAX else check(found)

    return read


def _item(name: str, exact: type | None, check: Reader) -> RowReader:
    def read(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        if type(value) is dict:
            found = value.get(name)
        elif value is None:
            return None
        else:
            found = member(value, name)
        return found if type(found) is exact else check(found)

    return read


def _attribute(expected: type, name: str, exact: type | None, check: Reader) -> RowReader:
    def read(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        if type(value) is expected:
            found = getattr(value, name)
        elif value is None:
            return None
        else:
            found = member(value, name)
        return found if type(found) is exact else check(found)

    return read
