"""Tables in the DSL: what they emit, what they keep, how they are named, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.state.log import Record
from penstock.state.stores.typed_stores import key_value_store
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators.numeric import count, max_, mean
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.lockstep_plan import plan_of
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext
from penstock.topologies.windows import tumbling

Update = tuple[str, Any, Any, int]


def outputs(builder: StreamsBuilder, *updates: Update, topic: str = "out") -> list[tuple[Any, Any, int]]:
    with TopologyTestDriver(builder, arrival_order=True) as driver:
        driver.pipe_sequence([(t, Record(k, v, ts)) for t, k, v, ts in updates])
        return [(r.key, r.value, r.timestamp_ms) for r in driver.read(topic)]


def numbers() -> StreamsBuilder:
    return StreamsBuilder(value=int)


# -- row by row ------------------------------------------------------------------------------------------------------


def test_a_filter_without_old_values_sends_a_tombstone_for_each_row_it_refuses() -> None:
    builder = numbers()
    builder.table("t").filter(lambda k, v: v % 2 == 0).to("out")
    updates = [("t", "a", 1, 10), ("t", "a", 2, 11), ("t", "a", 3, 12), ("t", "a", 5, 13), ("t", "a", None, 14)]
    assert outputs(builder, *updates) == [
        ("a", None, 10),
        ("a", 2, 11),
        ("a", None, 12),
        ("a", None, 13),
        ("a", None, 14),
    ]


def test_a_filter_with_old_values_says_only_what_changes() -> None:
    builder = numbers()
    even = builder.table("t").filter_not(lambda k, v: v % 2 == 1)
    even.request_olds()
    even.to("out")
    updates = [("t", "a", 1, 10), ("t", "a", 2, 11), ("t", "a", 3, 12), ("t", "a", 5, 13), ("t", "a", None, 14)]
    assert outputs(builder, *updates) == [("a", 2, 11), ("a", None, 12)]


@pytest.mark.parametrize("emission", ["every_update", "per_commit"])
def test_a_filtered_aggregate_is_deleted_once(emission: Emission) -> None:
    builder = StreamsBuilder(value=str)
    counts = builder.stream("t").group_by_key().count(emission=emission)
    counts.map_values(lambda n: n * 10).filter(lambda k, n: n < 30).to("out")
    with TopologyTestDriver(builder, arrival_order=True) as driver:
        for ts in range(1, 6):
            driver.pipe("t", "a", "x", ts)
        assert [(r.value, r.timestamp_ms) for r in driver.read("out")] == [(10, 1), (20, 2), (None, 3)]


def test_a_filter_of_a_kept_table_deletes_no_row_twice() -> None:
    builder = numbers()
    builder.table("t", name="rows").materialize("kept").filter(lambda k, v: v % 2 == 0).to("out")
    updates = [("t", "a", 1, 10), ("t", "a", 2, 11), ("t", "a", 3, 12), ("t", "a", 5, 13), ("t", "a", None, 14)]
    assert outputs(builder, *updates) == [("a", 2, 11), ("a", None, 12)]


def test_a_named_table_can_be_read_by_its_name() -> None:
    builder = numbers()
    builder.table("t").filter(lambda k, v: v > 1, name="big").map_values(lambda v: v * 10, name="tens")
    with TopologyTestDriver(builder) as driver:
        for key, value in (("a", 1), ("b", 2), ("c", 3), ("b", None)):
            driver.pipe("t", key, value)
        assert dict(driver.store("big").all()) == {"c": 3}
        assert dict(driver.store("tens").all()) == {"c": 30}


def test_deletions_pass_a_map_without_a_call_and_none_deletes() -> None:
    builder = numbers()
    builder.table("t").map_values_with_key(lambda k, v: None if v == 7 else v + len(k)).to("out")
    updates = [("t", "ab", 1, 1), ("t", "ab", None, 2), ("t", "ab", 7, 3)]
    assert outputs(builder, *updates) == [("ab", 3, 1), ("ab", None, 2), ("ab", None, 3)]


class SinceFirst(Processor):
    """How much a row has grown since it came."""

    stores = (key_value_store("first", key=str, value=int),)

    def process(self, record: Record, ctx: ProcessorContext) -> None:
        first = ctx.store("first")
        if record.value is None:
            first.delete(record.key)
            ctx.forward(record.key, None)
            return
        was = first.get(record.key)
        if was is None:
            first.put(record.key, record.value)
        ctx.forward(record.key, record.value - (record.value if was is None else was))


@pytest.mark.parametrize("name", [None, "growth"])
def test_values_may_be_transformed_with_state(name: str | None) -> None:
    builder = numbers()
    growth = builder.table("t").transform_values(SinceFirst, name=name)
    growth.group_by(lambda k, v: ("all", v)).reduce(lambda a, v: a + v, lambda a, v: a - v).to("out")
    updates = [("t", "a", 5, 1), ("t", "a", 9, 2), ("t", "b", 1, 3), ("t", "b", 8, 4), ("t", "a", None, 5)]
    assert [v for _, v, _ in outputs(builder, *updates)] == [0, 4, 4, 11, 7]


def test_null_keys_of_a_stream_are_no_rows() -> None:
    builder = numbers()
    builder.stream("s").to_table(name="rows").to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("s", [Record(None, 1, 0), Record("a", 2, 1), Record("a", None, 2)])
        assert [(r.key, r.value) for r in driver.read("out")] == [("a", 2), ("a", None)]
        assert driver.dropped_records == {"rows.null_key": 1}
        assert list(driver.store("rows").all()) == []
        assert [(r.key, r.value) for r in driver.changelogs["test-rows-changelog"]] == [(b"a", None)]


def test_a_changelog_is_passed_on_and_kept_only_for_who_must_look_rows_up() -> None:
    builder = numbers()
    builder.changelog_table("log").to("out")
    assert not builder.build().stores
    assert outputs(builder, ("log", "a", 1, 1), ("log", "a", None, 2)) == [("a", 1, 1), ("a", None, 2)]
    builder = numbers()
    builder.changelog_table("log").join(builder.table("t"), lambda x, y: x + y).to("out")
    assert [s.name for s in builder.build().stores] == ["log-rows", "t"]
    assert outputs(builder, ("log", "a", 1, 1), ("t", "a", 5, 2)) == [("a", 6, 2)]


# -- joins -----------------------------------------------------------------------------------------------------------


def test_the_published_sequence_of_a_left_and_an_outer_join() -> None:
    updates = [("l", "k", "A", 1), ("r", "k", "a", 2), ("l", "k", "B", 3), ("r", "k", "b", 4), ("l", "k", None, 5)]
    for kind, last in (("left_join", None), ("outer_join", "None-b")):
        builder = StreamsBuilder(value=str)
        getattr(builder.table("l"), kind)(builder.table("r"), lambda x, y: f"{x}-{y}").to("out")
        values = [value for _, value, _ in outputs(builder, *updates)]
        assert values == ["A-None", "A-a", "B-a", "B-b", last]


def test_joins_read_both_sides_where_they_lie() -> None:
    builder = numbers()
    left, right = builder.table("l").filter(lambda k, v: v > 0), builder.table("r").map_values(lambda v: v * 2)
    left.join(right, lambda x, y: x + y).to("out")
    topology = builder.build()
    assert [s.name for s in topology.stores] == ["l", "r"]
    plan = plan_of(topology, topology.subtopologies[0])
    assert {plan.names[i] for i in plan.batch_safe} >= {"l", "r"}, "runs of updates may go through"


@pytest.mark.parametrize("name", [None, "positive"])
def test_an_update_that_takes_both_sides_away_deletes_the_result(name: str | None) -> None:
    builder = numbers()
    table = builder.table("t")
    table.filter(lambda k, v: v > 0, name=name).join(table.map_values(lambda v: -v), lambda x, y: x * y).to("out")
    updates = [("t", "a", -1, 1), ("t", "a", 2, 2), ("t", "a", None, 3), ("t", "a", None, 4)]
    assert outputs(builder, *updates)[-1] == ("a", None, 3)
    assert [value for _, value, _ in outputs(builder, *updates)] == [-4, -4, None]


def test_a_join_meets_the_shown_results_of_a_ready_aggregate() -> None:
    builder = numbers()
    means = builder.stream("s").group_by_key().aggregate(mean())
    builder.table("t").join(means, lambda x, y: x * y, value=float).to("out")
    updates = [("s", "a", 1, 1), ("s", "a", 2, 2), ("t", "a", 10, 3), ("s", "a", 6, 4)]
    assert outputs(builder, *updates) == [("a", 15.0, 3), ("a", 30.0, 4)]
    assert not [s for s in builder.build().stores if "materialize" in s.name]


def test_windowed_tables_join_by_key_and_window() -> None:
    builder = numbers()
    left, right = (
        builder.stream(t).group_by_key().windowed_by(tumbling("10ms", grace="5ms")).count() for t in ("l", "r")
    )
    left.join(right, lambda x, y: 10 * x + y).to("out")
    found = outputs(builder, ("l", "a", 1, 1), ("r", "a", 1, 12), ("r", "a", 1, 3), ("l", "a", 1, 14))
    assert [(k.key, k.start_ms, v) for k, v, _ in found] == [("a", 0, 11), ("a", 10, 11)]


def test_rows_of_windows_are_kept_as_long_as_the_windows() -> None:
    builder = numbers()
    windows = tumbling("10ms", grace="5ms")
    counts = builder.stream("s").group_by_key().windowed_by(windows, retention="15ms").count()
    big = counts.filter(lambda k, v: v > 0, name="big")
    big.join(counts.map_values(lambda v: -v), lambda x, y: x + y, name="joined").to("out")
    with TopologyTestDriver(builder) as driver:
        for i in range(300):
            driver.pipe("s", "a", 1, i)
        kept = {
            name: sum(1 for _ in driver.tasks[next(iter(driver.tasks))].stores[name].range())
            for name in ("big", "joined")
        }
        assert driver.read("out")[-1].value == 0
    assert all(0 < n <= 4 for n in kept.values()), kept


def test_streams_meet_the_rows_of_a_table_that_had_none_of_its_own() -> None:
    builder = numbers()
    tens = builder.table("t").map_values(lambda v: v * 10)
    builder.stream("s").join(tens, lambda x, y: x + y).to("out")
    assert outputs(builder, ("t", "a", 4, 1), ("s", "a", 2, 2), ("s", "b", 2, 3)) == [("a", 42, 2)]


# -- groups ----------------------------------------------------------------------------------------------------------


def test_a_row_leaves_its_old_group_before_it_enters_the_new_one() -> None:
    builder = StreamsBuilder(value=str)
    grouped = builder.table("t").group_by(lambda k, v: (v[0], v))
    grouped.aggregate(str, lambda k, v, a: f"{a}+{v}", lambda k, v, a: f"{a}-{v}", value=str).to("out")
    updates = [("t", "1", "x1", 5), ("t", "2", "x2", 3), ("t", "1", "x3", 4), ("t", "1", "y4", 6), ("t", "2", None, 7)]
    assert outputs(builder, *updates) == [
        ("x", "+x1", 5),
        ("x", "+x1+x2", 5),
        ("x", "+x1+x2-x1+x3", 5),
        ("x", "+x1+x2-x1+x3-x3", 6),
        ("y", "+y4", 6),
        ("x", "+x1+x2-x1+x3-x3-x2", 7),
    ]


def test_changes_travel_in_kafkas_encoding() -> None:
    builder = StreamsBuilder(value=str)
    builder.table("t").group_by(lambda k, v: (v[0], v), name="by-letter").count()
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("t", [Record("1", v, 0) for v in ("x1", "x2", "y", None)])
        sent = [(r.key, r.value) for r in driver.read_raw("test-by-letter-repartition")]
    assert sent == [(b"x", b"x1\x01"), (b"x", b"\x04x2x1\x02"), (b"x", b"x2\x00"), (b"y", b"y\x01"), (b"y", b"y\x00")]


def test_rows_may_belong_to_no_group() -> None:
    builder = StreamsBuilder(value=str)
    groups = {"n": None, "k": (None, "v"), "v": ("g", None), "g": ("g", "v")}
    builder.table("t").group_by(lambda k, v: groups[v]).count().to("out", value=int)
    found = outputs(builder, *[("t", "1", v, 0) for v in ("n", "k", "v", "g", "n")])
    assert found == [("g", 1, 0), ("g", 0, 0)]


def test_ready_aggregates_take_out_what_rows_were() -> None:
    builder = StreamsBuilder()
    groups = builder.table("t").group_by(lambda k, v: (v["g"], v))
    stats = groups.agg(mean=mean("n"), rows=count())
    builder.table("g", value=int).join(stats, lambda x, s: x * s["mean"], value=float).to("out")
    updates = [
        ("t", "1", {"g": "x", "n": 4}, 1),
        ("t", "2", {"g": "x", "n": 6}, 2),
        ("g", "x", 10, 3),
        ("t", "1", {"g": "x", "n": 2}, 4),
        ("t", "1", {"g": "y", "n": 2}, 5),
        ("t", "2", None, 6),
    ]
    assert outputs(builder, *updates[:5]) == [("x", 50.0, 3), ("x", 40.0, 4), ("x", 60.0, 5)]
    builder = numbers()
    means = builder.table("t").group_by(lambda k, v: ("all", v)).aggregate(mean(), name="means")
    means.group_by(lambda k, v: (str(v), 1), value=int).count().to("out")
    assert outputs(builder, ("t", "1", 4, 1), ("t", "2", 6, 2)) == [("4.0", 1, 1), ("4.0", 0, 2), ("5.0", 1, 2)]


def test_aggregates_that_cannot_take_a_value_out_are_refused_for_tables() -> None:
    with pytest.raises(
        TopologyError, match=r"max.* cannot subtract the old value of a changed row; use an aggregate that can"
    ):
        numbers().table("t").group_by(lambda k, v: (k, v)).aggregate(max_())


# -- foreign keys ----------------------------------------------------------------------------------------------------


def grouped_under_skip(fn: Any, adder: Any, *updates: Update) -> tuple[list[tuple[Any, Any]], int]:
    """Sums of a table's rows by ``fn``, under a policy that sends what fails to a topic; and how many did."""
    builder = numbers()
    grouped = builder.table("t").group_by(fn, key=str, value=int, name="groups")
    grouped.aggregate(int, adder, lambda key, n, total: total - n, value=int, name="sums").to_stream().to("out")
    options = TaskOptions(policies=Policies(processing="dead_letter", dead_letter_topic="dead"))
    with TopologyTestDriver(builder, arrival_order=True, options=options) as driver:
        driver.pipe_sequence([(t, Record(k, v, ts)) for t, k, v, ts in updates])
        return [(r.key, r.value) for r in driver.read("out")], len(driver.read_raw("dead"))


def test_a_row_whose_group_cannot_be_told_belongs_to_none() -> None:
    """When it comes and when it goes; what it was before is taken out."""
    updates = [("a", 13), ("b", 5), ("a", 1), ("b", 13), ("b", None), ("b", 2)]
    changes = (("t", k, n, at) for at, (k, n) in enumerate(updates))
    out, letters = grouped_under_skip(lambda k, n: ("all", n // (n != 13)), lambda key, n, total: total + n, *changes)
    assert out == [("all", 5), ("all", 6), ("all", 1), ("all", 3)]
    assert letters == 2


def test_a_row_whose_group_cannot_be_written_belongs_to_none() -> None:
    """Neither when it comes nor when it goes."""
    updates = [("a", 1), ("a", 13), ("a", 2), ("b", 13), ("b", None)]
    changes = (("t", k, n, at) for at, (k, n) in enumerate(updates))
    out, letters = grouped_under_skip(
        lambda k, n: (n if n == 13 else "all", n), lambda key, n, sum_: sum_ + n, *changes
    )
    assert out == [("all", 1), ("all", 0), ("all", 2)]
    assert letters == 2


def test_no_policy_skips_a_change_that_cannot_be_written() -> None:
    """It would be taken out of a group in which it never was."""
    with pytest.raises(ProcessingError, match="cannot write"):
        grouped_under_skip(lambda k, n: ("all", "text"), lambda key, n, sum_: sum_ + n, ("t", "b", 13, 1))


def test_no_policy_skips_a_row_that_cannot_be_added() -> None:
    """It would be taken out of a group in which it never was."""
    with pytest.raises(ProcessingError, match="division"):
        grouped_under_skip(lambda k, n: ("all", n), lambda key, n, total: total + n // (n != 13), ("t", "b", 13, 1))


def foreign(*, left: bool = False, name: str | None = None) -> StreamsBuilder:
    """Orders (their value: customer and amount) with their customers' names."""
    builder = StreamsBuilder(value=str)
    orders, customers = builder.table("orders"), builder.table("customers")
    join = orders.left_join_foreign if left else orders.join_foreign
    join(customers, lambda k, v: v.split(":")[0] or None, lambda o, c: f"{o}={c}", name=name).to("out")
    return builder


def test_topics_and_stores_of_a_foreign_key_join_have_their_names() -> None:
    topology = foreign(name="named-orders").build()
    assert {s.name for s in topology.stores} == {
        "orders",
        "customers",
        "named-orders",
        "named-orders-subscription-store",
    }
    assert set(topology.source_topics("app")) == {
        "orders",
        "customers",
        "app-named-orders-subscription-registration-topic",
        "app-named-orders-subscription-response-topic",
    }
    assert len(topology.subtopologies) == 2, "the two sides may be partitioned in any way"


@pytest.mark.parametrize("named", [None, "joined"])
def test_a_result_goes_though_the_answer_that_would_delete_it_is_out_of_date(named: str | None) -> None:
    with TopologyTestDriver(foreign(name=named)) as driver:
        driver.pipe("customers", "c", "Ann", 0)
        driver.pipe("orders", "1", "c:10", 1)
        assert [r.value for r in driver.read("out")] == ["c:10=Ann"]
        # the order changes and subscribes anew; before that arrives, the customer goes: its answer is for the former order
        driver.pipe_sequence([("orders", Record("1", "c:11", 9)), ("customers", Record("c", None, 2))])
        assert [r.value for r in driver.read("out")] == [None]


def test_an_inner_join_deletes_only_what_there_was() -> None:
    updates = [
        ("orders", "1", "c:1", 1),
        ("orders", "1", "d:1", 2),
        ("orders", "1", None, 3),
        ("customers", "c", None, 4),
    ]
    assert outputs(foreign(), *updates) == []
    assert outputs(foreign(name="joined"), *updates) == []


def test_orders_without_customer_are_counted_by_an_inner_join_and_kept_by_a_left_one() -> None:
    with TopologyTestDriver(foreign()) as driver:
        driver.pipe("orders", "1", ":1")
        assert driver.read("out") == []
        assert driver.dropped_records == {"orders-join-foreign-subscribe.null_foreign_key": 1}
    with TopologyTestDriver(foreign(left=True)) as driver:
        driver.pipe("orders", "1", ":1")
        assert [r.value for r in driver.read("out")] == [":1=None"]
        assert not driver.dropped_records


def test_an_empty_value_is_a_value() -> None:
    assert outputs(foreign(), ("customers", "c", "", 0), ("orders", "1", "c:1", 1)) == [("1", "c:1=", 1)]


def test_answers_return_to_the_task_that_asked() -> None:
    with TopologyTestDriver(foreign(), partitions=3) as driver:
        # a partition where the key would not take it: only an explicit partition finds back
        for p in range(3):
            driver.pipe("orders", f"order-{p}", "c:1", partition=p)
        driver.pipe("customers", "c", "Ann")
        assert sorted(r.key for r in driver.read("out")) == ["order-0", "order-1", "order-2"]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_a_table_without_rows_of_its_own_says_how_to_get_a_store() -> None:
    builder = numbers()
    filtered = builder.table("t").filter(lambda k, v: True)
    with pytest.raises(TopologyError, match=r"'t-filter' keeps no rows of its own; .*materialize"):
        _ = filtered.store
    assert filtered.materialize("rows").store_name == "rows"


def test_joins_that_can_never_meet_are_refused() -> None:
    builder = numbers()
    left = builder.table("l")
    with pytest.raises(TopologyError, match="'l-join' joins 7; the other side must be a KTable"):
        left.join(7, lambda x, y: x)  # type: ignore[arg-type]  # the mistake at hand
    with pytest.raises(TopologyError, match="keys of 'l' are string, those of 'r' are int, so they would never match"):
        left.join(builder.table("r", key=int), lambda x, y: x)
    with pytest.raises(TopologyError, match="joins table 'l' with itself"):
        left.join(left, lambda x, y: x)
    with pytest.raises(TopologyError, match="belongs to topology"):
        left.join(StreamsBuilder("other", value=int).table("r"), lambda x, y: x)
    windowed = builder.stream("s").group_by_key().windowed_by(tumbling("1s", grace=0)).count()
    with pytest.raises(TopologyError, match="cannot be reached by a foreign key"):
        left.join_foreign(windowed, lambda k, v: v, lambda x, y: x)


def test_groups_of_a_table_never_close() -> None:
    with pytest.raises(TopologyError, match="a table's groups never close"):
        numbers().table("t").group_by(lambda k, v: (k, v)).count(emission="on_close")


def test_watermarks_do_not_wait_for_answers() -> None:
    builder = StreamsBuilder(value=str)
    orders = builder.stream("orders", watermark=bounded_out_of_orderness(0)).to_table()
    joined = orders.join_foreign(builder.table("customers"), lambda k, v: v, lambda o, c: c)
    counts = joined.to_stream().group_by_key().windowed_by(tumbling("10ms", grace=0)).count(emission="on_close")
    counts.to("out", value=int)
    updates = [("customers", "c", "Ann", 0), ("orders", "1", "c", 1), ("orders", "2", "c", 2), ("orders", "3", "c", 30)]
    assert [(k.key, k.start_ms, v) for k, v, _ in outputs(builder, *updates)] == [("1", 0, 1), ("2", 0, 1)]


# -- rows for a time -------------------------------------------------------------------------------------------------


def test_a_row_goes_when_stream_time_has_reached_its_deadline() -> None:
    builder = numbers()
    builder.table("t", ttl="10ms").to("out")
    updates = [
        ("t", "a", 1, 0),
        ("t", "b", 2, 5),
        ("t", "b", 3, 9),
        ("t", "c", 4, 10),
        ("t", "b", 5, 0),
        ("t", "c", 6, 25),
    ]
    assert outputs(builder, *updates) == [
        ("a", 1, 0),
        ("b", 2, 5),
        ("b", 3, 9),
        ("a", None, 10),
        ("c", 4, 10),
        ("b", None, 19),
        ("c", None, 20),
        ("c", 6, 25),
    ]


def test_a_failing_record_does_not_hide_what_its_time_made_due() -> None:
    builder = numbers()
    groups = builder.stream("s").group_by_key().with_ttl("10ms")
    groups.aggregate(int, lambda k, v, total: total + 1 // v, value=int).to("out")
    policies = Policies(processing="skip")
    with TopologyTestDriver(builder, options=TaskOptions(policies=policies)) as driver:
        driver.pipe_all("s", [Record("a", 1, 0), Record("b", 0, 50), Record("b", 1, 51)])
        assert [(r.key, r.value) for r in driver.read("out")] == [("a", 1), ("a", None), ("b", 1)]


def test_a_ttl_must_mean_something() -> None:
    builder = numbers()
    with pytest.raises(TopologyError, match="ttl=0 is too short"):
        builder.table("t", ttl=0)
    with pytest.raises(TopologyError, match="has history= and ttl="):
        builder.table("u", ttl="1s", history="1s")
    grouped = builder.stream("s").group_by_key().with_ttl("1s")
    with pytest.raises(TopologyError, match="windowed already, or has a ttl"):
        grouped.windowed_by(tumbling("1s", grace=0))
    with pytest.raises(TopologyError, match="takes no ttl"):
        grouped.cogroup(lambda k, v, a: a)
    with pytest.raises(TopologyError, match="emission='per_commit' would hide"):
        grouped.count(emission="per_commit")
    with pytest.raises(TopologyError, match="windows expire by themselves"):
        builder.stream("w").group_by_key().windowed_by(tumbling("1s", grace=0)).with_ttl("1s")
    with pytest.raises(TopologyError, match="emission='per_commit' would hide"):
        builder.table("v").group_by(lambda k, v: (k, v)).with_ttl("1s").count(emission="per_commit")
