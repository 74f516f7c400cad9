"""What a plan says is what happens: over random chains of operators, those that it puts on columns take their batches
so, and the others take rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from penstock.state.log import Record
from penstock.streams.task.engine import Engine
from penstock.streams.task.sink_operator import SinkOperator
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar.word_splitting import words
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions import functions as f
from penstock.topologies.graph.lockstep_plan import plan_of
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.aggregates import aggregate
from penstock.topologies.operators.aggregates.combine import CombineOperator
from penstock.topologies.operators.base import flat_map_children
from penstock.topologies.operators.columnar import source
from penstock.topologies.operators.joins import stream_table_join
from penstock.topologies.operators.records import source_sink, stateless
from penstock.topologies.operators.records.stateless import MergeSpec
from penstock.topologies.operators.windows import window_aggregate
from penstock.topologies.windows import Windows, hopping, tumbling


class Order(msgspec.Struct, frozen=True):
    kind: str
    n: int


class Tagged(msgspec.Struct, frozen=True):
    kind: str
    n: int
    tags: tuple[str, ...] = ()


Change = Callable[[KStream], KStream]
CHANGES: tuple[Change, ...] = (
    lambda s: s.filter(f.col("n") < 9),
    lambda s: s.filter(f.key().is_not_null()),
    lambda s: s.filter(lambda k, v: True),
    lambda s: s.filter_values(lambda v: True),
    lambda s: s.peek(lambda k, v: None),
    lambda s: s.map_values(lambda v: v),
    lambda s: s.map_batch(lambda batch: batch),
    lambda s: s.map(lambda k, v: (k, v)),
    lambda s: s.flat_map_values(lambda v: [v, v]),
    lambda s: s.select(f.col("kind"), f.col("n")),
    lambda s: s.select_key(f.col("kind"), key=str),
    lambda s: s.select_key(lambda k, v: "a", key=str),
    lambda s: s.sample(0.99),
    lambda s: s.to_table().filter(lambda k, v: True).to_stream(),
    lambda s: s.to_table().map_values(lambda v: v).to_stream(),
    lambda s: s.branch(f.col("n") < 3, default=True)[1],
    lambda s: s.merge(s.filter(f.col("n") > 5)),
)


def windows(rng: random.Random) -> Windows:
    return rng.choice((tumbling(40, grace=10), hopping(40, 20, grace=10)))


def counted(rng: random.Random, s: KStream) -> Any:
    emission = rng.choice(("every_update", "per_commit", "on_close"))
    if emission == "on_close" or rng.random() < 0.4:
        return s.group_by_key().windowed_by(windows(rng)).count(name="counts", emission=emission)
    return s.group_by_key().count(name="counts", emission=emission)


def added(rng: random.Random, s: KStream) -> Any:
    parts = {"total": f.col("n").sum(), "rows": f.count()}
    return s.group_by_key().windowed_by(windows(rng)).agg(name="sums", emission="per_commit", **parts)


def program(rng: random.Random) -> StreamsBuilder:
    """A source, some changes, and an end."""
    builder = StreamsBuilder(
        "plans", key=rng.choice((str, bytes, "json")), value=rng.choice((Order, Order, Tagged, dict))
    )
    s = builder.stream("in")
    for change in rng.sample(CHANGES, rng.randint(0, 3)):
        s = change(s)
    end = rng.choice(("sink", "count", "sum", "join", "regrouped", "words"))
    if end == "count":
        counted(rng, s).to_stream().map_values(str, value=str).to("out")
    elif end == "sum":
        added(rng, s).to_stream().map_values(str, value=str).to("out")
    elif end == "regrouped":
        s.group_by(f.col("kind"), key=str).count(name="counts", emission="per_commit").to("out")
    elif end == "join":
        table = builder.table("table", key=s.key_serde, value=str, name="rows")
        joiner, value = rng.choice(((f.right(), str), (lambda v, row: row, str)))
        s.join(table, joiner, value=value).to("out")
    elif end == "words":
        texts = rng.choice((s.map_values(f.col("kind"), value=str), builder.stream("texts", key=str, value=str)))
        texts.flat_map_values(words).group_by(f.value(), key=str).count(name="counts").to("out")
    else:
        s.to("out")
    return builder


class Seen:
    """By operator: how it has taken its batches."""

    def __init__(self) -> None:
        self.ways: dict[str, set[str]] = {}
        self._stack: list[set[str]] = []

    def note(self, what: str) -> None:
        """Something that the operator at work has done."""
        self._stack[-1].add(what)

    def walk(self, whole: Callable[..., None], engine: Any, group: int, node: int, *args: Any) -> None:
        """Instead of ``Engine._walk``."""
        batch: Batch = args[1]
        noted: set[str] = set()
        self._stack.append(noted)
        whole(engine, group, node, *args)
        self._stack.pop()
        operator = engine.operators[node]
        listed = batch.key_column is None and batch.value_column is None
        if isinstance(operator, SinkOperator):
            rows = not operator._spec.packs and ("columns" not in noted or listed)
        else:
            rows = "rows" in noted or (isinstance(engine.plan.specs[node], MergeSpec) and listed)
        if len(batch):
            self.ways.setdefault(engine.plan.names[node], set()).add("rows" if rows else "columns")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()
    walk = Engine._walk
    monkeypatch.setattr(Engine, "_walk", lambda *args: found.walk(walk, *args))
    monkeypatch.setattr(flat_map_children, "FEWEST", 1)

    def noted(owner: Any, name: str, what: Callable[..., str | None]) -> None:
        whole = getattr(owner, name)

        def spy(*args: Any, **options: Any) -> Any:
            out = whole(*args, **options)
            if (said := what(out, *args)) is not None:
                found.note(said)
            return out

        monkeypatch.setattr(owner, name, spy)

    for module, name in (
        (stateless, "map_rows"),
        (stream_table_join, "map_rows"),
        (aggregate, "serialize_keys"),
        (window_aggregate, "serialize_keys"),
        (CombineOperator, "_grouping_keys"),
    ):
        noted(module, name, lambda *_: "rows")
    for module in (source_sink, source):
        noted(module, "decode_column", lambda out, *args: "rows" if args[-1] == "value" else None)
    noted(SinkOperator, "_in_columns", lambda out, *_: None if out is None else "columns")
    return found


def an_order(rng: random.Random) -> bytes:
    return orjson.dumps({"kind": rng.choice(("x", "y")), "n": rng.randint(1, 8)})


def records(rng: random.Random, key: bytes, value: Callable[[random.Random], bytes]) -> list[Record]:
    return [Record(key % rng.choice((b"a", b"b")), value(rng), i) for i in range(100)]


@pytest.mark.parametrize("block", range(4))
def test_the_plan_says_what_happens(block: int, seen: Seen) -> None:
    said: Counter[str] = Counter()
    for seed in range(block, 160, 4):
        rng = random.Random(seed)
        topology = program(rng).build()
        plans = [plan_of(topology, sub) for sub in topology.subtopologies]
        told = {name: ways for plan in plans for name, ways in zip(plan.names, plan.input_modes, strict=True)}
        quoted = b'"%s"' if any(s.details().get("key") == "json" for s in topology.operators.values()) else b"%s"
        seen.ways.clear()
        with TopologyTestDriver(topology, options=TaskOptions(batch_max_records=10_000), columns=True) as driver:
            sources = {t for t in ("in", "table", "texts") if any(t in s for s in topology.source_topics("test"))}
            if "table" in sources:
                driver.pipe_raw({"table": records(rng, quoted, lambda rng: b"row")})
            if "texts" in sources:
                driver.pipe_raw({"texts": records(rng, b"%s", lambda rng: b"some words")})
            if "in" in sources:
                driver.pipe_raw({"in": records(rng, quoted, an_order)})
            driver.commit()
        for name, ways in told.items():
            if topology.operators[name].kind in KINDS and name in seen.ways:
                plan = {"columns" if way.rows is None else "rows" for way in ways}
                assert seen.ways[name] == plan, f"seed {seed}, {name}\n{topology.describe(plan=True)}"
                said.update(plan)
    assert said["rows"]
    assert said["columns"]


KINDS = {
    *("Source", "Filter", "MapValues", "SelectKey", "FlatMap", "Branch", "Merge", "Combine", "Aggregate", "Sink"),
    *("WindowAggregate", "PaneAggregate", "StreamTableJoin"),
}
"""Of those that have a form for columns."""
