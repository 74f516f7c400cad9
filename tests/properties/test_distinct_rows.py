"""Distinct counts over a table's rows, whose members are entries of a store with the number of their rows, against sets:
rows that change, move to another group, and go, however they are cut into batches, with restarts anywhere."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock import aggregators as agg
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.expressions.functions import col
from penstock.topologies.expressions.functions import count as count_of_rows
from penstock.topologies.operator_api.operator import Emission

EXPRESSIONS = {
    "rows": count_of_rows(),
    "users": col("user").count_distinct(),
    "big": col("n").count_distinct().where(col("n") > 2),
}
MIXED = {"rows": agg.count(), "users": agg.count_distinct("user"), "big": EXPRESSIONS["big"]}
Results = dict[str, dict[str, int]]


class Row(msgspec.Struct, frozen=True):
    """A row of the table."""

    group: str
    n: int
    user: str | None = None


def build(parts: dict[str, Any], emission: Emission) -> ps.Topology:
    builder = ps.StreamsBuilder("p", key=str, value=Row)
    grouped = builder.table("in").group_by(lambda key, row: (row.group, row), key=str)
    grouped.agg(name="totals", emission=emission, **parts).to_stream().to("out")
    return builder.build()


def answers(rows: list[Row]) -> dict[str, int]:
    return {
        "rows": len(rows),
        "users": len({r.user for r in rows} - {None}),
        "big": len({r.n for r in rows if r.n > 2}),
    }


def members_of(rows: list[Row]) -> Counter[int]:
    """How many rows each member of a group has, as those counts."""
    users = Counter(r.user for r in rows if r.user is not None)
    return Counter([*users.values(), *Counter(r.n for r in rows if r.n > 2).values()])


def outcome(parts: dict[str, Any], emission: Emission, seed: int, batch: int) -> None:
    rng = random.Random(seed)
    table: dict[str, Row] = {}
    seen: set[str] = set()
    options = TaskOptions(batch_max_records=batch)
    with ps.TopologyTestDriver(build(parts, emission), options=options, auto_commit=False) as driver:
        for at in range(rng.choice((4, 12))):
            some: list[Record] = []
            for _ in range(rng.choice((1, 10, 60))):
                key = f"k{rng.randrange(12)}"
                row = Row(rng.choice("ab"), rng.randint(0, 5), rng.choice((None, "", "x", "y", "z")))
                if rng.random() < 0.25:
                    table.pop(key, None)
                    some.append(Record(key.encode(), None, at))
                else:
                    table[key] = row
                    seen.add(row.group)
                    some.append(Record(key.encode(), msgspec.json.encode(row), at))
            driver.pipe_raw({"in": some})
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.4:
                driver.restart(restore=rng.random() < 0.5)
        driver.restart()
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in table.values():
            groups[row.group].append(row)
        last: Results = {r.key: r.value for r in driver.read("out")}
        assert last == {group: answers(groups[group]) for group in seen}, (seed, batch)
        held = [s for task in driver.tasks.values() for name, s in task.stores.items() if name == "totals-members"]
        counts = Counter(value for state in held for _, value, _ in state.range())
        assert counts == sum((members_of(rows) for rows in groups.values()), Counter()), (seed, batch)


@pytest.mark.parametrize("emission", ["every_update", "per_commit"])
@pytest.mark.parametrize("parts", [EXPRESSIONS, MIXED], ids=["expressions", "mixed"])
def test_counts_of_rows_are_those_of_sets(parts: dict[str, Any], emission: Emission) -> None:
    for seed in range(8):
        for batch in (1, 4, 10_000):
            outcome(parts, emission, seed, batch)


def test_old_values_are_those_that_were_shown() -> None:
    """A later table aggregation takes back what the former result added."""
    builder = ps.StreamsBuilder("p", key=str, value=Row)
    per_group = builder.table("in").group_by(lambda key, row: (row.group, row), key=str)
    users = per_group.aggregate(agg.count_distinct("user"), name="users")
    total = users.group_by(lambda group, n: ("all", n), key=str, value=int)
    total.reduce(lambda a, b: a + b, lambda a, b: a - b, name="total").to_stream().to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        for key, row in (("1", Row("a", 1, "x")), ("2", Row("b", 1, "x")), ("3", Row("a", 1, "y"))):
            driver.pipe("in", key, row)
        driver.pipe("in", "1", Row("b", 1, "x"))
        driver.pipe("in", "3", None)
        driver.pipe("in", "2", None)
        assert [r.value for r in driver.read("out")][-1] == 1


def test_aggregates_with_a_ttl_keep_their_members_themselves() -> None:
    builder = ps.StreamsBuilder("p", key=str, value=Row)
    rows = builder.table("in").group_by(lambda key, row: (row.group, row), key=str)
    rows.with_ttl("1h").aggregate(agg.count_distinct("user"), name="users").to_stream().to("out")
    topology = builder.build()
    assert not [s.name for s in topology.stores if "members" in s.name]
    with ps.TopologyTestDriver(topology) as driver:
        driver.pipe("in", "1", Row("a", 1, "x"))
        driver.pipe("in", "2", Row("a", 1, "y"))
        driver.pipe("in", "1", None)
        assert [r.value for r in driver.read("out")] == [1, 2, 1]
