"""``JOIN``: a stream with a table on its key, or with a stream on equal columns within a bound on time.

A joined record's value is a dict from alias to each side's value.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlglot import exp

from penstock.state.serdes.serde import JSON, finite
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.dsl.typed import scope_of_flow
from penstock.topologies.expressions.inference import infer
from penstock.topologies.expressions.tree import (
    Binary,
    Case,
    Expression,
    Field,
    Input,
    Side,
    StructOf,
    literal,
    rebuild,
)
from penstock.topologies.sql.names import ROWTIME, Names, SqlSource, columns_alone, single
from penstock.topologies.sql.parsing import interval_ms
from penstock.topologies.sql.scalars import Scalars
from penstock.topologies.windows.durations import Duration

StreamOrTable = KStream | KTable


@dataclasses.dataclass
class _On:
    """A join condition split into parts: pairs of equal expressions (of the left and the right record), bounds on
    right time - left time in milliseconds, and the rest."""

    pairs: list[tuple[Expression, Expression]]
    least_ms: int | None = None
    most_ms: int | None = None
    rest: list[Any] = dataclasses.field(default_factory=list)


class _Joining:
    """One join."""

    def __init__(self, left: Names, join: exp.Join, alias: str, other: StreamOrTable) -> None:
        self.text = left.text
        self.join = join
        self.left = left
        self.alias = alias
        self.right = single(left.text, alias, scope_of_flow(other._flow))
        self.both = Names(left.text, {**left.sources, **self.right.sources}, left.scope)

    def side(self, node: Any) -> str | None:
        """The side that an expression's columns belong to: ``left``, ``right`` or ``both``; ``None`` without columns."""
        sides = set()
        for column in node.find_all(exp.Column):
            alias = self.both.alias(column)
            if alias is None:
                raise self.text.error(
                    column, f"whose is {column.sql()}? Say {' or '.join(f'{a}.…' for a in self.both.sources)}"
                )
            sides.add("right" if alias == self.alias else "left")
        return "both" if len(sides) > 1 else next(iter(sides), None)

    def taken_apart(self) -> _On:
        """The condition."""
        on = self.join.args.get("on")
        if on is None:
            raise self.text.error(self.join, "a join needs a condition: JOIN … ON …")
        found = _On([])
        for part in on.flatten() if isinstance(on, exp.And) else [on]:
            part = part.unnest()
            if not self._pair(part, found) and not self._bound(part, found):
                found.rest.append(part)
        if not found.pairs:
            raise self.text.error(
                on, "a join needs an equality between columns of both sides, by which it is partitioned"
            )
        return found

    def _pair(self, part: Any, found: _On) -> bool:
        if not isinstance(part, exp.EQ):
            return False
        sides = {self.side(e): e for e in (part.this, part.expression)}
        if set(sides) != {"left", "right"}:
            return False
        left, right = Scalars(self.left).convert(sides["left"]), Scalars(self.right).convert(sides["right"])
        found.pairs.append((left, right))
        return True

    def _bound(self, part: Any, found: _On) -> bool:
        """Read a bound on the times of both sides."""
        if isinstance(part, exp.Between):
            low, high = self._time(part.args["low"]), self._time(part.args["high"])
            of = self._time(part.this)
            return self._ordered(low, of, 0, found) and self._ordered(of, high, 0, found)
        if isinstance(part, (exp.LT, exp.LTE)):
            return self._ordered(
                self._time(part.this), self._time(part.expression), int(isinstance(part, exp.LT)), found
            )
        if isinstance(part, (exp.GT, exp.GTE)):
            return self._ordered(
                self._time(part.expression), self._time(part.this), int(isinstance(part, exp.GT)), found
            )
        return False

    def _ordered(self, less: Any, more: Any, strict: int, found: _On) -> bool:
        """``less + strict <= more``, each a side and an offset."""
        if less is None or more is None or less[0] == more[0]:
            return False
        distance = less[1] - more[1] + strict
        if less[0] == "left":
            found.least_ms = distance if found.least_ms is None else max(found.least_ms, distance)
        else:
            found.most_ms = -distance if found.most_ms is None else min(found.most_ms, -distance)
        return True

    def _time(self, node: Any) -> tuple[str, int] | None:
        """``alias.rowtime``, plus or minus an interval: the side and the offset."""
        node = node.unnest()
        if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression, exp.Interval):
            inner = self._time(node.this)
            offset = interval_ms(self.text, node.expression)
            return None if inner is None else (inner[0], inner[1] + (offset if isinstance(node, exp.Add) else -offset))
        if isinstance(node, exp.Column) and len(node.parts) == 2 and node.name.lower() == ROWTIME:
            return ("right" if self.both.alias(node) == self.alias else "left"), 0
        return None

    def condition(self, nodes: list[Any]) -> Expression | None:
        """The rest of the condition, over the two sides."""
        made: Expression | None = None
        for node in nodes:
            part = columns_alone(self.text, node, Scalars(self._sides()).convert(node))
            made = part if made is None else Binary("&", made, part)
        return made

    def _sides(self) -> Names:
        left = {a: dataclasses.replace(s, base=_moved(s.base, "left"), key=None) for a, s in self.left.sources.items()}
        right = SqlSource(Input("right"), self.right.scope.value, None)
        return Names(self.text, {**left, self.alias: right}, self.left.scope)

    def joiner(self) -> Any:
        """Both sides, by alias: an expression that joins accept as a function."""
        kept = tuple((a, _moved(s.base, "left")) for a, s in self.left.sources.items())
        return StructOf((*kept, (self.alias, Input("right"))))

    def names(self, rows: KStream, keys: dict[str, Expression | None]) -> Names:
        """The names of the joined inputs."""
        scope = scope_of_flow(rows._flow)
        sources = {}
        for alias in self.both.sources:
            base = Field(Input("value"), alias)
            schema, key = infer(base, scope), keys.get(alias)
            if key is not None and schema.nullable:
                key = Case(((base.is_not_null(), key),), literal(None))  # of a side without a partner
            sources[alias] = SqlSource(base, schema, key)
        return Names(self.text, sources, scope)


def joined(
    names: Names, rows: StreamOrTable, join: exp.Join, alias: str, other: StreamOrTable, grace: Duration
) -> tuple[KStream, Names]:
    """Join what is joined so far with one more input; returns the result and its names. Raises ``TopologyError``."""
    text = names.text
    text.only(join, "this", "on", "side", "kind")
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER"):
        refused = f"{f'{side} {kind}'.strip()} JOIN"
        raise text.error(join, f"{refused} is not supported; use JOIN, LEFT JOIN, RIGHT JOIN or FULL JOIN")
    if not isinstance(rows, KStream):
        raise text.error(join, "the left side of a join is a stream; join tables in Python: table.join(…)")
    if alias in names.sources:
        raise text.error(join, f"two inputs are named {alias}; name one: AS …")
    joining = _Joining(names, join, alias, other)
    on = joining.taken_apart()
    with text.at(join):
        if isinstance(other, KTable):
            return _with_table(joining, on, rows, other, side)
        return _with_stream(joining, on, rows, other, side, grace)


def _with_table(joining: _Joining, on: _On, rows: KStream, table: KTable, side: str) -> tuple[KStream, Names]:
    text = joining.text
    if side in ("RIGHT", "FULL"):
        raise text.error(
            joining.join, f"{side} JOIN with a table is not supported: its rows without a record are never sent"
        )
    if len(on.pairs) != 1 or not on.pairs[0][1].same_as(Input("key")):
        raise text.error(joining.join, f"a table can only be joined on its key: ON … = {joining.alias}.key")
    if on.least_ms is not None or on.most_ms is not None:
        raise text.error(joining.join, "a table is joined as it is now; leave the bounds on time out")
    if on.rest and side:
        raise text.error(on.rest[0], "a LEFT JOIN with a table takes only the equality; filter the table first")
    mine = on.pairs[0][0]
    keyed = rows if mine.same_as(Input("key")) else rows.select_key(mine, key=table.key_serde)
    method = keyed.left_join if side else keyed.join
    result = method(table, joining.joiner())
    keys = _keys(joining, kept=keyed is rows)
    keys[joining.alias] = Input("key")
    names = joining.names(result, keys)
    for node in on.rest:
        result = result.filter(Scalars(names).condition(node))
    return result, names


def _with_stream(
    joining: _Joining, on: _On, rows: KStream, other: KStream, side: str, grace: Duration
) -> tuple[KStream, Names]:
    least, most = on.least_ms, on.most_ms
    if least is None or most is None:
        raise joining.text.error(
            joining.join,
            "two streams need a bound on time from both sides: a.rowtime BETWEEN b.rowtime - INTERVAL '5' "
            "SECOND AND b.rowtime + INTERVAL '5' SECOND",
        )
    if least > most:
        raise joining.text.error(
            joining.join, f"the window is empty: no right record is both {least} ms and {most} ms off the left one"
        )
    left_key, right_key, serde = _equal_keys(joining, on)
    left = rows if left_key.same_as(Input("key")) else rows.select_key(left_key, key=serde)
    right = other if right_key.same_as(Input("key")) else other.select_key(right_key, key=serde)
    methods = {"": left.join, "LEFT": left.left_join, "RIGHT": left.right_join, "FULL": left.outer_join}
    method: Any = methods[side]
    condition: Any = joining.condition(on.rest)
    result = method(right, joining.joiner(), before=-least, after=most, grace=grace, condition=condition)
    keys = _keys(joining, kept=left is rows)
    if right is other:
        keys[joining.alias] = Input("key")
    return result, joining.names(result, keys)


def _equal_keys(joining: _Joining, on: _On) -> tuple[Expression, Expression, Any]:
    """The keys of both sides, and their serde if their types do not determine it."""
    sides = (joining.left, joining.right)
    types = [[infer(p[i], sides[i].scope) for p in on.pairs] for i in (0, 1)]
    for a, b in zip(*types, strict=True):
        if a.kind != b.kind and "unknown" not in (a.kind, b.kind):
            raise joining.text.error(joining.join, f"{a} and {b} cannot be equal keys; cast one of them")
    if len(on.pairs) == 1:
        unknown = "unknown" in (types[0][0].kind, types[1][0].kind)
        return on.pairs[0][0], on.pairs[0][1], finite(JSON) if unknown else None
    return _all_of([p[0] for p in on.pairs]), _all_of([p[1] for p in on.pairs]), None


def _all_of(of: list[Expression]) -> Expression:
    """A struct of the columns; null if one is null, since null equals nothing."""
    whole = StructOf(tuple((f"k{i}", e) for i, e in enumerate(of, 1)))
    present = of[0].is_not_null()
    for e in of[1:]:
        present = present & e.is_not_null()
    return Case(((present, whole),), literal(None))


def _keys(joining: _Joining, *, kept: bool) -> dict[str, Expression | None]:
    return {a: s.key if kept else None for a, s in joining.left.sources.items()}


def _moved(expression: Expression, side: Side) -> Expression:
    """The expression over one side of a join."""

    def replace(node: Expression) -> Expression | None:
        return Input(side) if isinstance(node, Input) and node.which == "value" else None

    return rebuild(expression, replace)
