"""How the DSL adds aggregations: one operator per request, made by whoever knows its kind of windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.table import KTable
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator
from penstock.topologies.operators.tables.table_views import TableView, view_of_results
from penstock.topologies.windows import (
    CalendarWindows,
    CustomWindows,
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

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream

_OPERATORS = "penstock.topologies.operators"
_FOR_A_TIME = f"{_OPERATORS}.aggregates.expiring_aggregate:build_operator"
_SPANS = f"{_OPERATORS}.windows.window_operator_choice:build_operator"
MAKERS: dict[type[Windows], str] = {
    TumblingWindows: _SPANS,
    HoppingWindows: _SPANS,
    CalendarWindows: _SPANS,
    UnlimitedWindows: _SPANS,
    GlobalWindow: _SPANS,
    CustomWindows: f"{_OPERATORS}.windows.custom_windows:build_operator",
    SessionWindows: f"{_OPERATORS}.windows.session_windows:build_operator",
    SlidingWindows: f"{_OPERATORS}.windows.sliding_windows:build_operator",
    EvictingWindows: f"{_OPERATORS}.windows.evicting_windows:build_operator",
}
"""By kind of windows: the module and function ``(Aggregation) -> Made`` of its operator."""


JOINED_RETENTION_MS = duration_ms("1d")
"""For how long joined tables keep windows that take no more records."""


class WindowedTable(KTable):
    """A table whose keys are ``Windowed``. ``retention_named``: the user said for how long its rows can be read."""

    windows: Windows
    late_flow: Flow | None = None
    retention_named = False
    retained_for_lookups = False

    def retain_for_lookups(self) -> None:
        """Keep rows ``JOINED_RETENTION_MS`` longer, unless the user named a retention."""
        before = self._store
        if before is None or before.retention_ms is None or self.windows.horizon_ms is None:
            return  # for ever
        if self.retention_named or self.retained_for_lookups:
            return
        self.retained_for_lookups = True
        self._store = dataclasses.replace(before, retention_ms=before.retention_ms + JOINED_RETENTION_MS)
        self._flow.wiring.graph.replace_store(before, self._store)

    @property
    def late(self) -> KStream:
        """The records that came after all their windows had closed, as they were. Ask for them with ``late=True``, else
        ``TopologyError``."""
        if self.late_flow is None:
            raise TopologyError(f"operator {self.name!r} only counts its late records; ask for them with late=True")
        return self._stream(self.late_flow)


def checked_windows(windows: object, retention: int | str | None, what: str) -> tuple[Windows, int | None]:
    """Windows that have an operator, and the retention in milliseconds. Raises ``TopologyError``."""
    if type(windows) not in MAKERS:
        raise TopologyError(f"{what}: {windows!r:.100} is no window; use tumbling(size, grace=…), hopping, sliding, …")
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


def _maker(windows: Windows | None) -> str:
    if windows is None:
        return f"{_OPERATORS}.aggregates.aggregate:build_operator"
    if isinstance(windows, HoppingWindows) and windows.before_epoch:
        return MAKERS[CustomWindows]  # whose store takes any start
    if isinstance(windows, CustomWindows) and windows.merging:
        return f"{_OPERATORS}.windows.merging_windows:build_operator"
    return MAKERS[type(windows)]


def add_aggregation(flows: Sequence[Flow], request: Aggregation) -> KTable:
    """Add the operator and connect one flow to each of its in ports."""
    first, windows = flows[0], request.windows
    module, function = (_maker(windows) if request.ttl_ms is None else _FOR_A_TIME).split(":")
    make = cast(Callable[[Aggregation], BuiltOperator], getattr(import_module(module), function))
    made = make(request)
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
    store, result = made.spec.stores[0], request.fold.result
    if windows is None:
        return KTable(flow, store, view=_results(lambda: store, request.value, result))
    table = WindowedTable(flow, store)
    table._make_view = _results(lambda: table.store, request.value, result)  # whose retention may change
    table.windows = windows
    table.retention_named = request.retention_ms is not None
    if request.late:
        table.late_flow = dataclasses.replace(flow, port="late", key=first.key, value=first.value)
    return table


def _results(
    store: Callable[[], StoreSpec], value: Serde[Any], result: Callable[[Any], Any] | None
) -> Callable[[], TableView] | None:
    """What makes the view of a table that shows ``result`` of what its store holds; ``None`` where the store is read as it
    is, or cannot be read."""
    if result is None or view_of_results(store(), value, result) is None:
        return None

    def made() -> TableView:
        view = view_of_results(store(), value, result)
        assert view is not None
        return view

    return made
