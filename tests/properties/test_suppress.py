"""Suppress against a naive buffer: a list that is sorted for every record. Limits, bounds, restarts, all batch sizes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.errors import UserError
from penstock.state.log import Windowed
from penstock.state.serdes.serde import STRING
from penstock.state.serdes.window_keys import windowed_serde
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.tables.suppress import until_time_limit, until_window_closes
from penstock.topologies.windows import Windows, session, sliding, tumbling
from tests.properties.following import RESTART, RESTORE, SIZES, Put, Shown, Step, play, random_steps, with_olds


@dataclasses.dataclass
class Trial:
    """Random updates of a table, windowed or not, and how they are held back."""

    size_ms: int | None
    limit_ms: int
    bounds: dict[str, int]
    steps: list[Step]


def random_trial(rng: random.Random) -> Trial:
    """Any that does not shut down."""
    closes = rng.random() < 0.4
    steps = random_steps(rng, rng.choice((30, 80)), "pqrs", spread_ms=15, clock=False)
    if closes:
        steps = [s._replace(key=windowed(s)) if isinstance(s, Put) else s for s in steps]
        return Trial(10, rng.choice((0, 5, 20)), {}, steps)
    keys = {r: rng.choice("abcdef") for r in range(len(steps))}
    steps = [s._replace(key=s.key and keys[i]) if isinstance(s, Put) else s for i, s in enumerate(steps)]
    names = rng.sample(["max_records", "max_bytes"], rng.randrange(3))
    bounds = {n: rng.choice((0, 1, 3)) if n == "max_records" else rng.choice((0, 40, 100)) for n in names}
    return Trial(None, rng.choice((0, 5, 20, 200)), bounds, steps)


def windowed(r: Put) -> Windowed | None:
    """The key in its window of 10 ms."""
    return r.key and Windowed(r.key, r.ts - r.ts % 10, r.ts - r.ts % 10 + 10)


def topology(trial: Trial) -> Topology:
    """Values of one letter, with the value that was told before."""
    builder = StreamsBuilder("t", key=str, value=str)
    until, key = until_time_limit(trial.limit_ms), STRING
    if trial.size_ms is not None:
        until, key = until_window_closes(grace=trial.limit_ms), windowed_serde(str, trial.size_ms)  # type: ignore[assignment]  # of other keys
    table = builder.changelog_table("in", key=key).suppress(until, **trial.bounds, name="buffer")  # type: ignore[arg-type]  # bounds are ints
    with_olds(builder, table, "out")
    return builder.build()


class Oracle:
    """A list of what is held back: buffer time, key bytes, key, value, timestamp, value told before."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.buffer: list[list[Any]] = []
        self.rows: dict[Any, str] = {}
        """The table before suppress."""
        self.t = -1
        self.out: list[Shown] = []

    def put(self, r: Put) -> None:
        """One change."""
        self.t = max(self.t, r.ts)
        old = self.rows.pop(r.key, None)
        if r.value is not None:
            self.rows[r.key] = r.value
        elif old is None:
            return  # with old values, a table is silent about rows that were not there and are not
        held = next((h for h in self.buffer if h[2] == r.key), None)
        if held is None:
            closes = self.trial.size_ms is not None
            data = r.key.key.encode() + r.key.start_ms.to_bytes(8, "big") if closes else r.key.encode()
            held = [r.key.end_ms if closes else r.ts, data, r.key, None, None, old]
            self.buffer.append(held)
        held[3:5] = [r.value, r.ts]
        self.buffer.sort(key=lambda h: h[:2])
        while self.buffer and (self.buffer[0][0] <= self.t - self.trial.limit_ms or self.over()):
            _, _, key, value, ts, told = self.buffer.pop(0)
            if value is not None or self.trial.size_ms is None:
                self.out.append(Shown(key, [value, told], ts))

    def over(self) -> bool:
        """Whether the buffer is too full."""
        size = sum(28 + len(h[1]) + len(h[3] or "") + len(h[5] or "") for h in self.buffer)
        bounds = self.trial.bounds
        return len(self.buffer) > bounds.get("max_records", 99) or size > bounds.get("max_bytes", 9999)


@pytest.mark.parametrize("seed", range(100))
def test_suppress_agrees_with_the_oracle(seed: int) -> None:
    trial = random_trial(random.Random(seed))
    expected = Oracle(trial)
    for step in trial.steps:
        if isinstance(step, Put) and step.key is not None:
            expected.put(step)
    held = [h[2] for h in expected.buffer]
    for size in SIZES:
        found = play(topology(trial), trial.steps, size)
        where = f"{trial.size_ms} {trial.limit_ms} {trial.bounds} batches of {size}"
        assert found.out == expected.out, where
        assert {key for key, _ in found.stores["buffer"]} == set(held), where


def test_a_full_buffer_stops_the_application_and_commits_nothing() -> None:
    builder = StreamsBuilder("t", key=str, value=str)
    table = builder.changelog_table("in")
    table.suppress(until_time_limit("1d"), max_bytes=70, when_full="shut_down", name="buffer").to("out")
    driver = TopologyTestDriver(builder)
    driver.pipe("in", "a", "1234", 5)
    with pytest.raises(UserError, match=r"buffer: its buffer is over capacity: 3 records .* 95 bytes of at most 70"):
        for key in "bc":
            driver.pipe("in", key, "12", 6)
    driver.release()


FINAL: dict[str, Callable[[], Windows]] = {
    "tumbling": lambda: tumbling(10, grace=7),
    "session": lambda: session(10, grace=7),
    "sliding": lambda: sliding(10, grace=7),
}


@pytest.mark.parametrize("kind", FINAL)
@pytest.mark.parametrize("delay", [None, 0, 15])
def test_final_results_are_the_last_of_each_window(kind: str, delay: int | None) -> None:
    """By stream time and by watermark; a window of which a record comes in the very last moment may go twice."""
    rng = random.Random(f"{kind}/{delay}")
    watermark = None if delay is None else bounded_out_of_orderness(delay)
    for _ in range(8):
        steps = random_steps(rng, 60, "pqr", spread_ms=15, clock=False)
        end = max(s.ts for s in steps if isinstance(s, Put)) + 1000
        steps.append(Put("end", "p", end))
        raw, final = [
            play(_counted(kind, suppressed, watermark), steps, rng.choice(SIZES)).out for suppressed in (False, True)
        ]
        last = {r.key: (r.value, r.ts) for r in raw if r.key.key != "end"}
        expected = {k: v for k, v in last.items() if v[0] is not None}
        told = {r.key: (r.value, r.ts) for r in final}
        assert {k: v for k, v in told.items() if k in expected} == expected
        if kind == "tumbling":
            assert len(final) == len(expected)
            assert [r.key.end_ms for r in final] == sorted(r.key.end_ms for r in final)


def _counted(kind: str, suppressed: bool, watermark: Any) -> Topology:
    builder = StreamsBuilder("t", key=str, value=str)
    stream = builder.stream("in", watermark=watermark)
    table = stream.group_by_key().windowed_by(FINAL[kind]()).count()
    (table.suppress(until_window_closes()) if suppressed else table).to("out")
    return builder.build()


def test_a_group_behind_suppress_is_exact() -> None:
    """Old values are those that were told, so that what is taken out of a group is what was put in."""
    builder = StreamsBuilder("t", key=str, value=str)
    held = builder.table("in").suppress(until_time_limit(5))
    held.group_by(lambda key, value: (value, value)).count(name="rows").to("out")
    rng = random.Random(3)
    driver = TopologyTestDriver(builder)
    table: dict[str, str] = {}
    for at in range(200):
        key, value = rng.choice("abcdefgh"), rng.choice(["x", "y", "z", None])
        driver.pipe("in", key, value, at)
        table[key] = value or ""
        if at % 40 == 20:
            driver.restart()
    driver.pipe("in", "late", "w", 1000)
    driver.pipe("in", "later", "w", 2000)
    counts = {v: list(table.values()).count(v) for v in "xyz"}
    assert {k: n for k, n in driver.store("rows").all() if k != "w" and n} == {k: n for k, n in counts.items() if n}


def test_what_is_held_survives_the_loss_of_the_store() -> None:
    trial = Trial(None, 10, {}, [Put("a", "p", 5), Put("b", "q", 3), RESTORE, Put("c", "r", 15), RESTART])
    assert play(topology(trial), trial.steps, 10).out == [Shown("b", ["q", None], 3), Shown("a", ["p", None], 5)]
