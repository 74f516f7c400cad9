"""Sliding windows against two naive oracles: one that knows all records and makes every window of them, where nothing is
late; and one that keeps the records of each window in a list, where windows close."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from penstock.state.log import Windowed
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import sliding
from tests.properties.following import RESTART, SIZES, Put, Shown, Step, play, random_steps, with_olds

Records = list[tuple[int, str]]
FOREVER_MS = 100_000


@dataclasses.dataclass
class Trial:
    """One kind of sliding windows with its input."""

    difference_ms: int
    grace_ms: int
    emission: Any
    delay_ms: int | None
    steps: list[Step]


def random_trial(rng: random.Random) -> Trial:
    """Any."""
    return Trial(
        rng.choice((0, 1, 5, 10, 30)),
        rng.choice((0, 0, 3, 25)),
        rng.choice(("every_update", "every_update", "on_close", "per_commit")),
        rng.choice((0, 3, 20)) if rng.random() < 0.3 else None,
        random_steps(rng, rng.choice((30, 80)), "pqrst", spread_ms=15, clock=False),
    )


def added(key: str, value: str, aggregate: list[str]) -> list[str]:
    """Changes the aggregate that it is given, as users may."""
    aggregate.append(value)
    return aggregate


def topology(trial: Trial) -> Topology:
    """Lists of the values in each window."""
    builder = StreamsBuilder("t", key=str, value=str)
    delay = None if trial.delay_ms is None else bounded_out_of_orderness(trial.delay_ms)
    grouped = builder.stream("in", watermark=delay).group_by_key()
    table = grouped.windowed_by(sliding(trial.difference_ms, grace=trial.grace_ms)).aggregate(
        list, added, value=list, emission=trial.emission, late=True, name="windows"
    )
    with_olds(builder, table, "out")
    table.late.to("late")
    return builder.build()


def windows_of(records: Records, d: int) -> dict[int, Records]:
    """All windows that a key's records have, by start."""
    starts = {max(t - d, 0) for t, _ in records} | {t + 1 for t, _ in records}
    windows = {s: [r for r in records if s <= r[0] <= s + d] for s in starts}
    return {s: inside for s, inside in windows.items() if inside}


@pytest.mark.parametrize("seed", range(40))
def test_all_windows_of_all_records_are_there_when_nothing_is_late(seed: int) -> None:
    rng = random.Random(seed)
    trial = dataclasses.replace(random_trial(rng), grace_ms=FOREVER_MS, emission="every_update", delay_ms=None)
    d = trial.difference_ms
    records: dict[str, Records] = {}
    expected: list[Shown] = []
    for r in trial.steps:
        if isinstance(r, Put) and r.key is not None and r.value is not None:
            known = records.setdefault(r.key, [])
            before = windows_of(known, d)
            known.append((r.ts, r.value))
            for start, inside in sorted(windows_of(known, d).items()):
                old = before.get(start)
                if inside != old:
                    shown = [[v for _, v in inside], None if old is None else [v for _, v in old]]
                    latest = max(t for t, _ in inside)
                    expected.append(Shown(Windowed(r.key, start, start + d), shown, latest))
    for size in SIZES:
        found = play(topology(trial), trial.steps, size)
        assert found.out == expected, f"difference {d}, batches of {size}"


class Oracle:
    """The windows of each key as lists of records."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.d = trial.difference_ms
        self.windows: dict[str, dict[int, Records]] = {}
        self.told: set[tuple[str, int]] = set()
        self.t = -1
        self.latest = -1
        self.out: list[Shown] = []
        self.late: list[Shown] = []
        self.changed: dict[Windowed, tuple[Any, Any, int]] = {}

    def run(self) -> Oracle:
        """All steps."""
        for step in self.trial.steps:
            if isinstance(step, Put):
                self.put(step)
            elif isinstance(step, str):
                self.commit()
        self.commit()
        return self

    def put(self, r: Put) -> None:
        """One record."""
        delay = self.trial.delay_ms
        self.latest = max(self.latest, r.ts)
        if r.key is not None and r.value is not None:
            t = self.t if delay is not None else max(self.t, r.ts)
            if not self.take(r, t):
                self.late.append(Shown(*r))
            self.move(t)
        if delay is not None:
            self.move(self.latest - delay)

    def closed(self, start: int, t: int) -> bool:
        """Whether a window takes no more."""
        return start + self.d + self.trial.grace_ms < t

    def take(self, r: Put, t: int) -> bool:
        """A record with a key and a value; whether a window took it."""
        if self.closed(r.ts, t):
            return False
        d, ts = self.d, r.ts
        windows = self.windows.setdefault(r.key, {})
        around = {s: list(windows[s]) for s in sorted(windows) if s <= ts <= s + d}
        left = max(ts - d, 0)
        behind = [s for s in windows if ts - 2 * d <= s and s + d < ts]
        former = windows[max(behind)] if behind and ts >= d else []
        new = dict.fromkeys(around, None) | {left: None}
        nearest = max((at for at, _ in around.get(left, former)), default=-1)
        if nearest < ts and nearest >= left - 1 and nearest >= 0:
            new[nearest + 1] = None
        taken = False
        changes: dict[int, Records] = {}
        for start in new:
            if not self.closed(start, t):
                held = windows.get(start)
                if held is None:
                    near = start == left and former and max(at for at, _ in former) >= left
                    held = former if near else []
                changes[start] = [*held, (ts, r.value)]
                taken = True
        last = max((s for s in around if s != left or ts < d), default=None)
        if ts + 1 not in windows and last is not None and max(at for at, _ in around[last]) > ts:
            changes[ts + 1] = around[last]
        for start in sorted(changes):
            self.tell(r.key, start, changes[start], windows.get(start))
            windows[start] = changes[start]
        return taken

    def tell(self, key: str, start: int, new: Records, old: Records | None) -> None:
        """A window has changed."""
        window = Windowed(key, start, start + self.d)
        shown = [v for _, v in new], None if old is None else [v for _, v in old]
        latest = max(at for at, _ in new)
        if self.trial.emission == "every_update":
            self.out.append(Shown(window, list(shown), latest))
        elif self.trial.emission == "per_commit":
            before = self.changed[window][1] if window in self.changed else shown[1]
            self.changed[window] = (shown[0], before, latest)

    def commit(self) -> None:
        """Tell what has changed since the last one."""
        self.out += [Shown(window, [new, old], ts) for window, (new, old, ts) in self.changed.items()]
        self.changed.clear()

    def move(self, t: int) -> None:
        """Time goes on."""
        self.t = max(self.t, t)
        for start, key in sorted((s, k) for k, some in self.windows.items() for s in some):
            if self.closed(start, self.t) and (key, start) not in self.told:
                self.told.add((key, start))
                if self.trial.emission == "on_close":
                    inside = self.windows[key][start]
                    shown = Shown(Windowed(key, start, start + self.d), [[v for _, v in inside], None], 0)
                    self.out.append(shown._replace(ts=max(at for at, _ in inside)))
        floor = self.t - 2 * self.d - self.trial.grace_ms - 1
        self.windows = {k: {s: w for s, w in some.items() if s >= floor} for k, some in self.windows.items()}


@pytest.mark.parametrize("seed", range(100))
def test_closing_windows_agree_with_the_oracle(seed: int) -> None:
    trial = random_trial(random.Random(seed))
    expected = Oracle(trial).run()
    kept = {(k, s): [v for _, v in inside] for k, some in expected.windows.items() for s, inside in some.items()}
    for size in SIZES:
        found = play(topology(trial), trial.steps, size)
        where = f"{trial.difference_ms} grace {trial.grace_ms} {trial.emission} {trial.delay_ms} batches of {size}"
        assert found.out == expected.out, where
        assert found.late == expected.late, where
        assert found.dropped.get("windows.late", 0) == len(expected.late), where
        # entries that have expired may be there until their segment is dropped
        floor = expected.t - 2 * trial.difference_ms - trial.grace_ms - 1
        assert {(k, s): v for k, s, v in found.stores["windows"] if s >= floor} == kept, where


def test_a_restart_in_the_middle_changes_nothing() -> None:
    rng = random.Random(11)
    for _ in range(15):
        trial = random_trial(rng)
        if trial.emission == "per_commit":
            continue
        steps: list[Step] = [s for s in trial.steps if isinstance(s, Put)]
        whole = play(topology(trial), steps, 7)
        half = len(steps) // 2
        cut = play(topology(trial), [*steps[:half], RESTART, *steps[half:]], 7)
        assert cut.out == whole.out
        assert cut.stores == whole.stores


def test_the_store_stays_small_over_many_horizons() -> None:
    """Entries in the backend, expired segments included, between the first horizon and the tenth."""
    for emission in ("every_update", "on_close"):
        trial = Trial(20, 60, emission, None, [])
        driver = TopologyTestDriver(topology(trial), auto_commit=False)
        rng = random.Random(5)
        sizes: list[int] = []
        for at in range(0, 2000, 5):
            for key in "abcd":
                driver.pipe("in", key, rng.choice("pqr"), max(at - rng.randrange(30), 0))
            driver.commit()
            if at % 100 == 0:
                (task,) = driver.tasks.values()
                sizes.append(sum(len(list(task.backend.range(s, None, None))) for s in task.stores))
        assert 100 < max(sizes[10:]) <= 1.2 * max(sizes[3:9]), sizes
        driver.close()
