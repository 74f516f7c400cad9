"""Cogrouping: fold several grouped streams, whose values may differ in type, into one table."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.internals.aggregation import Aggregated, add_aggregation, checked_windows
from penstock.topologies.dsl.internals.grouped import RecordGroups
from penstock.topologies.dsl.wiring import Flow, as_emission, check_function, serde_of_aggregates
from penstock.topologies.functions import leaves_alone
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates.fold import Adder, Aggregation, Fold
from penstock.topologies.windows import Windows
from penstock.topologies.windows.durations import Duration


@dataclasses.dataclass(frozen=True)
class Cogroups:
    """Grouped streams with one adder each, windowed or not."""

    parts: tuple[tuple[Flow, Adder], ...]
    windows: Windows | None = None
    retention_ms: int | None = None

    @property
    def first(self) -> Flow:
        """The first stream."""
        return self.parts[0][0]


def begun(groups: RecordGroups, adder: Any) -> Cogroups:
    """Start a cogroup with one stream."""
    flow = groups.grouping.sent
    if groups.windows is not None or groups.ttl_ms is not None:
        raise TopologyError(
            f"cogroup on {flow.out!r}: cogroup first, then call windowed_by on the result; it takes no ttl"
        )
    return Cogroups(((flow, check_function(adder, f"cogroup of {flow.out}")),))


def with_part(cogroups: Cogroups, other: object, adder: Any) -> Cogroups:
    """Add one more grouped stream."""
    first = cogroups.first
    groups = getattr(other, "_groups", None)
    if not isinstance(groups, RecordGroups):
        raise TopologyError(
            f"cogroup of {first.out!r} with {other!r:.60}: it takes grouped streams; call group_by_key() "
            "or group_by(fn) on the stream"
        )
    flow = groups.grouping.sent
    what = f"cogroup of {first.out!r} with {flow.out!r}"
    if groups.windows is not None or cogroups.windows is not None:
        raise TopologyError(f"{what}: cogroup all streams first, then call windowed_by on the result")
    if flow.key.name != first.key.name:
        raise TopologyError(
            f"{what}: their keys have the serdes {first.key.name} and {flow.key.name}, so that equal keys may lie in "
            "different partitions; give both the same key serde"
        )
    return dataclasses.replace(cogroups, parts=(*cogroups.parts, (flow, check_function(adder, what))))


def windowed(cogroups: Cogroups, windows: object, retention: Duration | None) -> Cogroups:
    """Aggregate per window."""
    what = f"windowed_by on the cogroup of {cogroups.first.out!r}"
    checked, retention_ms = checked_windows(windows, retention, what)
    if cogroups.windows is not None:
        raise TopologyError(f"{what}: the streams are windowed already; call windowed_by once")
    return dataclasses.replace(cogroups, windows=checked, retention_ms=retention_ms)


def aggregated(
    cogroups: Cogroups,
    init: Any,
    *,
    value: Any,
    merger: Any,
    name: str | None,
    emission: Emission | None,
    late: bool,
) -> Aggregated:
    """Aggregate into a table: each record goes to its stream's adder, starting from ``init()``."""
    first, parts = cogroups.first, cogroups.parts
    name = first.wiring.name(first, "cogroup", name)
    serde = serde_of_aggregates(value, name)
    if merger is not None:
        check_function(merger, name)
    if late and len({flow.value.name for flow, _ in parts}) > 1:
        raise TopologyError(
            f"operator {name!r}: late=True needs streams with values of one serde, to write the late records by; "
            "leave late out, or map the streams to one type first"
        )
    adders = tuple(adder for _, adder in parts)
    fold = Fold(
        adders=adders,
        init=check_function(init, name),
        merger=merger,
        unread=frozenset(port for port, adder in enumerate(adders) if leaves_alone(adder, 1)),
    )
    request = Aggregation(
        name=name,
        key=first.key,
        value=serde,
        shown_serde=serde,
        emission=first.wiring.emission if emission is None else as_emission(emission, f"operator {name!r}"),
        fold=fold,
        windows=cogroups.windows,
        retention_ms=cogroups.retention_ms,
        late=late,
        by_watermark=any(flow.watermarked for flow, _ in parts),
    )
    return add_aggregation(tuple(flow for flow, _ in parts), request)
