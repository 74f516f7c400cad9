"""Streams joined with tables that other streams change meanwhile: in runs by key the same results, counters, changelogs and
stores as record by record."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.log import Record
from penstock.streams.task import engine, keyed_runs
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, count, struct
from penstock.topologies.graph.topology import Topology
from tests.properties.table_changes import Item, Order, answers, counting, random_steps

SIZES = (1, 5, 10_000, 10_000)
OF_TOPIC = ("topic", "filtered", "versioned")
OF_STREAM = ("counts", "sums", "reduced", "latest", "joined", "ttl", "mapped")


def topology_of(kind: str, *, per_commit: bool, left_join: bool, merged: bool) -> Topology:
    """Items look up a table that orders change; ``merged``: and go to the same topic without that."""
    builder = StreamsBuilder("groups")
    table = table_of_topic(builder, kind) if kind in OF_TOPIC else table_of_stream(builder, kind, per_commit=per_commit)
    asks = builder.stream("items", key=int, value=Item)
    join = asks.left_join if left_join else asks.join
    found = join(table, lambda item, row: f"{item.n} {row!r}", value=str)
    if merged:
        found = found.merge(asks.map_values(lambda item: f"{item.n}", value=str))
    found.to("out")
    table.to_stream().map_values(repr, value=str).to("also")
    return builder.build()


def table_of_topic(builder: StreamsBuilder, kind: str) -> Any:
    history = "1h" if kind == "versioned" else None
    table = builder.table("orders", key=int, value=Order, name="kept", history=history)
    return table.filter(col("name") != "y") if kind == "filtered" else table


def table_of_stream(builder: StreamsBuilder, kind: str, *, per_commit: bool) -> Any:
    orders = builder.stream("orders", key=int, value=Order)
    how: Any = {"name": "kept", "emission": "per_commit" if per_commit else "every_update"}
    if kind == "counts":
        return orders.group_by_key().count(**how)
    if kind == "mapped":
        return orders.group_by_key().count(**how).map_values(lambda n: n * 2, value=int)
    if kind == "sums":
        return orders.group_by_key().agg(**how, n=count(), to=col("to").sum())
    if kind == "reduced":
        return orders.group_by_key().reduce(lambda a, b: a if a.name > b.name else b, **how)
    rows = orders.to_table(name="kept", ttl="10ms" if kind == "ttl" else None)
    if kind == "joined":
        names = orders.map_values(col("name")).to_table(name="names")
        return rows.left_join(names, lambda a, b: f"{a.name} {b}", value=str)
    return rows


def readable(records: list[Record]) -> list[Record]:
    """Without records that would stop a task, because a table over its topic cannot read them."""

    def read(value: bytes | None) -> bool:
        try:
            return value is None or bool(msgspec.json.decode(value, type=Order))
        except msgspec.DecodeError:
            return False

    return [r for r in records if read(r.value)]


@pytest.fixture(scope="module")
def tried() -> Counter[tuple[str, bool]]:
    """How often records were taken in runs by key (true), or in the order of the task."""
    return Counter()


@pytest.fixture(autouse=True)
def _counted(tried: Counter[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "runs_by_key", counting(engine, "runs_by_key", tried))
    monkeypatch.setattr(keyed_runs, "LONGER", 0)  # however short they are


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(OF_TOPIC + OF_STREAM), st.integers(0, 2**32), st.booleans(), st.booleans(), st.booleans())
def test_the_same_as_record_by_record(kind: str, seed: int, per_commit: bool, left_join: bool, merged: bool) -> None:
    rng = random.Random(seed)
    topology = topology_of(kind, per_commit=per_commit, left_join=left_join, merged=merged)
    steps = random_steps(rng, Order, 60)
    if kind in OF_TOPIC:
        steps = [step._replace(records=step.records | {"orders": readable(step.records["orders"])}) for step in steps]
    partitions, size = rng.choice((1, 2)), rng.choice(SIZES)
    expected = answers(topology, steps, size, columns=False, partitions=partitions)
    assert answers(topology, steps, size, columns=True, partitions=partitions) == expected, size


def test_most_inputs_in_turns_are_taken_in_runs_by_key(tried: Counter[tuple[str, bool]]) -> None:
    """What the other test compares is not one record after another with the same."""
    assert tried[f"{engine.__name__}.runs_by_key", True] > 50, tried


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32))
def test_branches_that_meet_again_stand_as_the_input_stood(seed: int) -> None:
    rng = random.Random(seed)
    builder = StreamsBuilder("branches")
    items = builder.stream("items", key=int, value=Item)
    if rng.random() < 0.3:
        items = items.flat_map_values(lambda item: [item, item], value=Item)
    branches = items.branch(col("n") % 3 == 0, col("n") > 2, default=True)
    some = [*branches, items.filter(col("n") < 4), items]
    met = rng.sample(some, rng.randint(2, 4))
    changed = [
        one.map_values(struct(n=col("n") + i), value=Item) if rng.random() < 0.5 else one for i, one in enumerate(met)
    ]
    out = changed[0]
    for one in changed[1:]:
        out = out.merge(one)
    out.to("out")
    steps = random_steps(rng, Order, 60)
    steps = [step._replace(records={"items": step.records["items"]}) for step in steps]
    topology = builder.build()
    by_one = answers(topology, steps, 1, columns=False)[0]["out"]
    for columns in (False, True):
        assert answers(topology, steps, 10_000, columns=columns)[0]["out"] == by_one
