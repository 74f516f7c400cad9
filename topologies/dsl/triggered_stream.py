"""Windows with triggers in the DSL.

    fives = clicks.group_by_key().windowed_by(tumbling("5m", grace="0s"))
    panes = fives.triggered(
        after_watermark(early=after_processing_time("30s"), late=after_count(1)), allowed_lateness="1h"
    ).count()
    panes.to("clicks-per-5m")
    panes.late.to("clicks-too-late")

Every emitted record is a pane, described by ``pane_of(headers)``. See
``penstock.topologies.operators.windows.triggered_windows`` for the semantics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from penstock.state.serdes.serde import SerdeLike
from penstock.state.type_parameters import A, K, V
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.dsl.internals import triggering
from penstock.topologies.dsl.internals.triggering import Triggering
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.expressions.tree import Expression

if TYPE_CHECKING:
    from penstock.topologies.dsl.panes import TriggeredStream


class KTriggeredStream(Generic[K, V]):
    """A grouped stream in windows with a trigger. Every method adds one operator, with the stores ``name``,
    ``name-event-timers`` and ``name-wall-timers``, and returns its panes. Records with a null key or value are dropped
    and counted."""

    def __init__(self, flow: Flow, how: Triggering) -> None:
        self._flow = flow
        self._how = how

    def count(self, *, name: str | None = None) -> TriggeredStream[K, int, V]:
        """Count the records. Values are longs."""
        return self._panes(triggering.counted(self._flow, self._how, name))

    def reduce(self, fn: Callable[[V, V], V | None], *, name: str | None = None) -> TriggeredStream[K, V, V]:
        """Fold the values with ``fn(aggregate, value)``; the first value is the first aggregate. ``fn`` also merges the
        aggregates of windows that merge. Empty panes are not emitted."""
        return self._panes(triggering.reduced(self._flow, self._how, fn, name))

    def aggregate(
        self,
        init: Callable[[], A] | Aggregator[A, V] | Expression,
        adder: Callable[[K, V, A], A | None] | None = None,
        *,
        value: SerdeLike[A] | None = None,
        merger: Callable[[K, A, A], A] | None = None,
        name: str | None = None,
    ) -> TriggeredStream[K, A, V]:
        """Fold the records with ``adder(key, value, aggregate)``, from ``init()``; ``value``: the serde of aggregates;
        ``merger(key, a, b)`` merges windows. Or give a ready aggregate, or an expression over aggregates only:
        ``aggregate(mean("price"))``, ``aggregate(col("price").sum())``."""
        flow = triggering.aggregated(self._flow, self._how, init, adder, value=value, merger=merger, name=name)
        return self._panes(flow)

    def agg(
        self,
        *,
        value: SerdeLike[A] | Aggregator[Any, V] | Expression | None = None,
        name: str | Aggregator[Any, V] | Expression | None = None,
        **parts: Aggregator[Any, V] | Expression,
    ) -> TriggeredStream[K, A, V]:
        """Compute several ready aggregates at once, or expressions over aggregates. Values are dicts:
        ``agg(total=sum_("price"), n=count())``."""
        return self._panes(triggering.aggregated_parts(self._flow, self._how, value, name, parts))

    def to_list(
        self, *, value: SerdeLike[list[V]] | None = None, name: str | None = None
    ) -> TriggeredStream[K, list[V], V]:
        """Collect the values in order of arrival (if windows merge: the earlier window's first). ``value``: the serde
        of the lists (default: JSON)."""
        return self._panes(triggering.listed(self._flow, self._how, value, name))

    def _panes(self, flow: Flow) -> TriggeredStream[K, Any, V]:
        return flow.wiring.handles.panes(flow, self._flow)
