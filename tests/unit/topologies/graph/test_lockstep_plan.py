"""Plans: which operators run alone, which in lockstep, and where runs may enter a group."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from penstock.state.log import Record
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.typed_stores import key_value_store
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.lockstep_plan import Plan, plan_of
from penstock.topologies.operators.processors.processor import Processor
from penstock.topologies.windows import tumbling

KEPT = key_value_store("kept", key=str, value=int)


class Keeps(Processor):
    stores: ClassVar[tuple[StoreSpec, ...]] = (KEPT,)

    def process(self, record: Record, ctx: Any) -> None:
        ctx.forward(record.key, record.value)


class Ticks(Keeps):
    timers = ("stream_time",)


class Passes(Keeps):
    stores = ()
    timers = ("stream_time",)


def yes(key: Any, value: Any) -> bool:
    return True


def builder() -> StreamsBuilder:
    return StreamsBuilder(key=str, value=int)


def chain() -> StreamsBuilder:
    b = builder()
    b.stream("in").filter(yes, name="f").group_by_key().count(name="c").to("out", name="s")
    return b


def diamond() -> StreamsBuilder:
    b = builder()
    one = b.stream("in").filter(yes, name="f")
    one.map_values(abs, name="l").merge(one.map_values(abs, name="r"), name="m").to("out", name="s")
    return b


def branch_and_merge() -> StreamsBuilder:
    b = builder()
    some, rest = b.stream("in").branch(yes, default=True, name="b")
    some.map_values(abs, name="v").merge(rest, name="m").to("out", name="s")
    return b


def several_before_the_fork() -> StreamsBuilder:
    b = builder()
    one = b.stream("in").flat_map_values(lambda v: [v, v], name="x").filter(yes, name="f")
    one.map_values(abs, name="l").merge(one.map_values(abs, name="r"), name="m").to("out", name="s")
    return b


def several_behind_the_fork() -> StreamsBuilder:
    b = builder()
    one = b.stream("in")
    several = one.flat_map_values(lambda v: [v, v], name="l")
    several.merge(one.map_values(abs, name="r"), name="m").to("out", name="s")
    return b


def two_ways_to_one_side() -> StreamsBuilder:
    b = builder()
    one = b.stream("in").filter(yes, name="f")
    both = one.map_values(abs, name="l").merge(one.map_values(abs, name="r"), name="m1").map_values(abs, name="n")
    both.merge(one, name="m2").to("out", name="s")
    return b


def visited_out_of_turn() -> StreamsBuilder:
    b = builder()
    first, second = b.stream("a"), b.stream("in")
    late = second.map_values(abs, name="l")
    early = first.merge(second, name="e").map_values(abs, name="r")
    late.merge(early, name="m").to("out", name="s")
    return b


def merge_of_two_topics() -> StreamsBuilder:
    b = builder()
    b.stream("a").filter(yes, name="f").merge(b.stream("b"), name="m").to("out", name="s")
    return b


def join() -> StreamsBuilder:
    b = builder()
    b.stream("in").join(b.table("t"), lambda left, right: left, name="j").to("out", name="s")
    return b


def two_sinks_of_one_topic() -> StreamsBuilder:
    b = builder()
    one = b.stream("in")
    one.to("out", name="s1")
    one.map_values(abs, name="v").to("out", name="s2")
    return b


def two_sinks_of_two_topics() -> StreamsBuilder:
    b = builder()
    one = b.stream("in")
    one.to("out1", name="s1")
    one.map_values(abs, name="v").to("out2", name="s2")
    return b


def shared_store_of_two_topics() -> StreamsBuilder:
    b = builder()
    b.stream("a").process(Keeps, name="p").to("x", name="x")
    b.stream("b").process(Keeps, name="q").to("y", name="y")
    return b


def shared_store_down_one_line() -> StreamsBuilder:
    b = builder()
    b.stream("in").process(Keeps, name="p").map_values(abs, name="v").process(Keeps, name="q").to("out", name="s")
    return b


def timer_in_a_shared_group() -> StreamsBuilder:
    b = builder()
    b.stream("a").process(Ticks, name="p").to("x", name="x")
    b.stream("b").process(Keeps, name="q").to("y", name="y")
    return b


def lone_timer() -> StreamsBuilder:
    b = builder()
    b.stream("a").process(Passes, keeps_key=True, name="p")
    b.stream("b").merge(b.stream_of("p", key=str, value=int), name="m").to("out", name="s")
    return b


def table_read_twice() -> StreamsBuilder:
    b = builder()
    table = b.table("t")
    one = b.stream("in").join(table, lambda left, right: left, name="j1")
    one.join(table, lambda left, right: right, name="j2").to("out", name="s")
    return b


def window_read_by_a_processor() -> StreamsBuilder:
    b = builder()
    counts = b.stream("in").group_by_key().windowed_by(tumbling(10, grace=0)).count(name="w")
    b.stream("ask").process(lambda: Passes(), stores=(counts.store,), name="p").to("out", name="s")
    return b


GOLDEN: list[tuple[Any, str, str]] = [
    (chain, "in | f | c | s", "in f c s"),
    (diamond, "in | f | l | r | m | s", "in f l r m s"),
    (branch_and_merge, "in | b | v | m | s", "in b v m s"),
    (several_before_the_fork, "in | x | f l r m | s", "in x l r m s"),
    (several_behind_the_fork, "in | l | r | m | s", "in l r m s"),
    (two_ways_to_one_side, "in | f l r m1 n m2 | s", "in l r m1 n m2 s"),
    (visited_out_of_turn, "a | in l e r m | s", "a l e r m s"),
    (merge_of_two_topics, "a | f | b | m | s", "a f b m s"),
    (join, "in | t j | s", "t in j s"),
    (two_sinks_of_one_topic, "in s1 v s2", "s1 v s2"),
    (two_sinks_of_two_topics, "in | s1 | v | s2", "in s1 v s2"),
    (shared_store_of_two_topics, "a | b | p q | x | y", "a b p q x y"),
    (shared_store_down_one_line, "in | p v q | s", "in v q s"),
    (timer_in_a_shared_group, "a | b | p q | x | y", "a b x y"),
    (lone_timer, "a | p | b | m | s", "a p b m s"),
    (table_read_twice, "in | t j1 j2 | s", "in t j2 s"),
    (window_read_by_a_processor, "in | ask | w p | s", "in ask s"),
]
"""Groups, and the operators at which runs may enter theirs."""


def plan(make: Any) -> Plan:
    topology = make().build()
    (sub,) = topology.subtopologies
    return plan_of(topology, sub)


@pytest.mark.parametrize(("make", "groups", "safe"), GOLDEN, ids=lambda x: getattr(x, "__name__", ""))
def test_groups_and_where_runs_may_enter(make: Any, groups: str, safe: str) -> None:
    made = plan(make)
    assert {frozenset(made.names[i] for i in g) for g in made.groups} == {
        frozenset(g.split()) for g in groups.split(" | ")
    }
    assert {made.names[i] for i in made.batch_safe} == set(safe.split())


@pytest.mark.parametrize("make", [g[0] for g in GOLDEN], ids=lambda x: x.__name__)
def test_groups_stand_in_an_order_in_which_no_record_goes_back(make: Any) -> None:
    made = plan(make)
    at = {i: n for n, g in enumerate(made.groups) for i in g}
    assert sorted(at) == list(range(len(made.names)))
    assert all(at[i] <= at[child] for i, some in enumerate(made.children) for _, child, _ in some)
    assert all(made.group_of[i] == n for i, n in at.items())
