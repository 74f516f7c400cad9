"""Aggregate expressions as ready aggregates.

``col("amount").sum()`` becomes the aggregate ``sum_`` of a column that the row interpreter computes. Expressions over
aggregates (``col("a").sum() / count()``) become one aggregate whose result is computed from the results of its parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from decimal import Decimal
from operator import itemgetter
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.aggregators.base import Aggregator, Part, agg
from penstock.topologies.aggregators.generated_aggregates import (
    generated_add,
    generated_members,
    generated_merge,
    generated_result,
)
from penstock.topologies.aggregators.keeping import count_distinct, first, last, list_, set_
from penstock.topologies.aggregators.numeric import count, max_, mean, min_, std_dev, sum_, variance
from penstock.topologies.expressions.errors import ResultError
from penstock.topologies.expressions.inference import ExpressionScope, Inference, infer, require_bool, scope_of
from penstock.topologies.expressions.numbers import DECIMALS, INT64_MAX, INT64_MIN
from penstock.topologies.expressions.row_function import to_function
from penstock.topologies.expressions.rows import compile_row
from penstock.topologies.expressions.signature import GROUPS, Mismatch
from penstock.topologies.expressions.tree import (
    AggregateExpression,
    Case,
    Expression,
    Field,
    Input,
    StructOf,
    literal,
    rebuild,
    walk,
)
from penstock.topologies.expressions.types import (
    FLOAT64,
    INT64,
    UNKNOWN,
    DataType,
    list_of,
    struct_of,
)

_NUMBERS: dict[str, Any] = {"int64": int, "float64": float, "decimal": Decimal}
_ORDERED = GROUPS["ordered"]
_GROUP = {
    "sum": GROUPS["number"],
    "mean": GROUPS["number"],
    "variance": GROUPS["number"],
    "std_dev": GROUPS["number"],
    "min": _ORDERED,
    "max": _ORDERED,
}
"""The types that an aggregate accepts, for aggregates that do not accept all."""


def aggregate_type(aggregate: AggregateExpression, schema: Any = UNKNOWN, *, operator: str | None = None) -> DataType:
    """The type of an aggregate's result. Raises ``TopologyError`` for a column of a type that it does not accept."""
    inference = Inference(_value_scope(schema))
    try:
        return _type(aggregate, inference)
    except Mismatch as exc:
        where = "" if operator is None else f"operator {operator!r}, "
        raise TopologyError(f"{where}expression {aggregate.text()}: {exc}") from exc


def _type(aggregate: AggregateExpression, inference: Inference) -> DataType:
    function = aggregate.function
    if aggregate.condition is not None:
        require_bool(aggregate.condition, inference.of(aggregate.condition), "where() needs a condition")
    if aggregate.of is None:
        return INT64
    tp = inference.of(aggregate.of)
    group = _GROUP.get(function)
    if group is not None and tp.kind not in group and tp.kind not in ("null", "unknown"):
        raise Mismatch(f"{function}() takes {' or '.join(sorted(group))}, and {aggregate.of.text()} is {tp}; cast it")
    if function in ("count", "count_distinct"):
        return INT64
    if function in ("collect_list", "collect_set"):
        return list_of(tp.not_null())
    if function in ("variance", "std_dev"):
        return FLOAT64.or_null()
    if function == "mean" and tp.kind == "int64":
        return FLOAT64.or_null()
    return tp.or_null()


def aggregator_of(aggregate: AggregateExpression, schema: Any = UNKNOWN, *, operator: str | None = None) -> Aggregator:
    """The ready aggregate of one aggregate expression over the schema of the value. Raises ``TopologyError``."""
    tp = aggregate_type(aggregate, schema, operator=operator)
    scope = _value_scope(schema)
    of: Expression | None = aggregate.of
    if aggregate.condition is not None:
        of = Case(((aggregate.condition, literal(1) if of is None else of),), literal(None))
    column = None if of is None else to_function(of, ("value",), scope, operator=operator)
    made = _MAKERS[aggregate.function](column, UNKNOWN if column is None else column.result, aggregate.args)
    if aggregate.function == "sum" and tp.kind in ("int64", "decimal", "unknown"):
        made = _bounded(made, aggregate.text(), operator)
    kind = "int64" if column is None else column.result.kind
    part = Part(aggregate.function, column, kind, made.merge, None if made.step is None else made.step.prepare)
    apart = made.apart
    if apart is not None:
        counted = dataclasses.replace(apart.aggregator, name=aggregate.text(), part=part)
        apart = apart._replace(aggregator=counted)
    return dataclasses.replace(made, name=aggregate.text(), part=part, apart=apart)


def _kept(tp: DataType) -> Any:
    """The serde of kept values: that of their class, or of plain values."""
    return tp.python if tp.kind == "struct" else None


_MAKERS: dict[str, Callable[[Any, DataType, tuple[Any, ...]], Aggregator]] = {
    "count": lambda of, tp, args: count(of),
    "sum": lambda of, tp, args: sum_(of, number=_NUMBERS.get(tp.kind)),
    "mean": lambda of, tp, args: mean(of, number=_NUMBERS.get(tp.kind)),
    "variance": lambda of, tp, args: variance(of, population=bool(args), number=_NUMBERS.get(tp.kind)),
    "std_dev": lambda of, tp, args: std_dev(of, population=bool(args), number=_NUMBERS.get(tp.kind)),
    "min": lambda of, tp, args: min_(of),
    "max": lambda of, tp, args: max_(of),
    "first": lambda of, tp, args: first(of, value=_kept(tp)),
    "last": lambda of, tp, args: last(of, value=_kept(tp)),
    "collect_list": lambda of, tp, args: list_(of, value=_kept(tp)),
    "collect_set": lambda of, tp, args: set_(of, value=_kept(tp)),
    "count_distinct": lambda of, tp, args: count_distinct(of, value=_kept(tp)),
}


def _bounded(made: Aggregator, text: str, operator: str | None) -> Aggregator:
    """A sum whose result is an int64, or a decimal of 38 digits."""
    exact = made.result
    where = "" if operator is None else f"operator {operator!r}, "

    def result(acc: Any) -> Any:
        total = exact(acc)
        if type(total) is int and not INT64_MIN <= total <= INT64_MAX:
            raise ResultError(
                f"{where}expression {text}: int64 overflow: {total} does not fit into 64 bits; sum a column that is cast "
                "to decimal or float64"
            )
        return DECIMALS.plus(total) if total and type(total) is Decimal else total

    return dataclasses.replace(made, result=result)


def _value_scope(schema: Any) -> ExpressionScope:
    return dataclasses.replace(scope_of(schema), record=False, keyed=False)


def has_aggregates(expression: Expression) -> bool:
    """Whether the tree contains an aggregate."""
    return any(isinstance(node, AggregateExpression) for node in walk(expression))


@dataclasses.dataclass(frozen=True)
class AggregatePlan:
    """Named results over aggregates, split into parts. ``parts``: the distinct aggregates by name; ``outputs`` read
    their results under these names, as columns of a value."""

    parts: tuple[tuple[str, AggregateExpression], ...]
    outputs: tuple[tuple[str, Expression], ...]


def plan_aggregates(
    fields: Mapping[str, Expression], schema: Any = UNKNOWN, *, operator: str | None = None
) -> AggregatePlan:
    """Split named expressions over aggregates into parts. Raises ``TopologyError`` for one that has no aggregate,
    reads a column outside one, or does not fit the schema."""
    parts: dict[str, AggregateExpression] = {}

    def place(aggregate: AggregateExpression) -> Expression:
        for name, known in parts.items():
            if known.same_as(aggregate):
                return Field(Input("value"), name)
        parts[f"part{len(parts) + 1}"] = aggregate
        return Field(Input("value"), f"part{len(parts)}")

    outputs = {
        n: rebuild(e, lambda node: place(node) if isinstance(node, AggregateExpression) else None)
        for n, e in fields.items()
    }
    where = "" if operator is None else f"operator {operator!r}, "
    for name, expression in fields.items():
        outside = _outside_aggregates(expression)
        if outside is not None or not has_aggregates(expression):
            seen = f"{outside.text()} is outside an aggregate" if outside is not None else "it has no aggregate"
            raise TopologyError(
                f"{where}{name} = {expression.text()}: {seen}; give aggregates, such as col('x').sum(), "
                "or group by the column and read it from the key"
            )
    return AggregatePlan(tuple(parts.items()), tuple(outputs.items()))


def _outside_aggregates(expression: Expression) -> Expression | None:
    """A column that is read outside any aggregate."""
    if isinstance(expression, AggregateExpression):
        return None
    if isinstance(expression, (Input, Field)):
        return expression
    return next((found for c in expression.children() if (found := _outside_aggregates(c)) is not None), None)


def aggregator_of_all(
    fields: Mapping[str, Expression],
    schema: Any = UNKNOWN,
    *,
    operator: str | None = None,
    into: type | None = None,
) -> tuple[Aggregator, DataType]:
    """One aggregate of named expressions over aggregates, and its result's type. The result is the dict of their
    results (or an instance of ``into`` built from them). Raises ``TopologyError``, as ``plan_aggregates``."""
    if not fields:
        raise TopologyError("agg() has no aggregates; name at least one: agg(total=col('amount').sum())")
    plan = plan_aggregates(fields, schema, operator=operator)
    members = {n: aggregator_of(a, schema, operator=operator) for n, a in plan.parts}
    whole = agg(**members)
    parts_type = struct_of({n: aggregate_type(a, schema, operator=operator) for n, a in plan.parts})
    struct = StructOf(plan.outputs, into)
    row = compile_row(struct, parts_type, operator=operator)
    changes: dict[str, Any] = {
        "name": f"agg({', '.join(f'{n}={e.text()}' for n, e in fields.items())})",
        "result_of_parts": to_function(struct, ("value",), parts_type, operator=operator),
    }

    def generated(form: Aggregator, its: dict[str, Aggregator]) -> Aggregator:
        results = form.result

        def reference(acc: Any) -> Any:
            return row(None, results(acc), 0, ())

        parts = tuple(its.values())
        add = generated_add(parts, form.add)
        merge = None if form.merge is None else generated_merge(parts, form.merge)
        result = generated_result(its, struct, scope_of(parts_type), reference)
        return dataclasses.replace(form, add=add, merge=merge, result=result, **changes)

    made, apart = generated(whole, members), whole.apart
    if apart is not None:
        counts = {n: m if m.apart is None else m.apart.aggregator for n, m in members.items()}
        distinct = [m for m in members.values() if m.apart is not None]
        apart = apart._replace(
            aggregator=generated(apart.aggregator, counts), members=generated_members(distinct, apart.members)
        )
        made = dataclasses.replace(made, apart=apart)
    return made, infer(struct, parts_type)


def aggregator_of_one(
    expression: Expression, schema: Any = UNKNOWN, *, operator: str | None = None
) -> tuple[Aggregator, DataType]:
    """As ``aggregator_of_all`` for one expression, whose result is the value itself."""
    made, tp = aggregator_of_all({"value": expression}, schema, operator=operator)
    whole = made.result_of_parts
    only = tp.field("value")
    assert only is not None and whole is not None and isinstance(whole.expression, StructOf)
    ((_, output),) = whole.expression.fields
    return made.mapped(
        itemgetter("value"),
        name=expression.text(),
        result_of_parts=to_function(output, ("value",), whole.scope, operator=operator),
    ), only
