"""Suppress: hold back a table's changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from penstock.state.errors import TopologyError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.graph.topology import GraphBuilder
from penstock.topologies.operators.tables.suppress import BUFFERED, SuppressSpec, SuppressWhenFull, Until
from penstock.topologies.operators.windows.window_closing import ClosingTime
from penstock.topologies.windows import SessionWindows, Windows


def suppressed(
    table: TableFlow,
    until: Until,
    *,
    max_records: int | None,
    max_bytes: int | None,
    when_full: SuppressWhenFull | None,
    name: str | None,
) -> TableFlow:
    """Pass on only the last changes of the table: see ``KTable.suppress``."""
    flow = table.flow
    name = flow.wiring.name(flow, "suppress", name)
    if not isinstance(until, Until):
        raise TopologyError(
            f"operator {name!r}: {until!r:.100} is not a limit; use until_time_limit or until_window_closes"
        )
    if table.history_ms is not None:
        raise TopologyError(f"operator {name!r} cannot suppress changes of a versioned table; leave history out")
    limit_ms, clock = until.limit_ms, _STREAM_TIME
    if until.closes:
        limit_ms, clock = _closing(table, name, until)
    assert limit_ms is not None
    spec = SuppressSpec(
        stores=(StoreSpec(name, "key_value", flow.key, BUFFERED),),
        limit_ms=limit_ms,
        closes=until.closes,
        value_serde=flow.value,
        max_records=_bound(max_records, "max_records", name),
        max_bytes=_bound(max_bytes, "max_bytes", name),
        when_full=_when_full(when_full, until, name),
        clock=clock,
        order_sensitive=True,
        uses_watermark=clock == "watermark",
        uses_wall_time=clock == "wall",
        reads_wall_time=clock == "wall",
    )
    table.silence_refused()
    flow.wiring.add(name, spec, flow)
    return TableFlow(flow.behind(name), inputs=(table,))


def _closing(table: TableFlow, name: str, until: Until) -> tuple[int, ClosingTime]:
    """Return how long after its end a window is final, and in which time."""
    flow = table.flow
    if not table.windowed:
        raise TopologyError(
            f"operator {name!r} waits for windows to close, but the keys of {flow.out!r} have none; "
            "use until_time_limit, or windowed_by(…) before the aggregation"
        )
    made = list(_windows_behind(flow.wiring.graph, table.name))
    clock: ClosingTime = "watermark" if flow.watermarked else "stream_time"
    if any(w.time == "processing" for w in made):
        clock = "wall"
    if until.limit_ms is not None:
        return until.limit_ms, clock
    if not made:
        raise TopologyError(
            f"operator {name!r} does not know when the windows of {flow.out!r} close, because this topology does not create "
            "them; set it: until_window_closes(grace=…)"
        )
    return max(_closes_after_ms(w, name) for w in made), clock


_STREAM_TIME: ClosingTime = "stream_time"


def _windows_behind(graph: GraphBuilder, operator: str) -> Iterable[Windows]:
    """Yield the windows of the nearest upstream aggregations of an operator."""
    windows = getattr(graph.operator(operator), "windows", None)
    if isinstance(windows, Windows):
        yield windows
        return
    for feeder in graph.feeders(operator):
        yield from _windows_behind(graph, feeder)


def _closes_after_ms(windows: Windows, name: str) -> int:
    """Return how long after its end a window is final."""
    if windows.horizon_ms is None:
        raise TopologyError(
            f"operator {name!r} waits for windows to close, but the keys of {windows.describe()} do not "
            "show when they close; use emission='on_close' in the aggregation, or until_time_limit"
        )
    if isinstance(windows, SessionWindows) and windows.bounds == "records":
        return windows.grace_ms + windows.gap_ms
    return windows.grace_ms


def _bound(bound: int | None, what: str, name: str) -> int | None:
    if bound is not None and (not isinstance(bound, int) or bound < 0):
        raise TopologyError(f"operator {name!r}: {what}={bound!r} is not a bound; give at least 0, or leave it out")
    return bound


def _when_full(when_full: SuppressWhenFull | None, until: Until, name: str) -> SuppressWhenFull:
    if when_full is None:
        return "shut_down" if until.closes else "emit_early"
    if when_full not in get_args(SuppressWhenFull):
        known = " or ".join(repr(w) for w in get_args(SuppressWhenFull))
        raise TopologyError(f"operator {name!r}: when_full={when_full!r} is unknown; use {known}")
    if until.closes and when_full == "emit_early":
        raise TopologyError(
            f"operator {name!r}: results that leave early are not final; use when_full='shut_down', or until_time_limit"
        )
    return when_full
