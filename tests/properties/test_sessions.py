"""Sessions against a naive oracle: every kind of gap and bounds, every emission and clock, restarts, all batch sizes."""

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
from penstock.topologies.windows import SessionWindows, session
from tests.properties.following import RESTART, SIZES, Put, Shown, Step, Wait, play, random_steps, with_olds

NOTHING = "!"
"""A value that makes an aggregate ``None``."""


@dataclasses.dataclass
class Trial:
    """One random kind of sessions with its input."""

    windows: SessionWindows
    retention_ms: int
    emission: Any
    delay_ms: int | None
    steps: list[Step]


def gap_of(key: str, value: str) -> int:
    """A gap of the record's own."""
    return {"p": 1, "q": 4}.get(value, 9)


def random_trial(rng: random.Random) -> Trial:
    """Any."""
    clock = rng.choice(("stream", "stream", "watermark", "wall"))
    grace, gap = rng.choice((0, 0, 4, 25)), rng.choice((0, 1, 5, 10))
    options: dict[str, Any] = {
        "bounds": rng.choice(("records", "records", "gap")),
        "touching": rng.random() < 0.7,
        **({"time": "processing"} if clock == "wall" else {"grace": grace}),
    }
    own = rng.random() < 0.3
    windows = session(gap_of, **options) if own else session(max(gap, int(options["bounds"] == "gap")), **options)
    least = 9 if own else windows.gap_ms
    return Trial(
        windows,
        rng.choice((least, 2 * least, 60)) + windows.grace_ms,
        rng.choice(("every_update", "every_update", "on_close", "per_commit")),
        rng.choice((0, 3, 20)) if clock == "watermark" else None,
        random_steps(rng, rng.choice((30, 80)), "pqrst" + NOTHING, spread_ms=15, clock=clock == "wall"),
    )


def added(key: str, value: str, aggregate: list[str]) -> list[str] | None:
    """Changes the aggregate that it is given, as users may."""
    aggregate.append(value)
    return None if value == NOTHING else aggregate


def merged(key: str, a: list[str], b: list[str]) -> list[str]:
    """The same."""
    a.extend(b)
    return a


def topology(trial: Trial) -> Topology:
    """Lists of the values of each session."""
    builder = StreamsBuilder("t", key=str, value=str)
    delay = None if trial.delay_ms is None else bounded_out_of_orderness(trial.delay_ms)
    grouped = builder.stream("in", watermark=delay).group_by_key()
    table = grouped.windowed_by(trial.windows, retention=trial.retention_ms).aggregate(
        list, added, merger=merged, value=list, emission=trial.emission, late=True, name="sessions"
    )
    with_olds(builder, table, "out")
    table.late.to("late")
    return builder.build()


@dataclasses.dataclass(eq=False)
class Session:
    """One session of the oracle."""

    key: str
    start: int
    last: int
    reach: int
    values: list[str]
    told: bool = False
    """Emitted on close."""


class Oracle:
    """One record at a time; all sessions are looked at for each."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.w = trial.windows
        self.sessions: list[Session] = []
        self.t = -1
        self.wall = 0
        self.latest = -1
        self.out: list[Shown] = []
        self.late: list[Shown] = []
        self.changed: dict[Windowed, tuple[Any, Any, int]] = {}
        """New, before, timestamp."""

    def run(self) -> Oracle:
        """All steps."""
        for step in self.trial.steps:
            if isinstance(step, Put):
                self.put(step)
            elif isinstance(step, Wait):
                self.wall += step.ms
                if self.w.time == "processing":
                    self.move(self.wall)
            else:
                self.commit()
        self.commit()
        return self

    def window(self, s: Session) -> Windowed:
        """As emitted."""
        return Windowed(s.key, s.start, s.reach if self.w.bounds == "gap" else s.last)

    def closed(self, reach: int, t: int) -> bool:
        """Whether a session that reaches so far takes no more."""
        return t >= reach + self.w.grace_ms + (0 if self.w.bounds == "gap" else 1)

    def put(self, r: Put) -> None:
        """One record."""
        on_watermark = self.trial.delay_ms is not None
        self.latest = max(self.latest, r.ts)
        mark = self.latest - (self.trial.delay_ms or 0)
        if r.key is not None and r.value is not None:
            ts = self.wall if self.w.time == "processing" else r.ts
            t = self.t if on_watermark else max(self.t, ts)
            self.take(r, ts, t)
            self.move(t)
        if on_watermark:
            self.move(mark)

    def take(self, r: Put, ts: int, t: int) -> None:
        """A record with a key and a value."""
        new = Session(r.key, ts, ts, ts + self.w.gap_of(r.key, r.value), [])
        hit = sorted((s for s in self.sessions if s.key == r.key and self.meet(s, new)), key=lambda s: s.start)
        whole = Session(r.key, min(s.start for s in [new, *hit]), max(s.last for s in [new, *hit]), 0, [])
        whole.reach = max(s.reach for s in [new, *hit])
        if self.closed(whole.reach, t):
            self.late.append(Shown(r.key, r.value, r.ts))
            return
        same = [s for s in hit if s.start == s.last == whole.last == whole.start and s.reach == whole.reach]
        for s in hit:
            self.sessions.remove(s)
            if s not in same:
                self.tell(self.window(s), None, s.values, s.last)
        whole.values = [*(v for s in hit for v in s.values), r.value]
        value = None if r.value == NOTHING else whole.values
        if value is not None:
            self.sessions.append(whole)
        self.tell(self.window(whole), value, same[0].values if same else None, whole.last)

    def meet(self, s: Session, new: Session) -> bool:
        """Whether a record is of a session."""
        if self.w.touching:
            return new.start <= s.reach and s.start <= new.reach
        return (new.start < s.reach and s.start < new.reach) or s.start <= new.start <= s.last

    def tell(self, window: Windowed, new: Any, old: Any, ts: int) -> None:
        """A window has changed."""
        if self.trial.emission == "every_update":
            self.out.append(Shown(window, [new, old], ts))
        elif self.trial.emission == "per_commit":
            before = self.changed[window][1] if window in self.changed else old
            self.changed[window] = (new, before, ts)

    def commit(self) -> None:
        """Tell what has changed since the last one."""
        for window, (new, old, ts) in self.changed.items():
            if (new, old) != (None, None):
                self.out.append(Shown(window, [new, old], ts))
        self.changed.clear()

    def move(self, t: int) -> None:
        """Time goes on."""
        self.t = max(self.t, t)
        due = [s for s in self.sessions if not s.told and self.closed(s.reach, self.t)]
        for s in sorted(due, key=lambda s: (s.reach, s.start, s.key)):
            s.told = True
            if self.trial.emission == "on_close":
                self.out.append(Shown(self.window(s), [s.values, None], s.last))
        kept = self.trial.retention_ms - self.w.gap_ms
        self.sessions = [s for s in self.sessions if s.reach + kept >= self.t]


@pytest.mark.parametrize("seed", range(100))
def test_sessions_agree_with_the_oracle(seed: int) -> None:
    trial = random_trial(random.Random(seed))
    expected = Oracle(trial).run()
    for size in SIZES:
        found = play(topology(trial), trial.steps, size)
        where = f"{trial.windows} {trial.emission} delay={trial.delay_ms} batches of {size}"
        assert found.out == expected.out, where
        assert found.late == expected.late, where
        assert found.dropped.get("sessions.late", 0) == len(expected.late), where
        kept = {(s.key, s.start): s.values for s in expected.sessions}
        # entries that have expired may be there until their segment is dropped
        by_reach = trial.windows.gap_fn is not None or trial.windows.bounds == "gap"
        keep_ms = trial.retention_ms - (trial.windows.gap_ms if by_reach else 0)
        stored = [(w, v) for w, v in found.stores["sessions"] if w.end_ms + keep_ms >= expected.t]
        assert {(w.key, w.start_ms): v for w, v in stored} == kept, where


def test_a_closed_session_is_joined_or_not_as_its_retention_says() -> None:
    """A record in time that lies between two sessions, of which the first has closed."""
    for retention, joined in ((30, False), (60, True)):
        trial = Trial(session(30, grace=0), retention, "every_update", None, [Put("a", v, t) for v, t in RECORDS])
        found = play(topology(trial), trial.steps, 10)
        last = found.out[-1]
        assert last.key == Windowed("a", 0 if joined else 16, 31)
        assert last.value[0] == (["p", "q", "r"] if joined else ["q", "r"])


RECORDS = (("p", 0), ("q", 31), ("r", 16))


def test_the_store_stays_small_over_many_horizons() -> None:
    """Entries in the backend, expired segments included, between the first horizon and the tenth."""
    horizon_ms = 100
    for emission in ("every_update", "on_close"):
        trial = Trial(session(20, grace=60), 100, emission, None, [])
        driver = TopologyTestDriver(topology(trial), auto_commit=False)
        rng = random.Random(5)
        sizes: list[int] = []
        for at in range(0, 20 * horizon_ms, 5):
            if at % 60 < 20:  # then a silence of 40 ms, which ends every session
                for key in "abcdefgh":
                    driver.pipe("in", key, rng.choice("pqr"), max(at - rng.randrange(15), 0))
            driver.commit()
            if at % horizon_ms == 0:
                (task,) = driver.tasks.values()
                sizes.append(sum(len(list(task.backend.range(s, None, None))) for s in task.stores))
        assert 16 < max(sizes[10:]) <= 1.2 * max(sizes[2:8]), sizes
        driver.close()


def test_a_restart_in_the_middle_changes_nothing() -> None:
    rng = random.Random(11)
    for _ in range(15):
        trial = random_trial(rng)
        if trial.emission == "per_commit":
            continue
        steps = [s for s in trial.steps if isinstance(s, (Put, Wait))]
        whole = play(topology(trial), steps, 7)
        half = len(steps) // 2
        cut = play(topology(trial), [*steps[:half], RESTART, *steps[half:]], 7)
        assert cut.out == whole.out
        assert cut.stores == whole.stores
