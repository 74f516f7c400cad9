"""Pattern matching in the compiled part: the events of a batch wait there for the watermark, and become partial matches and
matches, without a Python object per event. What has changed is put into the stores at the commit, or before anything else
reads or writes them.

The stores define what there is. ``begin`` takes over the events that wait in them; a key's partial matches are taken over
when an event, or an alarm, of the key comes. ``leave`` gives all back, so that events can be matched one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.state.native import compiled
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operator_api.columns import BytesColumn, Ints, Places
from penstock.topologies.operators.base.store_timers import TimerQueue
from penstock.topologies.operators.patterns.condition_bits import Bits, ConditionBits
from penstock.topologies.operators.patterns.match_buffer import EventBuffer
from penstock.topologies.patterns.automaton import Automaton

if TYPE_CHECKING:
    from penstock_native import Patterns

_PENDING_MAX = 1 << 16
"""With more changes than this the stores get them at once, and see that they need a commit."""
_KEYS_MAX = 1 << 17
_BYTES_MAX = 1 << 26
"""With more keys, or bytes of events, than these, all is given back to the stores."""


class Handed(NamedTuple):
    """A match, or a partial one that timed out: after how many marks, the key's bytes, its time, and its events by their
    stages, as bytes."""

    position: int
    name: bytes
    ts: int
    timed_out: bool
    events: list[tuple[int, bytes]]


class MatchOutcome(NamedTuple):
    """The outcome of a batch. ``late``: the records that came too late; ``added`` and ``removed``: how many partial matches
    were."""

    late: Places
    out: list[Handed]
    added: int
    removed: int


class Events(NamedTuple):
    """The events of a batch: the keys, the number of each event's key, its time, bits and bytes, and the number of marks
    before it; the marks."""

    names: list[bytes]
    numbers: Places
    times: Ints
    bits: Bits
    texts: BytesColumn
    at: Ints
    marks: Ints

    @classmethod
    def none(cls, mark: int) -> Events:
        """No event, and one mark."""
        empty = np.empty(0, np.int64)
        return cls([], empty, empty, np.empty(0, np.uint64), BytesColumn.of([]), empty, np.array([mark], np.int64))


def patterns_of(automaton: Automaton, bits: ConditionBits) -> Patterns | None:
    """The compiled form of an automaton whose skip strategy cannot fail; ``None``: the compiled part is not in use."""
    native = compiled()
    skip, names = automaton.skip, automaton.names
    if native is None:
        return None
    states = []
    for state in automaton.states:
        edges = [(edge.action, edge.target.index, bits.code(edge.condition)) for edge in state.edges]
        states.append((max(state.stage, 0), state.kind, state.gap_ms, state.patience_ms, edges))
    stage = names.index(skip.stage) if skip.stage in names else len(names)
    of_skip = skip.strategy, stage
    made: Patterns = native.Patterns(
        states, automaton.start.index, automaton.within_ms, of_skip, automaton.shape, len(names)
    )
    return made


class PackedMatches:
    """See the module. ``bits_of``: those of an event, by its bytes; it may raise."""

    def __init__(
        self,
        patterns: Patterns,
        states: KeyValueStoreView,
        alarms: tuple[KeyValueStoreView, TimerQueue],
        waiting: tuple[KeyValueStoreView, EventBuffer],
        bits_of: Callable[[bytes], int],
    ) -> None:
        self._patterns = patterns
        self._states = states
        self._alarms = alarms[1]
        self._waiting = waiting[1]
        self._views = (states, alarms[0], waiting[0])
        self._bits_of = bits_of
        self._watermark_ms = 0
        self._unheld_until_ms = -1
        """No alarm of a key that was never taken over is later."""
        self.active = False

    def begin(self, watermark_ms: int) -> bool:
        """Take over the events that wait. ``False``: a condition fails for one, and nothing was done."""
        events, number = self._waiting.all()
        try:
            bits = [self._bits_of(event) for _, _, _, event in events]
        except Exception:  # not swallowed: the event meets it when it is due
            return False
        self._patterns.begin(watermark_ms, number)
        if not self._hold(list(dict.fromkeys(name for _, name, _, _ in events))):
            return False
        for (ts, name, arrival, event), of_event in zip(events, bits, strict=True):
            self._patterns.wait(name, ts, arrival, of_event, event)
        self._watermark_ms = watermark_ms
        last_ms = self._alarms.last_ms
        self._unheld_until_ms = -1 if last_ms is None else last_ms
        self.active = True
        return True

    def take(self, events: Events) -> MatchOutcome | None:
        """Take events, and apply the marks. ``None``: nothing was done, because Python must read a key's state."""
        patterns = self._patterns
        self._defer(None)
        try:
            if not self._hold(events.names) or not self._hold_alarmed(events.marks):
                return None
            texts = events.texts
            late, out, added, removed = patterns.take(
                events.names,
                np.ascontiguousarray(events.numbers),
                np.ascontiguousarray(events.times),
                events.bits,
                np.ascontiguousarray(events.at),
                events.marks,
                texts.data,
                np.ascontiguousarray(texts.offsets),
            )
            if len(events.marks):
                self._watermark_ms = max(self._watermark_ms, int(events.marks.max()))
        finally:
            self._make_room()
        return MatchOutcome(np.frombuffer(late, np.intp), [Handed(*one) for one in out], added, removed)

    def leave(self) -> None:
        """Give all back to the stores."""
        if self.active:
            self.settle()
            self._patterns.begin(0, 0)
            self._waiting.look_again()
            self._alarms.look_from(0)
            self.active = False

    def settle(self) -> None:
        """Put into the stores what has changed."""
        self._defer(None)
        names, entries, times, alarms_gone, alarms_set, gone, new, events, moments, number = self._patterns.changes()
        put = self._states.put_entry
        for name, entry, ts in zip(names, entries, times, strict=True):
            put(name, entry, ts)
        self._alarms.change(alarms_gone, alarms_set)
        self._waiting.change(gone, new, events, moments, number)

    # -- keys ----------------------------------------------------------------------------------------------------

    def _defer(self, settle: Callable[[], None] | None) -> None:
        for view in self._views:
            view.defer(settle)

    def _hold(self, names: list[bytes]) -> bool:
        """Take over keys. ``False``: Python must read the state of one."""
        missing = [names[place] for place in self._patterns.missing(names)]
        if not missing:
            return True
        hold = self._patterns.hold
        return all(hold(name, entry) for name, entry in zip(missing, self._states.entries_of(missing), strict=True))

    def _hold_alarmed(self, marks: Ints) -> bool:
        """Take over the keys whose alarms are due by these marks."""
        if not len(marks) or self._watermark_ms >= self._unheld_until_ms:
            return True
        due = self._alarms.between(max(self._watermark_ms + 1, 0), int(marks.max())) if marks.max() >= 0 else []
        return self._hold([name for _, name in due])

    def _make_room(self) -> None:
        patterns = self._patterns
        full = len(patterns) > _KEYS_MAX or patterns.used_bytes > _BYTES_MAX
        if not full:
            if patterns.pending > _PENDING_MAX:
                self.settle()
            elif patterns.pending:
                self._defer(self.settle)
            return
        self.settle()
        patterns.shrink()
        if len(patterns) > _KEYS_MAX // 2 or patterns.used_bytes > _BYTES_MAX:
            self.leave()
