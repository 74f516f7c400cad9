"""What an estimate reckons with of each record: its number, what is distinct of it, its rate, and where it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.records.load_shedding import rate_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleWeightSpec(OperatorSpec):
    """Values become ``[number(value), distinct(value), rate, place]``; null where there is no function, or no value.
    ``place`` is a text that no two records share: where the input record stands in the log, and which of the records that
    it became this one is. Of what no input record caused (a timer, a commit) it is the clock's reading in its place."""

    number: Callable[[Any], float | None] | None = None
    distinct: Callable[[Any], Any] | None = None

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _SampleWeightOperator(ctx, self)


class _SampleWeightOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: SampleWeightSpec) -> None:
        super().__init__(ctx, spec)
        self._number, self._distinct = spec.number, spec.distinct
        self._origin: Any = None
        self._nth = 0
        """Which of the records of that origin the one at hand is."""

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        origin: Any = self.ctx.origin(self._order) or ("clock", self.ctx.time.wall_ms, self.ctx.task.partition, ts)
        self._nth = self._nth + 1 if origin == self._origin else 0
        self._origin = origin
        x = None if self._number is None or value is None else self._number(value)
        what = None if self._distinct is None or value is None else self._distinct(value)
        self.emit_row(key, [x, what, rate_of(self.headers), repr((*origin, self._nth))], ts)
