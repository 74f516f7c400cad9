"""Joiners that create a struct: fields of the record alone are columns of the batch, those of the row alone are computed
once per row, and those of both are computed of the fields of each that they read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from penstock.topologies.columnar.json_writing import DictOf
from penstock.topologies.expressions.inference import ExpressionScope, Inference
from penstock.topologies.expressions.leaves import leaves_of
from penstock.topologies.expressions.row_function import ExpressionFunction, OfSides
from penstock.topologies.expressions.tree import Alias, Expression, Field, Input, StructOf, rebuild, walk
from penstock.topologies.expressions.types import UNKNOWN, DataType, struct_of
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.columns import Column, StructColumn
from penstock.topologies.operators.columnar.join import Met, PerKey
from penstock.topologies.operators.columnar.stateless import builder, why_not_built

MakeRows = Callable[[list[Any]], list[Any]]
_OF_ROW = "row's "
"""Before the name of a row's field where it stands among the fields of both sides."""


@dataclasses.dataclass(frozen=True)
class Sides:
    """The fields of a joiner, in their order. ``left``: as expressions of a record's value; ``right``: as they are, with the
    fields of rows that those of both sides read; ``both``: as expressions of a value that has the fields of both, of type
    ``pairs``. ``python``: the class that they make."""

    order: tuple[str, ...]
    left: dict[str, Expression]
    right: dict[str, Expression]
    both: dict[str, Expression]
    scope: ExpressionScope
    pairs: DataType
    read: frozenset[str]
    """The fields of the left value that are read."""
    python: type | None


def sides_of(joiner: Any) -> Sides | None:
    """The sides of a joiner; ``None`` where it is none of these."""
    if not isinstance(joiner, ExpressionFunction):
        return None
    e = joiner.expression
    while isinstance(e, Alias):
        e = e.of
    if not isinstance(e, StructOf) or e.of is not None:
        return None
    types = Inference(joiner.scope)
    if e.python is not None and why_not_built(e.python, {n: types.of(field) for n, field in e.fields}) is not None:
        return None
    found = _FieldsBySide(joiner.scope)
    if not all(found.take(name, field) for name, field in e.fields) or not (found.left or found.both):
        return None
    scope = dataclasses.replace(joiner.scope, right=None, record=False, keyed=False)
    names = tuple(n for n, _ in e.fields)
    pairs = struct_of(found.types)
    return Sides(names, found.left, found.right, found.both, scope, pairs, frozenset(found.read), e.python)


class _FieldsBySide:
    """Sorts fields by the sides that they read."""

    def __init__(self, scope: ExpressionScope) -> None:
        self._scope = scope
        self.left: dict[str, Expression] = {}
        self.right: dict[str, Expression] = {}
        self.both: dict[str, Expression] = {}
        self.types: dict[str, DataType] = {}
        """Types of what fields of both sides read."""
        self.read: set[str] = set()

    def take(self, name: str, field: Expression) -> bool:
        """Take a field. ``False``: it reads something else than fields of either side."""
        inputs = {n.which for n in walk(field) if isinstance(n, Input)}
        if inputs <= {"right"}:
            self.right[name] = field
            return True
        if inputs == {"left"}:
            self.left[name] = rebuild(field, lambda n: Input("value") if isinstance(n, Input) else None)
            leaves = leaves_of(self.left[name])
            self.read |= {of for _, of in leaves if isinstance(of, str)}
            return all(isinstance(of, str) for _, of in leaves)
        if inputs != {"left", "right"}:
            return False
        made = rebuild(field, self._of_pair)
        self.both[name] = made
        return {n.which for n in walk(made) if isinstance(n, Input)} == {"value"}

    def _of_pair(self, node: Expression) -> Expression | None:
        """A field of either side, as one of a value with the fields of both."""
        if not isinstance(node, Field) or not isinstance(node.of, Input):
            return None
        right = node.of.which == "right"
        side = self._scope.right if right else self._scope.value
        if side is None:
            return None
        tp = UNKNOWN if side.kind == "unknown" else side.field(node.name)
        if tp is None:
            return None
        tp = tp.or_null(side.nullable)
        name = f"{_OF_ROW}{node.name}" if right else node.name
        self.types[name] = tp
        if right:
            self.right[name] = node
        else:
            self.read.add(node.name)
        return Field(Input("value"), name)


class JoinedFields:
    """The running form. ``rows``: of entries. ``immutable``: rows cannot be changed in place, so that many records may have
    the same one."""

    def __init__(
        self, sides: Sides, joiner: ExpressionFunction, rows: MakeRows, *, left: bool, immutable: bool
    ) -> None:
        types = Inference(sides.scope)
        for field in sides.left.values():
            types.of(field)
        self._order = sides.order
        self._build = builder(list(sides.order), sides.python)
        self.whole_rows = not sides.both and all(isinstance(e, Input) for e in sides.right.values())
        """Whether rows are only passed on, as they are."""
        self._left = {n: Vectors(e, sides.scope) for n, e in sides.left.items()}
        self._right = {
            n: PerKey(OfSides(e, joiner.scope), rows, left=left, shared=immutable and _is_part(e))
            for n, e in sides.right.items()
        }
        of_pairs = dataclasses.replace(sides.scope, value=sides.pairs)
        self._both = {n: Vectors(e, of_pairs) for n, e in sides.both.items()}
        fields = {
            f.name for e in sides.both.values() for f in walk(e) if isinstance(f, Field) and isinstance(f.of, Input)
        }
        self._pair = DictOf(sorted(fields))
        self._of_records = {
            n: Vectors(Field(Input("value"), n), sides.scope) for n in fields if not n.startswith(_OF_ROW)
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
        pairs = self._pairs(batch, right) if self._both else batch
        if pairs is None:
            return None
        made: dict[str, Column] = {}
        for name in self._order:
            if name in self._both:
                column = self._both[name].column(pairs)
            else:
                column = self._left[name].column(batch) if name in self._left else right(name)
            if column is None:
                return None
            made[name] = column
        return batch.replace(values=StructColumn(made, self._build))

    def _pairs(self, batch: Batch, right: Callable[[str], Column | None]) -> Batch | None:
        """The records with the fields of both sides as values."""
        fields: dict[str, Column] = {}
        for name in self._pair.names:
            column = self._of_records[name].column(batch) if name in self._of_records else right(name)
            if column is None:
                return None
            fields[name] = column
        return batch.replace(values=StructColumn(fields, self._pair))


def _is_part(e: Expression) -> bool:
    """Whether the expression gives its input, or a field of it, as it is."""
    return isinstance(e, Input) or (isinstance(e, (Field, Alias)) and _is_part(e.of))
