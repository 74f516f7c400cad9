"""A batch: a run of records in task order, as parallel columns.

``order`` says where each record stands in the task: ``place * stride + slot``, ascending, where ``place`` counts the
input records of the task's batch, ``stride`` is the plan's number of nodes + 1, and ``slot`` is 0 for records that an
input record caused, and 1 + the node's index for records that the node's timers emitted right after it. Records that
the same input record caused on one edge share their order and stay in the order of emission. Branches that meet again
run record by record where that leaves a choice (see ``penstock.topologies.graph.lockstep_plan``), so these integers order
any two records that an operator may have to compare: an int replaces the full depth-first path.

``olds`` is set on edges that carry upserts with their old values (``None``: no such column).

A ``Batch`` holds lists. A ``ColumnBatch`` holds keys or values as columns
(``penstock.topologies.operator_api.columns``), perhaps old values too, timestamps and order as arrays. Its ``keys``,
``values``, ``olds``, ``timestamps`` and ``order`` are lists, made at the first use and kept, so that a row operator works on
any batch. An operator that works on whole columns uses ``key_column``, ``value_column``, ``old_column``, ``times`` and
``orders``, and needs no lists. There are
two classes because batches of one record, of which lockstep groups make one per record, must cost no more than their
lists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from penstock.state.log import Headers, Record
from penstock.topologies.operator_api.columns import Column, Ints, Mask, Places, joined


@dataclasses.dataclass(slots=True)
class Batch:
    """Parallel columns of equal length. Operators may use the lists only during the call, and never change them: other
    branches read the same lists."""

    keys: list[Any]
    values: list[Any]
    timestamps: list[int]
    order: list[int]
    headers: list[Headers] | None = None
    olds: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.order)

    @property
    def key_column(self) -> Column | None:
        """The keys as a column, if they came as one."""
        return None

    @property
    def value_column(self) -> Column | None:
        """The values as a column, if they came as one."""
        return None

    @property
    def old_column(self) -> Column | None:
        """The old values as a column, if they came as one."""
        return None

    @property
    def times(self) -> Ints:
        """The timestamps as an array."""
        return np.array(self.timestamps, np.int64)

    @property
    def orders(self) -> Ints:
        """The order as an array."""
        return np.array(self.order, np.int64)

    def where(self, mask: Sequence[Any] | Mask) -> Batch:
        """The records where the mask is true."""
        if isinstance(mask, np.ndarray):
            mask = mask.tolist()
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

    def pick(self, places: Sequence[int] | Places) -> Batch:
        """The records at these indices, which may repeat (children of one record share its order and headers)."""
        if isinstance(places, np.ndarray):
            places = places.tolist()
        return Batch(
            [self.keys[i] for i in places],
            [self.values[i] for i in places],
            [self.timestamps[i] for i in places],
            [self.order[i] for i in places],
            None if self.headers is None else [self.headers[i] for i in places],
            None if self.olds is None else [self.olds[i] for i in places],
        )

    def replace(self, *, keys: list[Any] | Column | None = None, values: list[Any] | Column | None = None) -> Batch:
        """The records with other keys or values, and without old values, which belonged to the former ones."""
        if isinstance(keys, Column) or isinstance(values, Column):
            return ColumnBatch(
                self.keys if keys is None else keys,
                self.values if values is None else values,
                self.times,
                self.orders,
                self.headers,
            )
        return Batch(
            self.keys if keys is None else keys,
            self.values if values is None else values,
            self.timestamps,
            self.order,
            self.headers,
        )

    def at_times(self, times: list[int] | Ints) -> Batch:
        """The records at other times, and without old values."""
        return Batch(self.keys, self.values, _listed(times), self.order, self.headers)

    def listed(self) -> Batch:
        """The records as lists only."""
        return self

    def record(self, index: int) -> Record:
        """One row."""
        headers = () if self.headers is None else self.headers[index]
        return Record(self.keys[index], self.values[index], self.timestamps[index], headers)


class ColumnBatch(Batch):
    """A batch whose keys or values are columns; the other may be a list."""

    __slots__ = (
        "_key_column",
        "_keys",
        "_old_column",
        "_olds",
        "_order",
        "_orders",
        "_times",
        "_timestamps",
        "_value_column",
        "_values",
    )

    def __init__(
        self,
        keys: list[Any] | Column,
        values: list[Any] | Column,
        times: Ints,
        orders: Ints,
        headers: list[Headers] | None = None,
        olds: list[Any] | Column | None = None,
    ) -> None:
        self._keys: list[Any] | None
        self._key_column: Column | None
        self._values: list[Any] | None
        self._value_column: Column | None
        self._keys, self._key_column = (None, keys) if isinstance(keys, Column) else (keys, None)
        self._values, self._value_column = (None, values) if isinstance(values, Column) else (values, None)
        self._times, self._orders = times, orders
        self._timestamps: list[int] | None = None
        self._order: list[int] | None = None
        self.headers = headers
        self._olds: list[Any] | None
        self._old_column: Column | None
        self._olds, self._old_column = (None, olds) if isinstance(olds, Column) else (olds, None)

    def __len__(self) -> int:
        return len(self._orders)

    @property
    def keys(self) -> list[Any]:  # type: ignore[override]  # made at the first time
        """The keys."""
        if self._keys is None:
            assert self._key_column is not None
            self._keys = self._key_column.to_list()
        return self._keys

    @property
    def values(self) -> list[Any]:  # type: ignore[override]  # made at the first time
        """The values."""
        if self._values is None:
            assert self._value_column is not None
            self._values = self._value_column.to_list()
        return self._values

    @property
    def olds(self) -> list[Any] | None:
        """The old values, if there are any."""
        if self._olds is None and self._old_column is not None:
            self._olds = self._old_column.to_list()
        return self._olds

    @olds.setter
    def olds(self, olds: list[Any] | None) -> None:
        self._olds, self._old_column = olds, None

    @property
    def timestamps(self) -> list[int]:  # type: ignore[override]  # made at the first time
        """The records' times, in milliseconds."""
        if self._timestamps is None:
            self._timestamps = self._times.tolist()
        return self._timestamps

    @property
    def order(self) -> list[int]:  # type: ignore[override]  # made at the first time
        """See the module."""
        if self._order is None:
            self._order = self._orders.tolist()
        return self._order

    @property
    def key_column(self) -> Column | None:
        return self._key_column

    @property
    def value_column(self) -> Column | None:
        return self._value_column

    @property
    def old_column(self) -> Column | None:
        return self._old_column

    @property
    def times(self) -> Ints:
        return self._times

    @property
    def orders(self) -> Ints:
        return self._orders

    def where(self, mask: Sequence[Any] | Mask) -> ColumnBatch:
        chosen = mask if isinstance(mask, np.ndarray) else np.fromiter(map(bool, mask), np.bool_, len(mask))
        places = np.flatnonzero(chosen)
        return self if len(places) == len(self) else self.pick(places)

    def slice(self, start: int, stop: int) -> ColumnBatch:
        if start == 0 and stop >= len(self):
            return self
        stop = min(stop, len(self))
        return ColumnBatch(
            self.keys[start:stop] if self._key_column is None else self._key_column.slice(start, stop),
            self.values[start:stop] if self._value_column is None else self._value_column.slice(start, stop),
            self._times[start:stop],
            self._orders[start:stop],
            None if self.headers is None else self.headers[start:stop],
            self._old_slice(start, stop),
        )

    def _old_slice(self, start: int, stop: int) -> list[Any] | Column | None:
        if self._old_column is not None:
            return self._old_column.slice(start, stop)
        return None if self._olds is None else self._olds[start:stop]

    def pick(self, places: Sequence[int] | Places) -> ColumnBatch:
        at = places if isinstance(places, np.ndarray) else np.array(places, np.intp)
        listed: list[int] = []
        lists_of_olds = self._old_column is None and self._olds is not None
        if self._key_column is None or self._value_column is None or self.headers is not None or lists_of_olds:
            listed = at.tolist()
        olds: list[Any] | Column | None = None
        if self._old_column is not None:
            olds = self._old_column.take(at)
        elif self._olds is not None:
            olds = [self._olds[i] for i in listed]
        return ColumnBatch(
            [self.keys[i] for i in listed] if self._key_column is None else self._key_column.take(at),
            [self.values[i] for i in listed] if self._value_column is None else self._value_column.take(at),
            self._times[at],
            self._orders[at],
            None if self.headers is None else [self.headers[i] for i in listed],
            olds,
        )

    def replace(self, *, keys: list[Any] | Column | None = None, values: list[Any] | Column | None = None) -> Batch:
        """As ``Batch.replace``. If keys and values are both lists, the result is a ``Batch``."""
        if keys is None:
            keys = self.keys if self._key_column is None else self._key_column
        if values is None:
            values = self.values if self._value_column is None else self._value_column
        if isinstance(keys, Column) or isinstance(values, Column):
            return ColumnBatch(keys, values, self._times, self._orders, self.headers)
        return Batch(keys, values, self.timestamps, self.order, self.headers)

    def at_times(self, times: list[int] | Ints) -> Batch:
        keys = self.keys if self._key_column is None else self._key_column
        values = self.values if self._value_column is None else self._value_column
        return ColumnBatch(keys, values, np.asarray(times, np.int64), self._orders, self.headers)

    def with_olds(self, values: Column, olds: Column) -> ColumnBatch:
        """The records with these values and old values."""
        keys = self.keys if self._key_column is None else self._key_column
        return ColumnBatch(keys, values, self._times, self._orders, self.headers, olds)

    def listed(self) -> Batch:
        return Batch(self.keys, self.values, self.timestamps, self.order, self.headers, self.olds)


def _listed(numbers: list[int] | Ints) -> list[int]:
    return numbers if isinstance(numbers, list) else numbers.tolist()


def concat(batches: Sequence[Batch]) -> Batch:
    """Concatenate the batches; the caller ensures that this is their order."""
    if len(batches) == 1:
        return batches[0]
    headers: list[Headers] | None = None
    if any(b.headers is not None for b in batches):
        headers = [h for b in batches for h in (b.headers if b.headers is not None else [()] * len(b))]
    olds: list[Any] | Column | None = _joined([b.old_column for b in batches])
    if olds is None and any(b.olds is not None for b in batches):
        olds = [o for b in batches for o in (b.olds if b.olds is not None else [None] * len(b))]
    keys = _joined([b.key_column for b in batches])
    values = _joined([b.value_column for b in batches])
    if keys is None and values is None:
        timestamps = [ts for b in batches for ts in b.timestamps]
        order = [o for b in batches for o in b.order]
        listed = olds.to_list() if isinstance(olds, Column) else olds
        return Batch(_listed_keys(batches), _listed_values(batches), timestamps, order, headers, listed)
    return ColumnBatch(
        _listed_keys(batches) if keys is None else keys,
        _listed_values(batches) if values is None else values,
        np.concatenate([b.times for b in batches]),
        np.concatenate([b.orders for b in batches]),
        headers,
        olds,
    )


def _listed_keys(batches: Sequence[Batch]) -> list[Any]:
    return [k for b in batches for k in b.keys]


def _listed_values(batches: Sequence[Batch]) -> list[Any]:
    return [v for b in batches for v in b.values]


def _joined(columns: list[Column | None]) -> Column | None:
    there = [c for c in columns if c is not None]
    return joined(there) if len(there) == len(columns) else None
