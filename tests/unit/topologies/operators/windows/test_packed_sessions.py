"""Sessions that the compiled part keeps: what the stores get, and when. For the answers see ``test_session_columns``."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.state import native
from penstock.state.serdes.serde import BYTES, INT
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operator_api.columns import NumberColumn
from penstock.topologies.operators.base.entry_index import EntryIndex
from penstock.topologies.operators.base.store_timers import TimerQueue, timer_store
from penstock.topologies.operators.columnar.sessions import SessionRules, Timeline
from penstock.topologies.operators.windows import packed_sessions
from penstock.topologies.operators.windows.packed_session_folds import PackedCounts
from penstock.topologies.operators.windows.packed_sessions import PackedSessions
from penstock.topologies.operators.windows.session_folds import CountSessions

RULES = SessionRules(gap=10, touching=False, behind=0, closes_after=0, keep=20)
SPEC = StoreSpec("sessions", "session", BYTES, INT, retention_ms=200)
TIMERS = timer_store("sessions-closing")

pytestmark = pytest.mark.skipif(native.compiled() is None, reason="this is of the compiled part")


class Opened:
    """Sessions over empty stores. ``now``: T."""

    def __init__(self, keys_max: int = 100) -> None:
        backend = MemoryBackend([SPEC, TIMERS])
        self.state, self.timed = KeyValueStoreView(SPEC, backend), KeyValueStoreView(TIMERS, backend)
        self.index, self.timers = EntryIndex(SegmentedState(self.state), keys_max), TimerQueue(self.timed)
        fold = PackedCounts(CountSessions(sums=False))
        self.sessions = PackedSessions(fold, self.index, self.timers, RULES)
        self.counts = self.sessions._kept
        self.now = -1

    def take(self, *records: tuple[bytes, int]) -> list[tuple[bytes, int, int, int]]:
        """Take records. Returns what closes: key, start, end, count."""
        names = sorted({key for key, _ in records})
        times = np.array([time_ms for _, time_ms in records])
        timeline = Timeline.of_records(self.now, times)
        numbers = np.array([names.index(key) for key, _ in records])
        taken = self.sessions.take(names, numbers, times, timeline, None)
        assert taken is not None
        closed = taken[1]
        self.now = timeline.end_ms
        self.index.expire_before(self.now - RULES.keep)
        assert isinstance(closed.values, NumberColumn)
        found = (closed.starts.tolist(), closed.ends.tolist(), closed.values.to_list())
        return list(zip(closed.keys.to_list(), *found, strict=True))


def test_the_stores_get_nothing_before_somebody_reads_them() -> None:
    to = Opened()
    to.take((b"a", 5), (b"a", 7), (b"b", 7))
    assert not to.state.dirty and not to.timed.dirty
    assert [(e.key, e.value) for e in SegmentedState(to.state).scan(0, 100)] == [(b"a", 2), (b"b", 1)]
    assert len(to.timed.dirty) == 2
    assert to.timers.next_ms == 17
    to.take((b"a", 8))
    assert to.timers.next_ms == 17
    assert len(to.state.pending()[0]) == len(to.timed.pending()[0]) == 2


def test_a_commit_writes_what_is_left_of_the_changes() -> None:
    to = Opened()
    for time_ms in range(0, 60, 3):
        to.take((b"a", time_ms))
    assert to.take((b"b", 90)) == [(b"a", 0, 67, 20)]
    keys, values, times = to.state.pending()
    assert [value and value[8:] for value in values] == [INT.serialize(20), INT.serialize(1)]
    assert (len(keys), times) == (2, [57, 90])
    assert len(to.timed.pending()[0]) == 1
    to.state.committed()
    to.take((b"b", 91))
    _, values, times = to.state.pending()
    assert (values[0], times) == (None, [90, 91])


def test_a_deleted_session_has_the_time_of_its_last_record() -> None:
    to = Opened()
    to.take((b"a", 5))
    to.state.pending()
    to.state.committed()
    to.take((b"a", 9))
    assert to.state.pending()[1:] == ([None, (9).to_bytes(8, "big") + INT.serialize(2)], [5, 9])


def test_very_many_changes_are_shown_to_the_stores_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what they hold makes the task ask for a commit."""
    monkeypatch.setattr(packed_sessions, "_PENDING_MAX", 5)
    to = Opened()
    to.take((b"a", 5), (b"b", 5))
    assert not to.state.dirty
    to.take((b"a", 6), (b"c", 6))
    assert len(to.state.dirty) == 3


def test_the_keys_that_are_kept_are_bounded() -> None:
    to = Opened(keys_max=4)
    closed = []
    for number in range(50):
        closed += to.take((b"%d" % number, 5 * number), (b"%d" % (number + 1), 5 * number))
        assert len(to.counts) <= 4 * 4 + 2
    closed += to.take((b"end", 1_000))
    assert closed == [
        (b"0", 0, 10, 1),
        *((b"%d" % n, 5 * n - 5, 5 * n + 10, 2) for n in range(1, 50)),
        (b"50", 245, 255, 1),
    ]
    assert [(e.key, e.value) for e in SegmentedState(to.state).scan(980, 2_000)] == [(b"end", 1)]


def test_sessions_of_a_key_that_have_expired_are_not_kept() -> None:
    to = Opened()
    for number in range(40):
        to.take((b"a", 20 * number))
        to.sessions.settle()
    assert len(to.counts.release(b"a") or ()) in (1, 2, 3)
