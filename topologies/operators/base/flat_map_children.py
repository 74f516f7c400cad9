"""Child records of a flat map: the parents' times and order are spread over them as arrays, and keys only on use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np

from penstock.topologies.columnar.column_parts import FEWEST
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Column, Ints, Places


class ChildRecords(ColumnBatch):
    """A batch of lists with times and order as arrays. ``parents`` are the keys of the parent records, ``sizes`` the
    number of children of each."""

    __slots__ = ("_parents", "_sizes")

    def __init__(
        self, parents: list[Any], sizes: Places, values: list[Any], times: Ints, orders: Ints, headers: Any
    ) -> None:
        super().__init__([], values, times, orders, headers)
        self._keys = None
        self._parents = parents
        self._sizes = sizes

    @property
    def keys(self) -> list[Any]:  # type: ignore[override]  # made at the first time
        """The keys."""
        if self._keys is None:
            self._keys = list(chain.from_iterable(map(repeat, self._parents, self._sizes.tolist())))
        return self._keys

    def replace(self, *, keys: list[Any] | Column | None = None, values: list[Any] | Column | None = None) -> Batch:
        """These children with other keys or values."""
        if isinstance(keys, Column) or isinstance(values, Column):
            return super().replace(keys=keys, values=values)
        out = ChildRecords(
            self._parents, self._sizes, self.values if values is None else values, self.times, self.orders, self.headers
        )
        out._keys = self._keys if keys is None else keys
        return out


def children_of(batch: Batch, several: Sequence[Sequence[Any]], values: list[Any]) -> Batch:
    """A batch's children: ``several`` holds the children of each record, ``values`` all of them."""
    if len(several) < FEWEST:  # arrays cost more than they save
        return batch.pick([i for i, some in enumerate(several) for _ in some]).replace(values=values)
    sizes = np.fromiter(map(len, several), np.intp, len(several))
    headers = batch.headers
    if headers is not None:
        headers = list(chain.from_iterable(map(repeat, headers, sizes.tolist())))
    return ChildRecords(
        batch.keys, sizes, values, np.repeat(batch.times, sizes), np.repeat(batch.orders, sizes), headers
    )
