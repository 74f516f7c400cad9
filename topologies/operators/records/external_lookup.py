"""External calls per record: to a service, a database, a model.

The answers are journaled, so that a replay gives the same result without calling. Records keep their order, in whatever
order answers arrive. A call that fails or times out is the row's error, under the processing policy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import (
    CallFailedError,
    ExternalCall,
    Operator,
    OperatorContext,
    OperatorSpec,
)
from penstock.topologies.operator_api.required_columns import EdgeLayout, InputMode
from penstock.topologies.operators.base.row_functions import map_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class LookupSpec(OperatorSpec):
    """The value ``joiner(value, answer)`` of the answer to ``call.fn(key, value)``; without ``joiner`` the answer."""

    call: ExternalCall
    joiner: Any = None
    makes_external_calls: bool = True

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(given.keys)

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _LookupOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """How it asks."""
        return {"concurrency": self.call.concurrency, "timeout": f"{self.call.timeout_s} s"}


class _LookupOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: LookupSpec) -> None:
        super().__init__(ctx)
        self._spec = spec

    def process(self, port: int, batch: Batch) -> None:
        if not len(batch):
            return
        values, batch = answers_of(self.ctx, batch, self._spec.call)
        if self._spec.joiner is not None:
            values, batch = map_rows(self.ctx, batch, self._spec.joiner, batch.values, values)
        self.ctx.emit(batch.replace(values=values))


def answers_of(ctx: OperatorContext, batch: Batch, call: ExternalCall) -> tuple[list[Any], Batch]:
    """The answers to ``call.fn(key, value)``, and the batch of the records that have one; the others meet the policy."""
    answers = ctx.ask(call, list(zip(batch.keys, batch.values, strict=True)))
    kept = []
    for i, answer in enumerate(answers):
        if answer.error is None:
            kept.append(i)
        else:
            ctx.failed(batch, i, CallFailedError(answer.error, answer.lines))
    if len(kept) < len(answers):
        batch, answers = batch.pick(kept), [answers[i] for i in kept]
    return [a.value for a in answers], batch
