"""Statements as operators: one ``SELECT`` after the other, the innermost first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.dsl.typed import scope_of_flow
from penstock.topologies.expressions.text import default_name
from penstock.topologies.expressions.tree import Expression, StructOf
from penstock.topologies.sql.grouping import GroupedScalars, aggregated, group_of
from penstock.topologies.sql.joins import StreamOrTable, joined
from penstock.topologies.sql.matching import matched
from penstock.topologies.sql.names import Names, single
from penstock.topologies.sql.parsing import Text
from penstock.topologies.sql.scalars import Scalars, is_aggregate
from penstock.topologies.windows.durations import Duration


@dataclasses.dataclass(frozen=True)
class Statement:
    """One text over its inputs. ``grace``: how long windows and joins wait for late records. ``unbounded``: let
    patterns wait forever."""

    text: Text
    inputs: Mapping[str, StreamOrTable]
    grace: Duration
    unbounded: bool

    def rows(self, select: exp.Select) -> StreamOrTable:
        """The rows of a SELECT."""
        self.text.only(select, "expressions", "from_", "joins", "where", "group", "having", "match")
        rows, names = self._from(select)
        where = select.args.get("where")
        if where is not None:
            with self.text.at(where):
                rows = rows.filter(Scalars(names).condition(where.this))
        group = select.args.get("group")
        if group is not None or any(is_aggregate(n) for e in select.expressions for n in e.walk(prune=_is_select)):
            return self._grouped(rows, names, select)
        if select.args.get("having") is not None:
            raise self.text.error(select.args["having"], "HAVING without GROUP BY; use WHERE")
        columns = self._columns(Scalars(names), select, names)
        if columns is None:
            return rows
        with self.text.at(select):
            return (
                rows.map_values_with_key(StructOf(tuple(columns.items())))
                if isinstance(rows, KTable)
                else rows.select(*(e.alias(n) for n, e in columns.items()))
            )

    def _from(self, select: exp.Select) -> tuple[StreamOrTable, Names]:
        source = select.args.get("from_")
        if source is None:
            raise self.text.error(select, "SELECT without FROM; name an input")
        alias, rows = self._input(source.this)
        match = select.args.get("match")
        if match is not None:
            if not isinstance(rows, KStream):
                raise self.text.error(match, f"{alias} is a table; patterns need a stream")
            name = match.args["alias"].name if match.args.get("alias") is not None else alias
            rows = matched(self.text, rows, alias, match, unbounded=self.unbounded)
            return rows, single(self.text, name, scope_of_flow(rows._flow))
        names = single(self.text, alias, scope_of_flow(rows._flow))
        for join in select.args.get("joins") or ():
            other_alias, other = self._input(join.this)
            rows, names = joined(names, rows, join, other_alias, other, self.grace)
        return rows, names

    def _input(self, node: Any) -> tuple[str, StreamOrTable]:
        """An input or a subquery, and its alias."""
        alias = node.args.get("alias")
        if alias is not None:
            self.text.only(alias, "this")
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
            self.text.only(node, "this", "alias")
            if alias is None:
                raise self.text.error(node, "a subquery needs a name: (SELECT …) AS name")
            return alias.name, self.rows(node.this)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.text.error(
                node, "FROM takes an input, a subquery or a join; window functions belong in GROUP BY"
            )
        self.text.only(node, "this", "alias")
        name = node.this.name
        found = self.inputs.get(name)
        if found is None:
            raise self.text.error(
                node,
                f"no input is named {name}; give it: sql(…, {name}=stream), inputs are: {', '.join(self.inputs) or 'none'}",
            )
        return (name if alias is None else alias.name), found

    def _columns(self, scalars: Scalars, select: exp.Select, names: Names) -> dict[str, Expression] | None:
        """The select list by name; ``None`` for a lone ``*``."""
        items = select.expressions
        if len(items) == 1 and isinstance(items[0], exp.Star) and len(names.sources) == 1:
            self.text.only(items[0])
            return None
        columns: dict[str, Expression] = {}
        for item in items:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                self.text.only(star)
                found = names.columns(item, item.table or None if isinstance(item, exp.Column) else None)
            else:
                of = item.this if isinstance(item, exp.Alias) else item
                made = scalars.convert(of)
                scalars.check(of, made)
                named = item.alias if isinstance(item, exp.Alias) else _name(of, made)
                found = {named: made}
            for name, expression in found.items():
                if name in columns:
                    raise self.text.error(item, f"two columns are named {name}; give one another name: AS …")
                columns[name] = expression
        return columns

    def _grouped(self, rows: StreamOrTable, names: Names, select: exp.Select) -> StreamOrTable:
        if not isinstance(rows, KStream):
            raise self.text.error(
                select.args.get("group") or select,
                "rows of a table cannot be aggregated here; use its group_by in Python",
            )
        node = select.args.get("group") or exp.Group(expressions=[])
        group = group_of(names, node, self.grace)
        scalars = GroupedScalars(names, group)
        columns = self._columns(scalars, select, names)
        if columns is None:
            raise self.text.error(
                select.expressions[0], "* is not available with GROUP BY; name the columns and aggregates"
            )
        having = select.args.get("having")
        keeps = None if having is None else scalars.convert(having.this)
        result, columns_of = aggregated(rows, group, scalars.parts, self.text, select.args.get("group") or select)
        if keeps is not None:
            with self.text.at(having):
                result = result.filter(keeps)
            columns_of = result.map_values_with_key
        with self.text.at(select):
            return columns_of(StructOf(tuple(columns.items())))


def _is_select(node: Any) -> bool:
    return isinstance(node, exp.Select)


def _name(node: Any, made: Expression) -> str:
    """The name of a column that has no alias."""
    return (
        node.name
        if isinstance(node, exp.Column)
        else default_name(made)
        if not is_aggregate(node)
        else node.sql().lower()
    )


def sql(text: str, inputs: Mapping[str, Any], *, grace: Duration = 0, unbounded: bool = False) -> StreamOrTable:
    """See ``StreamsBuilder.sql``."""
    wrong = [n for n, i in inputs.items() if not isinstance(i, (KStream, KTable))]
    if wrong:
        raise TopologyError(f"SQL: the input {wrong[0]!r} is {inputs[wrong[0]]!r:.60}; give a KStream or a KTable")
    parsed = Text(text)
    return Statement(parsed, inputs, grace, unbounded).rows(parsed.select)
