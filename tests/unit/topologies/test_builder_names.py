"""Names that the DSL gives: stable, so that state and topics are found again after a change of the
topology."""

from __future__ import annotations

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows import tumbling


def keep(key: object, value: object) -> bool:
    """Any predicate."""
    return True


def internals(builder: StreamsBuilder) -> tuple[set[str], set[str]]:
    """The names of stores, and of repartition topics."""
    topology = builder.build()
    topics = {topology.source(n).topic for s in topology.subtopologies for n in s.sources}
    return {s.name for s in topology.stores}, {t for t in topics if t.endswith("-repartition")}


def grown(*, with_more: bool) -> StreamsBuilder:
    """A topology, with or without operators elsewhere in it that were added later."""
    builder = StreamsBuilder()
    if with_more:
        other = builder.stream("another").filter(keep).select_key(keep, key="json")
        other.group_by_key().count()
    events = builder.stream("events")
    if with_more:
        events.peek(keep).to("debug")
    by_type = events.group_by(lambda k, v: v["type"])
    by_type.count()
    by_type.count()
    if with_more:
        by_type.reduce(max)
    events.select_key(lambda k, v: v["user"]).join(builder.table("users"), max).to("out")
    return builder


def test_operators_elsewhere_rename_nothing() -> None:
    """Every store and repartition topic of the smaller topology has the same name in the larger one."""
    stores, topics = internals(grown(with_more=False))
    assert stores == {"events-count", "events-count-2", "users"}
    assert topics == {"events-group-by-repartition", "events-select-key-repartition"}
    more_stores, more_topics = internals(grown(with_more=True))
    assert more_stores - stores == {"another-count", "events-reduce"}
    assert more_topics - topics == {"another-select-key-repartition"}
    assert stores < more_stores and topics < more_topics


def test_own_names_win_and_use_up_no_number() -> None:
    """For operators, stores, repartition topics and sources alike."""
    builder = StreamsBuilder()
    events = builder.stream("events.v1", name="events")
    groups = events.group_by(keep, name="by-type")
    assert groups.count(name="counts").store_name == "counts"
    assert groups.count().name == "events-count"
    assert events.filter(keep, name="good").filter(keep).name == "events-filter"
    assert events.repartition(name="wide", partitions=12).name == "wide-repartition"
    topology = builder.build()
    assert topology.operators["events"].details()["topic"] == "events.v1"
    assert "by-type-repartition" in topology.operators
    assert topology.source("wide-repartition").partitions == 12
    assert topology.sink("wide-repartition-sink").partitions == 12


def test_joins_and_merges_go_by_their_first_stream() -> None:
    """So do repartitioned streams, tables, and the streams of tables."""
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    assert right.merge(left).name == "right-merge"
    joined = left.select_key(keep).left_join(builder.table("rows"), max)
    assert joined.name == "left-left-join"
    table = joined.group_by_key().windowed_by(tumbling("1s", grace=0)).count()
    assert table.to_stream(lambda k, v: k.key).map_values(str).name == "left-map-values"


def test_one_repartition_topic_serves_all_that_need_it() -> None:
    """Groupings and joins of one marked stream share it; an unmarked stream has none."""
    builder = StreamsBuilder()
    keyed = builder.stream("in").select_key(keep)
    keyed.group_by_key().count()
    keyed.group_by_key().reduce(max)
    keyed.join(builder.table("rows"), max)
    keyed.join(builder.table("rows-2"), max)
    assert internals(builder)[1] == {"in-select-key-repartition"}
    assert [s.sources for s in builder.build().subtopologies] == [
        ("in",),
        ("in-select-key-repartition", "rows", "rows-2"),
    ]


def test_streams_are_marked_where_keys_may_change() -> None:
    """And stay marked until a repartition; promises of kept keys are believed."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.filter(keep).map_values(str).group_by_key().count()
    stream.map_batch(lambda batch: batch, keeps_key=True).group_by_key().count()
    stream.repartition(name="explicit").group_by_key().count()
    assert internals(builder)[1] == {"explicit-repartition"}
    stream.map(lambda k, v: (v, k)).filter(keep).group_by_key().count()
    stream.flat_map(lambda k, v: [(v, k)]).group_by_key().count()
    stream.map_batch(lambda batch: batch).group_by_key().count()
    small, _ = stream.select_key(keep).branch(keep, default=True)
    small.group_by_key().count()
    assert internals(builder)[1] == {
        "explicit-repartition",
        "in-filter-2-repartition",
        "in-flat-map-repartition",
        "in-map-batch-2-repartition",
        "in-branch-1-repartition",
    }


def test_repartitioning_twice_numbers_the_second() -> None:
    """Two topics of one stream have two names."""
    stream = StreamsBuilder().stream("in")
    assert [stream.repartition().name, stream.repartition(partitions=3).name] == [
        "in-repartition",
        "in-2-repartition",
    ]
