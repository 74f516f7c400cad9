"""Windows of policies against an oracle that keeps lists and looks at every millisecond."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows import EvictingWindows, evicting, policies
from penstock.topologies.windows.evicting import CountPolicy, Delta, Policy, Punctuation, TimePolicy

Row = tuple[str, list[int], int]
Step = tuple[str, int, int] | int | str
"""A record (key, value, ts), a wait of so many milliseconds, or a restart."""


def ends(value: int) -> bool:
    """Which records are punctuations."""
    return value % 5 == 0


def random_policy(rng: random.Random) -> Policy:
    """Any kind."""
    return rng.choice(
        (
            policies.count(rng.choice((1, 2, 3, 5))),
            policies.delta(lambda value: value, rng.choice((0, 2, 4))),
            policies.time(rng.choice((1, 4, 10))),
            policies.punctuation(ends, inclusive=rng.random() < 0.5),
        )
    )


def random_trial(rng: random.Random) -> tuple[EvictingWindows, list[Step]]:
    """Windows, tumbling or sliding, and input for them."""
    trigger = None if rng.random() < 0.35 else random_policy(rng)
    time: Any = rng.choice(("event", "processing"))
    steps: list[Step] = []
    now = 0
    for _ in range(rng.randint(5, 50)):
        chance = rng.random()
        if chance < 0.05:
            steps.append("restart")
        elif chance < 0.25:
            steps.append(rng.choice((1, 2, 5, 12)))
        else:
            now += rng.choice((0, 0, 1, 2, 4, 15))
            steps.append((rng.choice(("x", "y", "zz")), rng.randint(0, 9), max(now - rng.choice((0, 0, 0, 3)), 0)))
    return evicting(random_policy(rng), trigger=trigger, time=time), steps


@dataclasses.dataclass
class Window:
    """One key's."""

    opened: int
    anchor: int
    items: list[tuple[int, int]]
    since: int = 0
    fresh: bool = True


class Oracle:
    """Runs a trial; ``rows`` is what is emitted."""

    def __init__(self, windows: EvictingWindows) -> None:
        self._evict, self._trigger = windows.evict, windows.trigger
        self._by_clock = windows.time == "processing"
        self._keys: dict[str, Window] = {}
        self._time = 0 if self._by_clock else -1
        self._wall = 0
        self.rows: list[Row] = []

    def step(self, step: Step) -> None:
        """One step."""
        if isinstance(step, int):
            self._wall += step
            if self._by_clock:
                self._pass(self._wall)
        elif not isinstance(step, str):
            key, value, ts = step
            at = self._wall if self._by_clock else ts
            self._pass(at)
            self._put(key, value, at)

    def _emit(self, key: str) -> None:
        window = self._keys[key]
        self.rows.append((key, [v for _, v in window.items], max(t for t, _ in window.items)))
        window.since, window.fresh = 0, False

    def _pass(self, until: int) -> None:
        while self._time < until:
            self._time += 1
            for key in sorted(self._keys):
                self._look(key, self._keys[key], self._time)

    def _look(self, key: str, window: Window, now: int) -> None:
        evict, trigger = self._evict, self._trigger
        if isinstance(evict, TimePolicy) and trigger is None:
            if now == window.opened + evict.ms:
                self._emit(key)
                del self._keys[key]
            return
        if isinstance(evict, TimePolicy):
            kept = [i for i in window.items if i[0] > now - evict.ms]
            window.fresh |= len(kept) < len(window.items)
            window.items = kept
            if not kept:
                del self._keys[key]
                return
        if isinstance(trigger, TimePolicy) and window.fresh and (now - window.opened) % trigger.ms == 0:
            self._emit(key)

    def _put(self, key: str, value: int, ts: int) -> None:
        if self._trigger is None:
            self._tumble(key, value, ts)
        else:
            self._slide(key, value, ts, self._trigger)

    def _tumble(self, key: str, value: int, ts: int) -> None:
        evict, window = self._evict, self._keys.get(key)
        closes = isinstance(evict, Punctuation) and ends(value)
        if window and (
            (isinstance(evict, Delta) and abs(value - window.anchor) > evict.distance)
            or (isinstance(evict, Punctuation) and closes and not evict.inclusive)
        ):
            self._emit(key)
            window = None
        window = window or Window(self._time, value, [])
        self._keys[key] = window
        window.items.append((ts, value))
        full = isinstance(evict, CountPolicy) and len(window.items) == evict.n
        if full or (isinstance(evict, Punctuation) and closes and evict.inclusive):
            self._emit(key)
            del self._keys[key]

    def _slide(self, key: str, value: int, ts: int, trigger: Policy) -> None:
        evict = self._evict
        if isinstance(evict, TimePolicy) and ts <= self._time - evict.ms:
            return  # late
        window = self._keys.setdefault(key, Window(self._time, value, []))
        fires = isinstance(trigger, Punctuation) and ends(value)
        if isinstance(trigger, Punctuation) and fires and not trigger.inclusive and window.items:
            self._emit(key)
        if isinstance(evict, Punctuation) and ends(value):
            window.items = []
        if isinstance(evict, Delta):
            window.items = [i for i in window.items if abs(i[1] - value) <= evict.distance]
        window.items.append((ts, value))
        if isinstance(evict, CountPolicy):
            window.items = window.items[-evict.n :]
        window.since, window.fresh = window.since + 1, True
        moved = isinstance(trigger, Delta) and abs(value - window.anchor) > trigger.distance
        counted = isinstance(trigger, CountPolicy) and window.since >= trigger.n
        if moved or counted or (isinstance(trigger, Punctuation) and fires and trigger.inclusive):
            self._emit(key)
            window.anchor = value


def play(windows: EvictingWindows, steps: list[Step], size: int) -> list[Row]:
    """The engine's answer."""
    builder = StreamsBuilder("t", value=int)
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    grouped.aggregate(list, lambda key, value, acc: [*acc, value], value=list).to_stream().to("out", append_only=True)
    driver = TopologyTestDriver(builder, options=TaskOptions(batch_max_records=size, wall_resolution_ms=1))
    waiting: list[Record] = []
    for step in [*steps, 0]:
        if isinstance(step, tuple):
            waiting.append(Record(*step))
            continue
        driver.pipe_all("in", waiting)
        waiting.clear()
        if isinstance(step, str):
            driver.restart(restore=True)
        else:
            for _ in range(step):
                driver.advance_wall_time(1)
    found = [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]
    driver.release()
    return found


@pytest.mark.parametrize("seed", range(80))
def test_policies_agree_with_the_oracle(seed: int) -> None:
    windows, steps = random_trial(random.Random(seed))
    oracle = Oracle(windows)
    for step in steps:
        oracle.step(step)
    for size in (1, 2, 7, 10_000):
        assert play(windows, steps, size) == oracle.rows, f"{windows} batches of {size}"
