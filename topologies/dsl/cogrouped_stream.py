"""Cogrouping in the DSL: several grouped streams, whose values may differ in type, folded into one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from penstock.state.serdes.serde import SerdeLike
from penstock.state.type_parameters import V2, A, K
from penstock.topologies.dsl.internals import cogrouping
from penstock.topologies.dsl.internals.cogrouping import Cogroups
from penstock.topologies.dsl.ktable import KTable, WindowedTable
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.windows import Windows
from penstock.topologies.windows.durations import Duration

if TYPE_CHECKING:
    from penstock.topologies.dsl.kgrouped_stream import KGroupedStream


class CogroupedKStream(Generic[K, A]):
    """Grouped streams with one adder each, which fold into aggregates of type ``A``. All keys must have the same serde;
    the streams are co-partitioned like the sides of a join. An aggregate sees the records of all streams in the task's
    order.

    Over windows each stream has its own stream time, as in Kafka Streams, so a stream that lags behind the others loses
    nothing: by up to a day, or by ``retention`` minus the windows' size and grace. Custom windows, and windows emitted
    ``on_close``, share one stream time.

    A ``def`` or ``lambda`` that never names its value gets an empty one where its records come through a repartition topic:
    their values are not sent."""

    def __init__(self, cogroups: Cogroups) -> None:
        self._cogroups = cogroups

    def cogroup(self, other: KGroupedStream[K, V2], adder: Callable[[K, V2, A], A | None]) -> CogroupedKStream[K, A]:
        """Add one more stream. The same stream may be added again with another adder."""
        return CogroupedKStream(cogrouping.with_part(self._cogroups, other, adder))

    def windowed_by(self, windows: Windows, *, retention: Duration | None = None) -> WindowedCogroupedKStream[K, A]:
        """Aggregate per key and window: see ``KGroupedStream.windowed_by``."""
        return WindowedCogroupedKStream(cogrouping.windowed(self._cogroups, windows, retention))

    def aggregate(
        self,
        init: Callable[[], A],
        *,
        value: SerdeLike[A] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
    ) -> KTable[K, A]:
        """Aggregate into a table. Each record goes to its stream's adder, starting from ``init()``; ``None`` deletes
        the key. ``value`` is the aggregate's serde and is required. ``late``: see ``KGroupedStream``; it needs
        windows."""
        made = cogrouping.aggregated(
            self._cogroups, init, value=value, merger=None, name=name, emission=emission, late=late
        )
        return KTable(made.table)


class WindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams in windows."""

    def __init__(self, cogroups: Cogroups) -> None:
        self._cogroups = cogroups

    def aggregate(
        self,
        init: Callable[[], A],
        *,
        value: SerdeLike[A] | None = None,
        merger: Callable[[K, A, A], A] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
    ) -> WindowedTable[K, A]:
        """As ``CogroupedKStream.aggregate``, per window. ``merger(key, a, b)`` merges two sessions that meet."""
        made = cogrouping.aggregated(
            self._cogroups, init, value=value, merger=merger, name=name, emission=emission, late=late
        )
        assert self._cogroups.windows is not None
        return WindowedTable(made, self._cogroups.windows)

    if not TYPE_CHECKING:  # type checkers see that these methods do not exist

        def cogroup(self, other, adder):
            """Refuse: call cogroup before windowed_by."""
            return WindowedCogroupedKStream(cogrouping.with_part(self._cogroups, other, adder))

        def windowed_by(self, windows, *, retention=None):
            """Refuse a second call."""
            return WindowedCogroupedKStream(cogrouping.windowed(self._cogroups, windows, retention))
