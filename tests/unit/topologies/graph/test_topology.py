"""Graphs built by hand: what a valid one says of itself, and what is refused, with the operator's name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.state.stores.typed_stores import key_value_store
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import GraphBuilder, Port, Topology
from penstock.topologies.operators.aggregates.aggregate import AggregateSpec
from penstock.topologies.operators.aggregates.fold import COUNTING
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext, processor_spec
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec
from penstock.topologies.operators.records.stateless import BranchSpec, MapValuesSpec, MergeSpec, PeekSpec


def upper(value: bytes) -> bytes:
    """A function with an identity of its own, so that graphs that use it can be equal."""
    return value.upper()


def is_early(key: object, value: bytes) -> bool:
    """Whether the value begins below ``m``."""
    return value < b"m"


def pipeline(name: str = "by-hand") -> GraphBuilder:
    """in → fork → (early → upper, late) → again → out."""
    graph = GraphBuilder(name)
    graph.add_operator("read", SourceSpec(topic="in"))
    graph.add_operator("fork", BranchSpec(predicates=(is_early,), out_ports=("early", "late")))
    graph.add_operator("upper", MapValuesSpec(fn=upper))
    graph.add_operator("again", MergeSpec())
    graph.add_operator("write", SinkSpec(topic="out"))
    graph.add_stream("a", "read", "fork")
    graph.add_stream("b", "fork.early", "upper.in")
    graph.add_stream("c", "fork.late", "again")
    graph.add_stream("d", "upper", "again")
    graph.add_stream("e", "again", "write")
    return graph


def test_a_graph_by_hand_runs() -> None:
    """Ports by name, branches that meet again in the input's order."""
    with TopologyTestDriver(pipeline().build()) as driver:
        driver.pipe_all("in", [Record(None, v) for v in (b"a", b"z", b"b")])
        assert [r.value for r in driver.read("out")] == [b"A", b"z", b"B"]


def test_a_topology_is_a_value() -> None:
    """Equal when its name, operators and streams are; nobody can change it through the builder."""
    graph = pipeline()
    topology = graph.build()
    assert topology == pipeline().build()
    assert topology != pipeline("other").build()
    graph.add_operator("more", PeekSpec(fn=print))
    assert "more" not in topology.operators


def test_children_come_in_the_order_of_the_streams() -> None:
    """With the ports' numbers, so that records visit them so."""
    topology = pipeline().build()
    assert topology.children("fork") == [(0, "upper", 0), (1, "again", 0)]
    assert topology.streams[1].out == Port("fork", "early")
    assert str(topology.streams[1].out) == "fork.early"


def test_the_dsl_makes_the_same_value() -> None:
    """The DSL's handles and the two verbs give equal topologies."""
    builder = StreamsBuilder("same", key=bytes, value=bytes)
    builder.stream("in").map_values(upper).to("out")
    graph = GraphBuilder("same")
    graph.add_operator("in", SourceSpec(topic="in"))
    graph.add_operator("in-map-values", MapValuesSpec(fn=upper))
    graph.add_stream("to-in-map-values", "in", "in-map-values")
    graph.add_operator("in-to", SinkSpec(topic="out"))
    graph.add_stream("to-in-to", "in-map-values", "in-to")
    assert builder.build() == graph.build()


def two_sources(*, same_store: bool) -> Topology:
    """Two sources, each with a counter; the counters share a store or not."""
    graph = GraphBuilder()
    for side in ("left", "right"):
        store = key_value_store("counts" if same_store else f"counts-{side}", key=bytes, value=int)
        graph.add_operator(side, SourceSpec(topic=f"in-{side}"))
        graph.add_operator(f"count-{side}", AggregateSpec(stores=(store,), fold=COUNTING, emission="every_update"))
        graph.add_stream(side, side, f"count-{side}")
    return graph.build()


def test_a_shared_store_makes_one_subtopology() -> None:
    """Operators belong together when streams or stores connect them, and apart when only topics could."""
    together, apart = two_sources(same_store=True), two_sources(same_store=False)
    assert [s.sources for s in together.subtopologies] == [("left", "right")]
    assert [s.name for s in together.stores] == ["counts"]
    assert [s.sources for s in apart.subtopologies] == [("left",), ("right",)]
    assert apart.source_topics("app") == {"in-left": (0, "left"), "in-right": (1, "right")}


def test_internal_topics_have_the_application_in_front() -> None:
    """And others have not."""
    graph = GraphBuilder()
    graph.add_operator("a", SourceSpec(topic="plain"))
    graph.add_operator("b", SourceSpec(topic="x-repartition", internal=True))
    assert set(graph.build().source_topics("app")) == {"plain", "app-x-repartition"}


def add_cycle(graph: GraphBuilder) -> None:
    """again → loop → again."""
    graph.add_operator("loop", MapValuesSpec(fn=upper))
    graph.add_stream("x", "again", "loop")
    graph.add_stream("y", "loop", "again")


def add_unconnected(graph: GraphBuilder) -> None:
    """An operator that nothing feeds."""
    graph.add_operator("lonely", MapValuesSpec(fn=upper))


def add_second_reader(graph: GraphBuilder) -> None:
    """A topic that is read twice."""
    graph.add_operator("again-read", SourceSpec(topic="in"))


def add_store_twice(graph: GraphBuilder) -> None:
    """One store name, two value types."""
    for name, value in (("sum-1", int), ("sum-2", float)):
        store = key_value_store("sums", key=bytes, value=value)
        graph.add_operator(name, AggregateSpec(stores=(store,), fold=COUNTING))
        graph.add_stream(name, "again", name)


def add_unequal_partitions(graph: GraphBuilder) -> None:
    """Two repartition topics of one sub-topology with counts of their own."""
    for count in (2, 3):
        graph.add_operator(f"re-{count}", SourceSpec(topic=f"r{count}", internal=True, partitions=count))
        graph.add_stream(f"re-{count}", f"re-{count}", "again")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (add_cycle, "cycle through again, write, loop; feed back through a topic"),
        (add_unconnected, "'lonely' .* has no input at port 'in'; connect it"),
        (add_second_reader, "'in' is read by both 'read' and 'again-read'"),
        (add_store_twice, "store 'sums' is declared differently by 'sum-2'"),
        (add_unequal_partitions, "re-2=2, re-3=3; give them the same number"),
        (lambda g: g.add_operator("read", MergeSpec()), "two operators are named 'read'"),
        (lambda g: g.add_operator("a b", MergeSpec()), "'a b': use 1 to 180 letters"),
        (lambda g: g.add_stream("a", "read", "again"), "two streams are named 'a'"),
        (lambda g: g.add_stream("z", "read"), "'z' has no destination"),
        (lambda g: g.add_stream("z", "nobody", "again"), "no operator is named 'nobody'; the operators are: read"),
        (lambda g: g.add_stream("z", "fork", "again"), "out port of 'fork'; it has: fork.early, fork.late"),
        (lambda g: g.add_stream("z", "fork.lost", "again"), "out port of 'fork'"),
        (lambda g: g.add_stream("z", "write", "again"), "out port of 'write'; it has: none"),
        (lambda g: g.add_stream("z", "again", "read"), "in port of 'read'; it has: none"),
    ],
)
def test_what_is_wrong_is_refused_by_name(spoil: Callable[[GraphBuilder], object], message: str) -> None:
    """At the verb, or when the graph is built."""
    graph = pipeline()
    with pytest.raises(TopologyError, match=message):
        spoil(graph)
        graph.build()


def test_a_topology_must_read_something() -> None:
    """An empty graph has nothing to run."""
    with pytest.raises(TopologyError, match="reads no topic"):
        GraphBuilder().build()


def test_topics_and_partition_counts_must_be_real() -> None:
    """Refused where they are given."""
    with pytest.raises(TopologyError, match="no topic"):
        SourceSpec(topic="")
    with pytest.raises(TopologyError, match="no topic"):
        SinkSpec(topic="")
    with pytest.raises(TopologyError, match="partitions=0"):
        SourceSpec(topic="t", partitions=0)


class Splitter(Processor):
    """Forwards to two ports."""

    out_ports = ("odd", "even")

    def process(self, record: Record, ctx: ProcessorContext) -> None:
        """By the value's length."""
        ctx.forward(record.key, record.value, port="odd" if len(record.value) % 2 else "even")


def test_a_processor_keeps_its_declared_ports_in_the_graph() -> None:
    """They are the operator's out ports, and each may feed what it likes."""
    graph = GraphBuilder()
    graph.add_operator("read", SourceSpec(topic="in"))
    graph.add_operator("split", processor_spec(Splitter))
    for port in ("odd", "even"):
        graph.add_operator(port, SinkSpec(topic=port))
        graph.add_stream(f"to-{port}", f"split.{port}", port)
    graph.add_stream("in", "read", "split")
    topology = graph.build()
    assert topology.operators["split"].out_ports == ("odd", "even")
    with TopologyTestDriver(topology) as driver:
        driver.pipe_all("in", [Record(None, v) for v in (b"a", b"bb", b"ccc")])
        assert [r.value for r in driver.read("odd")] == [b"a", b"ccc"]
        assert [r.value for r in driver.read("even")] == [b"bb"]


def test_watermarks_that_wait_for_each_other_are_refused() -> None:
    """Two sub-topologies that feed each other, of which each needs the other's event time; a loop is none."""
    builder = ps.StreamsBuilder("circle", value=int)
    stream = builder.stream("in", watermark=ps.bounded_out_of_orderness(0))
    counts = stream.group_by_key().windowed_by(ps.tumbling(10, grace=0)).count(emission="on_close").to_stream()
    back = counts.map(lambda w, n: (w.key, n), key=str).repartition(name="there").select_key(lambda k, v: k)
    late = back.repartition(name="back")
    stream.join(late, max, within=10, grace=0, name="meet").to("out")
    with pytest.raises(TopologyError, match=r"cycle through the repartition topics .*there.*back.*loop"):
        builder.build()
