"""External sinks in the graph: whose offsets count their rows, what goes through a topic first, and what is refused."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.state.errors import ProcessingError, TopologyError
from penstock.streams.runtime.topic_setup import check_guarantee
from penstock.streams.testing.memory_sink import MemorySink
from penstock.topologies.graph.describe import as_mermaid
from penstock.topologies.operators.records.external_sink import ExternalSinkSpec


def builder() -> ps.StreamsBuilder:
    return ps.StreamsBuilder("s", key=str, value=int)


def source_of(b: ps.StreamsBuilder, name: str = "out") -> str:
    spec = b.build().operators[name]
    assert isinstance(spec, ExternalSinkSpec)
    return spec.source


def test_per_record_operators_need_no_topic() -> None:
    b = builder()
    stream = b.stream("in").filter(lambda k, v: v > 1).map_values(lambda v: v * 2).flat_map_values(lambda v: [v, v])
    left, right = stream.branch(lambda k, v: v > 10, lambda k, v: True)
    left.merge(right).peek(print).select(n=ps.value()).sink(MemorySink(), name="out")
    assert source_of(b) == "in"
    assert len(b.build().subtopologies) == 1


@pytest.mark.parametrize("what", ["count", "process", "two sources", "table", "throttle", "map_batch"])
def test_other_operators_do(what: str) -> None:
    b = builder()
    stream = b.stream("in")
    match what:
        case "count":
            stream = stream.group_by_key().count(name="n").to_stream()
        case "process":
            stream = stream.process(ps.Processor)
        case "two sources":
            stream = stream.merge(b.stream("in2"))
        case "table":
            stream = stream.join(b.table("t"), lambda v, t: v + t)
        case "throttle":
            stream = stream.throttle(1, "1s")
        case "map_batch":
            stream = stream.map_batch(lambda batch: batch, keeps_key=True)
    stream.sink(MemorySink(), name="out")
    assert source_of(b).endswith("-repartition")


def test_changed_keys_go_through_a_topic_where_the_sink_goes_by_key() -> None:
    class Facts(MemorySink):
        by_key = False

    b = builder()
    changed = b.stream("in").map(lambda k, v: (str(v), v))
    changed.sink(MemorySink(), name="out")
    changed.sink(Facts(), name="facts")
    assert source_of(b, "out") == "in-map-repartition"
    assert source_of(b, "facts") == "in"


def test_a_sink_that_spans_commits_is_alone_in_its_task() -> None:
    b = builder()
    b.stream("in").sink(MemorySink(span=5), name="out")
    assert source_of(b) == "in"
    b.stream("in").group_by_key().count(name="n")
    with pytest.raises(TopologyError, match=r"cannot share its task with in, n.*repartition\(\) before sink"):
        b.build()
    b = builder()
    b.stream("in").repartition().sink(MemorySink(span=5), name="out")
    b.stream("in").group_by_key().count(name="n")
    b.build()


def test_refusals() -> None:
    with pytest.raises(TopologyError, match=r"needs a sink, not 'orders'.*To write a topic, use to\(\)"):
        builder().stream("in").sink("orders")  # type: ignore[arg-type]  # that is refused

    class Facts(MemorySink):
        append_only = True

    b = builder()
    b.stream("in").group_by_key().count(name="n").to_stream().sink(Facts(), name="out")
    with pytest.raises(TopologyError, match="cannot take upserts"):
        b.build()
    b = builder()
    b.stream("in").sink(MemorySink(), name="out")
    with pytest.raises(TopologyError, match="at_most_once commits before it processes, so external sink 'out'"):
        check_guarantee(b.build(), "at_most_once")


def test_source_of_a_graph_by_hand_is_checked() -> None:
    graph = ps.GraphBuilder("g")
    b = builder()
    b.stream("in").sink(MemorySink(), name="out")
    made = b.build()
    graph.add_operator("in", made.operators["in"])
    graph.add_operator("out", ExternalSinkSpec(sink=MemorySink(), source="elsewhere"))
    graph.add_stream("s", "in", "out")
    with pytest.raises(TopologyError, match="do not follow, one by one, from those of 'elsewhere'"):
        graph.build()


def test_describe_says_where_rows_go() -> None:
    b = builder()
    b.stream("in").sink(MemorySink(), name="out")
    assert "out (ExternalSink) to=MemorySink" in b.build().describe()
    assert "ExternalSink" in as_mermaid(b.build())


def test_driver_gives_the_rows() -> None:
    b = builder()
    b.stream("in").group_by_key().count(name="n").to_stream().sink(MemorySink(), name="out")
    with ps.TopologyTestDriver(b.build()) as driver:
        driver.pipe("in", "a", 1)
        driver.pipe("in", "a", 2)
        assert driver.read_sink("out") == [("a", 1), ("a", 2)]
        assert driver.read_sink("out") == []


class Picky(MemorySink):
    def row(self, key: object, value: object, timestamp_ms: int, headers: object) -> object:
        if value == 2:
            raise ValueError("no twos")
        return value


def test_records_without_a_row_meet_the_policy() -> None:
    b = builder()
    b.stream("in").sink(Picky(), name="out", on_error="skip")
    with ps.TopologyTestDriver(b.build()) as driver:
        for n in (1, 2, 3):
            driver.pipe("in", "a", n)
        assert driver.read_sink("out") == [1, 3]
    b = builder()
    b.stream("in").sink(Picky(), name="out")
    driver = ps.TopologyTestDriver(b.build())
    with pytest.raises(ProcessingError, match="no twos"):
        driver.pipe("in", "a", 2)
    driver.release()
