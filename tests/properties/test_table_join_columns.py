"""Joins of tables by columns and by rows: the same results, dead letters, counters, changelogs and stores.

At every batch size, in both orders of arrival, over restarts, and where both forms take turns on the same stores.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.errors import ProcessingError
from penstock.state.log import Record
from penstock.streams.task import engine, keyed_runs
from penstock.topologies.columnar import column_parts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import coalesce, col, count, left, lit, right, struct, when
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.columnar.table_join import TableJoining
from tests.properties.table_changes import Changing, Item, Order, Priced, answers, compare, counting, random_steps

SIZES = (1, 3, 10_000)
BOTH: tuple[Any, ...] = (
    struct(name=left("name"), other=right("name"), n=right("n")),
    struct(one=left(), other=right()),
    struct(n=coalesce(right("n"), lit(0)) + 1, to=left("to")),
    struct(q=left("to") // (right("n") - 3)),
    lambda one, other: {"one": None if one is None else one.name, "other": None if other is None else other.n},
)
LEFT_NEEDED: tuple[Any, ...] = (
    left(),
    left("name"),
    lambda one, other: {"to": one.to, "more": other is not None and other.n > 3},
)
INNER: tuple[Any, ...] = (
    right(),
    right("name"),
    when(right("n") > 3).then(left("name")).otherwise(None),
    right("n") - left("to"),
)
JOINERS = {"outer": BOTH, "left": BOTH + LEFT_NEEDED, "inner": BOTH + LEFT_NEEDED + INNER}


class Shape(NamedTuple):
    """One topology. ``tables``: for each side, whether it is a table over its topic, and not one of a stream. ``stored``:
    whether the result has a store. ``also``: what else reads the left table, or the result."""

    type: Any
    kind: str
    joiner: Any
    tables: tuple[bool, bool]
    stored: bool
    watermark: bool
    also: str


shapes = st.sampled_from(["inner", "left", "outer"]).flatmap(
    lambda kind: st.builds(
        Shape,
        st.sampled_from([Order, Order, Order, Priced, Changing]),
        st.just(kind),
        st.sampled_from(JOINERS[kind]),
        st.tuples(st.booleans(), st.booleans()),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "", "stream", "lookup", "groups", "again", "result groups", "shared", "foreign"]),
    )
)


def topology_of(shape: Shape) -> Topology:
    builder = StreamsBuilder("joins")
    late = bounded_out_of_orderness(5) if shape.watermark else None
    rows, others = (
        builder.table(topic, key=int, value=tp, name=name)
        if table
        else builder.stream(topic, key=int, value=tp, watermark=late).to_table(name=name)
        for topic, tp, name, table in zip(
            ("orders", "items"), (shape.type, Item), ("rows", "others"), shape.tables, strict=True
        )
    )
    plain = {"value": dict} if isinstance(shape.joiner, FunctionType) else {}
    join = {"inner": rows.join, "left": rows.left_join, "outer": rows.outer_join}[shape.kind]
    joined = join(others, shape.joiner, name="joined" if shape.stored else None, **plain)
    joined.to_stream().to("out")
    if shape.also == "stream":
        rows.filter(col("name") != "y").to_stream().to("also")
    elif shape.also == "lookup":
        asks = builder.stream("asks", key=int, value=Item, watermark=late)
        asks.left_join(rows, struct(n=left("n"), other=right())).to("also")
    elif shape.also == "groups":
        rows.group_by(col("name")).agg(times=count(), most=col("to").sum()).to_stream().to("also")
    elif shape.also == "again":
        rows.outer_join(others, struct(a=left("name"), b=right("name"))).to_stream().to("also")
    elif shape.also == "result groups":
        joined.group_by(lambda key, value: (key % 2, 1), key=int, value=int).count().to_stream().to("also")
    elif shape.also == "shared":
        same = rows.map_values(lambda row: row.name, value=str, name="names")
        rows.left_join(same, struct(a=left("name"), b=right())).to_stream().to("also")
    elif shape.also == "foreign":
        rows.join_foreign(others, col("to"), struct(a=left("name"), b=right("name"))).to_stream().to("also")
    return builder.build()


@pytest.fixture(scope="module")
def tried() -> Counter[tuple[str, bool]]:
    """How often a batch was taken by columns (true), or left to the rows."""
    return Counter()


@pytest.fixture(autouse=True)
def _counted(tried: Counter[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableJoining, "of", counting(TableJoining, "of", tried))
    monkeypatch.setattr(engine, "runs_by_key", counting(engine, "runs_by_key", tried))
    monkeypatch.setattr(keyed_runs, "LONGER", 0)  # however short they are


def readable(records: dict[str, list[Record]], shape: Shape) -> dict[str, list[Record]]:
    """Without records that stop a task, because a table over its topic cannot read them."""
    types = dict(zip(("orders", "items"), (shape.type, Item), strict=True))
    tables = {topic for topic, table in zip(types, shape.tables, strict=True) if table}

    def read(topic: str, value: bytes | None) -> bool:
        try:
            return topic not in tables or value is None or bool(msgspec.json.decode(value, type=types[topic]))
        except msgspec.DecodeError:
            return False

    return {topic: [r for r in rows if read(topic, r.value)] for topic, rows in records.items()}


def outcome(*args: Any, **ways: Any) -> Any:
    """All that a run leaves behind; ``None``: a record stopped it."""
    try:
        return answers(*args, **ways)
    except ProcessingError:
        return None


def check(shape: Shape, seed: int, *, most: int = 25, sizes: Sequence[int] = SIZES, path: Path | None = None) -> None:
    """Rows are the reference, at each size."""
    topology, rng = topology_of(shape), random.Random(seed)
    steps = random_steps(rng, shape.type, most, asks=shape.also == "lookup")
    if rng.random() < 0.9:
        steps = [step._replace(records=readable(step.records, shape)) for step in steps]
    compare(outcome, topology, steps, rng, sizes, path)


@settings(deadline=None, max_examples=120)
@given(shapes, st.integers(0, 2**32))
def test_the_same_by_columns_and_by_rows(shape: Shape, seed: int) -> None:
    check(shape, seed)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(["inner", "left", "outer"]), st.booleans())
def test_the_same_for_plain_rows(seed: int, kind: str, stored: bool) -> None:
    """All of it runs by columns."""
    rng = random.Random(seed)
    tables = rng.random() < 0.5, rng.random() < 0.5
    shape = Shape(Order, kind, rng.choice(BOTH[:3]), tables, stored, rng.random() < 0.5, "")
    check(shape, seed, most=60, sizes=(2, 10_000))


@settings(deadline=None, max_examples=15)
@given(shapes, st.integers(0, 2**32))
def test_the_same_without_the_compiled_part(shape: Shape, seed: int) -> None:
    with native.without():
        check(shape, seed)


@settings(deadline=None, max_examples=40)
@given(shapes, st.integers(0, 2**32))
def test_rows_and_columns_take_turns(shape: Shape, seed: int) -> None:
    """Some batches are long enough for columns, others are not."""
    fewest = column_parts.FEWEST
    column_parts.FEWEST = 9
    try:
        check(shape, seed, most=60, sizes=(10_000,))
    finally:
        column_parts.FEWEST = fewest


@pytest.mark.parametrize("seed", range(6))
def test_the_same_on_disk_with_little_memory(seed: int, tmp_path: Path) -> None:
    """Little memory means more commits, so changelogs are others."""
    kind = ("inner", "left", "outer")[seed % 3]
    shape = Shape(Order, kind, BOTH[0], (seed % 2 == 0, True), seed % 3 == 0, False, ("", "groups", "lookup")[seed % 3])
    check(shape, seed, most=60, path=tmp_path)


def test_most_batches_are_taken_by_columns(tried: Counter[tuple[str, bool]]) -> None:
    """What the other tests compare is not rows with rows."""
    assert tried["TableJoining.of", True] > 2 * tried["TableJoining.of", False], tried
    assert tried[f"{engine.__name__}.runs_by_key", True] > 100, tried
