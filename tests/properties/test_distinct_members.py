"""Distinct counts whose members are entries of a store, against sets: per key and per window, however records are cut into
batches, by rows and by columns, with records that fail, late ones, and restarts anywhere."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock import aggregators as agg
from penstock.state.errors import IncompatibleError
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.aggregators.members_apart import DISTINCT_COUNT
from penstock.topologies.expressions.functions import col
from penstock.topologies.expressions.functions import count as count_of_records
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.columnar.members import DistinctColumns
from penstock.topologies.windows import TumblingWindows, Windows

BATCHES = (1, 3, 70, 10_000)
MOST = 40
"""A sum above it fails."""


class Visit(msgspec.Struct, frozen=True):
    """The value of every record."""

    n: int
    user: str | None = None
    x: float | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """A program: windows (``None``: per key), emission, aggregates."""

    windows: Windows | None
    emission: Emission
    parts: dict[str, Any]
    fails: bool = False
    """Whether sums above ``MOST`` fail."""
    combined: bool = False
    retention: str | None = None


def at_most(a: int, b: int) -> int:
    if a + b > MOST:
        raise ValueError("too much")
    return a + b


EXPRESSIONS = {
    "users": col("user").count_distinct(),
    "ns": col("n").count_distinct(),
    "big": col("n").count_distinct().where(col("n") > 4),
    "xs": col("x").count_distinct(),
    "rows": count_of_records(),
}
"""All that columns take: the same counts as numbers, texts and floats, and one with a condition."""
FUNCTIONS = {"users": agg.count_distinct("user"), "ns": agg.count_distinct(lambda v: v.n), "rows": agg.count()}
MIXED = {
    "rows": agg.count(),
    "users": col("user").count_distinct(),
    "ns": agg.count_distinct("n"),
    "xs": EXPRESSIONS["xs"],
}
LIMITED = {
    "users": agg.count_distinct("user"),
    "total": agg.reduce_(at_most, "n", value=int),
    "ns": agg.count_distinct("n"),
}

TUMBLING, HOPPING = ps.tumbling(20, grace=5), ps.hopping(20, 5, grace=5)
CASES = {
    "per key": Case(None, "every_update", EXPRESSIONS),
    "per key and commit": Case(None, "per_commit", EXPRESSIONS),
    "functions": Case(None, "every_update", FUNCTIONS),
    "mixed": Case(None, "every_update", MIXED),
    "failing": Case(None, "every_update", LIMITED, fails=True),
    "tumbling": Case(TUMBLING, "every_update", EXPRESSIONS),
    "tumbling, per commit": Case(TUMBLING, "per_commit", EXPRESSIONS),
    "tumbling, on close": Case(TUMBLING, "on_close", EXPRESSIONS),
    "tumbling, kept longer": Case(TUMBLING, "every_update", EXPRESSIONS, retention="1h"),
    "tumbling, mixed": Case(TUMBLING, "every_update", MIXED),
    "hopping": Case(HOPPING, "every_update", EXPRESSIONS),
    "hopping, per commit": Case(HOPPING, "per_commit", EXPRESSIONS),
    "hopping, failing": Case(HOPPING, "every_update", LIMITED, fails=True),
    "panes": Case(HOPPING, "on_close", EXPRESSIONS),
    "combined": Case(None, "per_commit", EXPRESSIONS, combined=True),
    "combined, mixed": Case(None, "per_commit", MIXED, combined=True),
}
in_every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def build(case: Case) -> ps.Topology:
    builder = ps.StreamsBuilder("p", key=str, value=Visit)
    stream = builder.stream("in")
    grouped = stream.group_by(lambda key, value: key, key=str) if case.combined else stream.group_by_key()
    if case.windows is None:
        table = grouped.agg(name="totals", emission=case.emission, **case.parts)
    else:
        windowed = grouped.windowed_by(case.windows, retention=case.retention)
        table = windowed.agg(name="totals", emission=case.emission, **case.parts)
    shown = table.to_stream(lambda key, value: key if isinstance(key, str) else f"{key.key}@{key.start_ms}", key=str)
    shown.to("out")
    return builder.build()


# -- the oracle --------------------------------------------------------------------------------------------------

Name = tuple[str, int | None]
"""Key, and window start."""


class Oracle:
    """One record after the other, with a set for each count."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.groups: dict[Name, list[Visit]] = {}
        self.updates: list[tuple[str, dict[str, int]]] = []
        self.time_ms = -1

    def starts(self, ts: int) -> list[int | None]:
        windows = self.case.windows
        if windows is None:
            return [None]
        advance = 20 if isinstance(windows, TumblingWindows) else 5
        every = range(max((ts - 20) // advance * advance + advance, 0), ts + 1, advance)
        return [s for s in every if s + 20 + 5 > self.time_ms]

    def take(self, key: str | None, value: Visit | None, ts: int) -> None:
        if key is None or value is None:
            return
        self.time_ms = max(self.time_ms, ts)
        names = [(key, start) for start in self.starts(ts)]
        if self.case.fails and any(sum(v.n for v in self.groups.get(n, ())) + value.n > MOST for n in names):
            return
        for name in names:
            self.groups.setdefault(name, []).append(value)
            self.updates.append((self.shown(name), self.result(name)))

    def result(self, name: Name) -> dict[str, int]:
        group = self.groups[name]
        answers: dict[str, Callable[[], int]] = {
            "users": lambda: len({v.user for v in group} - {None}),
            "ns": lambda: len({v.n for v in group}),
            "big": lambda: len({v.n for v in group if v.n > 4}),
            "xs": lambda: len({repr(v.x) for v in group} - {"None"}),
            "rows": lambda: len(group),
            "total": lambda: sum(v.n for v in group),
        }
        return {part: answers[part]() for part in self.case.parts}

    def members(self) -> int:
        """How many entries there must be: those of windows that take records."""
        kept = [n for n in self.groups if n[1] is None or n[1] >= self.time_ms - 25 + 1]
        counts = [p for p in self.case.parts if p not in ("rows", "total")]
        return sum(self.result(n)[p] for n in kept for p in counts)

    @staticmethod
    def shown(name: Name) -> str:
        return name[0] if name[1] is None else f"{name[0]}@{name[1]}"


# -- the program -------------------------------------------------------------------------------------------------


def some_records(rng: random.Random) -> Iterator[tuple[str | None, Visit | None, int]]:
    now = 0
    for _ in range(rng.choice((30, 150, 400))):
        now += rng.choice((0, 0, 1, 2, 3))
        key = rng.choice((None, "", "a", "a\x00", "ab", "é", *"abab"))
        user = rng.choice((None, "", "b", "\x00", *(f"u{i}" for i in range(9))))
        visit = Visit(rng.randint(-3, 9), user, rng.choice((None, 0.0, -0.0, 0.5, 1e300)))
        yield key, None if rng.random() < 0.03 else visit, max(now - rng.choice((0, 0, 0, 4, 30)), 0)


def outcome(
    case: Case, seed: int, batch: int, *, columns: bool
) -> tuple[list[tuple[str, dict[str, int]]], Oracle, int]:
    """What was written, the oracle, and the number of members in the store."""
    rng = random.Random(seed)
    oracle = Oracle(case)
    options = TaskOptions(batch_max_records=batch, policies=Policies(processing="skip"))
    driver = ps.TopologyTestDriver(build(case), options=options, auto_commit=False, columns=columns)
    with driver:
        rows = list(some_records(rng))
        while rows:
            cut = rng.choice((1, 5, 100, 300))
            some, rows = rows[:cut], rows[cut:]
            for row in some:
                oracle.take(*row)
            written = [
                Record(None if k is None else k.encode(), None if v is None else msgspec.json.encode(v), ts)
                for k, v, ts in some
            ]
            driver.pipe_raw({"in": written})
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.3:
                driver.restart(restore=rng.random() < 0.5)
        driver.restart()
        held = [s for task in driver.tasks.values() for name, s in task.stores.items() if name == "totals-members"]
        members = [entry for state in held for entry in state.range()]
        assert {(value, ts) for _, value, ts in members} <= {(1, 1)}
        return [(r.key, r.value) for r in driver.read("out")], oracle, len(members)


@in_every_case
@pytest.mark.parametrize("columns", [False, True])
def test_counts_are_those_of_sets(case: Case, columns: bool) -> None:
    used: dict[bool, int] = defaultdict(int)
    with pytest.MonkeyPatch.context() as patch:
        fresh = DistinctColumns.fresh

        def counted(self: Any, *args: Any) -> Any:
            found = fresh(self, *args)
            used[found is not None] += 1
            return found

        patch.setattr(DistinctColumns, "fresh", counted)
        for seed in range(4):
            for batch in BATCHES:
                written, oracle, members = outcome(case, seed, batch, columns=columns)
                if case.emission == "every_update":
                    assert written == oracle.updates, (seed, batch)
                closed = [n for n in oracle.groups if n[1] is None or n[1] + 25 <= oracle.time_ms]
                names = closed if case.emission == "on_close" else oracle.groups
                assert dict(written) == {oracle.shown(n): oracle.result(n) for n in names}, (seed, batch)
                if case is not CASES["panes"]:
                    assert members == oracle.members(), (seed, batch)
    if columns and case.parts is EXPRESSIONS and case not in (CASES["panes"], CASES["combined"]):
        assert used[True], "no batch was taken as columns"


def test_members_are_written_once() -> None:
    """The changelog of the members has an entry for each, and that of the counts holds numbers only."""
    with ps.TopologyTestDriver(build(CASES["per key"]), auto_commit=False) as driver:
        for turn in range(5):
            driver.pipe_all("in", [Record("a", Visit(n, f"u{n}"), turn) for n in range(100)])
            driver.commit()
        (members,) = (rows for topic, rows in driver.changelogs.items() if "members" in topic)
        (counts,) = (rows for topic, rows in driver.changelogs.items() if "members" not in topic)
        assert len(members) == 100 + 100 + 95
        assert max(len(r.value or b"") for r in counts) < 40


def test_members_of_one_group_are_not_those_of_another() -> None:
    """Keys and members whose bytes run together are told apart."""
    with ps.TopologyTestDriver(build(CASES["functions"])) as driver:
        for key, user in (("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), ("a", "bc"), ("ab", "c")):
            driver.pipe("in", key, Visit(1, user))
        assert [r.value["users"] for r in driver.read("out")] == [1, 1, 1, 1, 1, 1]


def test_the_former_form_is_refused() -> None:
    """A count cannot be read from a collection of members, of any size."""
    for pairs in ([], [(b"abc", 1)], [(b"%d" % i, 1) for i in range(100)]):
        with pytest.raises(msgspec.DecodeError):
            DISTINCT_COUNT.deserialize(msgspec.msgpack.encode(pairs))
    former = ps.StreamsBuilder("p", key=str, value=Visit)
    former.stream("in").group_by_key().aggregate(
        list, lambda key, visit, seen: [*seen, (b"%d" % visit.n, 1)], value="msgpack", name="totals"
    )
    with ps.TopologyTestDriver(former.build(), application_id="one") as before:
        before.pipe("in", "a", Visit(1))
        stored = {n: dict(t.backend.range(n, None, None)) for t in before.tasks.values() for n in t.stores}
    (entry,) = stored["totals"].values()
    one = ps.StreamsBuilder("p", key=str, value=Visit)
    one.stream("in").group_by_key().aggregate(agg.count_distinct("n"), name="totals")
    with ps.TopologyTestDriver(one.build(), application_id="one") as after:
        (task,) = after.tasks.values()
        state = task.stores["totals"]
        with pytest.raises(IncompatibleError, match="serde distinct cannot read"):
            state._thaw(entry, b"a")
