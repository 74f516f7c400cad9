"""Aggregations in the DSL: of a grouped stream, or of several, per key, and per key and window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import INT, taking_dicts
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.expression_aggregates import aggregator_of_one
from penstock.topologies.dsl.aggregation import add_aggregation, checked_windows
from penstock.topologies.dsl.cogrouped import CogroupedKStream
from penstock.topologies.dsl.combining import Grouping, input_of
from penstock.topologies.dsl.table import KTable
from penstock.topologies.dsl.typed import aggregate_of, options_and_parts, scope_of_flow, serde_of_type
from penstock.topologies.dsl.wiring import Flow, as_emission, as_serde, check_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates.fold import COUNTING, Aggregation, Fold
from penstock.topologies.operators.base.row_expiry import checked_ttl
from penstock.topologies.triggers import Trigger
from penstock.topologies.windows import Windows

if TYPE_CHECKING:
    from penstock.topologies.dsl.triggered import KTriggeredStream


class KGroupedStream:
    """Records with equal keys in one partition. Every method adds one operator with one store, both called
    ``name``, and returns its table. Records with a null key or a null value are dropped and counted.

    ``emission``: ``every_update``, ``per_commit``, or for windows ``on_close``: one result per window once it takes no
    more records; ``None``: the builder's. ``late`` (windows): late records go to ``table.late``, beside being counted.
    ``merge(a, b)`` and ``inverse(a, b)`` (hopping windows): the aggregate of two disjoint sets of records, and a without
    the records of b. They promise that neither the order nor the grouping of records matters, and let windows that are
    emitted on close share the aggregates of their parts. The answer is the same.

    ``combine`` (records that go through a repartition topic): send partial aggregates instead of records, once per key,
    window and commit. ``None``: where emission is ``per_commit``, the merge is exact (counts, ready aggregates that say so,
    ``merge=``), and windows are closed by a watermark or have a grace of 10 s or more. Stores and last results are the same;
    intermediate results are fewer. Partials go through a topic of their own: while that holds unread
    records, a worker refuses to start with it switched on or off.
    """

    def __init__(
        self,
        grouping: Grouping,
        windows: Windows | None = None,
        retention_ms: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        self._grouping = grouping
        self._windows = windows
        self._retention_ms = retention_ms
        self._ttl_ms = ttl_ms

    @property
    def _flow(self) -> Flow:
        """The records, with equal keys in one partition."""
        return self._grouping.sent

    def with_ttl(self, ttl: int | str) -> KGroupedStream:
        """Aggregates live for ``ttl`` of stream time after their latest record, then are deleted: a tombstone goes
        downstream and to the changelog, and the key starts anew with its next record. Records that are older than that,
        of a key without an aggregate, are dropped and counted as late."""
        if self._windows is not None:
            raise TopologyError(f"with_ttl on {self._grouping.flow.out!r}: windows end by themselves; leave ttl out")
        return KGroupedStream(self._grouping, ttl_ms=checked_ttl(ttl, f"group of {self._grouping.flow.out}"))

    def split(self, ways: int) -> KGroupedStream:
        """Aggregate each key's records under ``ways`` sub-keys beside each other, in ``per_commit`` or ``on_close``
        emission, and merge the partial aggregates in one task: for keys so heavy that one task cannot fold all their
        records. The merge must be exact, and windows must be closed by a watermark or never. The answer is the same; every
        record goes through one topic more. Cheap folds before which a repartition topic stands anyway (counts, sums) do
        not need it: combining leaves one partial per commit of any key."""
        return KGroupedStream(self._grouping.split(ways), self._windows, self._retention_ms, self._ttl_ms)

    def windowed_by(self, windows: Windows, *, retention: int | str | None = None) -> KGroupedStream:
        """Aggregate per key and window; the tables' keys are then ``Windowed``. ``retention``: how long a
        window can be read after it started (at least, and by default, as long as it takes records; a day longer where the
        table is joined with another one)."""
        what = f"windowed_by on {self._grouping.flow.out!r}"
        checked, retention_ms = checked_windows(windows, retention, what)
        if self._windows is not None or self._ttl_ms is not None:
            raise TopologyError(f"{what}: the stream is windowed already, or has a ttl; call windowed_by once, alone")
        return KGroupedStream(self._grouping, checked, retention_ms)

    def triggered(
        self,
        trigger: Trigger,
        *,
        accumulation: Literal["discarding", "accumulating", "accumulating_and_retracting"] | None = None,
        allowed_lateness: int | str | None = None,
        timestamp_combiner: Literal["earliest", "latest", "end_of_window"] | None = None,
        closing: Literal["fire_if_fresh", "fire_always", "discard"] = "fire_if_fresh",
        late_by: Literal["merged", "record"] = "merged",
        tombstones: bool = True,
    ) -> KTriggeredStream:
        """Emit the windows' panes when a trigger says so, in event time by the watermark. ``accumulation``: what a later
        pane of a window holds (``None``: accumulating, of a purging trigger discarding). ``allowed_lateness``: how long
        after its end a window still takes records (``None``: the windows' grace; ``"unlimited"``).
        ``timestamp_combiner``: the time of a pane (``None``: the end of the window; of windows without one the latest).
        ``closing``: whether a window that closes emits what no pane has shown. ``late_by``: what decides that a record of
        merging windows is late, the merged window or the record's own. ``tombstones``: accumulating panes of merged
        windows delete those of their members."""
        from penstock.topologies.dsl.triggered import KTriggeredStream, triggering  # which is built on streams

        if self._ttl_ms is not None:
            raise TopologyError(
                f"triggered on {self._flow.out!r}: what triggers decide about takes no ttl; leave it out"
            )
        how = triggering(
            self._windows,
            trigger,
            f"triggered on {self._flow.out!r}",
            accumulation=accumulation,
            allowed_lateness=allowed_lateness,
            timestamp_combiner=timestamp_combiner,
            closing=closing,
            late_by=late_by,
            tombstones=tombstones,
        )
        return KTriggeredStream(self._flow, how)

    def count(
        self,
        *,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
    ) -> KTable:
        """The number of records per key. Values are longs."""
        name = self._name("count", name)
        return self._add(name, INT, emission, late, COUNTING, combine)

    def reduce(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        inverse: Callable[[Any, Any], Any] | None = None,
        merge: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
    ) -> KTable:
        """``fn(aggregate, value)`` over the values; a key's first value is its first aggregate. ``inverse`` promises
        that ``fn`` is its own ``merge`` (DStreams' reduceByWindow)."""
        name = self._name("reduce", name)
        _check_functions(name, fn, inverse, merge)
        fold = Fold(
            adders=(lambda key, value, aggregate: fn(aggregate, value),),
            merger=lambda key, a, b: fn(a, b),
            merge=fn if inverse is not None and merge is None else merge,
            inverse=inverse,
        )
        return self._add(name, self._grouping.flow.value, emission, late, fold, combine)

    def aggregate(
        self,
        init: Callable[[], Any] | Aggregator | Expression,
        adder: Callable[[Any, Any, Any], Any] | None = None,
        *,
        value: Any = None,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        merge: Callable[[Any, Any], Any] | None = None,
        inverse: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
        approximate: bool = False,
    ) -> KTable:
        """``adder(key, value, aggregate)`` over the records, from ``init()``; ``None`` deletes the key.
        ``value`` is the aggregate's serde, which must be named. ``merger(key, a, b)``: of two sessions that meet.

        Or a ready aggregate or an expression over aggregates alone: ``aggregate(mean("price"))``,
        ``aggregate(col("price").sum())``. The store then holds accumulators. ``approximate``: it may be combined even
        where its merge is not exact (floats, randomised sketches), so that its last digits depend on commits."""
        name = self._name("aggregate", name)
        if isinstance(init, Expression):
            init, tp = aggregator_of_one(init, scope_of_flow(self._grouping.flow), operator=name)
            value = serde_of_type(tp) if value is None else value
        if isinstance(init, Aggregator):
            return self._ready(name, init, value, emission, late, combine, approximate=approximate)
        if value is None:
            raise TopologyError(
                f"operator {name!r}: the serde of its aggregates is unknown; name it: aggregate(…, value=int)"
            )
        serde = as_serde(value, f"the aggregates of operator {name!r}")
        _check_functions(name, merger, merge, inverse)
        fold = Fold(
            adders=(check_function(adder, name),),
            init=check_function(init, name),
            merger=merger,
            merge=merge,
            inverse=inverse,
        )
        return self._add(name, serde, emission, late, fold, combine)

    def agg(
        self,
        *,
        value: Any = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
        approximate: bool = False,
        **parts: Aggregator | Expression,
    ) -> KTable:
        """Several ready aggregates at once, or expressions over aggregates: ``agg(total=sum_("price"), n=count())``,
        ``agg(mean=col("price").sum() / count())``. Values are dicts; of expressions alone also instances of the Struct or
        dataclass that ``value`` names. An aggregate given for ``name`` or ``value`` is one of that name."""
        (name, value), named = options_and_parts({"name": name, "value": value}, parts)
        name = self._name("agg", name)
        made, shown = aggregate_of(named, name, self._grouping.flow, value)
        return self._ready(name, made, shown, emission, late, combine, approximate=approximate)

    def cogroup(self, adder: Callable[[Any, Any, Any], Any]) -> CogroupedKStream:
        """Aggregate several grouped streams into one table; ``adder(key, value, aggregate)`` is for the records of this
        one."""
        if self._windows is not None or self._ttl_ms is not None:
            raise TopologyError(
                f"cogroup on {self._flow.out!r}: cogroup first, then call windowed_by on the result; it takes no ttl"
            )
        return CogroupedKStream(((self._flow, check_function(adder, f"cogroup of {self._flow.out}")),))

    def _name(self, kind: str, name: str | None) -> str:
        return self._grouping.flow.wiring.name(self._grouping.flow, kind, name)

    def _ready(
        self,
        name: str,
        of: Aggregator,
        value: Any,
        emission: Emission | None,
        late: bool,
        combine: bool | None,
        *,
        approximate: bool,
    ) -> KTable:
        shown = of.result_serde if value is None else taking_dicts(as_serde(value, f"the results of operator {name!r}"))
        add, merge = of.add, of.merge
        fold = Fold(
            adders=(lambda key, timed, acc: add(acc, timed[0], timed[1]),),
            init=of.init,
            timed=True,
            merger=None if merge is None else lambda key, a, b: merge(a, b),
            merge=merge if of.exact_merge and not of.ordered else None,
            inverse=of.subtract if of.exact_merge and not of.ordered else None,
            result=of.result,
            parts=of.parts,
        )
        request = dataclasses.replace(self._request(name, of.serde, emission, late, fold), shown_serde=shown)
        partly = merge if not of.ordered and (of.exact_merge or approximate) else None
        flow, request = input_of(self._grouping, request, combine, partly)
        return add_aggregation((flow,), request)

    def _add(
        self, name: str, value: Any, emission: Emission | None, late: bool, fold: Fold, combine: bool | None
    ) -> KTable:
        flow, request = input_of(self._grouping, self._request(name, value, emission, late, fold), combine, fold.merge)
        return add_aggregation((flow,), request)

    def _request(self, name: str, value: Any, emission: Emission | None, late: bool, fold: Fold) -> Aggregation:
        flow = self._grouping.flow
        return Aggregation(
            name=name,
            key=flow.key,
            value=value,
            shown_serde=value,
            emission=flow.wiring.emission if emission is None else as_emission(emission, f"operator {name!r}"),
            fold=fold,
            windows=self._windows,
            retention_ms=self._retention_ms,
            record=flow.value,
            late=late,
            by_watermark=flow.watermarked,
            ttl_ms=self._ttl_ms,
        )


def _check_functions(name: str, *functions: Callable[..., Any] | None) -> None:
    for fn in functions:
        if fn is not None:
            check_function(fn, name)
