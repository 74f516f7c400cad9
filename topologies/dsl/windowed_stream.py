"""Grouped streams in windows: the result of ``KGroupedStream.windowed_by``. Their tables have ``Windowed`` keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, overload

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import SerdeLike
from penstock.state.type_parameters import A, K, V
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.dsl.internals import cogrouping, grouped
from penstock.topologies.dsl.internals.aggregation import Aggregated
from penstock.topologies.dsl.internals.grouped import EmissionOptions, RecordGroups
from penstock.topologies.dsl.internals.triggering import triggering
from penstock.topologies.dsl.ktable import WindowedTable
from penstock.topologies.dsl.triggered_stream import KTriggeredStream
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.triggers import Trigger
from penstock.topologies.windows.durations import Duration


class WindowedKStream(Generic[K, V]):
    """The methods of windowed streams with any kind of windows. For the options see ``KGroupedStream``."""

    def __init__(self, groups: RecordGroups) -> None:
        self._groups = groups

    def count(
        self,
        *,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
    ) -> WindowedTable[K, int, V]:
        """Count the records per key and window. Values are longs."""
        return self._table(grouped.counted(self._groups, name, EmissionOptions(emission, late, combine)))

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
    ) -> WindowedTable[K, V, V]:
        """Fold the values with ``fn(aggregate, value)``; a window's first value is its first aggregate. ``inverse``
        promises that ``fn`` is its own ``merge`` (DStreams' reduceByWindow)."""
        return self._table(
            grouped.reduced(self._groups, fn, inverse, merge, name, EmissionOptions(emission, late, combine))
        )

    @overload
    def aggregate(
        self,
        init: Callable[[], A],
        adder: Callable[[K, V, A], A | None],
        *,
        merger: Callable[[K, A, A], A],
        value: SerdeLike[A],
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        merge: Callable[[A, A], A] | None = None,
        inverse: Callable[[A, A], A] | None = None,
        combine: bool | None = None,
        approximate: bool = False,
    ) -> WindowedTable[K, A, V]: ...

    @overload
    def aggregate(
        self,
        init: Aggregator[A, V] | Expression,
        *,
        value: SerdeLike[A] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        combine: bool | None = None,
        approximate: bool = False,
    ) -> WindowedTable[K, A, V]: ...

    def aggregate(
        self,
        init: Callable[[], A] | Aggregator[A, V] | Expression,
        adder: Callable[[K, V, A], A | None] | None = None,
        *,
        merger: Callable[[K, A, A], A] | None = None,
        value: SerdeLike[A] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
        merge: Callable[[A, A], A] | None = None,
        inverse: Callable[[A, A], A] | None = None,
        combine: bool | None = None,
        approximate: bool = False,
    ) -> WindowedTable[K, A, V]:
        """Fold the records of each window with ``adder(key, value, aggregate)``, from ``init()``; ``value`` is the
        aggregate's serde. ``merger(key, a, b)`` merges two windows, as when sessions meet. Or give a ready aggregate,
        or an expression over aggregates only: see ``KGroupedStream.aggregate``."""
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
        return self._table(made)

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
    ) -> WindowedTable[K, A, V]:
        """Compute several ready aggregates at once, or expressions over aggregates: see ``KGroupedStream.agg``."""
        how = EmissionOptions(emission, late, combine)
        return self._table(grouped.aggregated_parts(self._groups, value, name, how, parts, approximate=approximate))

    def triggered(
        self,
        trigger: Trigger,
        *,
        accumulation: Literal["discarding", "accumulating", "accumulating_and_retracting"] | None = None,
        allowed_lateness: Duration | None = None,
        timestamp_combiner: Literal["earliest", "latest", "end_of_window"] | None = None,
        closing: Literal["fire_if_fresh", "fire_always", "discard"] = "fire_if_fresh",
        late_by: Literal["merged", "record"] = "merged",
        tombstones: bool = True,
    ) -> KTriggeredStream[K, V]:
        """Emit the windows' panes when a trigger fires, in event time by the watermark. ``accumulation``: what a later
        pane of a window holds (``None``: accumulating; for a purging trigger discarding). ``allowed_lateness``: how
        long after its end a window still takes records (``None``: the windows' grace; ``"unlimited"``).
        ``timestamp_combiner``: the time of a pane (``None``: the end of the window; the latest time if it has no end).
        ``closing``: whether a window emits, when it closes, what no pane has shown. ``late_by``: whether the merged
        window or the record's own window decides that a record of merging windows is late. ``tombstones``: accumulating
        panes of merged windows delete the panes of their members."""
        flow = self._groups.grouping.sent
        how = triggering(
            self._groups.windows,
            trigger,
            f"triggered on {flow.out!r}",
            accumulation=accumulation,
            allowed_lateness=allowed_lateness,
            timestamp_combiner=timestamp_combiner,
            closing=closing,
            late_by=late_by,
            tombstones=tombstones,
        )
        return KTriggeredStream(flow, how)

    def _table(self, made: Aggregated) -> WindowedTable[K, Any, V]:
        assert self._groups.windows is not None
        return WindowedTable(made, self._groups.windows)

    if not TYPE_CHECKING:  # type checkers see that these methods do not exist

        def windowed_by(self, *_: object, **__: object) -> NoReturn:
            """Refuse a second call."""
            raise TopologyError(
                f"windowed_by on {self._groups.grouping.flow.out!r}: the stream is windowed already, or has a ttl; call "
                "windowed_by once, without a ttl"
            )

        def with_ttl(self, *_: object, **__: object) -> NoReturn:
            """Refuse a ttl."""
            raise TopologyError(
                f"with_ttl on {self._groups.grouping.flow.out!r}: windows expire by themselves; leave the ttl out"
            )

        def cogroup(self, adder: object) -> NoReturn:
            """Refuse: call cogroup before windowed_by."""
            cogrouping.begun(self._groups, adder)


class TimeWindowedKStream(WindowedKStream[K, V]):
    """A grouped stream in windows of time (tumbling, hopping, sliding, calendar) or of counts, or in custom windows."""

    def split(self, ways: int) -> TimeWindowedKStream[K, V]:
        """Aggregate each key's records under ``ways`` sub-keys: see ``KGroupedStream.split``."""
        return TimeWindowedKStream(self._groups.split(ways))

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
    ) -> WindowedTable[K, A, V]:
        """As ``KGroupedStream.aggregate``, per key and window. ``merger(key, a, b)`` merges two custom windows."""
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
        return self._table(made)


class SessionWindowedKStream(WindowedKStream[K, V]):
    """A grouped stream in sessions, which merge when a record connects them."""

    if not TYPE_CHECKING:  # type checkers see that ``split`` does not exist for sessions

        def split(self, ways):
            """Refused by the aggregation, with the reason."""
            return SessionWindowedKStream(self._groups.split(ways))
