"""A backlog is worked off in an order in which each sub-topology finds all that others have for it."""

from __future__ import annotations

from penstock.streams.runtime.work_levels import work_levels
from penstock.topologies.dsl.builder import StreamsBuilder


def test_each_level_comes_after_those_that_write_to_it() -> None:
    b = StreamsBuilder("levels", key=bytes, value=bytes)
    twice = b.stream("in").select_key(lambda k, v: v).repartition(partitions=3).select_key(lambda k, v: k)
    twice.group_by_key().count(name="last")
    b.stream("other").group_by_key().count(name="counts")
    topology = b.build()
    (other,) = (s.number for s in topology.subtopologies if any(topology.source(n).topic == "other" for n in s.sources))
    levels = work_levels(topology)
    assert other in levels[0] and [len(level) for level in levels] == [2, 1, 1]


def test_sub_topologies_that_write_to_each_other_form_one_level() -> None:
    b = StreamsBuilder("loop", key=bytes, value=bytes)
    left, right = b.table("left"), b.table("right")
    left.join_foreign(right, lambda k, v: v[:1], lambda a, c: a + c).to_stream().to("out")
    topology = b.build()
    levels = work_levels(topology)
    assert sorted(n for level in levels for n in level) == [s.number for s in topology.subtopologies]
    assert len(levels[-1]) > 1
