"""``MATCH_RECOGNIZE`` as a pattern over the records of a key.

In ``DEFINE`` a variable's own columns are those of the current row, and other variables' are those of their last row.
In ``MEASURES`` every variable's columns are those of its last row. ``FIRST(A.x [, n])``, ``LAST(A.x [, n])`` and
aggregates read all rows of a variable so far; in ``DEFINE`` these include the current row for the variable itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from penstock.topologies.aggregators.expression_aggregates import aggregate_type, aggregator_of
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.typed import scope_of_flow, serde_of_type
from penstock.topologies.expressions.errors import ExpressionError, ResultError
from penstock.topologies.expressions.generated import generated_row
from penstock.topologies.expressions.inference import ExpressionScope, infer
from penstock.topologies.expressions.tree import AggregateExpression, Expression, Field, Input, StructOf, rebuild
from penstock.topologies.expressions.types import DataType, struct_of
from penstock.topologies.patterns.conditions import MatchContext, user_condition
from penstock.topologies.patterns.pattern import Pattern
from penstock.topologies.patterns.skip import Skip, skip_past_last_event, skip_to_first, skip_to_last, skip_to_next
from penstock.topologies.sql.names import ROWTIME, Names, SqlSource, columns_alone, single
from penstock.topologies.sql.parsing import Text
from penstock.topologies.sql.row_pattern import RowPattern
from penstock.topologies.sql.scalars import Scalars, is_aggregate

RowEvents = dict[str, list[Any]]
_EVENT = Field(Input("value"), "event")


@dataclasses.dataclass(frozen=True)
class _Look:
    """One read of the rows of a variable, whose result is the column ``name``."""

    name: str
    variable: str
    of: Callable[[list[Any]], Any]
    type: DataType


class _VariableScalars(Scalars):
    """Expressions over variables. ``current``: the variable of the current row (in ``DEFINE``), else ``None``."""

    def __init__(self, text: Text, event: DataType, variables: list[str], current: str | None) -> None:
        super().__init__(Names(text, {"event": SqlSource(_EVENT, event, None)}, ExpressionScope(event)))
        self._event = single(text, "event", ExpressionScope(event, record=False, keyed=False))
        self._variables = variables
        self._current = current
        self.looks: list[_Look] = []

    def convert(self, node: Any) -> Expression:
        """The expression over ``event``, the current row, and the results of ``looks``."""
        if isinstance(node, (exp.First, exp.Last)):
            return self._navigated(node)
        if is_aggregate(node):
            return self._aggregated(node)
        if isinstance(node, exp.Anonymous) and node.name.upper() in ("PREV", "NEXT"):
            raise self.text.error(node, f"{node.name.upper()} is not supported; use LAST(variable.column, 1)")
        if isinstance(node, exp.Column):
            return self._column(node)
        return super().convert(node)

    @property
    def scope(self) -> ExpressionScope:
        """The scope against which the expressions are typed."""
        looks = struct_of({look.name: look.type for look in self.looks})
        return ExpressionScope(struct_of({"event": self._event.scope.value, "looks": looks}), record=False, keyed=False)

    def _column(self, node: exp.Column) -> Expression:
        if len(node.parts) == 1:
            if self._current is None:
                raise self.text.error(node, f"whose is {node.sql()}? Say variable.{node.sql()}")
            return self._of_event(node, node)
        variable = self._variable(node)
        plain = self._plain(node)
        if variable == self._current:
            return self._of_event(plain, node)
        return self._look(node, variable, self._row_of(plain, node), last=True, back=0)

    def _of_event(self, plain: exp.Column, node: exp.Column) -> Expression:
        return _over_event(columns_alone(self.text, node, self._event.column(plain)))

    def _variable(self, node: exp.Column) -> str:
        name = node.parts[0].name
        found = [v for v in self._variables if v.lower() == name.lower()]
        if not found:
            raise self.text.error(
                node, f"{name} is not a variable of the pattern; its variables are: {', '.join(self._variables)}"
            )
        return found[0]

    def _plain(self, node: exp.Column) -> exp.Column:
        """The column without its variable."""
        parts = [p.copy() for p in node.parts[1:]]
        names: list[str] = ["this", "table", "db", "catalog"]
        return exp.Column(**dict(zip(names, reversed(parts), strict=False)))

    def _inner(self, node: Any, outer: Any) -> tuple[str, Expression]:
        """An expression over the rows of one variable: the variable, and the expression over such a row."""
        variables = {self._variable(c) for c in node.find_all(exp.Column) if len(c.parts) > 1}
        if len(variables) != 1:
            raise self.text.error(outer, f"{outer.sql()} must read columns of one variable only")
        plain = node.copy().transform(lambda n: self._plain(n) if isinstance(n, exp.Column) and len(n.parts) > 1 else n)
        return variables.pop(), self._row_of(plain, outer)

    def _row_of(self, plain: Any, outer: Any) -> Expression:
        with self.text.at(outer):
            return columns_alone(self.text, outer, Scalars(self._event).convert(plain))

    def _navigated(self, node: Any) -> Expression:
        variable, of = self._inner(node.this, node)
        back = node.args.get("expression")
        return self._look(
            node, variable, of, last=isinstance(node, exp.Last), back=0 if back is None else int(self.constant(back))
        )

    def _look(self, node: Any, variable: str, of: Expression, *, last: bool, back: int) -> Expression:
        with self.text.at(node):
            row = generated_row(of, self._event.scope)
            tp = infer(of, self._event.scope).or_null()

        def look(events: list[Any]) -> Any:
            if back >= len(events):
                return None
            return row(None, events[-1 - back] if last else events[back], 0, ())

        return self._placed(_Look(f"look{len(self.looks) + 1}", variable, look, tp))

    def _aggregated(self, node: Any) -> Expression:
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            raise self.text.error(node, "COUNT(*) of a pattern; count the rows of a variable: COUNT(A.column)")
        variable, _ = self._inner(node.this, node)
        plain = node.copy().transform(lambda n: self._plain(n) if isinstance(n, exp.Column) and len(n.parts) > 1 else n)
        with self.text.at(node):
            aggregate: AggregateExpression = Scalars(self._event).aggregate(plain)
            made = aggregator_of(aggregate, self._event.scope)
            tp = aggregate_type(aggregate, self._event.scope)

        def look(events: list[Any]) -> Any:
            try:
                return made.result(made.fold((e, i) for i, e in enumerate(events)))
            except ResultError as exc:  # here one event is read, so it is named in the error
                raise ExpressionError(str(exc)) from exc

        return self._placed(_Look(f"look{len(self.looks) + 1}", variable, look, tp))

    def _placed(self, look: _Look) -> Expression:
        self.looks.append(look)
        return Field(Field(Input("value"), "looks"), look.name)


def matched(text: Text, rows: KStream, alias: str, node: exp.MatchRecognize, *, unbounded: bool) -> KStream:
    """The matches: rows of the partition's columns and the measures. Raises ``TopologyError``."""
    text.only(node, "partition_by", "order", "measures", "rows", "after", "pattern", "define", "alias")
    if str(node.args.get("rows") or "ONE ROW PER MATCH") != "ONE ROW PER MATCH":
        raise text.error(node, f"{node.args['rows']} is not supported; use ONE ROW PER MATCH")
    _check_order(text, node)
    names = single(text, alias, scope_of_flow(rows._flow))
    partition = _partition(names, node)
    with text.at(node):
        keyed = rows.select_key(StructOf(tuple(partition.items()))) if partition else rows
        timed = keyed.with_columns(**{ROWTIME: Input("timestamp")})
    event = scope_of_flow(timed._flow).value.not_null()
    opening = text.pattern(node)
    if opening is None:
        raise text.error(node, "MATCH_RECOGNIZE without PATTERN")
    read = RowPattern(text, opening)
    looked_for = _defined(text, node, read, event)
    if read.end in text.within_ms:
        looked_for = looked_for.within(text.within_ms[read.end])
    looked_for = dataclasses.replace(looked_for, skip=_skip(text, node, read.variables))
    select, result = _measures(text, node, read.variables, event, partition)
    with text.at(node):
        found = timed.match(looked_for, select=select, value=serde_of_type(result), unbounded=unbounded)
    return found.matches


def _over_event(of: Expression) -> Expression:
    """The expression over a row, rewritten over the event that holds the row."""
    return rebuild(of, lambda e: _EVENT if isinstance(e, Input) and e.which == "value" else None)


def _partition(names: Names, node: exp.MatchRecognize) -> dict[str, Expression]:
    """The columns of the partition."""
    found: dict[str, Expression] = {}
    for column in node.args.get("partition_by") or ():
        made = Scalars(names).condition(column)
        if not isinstance(made, Field):
            raise names.text.error(
                column, f"PARTITION BY columns of the value, not {column.sql()}; select it in a subquery first"
            )
        found[made.name] = made
    return found


def _check_order(text: Text, node: exp.MatchRecognize) -> None:
    order = node.args.get("order")
    columns = [] if order is None else order.expressions
    if len(columns) != 1 or columns[0].args.get("desc") or columns[0].this.name.lower() != ROWTIME:
        raise text.error(order or node, f"ORDER BY {ROWTIME} only: patterns follow event time")


def _skip(text: Text, node: exp.MatchRecognize, variables: list[str]) -> Skip:
    words = str(node.args.get("after") or "AFTER MATCH SKIP PAST LAST ROW").split()[3:]
    if words == ["PAST", "LAST", "ROW"]:
        return skip_past_last_event()
    if words == ["TO", "NEXT", "ROW"]:
        return skip_to_next()
    if len(words) < 3 or words[2] not in variables:
        raise text.error(node, f"AFTER MATCH SKIP {' '.join(words)}: name one of {', '.join(variables)}")
    to = skip_to_first if words[1] == "FIRST" else skip_to_last
    return to(words[2]).error_on_miss()


def _defined(text: Text, node: exp.MatchRecognize, read: RowPattern, event: DataType) -> Pattern:
    """The pattern with the conditions of ``DEFINE``; a variable without a condition takes any row."""
    conditions: dict[str, Callable[[Any, MatchContext], Any]] = {}
    for definition in node.args.get("define") or ():
        name = definition.alias
        if name not in read.variables:
            raise text.error(
                definition, f"{name} is not in the pattern; its variables are: {', '.join(read.variables)}"
            )
        if not _is_true(definition.this):
            conditions[name] = _condition(text, definition.this, event, read.variables, name)
    read.check_conditions(set(conditions))
    return _with_conditions(read.pattern, conditions)


def _is_true(node: Any) -> bool:
    return isinstance(node, exp.Boolean) and bool(node.this)


def _with_conditions(of: Pattern, conditions: dict[str, Any]) -> Pattern:
    stages = []
    for stage in of.stages:
        if stage.group is not None:
            stage = dataclasses.replace(stage, group=_with_conditions(stage.group, conditions))
        elif stage.name in conditions:
            stage = dataclasses.replace(stage, condition=user_condition(conditions[stage.name], stage.label))
        stages.append(stage)
    return dataclasses.replace(of, stages=tuple(stages))


def _condition(
    text: Text, node: Any, event: DataType, variables: list[str], current: str
) -> Callable[[Any, MatchContext], Any]:
    scalars = _VariableScalars(text, event, variables, current)
    made = scalars.convert(node)
    with text.at(node):
        row = generated_row(made, scalars.scope, condition=True)
    looks = scalars.looks

    def condition(event: Any, ctx: MatchContext) -> Any:
        found = {}
        for look in looks:
            events = ctx.events(look.variable)
            found[look.name] = look.of([*events, event] if look.variable == current else events)
        return row(None, {"event": event, "looks": found}, 0, ()) is True

    return condition


def _measures(
    text: Text, node: exp.MatchRecognize, variables: list[str], event: DataType, partition: dict[str, Expression]
) -> tuple[Callable[[RowEvents], dict[str, Any]], DataType]:
    """The value of a match: the columns of the partition, and the measures."""
    scalars = _VariableScalars(text, event, variables, None)
    columns = {n: _over_event(e) for n, e in partition.items()}
    for measure in node.args.get("measures") or ():
        named = measure.this
        if not isinstance(named, exp.Alias):
            raise text.error(measure, f"{named.sql()} needs a name: AS …")
        if measure.args.get("window_frame") == "RUNNING":
            raise text.error(measure, "RUNNING is not supported; a match has one row")
        if named.alias in columns:
            raise text.error(measure, f"two columns are named {named.alias}")
        columns[named.alias] = scalars.convert(named.this)
        scalars.check(named.this, columns[named.alias])
    if not columns:
        raise text.error(node, "MATCH_RECOGNIZE gives no columns; name some in MEASURES")
    whole = StructOf(tuple(columns.items()))
    with text.at(node):
        row, result = generated_row(whole, scalars.scope), infer(whole, scalars.scope)
    looks = scalars.looks

    def select(events: RowEvents) -> dict[str, Any]:
        first = next(event for taken in events.values() for event in taken)
        found = {look.name: look.of(events.get(look.variable, [])) for look in looks}
        made: dict[str, Any] = row(None, {"event": first, "looks": found}, 0, ())
        return made

    return select, result
