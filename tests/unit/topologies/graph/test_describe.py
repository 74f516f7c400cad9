"""The text and the flowchart of topologies, word for word."""

from __future__ import annotations

import textwrap

from penstock.state.stores.typed_stores import key_value_store
from penstock.topologies import aggregators
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import word_count, ysb
from penstock.topologies.expressions.functions import col
from penstock.topologies.operators.processors.processor import Processor


def test_the_text_of_the_benchmark() -> None:
    """Two sub-topologies with a repartition topic between them, a table and a windowed store."""
    assert ysb.build(emission="per_commit").describe() == textwrap.dedent(
        """\
        topology ysb

        sub-topology 0
          operators
            ads (TableSource) topic=ads key=string value=json:Ad
            events (Source) topic=events key=string value=json:AdEvent
              → events-filter-values
            events-filter-values (Filter)
              → events-join
            events-join (StreamTableJoin) store=ads type=inner
              → events-map
            events-map (Map)
              → windows-combine
            windows-combine (Combine) window=tumbling(size=10000 ms, grace=3600000 ms) emission=per_commit
              → windows-partials-repartition-sink
            windows-partials-repartition-sink (Sink) topic=<application.id>-windows-partials-repartition key=string value=int
          order of records with different keys matters to: nothing
          internal topics
            <application.id>-windows-partials-repartition
          stores
            ads (key_value) key=string value=json:Ad changelog=ads

        sub-topology 1
          operators
            windows-partials-repartition (Source) topic=<application.id>-windows-partials-repartition key=string value=int
              → windows
            windows (WindowAggregate) store=windows emission=per_commit window=tumbling(size=10000 ms, grace=3600000 ms)
              → events-to-stream
            events-to-stream (SelectKey)
              → events-map-values
            events-map-values (MapValues)
              → events-to
            events-to (Sink) topic=campaign-views key=string value=string
          order of records with different keys matters to: windows
          internal topics
            <application.id>-windows-partials-repartition
          stores
            windows (window) key=string value=int window=10000 ms retention=3610000 ms \
changelog=<application.id>-windows-changelog
        """
    )


class Ticking(Processor):
    """A processor with two ports, a store and a timer."""

    stores = (key_value_store("seen", key=str, value=int, changelog=False),)
    out_ports = ("out", "late")
    timers = ("stream_time",)


def test_the_text_shows_ports_timers_and_partitions() -> None:
    """What feeds nothing is said for operators with several ports; a store without changelog is said to have
    none."""
    builder = StreamsBuilder("ticking")
    builder.stream("in").process(Ticking, name="tick").port("late").repartition(name="late", partitions=2)
    assert builder.build().describe() == textwrap.dedent(
        """\
        topology ticking

        sub-topology 0
          operators
            in (Source) topic=in key=string value=json
              → tick
            tick (Processor) stores=seen timers=stream_time
              out → nothing
              late → late-repartition-sink
            late-repartition-sink (Sink) topic=<application.id>-late-repartition key=string value=json partitions=2
          order of records with different keys matters to: tick
          internal topics
            <application.id>-late-repartition
          stores
            seen (key_value) key=string value=int changelog=none

        sub-topology 1
          operators
            late-repartition (Source) topic=<application.id>-late-repartition key=string value=json partitions=2
          order of records with different keys matters to: nothing
          internal topics
            <application.id>-late-repartition
        """
    )


def test_the_flowchart_of_the_word_count() -> None:
    """Topics outside the subgraphs, operators and stores inside, edges last."""
    assert word_count.build().mermaid() == textwrap.dedent(
        """\
        flowchart TB
          t0[("lines")]
          t1[("#lt;application.id#gt;-lines-group-by-repartition")]
          t2[("word-counts")]
          subgraph sub0["sub-topology 0"]
            o0["lines<br/>Source"]
            o1["lines-flat-map-values<br/>FlatMap"]
            o2["lines-group-by<br/>SelectKey"]
            o3["lines-group-by-repartition-sink<br/>Sink"]
          end
          subgraph sub1["sub-topology 1"]
            o4["lines-group-by-repartition<br/>Source"]
            o5["counts<br/>Aggregate"]
            o6["lines-map-values<br/>MapValues"]
            o7["lines-to<br/>Sink"]
            s0[["counts"]]
          end
          t0 --> o0
          o0 --> o1
          o1 --> o2
          o2 --> o3
          o3 --> t1
          t1 --> o4
          o4 --> o5
          o5 --> o6
          o5 -.- s0
          o6 --> o7
          o7 --> t2
        """
    )


def test_the_flowchart_names_ports_and_escapes_labels() -> None:
    """An edge from one of several ports bears its name; a topic may have any characters."""
    builder = StreamsBuilder()
    odd, rest = builder.stream('a "b" <c> #1', name="in").branch({"odd": max}, default=True).values()
    odd.merge(rest).to("out")
    text = builder.build().mermaid()
    assert '  t0[("a #quot;b#quot; #lt;c#gt; #35;1")]\n' in text
    assert '  o1 -->|"odd"| o2\n  o1 -->|"default"| o2\n' in text


def test_the_plan_says_why_ready_aggregates_take_rows_and_those_of_expressions_do_not() -> None:
    def plan(**parts: object) -> str:
        b = StreamsBuilder("cents", value=dict)
        b.stream("in").group_by_key().agg(emission="per_commit", name="totals", **parts)
        return next(line for line in b.build().describe(plan=True).splitlines() if "totals (" in line)

    ready = plan(total=aggregators.sum_("cents", number=int))
    assert ready.endswith(
        "rows: its ready aggregates read values one by one; those of expressions, col('x').sum(), do not"
    )
    assert "Python function" not in plan(total=col("cents").cast("int64").sum())
