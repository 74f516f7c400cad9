"""Whole records, side inputs, external calls, and intermediate topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.global_ktable import GlobalKTable
from penstock.topologies.dsl.internals.global_tables import global_rows
from penstock.topologies.dsl.internals.stateless import then
from penstock.topologies.dsl.typed import RECORD, scope_of_flow
from penstock.topologies.dsl.wiring import Flow, as_serde, check_function
from penstock.topologies.expressions.row_function import OfRecord, to_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import ExternalCall
from penstock.topologies.operators.joins.side_input import SideInputSpec
from penstock.topologies.operators.records.external_lookup import LookupSpec
from penstock.topologies.operators.records.record_functions import MapRecordsSpec, TimestampSpec
from penstock.topologies.operators.records.source_sink import SourceSpec
from penstock.topologies.windows.durations import Duration, duration_ms, duration_s

_RECORD = ("record",)


def mapped_records(flow: Flow, fn: Any, key: Any, value: Any, name: str | None, *, keeps_key: bool) -> Flow:
    """Replace each record by ``fn(record)``."""
    return then(
        flow,
        "map-records",
        name,
        lambda f: MapRecordsSpec(fn=f),
        fn,
        key=key,
        value=value,
        rekeyed=not keeps_key,
        takes=_RECORD,
    )


def with_headers(flow: Flow, fn: Any, name: str | None) -> Flow:
    """Set the headers of each record to ``fn(record)``."""
    checked = check_function(fn, name or "with-headers", takes=_RECORD)
    return then(
        flow,
        "with-headers",
        name,
        lambda f: MapRecordsSpec(fn=f),
        lambda r: r._replace(headers=tuple(checked(r))),
        takes=_RECORD,
    )


def with_timestamp(flow: Flow, fn: Any, name: str | None) -> Flow:
    """Set the event time of each record to ``fn(record)``, or to an expression."""
    if isinstance(fn, Expression):
        of_record = to_function(fn, RECORD, scope_of_flow(flow), operator=name or "with-timestamp")
        assert isinstance(of_record, OfRecord)
        name = flow.wiring.name(flow, "with-timestamp", name)
        flow.wiring.add(name, TimestampSpec(fn=of_record), flow)
        return flow.behind(name)
    checked = check_function(fn, name or "with-timestamp", takes=_RECORD)
    return then(
        flow,
        "with-timestamp",
        name,
        lambda f: MapRecordsSpec(fn=f),
        lambda r: r._replace(timestamp_ms=checked(r)),
        takes=_RECORD,
    )


def mapped_with_side(flow: Flow, fn: Any, sides: Sequence[object], value: Any, name: str | None) -> Flow:
    """Map to ``fn(key, value, side, …)``, where each side is a view of a whole table."""
    wiring = flow.wiring
    name = wiring.name(flow, "map-with-side", name)
    tables = [s._flow for s in sides if isinstance(s, GlobalKTable)]
    if not sides or len(tables) < len(sides):
        raise TopologyError(
            f"operator {name!r} needs at least one side input; give what global_table(topic) or as_global() returned"
        )
    for table in tables:
        wiring.check_own(table, name)
    stores = tuple(global_rows(t, f"{name}-side-{i}") for i, t in enumerate(tables, 1))
    wiring.add(name, SideInputSpec(stores=stores, fn=check_function(fn, name)), flow)
    return flow.behind(name, value=value)


def looked_up(
    flow: Flow,
    fn: Any,
    joiner: Any,
    *,
    answer: Any,
    value: Any,
    concurrency: int,
    timeout: Duration,
    name: str | None,
) -> Flow:
    """Map to the answer of ``fn(key, value)``, or to ``joiner(value, answer)``."""
    name = flow.wiring.name(flow, "lookup", name)
    if concurrency < 1 or duration_ms(timeout) == 0:
        raise TopologyError(f"operator {name!r}: concurrency={concurrency}, timeout={timeout!r}; give more than 0")
    serde = as_serde(answer, f"the answers of operator {name!r}")
    call = ExternalCall(
        fn=check_function(fn, name, awaited=True), serde=serde, concurrency=concurrency, timeout_s=duration_s(timeout)
    )
    spec = LookupSpec(call=call, joiner=None if joiner is None else check_function(joiner, name))
    flow.wiring.add(name, spec, flow)
    return flow.behind(name, value=value if value is not None else (serde if joiner is None else None))


def read_back(flow: Flow, topic: str, name: str | None) -> Flow:
    """Read what was written to the user's topic, as a new source."""
    source = topic if name is None else name
    flow.wiring.add_source(source, SourceSpec(topic=topic, key_serde=flow.key, value_serde=flow.value))
    return flow.behind_source(source)
