"""Aggregates that keep whole values, on columns: the same outputs, changelogs, stores and counters as on rows, however
batches are cut, with texts that are not as they are written, equal times and ranks, nulls, failing ranks, late records, and
restarts anywhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock import aggregators as agg
from penstock.state.log import Record
from penstock.state.native import compiled
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.aggregators import Aggregator
from penstock.topologies.columnar import column_parts
from penstock.topologies.expressions.functions import col, key, left, lit, right, struct
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates import aggregate
from penstock.topologies.operators.aggregates.folds import best_texts
from penstock.topologies.operators.aggregates.folds import kept as folds
from penstock.topologies.operators.aggregates.folds.latest import HeldLatest
from penstock.topologies.operators.columnar.struct_keys import StructKeys
from penstock.topologies.windows import Windows, hopping, tumbling
from tests.properties.following import left_behind

pytestmark = pytest.mark.skipif(not hasattr(compiled(), "JsonForm"), reason="columns of values need the compiled part")
BATCHES = (1, 3, 25, 10_000)
SEEDS = range(8)
"""One for each of ``SHOWN`` with each of ``KEYS``."""
KEYS = ("texts", "structs")


class Bid(msgspec.Struct, frozen=True):
    """The value of every record."""

    n: int
    m: int
    text: str = ""
    x: int | None = None


MADE: dict[str, Callable[[], Aggregator]] = {
    "last": lambda: agg.last(value=Bid),
    "first": lambda: agg.first(value=Bid),
    "best of one": lambda: agg.top_k(1, by=col("n"), value=Bid),
    "best by two": lambda: agg.top_k(3, by=(col("n"), -col("m")), value=Bid),
    "best with ties": lambda: agg.top_k(1, by=col("m"), ties=True, value=Bid),
    "lowest with ties": lambda: agg.top_k(2, by=(col("x"), col("m")), largest=False, ties=True, value=Bid),
    "lowest by text": lambda: agg.top_k(2, by=(col("text"), col("n")), largest=False, value=Bid),
    "by nullable": lambda: agg.top_k(3, by=(col("x"), col("n")), value=Bid),
    "highest": lambda: agg.max_by((col("n"), -col("m")), value=Bid),
    "lowest of texts": lambda: agg.min_by(col("text"), value=Bid),
    "highest with many ties": lambda: agg.max_by(col("m"), value=Bid),
    "lowest of nullable": lambda: agg.min_by((col("x"), col("n")), value=Bid),
    "lowest of what fails": lambda: agg.min_by(lit(12) // col("n"), value=Bid),
    "any, by bytes": lambda: agg.max_by(lit(1), value=Bid),
    "by what fails": lambda: agg.top_k(2, by=lit(12) // col("n"), value=Bid),
}
HOW: dict[str, tuple[Windows | None, Emission]] = {
    "every update": (None, "every_update"),
    "per commit": (None, "per_commit"),
    "windows": (tumbling(40, grace=10), "every_update"),
    "windows per commit": (tumbling(40, grace=10), "per_commit"),
    "windows on close": (tumbling(40, grace=10), "on_close"),
    "hopping": (hopping(40, 15, grace=0), "every_update"),
}
SHOWN = ("table", "changes", "stream", "unheard")
LISTS = (
    "best of one",
    "best by two",
    "best with ties",
    "lowest with ties",
    "lowest by text",
    "by nullable",
    "by what fails",
)


def program(made: str, how: str, shown: str, *, keys: str) -> ps.Topology:
    """``keys``: as they came, or structs, which are read as lists behind a repartition topic."""
    builder = ps.StreamsBuilder("kept", key=str, value=Bid)
    bids = builder.stream("in")
    groups = bids.group_by_key() if keys == "texts" else bids.group_by(struct(m=col("m") % 3))
    windows, emission = HOW[how]
    of = MADE[made]()
    whole = groups if windows is None else groups.windowed_by(windows)
    table = whole.aggregate(of, emission=emission, combine=False, name="kept")
    if shown == "table":
        table.to("out")
    elif shown == "changes":
        table.to_changes().map_values(lambda c: [c.new, c.old], value=list).to("out")
    elif shown == "stream" and made not in LISTS:
        table.to_stream().filter(col("n") > 2).map_values(col("text"), value=str).to("out")
    elif shown == "stream":
        table.to_stream().map_values(lambda best: [b.n for b in best] + [best.pop().m], value=list).to("out")
    return builder.build()


def text_of(rng: random.Random) -> bytes | None:
    """A value, mostly as it is written."""
    if rng.random() < 0.05:
        return None
    x = rng.choice((None, 1, 2))
    bid = Bid(rng.choice((0, 1, 2, 3, 3, 1 << 40)), rng.randint(0, 3), rng.choice(("", "a", "é", 'q"')), x)
    text = msgspec.json.encode(bid)
    style = rng.random()
    if style < 0.1:
        return b'{"m": %d, "n": %d}' % (bid.m, bid.n)
    if style < 0.15:
        return text[:-1] + b',"more":[1]}'
    if style < 0.2:
        return text.replace(b'"text":"', b'"text":"\\u0041')
    return b'{"n":true}' if style < 0.23 else text


def outcome(
    topology: ps.Topology,
    seed: int,
    batch: int,
    *,
    columns: bool,
    topics: tuple[str, ...] = ("in",),
    text: Callable[[random.Random], bytes | None] = text_of,
) -> dict[str, Any]:
    """Everything that the program did with the seed's input."""
    rng = random.Random(seed)
    options = TaskOptions(batch_max_records=batch, policies=Policies(processing="skip", deserialization="skip"))
    now = 0
    with ps.TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        for _ in range(rng.randint(2, 5)):
            rows: dict[str, list[Record]] = {topic: [] for topic in topics}
            for _ in range(rng.choice((3, 20, 60))):
                now += rng.choice((0, 0, 0, 1, 4))
                key = None if rng.random() < 0.05 else rng.choice((b"a", b"b", "é".encode()))
                topic = rng.choice(topics) if len(topics) > 1 else topics[0]
                rows[topic].append(Record(key, text(rng), max(now - rng.choice((0, 0, 0, 2, 25)), 0)))
            driver.pipe_raw(rows)
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.4:
                driver.restart(restore=rng.random() < 0.5)
        driver.commit()
        return left_behind(driver)


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How often batches of any length were folded by columns, and how often they were left to the rows."""
    seen: Counter[bool] = Counter()
    for module in (column_parts, aggregate, best_texts):
        monkeypatch.setattr(module, "FEWEST", 1)
    for kind in (folds.LatestColumns, folds.BestColumns, folds.ByRankColumns, HeldLatest):
        fold = kind.fold

        def counted(self: Any, *args: Any, fold: Any = fold) -> bool:
            found: bool = fold(self, *args)
            seen[found] += 1
            return found

        monkeypatch.setattr(kind, "fold", counted)
    return seen


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("made", MADE)
def test_columns_change_nothing(made: str, how: str, folded: Counter[bool]) -> None:
    for seed in SEEDS:
        shown, keys = SHOWN[seed % len(SHOWN)], KEYS[seed // len(SHOWN)]
        topology, batch = program(made, how, shown, keys=keys), BATCHES[(seed + seed // 4) % len(BATCHES)]
        rows = outcome(topology, seed, batch, columns=False)
        for size in {batch, 10_000}:
            assert outcome(topology, seed, size, columns=True) == rows, (shown, keys, seed, size)
    assert folded[True]
    if made.endswith("what fails"):
        assert folded[False]


@pytest.mark.parametrize("how", ["per commit", "windows per commit", "windows on close"])
@pytest.mark.parametrize("made", ["last", "first", "highest", "by nothing"])
def test_results_at_a_commit_are_bytes(made: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For many keys; a null result among them goes by rows."""
    monkeypatch.setitem(MADE, "by nothing", lambda: agg.max_by(col("x"), value=Bid))
    seen: Counter[bool] = Counter()
    of = folds.KeptResults.of

    def counted(self: Any, aggregates: list[Any]) -> Any:
        found = of(self, aggregates)
        seen[found is not None] += 1
        return found

    held = HeldLatest._results

    def counted_held(self: HeldLatest) -> Any:
        found = held(self)
        if found is not None:
            seen[True] += 1
        return found

    monkeypatch.setattr(folds.KeptResults, "of", counted)
    monkeypatch.setattr(HeldLatest, "_results", counted_held)
    rng = random.Random(made)

    def keyed(topology: ps.Topology, *, columns: bool) -> Any:
        with ps.TopologyTestDriver(topology, auto_commit=False, columns=columns) as driver:
            for start in range(0, len(rows), 150):
                driver.pipe_raw({"in": rows[start : start + 150]})
                if start % 300:
                    driver.commit()
                if start == 600:
                    driver.restart(restore=True)
            driver.commit()
            return driver.read_raw("out"), driver.changelogs

    def value(i: int) -> bytes | None:
        if made != "by nothing":
            return text_of(rng)
        return b'{"n":1,"m":1,"x":2}' if i < 300 or rng.random() < 0.5 else b'{"n":1,"m":1}'

    rows = [Record(b"%d" % rng.randrange(40 if i < 300 else 90), value(i), i // 10) for i in range(900)]
    rows = [r for r in rows if r.value != b'{"n":true}']
    topology = program(made, how, "table", keys="texts")
    by_rows = keyed(topology, columns=False)
    assert not seen
    assert keyed(topology, columns=True) == by_rows
    assert seen[made != "by nothing"] or (made == "by nothing" and how != "per commit")


@pytest.mark.parametrize("emission", ["every_update", "per_commit"])
@pytest.mark.parametrize("made", ["last", "highest", "best by two", "count"])
def test_struct_keys_stay_bytes_behind_a_repartition_topic(
    made: str, emission: Emission, folded: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys also stay bytes if later operators read them. Keys that are written otherwise go by rows."""
    seen: Counter[bool] = Counter()
    of = StructKeys.of

    def counted(self: Any, texts: Any) -> Any:
        found = of(self, texts)
        seen[found is not None] += 1
        return found

    monkeypatch.setattr(StructKeys, "of", counted)
    for seed in range(9):
        builder = ps.StreamsBuilder("kept", key=str, value=Bid)
        key_of = struct(m=col("m"), text=col("text") if seed % 3 else lit("plain"), x=col("x"))
        groups = builder.stream("in").group_by(key_of)
        if made == "count":
            table = groups.count(emission=emission, combine=False, name="kept")
        else:
            table = groups.aggregate(MADE[made](), emission=emission, combine=False, name="kept")
        stream = table.to_stream()
        if seed % 3 == 1:
            stream.filter(key()["m"] > 0).select_key(key()["text"]).to("out")
        elif seed % 3 == 2 and made != "best by two":
            stream.map_values_with_key(lambda key, value: [key["m"], key["x"]], value=list).to("out")
        else:
            stream.to("out")
        topology, batch = builder.build(), BATCHES[seed % len(BATCHES)]
        rows = outcome(topology, seed, batch, columns=False)
        for size in {batch, 10_000}:
            assert outcome(topology, seed, size, columns=True) == rows, (seed, size)
    assert seen[True] and seen[False]


class Both(msgspec.Struct, frozen=True):
    """A joined record."""

    n: int
    right: Bid
    left: Bid = msgspec.field(name="the left")


class Within(msgspec.Struct, frozen=True):
    """A record with objects in it."""

    both: Both
    more: Bid | None = None


COMBINED = (
    "best of one",
    "best by two",
    "lowest by text",
    "highest",
    "highest with many ties",
    "by nullable",
    "by what fails",
)


@pytest.mark.parametrize("how", ["per commit", "windows per commit", "windows on close"])
@pytest.mark.parametrize("made", COMBINED)
def test_partials_by_columns_change_nothing(
    made: str, how: str, folded: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides of a repartition topic: records into partials, and partials into aggregates."""
    seen: Counter[str] = Counter()
    for step in ("with_records", "merged"):
        of = getattr(best_texts.BestTexts, step)

        def counted(self: Any, *args: Any, of: Any = of, step: str = step) -> Any:
            found = of(self, *args)
            seen[step] += found is not None
            return found

        monkeypatch.setattr(best_texts.BestTexts, step, counted)
    for seed in SEEDS:
        builder = ps.StreamsBuilder("kept", key=str, value=Bid)
        key = (struct(m=col("m") % 3), col("m"), col("text"))[seed % 3]
        groups = builder.stream("in").group_by(key)
        windows, emission = HOW[how]
        whole = groups if windows is None else groups.windowed_by(windows)
        table = whole.aggregate(MADE[made](), emission=emission, combine=True, name="kept")
        if seed % 2 and emission != "on_close":
            table.to_changes().map_values(lambda c: [c.new, c.old], value=list).to("out")
        else:
            table.to("out")
        topology, batch = builder.build(), BATCHES[seed % len(BATCHES)]
        monkeypatch.setattr(best_texts, "FEWEST", 1 << 40)
        rows = outcome(topology, seed, batch, columns=False)
        monkeypatch.setattr(best_texts, "FEWEST", 1)
        assert outcome(topology, seed, batch, columns=True) == rows, (seed, batch)
    assert seen["merged"] and (seen["with_records"] or windows is not None)


JOINED: dict[str, Callable[[], Aggregator]] = {
    "last": lambda: agg.last(value=Both),
    "highest": lambda: agg.max_by((col("right.n"), -col("left.m")), value=Both),
    "lowest of texts": lambda: agg.min_by(col("left.text"), value=Both),
    "best": lambda: agg.top_k(2, by=(col("right.n"), col("n")), value=Both),
}


@pytest.mark.parametrize("emission", ["every_update", "per_commit"])
@pytest.mark.parametrize("made", JOINED)
def test_joined_records_are_kept_as_the_bytes_of_their_sides(
    made: str, emission: Emission, folded: Counter[bool]
) -> None:
    builder = ps.StreamsBuilder("kept", key=str, value=Bid)
    one, other = builder.stream("in"), builder.stream("others")
    both = struct(left=left(), right=right(), n=left("n") + right("m"))
    joined = one.join(other, both, within=10, grace=100, value=Both, name="joined")
    joined.group_by_key().aggregate(JOINED[made](), emission=emission, name="kept").to("out")
    topology = builder.build()
    for seed in range(5):
        rows = outcome(topology, seed, 10_000, columns=False, topics=("in", "others"))
        assert rows["written"]
        for size in (25, 10_000):
            assert outcome(topology, seed, size, columns=True, topics=("in", "others")) == rows, (seed, size)
    assert folded[True]


@pytest.mark.parametrize("made", [agg.last(value=Within), agg.max_by(col("both.right.n"), value=Within)])
def test_records_with_objects_are_kept(made: Aggregator, folded: Counter[bool]) -> None:
    builder = ps.StreamsBuilder("kept", key=str, value=Within)
    builder.stream("in").group_by_key().aggregate(made, name="kept").to("out")
    topology = builder.build()

    def text(rng: random.Random) -> bytes | None:
        parts = [text_of(rng) or b"null" for _ in range(3)]
        space = rng.choice((b"", b"", b"", b" "))
        return b'{"both":{"n":1,"right":%s,%s"the left":%s},"more":%s}' % (parts[0], space, parts[1], parts[2])

    for seed in range(5):
        rows = outcome(topology, seed, 10_000, columns=False, text=text)
        assert rows["written"]
        assert outcome(topology, seed, 10_000, columns=True, text=text) == rows, seed
    assert folded[True]


@pytest.mark.parametrize("made", ["best by two", "lowest by text"])
def test_an_expression_ranks_as_a_function_does(made: str) -> None:
    """Their stores are the same, too: one may take the other's place."""
    functions = {
        "best by two": lambda: agg.top_k(3, by=lambda b: (b.n, -b.m), value=Bid),
        "best with ties": lambda: agg.top_k(1, by=col("m"), ties=True, value=Bid),
        "lowest with ties": lambda: agg.top_k(2, by=(col("x"), col("m")), largest=False, ties=True, value=Bid),
        "lowest by text": lambda: agg.top_k(2, by=lambda b: (b.text, b.n), largest=False, value=Bid),
    }
    topology = program(made, "every update", "changes", keys="texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MADE, made, functions[made])
        other = program(made, "every update", "changes", keys="texts")
    for seed in SEEDS:
        assert outcome(topology, seed, 10_000, columns=True) == outcome(other, seed, 10_000, columns=False)


def test_a_part_that_is_null_is_no_rank() -> None:
    best = agg.top_k(3, by=("x", col("n")), value=Bid)
    bids = [Bid(1, 0, x=5), Bid(2, 0), Bid(3, 0, x=5)]
    assert best.result(best.fold([(b, 0) for b in bids])) == [bids[2], bids[0]]


def test_nan_is_above_all_numbers_in_a_part() -> None:
    best = agg.top_k(3, by=(lambda x: x[0], lambda x: x[1]))
    values = [(1.0, 2), (float("nan"), 1), (float("inf"), 9), (float("nan"), 3)]
    found = best.result(best.fold([(v, 0) for v in values]))
    assert [v[1] for v in found] == [3, 1, 9]


def test_no_parts_are_refused() -> None:
    with pytest.raises(ps.TopologyError, match="by=\\(\\) ranks nothing"):
        agg.top_k(3, by=())


def test_the_plan_says_what_is_read() -> None:
    """The fields of the rank, and values of the records that enter; for latest values, no field."""
    plans = {made: plan_text(program(made, "every update", "table", keys="texts")) for made in ("last", "best by two")}
    assert "kept (Aggregate): columns" in plans["last"]
    assert "decodes the key, the value" in plans["last"]
    assert "decodes the key, the field m, the field n, the value of the records that are left" in plans["best by two"]


def plan_text(topology: ps.Topology) -> str:
    """The plan as ``penstock describe --plan`` prints it."""
    from penstock.topologies.graph.column_plan import as_lines
    from penstock.topologies.graph.lockstep_plan import plan_of

    plans = [plan_of(topology, sub) for sub in topology.subtopologies]
    return "\n".join(line for p in plans for line in as_lines(p.names, p.specs, p.input_modes))
