"""The DSL: what each verb does to records, run through the real engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.log import Record, Windowed
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext
from penstock.topologies.operators.records.stateless import MapValuesSpec
from penstock.topologies.windows import tumbling

HEADERS = (("trace", b"7"),)
NUMBERS = [Record("a", 1, 10), Record("b", 2, 11, HEADERS), Record("a", 3, 12), Record(None, 4, 13)]


def outputs(use: Callable[[KStream], object], records: list[Record], topic: str = "out") -> list[Record]:
    """What a topology over string keys and JSON values writes to ``topic``."""
    builder = StreamsBuilder(value="json")
    use(builder.stream("in"))
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", records)
        return driver.read(topic)


def pairs(use: Callable[[KStream], KStream], records: list[Record] = NUMBERS) -> list[tuple[Any, Any]]:
    """Keys and values of what ``use`` makes of the records."""
    return [(r.key, r.value) for r in outputs(lambda s: use(s).to("out"), records)]


def test_operators_that_keep_keys() -> None:
    """Filters, maps of values, and peeking."""
    assert pairs(lambda s: s.filter(lambda k, v: k == "a" and v > 1)) == [("a", 3)]
    assert pairs(lambda s: s.filter_not(lambda k, v: k == "a")) == [("b", 2), (None, 4)]
    assert pairs(lambda s: s.filter_values(lambda v: v % 2)) == [("a", 1), ("a", 3)]
    assert pairs(lambda s: s.map_values(lambda v: -v))[:2] == [("a", -1), ("b", -2)]
    assert pairs(lambda s: s.map_values_with_key(lambda k, v: f"{k}{v}"))[-1] == (None, "None4")
    assert pairs(lambda s: s.flat_map_values(lambda v: [v] * (v - 1)))[:3] == [("b", 2), ("a", 3), ("a", 3)]
    seen: list[tuple[Any, Any]] = []
    assert pairs(lambda s: s.peek(lambda k, v: seen.append((k, v)))) == seen == [(r.key, r.value) for r in NUMBERS]


def test_operators_that_change_keys() -> None:
    """Maps, flat maps and new keys, with serdes of their own."""
    assert pairs(lambda s: s.map(lambda k, v: (v, k or ""), key=int, value=str))[:2] == [(1, "a"), (2, "b")]
    assert pairs(lambda s: s.flat_map(lambda k, v: [(f"{k}{i}", i) for i in range(v - 2)])) == [
        ("a0", 0),
        ("None0", 0),
        ("None1", 1),
    ]
    assert pairs(lambda s: s.select_key(lambda k, v: v, key=int))[:2] == [(1, 1), (2, 2)]


def test_foreach_ends_a_stream() -> None:
    """It sees every record and hands none on."""
    seen: list[Any] = []
    builder = StreamsBuilder(value="json")
    builder.stream("in").foreach(lambda k, v: seen.append(v))
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", NUMBERS)
    assert seen == [1, 2, 3, 4]


def test_time_and_headers_go_along() -> None:
    """Through every stateless operator, and through a repartition topic."""

    def use(stream: KStream) -> None:
        changed = stream.select_key(lambda k, v: "k").filter_values(lambda v: v == 2)
        changed.repartition().flat_map_values(lambda v: [v, v]).to("out")

    assert outputs(use, NUMBERS) == [Record("k", 2, 11, HEADERS), Record("k", 2, 11, HEADERS)]


def test_branches_take_each_record_once() -> None:
    """The first predicate that is true takes it; the rest goes to the default, or nowhere."""

    def use(stream: KStream) -> None:
        small, rest = stream.branch(lambda k, v: v < 3, default=True)
        small.to("small")
        rest.to("out")
        (only,) = stream.branch(lambda k, v: v > 3)
        only.map_values(lambda v: v * 10).to("out")

    assert [r.value for r in outputs(use, NUMBERS)] == [3, 4, 40]
    assert [r.value for r in outputs(use, NUMBERS, "small")] == [1, 2]


def test_branches_by_name() -> None:
    """A mapping names them, and its order decides."""

    def use(stream: KStream) -> None:
        branches = stream.branch({"odd": lambda k, v: v % 2, "big": lambda k, v: v > 2}, default=True)
        assert list(branches) == ["odd", "big", "default"]
        branches["big"].merge(branches["default"]).to("out")

    assert [r.value for r in outputs(use, NUMBERS)] == [2, 4]


def test_merge_keeps_the_tasks_order() -> None:
    """Branches that meet again stand as the input stood; inputs of several topics stand by their times."""
    builder = StreamsBuilder(value="json")
    left, right = builder.stream("left"), builder.stream("right")
    left.merge(right.map_values(lambda v: -v)).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_raw({"left": [Record(None, b"1", 1), Record(None, b"4", 4)], "right": [Record(None, b"2", 2)]})
        assert [r.value for r in driver.read("out")] == [1, -2, 4]


def test_a_stream_may_be_merged_twice_on_its_way() -> None:
    """Each merge counts it once, so that what passes both comes twice."""

    def use(stream: KStream) -> None:
        tens = stream.map_values(lambda v: v * 10)
        stream.merge(tens).map_values(lambda v: v + 1).merge(tens).to("out")

    assert sorted(r.value for r in outputs(use, NUMBERS)) == sorted(
        [v + 1 for v in (1, 2, 3, 4)] + [v * 10 + 1 for v in (1, 2, 3, 4)] + [v * 10 for v in (1, 2, 3, 4)]
    )


class Numbering(Processor):
    """Forwards each record twice: numbered per key to one port, its key to the other."""

    out_ports = ("numbered", "keys")

    def process(self, record: Record, ctx: ProcessorContext) -> None:
        """Reads a table's store that was handed to it."""
        known = ctx.store("names").get(record.key)
        ctx.forward(record.key, [known, record.value], port="numbered")
        ctx.forward(record.key, record.key, port="keys")


def test_processors_have_ports_and_may_share_a_tables_store() -> None:
    """The handle is the first port; each port may have serdes of its own."""
    builder = StreamsBuilder(value="json")
    names = builder.table("names", value=str)
    processed = builder.stream("in").process(Numbering, stores=(names.store,), keeps_key=True)
    processed.to("out")
    processed.port("keys", value=str).to("keys")
    with TopologyTestDriver(builder) as driver:
        driver.pipe("names", "a", "Ann", 1)
        driver.pipe_all("in", NUMBERS[:2])
        assert [r.value for r in driver.read("out")] == [["Ann", 1], [None, 2]]
        assert [r.value for r in driver.read("keys")] == ["a", "b"]
        assert driver.read_raw("keys") == []


def test_map_batch_sees_columns() -> None:
    """Whole runs, and ``None`` for nothing."""

    def doubled(batch: Batch) -> Batch | None:
        return batch.replace(values=[v * 2 for v in batch.values])

    assert pairs(lambda s: s.map_batch(doubled))[:2] == [("a", 2), ("b", 4)]
    assert pairs(lambda s: s.map_batch(lambda batch: None)) == []


def test_joins_meet_rows_by_key() -> None:
    """Inner drops what meets nothing; left hands ``None``, also to records without a key."""
    builder = StreamsBuilder(value="json")
    stream, table = builder.stream("in"), builder.table("rows", value=str)
    stream.join(table, lambda left, right: f"{left}{right}", value=str).to("inner")
    stream.left_join(table, lambda left, right: [left, right]).to("left")
    with TopologyTestDriver(builder) as driver:
        driver.pipe("rows", "a", "x", 0)
        driver.pipe_all("in", NUMBERS)
        assert [(r.key, r.value) for r in driver.read("inner")] == [("a", "1x"), ("a", "3x")]
        left = [(r.key, r.value) for r in driver.read("left")]
        assert left == [("a", [1, "x"]), ("b", [2, None]), ("a", [3, "x"]), (None, [4, None])]


def test_a_stream_joins_an_aggregated_table() -> None:
    """A record meets the count that includes it when the count is ahead of the join."""
    builder = StreamsBuilder(value="json")
    stream = builder.stream("in")
    counts = stream.group_by_key().count()
    stream.join(counts, lambda value, count: [value, count]).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", NUMBERS)
        assert [r.value for r in driver.read("out")] == [[1, 1], [2, 1], [3, 2]]


def test_aggregations_per_key() -> None:
    """Count, reduce and aggregate, each update at the latest time of its records."""
    late = [*NUMBERS, Record("a", 5, 1)]

    def use(stream: KStream) -> None:
        groups = stream.group_by_key()
        groups.count().to("count")
        groups.reduce(lambda aggregate, value: aggregate - value).to("reduce")
        groups.aggregate(str, lambda k, v, agg: f"{agg}{k}{v}", value=str).to("aggregate")

    assert outputs(use, late, "count") == [
        Record("a", 1, 10),
        Record("b", 1, 11, HEADERS),
        Record("a", 2, 12),
        Record("a", 3, 12),
    ]
    assert [r.value for r in outputs(use, late, "reduce")] == [1, 2, -2, -7]
    assert [r.value for r in outputs(use, late, "aggregate")] == ["a1", "b2", "a1a3", "a1a3a5"]


def test_group_by_counts_under_another_key() -> None:
    """Through a repartition topic, which carries key and value by their serdes."""
    builder = StreamsBuilder(value="json")
    builder.stream("in").group_by(lambda k, v: v % 2, key=int).reduce(max).to("out")
    with TopologyTestDriver(builder, partitions=3) as driver:
        driver.pipe_all("in", NUMBERS)
        raw = driver.read_raw("test-in-group-by-repartition")
        assert sorted(raw)[0] == Record(bytes(8), b"2", 11, HEADERS)
        assert {r.key: r.value for r in driver.read("out")} == {0: 4, 1: 3}


def test_windowed_tables_have_windowed_keys() -> None:
    """On a topic ``key | start``; under a key of one's own with ``to_stream``."""
    builder = StreamsBuilder(value="json")
    groups = builder.stream("in").group_by_key().windowed_by(tumbling(2, grace=0), retention="1d")
    table = groups.count(name="counts")
    table.to("out")
    table.to_stream(lambda w, n: w.start_ms, key=int).to("starts")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", NUMBERS)
        assert driver.read_raw("out")[0].key == b"a" + (10).to_bytes(8, "big")
        assert [(r.key, r.value) for r in driver.read("starts")] == [(10, 1), (10, 1), (12, 1)]
        assert list(driver.store("counts").fetch("a", 0, 20)) == [(10, 1), (12, 1)]
    assert table.windowed and table.store.retention_ms == 86_400_000
    assert table.key_serde.deserialize(b"a" + (10).to_bytes(8, "big")) == Windowed("a", 10, 12)


def test_per_commit_is_a_default_that_one_table_may_leave() -> None:
    """The builder's emission holds for aggregations that name none."""
    builder = StreamsBuilder(value="json", emission="per_commit")
    groups = builder.stream("in").group_by_key()
    groups.count().to("per-commit")
    groups.count(emission="every_update").to("every-update")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", NUMBERS)
        assert [(r.key, r.value) for r in driver.read("per-commit")] == [("a", 2), ("b", 1)]
        assert [(r.key, r.value) for r in driver.read("every-update")] == [("a", 1), ("b", 1), ("a", 2)]


def test_tables_write_their_changes() -> None:
    """Updates and deletions, under their key or another."""
    builder = StreamsBuilder(value="json")
    table = builder.table("rows", name="t")
    table.to("out")
    table.to_stream(lambda k, v: "all").to("all")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("rows", [Record("a", 1), Record("a", None)])
        assert [(r.key, r.value) for r in driver.read("out")] == [("a", 1), ("a", None)]
        assert [r.key for r in driver.read("all")] == ["all", "all"]
        assert (table.name, table.store_name, table.store.source_topic) == ("t", "t", "rows")


def test_hand_made_operators_and_the_dsl_mix() -> None:
    """``out`` names a handle's port for ``add_stream``; ``stream_of`` goes on behind an operator."""
    builder = StreamsBuilder(value="json")
    odd, even = builder.stream("in").branch(lambda k, v: v % 2, default=True)
    builder.add_operator("negate", MapValuesSpec(fn=lambda v: -v))
    builder.add_stream("both", odd.out, "negate")
    builder.add_stream("both-2", even.out, "negate")
    builder.stream_of("negate").group_by_key().reduce(min).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", NUMBERS)
        assert [(r.key, r.value) for r in driver.read("out")] == [("a", -1), ("b", -2), ("a", -3)]
        assert "negate-repartition" in driver.topology.operators


@pytest.mark.parametrize(
    ("use", "value"), [(lambda s: s.group_by_key().count(), b""), (lambda s: s.repartition(), b"1")]
)
def test_null_keys_survive_a_repartition(use: Callable[[KStream], Any], value: bytes) -> None:
    """They reach the repartition topic; an aggregation behind it drops them. A count reads no value, so none is there."""
    builder = StreamsBuilder(value="json")
    use(builder.stream("in").select_key(lambda k, v: None))
    with TopologyTestDriver(builder, partitions=2) as driver:
        driver.pipe_all("in", NUMBERS[:1])
        assert driver.read_raw("test-in-select-key-repartition") == [Record(None, value, 10)]
