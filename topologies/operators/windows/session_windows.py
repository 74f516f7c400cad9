"""Aggregations per key and session (Kafka Streams' session windows; Beam's and Flink's with other bounds).

A record joins the sessions of its key that it reaches, which merge: from ``init()``, each session's aggregate is
folded in by ``merger(key, aggregate, session's aggregate)``, in the order of their ends, then the record by its
adder. The former sessions are deleted, which is emitted first (null under their keys), then the new one. If a record
has the same time as a session with no other times, that session is updated in place. A result's timestamp is that of
the session's last record.

A session reaches to its last record + gap; if records have their own gaps, to the furthest of these sums. It closes
when T is past its reach + grace (bounds ``records``), or at its end + grace (bounds ``gap``: the end is the reach,
exclusive). A record is late if the session that it would create has closed. Closed sessions can still be joined by
records in time for as long as they are kept: by default as long as any such record can reach them; with ``retention``
at its minimum, gap + grace, not at all.

The store is a ``session`` store: key | end | start, the end being the last record's time, or the reach if that does
not follow from it.

``session_rows`` takes records one by one, and defines the answer; ``session_columns`` takes batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from penstock.state.errors import TopologyError
from penstock.state.serdes.window_keys import spanning_serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operator_api.required_columns import EdgeLayout, InputMode, RequiredColumns
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator
from penstock.topologies.operators.windows.packed_session_folds import part_letters
from penstock.topologies.operators.windows.session_columns import SessionAggregateOperator
from penstock.topologies.operators.windows.window_aggregate import closes_columns, counted
from penstock.topologies.operators.windows.window_closing import ClosingAggregateSpec, closing_spec, retained_ms
from penstock.topologies.windows import SessionWindows


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionAggregateSpec(ClosingAggregateSpec):
    """``AggregateSpec`` per session."""

    windows: SessionWindows

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return SessionAggregateOperator(ctx, self, self.windows)

    @property
    def values_choose_windows(self) -> bool:
        return self.windows.gap_fn is not None

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        reason = None
        if self.windows.gap_fn is not None:
            reason = "a function gives its sessions' gap"
        elif self.emission == "every_update":
            reason = "it emits every update of sessions, which its records merge"
        elif len(self.in_ports) > 1:
            reason = "its sessions are of several streams"
        return self.columns_mode(reason, out[1] if len(out) > 1 else None)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if port == 0 and input_mode.rows is None and closes_columns(self):
            values = counted(self.fold) or part_letters(self.fold, self.store.value_serde) is not None
            return EdgeLayout(keys=True, values=values)
        return super().output_layout(port, given, input_mode)


def build_operator(request: Aggregation) -> BuiltOperator:
    """The operator of an aggregation over sessions."""
    windows = request.windows
    assert isinstance(windows, SessionWindows)
    if request.fold.merger is None:
        raise TopologyError(
            f"operator {request.name!r}: sessions can merge, so their aggregates must merge too; "
            "give merger=lambda key, a, b: …"
        )
    if windows.gap_fn is None and windows.gap_ms == 0 and windows.bounds == "gap":
        raise TopologyError(
            f"operator {request.name!r}: sessions that end a gap of 0 ms after their last record hold nothing; "
            "give a longer gap, or bounds='records'"
        )
    if windows.gap_fn is not None and request.retention_ms is None:
        raise TopologyError(
            f"operator {request.name!r}: with a gap function nothing says how long sessions must be kept; "
            "give windowed_by(…, retention=…), the longest gap + grace"
        )
    retention_ms, lag_ms = request.retention_ms, None
    if windows.gap_fn is None:
        retention_ms, lag_ms = retained_ms(request, 2 * windows.gap_ms + windows.grace_ms)
    value = request.value
    if windows.gap_fn is not None and windows.bounds == "records":
        # the store's keys are not the rows' keys: no row can be looked up in it, and the other name says so
        value = dataclasses.replace(value, name=f"by-reach({value.name})")
    store = StoreSpec(request.name, "session", request.key, value, retention_ms=retention_ms)
    spec = closing_spec(SessionAggregateSpec, request, store, one_by_one=True, lag_ms=lag_ms)
    return BuiltOperator(spec, spanning_serde(request.key))
