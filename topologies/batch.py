"""A batch: a run of records in task order, as parallel columns.

``order`` says where each record stands in the task: ``place * stride + slot``, ascending, where ``place`` counts the
input records of the task's batch, ``stride`` is the plan's number of nodes + 1, and ``slot`` is 0 for what an input
record caused and 1 + the node's index for what that node's timers fired right after it. Records caused by the same
input record on one edge share their order and stand in the order in which they were emitted. Because branches that
meet again run record by record (see ``penstock.topologies.plan``), these integers order any two records that an
operator can have to compare: they stand for the full depth-first path at the price of an int.

``olds`` is there on edges that carry upserts with their old value (``None``: no such column).

Keys and values are lists, or columns (``penstock.topologies.columns``); timestamps and order lists, or arrays. Whoever
asks for ``keys``, ``values``, ``timestamps`` or ``order`` gets a list, made at the first time and kept: a row operator
works on any batch. One that can work on whole columns asks for those (``key_column``, ``value_column``, ``times``,
``orders``) and does without the lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from penstock.state.log import Headers, Record
from penstock.topologies.columns import Column, Ints, Mask, Places, joined


class Batch:
    """Parallel columns of equal length. Operators own the lists they are given only for the length of the call and
    never change them: a branch beside them reads the same lists."""

    __slots__ = (
        "_keys",
        "_order",
        "_timestamps",
        "_values",
        "headers",
        "key_column",
        "olds",
        "order_array",
        "time_array",
        "value_column",
    )

    def __init__(
        self,
        keys: list[Any] | Column,
        values: list[Any] | Column,
        timestamps: list[int] | Ints,
        order: list[int] | Ints,
        headers: list[Headers] | None = None,
        olds: list[Any] | None = None,
    ) -> None:
        self._keys: list[Any] | None
        self.key_column: Column | None
        """The keys as a column, where they came as one."""
        self._values: list[Any] | None
        self.value_column: Column | None
        """The values as a column, where they came as one."""
        self._timestamps: list[int] | None
        self.time_array: Ints | None
        self._order: list[int] | None
        self.order_array: Ints | None
        self._keys, self.key_column = (None, keys) if isinstance(keys, Column) else (keys, None)
        self._values, self.value_column = (None, values) if isinstance(values, Column) else (values, None)
        self._timestamps, self.time_array = (timestamps, None) if isinstance(timestamps, list) else (None, timestamps)
        self._order, self.order_array = (order, None) if isinstance(order, list) else (None, order)
        self.headers = headers
        self.olds = olds

    # -- lists ---------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[Any]:
        """The keys."""
        if self._keys is None:
            assert self.key_column is not None
            self._keys = self.key_column.to_list()
        return self._keys

    @property
    def values(self) -> list[Any]:
        """The values."""
        if self._values is None:
            assert self.value_column is not None
            self._values = self.value_column.to_list()
        return self._values

    @property
    def timestamps(self) -> list[int]:
        """The records' times, in milliseconds."""
        if self._timestamps is None:
            assert self.time_array is not None
            self._timestamps = self.time_array.tolist()
        return self._timestamps

    @property
    def order(self) -> list[int]:
        """See the module."""
        if self._order is None:
            assert self.order_array is not None
            self._order = self.order_array.tolist()
        return self._order

    # -- arrays --------------------------------------------------------------------------------------------------

    @property
    def times(self) -> Ints:
        """The timestamps as an array."""
        if self.time_array is None:
            self.time_array = np.array(self._timestamps, np.int64)
        return self.time_array

    @property
    def orders(self) -> Ints:
        """The order as an array."""
        if self.order_array is None:
            self.order_array = np.array(self._order, np.int64)
        return self.order_array

    @property
    def columnar(self) -> bool:
        """Whether keys or values came as a column."""
        return self.key_column is not None or self.value_column is not None

    # -- parts ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if self._order is not None:
            return len(self._order)
        assert self.order_array is not None
        return len(self.order_array)

    def where(self, mask: Sequence[Any] | Mask) -> Batch:
        """The records whose mask is true."""
        if self.columnar:
            chosen = mask if isinstance(mask, np.ndarray) else np.fromiter(map(bool, mask), np.bool_, len(mask))
            return self._taken(np.flatnonzero(chosen))
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
        if start == 0 and stop >= len(self):
            return self
        stop = min(stop, len(self))
        return Batch(
            self.keys[start:stop] if self.key_column is None else self.key_column.slice(start, stop),
            self.values[start:stop] if self.value_column is None else self.value_column.slice(start, stop),
            self.timestamps[start:stop] if self.time_array is None else self.time_array[start:stop],
            self.order[start:stop] if self.order_array is None else self.order_array[start:stop],
            None if self.headers is None else self.headers[start:stop],
            None if self.olds is None else self.olds[start:stop],
        )

    def pick(self, places: Sequence[int]) -> Batch:
        """The records at these indices, which may repeat (children of one record share its order and headers)."""
        if self.columnar:
            return self._taken(np.array(places, np.intp))
        keys, values, timestamps, order = self.keys, self.values, self.timestamps, self.order
        return Batch(
            [keys[i] for i in places],
            [values[i] for i in places],
            [timestamps[i] for i in places],
            [order[i] for i in places],
            None if self.headers is None else [self.headers[i] for i in places],
            None if self.olds is None else [self.olds[i] for i in places],
        )

    def _taken(self, places: Places) -> Batch:
        """The records at these places: columns stay columns."""
        listed: list[int] = []
        if self.key_column is None or self.value_column is None or self.headers is not None or self.olds is not None:
            listed = places.tolist()
        return Batch(
            [self.keys[i] for i in listed] if self.key_column is None else self.key_column.take(places),
            [self.values[i] for i in listed] if self.value_column is None else self.value_column.take(places),
            self.times[places],
            self.orders[places],
            None if self.headers is None else [self.headers[i] for i in listed],
            None if self.olds is None else [self.olds[i] for i in listed],
        )

    def replace(self, *, keys: list[Any] | Column | None = None, values: list[Any] | Column | None = None) -> Batch:
        """The same records with other keys or values (and no old values, which belonged to the former ones)."""
        out = Batch.__new__(Batch)
        if keys is None:
            out._keys, out.key_column = self._keys, self.key_column
        else:
            out._keys, out.key_column = (None, keys) if isinstance(keys, Column) else (keys, None)
        if values is None:
            out._values, out.value_column = self._values, self.value_column
        else:
            out._values, out.value_column = (None, values) if isinstance(values, Column) else (values, None)
        out._timestamps, out.time_array = self._timestamps, self.time_array
        out._order, out.order_array = self._order, self.order_array
        out.headers, out.olds = self.headers, None
        return out

    def record(self, index: int) -> Record:
        """One row."""
        headers = () if self.headers is None else self.headers[index]
        return Record(self.keys[index], self.values[index], self.timestamps[index], headers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self._rows() == other._rows()

    __hash__ = None  # type: ignore[assignment]  # a batch is compared by what it holds

    def __repr__(self) -> str:
        return "Batch(keys={!r}, values={!r}, timestamps={!r}, order={!r}, headers={!r}, olds={!r})".format(
            *self._rows()
        )

    def _rows(self) -> tuple[Any, ...]:
        return self.keys, self.values, self.timestamps, self.order, self.headers, self.olds


def concat(batches: Sequence[Batch]) -> Batch:
    """The batches one after the other; the caller knows that this is their order."""
    if len(batches) == 1:
        return batches[0]
    headers: list[Headers] | None = None
    if any(b.headers is not None for b in batches):
        headers = [h for b in batches for h in (b.headers if b.headers is not None else [()] * len(b))]
    olds: list[Any] | None = None
    if any(b.olds is not None for b in batches):
        olds = [o for b in batches for o in (b.olds if b.olds is not None else [None] * len(b))]
    keys = _joined([b.key_column for b in batches])
    values = _joined([b.value_column for b in batches])
    if keys is None and values is None:
        timestamps: list[int] = []
        order: list[int] = []
        for b in batches:
            timestamps += b.timestamps
            order += b.order
        return Batch(
            [k for b in batches for k in b.keys],
            [v for b in batches for v in b.values],
            timestamps,
            order,
            headers,
            olds,
        )
    return Batch(
        [k for b in batches for k in b.keys] if keys is None else keys,
        [v for b in batches for v in b.values] if values is None else values,
        np.concatenate([b.times for b in batches]),
        np.concatenate([b.orders for b in batches]),
        headers,
        olds,
    )


def _joined(columns: list[Column | None]) -> Column | None:
    there = [c for c in columns if c is not None]
    return joined(there) if len(there) == len(columns) else None
