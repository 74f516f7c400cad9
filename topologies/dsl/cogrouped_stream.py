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

if TYPE_CHECKING:
    from penstock.topologies.dsl.kgrouped_stream import KGroupedStream


class CogroupedKStream(Generic[K, A]):
    """Grouped streams with an adder each, which fold into aggregates of type ``A``. All must have keys of one serde; they
    are co-partitioned like the sides of a join. Records of all streams meet their aggregate in the order of the task.

    Over windows each stream has a stream time of its own (Kafka Streams), so that a stream that lags behind the others
    loses nothing: by up to a day, or by ``retention`` less the windows' size and grace. All streams have one time where
    windows are custom ones, or are emitted ``on_close``, once for all."""

    def __init__(self, cogroups: Cogroups) -> None:
        self._cogroups = cogroups

    def cogroup(self, other: KGroupedStream[K, V2], adder: Callable[[K, V2, A], A | None]) -> CogroupedKStream[K, A]:
        """With one stream more. The same stream may be given again, with another adder."""
        return CogroupedKStream(cogrouping.with_part(self._cogroups, other, adder))

    def windowed_by(self, windows: Windows, *, retention: int | str | None = None) -> WindowedCogroupedKStream[K, A]:
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
        """The table: each record goes to its stream's adder, from ``init()`` on; ``None`` deletes the key. ``value`` is
        the aggregate's serde, which must be named. ``late``: see ``KGroupedStream``; it needs windows."""
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
        """As ``CogroupedKStream.aggregate``, per window. ``merger(key, a, b)``: of two sessions that meet."""
        made = cogrouping.aggregated(
            self._cogroups, init, value=value, merger=merger, name=name, emission=emission, late=late
        )
        assert self._cogroups.windows is not None
        return WindowedTable(made, self._cogroups.windows)

    if not TYPE_CHECKING:  # type checkers see that there are no such methods

        def cogroup(self, other, adder):
            """Refused: cogroup first."""
            return WindowedCogroupedKStream(cogrouping.with_part(self._cogroups, other, adder))

        def windowed_by(self, windows, *, retention=None):
            """Refused: once is enough."""
            return WindowedCogroupedKStream(cogrouping.windowed(self._cogroups, windows, retention))
