"""Required columns and input modes: what operators need of their input records, and whether they take rows or columns.

A planner asks backwards, from the sinks to the sources (``penstock.topologies.graph.column_plan``): given what is
required of its output, each operator says what it requires of an in port. So a source learns which fields of a value
are read at all. Then the planner asks forwards in which layout records arrive: an operator that gets lists works row by
row, even if it supports columns.

Timestamps, order and headers are always there. Other columns are not built in advance, but stay available: requirements
decide what a batch costs, never what is in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TypeAlias

FieldPath: TypeAlias = str | tuple[str, ...]
"""A field of a value, by its name, or a field of an object within the value, by its path."""


def path_of(field: FieldPath) -> tuple[str, ...]:
    """The field as a path. Paths can be sorted."""
    return (field,) if isinstance(field, str) else field


def field_at(path: tuple[str, ...]) -> FieldPath:
    """The field of a path: by its name where it is one of the value."""
    return path[0] if len(path) == 1 else path


@dataclasses.dataclass(frozen=True)
class RequiredColumns:
    """The requirements on the records of an edge. ``key``: their keys. ``fields``: these fields of their values, or of
    objects within them, as columns; of an object that is named itself, whether it is there, and its value on demand.
    ``value``: the values themselves, of some of the records or all; ``listed``: of all of them, as Python objects, at
    once. Whether a value is null is always known."""

    key: bool = False
    fields: frozenset[FieldPath] = frozenset()
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
        """The requirements if fewer records follow: nothing has to be built for all of them at once."""
        return dataclasses.replace(self, listed=False)


NO_COLUMNS = RequiredColumns()
ALL_AS_ROWS = RequiredColumns(key=True, value=True, listed=True)
"""Everything, as lists."""


def union_of(needs: Iterable[RequiredColumns]) -> RequiredColumns:
    """The union of the requirements."""
    out = NO_COLUMNS
    for one in needs:
        out |= one
    return out


@dataclasses.dataclass(frozen=True)
class EdgeLayout:
    """The layout of an edge's records in batches that are large enough: ``keys`` and ``values`` as columns, else as
    lists. ``texts``: the column of values still holds the log's bytes. ``fields``: it has columns only for these
    fields; ``None``: for all. ``olds``: old values, if there are any, are a column, too."""

    keys: bool = False
    values: bool = False
    texts: bool = False
    fields: frozenset[FieldPath] | None = None
    olds: bool = False

    def __and__(self, other: EdgeLayout) -> EdgeLayout:
        fields = self.fields if other.fields is None else other.fields
        if self.fields is not None and other.fields is not None:
            fields = self.fields & other.fields
        return EdgeLayout(
            self.keys and other.keys,
            self.values and other.values,
            self.texts and other.texts,
            fields,
            self.olds and other.olds,
        )


ROW_LAYOUT = EdgeLayout()
COLUMN_LAYOUT = EdgeLayout(keys=True, values=True, texts=True, olds=True)


@dataclasses.dataclass(frozen=True)
class InputMode:
    """How an operator takes the records of an in port. ``rows``: the reason for taking them one by one, as text;
    ``None``: it takes columns (from a batch that has them and is large enough)."""

    needs: RequiredColumns
    rows: str | None = None
