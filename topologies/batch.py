"""A batch: a run of records in task order, as parallel columns.

``order`` says where each record stands in the task: ``place * stride + slot``, ascending, where ``place`` counts the
input records of the task's batch, ``stride`` is the plan's number of nodes + 1, and ``slot`` is 0 for what an input
record caused and 1 + the node's index for what that node's timers fired right after it. Records caused by the same
input record on one edge share their order and stand in the order in which they were emitted. Because branches that
meet again run record by record (see ``penstock.topologies.plan``), these integers order any two records that an
operator can have to compare: they stand for the full depth-first path at the price of an int.

``olds`` is there on edges that carry upserts with their old value (``None``: no such column).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import compress
from typing import Any

from penstock.state.log import Headers, Record


@dataclasses.dataclass(slots=True)
class Batch:
    """Parallel columns of equal length. Operators own the lists they are given only for the length of the call and
    never change them: a branch beside them reads the same lists."""

    keys: list[Any]
    values: list[Any]
    timestamps: list[int]
    order: list[int]
    headers: list[Headers] | None = None
    olds: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def where(self, mask: Sequence[Any]) -> Batch:
        """The records whose mask is true."""
        return Batch(
            list(compress(self.keys, mask)),
            list(compress(self.values, mask)),
            list(compress(self.timestamps, mask)),
            list(compress(self.order, mask)),
            None if self.headers is None else list(compress(self.headers, mask)),
            None if self.olds is None else list(compress(self.olds, mask)),
        )

    def slice(self, start: int, stop: int) -> Batch:
        """The records ``start <= i < stop``."""
        if start == 0 and stop >= len(self.keys):
            return self
        return Batch(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            self.order[start:stop],
            None if self.headers is None else self.headers[start:stop],
            None if self.olds is None else self.olds[start:stop],
        )

    def pick(self, places: Sequence[int]) -> Batch:
        """The records at these indices, which may repeat (children of one record share its order and headers)."""
        return Batch(
            [self.keys[i] for i in places],
            [self.values[i] for i in places],
            [self.timestamps[i] for i in places],
            [self.order[i] for i in places],
            None if self.headers is None else [self.headers[i] for i in places],
            None if self.olds is None else [self.olds[i] for i in places],
        )

    def replace(self, *, keys: list[Any] | None = None, values: list[Any] | None = None) -> Batch:
        """The same records with other keys or values (and no old values, which belonged to the former ones)."""
        return Batch(
            self.keys if keys is None else keys,
            self.values if values is None else values,
            self.timestamps,
            self.order,
            self.headers,
        )

    def record(self, index: int) -> Record:
        """One row."""
        headers = () if self.headers is None else self.headers[index]
        return Record(self.keys[index], self.values[index], self.timestamps[index], headers)


def concat(batches: Sequence[Batch]) -> Batch:
    """The batches one after the other; the caller knows that this is their order."""
    if len(batches) == 1:
        return batches[0]
    keys: list[Any] = []
    values: list[Any] = []
    timestamps: list[int] = []
    order: list[int] = []
    with_headers = any(b.headers is not None for b in batches)
    with_olds = any(b.olds is not None for b in batches)
    headers: list[Headers] = []
    olds: list[Any] = []
    for b in batches:
        keys += b.keys
        values += b.values
        timestamps += b.timestamps
        order += b.order
        if with_headers:
            headers += b.headers if b.headers is not None else [()] * len(b.keys)
        if with_olds:
            olds += b.olds if b.olds is not None else [None] * len(b.keys)
    return Batch(keys, values, timestamps, order, headers if with_headers else None, olds if with_olds else None)
