"""Tables that are regrouped by expressions and aggregated again, on columns: the same outputs, changelogs, stores and
counters as on rows, however batches are cut, with rows that go, groups that change, nulls, commits and restarts anywhere."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from penstock.state.errors import ProcessingError
from penstock.state.log import Record
from penstock.state.native import without
from penstock.state.serdes.change_serde import Change, RowChangeSerde
from penstock.state.serdes.serde import INT, JSON, Serde, typed_json
from penstock.streams.task import sink_operator
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.internals.table_aggregates import RowGroups
from penstock.topologies.dsl.kgrouped_table import KGroupedTable
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.expressions.errors import ResultError
from penstock.topologies.expressions.functions import col, count, key, lit, struct, value, when
from penstock.topologies.expressions.types import INT64, struct_of
from penstock.topologies.expressions.types import STRING as STRING_TYPE
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates.folds.changes import ChangeFolds
from penstock.topologies.operators.columnar.flushing import PartFlush
from penstock.topologies.operators.columnar.regrouping import Regrouping
from penstock.topologies.operators.columnar.source import Decoder
from penstock.topologies.operators.tables import table_operators
from tests.properties.following import left_behind

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy would say what rows do not
BATCHES = (1, 7, 10_000)
SEEDS = range(12)
EMISSIONS: tuple[Emission, ...] = ("every_update", "per_commit")


class Given(msgspec.Struct, frozen=True):
    """What records have."""

    n: int
    text: str = "none"
    m: int | None = None


class Kept(msgspec.Struct, frozen=True):
    """Rows of a class."""

    total: int | None
    rows: int
    text: str | None
    low: int | None


def first_table(rng: random.Random, builder: StreamsBuilder) -> KTable[Any, Any]:
    """Rows that change, and perhaps go."""
    parts = {"total": col("n").sum(), "rows": count(), "text": col("text").max(), "low": col("m").min()}
    emission = rng.choice(EMISSIONS)
    grouped = builder.stream("in").group_by_key()
    into: Any = Kept if rng.random() < 0.3 else None
    if into is None and rng.random() < 0.3:
        parts["text"] = col("text").count()
    table: KTable[Any, Any] = grouped.agg(emission=emission, value=into, **parts)
    if rng.random() < 0.4:
        table = table.filter(rng.choice((col("total") % 4 != 1, col("low") > 3, col("rows") < 3)))
    if rng.random() < 0.3:
        table = table.map_values(struct(total=col("total") - 1, rows=col("rows"), text=col("text"), low=col("low")))
    return table


def by_group(rng: random.Random, table: KTable[Any, Any]) -> Any:
    """The table by a group that changes, has nulls, or fails for some rows."""
    total = col("total")
    groups = (
        total % 3,
        lit(7),
        col("text"),
        col("low"),
        key(),
        struct(odd=total % 2, text=col("text")),
        lit(12) // (total - 7),
        when(total % 3 == 0).then(None).otherwise(total % 2),
        (total % 3) * 0.5,
    )
    return table.group_by(rng.choice(groups))


def folded(rng: random.Random, grouped: Any) -> KTable[Any, Any]:
    """Aggregates that can be taken back."""
    emission, total = rng.choice(EMISSIONS), col("total")
    parts = {
        "members": count(),
        "texts": col("text").count(),
        "sum": total.sum(),
        "lows": col("low").sum(),
        "mean": total.mean(),
        "low_mean": col("low").mean(),
        "some": total.sum().where(total > 9),
        "few": count().where(col("rows") < 3),
        "down": total.sum() // count(),
        "big": (total * rng.choice((1, 1 << 58))).sum(),
        "ratio": lit(60) // (count() - rng.choice((3, 40))),
        "kinds": col("text").count_distinct(),
        "spread": total.variance(),
    }
    usual = sorted(parts)[:: rng.choice((1, 2))] if rng.random() < 0.2 else [p for p in parts if p not in _BY_ROWS]
    chosen = {name: parts[name] for name in rng.sample(usual, rng.randint(1, 4))}
    kind = rng.random()
    if kind < 0.15:
        table: KTable[Any, Any] = grouped.count(emission=emission)
        return table.filter(value() > 1) if rng.random() < 0.5 else table
    if kind < 0.3:
        return grouped.aggregate(next(iter(chosen.values())), emission=emission)
    table = grouped.agg(emission=emission, members=count(), **{n: p for n, p in chosen.items() if n != "members"})
    if rng.random() < 0.5:
        table = table.filter(col("members") > rng.choice((0, 0, 1)))
    if rng.random() < 0.5:
        table = table.map_values(
            rng.choice((col("members") * 2, struct(members=col("members"), twice=col("members") + 1)))
        )
    return table


_BY_ROWS = ("kinds", "spread", "ratio")


def build(rng: random.Random) -> Topology:
    builder = StreamsBuilder("p", key=str, value=Given)
    grouped = by_group(rng, first_table(rng, builder))
    if rng.random() < 0.3:  # of groups, the totals by another group
        again = grouped.agg(total=col("total").sum(), rows=count(), emission=rng.choice(EMISSIONS))
        again = again.filter(col("rows") > 0) if rng.random() < 0.5 else again
        grouped = again.group_by(rng.choice((col("rows") % 2, col("total") % 3)))
        grouped.agg(members=count(), sum=col("total").sum(), emission=rng.choice(EMISSIONS)).to("out")
        return builder.build()
    folded(rng, grouped).to("out")
    return builder.build()


def random_record(rng: random.Random, now: int) -> Record:
    some = rng.choice(("a", "b", "", "é", f"k{rng.randrange(20)}"))
    of = None if rng.random() < 0.05 else some.encode()
    fields: dict[str, Any] = {"n": rng.randint(0, 9), "m": rng.choice((None, None, 1, 5, 9))}
    if rng.random() < 0.7:
        fields["text"] = rng.choice(("a", 'q"', "é", "zz"))
    data = None if rng.random() < 0.08 else orjson.dumps(fields)
    headers = (("h", b"%d" % now),) if rng.random() < 0.1 else ()
    return Record(of, data, max(now - rng.choice((0, 0, 0, 2, 7, 30)), 0), headers)


Program = Callable[[random.Random], tuple[Topology, Callable[[random.Random, int], Record]]]
"""A topology, and what makes its records, at a time."""


def regrouped(rng: random.Random) -> tuple[Topology, Callable[[random.Random, int], Record]]:
    return build(rng), random_record


def of_any_changes(rng: random.Random) -> tuple[Topology, Callable[[random.Random, int], Record]]:
    """Changes that nobody made: of rows that were never added, and of bytes that are none."""
    row = {"total": INT64.or_null(), "low": INT64, "text": STRING_TYPE.or_null()}
    rows: Serde[Any] = rng.choice((INT, typed_json(Kept), dataclasses.replace(JSON, declared=struct_of(row))))
    changes = RowChangeSerde.of(rows)
    builder = StreamsBuilder("p", key=str)
    # changes as they come out of the repartition topic, where no user can put any
    flow = builder.stream("in", value=changes)._flow
    grouped: KGroupedTable[Any, Any] = KGroupedTable(RowGroups(flow, rows))
    of = value() if rows is INT else col("total")
    parts = {"n": count(), "sum": of.sum(), "mean": of.mean(), "some": of.count(), "few": of.sum().where(of > 4)}
    if rows is not INT:
        parts |= {"low": col("low").sum(), "texts": col("text").count()}
    chosen = {name: parts[name] for name in rng.sample(sorted(parts), rng.randint(1, 3))}
    table = grouped.agg(emission=rng.choice(EMISSIONS), **chosen)
    name = next(iter(chosen))
    (table.filter(col(name) != 0) if rng.random() < 0.5 else table).to("out")

    def row_of(rng: random.Random) -> Any:
        if rows is INT:
            return rng.randint(-3, 9)
        fields = {"total": rng.choice((None, 1, 5, 9)), "low": rng.randint(0, 3), "text": rng.choice((None, "é", "a"))}
        return fields if rows == JSON else Kept(rows=0, **fields)

    def record(rng: random.Random, now: int) -> Record:
        new, old = rng.choice(((True, True), (True, False), (False, True)))
        data = changes.serialize(Change(row_of(rng) if new else None, row_of(rng) if old else None))
        kind = rng.random()
        if kind < 0.02:
            data = rng.choice((data[:-1], data + b"x", b"", b"\x02", b"{}\x01"))
        made = random_record(rng, now)
        return Record(made.key, None if kind > 0.99 else data, made.timestamp_ms, made.headers)

    return builder.build(), record


def outcome(program: Program, seed: int, batch: int, *, columns: bool, partitions: int) -> dict[str, Any]:
    """Everything that a program did with the seed's input."""
    try:
        return _outcome(program, seed, batch, columns=columns, partitions=partitions)
    except (ProcessingError, ResultError) as exc:  # an aggregate that fails stops both forms
        return {"stopped": str(exc)}


def _outcome(program: Program, seed: int, batch: int, *, columns: bool, partitions: int) -> dict[str, Any]:
    rng = random.Random(seed)
    topology, record = program(rng)
    options = TaskOptions(batch_max_records=batch, policies=Policies(processing="skip", deserialization="skip"))
    with TopologyTestDriver(
        topology, options=options, auto_commit=False, columns=columns, partitions=partitions
    ) as driver:
        now = rng.randint(0, 30)
        for _ in range(rng.randint(2, 6)):
            records = []
            for _ in range(rng.choice((3, 20, 60))):
                now += rng.choice((0, 0, 1, 2, 9))
                records.append(record(rng, now))
            driver.pipe_raw({"in": records})
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.3:
                driver.restart(restore=rng.random() < 0.5)
        driver.commit()
        driver.commit()
        return left_behind(driver)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often columns were taken."""
    seen: Counter[str] = Counter()

    def watch(owner: Any, name: str, kind: str) -> None:
        plain = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            found = plain(*args, **options)
            seen[kind] += found is not None
            return found

        monkeypatch.setattr(owner, name, watched)

    watch(Regrouping, "of_batch", "regroup")
    watch(ChangeFolds, "fold", "fold")
    watch(PartFlush, "of", "flush")
    watch(Decoder, "_changes_of", "read")
    watch(sink_operator, "written_changes", "write")
    watch(table_operators, "_kept", "filter")
    watch(table_operators, "_mapped", "map")
    return seen


@pytest.mark.parametrize(("program", "partitions"), [(regrouped, 1), (regrouped, 3), (of_any_changes, 1)])
def test_columns_change_nothing(used: Counter[str], program: Program, partitions: int) -> None:
    stopped = 0
    for seed in SEEDS:
        for batch in BATCHES:
            before = used.total()
            rows = outcome(program, seed, batch, columns=False, partitions=partitions)
            assert used.total() == before, "rows were taken for columns"
            found = outcome(program, seed, batch, columns=True, partitions=partitions)
            assert found == rows, (seed, batch)
            stopped += "stopped" in rows
    kinds = ("regroup", "fold", "flush", "read", "write", "filter", "map")
    if program is of_any_changes:
        kinds = ("fold", "flush", "read", "filter")
    assert not [kind for kind in kinds if not used[kind]], "no batch was taken as columns"
    assert stopped < len(SEEDS), "too few programs ran to their end"


@pytest.mark.parametrize("emission", EMISSIONS)
def test_a_result_that_fails_on_the_way_stops_both_forms(used: Counter[str], emission: Emission) -> None:
    def failing(rng: random.Random) -> tuple[Topology, Callable[[random.Random, int], Record]]:
        builder = StreamsBuilder("p", key=str, value=Given)
        rows = builder.stream("in").group_by_key().agg(total=col("n").sum(), rows=count())
        rows.group_by(lit(7)).agg(ratio=lit(60) // (count() - 3), emission=emission).to("out")
        return builder.build(), random_record

    rows = outcome(failing, 1, 10_000, columns=False, partitions=1)
    assert "division by zero" in rows["stopped"]
    assert outcome(failing, 1, 10_000, columns=True, partitions=1) == rows
    assert used["regroup"]


def test_columns_without_the_compiled_part(used: Counter[str]) -> None:
    with without():
        for seed in range(4):
            rows = outcome(regrouped, seed, 10_000, columns=False, partitions=1)
            assert outcome(regrouped, seed, 10_000, columns=True, partitions=1) == rows, seed
    assert used["fold"]
