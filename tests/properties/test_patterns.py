"""Random patterns on random input: the matcher finds what a brute-force search finds, whatever is stored between."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import orjson
import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operators.base.store_timers import LAST_MS
from penstock.topologies.patterns import skip
from penstock.topologies.patterns.compiler import compile_pattern
from penstock.topologies.patterns.matcher import Match, Matcher
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.patterns.state import NOTHING, KeyState, decode, encode
from tests.properties.pattern_oracle import Event, Placed, matches, skipped

LABELS = "abcd"
BLOCKS = 8
SEEDS = 250


class Draw:
    """A random pattern of what the oracle can judge."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.named = 0
        self.labels: dict[str, str] = {}

    def pattern(self) -> Pattern:
        made = self.sequence(self.rng.randint(1, 3), depth=0)
        if self.rng.random() < 0.5 or self.open_end:
            made = made.within(self.rng.randint(3, 14))
        return made.after_match(self.skip(made))

    def skip(self, made: Pattern) -> skip.Skip:
        kind = self.rng.choice(["no", "no", "next", "past", "first", "last"])
        name = self.rng.choice(made.names())
        return {
            "no": skip.no_skip(),
            "next": skip.skip_to_next(),
            "past": skip.skip_past_last_event(),
            "first": skip.skip_to_first(name),
            "last": skip.skip_to_last(name),
        }[kind]

    def name(self) -> str:
        self.named += 1
        return f"s{self.named}"

    def sequence(self, length: int, depth: int, avoid: frozenset[str] = frozenset()) -> Pattern:
        rng = self.rng
        self.open_end = False
        made: Pattern | None = None
        for i in range(length):
            last = i == length - 1
            if made is not None and not made.stages[-1].is_greedy and rng.random() < 0.25:
                made = self.never(made)
            nots = self.previous_nots(made) if made is not None else avoid
            after_greedy = made is not None and made.stages[-1].is_greedy
            if rng.random() < (0.25, 0.1, 0)[depth] and not after_greedy:
                made = self.add(made, self.sequence(rng.randint(1, 2), depth + 1, nots | avoid))
                made = self.quantify(made, group=True)
            else:
                made = self.take(self.add(made, self.name()), nots | avoid)
                if not after_greedy and not (made.stages[0] is made.stages[-1] and depth):
                    made = self.quantify(made, group=False, may_be_greedy=not last and not depth)
        assert made is not None
        self.open_end = False
        if depth == 0 and rng.random() < 0.15 and not made.stages[-1].negated and not made.stages[-1].is_greedy:
            made = self.never(made)
            self.open_end = made.stages[-1].contiguity == "not_followed_by"
        return made

    def add(self, made: Pattern | None, what: str | Pattern) -> Pattern:
        if made is None:
            return pattern(what)
        return self.rng.choice([made.next, made.followed_by, made.followed_by_any])(what)

    def take(self, made: Pattern, nots: frozenset[str]) -> Pattern:
        label = self.rng.choice([x for x in LABELS if x not in nots])
        name = str(made.stages[-1].name)
        self.labels[name] = label
        if not nots and self.rng.random() < 0.1:
            self.labels[name] = "*"
            return made
        return made.where(self.labelled(label))

    def labelled(self, label: str) -> Any:
        """The condition that an event has this label."""
        return lambda e: e["label"] == label

    def previous_nots(self, made: Pattern) -> frozenset[str]:
        return frozenset(self.labels[str(s.name)] for s in made.stages if s.negated)

    def never(self, made: Pattern) -> Pattern:
        """Something that must not come, of a label that nothing beside it takes."""
        taken = {self.labels[n] for n in made.names()}
        free = [x for x in LABELS if x not in taken]
        last = made.stages[-1]
        if not free or "*" in taken or last.is_optional:
            return made
        name = self.name()
        label = self.labels[name] = self.rng.choice(free)
        at_once = self.rng.random() < 0.4 and not last.quantified and last.group is None
        made = made.not_next(name) if at_once else made.not_followed_by(name)
        return made.where(self.labelled(label))

    def quantify(self, made: Pattern, *, group: bool, may_be_greedy: bool = False) -> Pattern:
        rng = self.rng
        kind = rng.choice(["", "", "", "times", "range", "more"])
        if kind == "times":
            made = made.times(rng.randint(1, 3))
        elif kind == "range":
            made = made.times(rng.randint(1, 2), rng.randint(2, 3))
        elif kind == "more":
            made = made.times_or_more(rng.randint(1, 2))
        if kind:
            inner = rng.choice(["relaxed", "relaxed", "strict", "combinations"])
            made = {"relaxed": made, "strict": None, "combinations": None}[inner] or (
                made.consecutive() if inner == "strict" else made.allow_combinations()
            )
            if may_be_greedy and inner != "combinations" and rng.random() < 0.3:
                return made.greedy()
            if kind == "more" and not group and rng.random() < 0.25:
                label = rng.choice(LABELS)
                made = made.until(self.labelled(label))
        if rng.random() < 0.25 and not (group and _may_be_empty(made.stages[-1].group)):
            made = made.optional()
        return made


def nested(made: Pattern) -> bool:
    return any(s.group is not None for s in made.stages)


def _lets_a_not_out(group: Pattern) -> bool:
    """Whether what must not come in the group also guards what is behind it: out of the oracle's reach."""
    for stage in reversed(group.stages):
        if stage.negated:
            return True
        if not stage.is_optional:
            break
    return any(s.group is not None and _lets_a_not_out(s.group) for s in group.stages)


def _may_be_empty(group: Pattern | None) -> bool:
    return group is not None and all(s.is_optional or s.negated for s in group.stages)


def drawn(rng: random.Random, draw: type[Draw] = Draw) -> tuple[Pattern, list[Event]]:
    while True:
        try:
            made = draw(rng).pattern()
            made.check("drawn")
        except TopologyError:
            continue
        if any(s.group is not None and _lets_a_not_out(s.group) for s in made.stages):
            continue
        ts, events = 0, []
        for number in range(rng.randint(3, 6 if nested(made) else 7)):
            ts += rng.choice([0, 1, 1, 2, 4])
            events.append(Event(rng.choice(LABELS), ts, number))
        return made, events


def run(made: Pattern, events: list[Event], *, stored: bool) -> list[Placed]:
    """What the matcher finds; ``stored``: with its state written and read back between all steps."""
    matcher = Matcher(compile_pattern(made), orjson.dumps, orjson.loads)
    state: KeyState = NOTHING
    found: list[Match] = []

    def kept(new: KeyState) -> KeyState:
        return decode(encode(new, 7), 7, "x") if stored else new

    for event in events:
        advanced = matcher.advance(state, event.ts)
        outcome = matcher.step(kept(advanced.state), event.value, event.ts)
        found += [*advanced.matches, *outcome.matches]
        state = kept(outcome.state)
    found += matcher.advance(state, LAST_MS).matches
    return [placed(m) for m in found]


def placed(match: Match) -> Placed:
    pairs = [(e["number"], name) for name, events in match.events.items() for e in events]
    return tuple((name, number) for number, name in sorted(pairs))


def _no_ties(every: set[Placed]) -> bool:
    return len({(m[0][1], m[-1][1]) for m in every}) == len(every)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_matcher_finds_what_a_search_finds(block: int) -> None:
    compared = 0
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        made, events = drawn(random.Random(seed))
        every = matches(made, events)
        text = f"seed {seed}: {made.shape()} over {[(e.label, e.ts) for e in events]}"
        found = run(made, events, stored=seed % 2 == 0)
        if made.skip.strategy == "no_skip":
            assert Counter(found) == Counter(every), text
        elif made.within_ms is not None and not made.stages[-1].negated and _no_ties(every):
            assert Counter(found) == Counter(skipped(made, every)), text
        compared += bool(every)
    assert compared > SEEDS // 10


# -- the operator ------------------------------------------------------------------------------------------------------

BATCHES = (1, 2, 7, 10_000)
KEYS = "xyz"


def taken(records: list[tuple[str, dict[str, Any], int]], *, in_time: bool) -> dict[str, list[Event]]:
    """What the matcher of each key is to be shown, in order, when event time is stream time - 1."""
    stream_time, by_key = -1, defaultdict(list)
    for key, value, ts in records:
        if not in_time or ts > stream_time - 1:
            by_key[key].append(Event(value["label"], ts, value["number"]))
        stream_time = max(stream_time, ts)
    if in_time:
        for events in by_key.values():
            events.sort(key=lambda e: e.ts)
    return by_key


def numbered(found: set[Placed] | list[Placed], events: list[Event]) -> Counter[Placed]:
    """Positions among a key's events as numbers of the records."""
    return Counter(tuple((name, events[at].number) for name, at in match) for match in found)


def in_order(match: dict[str, list[dict[str, Any]]], events: list[Event]) -> Placed:
    at = {e.number: i for i, e in enumerate(events)}
    pairs = sorted((at[e["number"]], name) for name, taken_for in match.items() for e in taken_for)
    return tuple((name, events[i].number) for i, name in pairs)


@pytest.mark.parametrize("block", range(4))
def test_the_operator_finds_what_a_search_finds_in_any_batches(block: int) -> None:
    for seed in range(block * 25, (block + 1) * 25):
        rng = random.Random(f"operator {seed}")
        made, _ = drawn(rng)
        made = made.within(rng.randint(3, 14)).after_match(skip.no_skip())
        in_time = rng.random() < 0.7
        records, ts = [], 0
        for number in range(rng.randint(6, 14)):
            ts += rng.choice([0, 0, 1, 2, 4])
            late = rng.choice([0, 0, 1, 2]) if in_time else 0
            records.append((rng.choice(KEYS), {"label": rng.choice(LABELS), "number": number}, max(ts - late, 0)))
        restart_at = rng.randrange(len(records))
        outputs = [
            operated(made, records, in_time, batch, restart_at if i % 2 else None) for i, batch in enumerate(BATCHES)
        ]
        text = f"seed {seed}: {made.shape()} over {records}, event time: {in_time}"
        assert all(o == outputs[0] for o in outputs), text
        by_key = taken(records, in_time=in_time)
        for key, events in by_key.items():
            found = [in_order(v, events) for k, v, _ in outputs[0]["matches"] if k == key]
            assert Counter(found) == numbered(matches(made, events), events), text
        assert len(outputs[0]["late"]) == len(records) - sum(map(len, by_key.values())), text


def operated(
    made: Pattern, records: list[tuple[str, dict[str, Any], int]], in_time: bool, batch: int, restart_at: int | None
) -> dict[str, list[tuple[Any, Any, int]]]:
    builder = StreamsBuilder("patterns", key=str, value="json")
    found = builder.stream("in").match(made, event_order="time" if in_time else "arrival")
    found.matches.to("matches")
    found.timeouts.to("timeouts")
    found.late.to("late")
    with TopologyTestDriver(builder, options=TaskOptions(batch_max_records=batch)) as driver:
        rows = [Record(*record) for record in records]
        end = [Record("end", {"label": "", "number": -1}, ts) for ts in (10_000, 10_001)]
        if restart_at is not None:
            driver.pipe_all("in", rows[:restart_at])
            driver.restart(restore=True)
        driver.pipe_all("in", rows[restart_at:])
        driver.pipe_all("in", end)
        return {
            topic: [(r.key, r.value, r.timestamp_ms) for r in driver.read(topic)]
            for topic in ("matches", "timeouts", "late")
        }
