"""Closures of all nodes except columns: nulls, logic, branches, casts and structs."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any

from penstock.topologies.expressions.columns import RowReader
from penstock.topologies.expressions.dynamic import condition
from penstock.topologies.expressions.errors import Fault
from penstock.topologies.expressions.numbers import Kernel
from penstock.topologies.expressions.readers import as_dict, member, reader
from penstock.topologies.expressions.times import as_datetime
from penstock.topologies.expressions.types import DataType, schema_of


def strict(args: tuple[RowReader, ...], kernel: Callable[..., Any]) -> RowReader:
    """A function that is null where an argument is."""
    if len(args) == 1:
        return _strict_one(args[0], kernel)

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        given = [arg(key, value, timestamp, headers) for arg in args]
        return None if None in given else kernel(*given)

    return run


def _strict_one(arg: RowReader, kernel: Callable[[Any], Any]) -> RowReader:
    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        given = arg(key, value, timestamp, headers)
        return None if given is None else kernel(given)

    return run


def strict_pair(left: RowReader, right: RowReader, kernel: Kernel) -> RowReader:
    """An operator of two operands, both evaluated."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        a = left(key, value, timestamp, headers)
        b = right(key, value, timestamp, headers)
        return None if a is None or b is None else kernel(a, b)

    return run


def with_constant(left: RowReader, kernel: Kernel, constant: Any) -> RowReader:
    """An operator whose right operand is a constant."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        a = left(key, value, timestamp, headers)
        return None if a is None else kernel(a, constant)

    return run


def checked_condition(run: RowReader) -> RowReader:
    """A condition of undeclared type."""
    return lambda key, value, timestamp, headers: condition(run(key, value, timestamp, headers))


def inverse(of: RowReader) -> RowReader:
    """``~``."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        given = of(key, value, timestamp, headers)
        return None if given is None else not given

    return run


def conjunction(left: RowReader, right: RowReader) -> RowReader:
    """``&``: false if either is, else null if either is."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        a = left(key, value, timestamp, headers)
        if a is False:
            return False
        b = right(key, value, timestamp, headers)
        return b if a is True or b is False else None

    return run


def disjunction(left: RowReader, right: RowReader) -> RowReader:
    """``|``: true if either is, else null if either is."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        a = left(key, value, timestamp, headers)
        if a is True:
            return True
        b = right(key, value, timestamp, headers)
        return b if a is False or b is True else None

    return run


def null_test(of: RowReader, wanted: bool) -> RowReader:
    """``is_null`` or ``is_not_null``."""
    return lambda key, value, timestamp, headers: (of(key, value, timestamp, headers) is None) is wanted


def coalesce(of: Sequence[RowReader]) -> RowReader:
    """The first that is not null."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        for one in of:
            given = one(key, value, timestamp, headers)
            if given is not None:
                return given
        return None

    return run


def present(of: RowReader) -> RowReader:
    """The value; an error where it is null."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        return not_null(of(key, value, timestamp, headers))

    return run


def not_null(given: Any) -> Any:
    """The value, which must not be null."""
    if given is None:
        raise Fault("it must not be null")
    return given


def provided(of: RowReader, conditions: Sequence[RowReader]) -> RowReader:
    """The value; an error unless all conditions are true."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        given = of(key, value, timestamp, headers)
        return if_true(given, *[holds(key, value, timestamp, headers) for holds in conditions])

    return run


def if_true(given: Any, *conditions: Any) -> Any:
    """The value, if all conditions are true."""
    for holds in conditions:
        if holds is not True:
            raise Fault("it must not be used for this row")
    return given


def is_in(of: RowReader, values: Sequence[tuple[RowReader, Kernel]]) -> RowReader:
    """Whether it equals one of the values."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        given = of(key, value, timestamp, headers)
        others = [(one(key, value, timestamp, headers), equals) for one, equals in values]
        if given is None:
            return None
        if any(other is not None and equals(given, other) for other, equals in others):
            return True
        return None if any(other is None for other, _ in others) else False

    return run


def between(of: RowReader, low: RowReader, high: RowReader, not_below: Kernel, not_above: Kernel) -> RowReader:
    """``(low <= x) & (x <= high)``, all three evaluated."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        given = of(key, value, timestamp, headers)
        least = low(key, value, timestamp, headers)
        most = high(key, value, timestamp, headers)
        if given is None:
            return None
        above = None if least is None else not_below(given, least)
        below = None if most is None else not_above(given, most)
        if above is False or below is False:
            return False
        return None if above is None or below is None else True

    return run


def case(branches: Sequence[tuple[RowReader, RowReader]], default: RowReader) -> RowReader:
    """The value of the first branch whose condition is true."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        for holds, then in branches:
            if holds(key, value, timestamp, headers):
                return then(key, value, timestamp, headers)
        return default(key, value, timestamp, headers)

    return run


def widened(run: RowReader, of: DataType, to: DataType) -> RowReader:
    """The value as the common type of several."""
    if of.kind == "int64" and to.kind == "float64":
        return _strict_one(run, float)
    if of.kind == "int64" and to.kind == "decimal":
        return _strict_one(run, decimal.Decimal)
    return run


def cast(of: RowReader, convert: Callable[[Any], Any], is_strict: bool) -> RowReader:
    """The value cast; if the cast fails, null, or an error if it is strict."""
    return _strict_one(of, convert if is_strict else lenient(convert))


def lenient(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The conversion, which gives null where it fails."""

    def converted(given: Any) -> Any:
        try:
            return convert(given)
        except Fault:
            return None

    return converted


def header(name: str) -> RowReader:
    """The last header of this name."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        for found, content in reversed(headers):
            if found == name:
                return content
        return None

    return run


def struct(fields: Sequence[tuple[str, RowReader]], python: type | None) -> RowReader:
    """A dict of the fields, or an instance built from them."""
    if python is None:
        return lambda key, value, timestamp, headers: {
            name: field(key, value, timestamp, headers) for name, field in fields
        }
    wanted = schema_of(python)
    makers = [(name, field, _writer(wanted.field(name), f"{python.__name__}.{name}")) for name, field in fields]

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        return python(**{name: write(field(key, value, timestamp, headers)) for name, field, write in makers})

    return run


def unless_null(of: RowReader, then: RowReader) -> RowReader:
    """The result of ``then``, but null if ``of`` is."""

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        return None if of(key, value, timestamp, headers) is None else then(key, value, timestamp, headers)

    return run


def _writer(tp: DataType | None, what: str) -> Callable[[Any], Any]:
    """A value as the class declares it."""
    assert tp is not None
    check = reader(tp, what)
    if tp.kind != "timestamp":
        return check

    def moment(value: Any) -> datetime.datetime | None:
        checked = check(value)
        return None if checked is None else as_datetime(checked)

    return moment


def extend(of: RowReader, tp: DataType, fields: Sequence[tuple[str, RowReader]]) -> RowReader:
    """The columns of a struct in a new dict, some added or replaced."""
    added = {name for name, _ in fields}
    kept = [(n, reader(t, n)) for n, t in tp.fields if n not in added]
    place = [n for n, _ in tp.fields]

    def run(key: Any, value: Any, timestamp: int, headers: Any) -> Any:
        owner = of(key, value, timestamp, headers)
        if owner is None:
            return None
        if tp.kind != "struct":
            return {**as_dict(owner), **{n: f(key, value, timestamp, headers) for n, f in fields}}
        found = {n: read(member(owner, n)) for n, read in kept}
        found |= {n: f(key, value, timestamp, headers) for n, f in fields}
        return {n: found[n] for n in (*place, *(n for n in found if n not in place))}

    return run
