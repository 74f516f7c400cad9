"""Choose the operator of an aggregation: one function ``(Aggregation) -> Made`` per kind of windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operators.aggregates import aggregate, expiring_aggregate
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator
from penstock.topologies.operators.tables.table_views import TableView, view_of_results
from penstock.topologies.operators.windows import (
    custom_windows,
    evicting_windows,
    merging_windows,
    session_windows,
    sliding_windows,
    window_operator_choice,
)
from penstock.topologies.windows import (
    CalendarWindows,
    CustomWindows,
    Duration,
    EvictingWindows,
    GlobalWindow,
    HoppingWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    UnlimitedWindows,
    Windows,
    duration_ms,
)

Maker = Callable[[Aggregation], BuiltOperator]

MAKERS: Mapping[type[Windows], Maker] = {
    TumblingWindows: window_operator_choice.build_operator,
    HoppingWindows: window_operator_choice.build_operator,
    CalendarWindows: window_operator_choice.build_operator,
    UnlimitedWindows: window_operator_choice.build_operator,
    GlobalWindow: window_operator_choice.build_operator,
    CustomWindows: custom_windows.build_operator,
    SessionWindows: session_windows.build_operator,
    SlidingWindows: sliding_windows.build_operator,
    EvictingWindows: evicting_windows.build_operator,
}
"""Kind of windows → the function that builds the operator."""


class Aggregated(NamedTuple):
    """The table of an aggregation, and its late records if they were requested."""

    table: TableFlow
    late: Flow | None


def checked_windows(windows: object, retention: Duration | None, what: str) -> tuple[Windows, int | None]:
    """Return windows that have an operator, and the retention in milliseconds. Raises ``TopologyError``."""
    if type(windows) not in MAKERS:
        raise TopologyError(
            f"{what}: {windows!r:.100} is not a window; use tumbling(size, grace=…), hopping, sliding, …"
        )
    known = cast(Windows, windows)
    if retention is None:
        return known, None
    retention_ms, least_ms = duration_ms(retention), known.horizon_ms
    if least_ms is not None and retention_ms < least_ms:
        raise TopologyError(
            f"{what}: retention {retention_ms} ms would drop windows that still take records; "
            f"give at least size + grace = {least_ms} ms"
        )
    return known, retention_ms


def _maker(request: Aggregation) -> Maker:
    windows = request.windows
    if request.ttl_ms is not None:
        return expiring_aggregate.build_operator
    if windows is None:
        return aggregate.build_operator
    if isinstance(windows, HoppingWindows) and windows.before_epoch:
        return custom_windows.build_operator  # whose store takes any start
    if isinstance(windows, CustomWindows) and windows.merging:
        return merging_windows.build_operator
    return MAKERS[type(windows)]


def add_aggregation(flows: Sequence[Flow], request: Aggregation) -> Aggregated:
    """Add the operator and connect one flow to each of its in ports."""
    first = flows[0]
    made = _maker(request)(request)
    built = request if made.request is None else made.request
    wiring = first.wiring
    if len(flows) == 1:
        wiring.add(request.name, made.spec, first)
    else:
        wiring.add_ports(request.name, made.spec, dict(zip(request.in_ports, flows, strict=True)))
    flow = dataclasses.replace(
        first,
        operator=request.name,
        port="out" if request.late else None,
        key=made.key,
        value=request.shown_serde,
        rekeyed=False,
        watermarked=request.by_watermark,
    )
    store, result = made.spec.stores[0], built.fold.result
    late = dataclasses.replace(flow, port="late", key=first.key, value=first.value) if request.late else None
    view = _results(lambda: table.store, built.value, result, store)
    table = TableFlow(flow, store, view=view, windows=request.windows, retention_named=request.retention_ms is not None)
    return Aggregated(table, late)


def _results(
    store: Callable[[], StoreSpec], value: Serde[Any], result: Callable[[Any], Any] | None, first: StoreSpec
) -> Callable[[], TableView] | None:
    """Return what builds the view of a table that shows ``result`` of what its store holds. ``first`` is the store for
    now: its retention may change. ``None`` if the store is read as it is, or cannot be read."""
    if result is None or view_of_results(first, value, result) is None:
        return None

    def made() -> TableView:
        view = view_of_results(store(), value, result)
        assert view is not None
        return view

    return made
