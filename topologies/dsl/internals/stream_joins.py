"""Join a stream with a table (``stream_table_joins``), or with other streams within a window of time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, get_args

from penstock.state.errors import TopologyError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.internals.stream_table_joins import joined_with_table
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.dsl.typed import join_function, result_serde
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.operators.base.store_timers import timer_store
from penstock.topologies.operators.joins.as_of_join import AsOfJoinSpec, Direction, as_of_stores
from penstock.topologies.operators.joins.multi_stream_join import MultiStreamJoinSpec
from penstock.topologies.operators.joins.stream_stream_join import (
    ResultTime,
    StreamStreamJoinSpec,
    buffer_retention_ms,
    join_stores,
    watermark_retention_ms,
)
from penstock.topologies.windows import Duration, duration_ms, offset_ms


@dataclasses.dataclass(frozen=True)
class JoinWindow:
    """How far apart in time partners may be."""

    before: Duration | None
    after: Duration | None
    within: Duration | None
    grace: Duration | None

    @property
    def given(self) -> bool:
        """Whether the user gave any bound."""
        return any(x is not None for x in (self.before, self.after, self.within))


@dataclasses.dataclass(frozen=True)
class JoinKind:
    """``keeps``: whether left records, and right records, without a partner are joined with null."""

    name: str
    keeps: tuple[bool, bool]


INNER = JoinKind("join", (False, False))
LEFT = JoinKind("left-join", (True, False))
RIGHT = JoinKind("right-join", (False, True))
OUTER = JoinKind("outer-join", (True, True))


def joined(
    flow: Flow,
    other: object,
    kind: JoinKind,
    joiner: Any,
    bounds: JoinWindow,
    *,
    condition: Any,
    result_time: ResultTime,
    value: Any,
    name: str | None,
    eager: bool = False,
) -> Flow:
    """Join with ``other``: a stream or a table."""
    wiring, handles = flow.wiring, flow.wiring.handles
    name = wiring.name(flow, kind.name, name)
    if result_time not in get_args(ResultTime):
        known = " or ".join(repr(time) for time in get_args(ResultTime))
        raise TopologyError(f"operator {name!r}: result_time={result_time!r} is unknown; use {known}")
    if isinstance(other, handles.stream):
        return _joined_with_stream(
            flow, other._flow, kind, joiner, bounds, condition, result_time, value, name, eager=eager
        )
    if bounds.given or condition is not None or kind.keeps[1] or eager or result_time != "latest":
        raise TopologyError(
            f"operator {name!r} joins {other!r:.100} within a window of time, which needs two streams: "
            "give a KStream, or leave out before, after, within, condition and result_time for a table"
        )
    if not isinstance(other, handles.table):
        raise TopologyError(f"operator {name!r} joins {other!r:.100}; the right side must be a KTable")
    rows: TableFlow = other._rows
    return joined_with_table(flow, rows, joiner, value, name, left=kind.keeps[0], grace=bounds.grace)


def _joined_with_stream(
    flow: Flow,
    other: Flow,
    kind: JoinKind,
    joiner: Any,
    bounds: JoinWindow,
    condition: Any,
    result_time: ResultTime,
    value: Any,
    name: str,
    *,
    eager: bool,
) -> Flow:
    wiring, keeps = flow.wiring, kind.keeps
    before_ms, after_ms, grace_ms = _bounds(bounds, name)
    left, right = wiring.by_key(flow), wiring.by_key(other)
    checked = join_function(joiner, name, (left, right), nulls=(keeps[1], keeps[0]), into=value)
    _check_keys(left, right, name)
    wiring.check_together((left, right), name)
    watermarked = left.watermarked or right.watermarked
    keep_ms = buffer_retention_ms(before_ms, after_ms, grace_ms)
    if watermarked:
        keep_ms = watermark_retention_ms(before_ms, after_ms)
    stores = join_stores(name, (left.key, right.key), (left.value, right.value), keep_ms)
    spec = StreamStreamJoinSpec(
        stores=(*stores, timer_store(f"{name}-unmatched")) if any(keeps) and not eager else stores,
        joiner=checked,
        before_ms=before_ms,
        after_ms=after_ms,
        grace_ms=grace_ms,
        keeps=keeps,
        condition=None if condition is None else join_function(condition, name, (left, right), condition=True),
        eager=eager,
        result_time=result_time,
        uses_watermark=watermarked,
    )
    wiring.add_ports(name, spec, {"left": left, "right": right})
    behind = left.behind(name, port="out", value=result_serde(checked, name, value))
    return dataclasses.replace(behind, watermarked=watermarked)


def joined_as_of(
    flow: Flow,
    other: object,
    joiner: Any,
    *,
    tolerance: Duration,
    grace: Duration,
    direction: Direction,
    left: bool,
    value: Any,
    name: str | None,
) -> Flow:
    """Join each record with the record of ``other`` that is nearest in time."""
    wiring = flow.wiring
    name = wiring.name(flow, "join-as-of", name)
    if direction not in get_args(Direction):
        raise TopologyError(f"operator {name!r}: direction={direction!r}; use backward, forward or nearest")
    tolerance_ms, grace_ms = duration_ms(tolerance), duration_ms(grace)
    mine, theirs = wiring.by_key(flow), wiring.by_key(_other_stream(flow, other, name))
    _check_keys(mine, theirs, name)
    wiring.check_together((mine, theirs), name)
    watermarked = mine.watermarked or theirs.watermarked
    spec = AsOfJoinSpec(
        stores=as_of_stores(name, mine.key, theirs.value, direction, tolerance_ms, grace_ms),
        joiner=check_function(joiner, name),
        direction=direction,
        tolerance_ms=tolerance_ms,
        grace_ms=grace_ms,
        left_value=mine.value,
        left=left,
        uses_watermark=watermarked,
    )
    wiring.add_ports(name, spec, {"left": mine, "right": theirs})
    return dataclasses.replace(mine.behind(name, value=value), watermarked=watermarked)


def joined_all(
    flow: Flow,
    others: Sequence[object],
    joiner: Any,
    *,
    within: Duration,
    grace: Duration,
    value: Any,
    name: str | None,
) -> Flow:
    """Join every combination of one record per stream with equal keys and near in time."""
    wiring = flow.wiring
    name = wiring.name(flow, "join-all", name)
    if not others:
        raise TopologyError(f"operator {name!r} joins nothing; give at least one other stream")
    flows = [wiring.by_key(f) for f in (flow, *(_other_stream(flow, o, name) for o in others))]
    for other in flows[1:]:
        _check_keys(flows[0], other, name)
    wiring.check_together(flows, name)
    within_ms, grace_ms = duration_ms(within), duration_ms(grace)
    watermarked = any(f.watermarked for f in flows)
    ports = tuple(f"in{i}" for i in range(len(flows)))
    kept_ms = max(within_ms + grace_ms, 1)
    spec = MultiStreamJoinSpec(
        in_ports=ports,
        stores=tuple(
            StoreSpec(f"{name}-{p}", "list", f.key, f.value, retention_ms=kept_ms)
            for p, f in zip(ports, flows, strict=True)
        ),
        joiner=check_function(joiner, name),
        within_ms=within_ms,
        grace_ms=grace_ms,
        uses_watermark=watermarked,
    )
    wiring.add_ports(name, spec, dict(zip(ports, flows, strict=True)))
    return dataclasses.replace(flows[0].behind(name, value=value), watermarked=watermarked)


def _other_stream(flow: Flow, other: object, name: str) -> Flow:
    if not isinstance(other, flow.wiring.handles.stream):
        raise TopologyError(f"operator {name!r} joins {other!r:.100}; the other side must be a KStream")
    return other._flow


def _bounds(bounds: JoinWindow, name: str) -> tuple[int, int, int]:
    within_ms = None if bounds.within is None else duration_ms(bounds.within)
    before_ms = within_ms if bounds.before is None else offset_ms(bounds.before)
    after_ms = within_ms if bounds.after is None else offset_ms(bounds.after)
    if before_ms is None or after_ms is None:
        raise TopologyError(
            f"operator {name!r} joins two streams without a bound, which would keep both forever; give within=, or "
            "before= and after="
        )
    if bounds.grace is None:
        raise TopologyError(
            f"operator {name!r} joins two streams and needs grace=: how long after its window a record may still "
            "come; every choice loses either late records or memory (grace=0 takes none)"
        )
    if before_ms + after_ms < 0:
        raise TopologyError(
            f"operator {name!r}: the window from {-before_ms} to {after_ms} ms is empty; no pair can ever match in it"
        )
    return before_ms, after_ms, duration_ms(bounds.grace)


def _check_keys(left: Flow, right: Flow, name: str) -> None:
    if left.key.name != right.key.name:
        raise TopologyError(
            f"operator {name!r}: keys of {left.out!r} are {left.key.name}, those of {right.out!r} are {right.key.name}, "
            "so they would never match; convert one with select_key(…, key=…)"
        )
