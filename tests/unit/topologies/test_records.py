"""Whole records, side inputs, chosen topics, routes to partitions, named parts."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import ProcessingError, TopologyError
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.operators.joins.side_input import SideView


def ran(builder: ps.StreamsBuilder, records: list[tuple[str, ps.Record]], partitions: int = 1) -> ps.TopologyTestDriver:
    """The topology after these records, in their order."""
    driver = ps.TopologyTestDriver(builder.build(), arrival_order=True, partitions=partitions)
    driver.pipe_sequence(records)
    return driver


def test_key_value_time_and_headers_can_be_read_and_set() -> None:
    """In one function, or each with its own."""
    builder = ps.StreamsBuilder(value=str)
    stream = builder.stream("in")

    def moved(record: ps.Record) -> ps.Record | None:
        if record.value == "drop":
            return None
        return ps.Record(record.value, record.key, record.timestamp_ms + 1, (*record.headers, ("seen", b"1")))

    stream.map_records(moved).to("moved")
    stream.with_timestamp(lambda r: 7).with_headers(lambda r: [("h", r.value.encode())]).to("set")
    given = [("in", ps.Record("k", "v", 5, (("a", b"b"),))), ("in", ps.Record("k", "drop", 6))]
    with ran(builder, given) as driver:
        assert driver.read("moved") == [ps.Record("v", "k", 6, (("a", b"b"), ("seen", b"1")))]
        assert driver.read("set") == [
            ps.Record("k", "v", 7, (("h", b"v"),)),
            ps.Record("k", "drop", 7, (("h", b"drop"),)),
        ]


@pytest.mark.parametrize("made", [("k", "v"), ps.Record("k", "v", -1), ps.Record("k", "v", "soon")])  # type: ignore[arg-type]  # wrong on purpose
def test_what_is_no_record_stops_the_task(made: Any) -> None:
    """With the operator's name."""
    builder = ps.StreamsBuilder(value=str)
    builder.stream("in").map_records(lambda r: made, name="maker").to("out")
    driver = ps.TopologyTestDriver(builder.build())
    with pytest.raises(ProcessingError, match="maker"):
        driver.pipe("in", "k", "v", 1)
    driver.release()


def test_topics_are_chosen_by_the_record() -> None:
    """Among those named; another is the row's error."""
    builder = ps.StreamsBuilder(value=str)
    builder.stream("in").to(lambda key, value: f"out-{value}", topics=("out-a", "out-b"))
    values = ["a", "b", "b", "a"]
    with ran(builder, [("in", ps.Record("k", v, i)) for i, v in enumerate(values)]) as driver:
        assert [r.timestamp_ms for r in driver.read("out-a")] == [0, 3]
        assert [r.timestamp_ms for r in driver.read("out-b")] == [1, 2]
        with pytest.raises(ProcessingError, match=r"out-c.*topics="):
            driver.pipe("in", "k", "c", 9)
        driver.release()


def test_a_chosen_topic_needs_its_choice() -> None:
    """At build time."""
    stream = ps.StreamsBuilder(value=str).stream("in")
    with pytest.raises(TopologyError, match="topics= must list"):
        stream.to(lambda key, value: "x")


def test_through_goes_on_behind_the_topic() -> None:
    """The records are in the topic and behind it."""
    builder = ps.StreamsBuilder(value=str)
    builder.stream("in").through("middle").map_values(str.upper).to("out")
    with ran(builder, [("in", ps.Record("k", "v", 1))]) as driver:
        assert [r.value for r in driver.read("middle")] == ["v"]
        assert [r.value for r in driver.read("out")] == ["V"]


class Where(ps.Processor):
    """Says which task has the record."""

    def process(self, record: ps.Record, ctx: ps.ProcessorContext) -> None:
        ctx.forward(record.key, f"{record.value}@{ctx.task.partition}")


def test_records_go_to_the_partitions_that_are_asked_for() -> None:
    """To all, to one that follows from the whole record, or to the one that a function names."""
    builder = ps.StreamsBuilder(value=str)
    stream = builder.stream("in")
    stream.repartition(by="broadcast", name="all").process(Where).to("all-out")
    stream.repartition(by="shuffle", name="some").process(Where).to("some-out")
    stream.repartition(by=lambda key, value, count: int(value) % count, name="chosen").process(Where).to("chosen-out")
    given = [("in", ps.Record("k", str(i), i)) for i in range(40)]
    with ran(builder, given, partitions=4) as driver:
        assert {r.value for r in driver.read("all-out")} == {f"{i}@{p}" for i in range(40) for p in range(4)}
        some = [r.value.split("@") for r in driver.read("some-out")]
        assert sorted(int(v) for v, _ in some) == list(range(40))
        assert {p for _, p in some} == {"0", "1", "2", "3"}
        assert {r.value for r in driver.read("chosen-out")} == {f"{i}@{i % 4}" for i in range(40)}


def test_a_partitioner_must_stay_in_range() -> None:
    """Or the row is at fault."""
    builder = ps.StreamsBuilder(value=str)
    builder.stream("in").repartition(by=lambda key, value, count: count, name="wide").to("out")
    driver = ps.TopologyTestDriver(builder.build())
    with pytest.raises(ProcessingError, match="partitioner returned 1; it must return an int from 0 to 0"):
        driver.pipe("in", "k", "v", 1)
    driver.release()


def test_streams_partitioned_by_different_rules_do_not_join() -> None:
    """Their equal keys would not meet."""

    def own(key: Any, value: Any, count: int) -> int:
        return 0

    builder = ps.StreamsBuilder(value=str)
    left = builder.stream("in").repartition(by=own)
    with pytest.raises(TopologyError, match=r"partitioned differently.*by own.*by key"):
        left.join(builder.stream("other"), max, within=1, grace=0)


def test_a_side_input_is_a_map_a_list_or_a_value() -> None:
    """Of a table that every task holds whole."""
    builder = ps.StreamsBuilder(value=str)
    rates = builder.global_table("rates")

    def looked(key: str, value: str, side: SideView) -> list[Any]:
        return [side.get(value), side.get("none", "?"), sorted(side.items()), side.values()]

    builder.stream("in").map_with_side(looked, rates, value=list).to("out")
    given = [("rates", ps.Record("a", "1", 0)), ("rates", ps.Record("b", "2", 0)), ("in", ps.Record("k", "b", 1))]
    with ran(builder, given) as driver:
        assert driver.read("out")[0].value == ["2", "?", [["a", "1"], ["b", "2"]], ["1", "2"]]


def test_a_single_side_input_must_be_single() -> None:
    """None and several are errors."""
    builder = ps.StreamsBuilder(value=str)
    rate = builder.global_table("rates")
    builder.stream("in").map_with_side(lambda k, v, side: side.single(), rate).to("out")
    driver = ps.TopologyTestDriver(builder.build(), arrival_order=True)
    with pytest.raises(ProcessingError, match="has 0 rows"):
        driver.pipe("in", "k", "v", 1)
    driver.release()


def test_a_side_input_per_window() -> None:
    """The rows of the window that the record's time falls into."""
    builder = ps.StreamsBuilder(value=str)
    counts = builder.stream("clicks").group_by_key().windowed_by(ps.tumbling(10, grace=0)).count()
    side = counts.to_stream().as_global()
    builder.stream("in").map_with_side(lambda k, v, s: s.window(), side, value=dict).to("out")
    clicks = [("clicks", ps.Record("a", "x", t)) for t in (1, 2, 11)]
    with ran(builder, [*clicks, ("in", ps.Record("k", "v", 5)), ("in", ps.Record("k", "v", 12))]) as driver:
        assert [r.value for r in driver.read("out")] == [{"a": 2}, {"a": 1}]


def test_parts_are_named_and_may_nest() -> None:
    """So that one transform can be used twice."""

    def loud(stream: Any, mark: str) -> Any:
        return stream.map_values(str.upper).apply("inner", lambda s: s.map_values(lambda v: v + mark))

    builder = ps.StreamsBuilder(value=str)
    stream = builder.stream("in")
    stream.apply("first", loud, "!").to("out")
    topology = builder.build()
    assert {"first-map-values", "first-inner-map-values"} <= set(topology.operators)
    with pytest.raises(TopologyError, match="two parts of the topology are named 'first'"):
        stream.apply("first", loud, "?")


def test_counters_of_the_users() -> None:
    """Are shown with the dropped records."""

    class Counts(ps.Processor):
        def process(self, record: ps.Record, ctx: ps.ProcessorContext) -> None:
            ctx.count("letters", len(record.value))

    builder = ps.StreamsBuilder(value=str)
    builder.stream("in").process(Counts, name="counter")
    with ran(builder, [("in", ps.Record("k", "abc", 1)), ("in", ps.Record("k", "de", 2))]) as driver:
        assert driver.dropped_records["counter.user.letters"] == 5


def test_times_that_no_log_can_hold_are_the_records_error() -> None:
    """Under the policy, not at the commit, which they would stop for good."""
    options = TaskOptions(policies=Policies(processing="skip", timestamp="skip"))
    for far_in in ("source", "operator"):
        builder = ps.StreamsBuilder("app", key=str, value=int)

        def far(record: ps.Record) -> int:
            return 1 << 70 if record.value == 0 else record.value

        stream = builder.stream("in", timestamp=far if far_in == "source" else None)
        stream = stream if far_in == "source" else stream.with_timestamp(far)
        stream.group_by_key().count(name="counts").to_stream().to("out")
        with ps.TopologyTestDriver(builder.build(), options=options) as driver:
            driver.pipe_all("in", [ps.Record("k", 0, 1), ps.Record("k", 7, 2)])
            assert [(r.value, r.timestamp_ms) for r in driver.read("out")] == [(1, 7)]
