"""What operators need of the records that they are given, and how they take them: by rows or by columns.

A planner asks backwards, from the sinks to the sources (``penstock.topologies.planning``): each operator says what it needs
of an in port when so much is needed of what leaves it. So a source learns which fields of a value anybody reads. Then it
asks forwards in which form records come: who is given lists works row by row, whatever it could have done.

Timestamps, order and headers are always there. What is not needed is not made in advance, but stays to be had: needs decide
what a batch costs, never what is in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Needs:
    """What is needed of the records of an edge. ``key``: their keys. ``fields``: these fields of their values, as columns.
    ``value``: the values themselves, of some of the records or all; ``listed``: of all of them, as Python objects, at once.
    Whether a value is null is always known."""

    key: bool = False
    fields: frozenset[str] = frozenset()
    value: bool = False
    listed: bool = False

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.key or other.key,
            self.fields | other.fields,
            self.value or other.value,
            self.listed or other.listed,
        )

    def later(self) -> Needs:
        """The same of fewer records: nothing needs to be made of all of them at once."""
        return dataclasses.replace(self, listed=False)


NOTHING = Needs()
ROWS = Needs(key=True, value=True, listed=True)
"""Everything, as lists."""


def together(needs: Iterable[Needs]) -> Needs:
    """What any of them says."""
    out = NOTHING
    for one in needs:
        out |= one
    return out


@dataclasses.dataclass(frozen=True)
class Form:
    """How the records of an edge come, in batches that are large enough: ``keys`` and ``values`` as columns, else as lists.
    ``texts``: the column of values still has the log's bytes. ``fields``: it has no other columns of fields than these;
    ``None``: it has those of all."""

    keys: bool = False
    values: bool = False
    texts: bool = False
    fields: frozenset[str] | None = None

    def __and__(self, other: Form) -> Form:
        fields = self.fields if other.fields is None else other.fields
        if self.fields is not None and other.fields is not None:
            fields = self.fields & other.fields
        return Form(self.keys and other.keys, self.values and other.values, self.texts and other.texts, fields)


LISTS = Form()
COLUMNS = Form(keys=True, values=True, texts=True)


@dataclasses.dataclass(frozen=True)
class Way:
    """How an operator takes the records of an in port. ``rows``: why it takes them one by one, in plain words; ``None``:
    it takes them as columns (of a batch that has them and is large enough)."""

    needs: Needs
    rows: str | None = None
