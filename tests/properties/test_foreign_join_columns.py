"""Foreign-key joins by columns and by rows: the same results, messages, dead letters, counters, changelogs and stores.

At every batch size, in both orders of arrival, over restarts, and where both forms take turns on the same stores.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import native
from penstock.topologies.columnar import column_parts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import coalesce, col, count, left, right, struct
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.columnar.foreign_keys import Answering, Joining, Subscribing
from penstock.topologies.operators.columnar.stored_rows import StoredRows
from tests.properties.table_changes import Changing, Item, Order, Priced, answers, compare, counting, random_steps

SIZES = (1, 3, 10_000)
FORMS = {StoredRows: ("put",), Subscribing: ("of",), Answering: ("subscribed", "changed"), Joining: ("of",)}


NAMES: tuple[Any, ...] = (col("to"), col("to"), coalesce(col("to"), 1), col("to") * 1 + 0, col("to") // (col("to") - 3))
JOINERS: tuple[Any, ...] = (
    struct(name=left("name"), other=right("name"), n=right("n")),
    struct(one=left(), other=right()),
    struct(n=right("n"), to=left("to")),
    right(),
    left(),
    right("name"),
    lambda one, other: {"one": one.name, "other": None if other is None else other.n},
    lambda one, other: {"to": one.to, "more": other is not None and other.n > 3},
)


class Shape(NamedTuple):
    """One topology. ``also``: what else reads the left table."""

    type: Any
    named: Any
    joiner: Any
    left: bool
    stored: bool
    watermark: bool
    also: str
    derived: bool = False


shapes = st.builds(
    Shape,
    st.sampled_from([Order, Order, Order, Order, Priced, Changing]),
    st.sampled_from(NAMES),
    st.sampled_from(JOINERS),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "", "stream", "lookup", "groups", "again"]),
    st.sampled_from([False, False, False, True]),
)


def topology_of(shape: Shape) -> Topology:
    builder = StreamsBuilder("joins")
    late = bounded_out_of_orderness(5) if shape.watermark else None
    orders = builder.stream("orders", key=int, value=shape.type, watermark=late)
    items = builder.stream("items", key=int, value=Item, watermark=late)
    rows, others = orders.to_table(name="rows"), items.to_table(name="others")
    if shape.derived:
        others = others.filter(col("n") > 2)
    name = "joined" if shape.stored else None
    join = rows.left_join_foreign if shape.left else rows.join_foreign
    value = {"value": dict} if isinstance(shape.joiner, FunctionType) else {}
    join(others, shape.named, shape.joiner, name=name, **value).to_stream().to("out")
    if shape.also == "stream":
        rows.filter(col("name") != "y").to_stream().to("also")
    elif shape.also == "lookup":
        asks = builder.stream("asks", key=int, value=Item, watermark=late)
        asks.left_join(rows, struct(n=left("n"), other=right())).to("also")
    elif shape.also == "groups":
        rows.group_by(col("name")).agg(times=count(), most=col("to").sum()).to_stream().to("also")
    elif shape.also == "again":
        rows.left_join_foreign(others, col("to"), struct(a=left("name"), b=right("name"))).to_stream().to("also")
    return builder.build()


@pytest.fixture(scope="module")
def tried() -> Counter[tuple[str, bool]]:
    """How often each part took a batch by columns (true), or left it to the rows."""
    return Counter()


@pytest.fixture(autouse=True)
def _counted(tried: Counter[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    for form, names in FORMS.items():
        for name in names:
            monkeypatch.setattr(form, name, counting(form, name, tried))


def check(shape: Shape, seed: int, *, most: int = 25, sizes: Sequence[int] = SIZES, path: Path | None = None) -> None:
    """Rows are the reference, at each size."""
    topology, rng = topology_of(shape), random.Random(seed)
    steps = random_steps(rng, shape.type, most, asks=shape.also == "lookup", item_keys=5)
    compare(answers, topology, steps, rng, sizes, path)


@settings(deadline=None, max_examples=150)
@given(shapes, st.integers(0, 2**32))
def test_the_same_by_columns_and_by_rows(shape: Shape, seed: int) -> None:
    check(shape, seed)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_the_same_for_plain_rows(seed: int, left_join: bool, stored: bool) -> None:
    """All of it runs by columns."""
    rng = random.Random(seed)
    shape = Shape(Order, rng.choice(NAMES), rng.choice(JOINERS[:3]), left_join, stored, rng.random() < 0.5, "")
    check(shape, seed, most=60, sizes=(2, 10_000))


@settings(deadline=None, max_examples=20)
@given(shapes, st.integers(0, 2**32))
def test_the_same_without_the_compiled_part(shape: Shape, seed: int) -> None:
    with native.without():
        check(shape, seed)


@settings(deadline=None, max_examples=60)
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
    shape = Shape(Order, NAMES[0], JOINERS[0], seed % 2 == 0, seed % 3 == 0, False, ("", "groups", "lookup")[seed % 3])
    check(shape, seed, most=60, path=tmp_path)


def test_most_batches_are_taken_by_columns(tried: Counter[tuple[str, bool]]) -> None:
    """What the other tests compare is not rows with rows."""
    for form, names in FORMS.items():
        for name in names:
            of = f"{form.__name__}.{name}"
            assert tried[of, True] > 2 * tried[of, False], tried
