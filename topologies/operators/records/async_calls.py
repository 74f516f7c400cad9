"""``async`` functions of single records: as lookups, with other results.

Answers are journaled, so that a replay gives the same results without calling. Results keep the records' order, in whatever
order they came. A call that fails, or takes too long, is the record's error.
"""

from __future__ import annotations

import dataclasses
from itertools import chain
from typing import Any, ClassVar, Literal

from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import ExternalCall, Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import EdgeLayout, InputMode
from penstock.topologies.operators.base.flat_map_children import children_of
from penstock.topologies.operators.records.external_lookup import answers_of

AnswerUse = Literal["values", "keep", "drop", "flat_map", "flat_map_values", "effect"]
"""The use of an answer: as the new value; whether to keep, or to drop, the record; as its children in pairs, or in
values under its key; none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsyncCallSpec(OperatorSpec):
    """Awaits ``call.fn(key, value)`` for each record."""

    retries: ClassVar[bool] = True
    call: ExternalCall
    form: AnswerUse
    makes_external_calls: bool = True

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(given.keys) if self.form == "values" else super().output_layout(port, given, input_mode)

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _AsyncCallOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The use of the answer, and how it calls."""
        call = self.call
        order = "by key" if call.ordered_by_key else "none"
        return {
            "gives": self.form,
            "concurrency": call.concurrency,
            "timeout": f"{call.timeout_s} s",
            "order": order,
        }


class _AsyncCallOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: AsyncCallSpec) -> None:
        super().__init__(ctx)
        self._form = spec.form
        self._call = spec.call
        if ctx.retry is not None:
            self._call = dataclasses.replace(spec.call, pauses_ms=tuple(ctx.retry.pauses_ms()))

    def process(self, port: int, batch: Batch) -> None:
        if not len(batch):
            return
        found, batch = answers_of(self.ctx, batch, self._call)
        if self._form == "values":
            self.ctx.emit(batch.replace(values=found))
        elif self._form == "effect":
            self.ctx.emit(batch)
        elif self._form in ("keep", "drop"):
            self.ctx.emit(batch.where([answer is (self._form == "keep") for answer in found]))
        elif flat := list(chain.from_iterable(found)):
            if self._form == "flat_map_values":
                self.ctx.emit(children_of(batch, found, flat))
            else:
                children = children_of(batch, found, [value for _, value in flat])
                self.ctx.emit(children.replace(keys=[key for key, _ in flat]))
