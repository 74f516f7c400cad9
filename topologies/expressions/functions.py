"""Functions with which users write expressions.

    col("amount") * 2 > 100                          # a column of the record's value
    col("bid.price"), col("bid")["price"]            # a nested field
    key(), value(), timestamp(), header("trace")     # the rest of the record
    when(col("n") > 0).then(col("sum") / col("n")).otherwise(0.0)
    struct(user=col("id"), name=col("name").lower())
    col("amount").sum(), count().where(col("amount") > 10)

Nulls are SQL's: an operator or function of null is null unless it says otherwise, ``&`` and ``|`` have three values,
and a filter keeps only what is true. Arithmetic: int64 overflow and any division by zero are errors (for a sum the
result counts, see ``penstock.topologies.aggregators.expression_aggregates``); ``/`` of int64 gives float64, ``//`` and
``%`` round down (``quotient`` and ``remainder`` towards zero). Numbers of two types are widened to the wider one,
decimals are rounded to 38 digits, ties to even (in SQL's ROUND and CAST: away from zero). Floats compare as IEEE 754
says: NaN equals nothing.
"""

from __future__ import annotations

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.tree import (
    AggregateExpression,
    Call,
    Expression,
    Field,
    HeaderValue,
    Input,
    Literal,
    StructOf,
    When,
    as_expression,
    literal,
)
from penstock.topologies.windows.durations import Duration, duration_ms


def col(name: str) -> Expression:
    """A field of the record's value; dots go into nested ones (``col("bid")["a.b"]`` for a name with a dot)."""
    return _path(Input("value"), name)


def left(name: str | None = None) -> Expression:
    """In a join: a field of the left value, or the whole value."""
    return Input("left") if name is None else _path(Input("left"), name)


def right(name: str | None = None) -> Expression:
    """In a join: a field of the right value, or the whole value, which may be null."""
    return Input("right") if name is None else _path(Input("right"), name)


def _path(of: Expression, path: str) -> Expression:
    if not isinstance(path, str) or not path:
        raise TopologyError(f"a column is named by a string, not {path!r:.100}")
    for name in path.split("."):
        if not name:
            raise TopologyError(f"column {path!r} has an empty name in it; write col('a')['b'] for names with dots")
        of = Field(of, name)
    return of


def value() -> Expression:
    """The record's whole value."""
    return Input("value")


def key() -> Expression:
    """The record's key. Of windowed keys: ``key()["key"]``, ``window_start()``, ``window_end()``."""
    return Input("key")


def timestamp() -> Expression:
    """The record's event time."""
    return Input("timestamp")


def window_start() -> Expression:
    """The start of a windowed key's window."""
    return Field(Input("key"), "start_ms")


def window_end() -> Expression:
    """The end of a windowed key's window, as in ``Windowed``: the first moment behind it, but the last one of sessions and
    of sliding windows, which hold their end."""
    return Field(Input("key"), "end_ms")


def header(name: str) -> Expression:
    """The last header of this name, as bytes (``.cast("string")`` for text); null where there is none."""
    return HeaderValue(name)


def lit(of: object) -> Literal:
    """A constant: None, bool, int, float, str, bytes, Decimal, datetime, or timedelta (its milliseconds)."""
    return literal(of)


def duration(of: Duration) -> Literal:
    """A duration as int64 milliseconds: ``timestamp() - duration("5m")``, or ``timestamp() -
    timedelta(minutes=5)``."""
    return literal(duration_ms(of))


def coalesce(*of: object) -> Expression:
    """The first that is not null; later ones are not evaluated."""
    return Call("coalesce", _some("coalesce", of))


def least(*of: object) -> Expression:
    """The least of its arguments; null if one is null, NaN if one is."""
    return Call("least", _some("least", of))


def greatest(*of: object) -> Expression:
    """The greatest of its arguments; null if one is null, NaN if one is."""
    return Call("greatest", _some("greatest", of))


def concat(*of: object) -> Expression:
    """Concatenate strings; null if one is null."""
    return Call("concat", _some("concat", of))


def quotient(of: object, by: object) -> Expression:
    """Division of int64, rounded towards zero, as SQL's ``/``."""
    return Call("quotient", (as_expression(of), as_expression(by)))


def remainder(of: object, by: object) -> Expression:
    """The remainder of division towards zero, for numbers of any type: it has the sign of the dividend, as SQL's
    ``MOD``."""
    return Call("remainder", (as_expression(of), as_expression(by)))


def _some(function: str, of: tuple[object, ...]) -> tuple[Expression, ...]:
    if not of:
        raise TopologyError(f"{function}() without arguments; give it at least one expression")
    return tuple(as_expression(e) for e in of)


def when(condition: object) -> When:
    """``when(c).then(x).when(d).then(y).otherwise(z)``: the value of the first true condition."""
    return When((), as_expression(condition))


def struct(**fields: object) -> StructOf:
    """A struct, which becomes a dict; ``map_values(struct(…), value=Out)`` makes ``Out`` of it."""
    if not fields:
        raise TopologyError("struct() has no fields; name at least one: struct(a=col('a'))")
    return StructOf(tuple((n, as_expression(e)) for n, e in fields.items()))


def count() -> AggregateExpression:
    """The number of rows."""
    return AggregateExpression("count", None)
