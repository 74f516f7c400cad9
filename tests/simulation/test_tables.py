"""Tables whose tasks talk to each other, with a crash at many steps of commits: in the end the last value per key is that of
plain dictionaries, under both guarantees."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from penstock.streams.events.measurements import CommitStep
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import Disk, Node, World

Rows = dict[str, str]
Updates = list[tuple[bytes | None, bytes | None, int]]
STEPS: tuple[CommitStep, ...] = get_args(CommitStep)


def orders_of_customers() -> Topology:
    """Orders name their customer before the colon; the joined rows are counted by customer."""
    builder = StreamsBuilder("orders", value=str)
    joined = builder.table("orders").join_foreign(
        builder.table("customers"),
        lambda key, order: order.split(":")[0],
        lambda order, customer: f"{order}={customer}",
    )
    joined.to("joined")
    counts = joined.group_by(lambda key, row: (row.split(":")[0], row)).count()
    counts.map_values(str, value=str).to("counted")
    return builder.build()


def updates(rng: random.Random, keys: str, count: int, value: str) -> Updates:
    rows: Updates = []
    for i in range(count):
        key = f"{keys}{rng.randrange(6)}".encode()
        made = None if rng.random() < 0.2 else value.format(c=rng.randrange(6), n=i).encode()
        rows.append((key, made, 1_000 + 10 * i))
    return rows


def left_by(given: Updates) -> Rows:
    rows: Rows = {}
    for key, value, _ in given:
        assert key is not None
        rows.pop(key.decode(), None)
        if value is not None:
            rows[key.decode()] = value.decode()
    return rows


class Orders:
    """The world with its input written, and what must come of it."""

    def __init__(self, guarantee: str, seed: int) -> None:
        rng = random.Random(seed)
        orders, customers = updates(rng, "o", 40, "c{c}:{n}"), updates(rng, "c", 40, "name-{n}")
        self.world = World(
            orders_of_customers(),
            guarantee,  # type: ignore[arg-type]  # one of the guarantees
            inputs=["orders", "customers"],
            outputs=["joined", "counted"],
            seed=seed,
            partitions=2,
        )
        self.world.write("orders", orders)
        self.world.write("customers", customers)
        names = left_by(customers)
        self.joined = {k: f"{v}={names[c]}" for k, v in left_by(orders).items() if (c := v.split(":")[0]) in names}

    def last(self, topic: str) -> Rows:
        """The last value per key, as readers of committed records see it."""
        rows: Rows = {}
        for _, _, entry in self.world.log.read(topic):
            rows.pop(entry.key.decode(), None)
            if entry.value is not None:
                rows[entry.key.decode()] = entry.value.decode()
        return rows

    def check(self, where: str) -> None:
        assert self.last("joined") == self.joined, where
        counted = {c: n for c, n in self.last("counted").items() if n != "0"}
        customers = [row.split(":")[0] for row in self.joined.values()]
        assert counted == {c: str(customers.count(c)) for c in set(customers)}, where


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("seed", range(4))
def test_the_undisturbed_run(guarantee: str, seed: int) -> None:
    orders = Orders(guarantee, seed)
    orders.world.settle(orders.world.node("a"))
    assert orders.joined
    orders.check("undisturbed")


@pytest.mark.parametrize("seed", range(12))
def test_crashes_change_no_last_value(seed: int) -> None:
    rng = random.Random(seed)
    step = rng.choice(STEPS)
    orders = Orders("exactly_once", seed)
    node: Node = orders.world.node("a")
    node.crash_at(step, rng.randint(1, 6))
    node.run_until_crash()
    another = rng.random() < 0.5
    node.crash(lose_unflushed=rng.random() < 0.5)
    if another:
        orders.world.log.advance(10_001)  # the dead producer's transaction is ended by its time-out
    orders.world.settle(orders.world.node("b" if another else "a", Disk() if another else node.disk))
    orders.check(f"crash at {step}")
