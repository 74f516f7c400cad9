"""Timers in batches against a queue that sets and deletes one at a time: the same timers, and the same writes."""

from __future__ import annotations

import random

import pytest

from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operators.base import timer_batches
from penstock.topologies.operators.base.store_timers import LAST_MS, TimerQueue, timer_store
from penstock.topologies.operators.base.timer_batches import TimerBatches


class Timers:
    """A store with a queue, and batches over both."""

    def __init__(self, backend: MemoryBackend) -> None:
        self.backend = backend
        self.state = KeyValueStoreView(timer_store("t"), backend)
        self.queue = TimerQueue(self.state)
        self.batches = TimerBatches(self.queue, self.state)

    def commit(self) -> object:
        """Returns what was written."""
        keys, values, times = self.state.pending()
        self.backend.commit([StoreWrites("t", list(zip(keys, values, strict=True)), b"at")])
        self.state.committed()
        return keys, values, times


def apply_one_by_one(queue: TimerQueue, changes: list[tuple[bytes, bool]]) -> None:
    for key, is_set in changes:
        time_ms = int.from_bytes(key[:8], "big")
        if is_set:
            queue.set(time_ms, key[8:], new=True)
        else:
            queue.delete(time_ms, key[8:])


@pytest.mark.parametrize("room", [2, 5, 1_000])
def test_the_same_timers_and_writes(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_HELD_MAX", "_KNOWN_MAX", "_BLOCK", "_PARTS_MAX"):
        monkeypatch.setattr(timer_batches, name, room)
    rng = random.Random(room)
    for _ in range(150):
        ours, model = (Timers(MemoryBackend([timer_store("t")])) for _ in range(2))
        present: set[bytes] = set()
        now, number, by_rows = 0, 0, False
        for _ in range(60):
            action = rng.random()
            if action < 0.7:
                if by_rows:
                    ours.batches.used_by_rows()
                    by_rows = False
                before, now = now, now + rng.choice((0, 0, 1, 3, 30))
                due = sorted(key for key in present if int.from_bytes(key[:8], "big") < now)
                assert ours.batches.upcoming(before - 1) == []
                assert ours.batches.upcoming(now - 1) == ours.batches.upcoming(now - 1) == due
                known = sorted(present)
                asked = [*rng.sample(known, min(len(known), 3)), b"\x00" * 8 + b"none"]
                assert ours.batches.there(asked) == asked[:-1]
                changes = [(key, False) for key in {*due, *asked[:-1]}]
                made = [(now + rng.choice((0, 1, 7, 40))).to_bytes(8, "big") for _ in range(rng.choice((0, 1, 6)))]
                changes += [(time + (number + i).to_bytes(2, "big"), True) for i, time in enumerate(made)]
                number += len(made)
                rng.shuffle(changes)
                ours.batches.apply(changes, now - 1)
                apply_one_by_one(model.queue, changes)
                present = (present - {key for key, _ in changes}) | {key for key, is_set in changes if is_set}
            elif action < 0.8:  # the queue goes on, without a word
                ours.batches.settle()
                by_rows = True
                time_ms = now + rng.choice((0, 2, 9))
                for timers in (ours, model):
                    timers.queue.set(time_ms, b"row%d" % number, new=True)
                    timers.queue.due(now)
                present = {key for key in present if int.from_bytes(key[:8], "big") > now}
                if time_ms > now:
                    present.add(time_ms.to_bytes(8, "big") + b"row%d" % number)
                number += 1
                now += 1
            elif action < 0.9:
                assert ours.commit() == model.commit()
            else:
                assert ours.queue.next_ms == min((int.from_bytes(key[:8], "big") for key in present), default=None)
                if rng.random() < 0.5:
                    assert ours.commit() == model.commit()
                    ours, model = Timers(ours.backend), Timers(model.backend)
        assert ours.commit() == model.commit()


def test_the_end_of_time() -> None:
    timers = Timers(MemoryBackend([timer_store("t")]))
    last = LAST_MS.to_bytes(8, "big") + b"x"
    timers.batches.apply([(last, True)], 5)
    assert timers.batches.upcoming(LAST_MS - 1) == []
    assert timers.batches.upcoming(LAST_MS) == [last]
    timers.batches.apply([(last, False)], LAST_MS)
    assert timers.commit() == ([], [], [])


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_timer_that_was_there_already_is_deleted(by_rows: bool) -> None:
    """Set as new although the store has it, as when its record was lost: its deletion is written."""
    backend = MemoryBackend([timer_store("t")])
    before = Timers(backend)
    for time_ms in (5, 9):
        before.queue.set(time_ms, b"a", new=True)
    before.commit()

    after = Timers(backend)
    keys = [time_ms.to_bytes(8, "big") + b"a" for time_ms in (5, 9, 10)]
    if by_rows:
        apply_one_by_one(after.queue, [(key, True) for key in keys])
        apply_one_by_one(after.queue, [(key, False) for key in keys])
    else:
        after.batches.apply([(key, True) for key in keys], -1)
        assert after.batches.upcoming(10) == keys
        after.batches.apply([(key, False) for key in keys], 10)
    assert after.commit() == (keys[:2], [None, None], [1, 1])
    assert after.queue.due(99) == Timers(backend).queue.due(99) == []


def test_a_timer_that_is_set_again_is_there() -> None:
    backend = MemoryBackend([timer_store("t")])
    before = Timers(backend)
    before.queue.set(5, b"a", new=True)
    before.commit()
    after = Timers(backend)
    key = (5).to_bytes(8, "big") + b"a"
    assert after.batches.upcoming(9) == [key]
    after.batches.apply([(key, False), (key, True)], -1)
    assert after.batches.upcoming(9) == [key]
    assert after.commit() == ([key], [b"\x00" * 7 + b"\x01\x01"], [1])
    for change in (False, True, False):
        after.batches.apply([(key, change)], -1)
    assert after.batches.upcoming(9) == []
    assert after.commit() == ([key], [None], [1])
    for change in (True, False):
        after.batches.apply([(key, change)], -1)
    assert after.commit() == ([], [], [])
