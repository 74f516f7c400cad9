"""Queries of Nexmark that bring two kinds of events together."""

from __future__ import annotations

from benchmarks.nexmark_generator import side_input
from penstock.topologies.examples.nexmark import joins
from tests.unit.topologies.examples.nexmark import oracle
from tests.unit.topologies.examples.nexmark.running import (
    EVENTS,
    Way,
    bag,
    check_bag,
    check_table,
    in_every_way,
    run,
)


@in_every_way
def test_q3_who_sells_what_in_three_states(way: Way) -> None:
    check_table(joins.q3, oracle.table_q3, way)


@in_every_way
def test_q8_who_registered_and_opened_an_auction_in_one_window(way: Way) -> None:
    check_bag(joins.q8, oracle.bag_q8, way)


@in_every_way
def test_q9_the_winning_bid_of_each_auction(way: Way) -> None:
    check_table(joins.q9, oracle.table_q9, way)


@in_every_way
def test_q13_every_bid_finds_its_row_of_the_side_input(way: Way) -> None:
    (written,) = run(joins.q13(), way, "q13", before={"nexmark-side-input": list(side_input(1_300))})
    assert bag([r.value for r in written]) == bag(oracle.bag_q13(EVENTS))


@in_every_way
def test_q20_every_bid_with_its_auction(way: Way) -> None:
    check_bag(joins.q20, oracle.bag_q20, way)
