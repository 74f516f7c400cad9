"""Columns of a stream: ``select`` and ``with_columns``.

Columns are expressions, positional ones under their own names, the others under the keywords'. A column may be called
``name`` or ``value``, as the operator and the serde are: an expression given for either is a column.

    bids.select(col("auction"), euros=col("price") * 0.908)
    bids.with_columns(hour=timestamp().hour(), name=col("name").lower())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.typed import result_serde, row_function, scope_of_flow, selection
from penstock.topologies.expressions.text import default_name
from penstock.topologies.expressions.tree import Expression, Extend, Field, Input, as_expression
from penstock.topologies.operators.records.stateless import MapValuesSpec

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class ExpressionMethods(Handle):
    """Methods of ``KStream``."""

    def select(
        self,
        *positional: Expression,
        value: Any = None,
        name: str | Expression | None = None,
        **columns: Any,
    ) -> KStream:
        """Values of these columns alone: dicts, or instances of the Struct or dataclass that ``value`` names. A null
        value stays null."""
        operator, into, found = self._columns("select", positional, value, name, columns)
        return self._mapped(operator, selection(tuple(found.items()), into), into)

    def with_columns(
        self,
        *positional: Expression,
        value: Any = None,
        name: str | Expression | None = None,
        **columns: Any,
    ) -> KStream:
        """The values with columns added or replaced: dicts, or instances of the Struct or dataclass that ``value``
        names, which needs the columns so far to be declared. A null value stays null."""
        operator, into, found = self._columns("with-columns", positional, value, name, columns)
        if into is None or into is dict:
            return self._mapped(operator, Extend(Input("value"), tuple(found.items())), into)
        known = scope_of_flow(self._flow).value
        if known.kind != "struct":
            raise TopologyError(
                f"operator {operator!r}: the columns of {self.out!r} are not declared, so that {into!r:.100} cannot be "
                "made of them; name them all: select(…, value=…)"
            )
        kept: dict[str, Expression] = {n: Field(Input("value"), n) for n, _ in known.fields}
        return self._mapped(operator, selection(tuple({**kept, **found}.items()), into), into)

    def _columns(
        self, kind: str, positional: tuple[Expression, ...], value: Any, name: Any, columns: dict[str, Any]
    ) -> tuple[str, Any, dict[str, Expression]]:
        """The operator's name, the serde that was named, and the columns by name."""
        if isinstance(value, Expression):
            columns, value = {**columns, "value": value}, None
        if isinstance(name, Expression):
            columns, name = {**columns, "name": name}, None
        operator = self._flow.wiring.name(self._flow, kind, name)
        found: dict[str, Expression] = {}
        given = [(None, c) for c in positional] + list(columns.items())
        for label, column in given:
            try:
                expression = as_expression(column)
            except TopologyError as exc:
                raise TopologyError(f"operator {operator!r}: {exc}") from exc
            label = default_name(expression) if label is None else label
            if label in found:
                raise TopologyError(f"operator {operator!r} has two columns {label!r}; give one another name: alias(…)")
            found[label] = expression
        if not found:
            raise TopologyError(f"operator {operator!r} has no columns; name at least one: {kind}(a=col('a'))")
        return operator, value, found

    def _mapped(self, operator: str, expression: Expression, value: Any) -> KStream:
        fn = row_function(expression, operator, self._flow, record=True)
        spec = MapValuesSpec(fn=fn, with_key=True)
        self._flow.wiring.add(operator, spec, self._flow)
        return self._stream(self._behind(operator, value=result_serde(fn, operator, value)))
