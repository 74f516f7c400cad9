"""Columns of a stream: ``select`` and ``with_columns``.

Columns are expressions: positional ones keep their own names, the others take the keywords'. A column may be called
``name`` or ``value``, like the options for operator and serde: if an expression is given for either, it is a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.typed import result_serde, row_function, scope_of_flow, selection
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.expressions.text import default_name
from penstock.topologies.expressions.tree import Expression, Extend, Field, Input, as_expression
from penstock.topologies.operators.records.stateless import MapValuesSpec


def selected(flow: Flow, positional: tuple[Expression, ...], value: Any, name: Any, columns: Mapping[str, Any]) -> Flow:
    """Keep only these columns."""
    operator, into, found = _columns(flow, "select", positional, value, name, columns)
    return _mapped(flow, operator, selection(tuple(found.items()), into), into)


def extended(flow: Flow, positional: tuple[Expression, ...], value: Any, name: Any, columns: Mapping[str, Any]) -> Flow:
    """Add or replace columns."""
    operator, into, found = _columns(flow, "with-columns", positional, value, name, columns)
    if into is None or into is dict:
        return _mapped(flow, operator, Extend(Input("value"), tuple(found.items())), into)
    known = scope_of_flow(flow).value
    if known.kind != "struct":
        raise TopologyError(
            f"operator {operator!r}: the columns of {flow.out!r} are not declared, so {into!r:.100} cannot be "
            "built from them; name all columns: select(…, value=…)"
        )
    kept: dict[str, Expression] = {n: Field(Input("value"), n) for n, _ in known.fields}
    return _mapped(flow, operator, selection(tuple({**kept, **found}.items()), into), into)


def _columns(
    flow: Flow, kind: str, positional: tuple[Expression, ...], value: Any, name: Any, columns: Mapping[str, Any]
) -> tuple[str, Any, dict[str, Expression]]:
    """Return the operator's name, the given serde, and the columns by name."""
    if isinstance(value, Expression):
        columns, value = {**columns, "value": value}, None
    if isinstance(name, Expression):
        columns, name = {**columns, "name": name}, None
    operator = flow.wiring.name(flow, kind, name)
    found: dict[str, Expression] = {}
    given = [(None, c) for c in positional] + list(columns.items())
    for label, column in given:
        try:
            expression = as_expression(column)
        except TopologyError as exc:
            raise TopologyError(f"operator {operator!r}: {exc}") from exc
        label = default_name(expression) if label is None else label
        if label in found:
            raise TopologyError(f"operator {operator!r} has two columns {label!r}; rename one: alias(…)")
        found[label] = expression
    if not found:
        raise TopologyError(f"operator {operator!r} has no columns; name at least one: {kind}(a=col('a'))")
    return operator, value, found


def _mapped(flow: Flow, operator: str, expression: Expression, value: Any) -> Flow:
    fn = row_function(expression, operator, flow, record=True)
    flow.wiring.add(operator, MapValuesSpec(fn=fn, with_key=True), flow)
    return flow.behind(operator, value=result_serde(fn, operator, value))
