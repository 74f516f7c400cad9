"""Persistent timers against a plain set, over commits and restarts."""

from __future__ import annotations

import random
from functools import partial

from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operators.base.store_timers import LAST_MS, TimerQueue, timer_store


def test_timers_fall_due_in_order_whatever_comes_between() -> None:
    rng = random.Random(3)
    for _ in range(80):
        backend = MemoryBackend([timer_store("t")])
        state = KeyValueStoreView(timer_store("t"), backend)
        timers, model = TimerQueue(state), set[tuple[int, bytes]]()
        for _ in range(150):
            timer = (rng.choice((rng.randrange(30), LAST_MS)), rng.choice((b"", b"a", b"b")))
            action = rng.random()
            if action < 0.4:
                timers.set(*timer, new=timer not in model)
                model.add(timer)
            elif action < 0.6:
                timers.delete(*timer)
                model.discard(timer)
                if rng.random() < 0.3:
                    some = rng.sample(sorted(model), min(len(model), 3))
                    timers.delete_all(some)
                    model.difference_update(some)
            elif action < 0.65:
                gone = rng.sample(sorted(model), min(len(model), 2))
                made = sorted({(rng.randrange(40), b"c"), (rng.randrange(40), b"d")} - model)
                change = [[time_ms.to_bytes(8, "big") + payload for time_ms, payload in some] for some in (gone, made)]
                if rng.random() < 0.5:
                    timers.change(*change)
                else:  # held back until somebody asks
                    state.get(b"")
                    state.defer(partial(timers.change, *change))
                    timers.look_from(min((t for t, _ in {*model, *made}), default=0))
                model = (model - set(gone)) | set(made)
                low, high = sorted((rng.randrange(45), rng.randrange(45)))
                if rng.random() < 0.5:
                    assert timers.between(low, high) == sorted(t for t in model if low <= t[0] <= high)
            elif action < 0.75:
                until = rng.choice((rng.randrange(35), rng.randrange(35), LAST_MS))
                due = sorted(t for t in model if t[0] <= until)
                if rng.random() < 0.5:
                    assert timers.due(until) == due
                else:
                    assert timers.upcoming(until) == timers.upcoming(until) == due
                    timers.take(due, until)
                model -= set(due)
            elif action < 0.9:
                assert timers.next_ms == min((t for t, _ in model), default=None)
            else:
                keys, values, _ = state.pending()
                backend.commit([StoreWrites("t", list(zip(keys, values, strict=True)), b"at")])
                state.committed()
                if rng.random() < 0.5:
                    state = KeyValueStoreView(timer_store("t"), backend)
                    timers = TimerQueue(state)


def test_a_timer_that_comes_and_goes_between_commits_leaves_no_trace() -> None:
    state = KeyValueStoreView(timer_store("t"), MemoryBackend([timer_store("t")]))
    timers = TimerQueue(state)
    timers.set(5, b"a", new=True)
    timers.set(6, b"b", new=True)
    assert timers.due(5) == [(5, b"a")]
    timers.delete(6, b"b")
    assert state.pending() == ([], [], [])


def test_what_goes_to_the_changelog_never_lies_in_the_future() -> None:
    """Brokers refuse records whose time is too far ahead of their clocks, and a timer may be due in a year."""
    state = KeyValueStoreView(timer_store("t"), MemoryBackend([timer_store("t")]))
    timers = TimerQueue(state)
    timers.set(LAST_MS, b"a")
    timers.set(7, b"b")
    timers.delete(LAST_MS, b"a")
    timers.due(7)
    timers.set(LAST_MS, b"c")
    assert max(state.pending()[2]) <= 1
