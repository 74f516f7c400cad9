"""Count how often a record has gone around a feedback loop, and end it at the bound."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.log import Headers
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator

ITERATION_HEADER = "penstock.iteration"


def iteration_of(headers: Headers) -> int:
    """How often the record with these headers has gone around; 0 the first time."""
    for name, value in headers:
        if name == ITERATION_HEADER and value is not None:
            return int(value)
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeedbackSpec(OperatorSpec):
    """Sends records around once more, with the header incremented; those that have gone around ``most`` times go to
    the out port ``exhausted`` instead, and are counted."""

    most: int
    out_ports: tuple[str, ...] = ("out", "exhausted")

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _FeedbackOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The bound."""
        return {"iterations": self.most}


class _FeedbackOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: FeedbackSpec) -> None:
        super().__init__(ctx, spec)
        self._most = spec.most

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        iteration = iteration_of(self.headers) + 1
        if iteration > self._most:
            self.ctx.dropped("exhausted")
            self.emit_row(key, value, ts, port=1)
            return
        kept = tuple(h for h in self.headers if h[0] != ITERATION_HEADER)
        self.emit_row(key, value, ts, headers=(*kept, (ITERATION_HEADER, str(iteration).encode())))
