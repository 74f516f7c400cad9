"""The pattern operator: one matcher per key, over partial matches in a changelogged store.

Events are processed in event time: each waits until the watermark has reached it; then the due events of a key are
taken by timestamp, ``order_by`` and arrival. A record that is not later than the watermark is late: it goes to the
port ``late``, is counted, and changes nothing. With ``in_arrival_order`` records are taken as they arrive; then a
key's time is that of the current record, and none is late.

What ends by time (a partial match that can no longer be completed in time, or what a ``not_followed_by`` at the end
waited for) is found when the watermark reaches that time, or at the key's next event if that comes first. Expired
partial matches go to the port ``timeouts``, with the time at which they expired; matches go to ``matches``, with the
time of their last event. One alarm per key, set to the first of these times, is kept in a timer store.

State: the partial matches of each key and their events, the waiting events, and the alarms; all of it ends with
``within``.

``match_rows`` takes records one by one, and defines the answer; ``pattern_columns`` takes batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import ALL_AS_ROWS, InputMode, RequiredColumns
from penstock.topologies.operators.base.store_timers import timer_store
from penstock.topologies.operators.patterns.condition_bits import ConditionBits
from penstock.topologies.operators.patterns.match_buffer import buffer_store
from penstock.topologies.operators.patterns.pattern_columns import PatternColumnsOperator
from penstock.topologies.patterns.compiler import compile_pattern
from penstock.topologies.patterns.pattern import Pattern
from penstock.topologies.patterns.state import key_state_serde

PORTS = ("matches", "timeouts", "late")
MatchWhenFull = Literal["shut_down", "drop_oldest"]


def match_stores(name: str, key: Serde[Any], pattern: Pattern) -> tuple[StoreSpec, ...]:
    """The stores of operator ``name``: partial matches per key, alarms, and events that wait."""
    states = key_state_serde(compile_pattern(pattern).shape, name)
    return StoreSpec(name, "key_value", key, states), timer_store(f"{name}-alarms"), buffer_store(f"{name}-waiting")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchPatternSpec(OperatorSpec):
    """See the module. ``stores``: those of ``match_stores``. ``value_serde`` is that of the events, ``select`` makes a
    match's value of its events by stage, ``order_by`` what events of a key and time are sorted by. Records without key or
    value are dropped and counted.

    ``max_partial_matches``: how many a key may have behind an event (``None``: any number). ``when_full``: ``shut_down``
    stops the application; ``drop_oldest`` forgets those that began first, and counts them as dropped for the reason
    ``partial_matches``. The counters ``partial_matches_added`` and ``partial_matches_removed`` tell how their number
    goes."""

    pattern: Pattern
    value_serde: Serde[Any]
    select: Callable[[dict[str, list[Any]]], Any] | None = None
    order_by: Callable[[Any], Any] | None = None
    in_arrival_order: bool = False
    max_partial_matches: int | None = None
    when_full: MatchWhenFull = "shut_down"
    out_ports: tuple[str, ...] = PORTS
    uses_watermark: bool = True
    emits: Emits = "insert"

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return PatternColumnsOperator(ctx, self)

    @property
    def why_rows(self) -> str | None:
        """Why events are matched one by one."""
        if self.in_arrival_order:
            return "it takes events as they arrive"
        if self.order_by is not None:
            return "a function orders its events"
        if self.max_partial_matches is not None:
            return "its partial matches are limited"
        if self.pattern.skip.fails_on_miss:
            return "its skip strategy may fail"
        return ConditionBits(compile_pattern(self.pattern)).why_not()

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        if (reason := self.why_rows) is not None:
            return InputMode(ALL_AS_ROWS, reason)
        read = ConditionBits(compile_pattern(self.pattern)).needs()
        return InputMode(read | RequiredColumns(key=True, value=True))

    def details(self) -> dict[str, Any]:
        """Store, pattern, horizon and order."""
        within = self.pattern.within_ms
        return {
            "store": self.stores[0].name,
            "pattern": self.pattern.shape(),
            "within": "unbounded" if within is None else f"{within} ms",
            "order": "arrival" if self.in_arrival_order else "event time",
        } | self._limit()

    def _limit(self) -> dict[str, Any]:
        if self.max_partial_matches is None:
            return {}
        return {"max_partial_matches": self.max_partial_matches, "when_full": self.when_full}
