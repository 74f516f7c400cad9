"""Functions of whole records: key, value, timestamp and headers, all readable and all settable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.state.log import Record
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import LAST_MS


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
        if type(made.timestamp_ms) is not int or not 0 <= made.timestamp_ms <= LAST_MS:
            raise ValueError(
                f"timestamp_ms={made.timestamp_ms!r:.100} of the new record; give an int from 0 to {LAST_MS}: milliseconds"
            )
        self.emit_row(made.key, made.value, made.timestamp_ms, headers=tuple(made.headers))
