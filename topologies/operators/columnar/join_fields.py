"""Joiners that create a struct whose fields each come from one side: left fields are columns of the records, right
ones are computed once per row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from penstock.topologies.columnar.json_writing import DictOf
from penstock.topologies.expressions.inference import ExpressionScope, Inference
from penstock.topologies.expressions.leaves import leaves_of
from penstock.topologies.expressions.row_function import ExpressionFunction, OfSides
from penstock.topologies.expressions.tree import Alias, Expression, Field, Input, StructOf, rebuild, walk
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.columns import Column, StructColumn
from penstock.topologies.operators.columnar.join import Met, PerKey

MakeRows = Callable[[list[Any]], list[Any]]


@dataclasses.dataclass(frozen=True)
class Sides:
    """The fields of a joiner, in their order. ``left``: as expressions of a record's value; ``right``: as they are."""

    order: tuple[str, ...]
    left: dict[str, Expression]
    right: dict[str, Expression]
    scope: ExpressionScope
    read: frozenset[str]
    """The fields of the left value that are read."""


def sides_of(joiner: Any) -> Sides | None:
    """The sides of a joiner; ``None`` where it is none of these."""
    if not isinstance(joiner, ExpressionFunction):
        return None
    e = joiner.expression
    while isinstance(e, Alias):
        e = e.of
    if not isinstance(e, StructOf) or e.python is not None or e.of is not None:
        return None
    left: dict[str, Expression] = {}
    right: dict[str, Expression] = {}
    read: set[str] = set()
    for name, field in e.fields:
        inputs = {n.which for n in walk(field) if isinstance(n, Input)}
        if inputs <= {"right"}:
            right[name] = field
        elif inputs == {"left"}:
            left[name] = rebuild(field, lambda n: Input("value") if isinstance(n, Input) else None)
            leaves = leaves_of(left[name])
            if any(not isinstance(of, str) for _, of in leaves):
                return None
            read |= {of for _, of in leaves if isinstance(of, str)}
        else:
            return None
    if not left:
        return None
    scope = dataclasses.replace(joiner.scope, right=None, record=False, keyed=False)
    return Sides(tuple(n for n, _ in e.fields), left, right, scope, frozenset(read))


class JoinedFields:
    """The running form. ``rows``: of entries. ``immutable``: rows cannot be changed in place, so that many records may have
    the same one."""

    def __init__(
        self, sides: Sides, joiner: ExpressionFunction, rows: MakeRows, *, left: bool, immutable: bool
    ) -> None:
        types = Inference(sides.scope)
        for field in sides.left.values():
            types.of(field)
        self._build = DictOf(sides.order)
        self.whole_rows = all(isinstance(e, Input) for e in sides.right.values())
        """Whether rows are only passed on, as they are."""
        self._left = {n: Vectors(e, sides.scope) for n, e in sides.left.items()}
        self._right = {
            n: PerKey(OfSides(e, joiner.scope), rows, left=left, shared=immutable and _is_part(e))
            for n, e in sides.right.items()
        }

    def joined(self, met: Met) -> Batch | None:
        """The records with what the joiner makes of them and their rows; ``None``: row by row."""
        return self._made(met.batch, lambda name: self._right[name].column(met))

    def with_rows(self, batch: Batch, rows: Column) -> Batch | None:
        """The results for records and the rows that they have met, where ``whole_rows``."""
        return self._made(batch, lambda name: rows)

    def with_columns(self, batch: Batch, right: Mapping[str, Column]) -> Batch | None:
        """The results for records and what the joiner makes of the rows that they have met."""
        return self._made(batch, right.__getitem__)

    def _made(self, batch: Batch, right: Callable[[str], Column | None]) -> Batch | None:
        made: dict[str, Column] = {}
        for name in self._build.names:
            column = self._left[name].column(batch) if name in self._left else right(name)
            if column is None:
                return None
            made[name] = column
        return batch.replace(values=StructColumn(made, self._build))


def _is_part(e: Expression) -> bool:
    """Whether the expression gives its input, or a field of it, as it is."""
    return isinstance(e, Input) or (isinstance(e, (Field, Alias)) and _is_part(e.of))
