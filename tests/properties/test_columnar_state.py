"""Joins, counts and sinks on columns: the same outputs, changelogs, stores and counters as on rows, however batches are cut,
with nulls, late records, tables that change within a batch, commits and restarts anywhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from penstock.state.log import Record
from penstock.state.native import compiled
from penstock.state.stores.count_store import CountStoreView
from penstock.streams.task import sink_operator
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.errors import ResultError
from penstock.topologies.expressions.functions import coalesce, col, left, lit, right, struct
from penstock.topologies.expressions.functions import count as count_of_rows
from penstock.topologies.expressions.functions import key as key_of_record
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates.folds.counts import CountColumns
from penstock.topologies.operators.aggregates.folds.updates import PartUpdates
from penstock.topologies.operators.columnar import hopping as hopping_columns
from penstock.topologies.operators.columnar.folding import PartFolds
from penstock.topologies.operators.columnar.join_fields import JoinedFields
from penstock.topologies.operators.joins import stream_table_join as join_operator
from penstock.topologies.operators.windows import window_aggregate
from penstock.topologies.windows import HoppingWindows, Windows, hopping, tumbling

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy would say what rows do not
BATCHES = (1, 2, 7, 10_000)
SEEDS = range(8)


class Numbered(msgspec.Struct, frozen=True):
    """What every record has."""

    n: int


class Named(msgspec.Struct, frozen=True):
    """What every record has, and what some have."""

    n: int
    text: str = "none"
    x: float | None = None


class Pair(msgspec.Struct, frozen=True):
    """Fields of both sides of a join."""

    n: int
    sum: int | None
    text: str | None = None


Build = Callable[[random.Random], StreamsBuilder]


def pass_through(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=bytes, value=bytes)
    builder.stream("in").to("out")
    return builder


def repartition(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=str, value=rng.choice((bytes, dict)))
    builder.stream("in").repartition(name="again").to("out")
    return builder


def count(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=rng.choice((bytes, dict)))
    emission = rng.choice(("every_update", "per_commit"))
    builder.stream("in").group_by_key().count(name="counts", emission=emission).to("out")
    return builder


def unheard_count(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=bytes)
    grouped = builder.stream("in").group_by_key()
    counts = grouped.count(name="counts", emission=rng.choice(("every_update", "per_commit")))
    if rng.random() < 0.3:  # someone else looks into the store
        builder.stream("table").join(counts, lambda value, count: str(count), value=str).to("out")
    return builder


def overlapping(rng: random.Random) -> StreamsBuilder:
    return aggregated(rng, some_hopping(rng))


def aggregated(rng: random.Random, windows: Windows | None = None) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=Named)
    grouped = builder.stream("in").group_by_key()
    emissions: tuple[Emission, ...] = ("per_commit", "per_commit", "every_update")
    if windows is not None or rng.random() < 0.6:
        if windows is None:
            windows = tumbling(rng.choice((7, 40)), grace=rng.choice((0, 30)), offset=rng.choice((0, 3)))
        grouped, emissions = grouped.windowed_by(windows), (*emissions, "on_close")
    n, x = col("n"), col("x")
    big = (n - 4) * rng.choice((1, 1 << 58))  # whose sum leaves the bounds, and may come back
    parts = {
        "rows": count_of_rows(),
        "texts": col("text").count(),
        "xs": x.count(),
        "total": big.sum(),
        "mean": n.mean(),
        "least": n.min(),
        "most": (n * 2).max(),
        "float": x.sum(),
        "average": (x * rng.choice((0.1, 10.0))).mean(),
        "low": x.min(),
        "high": x.max(),
        "some": n.sum().where(n > 5),
        **DISTINCT,
    }
    chosen = {name: parts[name] for name in rng.sample(sorted(parts), rng.randint(1, 5))}
    table = grouped.agg(name="totals", emission=rng.choice(emissions), **chosen)
    table.to_stream(lambda key, value: str(key), key=str).to("out")
    return builder


DISTINCT = {
    "kinds": col("text").count_distinct(),
    "ns": col("n").count_distinct(),
    "few": col("n").count_distinct().where(col("n") > 5),
    "different": col("x").count_distinct(),
    "first": col("text").min(),
    "last": col("text").max().where(col("n") < 7),
}


def overlapping_updates(rng: random.Random) -> StreamsBuilder:
    return updated(rng, some_hopping(rng))


def updated(rng: random.Random, windows: Windows | None = None) -> StreamsBuilder:
    """Every update of aggregates that columns can show, under windowed keys or plain ones."""
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=Named)
    grouped = builder.stream("in").group_by_key()
    if windows is not None or rng.random() < 0.6:
        grouped = grouped.windowed_by(windows or tumbling(rng.choice((7, 40)), grace=rng.choice((0, 30))))
    n = col("n")
    big = (n - 4) * rng.choice((1, 1, 1 << 58))
    parts = {
        "rows": count_of_rows(),
        "mean": n.mean() / (count_of_rows() - rng.choice((0, 0, 0, 3))),
        "texts": col("text").count(),
        "total": big.sum() + count_of_rows(),
        "least": n.min(),
        "most": (n * 2).max().where(n > rng.choice((3, 9))),
        "some": n.sum().where(n > 5),
        **DISTINCT,
    }
    del parts["different"]
    chosen = {name: parts[name] for name in rng.sample(sorted(parts), rng.randint(1, 6))}
    if rng.random() < 0.5:
        table = grouped.agg(name="totals", **chosen)
    else:
        table = grouped.aggregate(
            struct(**chosen) if rng.random() < 0.7 else next(iter(chosen.values())), name="totals"
        )
    table.to("out")
    return builder


def some_hopping(rng: random.Random) -> HoppingWindows:
    """Windows that overlap, or leave gaps."""
    size, advance = rng.choice(((10, 5), (10, 2), (7, 3), (40, 1), (9, 6), (3, 8), (1, 1), (5, 5), (60, 25)))
    return hopping(size, advance, grace=rng.choice((0, 3, 30)), offset=rng.choice((0, 0, 2, 31)))


def overlapping_count(rng: random.Random) -> StreamsBuilder:
    return windowed_count(rng, some_hopping(rng))


def windowed_count(rng: random.Random, windows: Windows | None = None) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=bytes)
    if windows is None:
        windows = tumbling(rng.choice((1, 7, 10, 40)), grace=rng.choice((0, 3, 30)), offset=rng.choice((0, 0, 2, 39)))
    emission = rng.choice(("every_update", "per_commit", "on_close"))
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    counts = grouped.count(name="counts", emission=emission, late=True)
    counts.late.to("late")
    counts.to_stream(lambda w, n: f"{w.key}@{w.start_ms}", key=str).map_values(str, value=str).to("out")
    return builder


def table_join(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=bytes)
    kept = rng.choice((bytes, str, dict))
    table = builder.table("table", value=kept, name="rows")
    stream = builder.stream("in")
    joiner, value = rng.choice(
        (
            (lambda click, row: {"row": str(row), "click": str(click)}, dict),
            (right(), kept),
            (right().is_null(), dict),
        )
    )
    join = stream.join if rng.random() < 0.5 else stream.left_join
    join(table, joiner, value=value).to("out")
    return builder


def counted_joins(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=bytes)
    table = builder.table("table", value=str, name="rows")
    joined = builder.stream("in").join(table, right(), value=str)
    emission = rng.choice(("every_update", "per_commit"))
    joined.group_by_key().windowed_by(tumbling(20, grace=10)).count(name="counts", emission=emission).to_stream(
        lambda w, n: f"{w.key}@{w.start_ms}", key=str
    ).to("out")
    return builder


def enriched(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=Numbered)
    table = builder.table("table", value=rng.choice((Numbered, Named, dict)), name="rows")
    joiner = struct(m=left("n") + 1, n=left("n"), row=right(), same=right("n"), none=lit(None))
    stream = builder.stream("in")
    join = stream.join if rng.random() < 0.5 else stream.left_join
    join(table, joiner).to("out")
    return builder


def pair_of(value: Numbered, row: Named) -> Pair:
    """Both sides, of which neither may be missing."""
    return Pair(value.n, value.n * 10 + row.n, row.text)


def pair_with(value: Numbered, row: Named | None) -> Pair:
    """The record, with what its row has if there is one."""
    return Pair(value.n, None if row is None else row.n + 1, row.text if row is not None else "nothing")


def compared(value: Numbered, row: Named) -> dict[str, Any]:
    """A dict of both sides."""
    return {"n": value.n, "more": value.n > row.n, "text": row.text}


PAIRS: tuple[tuple[Any, Any], ...] = (
    (struct(n=left("n"), sum=left("n") * 10 + right("n"), text=right("text")), Pair),
    (struct(n=left("n"), sum=left("n") - right("n")), Pair),
    (
        struct(text=right("text"), some=left("n") > right("n"), kept=coalesce(right("x"), left("n").cast(float), 0.5)),
        None,
    ),
    (struct(n=left("n"), row=right("n")), None),
    (pair_of, Pair),
    (pair_with, Pair),
    (compared, dict),
)


def paired(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=Numbered)
    table = builder.table("table", value=Named, name="rows")
    stream = builder.stream("in")
    joiner, value = rng.choice(PAIRS)
    join = stream.join if rng.random() < 0.5 else stream.left_join
    join(table, joiner, value=value).to("out")
    return builder


def joined_globally(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=str, value=Named)
    table = builder.global_table("table", value=Named)
    stream = builder.stream("in")
    key: Any = rng.choice((col("text"), col("text").upper().lower(), lambda key, value: value.text, key_of_record()))
    joiner, value = rng.choice((*PAIRS, (right(), None), (lambda value, row: {"value": value, "row": str(row)}, dict)))
    join = stream.join_global if rng.random() < 0.5 else stream.left_join_global
    join(table, key, joiner, value=value).to("out")
    return builder


def projected(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=str, value=Named)
    parts = struct(n=col("n"), text=col("text"), big=col("text").upper(), **{"50%": col("x"), 'q"': col("n") > 5})
    builder.stream("in").filter_values(col("n") > 2).map_values(parts).to("out")
    return builder


def counted_by_field(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=str, value=Named, emission=rng.choice(("every_update", "per_commit")))
    grouped = builder.stream("in").group_by(col("text"), key=str)
    if rng.random() < 0.5:
        grouped = grouped.windowed_by(tumbling(rng.choice((5, 40)), grace=rng.choice((0, 20))))
    grouped.count(name="counts").to_stream(lambda key, n: str(key), key=str).map_values(str, value=str).to("out")
    return builder


def random_record(rng: random.Random, now: int, *, table: bool) -> Record:
    key = None if rng.random() < 0.06 else rng.choice((b"a", b"b", b"c", b"dd", b"", "é".encode()))
    fields: dict[str, Any] = {"n": rng.randint(0, 9)}
    if rng.random() < 0.7:
        fields |= {"text": rng.choice(("a", 'q"', "é")), "x": rng.choice((None, 0.5, 1e300, 1e308, -1e308, -0.0, 0))}
    value: bytes | None = orjson.dumps(fields)
    if rng.random() < (0.3 if table else 0.08):
        value = None
    ts = max(now - rng.choice((0, 0, 0, 2, 7, 30)), 0)
    headers = (("h", b"%d" % now),) if rng.random() < 0.1 else ()
    return Record(key, value, ts, headers)


def outcome(build: Build, seed: int, batch: int, *, columns: bool) -> dict[str, Any]:
    """Everything that the program did with the seed's input."""
    try:
        return _outcome(build, seed, batch, columns=columns)
    except ResultError:
        return {"stopped": True, "written": {"out": []}}


def _outcome(build: Build, seed: int, batch: int, *, columns: bool) -> dict[str, Any]:
    rng = random.Random(seed)
    topology = build(rng).build()
    options = TaskOptions(batch_max_records=batch, policies=Policies(processing="skip"))
    with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        out: dict[str, Any] = {}
        now = rng.randint(0, 30)
        topics = [t for t in ("in", "table") if any(t in s for s in topology.source_topics("test"))]
        for _ in range(rng.randint(2, 6)):
            records: dict[str, list[Record]] = {t: [] for t in topics}
            for _ in range(rng.choice((3, 20, 60))):
                now += rng.choice((0, 0, 1, 2, 9))
                topic = rng.choice(topics)
                records[topic].append(random_record(rng, now, table=topic == "table"))
            driver.pipe_raw({t: rows for t, rows in records.items() if rows})
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.2:
                driver.restart(restore=rng.random() < 0.5)
        driver.commit()
        driver.commit()
        out["written"] = {t: driver.read_raw(t) for t in ("out", "late")}
        out["changelogs"] = driver.changelogs
        out["stores"] = {
            name: list(state.range()) for task in driver.tasks.values() for name, state in task.stores.items()
        }
        out["dropped"] = +driver.dropped_records
        return out


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often batches were taken as columns."""
    seen: Counter[str] = Counter()
    count_columns, meet = CountColumns.fold, join_operator.meet
    joined, write = JoinedFields.joined, sink_operator.written_json
    count = CountStoreView.count

    def tallied(self: Any, *args: Any) -> bool:
        done = count(self, *args)
        seen["tally"] += done
        return done

    monkeypatch.setattr(CountStoreView, "count", tallied)
    folded = PartFolds.folded

    def fold(self: Any, *args: Any) -> Any:
        found = folded(self, *args)
        seen["fold"] += found is not None
        return found

    monkeypatch.setattr(PartFolds, "folded", fold)
    update = PartUpdates.fold

    def updates(self: Any, *args: Any) -> bool:
        done = update(self, *args)
        seen["update"] += done
        return done

    monkeypatch.setattr(PartUpdates, "fold", updates)
    spread = window_aggregate.spread

    def spreads(*args: Any) -> Any:
        seen["spread"] += 1
        return spread(*args)

    monkeypatch.setattr(window_aggregate, "spread", spreads)

    def counted(self: Any, *args: Any) -> bool:
        done = count_columns(self, *args)
        seen["count"] += done
        return done

    def met(*args: Any, **options: Any) -> Any:
        found = meet(*args, **options)
        seen["join"] += found is not None
        return found

    def joined_fields(self: Any, met: Any) -> Any:
        found = joined(self, met)
        seen["fields"] += found is not None
        return found

    def wrote(*args: Any) -> Any:
        found = write(*args)
        seen["json"] += found is not None
        return found

    monkeypatch.setattr(JoinedFields, "joined", joined_fields)
    monkeypatch.setattr(sink_operator, "written_json", wrote)
    monkeypatch.setattr(CountColumns, "fold", counted)
    monkeypatch.setattr(join_operator, "meet", met)
    return seen


PROGRAMS: dict[Build, str] = {
    pass_through: "",
    repartition: "",
    count: "count",
    windowed_count: "count",
    overlapping_count: "spread",
    overlapping: "fold",
    table_join: "join",
    unheard_count: "tally",
    aggregated: "fold",
    updated: "update",
    overlapping_updates: "update",
    counted_joins: "count",
    enriched: "fields",
    paired: "fields",
    joined_globally: "fields",
    projected: "json",
    counted_by_field: "count",
}


@pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: str(build.__name__))
def test_columns_change_nothing(build: Build, used: Counter[str]) -> None:
    for seed in SEEDS:
        for batch in BATCHES:
            before = used.total()
            rows = outcome(build, seed, batch, columns=False)
            # partial counts come out of their records as columns, whatever the input was
            assert build is counted_by_field or used.total() == before, "rows were taken for columns"
            assert outcome(build, seed, batch, columns=True) == rows, (seed, batch)
    kind = PROGRAMS[build]
    if kind == "tally" and not hasattr(compiled(), "Tally"):
        kind = "count"
    assert not kind or used[kind], "no batch was taken as columns"


@pytest.mark.parametrize("build", [overlapping_count, overlapping], ids=lambda build: str(build.__name__))
def test_windows_are_spread_piece_by_piece(build: Build, used: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopping_columns, "_SPREAD_MAX", 40)
    for seed in range(20, 30):
        assert outcome(build, seed, 10_000, columns=True) == outcome(build, seed, 10_000, columns=False), seed
    assert used["spread"]
