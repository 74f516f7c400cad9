"""What operators need of the records that they are given, and how they take them: by rows or by columns.

A planner asks backwards, from the sinks to the sources (``penstock.topologies.graph.column_plan``): each operator says
what it needs of an in port when so much is needed of what leaves it. So a source learns which fields of a value
anybody reads. Then it asks forwards in which form records come: who is given lists works row by row, whatever it could
have done.

Timestamps, order and headers are always there. What is not needed is not made in advance, but stays to be had: needs decide
what a batch costs, never what is in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class RequiredColumns:
    """What is needed of the records of an edge. ``key``: their keys. ``fields``: these fields of their values, as columns.
    ``value``: the values themselves, of some of the records or all; ``listed``: of all of them, as Python objects, at once.
    Whether a value is null is always known."""

    key: bool = False
    fields: frozenset[str] = frozenset()
    value: bool = False
    listed: bool = False

    def __or__(self, other: RequiredColumns) -> RequiredColumns:
        return RequiredColumns(
            self.key or other.key,
            self.fields | other.fields,
            self.value or other.value,
            self.listed or other.listed,
        )

    def later(self) -> RequiredColumns:
        """The same of fewer records: nothing needs to be made of all of them at once."""
        return dataclasses.replace(self, listed=False)


NO_COLUMNS = RequiredColumns()
ALL_AS_ROWS = RequiredColumns(key=True, value=True, listed=True)
"""Everything, as lists."""


def union_of(needs: Iterable[RequiredColumns]) -> RequiredColumns:
    """What any of them says."""
    out = NO_COLUMNS
    for one in needs:
        out |= one
    return out


@dataclasses.dataclass(frozen=True)
class EdgeLayout:
    """How the records of an edge come, in batches that are large enough: ``keys`` and ``values`` as columns, else as lists.
    ``texts``: the column of values still has the log's bytes. ``fields``: it has no other columns of fields than these;
    ``None``: it has those of all."""

    keys: bool = False
    values: bool = False
    texts: bool = False
    fields: frozenset[str] | None = None

    def __and__(self, other: EdgeLayout) -> EdgeLayout:
        fields = self.fields if other.fields is None else other.fields
        if self.fields is not None and other.fields is not None:
            fields = self.fields & other.fields
        return EdgeLayout(self.keys and other.keys, self.values and other.values, self.texts and other.texts, fields)


ROW_LAYOUT = EdgeLayout()
COLUMN_LAYOUT = EdgeLayout(keys=True, values=True, texts=True)


@dataclasses.dataclass(frozen=True)
class InputMode:
    """How an operator takes the records of an in port. ``rows``: why it takes them one by one, in plain words; ``None``:
    it takes them as columns (of a batch that has them and is large enough)."""

    needs: RequiredColumns
    rows: str | None = None
