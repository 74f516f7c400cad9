"""Functions of whole records: key, value, timestamp and headers, all readable and all settable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.state.log import Record
from penstock.topologies.expressions.row_function import OfRecord
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Ints, NumberColumn
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import EdgeLayout, InputMode, RequiredColumns
from penstock.topologies.operators.base.row_functions import map_rows
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import LAST_MS
from penstock.topologies.operators.columnar import stateless as columnar


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapRecordsSpec(OperatorSpec):
    """Replaces a record by ``fn(record)``, another ``Record``, or drops it for ``None``. Anything else, and a negative
    timestamp, counts as the row's error."""

    fn: Callable[[Record], Record | None]

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _MapRecordsOperator(ctx, self)


class _MapRecordsOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: MapRecordsSpec) -> None:
        super().__init__(ctx, spec)
        self._fn = spec.fn

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        made = self._fn(Record(key, value, ts, self.headers))
        if made is None:
            return
        if type(made) is not Record:
            raise TypeError(f"the function must return a Record or None, not {made!r:.100}")
        self.emit_row(made.key, made.value, checked_time(made.timestamp_ms), headers=tuple(made.headers))


def checked_time(timestamp_ms: Any) -> int:
    """The timestamp of a new record. Raises ``ValueError`` if it is none."""
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms <= LAST_MS:
        raise ValueError(
            f"timestamp_ms={timestamp_ms!r:.100} of the new record; give an int from 0 to {LAST_MS}: milliseconds"
        )
    return timestamp_ms


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimestampSpec(OperatorSpec):
    """Replaces a record's timestamp by what an expression gives. Anything but milliseconds from 0 on counts as the row's
    error."""

    fn: OfRecord

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return columnar.filter_mode(self.fn, False, out[0])

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return given

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _TimestampOperator(ctx, self)


class _TimestampOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: TimestampSpec) -> None:
        super().__init__(ctx)
        self._fn = spec.fn
        found = columnar.values_of(spec.fn)
        self._step = (
            None if found is None else columnar.ColumnarStep(lambda batch: _times(found.make(batch)), found.failing)
        )

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        return columnar.by_columns(self.ctx, batch, self._step, self._show, self._time_of, _given)

    def process(self, port: int, batch: Batch) -> None:
        times, batch = map_rows(self.ctx, batch, self._time_of, *_given(batch))
        if times:
            self._show(batch, times)

    def _time_of(self, key: Any, value: Any, timestamp_ms: int, headers: Any) -> int:
        return checked_time(self._fn(key, value, timestamp_ms, headers))

    def _show(self, batch: Batch, times: list[int] | Ints) -> None:
        self.ctx.emit(batch.at_times(times))


def _given(batch: Batch) -> tuple[Sequence[Any], ...]:
    return batch.keys, batch.values, batch.timestamps, batch.headers or [()] * len(batch)


def _times(made: Any) -> Ints | None:
    """A column as timestamps; ``None``: some are none."""
    if not isinstance(made, NumberColumn) or made.nulls is not None or made.array.dtype != np.int64:
        return None
    return made.array if not len(made) or int(made.array.min()) >= 0 else None
