"""The test driver's own promises: order of arrival, causes of outputs, restarts, the clock, counters."""

from __future__ import annotations

import msgspec
import pytest

from penstock.state.errors import SerdeError, TopologyError
from penstock.state.log import Record
from penstock.state.serdes.serde import Serde, serde_of
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.arrival_order import in_dependency_order
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import tumbling

BATCHES = [1, 2, 1000]


def lookup() -> Topology:
    """A stream joined with a table after a repartition, and the plain stream beside it."""
    b = StreamsBuilder(key=str, value=str)
    orders = b.stream("orders")
    users = b.table("users")
    orders.to("seen")
    orders.select_key(lambda k, v: v).left_join(users, lambda order, user: f"{order}:{user}").to("joined")
    return b.build()


@pytest.mark.parametrize("size", BATCHES)
def test_arrival_order_holds_across_topics_and_repartition_topics(size: int) -> None:
    driver = TopologyTestDriver(lookup(), options=TaskOptions(batch_max_records=size), arrival_order=True)
    with driver:
        driver.pipe_sequence(
            [
                ("orders", Record("o1", "ann", 900)),
                ("users", Record("ann", "a1", 500)),
                ("orders", Record("o2", "ann", 5)),
                ("users", Record("ann", "a2", 400)),
                ("orders", Record("o3", "ann", 1)),
            ]
        )
        joined = driver.read_caused("joined")
        seen = driver.read_caused("seen")
    assert [(label, r.value, r.timestamp_ms) for label, r in joined] == [
        (0, "ann:None", 900),
        (2, "ann:a1", 5),
        (4, "ann:a2", 1),
    ]
    assert [label for label, _ in seen] == [0, 2, 4]


@pytest.mark.parametrize("size", BATCHES)
def test_arrival_order_holds_behind_repartition_topics_that_carry_watermarks(size: int) -> None:
    """A watermark is carried with the record that moved it, and holds no record back that came after it."""
    b = StreamsBuilder(key=str, value=str)
    events = b.stream("events", watermark=bounded_out_of_orderness(50, interval=1))
    lefts = events.filter_values(lambda v: v.startswith("l")).select_key(lambda k, v: "same")
    rights = events.filter_values(lambda v: v.startswith("r")).select_key(lambda k, v: "same")
    lefts.join(rights, lambda x, y: f"{x}{y}", within=15, grace=0).to("joined")
    times = {"l1": 0, "r1": 10, "l2": 20, "r2": 5, "l3": 100, "r3": 90, "r4": 110, "l4": 80, "l5": 120}
    with TopologyTestDriver(b.build(), options=TaskOptions(batch_max_records=size), arrival_order=True) as driver:
        driver.pipe_all("events", [Record(None, v, ts) for v, ts in times.items()])
        assert [(label, r.value) for label, r in driver.read_caused("joined")] == [
            (1, "l1r1"),
            (2, "l2r1"),
            (3, "l1r2"),
            (3, "l2r2"),
            (5, "l3r3"),
            (6, "l3r4"),
            (7, "l4r3"),
            (8, "l5r4"),
        ]


@pytest.mark.parametrize("size", BATCHES)
def test_arrival_order_holds_behind_several_tasks_that_write_one_topic(size: int) -> None:
    b = StreamsBuilder(key=str, value=int)
    b.stream("in").select_key(lambda k, v: "same").repartition(name="together").to("out")
    options = TaskOptions(batch_max_records=size)
    with TopologyTestDriver(b.build(), partitions=3, options=options, arrival_order=True) as driver:
        for start in (0, 20):
            driver.pipe_all("in", [Record(f"k{i}", i, 100 - i) for i in range(start, start + 20)])
        assert len({driver._partition_of(f"k{i}".encode()) for i in range(20)}) == 3
        assert [(label, r.value) for label, r in driver.read_caused("out")] == [(i, i) for i in range(40)]


def test_without_arrival_order_the_feed_orders_by_time() -> None:
    b = StreamsBuilder(key=str, value=str)
    b.stream("one").merge(b.stream("two")).to("out")
    records = [("one", Record("k", "late", 9)), ("two", Record("k", "early", 3))]
    with TopologyTestDriver(b.build()) as driver:
        driver.pipe_sequence(records)
        assert driver.read_caused("out")[0][1].value == "early"
    with TopologyTestDriver(b.build(), arrival_order=True) as driver:
        driver.pipe_sequence(records)
        assert driver.read_caused("out")[0][1].value == "late"


def test_labels_are_those_given() -> None:
    b = StreamsBuilder(key=str, value=str)
    b.stream("in").filter(lambda k, v: v != "no").to("out")
    with TopologyTestDriver(b.build(), arrival_order=True) as driver:
        driver.pipe_sequence([("in", Record("k", v, 0)) for v in ("a", "no", "b")], labels=[3, 5, 8])
        assert [label for label, _ in driver.read_caused("out")] == [3, 8]
        driver.pipe("in", "k", "c")
        assert [label for label, _ in driver.read_caused("out")] == [9]


@pytest.mark.parametrize("restore", [False, True], ids=["found", "restored"])
@pytest.mark.parametrize("size", BATCHES)
def test_restart_keeps_stores_and_stream_time_and_nothing_else(size: int, restore: bool) -> None:
    b = StreamsBuilder(key=str, value=str)
    b.stream("in").group_by_key().windowed_by(tumbling(10, grace=0)).count(name="counts").to("out")
    driver = TopologyTestDriver(b.build(), options=TaskOptions(batch_max_records=size), arrival_order=True)
    with driver:
        driver.pipe_sequence([("in", Record("k", "v", ts)) for ts in (1, 2, 25)])
        before = dict(driver.tasks)
        driver.restart(restore=restore)
        assert all(driver.tasks[t] is not task for t, task in before.items())
        driver.read("out")
        driver.pipe_sequence([("in", Record("k", "v", 3)), ("in", Record("k", "v", 26))])
        assert [(r.key.start_ms, r.value) for r in driver.read("out")] == [(20, 2)]
        assert sum(driver.dropped_records.values()) == 1
        driver.restart()
        assert sum(driver.dropped_records.values()) == 1


def test_a_restore_takes_what_the_changelog_has_of_each_partition_and_copies_tables() -> None:
    b = StreamsBuilder(key=str, value=str)
    table = b.table("users")
    seen = b.stream("in").left_join(table, lambda v, user: f"{v}{user}").group_by_key()
    seen.reduce(lambda a, v: a + v, name="joined").to("out")
    driver = TopologyTestDriver(b.build(), partitions=3)
    with driver:
        for key in "abcdef":
            driver.pipe("users", key, key.upper())
            driver.pipe("in", key, "1")
        driver.changelogs["test-joined-changelog"].clear()
        driver.restart(restore=True)
        driver.read("out")
        for key in "abcdef":
            driver.pipe("in", key, "2")
        assert sorted(r.value for r in driver.read("out")) == [f"1{k}2{k}" for k in "ABCDEF"]


def test_groups_come_in_order_of_dependency() -> None:
    assert in_dependency_order([0, 1, 2], [(2, 0), (0, 1)]) == [[2], [0], [1]]
    assert in_dependency_order([0, 1, 2, 3], [(0, 2), (2, 0), (3, 0), (2, 1)]) == [[3], [0, 2], [1]]
    assert in_dependency_order([0, 1], []) == [[0], [1]]


class Page(msgspec.Struct):
    views: int


def test_what_a_serde_cannot_write_or_read_is_named_with_its_topic() -> None:
    b = StreamsBuilder(key=str, value=dict)
    page = serde_of(Page)
    b.stream("in").map_values(lambda v: b'{"views":"many"}', value=Serde("page", bytes, page.deserialize)).to("out")
    with TopologyTestDriver(b.build()) as driver:
        with pytest.raises(SerdeError, match="a key of topic in: serde string cannot write int 5"):
            driver.pipe("in", 5, {})
        driver.pipe("in", "k", {})
        with pytest.raises(SerdeError, match=r"a value of topic out: serde page cannot read .*read_raw"):
            driver.read("out")
        assert [r.value for r in driver.read_raw("out")] == [b'{"views":"many"}']


def test_what_a_worker_would_warn_of_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    b = StreamsBuilder(key=str, value=dict)
    stream = b.stream("in")
    stream.filter(col("amuont") > 1).to("out")
    stream.group_by_key().count(name="n")
    with TopologyTestDriver(b.build()) as driver:
        for n in range(9):
            driver.pipe("in", None, {"amount": n})
        with pytest.raises(TopologyError, match=r"does not write topic 'count'; it writes: out\. .* read_raw"):
            driver.read("count")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "did you mean 'amount'?" in said[1] and "drops records with a null key" in said[0]
