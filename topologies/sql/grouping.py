"""``GROUP BY``: keys, windows, and the expressions that a select list may have over groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from penstock.state.errors import TopologyError
from penstock.state.log import Windowed
from penstock.topologies.aggregators.expression_aggregates import aggregate_type
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.expressions.inference import ExpressionScope, infer
from penstock.topologies.expressions.text import default_name
from penstock.topologies.expressions.tree import AggregateExpression, Expression, Field, Input, StructOf, literal
from penstock.topologies.expressions.types import TIMESTAMP, struct_of
from penstock.topologies.sql.names import ROWTIME, Names
from penstock.topologies.sql.parsing import SESSION, Text, interval_ms
from penstock.topologies.sql.scalars import Scalars, is_aggregate
from penstock.topologies.windows import SessionWindows, Windows, hopping, session, tumbling
from penstock.topologies.windows.durations import Duration

_WINDOWS = {"TUMBLE": 1, "HOP": 2, "SESSION": 1}
"""The number of durations that each window function takes."""
_BOUNDS = {"START": "start_ms", "END": "end_ms"}


@dataclasses.dataclass(frozen=True)
class GroupBy:
    """The columns of a ``GROUP BY``, under their names in the key, and its window."""

    columns: tuple[tuple[str, Expression], ...]
    windows: Windows | None

    def key_column(self, name: str) -> Expression:
        """The path of a column in the key of the aggregated rows."""
        key: Expression = Input("key")
        return Field(Field(key, "key") if self.windows is not None else key, name)


def group_of(names: Names, node: exp.Group, grace: Duration) -> GroupBy:
    """Read a ``GROUP BY``. Raises ``TopologyError``."""
    text, scalars = names.text, Scalars(names)
    text.only(node, "expressions")
    windows: Windows | None = None
    columns: dict[str, Expression] = {}
    for part in node.expressions:
        if isinstance(part, exp.Anonymous) and _window_name(part) in _WINDOWS:
            if windows is not None:
                raise text.error(part, "there is already a window; group by one")
            windows = _windows(text, part, grace)
            continue
        made = scalars.convert(part)
        scalars.check(part, made)
        if not any(made.same_as(known) for known in columns.values()):
            columns[_free_name(part, made, columns)] = made
    return GroupBy(tuple(columns.items()), windows)


def _free_name(node: Any, made: Expression, taken: dict[str, Expression]) -> str:
    """The name of a column in the key: its own, or its text if another input's column has the same name."""
    name = default_name(made) if default_name(made) not in taken else node.sql()
    while name in taken:
        name += "_"
    return name


def _window_name(node: exp.Anonymous) -> str:
    name = node.name.upper()
    return "SESSION" if name == SESSION else name


def _windows(text: Text, node: exp.Anonymous, grace: Duration) -> Windows:
    kind = _window_name(node)
    if len(node.expressions) != _WINDOWS[kind] + 1:
        shown = {"TUMBLE": "rowtime, size", "HOP": "rowtime, slide, size", "SESSION": "rowtime, gap"}[kind]
        raise text.error(node, f"{kind} takes ({shown})")
    _check_rowtime(text, node.expressions[0])
    durations = [interval_ms(text, d) for d in node.expressions[1:]]
    with text.at(node):
        if kind == "TUMBLE":
            return tumbling(durations[0], grace=grace)
        if kind == "HOP":
            return hopping(durations[1], durations[0], grace=grace)
        return session(durations[0], grace=grace, bounds="gap")


def _check_rowtime(text: Text, node: Any) -> None:
    if not isinstance(node, exp.Column) or node.name.lower() != ROWTIME:
        raise text.error(
            node,
            f"windows use {ROWTIME}, the record's event time; to use a column, make it the event time at the "
            "source: stream(topic, timestamp=…)",
        )


class GroupedScalars(Scalars):
    """The expressions that are allowed over groups: their columns, their windows' bounds, aggregates, and expressions
    over these. An aggregate's result is read from the column ``placed`` for it."""

    def __init__(self, names: Names, group: GroupBy) -> None:
        super().__init__(names)
        self._rows = Scalars(names)
        self._group = group
        self.parts: dict[str, AggregateExpression] = {}

    def convert(self, node: Any) -> Expression:
        """The expression over the aggregated row."""
        if is_aggregate(node):
            with self.text.at(node):
                return self._place(self._rows.aggregate(node))
        bound = self._bound(node)
        if bound is not None:
            return bound
        column = self._column(node)
        if column is not None:
            return column
        if isinstance(node, exp.Column):
            raise self.text.error(node, f"{node.sql()} is neither grouped by nor in an aggregate")
        return super().convert(node)

    @property
    def scope(self) -> ExpressionScope:
        """The aggregates' results under the group's key."""
        rows = self.names.scope
        columns = struct_of({n: infer(e, rows) for n, e in self._group.columns})
        windowed = struct_of({"key": columns, "start_ms": TIMESTAMP, "end_ms": TIMESTAMP}, Windowed)
        value = struct_of({n: aggregate_type(a, rows) for n, a in self.parts.items()})
        return ExpressionScope(value, columns if self._group.windows is None else windowed, record=False)

    def _place(self, aggregate: AggregateExpression) -> Expression:
        for name, known in self.parts.items():
            if known.same_as(aggregate):
                return Field(Input("value"), name)
        name = f"part{len(self.parts) + 1}"
        self.parts[name] = aggregate
        return Field(Input("value"), name)

    def _bound(self, node: Any) -> Expression | None:
        """The start or end of the window."""
        name = ""
        if isinstance(node, exp.Anonymous) or (isinstance(node, exp.Column) and len(node.parts) == 1):
            name = node.name.upper()
        kind, _, which = name.rpartition("_")
        if which not in _BOUNDS or kind not in ("WINDOW", *_WINDOWS):
            return None
        if self._group.windows is None:
            raise self.text.error(node, f"{node.sql()} without a window; group by TUMBLE, HOP or SESSION")
        return Field(Input("key"), _BOUNDS[which])

    def _column(self, node: Any) -> Expression | None:
        """The group's column that a node names."""
        if isinstance(node, exp.Literal) or any(is_aggregate(n) for n in node.walk()):
            return None
        try:
            made = self._rows.convert(node)
        except TopologyError:
            return None
        return next((self._group.key_column(n) for n, e in self._group.columns if e.same_as(made)), None)


def aggregated(
    stream: KStream, group: GroupBy, parts: dict[str, AggregateExpression], text: Text, node: Any
) -> tuple[KStream | KTable, Callable[..., KStream | KTable]]:
    """The aggregated rows and how to build their columns. With windows: a stream of those that close; else a table."""
    with text.at(node):
        fields = group.columns or (("all", literal("all")),)
        grouped = stream.group_by(StructOf(fields))
        # a group without aggregates is a list of the distinct keys
        made: dict[str, Any] = dict(parts) or {"part1": AggregateExpression("count", None)}
        if group.windows is None:
            table = grouped.agg(**made)
            return table, table.map_values_with_key
        # a session that was emitted is final: kept no longer, it takes no further records
        kept_ms = group.windows.gap_ms + group.windows.grace_ms if isinstance(group.windows, SessionWindows) else None
        closed = grouped.windowed_by(group.windows, retention=kept_ms).agg(**made, emission="on_close").to_stream()
        return closed, closed.map_values_with_key
