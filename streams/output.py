"""What a sink hands to the producer: records of one topic, in order, as parallel columns.

As in ``Batch``, keys and values are lists or columns and timestamps and order lists or arrays; the lists are made for those
who ask for them, and kept. A producer that takes columns asks for ``key_column``, ``value_column`` and ``time_array``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from penstock.state.log import Headers
from penstock.topologies.columns import Column, Ints, joined


class Output:
    """Records for one topic. Columns hold ``bytes | None``: a ``BytesColumn``, or a ``CodedColumn`` of them. ``partition``
    as in ``LogProducer.send``. ``order`` is the batch's, by which ``Task.causes`` finds the input records; ``None``: no
    input record is behind them."""

    __slots__ = (
        "_keys",
        "_order",
        "_timestamps",
        "_values",
        "headers",
        "key_column",
        "order_array",
        "partition",
        "time_array",
        "topic",
        "value_column",
    )

    def __init__(
        self,
        topic: str,
        keys: list[bytes | None] | Column,
        values: list[bytes | None] | Column,
        timestamps: list[int] | Ints,
        headers: list[Headers] | None = None,
        partition: int | list[int] | None = None,
        order: list[int] | Ints | None = None,
    ) -> None:
        self.topic = topic
        self._keys: list[bytes | None] | None
        self.key_column: Column | None
        self._values: list[bytes | None] | None
        self.value_column: Column | None
        self._timestamps: list[int] | None
        self.time_array: Ints | None
        self._order: list[int] | None
        self.order_array: Ints | None
        self._keys, self.key_column = (None, keys) if isinstance(keys, Column) else (keys, None)
        self._values, self.value_column = (None, values) if isinstance(values, Column) else (values, None)
        self._timestamps, self.time_array = (
            (None, timestamps) if isinstance(timestamps, np.ndarray) else (timestamps, None)
        )
        self._order, self.order_array = (None, order) if isinstance(order, np.ndarray) else (order, None)
        self.headers = headers
        self.partition = partition

    @property
    def keys(self) -> list[bytes | None]:
        """The keys."""
        if self._keys is None:
            assert self.key_column is not None
            self._keys = self.key_column.to_list()
        return self._keys

    @property
    def values(self) -> list[bytes | None]:
        """The values."""
        if self._values is None:
            assert self.value_column is not None
            self._values = self.value_column.to_list()
        return self._values

    @property
    def timestamps(self) -> list[int]:
        """Milliseconds."""
        if self._timestamps is None:
            assert self.time_array is not None
            self._timestamps = self.time_array.tolist()
        return self._timestamps

    @property
    def order(self) -> list[int] | None:
        """See the class."""
        if self._order is None and self.order_array is not None:
            self._order = self.order_array.tolist()
        return self._order

    @property
    def ordered(self) -> bool:
        """Whether there is an order."""
        return self._order is not None or self.order_array is not None

    @property
    def columnar(self) -> bool:
        """Whether keys and values came as columns."""
        return self.key_column is not None and self.value_column is not None

    def __len__(self) -> int:
        return len(self.key_column) if self._keys is None and self.key_column is not None else len(self.keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and self._rows() == other._rows()

    __hash__ = None  # type: ignore[assignment]  # an output is compared by what it holds

    def __repr__(self) -> str:
        return f"Output{self._rows()!r}"

    def _rows(self) -> tuple[Any, ...]:
        return self.topic, self.keys, self.values, self.timestamps, self.headers, self.partition, self.order


def coalesced(outputs: Sequence[Output]) -> list[Output]:
    """Neighbours for one topic as one, in linear time; what came from batches is left as it is."""
    out: list[Output] = []
    for _, run in groupby(outputs, key=_kind):
        several = list(run)
        out.append(several[0] if len(several) == 1 else _together(several))
    return out


def _kind(output: Output) -> tuple[str, bool, bool]:
    """The topic, and which of the columns that an output may lack are there: only outputs of one shape can be put
    together."""
    return output.topic, output.partition is None, output.ordered


def _together(run: list[Output]) -> Output:
    first = run[0]
    headers: list[Headers] | None = None
    if any(o.headers is not None for o in run):
        headers = [h for o in run for h in (o.headers if o.headers is not None else [()] * len(o))]
    partition = None if first.partition is None else [p for o in run for p in _listed(o)]
    if all(o.columnar for o in run):
        keys = joined([o.key_column for o in run if o.key_column is not None])
        values = joined([o.value_column for o in run if o.value_column is not None])
        if keys is not None and values is not None:
            times = np.concatenate([_array(o.time_array, o.timestamps) for o in run])
            order = np.concatenate([_array(o.order_array, o.order) for o in run]) if first.ordered else None
            return Output(first.topic, keys, values, times, headers, partition, order)
    return Output(
        first.topic,
        [k for o in run for k in o.keys],
        [v for o in run for v in o.values],
        [t for o in run for t in o.timestamps],
        headers,
        partition,
        [i for o in run for i in o.order or ()] if first.ordered else None,
    )


def _array(array: Ints | None, numbers: list[int] | None) -> Ints:
    return np.array(numbers, np.int64) if array is None else array


def _listed(output: Output) -> list[int]:
    partition = output.partition
    return partition if isinstance(partition, list) else [partition if partition is not None else -1] * len(output)
