"""The pattern operator and its method in the DSL: order in time, late records, time-outs, restarts, bounded state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.state.log import Record
from penstock.state.serdes.serde import STRING, typed_json
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.internals.patterns import events_by_stage
from penstock.topologies.expressions.functions import col
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.patterns.skip import skip_past_last_event, skip_to_first


def letter(one: str) -> Any:
    return lambda e: e[0] == one


A_THEN_B = pattern("a").where(letter("a")).followed_by("b").where(letter("b")).within(10)


def flat(events: dict[str, list[Any]]) -> str:
    return " ".join(e for of_stage in events.values() for e in of_stage)


def topology(looked_for: Pattern = A_THEN_B, *, out_of_order: int = 0, **options: Any) -> Topology:
    builder = StreamsBuilder("matching", key=str, value=str)
    watermark = bounded_out_of_orderness(out_of_order) if out_of_order else None
    found = builder.stream("in", watermark=watermark).match(looked_for, select=flat, value=str, name="look", **options)
    found.matches.to("matches")
    found.timeouts.map_values(flat, value=str).to("timeouts")
    found.late.to("late")
    return builder.build()


def piped(driver: TopologyTestDriver, text: str) -> None:
    """``key:event@time`` records, all at once."""
    records = []
    for part in text.split():
        key, _, rest = part.partition(":")
        event, _, ts = rest.partition("@")
        records.append(Record(key, event, int(ts)))
    driver.pipe_all("in", records)


def read(driver: TopologyTestDriver, topic: str) -> list[str]:
    return [f"{r.key}:{r.value}@{r.timestamp_ms}" for r in driver.read(topic)]


def test_events_are_taken_in_the_order_of_time_when_the_watermark_has_passed() -> None:
    with TopologyTestDriver(topology(out_of_order=5)) as driver:
        piped(driver, "k:b1@4 k:a1@3 j:b@5")
        assert read(driver, "matches") == []
        piped(driver, "k:x@10")
        assert read(driver, "matches") == ["k:a1 b1@4"]
        piped(driver, "k:b2@5 k:a2@4 j:x@30")
        assert read(driver, "matches") == []
        assert read(driver, "late") == ["k:a2@4"]
        assert driver.dropped_records["look.late"] == 1


def test_events_of_one_time_are_taken_by_order_then_by_arrival() -> None:
    first_two = pattern("one").next("two").after_match(skip_past_last_event()).within(10)
    for order_by, expected in ((None, ["k:b2 a1@3"]), (lambda e: e, ["k:a1 b2@3"]), (lambda e: e[1:], ["k:a1 b2@3"])):
        with TopologyTestDriver(topology(first_two, order_by=order_by)) as driver:
            piped(driver, "k:b2@3 k:a1@3 j:x@9")
            assert read(driver, "matches") == expected


def test_events_are_taken_as_they_come_if_asked_to() -> None:
    with TopologyTestDriver(topology(event_order="arrival")) as driver:
        piped(driver, "k:a1@5 k:b1@4")
        assert read(driver, "matches") == ["k:a1 b1@4"]
        piped(driver, "k:a2@20 k:b2@30")
        assert read(driver, "matches") == []
        assert read(driver, "timeouts") == ["k:a2@30"]
        assert read(driver, "late") == []


def test_partial_matches_time_out_without_an_event_of_their_key() -> None:
    for event_order in ("time", "arrival"):
        with TopologyTestDriver(topology(event_order=event_order)) as driver:
            piped(driver, "k:a1@0 k:a2@5 j:x@11")
            assert read(driver, "timeouts") == ["k:a1@10"]
            piped(driver, "j:x@15")
            assert read(driver, "timeouts") == []
            piped(driver, "j:x@16")
            assert read(driver, "timeouts") == ["k:a2@15"]


def test_what_did_not_come_is_known_when_time_is_up() -> None:
    alarm = A_THEN_B.not_followed_by("n").where(letter("n"))
    with TopologyTestDriver(topology(alarm)) as driver:
        piped(driver, "k:a@0 k:b@1 j:a@0 j:b@2 j:n@9 x:x@11")
        assert read(driver, "matches") == ["k:a b@10"]


def test_records_without_key_or_value_are_dropped() -> None:
    with TopologyTestDriver(topology()) as driver:
        driver.pipe_all("in", [Record(None, "a", 1), Record("k", None, 1)])
        assert driver.dropped_records == Counter({"look.null_key": 1, "look.null_value": 1})


RECORDS = (
    "k:a1@0 j:a1@1 k:x@2 k:b1@1 j:b1@9 k:a2@8 j:a2@14 j:a3@26 k:b2@13 j:x@13 "
    "k:b3@17 j:b2@23 k:a4@30 k:x@23 j:x@60 k:b4@61"
)


@pytest.mark.parametrize("event_order", ["time", "arrival"])
@pytest.mark.parametrize("batch", [1, 2, 7, 10_000])
def test_neither_batches_nor_restarts_change_the_answer(event_order: str, batch: int) -> None:
    def answer(restart_at: int | None) -> list[list[str]]:
        made = topology(out_of_order=4, event_order=event_order)
        with TopologyTestDriver(made, options=TaskOptions(batch_max_records=batch)) as driver:
            parts = RECORDS.split()
            if restart_at is not None:
                piped(driver, " ".join(parts[:restart_at]))
                driver.restart(restore=True)
                parts = parts[restart_at:]
            piped(driver, " ".join(parts))
            driver.commit()
            return [read(driver, topic) for topic in ("matches", "timeouts", "late")]

    whole = answer(None)
    assert whole[0] and whole[1] and bool(whole[2]) == (event_order == "time")
    for at in range(1, len(RECORDS.split())):
        assert answer(at) == whole, at


def test_a_record_that_a_condition_cannot_take_is_skipped_by_policy() -> None:
    picky = pattern("a").where(lambda e: 1 // (e != "bad") and e[0] == "a").next("b").where(letter("b")).within(10)
    options = TaskOptions(policies=Policies(processing="skip"))
    with TopologyTestDriver(topology(picky, event_order="arrival"), options=options) as driver:
        piped(driver, "k:a1@0 k:bad@1 k:b1@2")
        assert read(driver, "matches") == ["k:a1 b1@2"]


def test_a_miss_that_must_not_be_fails() -> None:
    optional = pattern("a").where(letter("a")).next("b").where(letter("b")).optional().next("c").where(letter("c"))
    looked_for = optional.within(10).after_match(skip_to_first("b").error_on_miss())
    with TopologyTestDriver(topology(looked_for, event_order="arrival")) as driver:
        with pytest.raises(ProcessingError, match=r"look.*no event of this stage"):
            piped(driver, "k:a@0 k:c@1")
        driver.release()


def test_state_ends_with_within() -> None:
    with TopologyTestDriver(topology(A_THEN_B.followed_by("c").where(letter("c")))) as driver:
        sizes = []
        for start in range(0, 1_000, 20):
            piped(driver, " ".join(f"k{n}:{'abx'[n % 3]}@{start + n % 20}" for n in range(40)))
            sizes.append(sum(len(list(driver.store(s).all())) for s in ("look", "look-alarms", "look-waiting")))
        assert max(sizes[10:]) <= max(sizes[:10])
        piped(driver, "z:x@2000 z:x@2001")
        assert list(driver.store("look").all()) == []
        assert list(driver.store("look-alarms").all()) == []


class Payment(msgspec.Struct, frozen=True):
    card: str
    amount: int


def test_events_of_a_type_and_conditions_as_expressions() -> None:
    builder = StreamsBuilder("cards", key=str, value=Payment)
    small_then_big = pattern("small").where(col("amount") < 10).next("big").where(col("amount") > 500).within("1m")
    builder.stream("payments").match(small_then_big, order_by=col("amount")).matches.to("alarms")
    with TopologyTestDriver(builder) as driver:
        for ts, amount in ((1, 900), (1, 5), (2, 3)):
            driver.pipe("payments", "c", Payment("c", amount), ts)
        (alarm,) = driver.read("alarms")
    assert alarm.value == {"small": [Payment("c", 5)], "big": [Payment("c", 900)]}


def test_matches_are_written_as_the_events_are() -> None:
    events = {"a": [Payment("c", 1)], "b": [Payment("c", 2), Payment("d", 3)]}
    typed = events_by_stage(typed_json(Payment))
    text = b'{"a":[{"card":"c","amount":1}],"b":[{"card":"c","amount":2},{"card":"d","amount":3}]}'
    assert typed.serialize(events) == text
    assert typed.deserialize(text) == events
    packed = events_by_stage(STRING)
    assert packed.deserialize(packed.serialize({"a": ["x", "y"]})) == {"a": ["x", "y"]}


def test_a_stream_with_new_keys_is_partitioned_by_them_first() -> None:
    builder = StreamsBuilder("rekeyed", key=str, value=str)
    found = builder.stream("in").select_key(lambda k, v: v[-1]).match(A_THEN_B, select=flat, value=str)
    found.matches.to("matches")
    with TopologyTestDriver(builder, partitions=3) as driver:
        for partition, (event, ts) in enumerate((("a1", 1), ("b2", 2), ("b1", 3))):
            driver.pipe("in", None, event, ts, partition=partition)
        for key in "12345678":  # event time goes on in every partition
            driver.pipe("in", None, f"x{key}", 100, partition=int(key) % 3)
            driver.pipe("in", None, f"x{key}", 101, partition=int(key) % 3)
        assert read(driver, "matches") == ["1:a1 b1@3"]


@pytest.mark.parametrize(
    ("looked_for", "options", "says"),
    [
        ("a b", {}, "match needs a pattern"),
        (pattern("a").followed_by("b"), {}, "wait forever"),
        (A_THEN_B, {"event_order": "any"}, "'time' or 'arrival'"),
        (A_THEN_B, {"event_order": "arrival", "order_by": len}, "order_by needs event_order"),
        (pattern("a").next("a").within(3), {}, "named twice"),
        (A_THEN_B, {"order_by": 3}, "needs a function"),
    ],
)
def test_refusals(looked_for: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(TopologyError, match=f"operator 'look'.*{says}"):
        topology(looked_for, **options)


def test_unbounded_patterns_are_taken_if_that_is_said() -> None:
    assert "unbounded" in str(topology(pattern("a").followed_by("b"), unbounded=True).operators["look"].details())


def test_a_condition_that_raises_is_named_with_its_stage() -> None:
    builder = StreamsBuilder("raising", value=dict)
    wanted = pattern("start").where(lambda e: e["ok"]).next("middle").where(lambda e: e["nope"]).within("1m")
    builder.stream("in", watermark=bounded_out_of_orderness(0)).match(wanted, name="look").matches.to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe("in", "k", {"ok": True}, 1)
        with pytest.raises(
            ProcessingError, match=r"operator look: KeyError: 'nope' \(in the condition of stage 'middle'\)"
        ):
            driver.pipe_sequence([("in", Record("k", {"ok": True}, 1_000)), ("in", Record("k", {"ok": True}, 9_000))])
        driver.release()
