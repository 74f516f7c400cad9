"""Policies of single sources and operators: they stand in for the application's, on rows and on columns alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.state.errors import ProcessingError, SettingsError, TopologyError
from penstock.state.log import Record
from penstock.streams.runtime.topic_setup import check_policies
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.expressions.functions import col


class Row(msgspec.Struct):
    a: int


DEAD = ps.Policies(dead_letter_topic="dead")


def inverse(value: int) -> int:
    return 100 // value


def raw(n: int, ts: int = 0) -> ps.Record[Any, Any]:
    return ps.Record(b"k", n.to_bytes(8, "big"), ts)


def read(builder: ps.StreamsBuilder[Any, Any], records: list[Any], policies: ps.Policies = DEAD, **more: Any) -> Any:
    """The outputs, and the operators that the dead letters name."""
    options = TaskOptions(policies=policies, **more)
    with ps.TopologyTestDriver(builder, options=options) as driver:
        driver.pipe_raw({"in": records})
        letters = [dict(r.headers)["penstock.operator"].decode() for r in driver.read_raw("dead")]
        return [r.value for r in driver.read("out")], letters


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_each_operator_has_its_own_policy(batch: int) -> None:
    builder = ps.StreamsBuilder(key=str, value=int)
    source = builder.stream("in").on_error("skip")
    first = source.map_values(inverse, name="first").on_error("dead_letter")
    first.map_values(lambda v: 60 // (v - 20), name="second").on_error("skip").to("out")
    records = [raw(0), ps.Record(b"k", b"x"), raw(5), raw(2)]
    assert read(builder, records, batch_max_records=batch) == ([2], ["first"])


def test_the_applications_policy_is_the_default() -> None:
    builder = ps.StreamsBuilder(key=str, value=int)
    kept = builder.stream("in").map_values(inverse, name="first").on_error("fail")
    kept.map_values(lambda v: 60 // (v - 20), name="second").to("out")
    skipping = ps.Policies(processing="skip", deserialization="skip")
    assert read(builder, [ps.Record(b"k", b"x"), raw(5), raw(2)], skipping) == ([2], [])
    with pytest.raises(ProcessingError, match="operator first"):
        read(builder, [raw(0)], skipping)


@pytest.mark.parametrize("columns", ["auto", "off"])
def test_rows_and_columns_meet_the_same_policy(columns: Any) -> None:
    """Bytes that cannot be read among many that can, and an expression that fails."""
    builder = ps.StreamsBuilder()
    source = builder.stream("in", value=Row).on_error("dead_letter")
    source.with_columns(b=100 // col("a")).on_error("skip").to("out")
    records = [ps.Record(b"k", b'{"a": %d}' % (n % 50)) for n in range(200)]
    records[70] = ps.Record(b"k", b"{")
    options = TaskOptions(policies=DEAD, columns=columns)
    with ps.TopologyTestDriver(builder, options=options, columns=True) as driver:
        driver.pipe_raw({"in": records})
        assert [dict(r.headers)["penstock.operator"] for r in driver.read_raw("dead")] == [b"in"]
        out = [r.value for r in driver.read("out")]
    assert out == [{"a": n % 50, "b": 100 // (n % 50)} for n in range(200) if n != 70 and n % 50]


@pytest.mark.parametrize("batch", [1, 100])
def test_a_source_judges_timestamps_by_its_own_policy(batch: int) -> None:
    builder = ps.StreamsBuilder(key=str, value=int)
    builder.stream("in").on_error("dead_letter").to("out")
    assert read(builder, [raw(1, 5), raw(2, -3), raw(3, 6)], batch_max_records=batch) == ([1, 3], ["in"])


def test_a_sink_and_foreach_have_policies() -> None:
    builder = ps.StreamsBuilder(key=str, value=int)
    source = builder.stream("in")
    source.foreach(inverse_of, on_error="dead_letter", name="effect")
    source.map_values(lambda v: "x" if v == 3 else v, value=int).to("out", on_error="dead_letter", name="sink")
    assert read(builder, [raw(0), raw(3), raw(4)]) == ([0, 4], ["effect", "sink"])


def inverse_of(key: Any, value: int) -> int:
    return inverse(value)


class Flaky:
    """Raises on the first ``fails`` calls for each value."""

    def __init__(self, fails: int, give: Callable[[int], Any] = lambda v: v) -> None:
        self.fails, self.give = fails, give
        self.calls: dict[int, int] = {}

    def __call__(self, value: int) -> Any:
        self.calls[value] = self.calls.get(value, 0) + 1
        if value % 2 and self.calls[value] <= self.fails:
            raise ConnectionError("away")
        return self.give(value)


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_retry_calls_again_with_growing_pauses(batch: int) -> None:
    pauses: list[int] = []
    flaky = Flaky(2)
    builder = ps.StreamsBuilder(key=str, value=int)
    builder.stream("in").map_values(flaky).on_error(ps.retry(3, "100ms")).to("out")
    records = [raw(n) for n in (2, 1, 4, 3)]
    assert read(builder, records, batch_max_records=batch, pause=pauses.append) == ([2, 1, 4, 3], [])
    assert flaky.calls == {2: 1, 1: 3, 4: 1, 3: 3}
    assert pauses == [100, 200, 100, 200]


def test_after_the_last_attempt_the_other_policy_decides() -> None:
    flaky = Flaky(3)
    builder = ps.StreamsBuilder(key=str, value=int)
    builder.stream("in").map_values(flaky, name="f").on_error(ps.retry(3, 0, then="dead_letter")).to("out")
    assert read(builder, [raw(2), raw(1), raw(4)]) == ([2, 4], ["f"])
    assert flaky.calls == {2: 1, 1: 3, 4: 1}


def test_the_pauses_of_a_batch_are_bounded() -> None:
    """A batch of failing records must not cost the worker its transaction."""
    pauses: list[int] = []
    builder = ps.StreamsBuilder(key=str, value=int)
    flaky = Flaky(9)
    builder.stream("in").map_values(flaky).on_error(ps.retry(2, "4s", then="skip")).to("out")
    assert read(builder, [raw(n) for n in (1, 3, 5, 7)], pause=pauses.append) == ([], [])
    assert pauses == [4000, 4000]
    assert set(flaky.calls.values()) == {2}


def test_a_generator_that_raises_is_made_again() -> None:
    """What is left of a generator that raised is empty: to go on with it would lose the children."""

    def children(value: int) -> Any:
        yield value
        flaky(value)
        yield -value

    flaky = Flaky(1)
    builder = ps.StreamsBuilder(key=str, value=int)
    builder.stream("in").flat_map_values(children).on_error(ps.retry(2, 0)).to("out")
    assert read(builder, [raw(1), raw(2)]) == ([1, -1, 2, -2], [])


def test_what_cannot_be_is_refused() -> None:
    builder = ps.StreamsBuilder(key=str, value=int)
    source = builder.stream("in")
    with pytest.raises(TopologyError, match=r"'in' .* cannot call a function again"):
        source.on_error(ps.retry(2, 0))
    with pytest.raises(TopologyError, match="'ignore' is not an error policy"):
        source.on_error("ignore")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TopologyError, match="after 'skip'"):
        source.on_error("skip").on_error("fail")
    mapped = source.map_values(inverse)
    for attempts, backoff, words in ((1, 0, "2 to 100"), (3, "4s", "12000 ms"), (101, 0, "2 to 100")):
        with pytest.raises(TopologyError, match=words):
            mapped.on_error(ps.retry(attempts, backoff))
    mapped.on_error("dead_letter")
    with pytest.raises(SettingsError, match=r"no dead_letter_topic.*\[penstock.policies\]"):
        check_policies(builder.build(), ps.Policies())


def test_a_table_over_its_own_topic_fails_where_the_application_is_lenient() -> None:
    builder = ps.StreamsBuilder("t", value=int)
    users = builder.table("users")
    builder.stream("events").join(users, lambda e, u: e + u).to("out")
    lenient = ps.Policies(deserialization="skip", timestamp="skip")
    check_policies(builder.build(), lenient)
    with ps.TopologyTestDriver(builder.build(), options=TaskOptions(policies=lenient)) as driver:
        driver.pipe("users", "k", 1)
        driver.pipe_raw({"events": [Record(b"k", b"rubbish")]})
        driver.pipe("events", "k", 2)
        assert [r.value for r in driver.read("out")] == [3]
        with pytest.raises(ProcessingError, match=r"(?s)topic users, .*builder\.stream"):
            driver.pipe_raw({"users": [Record(b"k", b"rubbish")]})
        driver.release()


def test_a_table_over_its_own_topic_cannot_be_lenient_itself() -> None:
    builder = ps.StreamsBuilder("t")
    builder.table("users").on_error("skip")
    with pytest.raises(SettingsError, match="deserialization=skip and timestamp=skip"):
        check_policies(builder.build(), ps.Policies())


@pytest.mark.parametrize("batch", [1, 100])
def test_the_applications_retry_is_for_operators_without_a_policy(batch: int) -> None:
    pauses: list[int] = []
    general, own, none = Flaky(2), Flaky(2), Flaky(2)
    builder = ps.StreamsBuilder(key=str, value=int)
    source = builder.stream("in")
    first = source.map_values(general, name="first")
    second = first.map_values(own, name="second").on_error(ps.retry(3, "10ms"))
    second.map_values(none, name="third").on_error("skip").to("out")
    policies = ps.Policies(retry_attempts=3, retry_backoff_ms=100)
    records = [raw(n) for n in (2, 1)]
    assert read(builder, records, policies, batch_max_records=batch, pause=pauses.append) == ([2], [])
    assert [flaky.calls for flaky in (general, own, none)] == [{2: 1, 1: 3}, {2: 1, 1: 3}, {2: 1, 1: 1}]
    assert pauses == [100, 200, 10, 20]


def test_what_the_applications_attempts_leave_meets_its_policy() -> None:
    """A function that fails for good, one that is called for its effect, and an expression, which is not called again."""
    failing, effect = Flaky(9), Flaky(1)
    builder = ps.StreamsBuilder(key=str, value=int)
    source = builder.stream("in")
    source.foreach(lambda key, value: effect(value), name="effect")
    mapped = source.map_values(failing, name="failing")
    mapped.filter(ps.lit(100) // ps.value() > 0, name="expression").to("out")
    policies = ps.Policies(processing="dead_letter", dead_letter_topic="dead", retry_attempts=2)
    assert read(builder, [raw(n) for n in (2, 1, 0)], policies) == ([2], ["failing", "expression"])
    assert failing.calls == {2: 1, 1: 2, 0: 1} and effect.calls == {2: 1, 1: 2, 0: 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"retry_attempts": 0}, "retry_attempts=0; give 1 for a single call"),
        ({"retry_attempts": 101}, "give 2 to 100 attempts"),
        ({"retry_attempts": 2, "retry_backoff_ms": -1}, "a pause of 0 or more"),
        ({"retry_attempts": 9}, "the pauses of 9 attempts add up to 51000 ms"),
    ],
)
def test_attempts_that_the_policies_refuse(given: dict[str, int], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ps.Policies(**given)  # type: ignore[arg-type]  # numbers all
