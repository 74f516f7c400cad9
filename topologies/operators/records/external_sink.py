"""Records leave the graph for an external sink: a database, files, a service.

The operator makes rows, and keeps them for the commit with the offsets of the records behind them. Every record of the
source that the rows come from has at most the rows that follow from it alone, so an offset says which rows there are.
Where that does not hold, the DSL sends the records through a topic first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.edge_kinds import NO_RETRACTIONS, EdgeKind
from penstock.topologies.operator_api.external_sinks import Sink, SinkRows
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_functions import map_rows
from penstock.topologies.operators.records.async_calls import AsyncCallSpec
from penstock.topologies.operators.records.external_lookup import LookupSpec
from penstock.topologies.operators.records.record_functions import MapRecordsSpec
from penstock.topologies.operators.records.source_sink import SourceSpec
from penstock.topologies.operators.records.stateless import (
    BranchSpec,
    FilterSpec,
    FlatMapSpec,
    MapSpec,
    MapValuesSpec,
    MergeSpec,
    PeekSpec,
    SelectKeySpec,
)

ROWS_MAX = 20_000
"""If more rows than this wait for a commit, one is requested."""

PER_RECORD = (
    AsyncCallSpec,
    BranchSpec,
    FilterSpec,
    FlatMapSpec,
    LookupSpec,
    MapRecordsSpec,
    MapSpec,
    MapValuesSpec,
    MergeSpec,
    PeekSpec,
    SelectKeySpec,
)
"""Operators whose outputs each follow from one input record."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExternalSinkSpec(OperatorSpec):
    """Gives its records to ``sink``. ``source``: the source operator whose offsets count its rows."""

    sink: Sink
    source: str
    out_ports: tuple[str, ...] = ()
    accepts: frozenset[EdgeKind] = NO_RETRACTIONS

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return ExternalSinkOperator(ctx, self.sink)

    def details(self) -> dict[str, Any]:
        """The sink that it writes to."""
        return {"to": self.sink.describe()}


def only_source(operators: Mapping[str, OperatorSpec]) -> str | None:
    """The source, if every record that leaves these operators follows from one of its records alone; else ``None``."""
    sources = [name for name, spec in operators.items() if isinstance(spec, SourceSpec)]
    between = [spec for name, spec in operators.items() if name not in sources]
    plain = all(isinstance(spec, PER_RECORD) and not spec.stores for spec in between)
    if len(sources) != 1 or not plain:
        return None
    source = operators[sources[0]]
    return sources[0] if type(source) is SourceSpec and not source.packed and not source.loop_rounds else None


class ExternalSinkOperator(Operator):
    """Collects rows. ``offset_of(order)``: of the input record behind a row; ``None``: rows have no taker, as in a replay.
    ``skip_below``: rows of records before this offset are in the sink already."""

    def __init__(self, ctx: OperatorContext, sink: Sink) -> None:
        super().__init__(ctx)
        self._sink = sink
        self._waiting = SinkRows([], [])
        self.offset_of: Callable[[int], int] | None = None
        self.skip_below = 0

    def process(self, port: int, batch: Batch) -> None:
        if self.offset_of is None:
            return
        offsets = [*map(self.offset_of, batch.order)]
        if offsets and offsets[0] < self.skip_below:
            batch = batch.where([offset >= self.skip_below for offset in offsets])
        headers = [()] * len(batch) if batch.headers is None else batch.headers
        rows, written = map_rows(self.ctx, batch, self._sink.row, batch.keys, batch.values, batch.timestamps, headers)
        self._waiting.rows.extend(rows)
        self._waiting.offsets.extend(map(self.offset_of, written.order))
        if len(self._waiting) > ROWS_MAX:
            self.ctx.request_commit()

    def take(self) -> SinkRows:
        """Return the rows since the last call."""
        taken, self._waiting = self._waiting, SinkRows([], [])
        return taken
