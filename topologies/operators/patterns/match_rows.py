"""Pattern matching event by event: the reference for the batches."""

from __future__ import annotations

from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from penstock.state.errors import SerdeError, UserError
from penstock.state.serdes.serde import Serde
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import TimerQueue
from penstock.topologies.operators.patterns.match_buffer import DueEvents, EventBuffer
from penstock.topologies.patterns.compiler import compile_pattern
from penstock.topologies.patterns.matcher import Match, Matcher, MatchStep
from penstock.topologies.patterns.state import NOTHING, KeyState

if TYPE_CHECKING:
    from penstock.topologies.operators.patterns.pattern_match import MatchPatternSpec

MATCHES, TIMEOUTS, LATE = range(3)
_ALARM, _EVENT = range(2)


class MatchRowOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: MatchPatternSpec) -> None:
        super().__init__(ctx, spec)
        self._states = ctx.state(spec.stores[0].name)
        self._alarms = TimerQueue(ctx.state(spec.stores[1].name))
        self._waiting = EventBuffer(ctx.state(spec.stores[2].name))
        self._key = spec.stores[0].key_serde
        self._events = spec.value_serde
        self._matcher = Matcher(compile_pattern(spec.pattern), self._events.serialize, self._events.deserialize)
        self._select = spec.select
        self._order_by = spec.order_by
        self._at_once = spec.in_arrival_order
        self._most, self._when_full = spec.max_partial_matches, spec.when_full
        self._due: list[tuple[int, int, bytes]] = []
        """The work left up to ``_until_ms``, while a watermark is worked off."""
        self._until_ms: int | None = None

    # -- records -------------------------------------------------------------------------------------------------

    def load(self, port: int, batch: Batch) -> None:
        if self._at_once:
            with suppress(Exception):  # row meets it at its record
                self._states.load([self._key.serialize(k) for k in batch.keys if k is not None])

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
        elif self._at_once:
            name = self._written(self._key, key)
            self._take(name, key, ts, value, self._written(self._events, value))
        elif ts <= self.watermark_ms:
            self.ctx.dropped("late")
            self.emit_row(key, value, ts, port=LATE)
        else:
            if self._order_by is not None:
                self._order_by(value)  # fails here, where the record can be skipped
            self._waiting.add(ts, self._written(self._key, key), self._written(self._events, value))

    @staticmethod
    def _written(serde: Serde[Any], value: Any) -> bytes:
        try:
            return serde.serialize(value)
        except Exception as exc:
            raise SerdeError(
                f"serde {serde.name} cannot write {value!r:.100} ({exc}); give the stream the serde of what it carries"
            ) from exc

    # -- time ----------------------------------------------------------------------------------------------------

    def on_watermark(self, watermark_ms: int) -> None:
        waiting: DueEvents = {} if self._at_once else self._waiting.due(watermark_ms)
        alarms = self._alarms.due(watermark_ms)
        if not waiting and not alarms:
            return
        self._due = [(time, _ALARM, name) for time, name in alarms]
        self._due += [(ts, _EVENT, name) for ts, name in waiting]
        heapify(self._due)
        self._until_ms = watermark_ms
        while self._due:
            time, what, name = heappop(self._due)
            if what == _ALARM:
                self._alarm(name, time)
            else:
                self._take_all(name, time, waiting[time, name])
        self._until_ms = None

    def _alarm(self, name: bytes, time: int) -> None:
        found = self._states.get(name)
        if found is not None and found[0].alarm_ms == time:
            outcome = self._matcher.advance(found[0]._replace(alarm_ms=None), time)
            self._finish(name, self._key.deserialize(name), time, outcome)
            self._count(len(found[0].partials), len(outcome.state.partials))

    def _take_all(self, name: bytes, ts: int, events: list[bytes]) -> None:
        key = self._key.deserialize(name)
        decoded = [(self._events.deserialize(data), data) for data in events]
        order_by = self._order_by
        if order_by is not None:
            decoded.sort(key=lambda pair: order_by(pair[0]))
        for value, data in decoded:
            self._take(name, key, ts, value, data)

    # -- matching ------------------------------------------------------------------------------------------------

    def _take(self, name: bytes, key: Any, ts: int, value: Any, data: bytes) -> None:
        found = self._states.get(name)
        before: KeyState = NOTHING if found is None else found[0]
        advanced = self._matcher.advance(before, ts)
        stepped = self._matcher.step(advanced.state, value, ts, self.wall_ms, data)
        outcome = MatchStep(stepped.state, advanced.matches + stepped.matches, advanced.timeouts)
        if self._most is not None and len(outcome.state.partials) > self._most:
            outcome = self._limited(key, outcome, self._most)
        if outcome.state is not before:
            self._finish(name, key, ts, outcome)
            self._count(len(before.partials), len(outcome.state.partials))

    def _limited(self, key: Any, outcome: MatchStep, most: int) -> MatchStep:
        count = len(outcome.state.partials)
        if self._when_full == "shut_down":
            raise UserError(
                f"operator {self.ctx.name}: key {key!r:.100} has {count} partial matches, of at most {most}; nothing of "
                "this batch is committed. Raise max_partial_matches, narrow the pattern or its within, or let those that "
                "began first go with when_full='drop_oldest'"
            )
        self.ctx.dropped("partial_matches", count - most)
        left = self._matcher.limited(outcome.state, most)
        return MatchStep(left.state, outcome.matches + left.matches, outcome.timeouts)

    def _count(self, before: int, after: int) -> None:
        if before != after:
            self.ctx.count(f"partial_matches_{'added' if after > before else 'removed'}", abs(after - before))

    def _finish(self, name: bytes, key: Any, time: int, outcome: MatchStep) -> None:
        """Store and hand out what came of an event or an alarm; the user's function comes first, as it may fail."""
        made = [(self._value(m), m.ts) for m in outcome.matches]
        state = self._armed(name, outcome.state)
        if not state.empty or state.alarm_ms is not None:
            self._states.put(name, state, max(time, 0))
        elif self._states.get(name) is not None:
            self._states.put(name, None, max(time, 0))
        for match in outcome.timeouts:
            self.emit_row(key, match.events, match.ts, headers=(), port=TIMEOUTS)
        for value, ts in made:
            self.emit_row(key, value, ts, headers=(), port=MATCHES)

    def _value(self, match: Match) -> Any:
        return match.events if self._select is None else self._select(match.events)

    def _armed(self, name: bytes, state: KeyState) -> KeyState:
        """The state with its alarm no later than the first end of its partial matches. An alarm that comes too early
        finds nothing and is set again."""
        end = self._matcher.next_end_ms(state)
        if end is None or (state.alarm_ms is not None and state.alarm_ms <= end):
            return state
        if state.alarm_ms is not None:
            self._alarms.delete(state.alarm_ms, name)
        if self._until_ms is not None and end <= self._until_ms:
            heappush(self._due, (end, _ALARM, name))
        else:
            self._alarms.set(end, name)
        return state._replace(alarm_ms=end)
