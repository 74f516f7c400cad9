"""Grouped streams in the DSL: aggregations per key, and the way to windows, triggers and cogroups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, overload

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import SerdeLike
from penstock.state.type_parameters import A, K, V
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.dsl.cogrouped_stream import CogroupedKStream
from penstock.topologies.dsl.internals import cogrouping, grouped
from penstock.topologies.dsl.internals.aggregation import checked_windows
from penstock.topologies.dsl.internals.combining import Grouping
from penstock.topologies.dsl.internals.grouped import EmissionOptions, RecordGroups
from penstock.topologies.dsl.internals.triggering import refuse_trigger
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.dsl.windowed_stream import SessionWindowedKStream, TimeWindowedKStream, WindowedKStream
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.base.row_expiry import checked_ttl
from penstock.topologies.windows import (
    CustomWindows,
    EvictingWindows,
    SessionWindows,
    SlidingWindows,
    SpanWindows,
    Windows,
)
from penstock.topologies.windows.durations import Duration


class KGroupedStream(Generic[K, V]):
    """Records grouped by key. Every aggregation adds one operator with one store, both called ``name``, and returns its
    table. Records with a null key or value are dropped and counted.

    ``emission``: ``every_update``, ``per_commit``, or for windows ``on_close``: one result per window once it is
    closed; ``None``: the builder's. ``late`` (windows): late records go to ``table.late``, and are counted as always.
    ``merge(a, b)`` and ``inverse(a, b)`` (hopping windows): the aggregate of two disjoint sets of records, and ``a``
    without the records of ``b``. They promise that neither the order nor the grouping of records matters, and let
    windows that are emitted on close share the aggregates of their parts. The answer is the same.

    ``combine`` (records that go through a repartition topic): send partial aggregates instead of records, once per key,
    window and commit. ``None``: combine if emission is ``per_commit`` or ``on_close``, the merge is exact (counts, ready
    aggregates that declare it, ``merge=``), and windows are closed by a watermark or by the clock (or, ``per_commit``, have
    a grace of 10 s or more). Of sessions only counts are combined; they and windows in processing time batch by batch.
    Stores and last results are the same; intermediate results are fewer. Partials go through a topic of their own: while
    it holds unread records, a worker refuses to start with ``combine`` switched on or off.
    """

    def __init__(self, grouping: Grouping, ttl_ms: int | None = None) -> None:
        self._groups = RecordGroups(grouping, ttl_ms=ttl_ms)

    # -- how records are grouped -----------------------------------------------------------------------------

    def with_ttl(self, ttl: Duration) -> KGroupedStream[K, V]:
        """Delete aggregates ``ttl`` of stream time after their latest record: a tombstone goes downstream and to the
        changelog, and the key starts from ``init()`` with its next record. Records older than that, of a key without an
        aggregate, are dropped and counted as late."""
        grouping = self._groups.grouping
        return KGroupedStream(grouping, ttl_ms=checked_ttl(ttl, f"group of {grouping.flow.out}"))

    def split(self, ways: int) -> KGroupedStream[K, V]:
        """Aggregate each key's records under ``ways`` sub-keys in parallel, in ``per_commit`` or ``on_close`` emission,
        and merge the partial aggregates in one task. Use it for keys too heavy for one task. The merge must be exact,
        and windows must be closed by a watermark or never. The answer is the same; every record goes through one more
        topic. Cheap folds after a repartition topic (counts, sums) do not need it: combining already leaves one partial
        per key and commit."""
        return KGroupedStream(self._groups.grouping.split(ways), self._groups.ttl_ms)

    @overload
    def windowed_by(
        self, windows: SessionWindows, *, retention: Duration | None = None
    ) -> SessionWindowedKStream[K, V]: ...

    @overload
    def windowed_by(
        self,
        windows: SpanWindows | SlidingWindows | EvictingWindows | CustomWindows,
        *,
        retention: Duration | None = None,
    ) -> TimeWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: Windows, *, retention: Duration | None = None) -> WindowedKStream[K, V]: ...

    def windowed_by(self, windows: Windows, *, retention: Duration | None = None) -> WindowedKStream[K, V]:
        """Aggregate per key and window; the tables' keys are then ``Windowed``. ``retention``: how long a window can be
        read after its start. At least, and by default, as long as it takes records; the default is a day more if the
        table is joined with another table."""
        groups = self._groups
        what = f"windowed_by on {groups.grouping.flow.out!r}"
        checked, retention_ms = checked_windows(windows, retention, what)
        if groups.ttl_ms is not None:
            raise TopologyError(
                f"{what}: the stream is windowed already, or has a ttl; call windowed_by once, without a ttl"
            )
        windowed = RecordGroups(groups.grouping, checked, retention_ms)
        return (
            SessionWindowedKStream(windowed) if isinstance(checked, SessionWindows) else TimeWindowedKStream(windowed)
        )

    def cogroup(self, adder: Callable[[K, V, A], A | None]) -> CogroupedKStream[K, A]:
        """Aggregate several grouped streams into one table; ``adder(key, value, aggregate)`` takes this stream's
        records."""
        return CogroupedKStream(cogrouping.begun(self._groups, adder))

    # -- aggregations ----------------------------------------------------------------------------------------

    def count(
        self,
        *,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
    ) -> KTable[K, int]:
        """Count the records per key. Values are longs."""
        return KTable(grouped.counted(self._groups, name, EmissionOptions(emission, late, combine)).table)

    def reduce(
        self,
        fn: Callable[[V, V], V | None],
        *,
        inverse: Callable[[V, V], V] | None = None,
        merge: Callable[[V, V], V] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
    ) -> KTable[K, V]:
        """Fold the values with ``fn(aggregate, value)``; a key's first value is its first aggregate. ``inverse``
        promises that ``fn`` is its own ``merge`` (DStreams' reduceByWindow)."""
        how = EmissionOptions(emission, late, combine)
        return KTable(grouped.reduced(self._groups, fn, inverse, merge, name, how).table)

    def aggregate(
        self,
        init: Callable[[], A] | Aggregator[A, V] | Expression,
        adder: Callable[[K, V, A], A | None] | None = None,
        *,
        value: SerdeLike[A] | None = None,
        merger: Callable[[K, A, A], A] | None = None,
        merge: Callable[[A, A], A] | None = None,
        inverse: Callable[[A, A], A] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
        approximate: bool = False,
    ) -> KTable[K, A]:
        """Fold the records with ``adder(key, value, aggregate)``, from ``init()``; ``None`` deletes the key.
        ``value`` is the aggregate's serde, and is required. ``merger(key, a, b)`` merges two sessions.

        Or give a ready aggregate, or an expression over aggregates only: ``aggregate(mean("price"))``,
        ``aggregate(col("price").sum())``. The store then holds accumulators. ``approximate``: allow combining even if
        the merge is not exact (floats, randomised sketches); the last digits then depend on commits."""
        made = grouped.aggregated(
            self._groups,
            init,
            adder,
            value=value,
            merger=merger,
            merge=merge,
            inverse=inverse,
            name=name,
            how=EmissionOptions(emission, late, combine),
            approximate=approximate,
        )
        return KTable(made.table)

    def agg(
        self,
        *,
        value: SerdeLike[A] | Aggregator[Any, V] | Expression | None = None,
        name: str | Aggregator[Any, V] | Expression | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
        approximate: bool = False,
        **parts: Aggregator[Any, V] | Expression,
    ) -> KTable[K, A]:
        """Compute several ready aggregates at once, or expressions over aggregates: ``agg(total=sum_("price"),
        n=count())``, ``agg(mean=col("price").sum() / count())``. Values are dicts, or, for expressions only, instances
        of the Struct or dataclass that ``value`` names. If an aggregate is given for ``name`` or ``value``, it is a
        result of that name."""
        how = EmissionOptions(emission, late, combine)
        made = grouped.aggregated_parts(self._groups, value, name, how, parts, approximate=approximate)
        return KTable(made.table)

    if not TYPE_CHECKING:  # type checkers see it on windowed streams only

        def triggered(self, trigger: object, **options: object) -> NoReturn:
            """Refuse a trigger without windows."""
            refuse_trigger(self._groups.grouping.sent, trigger, has_ttl=self._groups.ttl_ms is not None)
