"""Outputs that a sink hands to the producer: records of one topic, in order, as parallel columns.

Keys and values are lists or columns, timestamps and order lists or arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from penstock.state.log import Headers
from penstock.streams.ports.record_columns import RecordColumns
from penstock.topologies.operator_api.columns import Column, Ints, joined


class Output(RecordColumns[Column]):
    """Records for one topic. Columns hold ``bytes | None``: a ``BytesColumn``, or a ``CodedColumn`` of them.
    ``partition`` as in ``LogProducer.send``. ``order`` is the batch's, by which ``Task.causes`` finds the input
    records; ``None``: no input record caused them."""

    __slots__ = ("_order", "headers", "order_array", "partition", "topic")

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
        super().__init__(keys, values, timestamps)
        self.topic = topic
        self._order: list[int] | None
        self.order_array: Ints | None
        self._order, self.order_array = (None, order) if isinstance(order, np.ndarray) else (order, None)
        self.headers = headers
        self.partition = partition

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
    """Merge adjacent outputs to one topic, in linear time; outputs from batches are left alone."""
    out: list[Output] = []
    for _, run in groupby(outputs, key=_kind):
        several = list(run)
        out.append(several[0] if len(several) == 1 else _together(several))
    return out


def _kind(output: Output) -> tuple[str, bool, bool]:
    """Return the topic, and which optional columns exist: only outputs of the same shape can be merged."""
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
            times = np.concatenate([np.asarray(o.times, np.int64) for o in run])
            order = np.concatenate([_orders(o) for o in run]) if first.ordered else None
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


def _orders(output: Output) -> Ints:
    return np.array(output.order, np.int64) if output.order_array is None else output.order_array


def _listed(output: Output) -> list[int]:
    partition = output.partition
    return partition if isinstance(partition, list) else [partition if partition is not None else -1] * len(output)
