"""Windows with triggers in the DSL.

    fives = clicks.group_by_key().windowed_by(tumbling("5m", grace="0s"))
    panes = fives.triggered(
        after_watermark(early=after_processing_time("30s"), late=after_count(1)), allowed_lateness="1h"
    ).count()
    panes.to("clicks-per-5m")
    panes.late.to("clicks-too-late")

The records of a result are panes: ``pane_of(headers)`` says which. See
``penstock.topologies.operators.windows.triggered_windows`` for the semantics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_args

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, INT, JSON, Serde
from penstock.state.serdes.window_keys import spanning_serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.expression_aggregates import aggregator_of_one
from penstock.topologies.dsl.stream import KStream
from penstock.topologies.dsl.typed import aggregate_of, options_and_parts, scope_of_flow, serde_of_type
from penstock.topologies.dsl.wiring import Flow, as_serde, check_function
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
    GlobalWindow,
    SessionWindows,
    SpanWindows,
    UnlimitedWindows,
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
    """How panes are made: see ``KGroupedStream.triggered``."""

    windows: Windows
    trigger: Trigger
    accumulation: Accumulation
    allowed_lateness_ms: int | None
    combiner: Combiner
    closing: Closing
    late_by: LateBy
    tombstones: bool


def triggering(windows: Windows | None, trigger: object, what: str, **options: Any) -> Triggering:
    """The options of ``triggered``, checked. Raises ``TopologyError`` that begins with ``what``."""
    if not isinstance(windows, (SpanWindows, SessionWindows, CustomWindows)):
        seen = "no windows" if windows is None else windows.describe()
        raise TopologyError(
            f"{what}: there are {seen}; call windowed_by(…) before it, with tumbling, hopping, calendar, session, custom "
            "or global windows"
        )
    if not isinstance(trigger, Trigger):
        raise TopologyError(f"{what}: {trigger!r:.100} is no trigger; use after_watermark(), after_count(100), …")
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
    endless = isinstance(windows, (GlobalWindow, UnlimitedWindows))
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


class TriggeredStream(KStream):
    """The panes: a stream whose keys are ``Windowed`` (sessions: ``[first, last + gap)``)."""

    def __init__(self, flow: Flow, late: Flow) -> None:
        super().__init__(flow)
        self._late = late
        self._late_stream: KStream | None = None

    @property
    def late(self) -> KStream:
        """The records that came after all their windows had closed, as they were."""
        if self._late_stream is None:
            name = f"{self.name}-late"
            # they are facts, whatever panes are
            spec = dataclasses.replace(stateless.MergeSpec(), emits="insert", accepts=ANY_KIND)
            self._late.wiring.add(name, spec, self._late)
            self._late_stream = KStream(dataclasses.replace(self._late, operator=name, port=None))
        return self._late_stream


class KTriggeredStream:
    """A grouped stream in windows with a trigger. Every method adds one operator, with the stores ``name``,
    ``name-event-timers`` and ``name-wall-timers``, and returns its panes. Records with a null key or value are dropped and
    counted."""

    def __init__(self, flow: Flow, how: Triggering) -> None:
        self._flow = flow
        self._how = how

    def count(self, *, name: str | None = None) -> TriggeredStream:
        """The number of records. Values are longs."""
        return self._add(self._name("count", name), COUNTING, INT, INT)

    def reduce(self, fn: Callable[[Any, Any], Any], *, name: str | None = None) -> TriggeredStream:
        """``fn(aggregate, value)`` over the values; the first is the first aggregate. Of windows that merge: ``fn`` of
        their aggregates. Empty panes are not emitted."""
        name = self._name("reduce", name)
        check_function(fn, name)
        fold = Fold(adders=(lambda key, value, aggregate: fn(aggregate, value),), merger=lambda key, a, b: fn(a, b))
        return self._add(name, fold, self._flow.value, self._flow.value)

    def aggregate(
        self,
        init: Callable[[], Any] | Aggregator | Expression,
        adder: Callable[[Any, Any, Any], Any] | None = None,
        *,
        value: Any = None,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        name: str | None = None,
    ) -> TriggeredStream:
        """``adder(key, value, aggregate)`` over the records, from ``init()``; ``value``: the serde of aggregates;
        ``merger(key, a, b)``: of windows that merge. Or a ready aggregate or an expression over aggregates alone:
        ``aggregate(mean("price"))``, ``aggregate(col("price").sum())``."""
        name = self._name("aggregate", name)
        if isinstance(init, Expression):
            init, tp = aggregator_of_one(init, scope_of_flow(self._flow), operator=name)
            value = serde_of_type(tp) if value is None else value
        if isinstance(init, Aggregator):
            return self._ready(name, init, value)
        if value is None:
            raise TopologyError(
                f"operator {name!r}: the serde of its aggregates is unknown; name it: aggregate(…, value=int)"
            )
        serde = as_serde(value, f"the aggregates of operator {name!r}")
        if merger is not None:
            check_function(merger, name)
        fold = Fold(adders=(check_function(adder, name),), init=check_function(init, name), merger=merger)
        return self._add(name, fold, serde, serde)

    def agg(self, *, value: Any = None, name: str | None = None, **parts: Aggregator | Expression) -> TriggeredStream:
        """Several ready aggregates at once, or expressions over aggregates; values are dicts:
        ``agg(total=sum_("price"), n=count())``."""
        (name, value), named = options_and_parts({"name": name, "value": value}, parts)
        name = self._name("agg", name)
        made, shown = aggregate_of(named, name, self._flow, value)
        return self._ready(name, made, shown)

    def to_list(self, *, value: Any = None, name: str | None = None) -> TriggeredStream:
        """The values, in order of arrival (of windows that merge: the earlier window's first). ``value``: the serde of
        the lists, JSON unless given."""
        name = self._name("to-list", name)
        write, read = self._flow.value.serialize, self._flow.value.deserialize

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
        return self._add(name, fold, list_serde(self._flow.value), shown)

    def _name(self, kind: str, name: str | None) -> str:
        return self._flow.wiring.name(self._flow, kind, name)

    def _ready(self, name: str, of: Aggregator, value: Any) -> TriggeredStream:
        shown = of.result_serde if value is None else as_serde(value, f"the results of operator {name!r}")
        add, merge = of.add, of.merge
        fold = Fold(
            adders=(lambda key, timed, acc: add(acc, timed[0], timed[1]),),
            init=of.init,
            timed=True,
            merger=None if merge is None else lambda key, a, b: merge(a, b),
            result=of.result,
        )
        return self._add(name, fold, of.serde, shown)

    def _add(self, name: str, fold: Fold, value: Serde[Any], shown: Serde[Any]) -> TriggeredStream:
        flow, how = self._flow, self._how
        if how.windows.merging and fold.merger is None:
            raise TopologyError(
                f"operator {name!r}: windows of {how.windows.describe()} merge, and nothing says how their aggregates do; "
                "give merger(key, a, b), or an aggregate that has a merge"
            )
        clocked = how.windows.time == "processing" or how.trigger.uses_wall_time
        spec = TriggeredWindowsSpec(
            stores=(
                StoreSpec(name, "key_value", BYTES, state_serde(value)),
                timer_store(f"{name}-event-timers"),
                timer_store(f"{name}-wall-timers"),
            ),
            uses_watermark=how.windows.time == "event",
            uses_wall_time=clocked,
            reads_wall_time=clocked,
            emits=_EMITS[how.accumulation],
            fold=fold,
            windows=how.windows,
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
        windows = how.windows
        keys = key_serde(flow.key, windows) if isinstance(windows, SpanWindows) else spanning_serde(flow.key)
        late = dataclasses.replace(flow, operator=name, port="late")
        return TriggeredStream(dataclasses.replace(late, port="out", key=keys, value=shown, rekeyed=False), late)
