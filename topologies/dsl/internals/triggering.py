"""Windows with triggers: the options of ``triggered``, and the operator. See
``penstock.topologies.operators.windows.triggered_windows`` for the semantics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NoReturn, get_args

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, INT, JSON, Serde
from penstock.state.serdes.window_keys import spanning_serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.expression_aggregates import aggregator_of_one
from penstock.topologies.dsl.typed import aggregate_of, options_and_parts, scope_of_flow, serde_of_type
from penstock.topologies.dsl.wiring import Flow, as_serde, check_function, serde_of_aggregates
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.edge_kinds import ANY_KIND, Emits
from penstock.topologies.operators.aggregates.fold import COUNTING, Fold
from penstock.topologies.operators.base.store_timers import timer_store
from penstock.topologies.operators.records import stateless
from penstock.topologies.operators.windows.trigger_state import list_serde, state_serde
from penstock.topologies.operators.windows.triggered_windows import (
    Accumulation,
    Closing,
    Combiner,
    LateBy,
    TriggeredWindowsSpec,
)
from penstock.topologies.operators.windows.window_operator_choice import key_serde
from penstock.topologies.triggers import Trigger
from penstock.topologies.windows import (
    CustomWindows,
    SessionWindows,
    SpanWindows,
    Windows,
    duration_ms,
)

UNLIMITED = "unlimited"
_EMITS: dict[str, Emits] = {
    "discarding": "insert",
    "accumulating": "upsert",
    "accumulating_and_retracting": "retract",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Triggering:
    """How panes are emitted: see ``WindowedKStream.triggered``."""

    windows: Windows
    trigger: Trigger
    accumulation: Accumulation
    allowed_lateness_ms: int | None
    combiner: Combiner
    closing: Closing
    late_by: LateBy
    tombstones: bool


def triggering(windows: Windows | None, trigger: object, what: str, **options: Any) -> Triggering:
    """Check the options of ``triggered``. Raises ``TopologyError`` that begins with ``what``."""
    if not isinstance(windows, (SpanWindows, SessionWindows, CustomWindows)):
        seen = "no windows" if windows is None else windows.describe()
        raise TopologyError(
            f"{what}: there are {seen}; call windowed_by(…) before it, with tumbling, hopping, calendar, session, custom "
            "or global windows"
        )
    if not isinstance(trigger, Trigger):
        raise TopologyError(f"{what}: {trigger!r:.100} is not a trigger; use after_watermark(), after_count(100), …")
    for name, known in (
        ("accumulation", Accumulation),
        ("closing", Closing),
        ("late_by", LateBy),
        ("timestamp_combiner", Combiner),
    ):
        if options[name] is not None and options[name] not in get_args(known):
            allowed = ", ".join(map(repr, get_args(known)))
            raise TopologyError(f"{what}: {name}={options[name]!r:.60} is unknown; use one of {allowed}")
    lateness = options["allowed_lateness"]
    lateness_ms = windows.grace_ms if lateness is None else None if lateness == UNLIMITED else duration_ms(lateness)
    if windows.time == "processing" and lateness_ms:
        raise TopologyError(f"{what}: windows in processing time have no late records; leave allowed_lateness out")
    if trigger.purges and options["accumulation"] not in (None, "discarding"):
        raise TopologyError(
            f"{what}: purging(…) empties the window, so panes cannot be {options['accumulation']}; leave accumulation "
            "out, or purging"
        )
    endless = windows.endless
    return Triggering(
        windows=windows,
        trigger=trigger,
        accumulation="discarding" if trigger.purges else options["accumulation"] or "accumulating",
        allowed_lateness_ms=lateness_ms,
        combiner=options["timestamp_combiner"] or ("latest" if endless else "end_of_window"),
        closing=options["closing"],
        late_by=options["late_by"],
        tombstones=options["tombstones"],
    )


def refuse_trigger(flow: Flow, trigger: object, *, has_ttl: bool) -> NoReturn:
    """Raise ``TopologyError`` for a trigger on records without windows."""
    what = f"triggered on {flow.out!r}"
    if has_ttl:
        raise TopologyError(f"{what}: triggers and a ttl exclude each other; leave the ttl out")
    triggering(None, trigger, what)
    raise AssertionError("no windows are refused")


def counted(flow: Flow, how: Triggering, name: str | None) -> Flow:
    """Count the records."""
    return _add(flow, how, flow.wiring.name(flow, "count", name), COUNTING, INT, INT)


def reduced(flow: Flow, how: Triggering, fn: Any, name: str | None) -> Flow:
    """Fold the values with ``fn(aggregate, value)``."""
    name = flow.wiring.name(flow, "reduce", name)
    check_function(fn, name)
    fold = Fold(adders=(lambda key, value, aggregate: fn(aggregate, value),), merger=lambda key, a, b: fn(a, b))
    return _add(flow, how, name, fold, flow.value, flow.value)


def aggregated(
    flow: Flow, how: Triggering, init: Any, adder: Any, *, value: Any, merger: Any, name: str | None
) -> Flow:
    """Fold the records with ``adder(key, value, aggregate)`` or a ready aggregate."""
    name = flow.wiring.name(flow, "aggregate", name)
    if isinstance(init, Expression):
        init, tp = aggregator_of_one(init, scope_of_flow(flow), operator=name)
        value = serde_of_type(tp) if value is None else value
    if isinstance(init, Aggregator):
        return _ready(flow, how, name, init, value)
    serde = serde_of_aggregates(value, name)
    if merger is not None:
        check_function(merger, name)
    fold = Fold(adders=(check_function(adder, name),), init=check_function(init, name), merger=merger)
    return _add(flow, how, name, fold, serde, serde)


def aggregated_parts(flow: Flow, how: Triggering, value: Any, name: Any, parts: Mapping[str, Any]) -> Flow:
    """Compute several ready aggregates at once."""
    (name, value), named = options_and_parts({"name": name, "value": value}, parts)
    name = flow.wiring.name(flow, "agg", name)
    made, shown = aggregate_of(named, name, flow, value)
    return _ready(flow, how, name, made, shown)


def listed(flow: Flow, how: Triggering, value: Any, name: str | None) -> Flow:
    """Collect the values in order of arrival."""
    name = flow.wiring.name(flow, "to-list", name)
    write, read = flow.value.serialize, flow.value.deserialize

    def add(key: Any, one: Any, gathered: list[bytes]) -> list[bytes]:
        gathered.append(write(one))
        return gathered

    fold = Fold(
        adders=(add,),
        init=list,
        merger=lambda key, a, b: a + b,
        result=lambda gathered: [read(one) for one in gathered],
    )
    shown = JSON if value is None else as_serde(value, f"the lists of operator {name!r}")
    return _add(flow, how, name, fold, list_serde(flow.value), shown)


def late_records(records: Flow, panes: str) -> Flow:
    """Return the late records of the operator ``panes``, which reads ``records``."""
    name = f"{panes}-late"
    # late records are facts, whatever the panes are
    spec = dataclasses.replace(stateless.MergeSpec(), emits="insert", accepts=ANY_KIND)
    late = dataclasses.replace(records, operator=panes, port="late")
    late.wiring.add(name, spec, late)
    return dataclasses.replace(late, operator=name, port=None)


def _ready(flow: Flow, how: Triggering, name: str, of: Aggregator, value: Any) -> Flow:
    shown = of.result_serde if value is None else as_serde(value, f"the results of operator {name!r}")
    add, merge = of.add, of.merge
    fold = Fold(
        adders=(lambda key, timed, acc: add(acc, timed[0], timed[1]),),
        init=of.init,
        timed=True,
        merger=None if merge is None else lambda key, a, b: merge(a, b),
        result=of.result,
    )
    return _add(flow, how, name, fold, of.serde, shown)


def _add(flow: Flow, how: Triggering, name: str, fold: Fold, value: Serde[Any], shown: Serde[Any]) -> Flow:
    windows = how.windows
    if windows.merging and fold.merger is None:
        raise TopologyError(
            f"operator {name!r}: windows of {windows.describe()} merge, but their aggregates have no merge; "
            "give merger(key, a, b), or an aggregate that has a merge"
        )
    clocked = windows.time == "processing" or how.trigger.uses_wall_time
    spec = TriggeredWindowsSpec(
        stores=(
            StoreSpec(name, "key_value", BYTES, state_serde(value)),
            timer_store(f"{name}-event-timers"),
            timer_store(f"{name}-wall-timers"),
        ),
        uses_watermark=windows.time == "event",
        uses_wall_time=clocked,
        reads_wall_time=clocked,
        emits=_EMITS[how.accumulation],
        fold=fold,
        windows=windows,
        trigger=how.trigger,
        key_serde=flow.key,
        value_serde=value,
        shown_serde=shown,
        accumulation=how.accumulation,
        allowed_lateness_ms=how.allowed_lateness_ms,
        combiner=how.combiner,
        closing=how.closing,
        late_by=how.late_by,
        tombstones=how.tombstones,
    )
    flow.wiring.add(name, spec, flow)
    keys = key_serde(flow.key, windows) if isinstance(windows, SpanWindows) else spanning_serde(flow.key)
    return dataclasses.replace(flow, operator=name, port="out", key=keys, value=shown, rekeyed=False)
