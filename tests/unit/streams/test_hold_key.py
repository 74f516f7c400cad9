"""Holding a key: what fails waits with the later records of its key, over restarts and restores, and other keys go on."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import EnvironmentFault, ProcessingError, TopologyError
from penstock.streams.events.facts import RecordHeld
from penstock.streams.runtime.metric_values import metrics_of
from penstock.streams.runtime.topic_setup import check_guarantee
from penstock.streams.task import operator_context
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver


class Service:
    """Raises for the values that it refuses."""

    def __init__(self, *refused: Any) -> None:
        self.refused = set(refused)
        self.calls: list[Any] = []

    def __call__(self, value: Any) -> Any:
        self.calls.append(value)
        if value in self.refused:
            raise ConnectionError(f"no answer for {value}")
        return value


def topology(service: Any) -> ps.StreamsBuilder[Any, Any]:
    builder = ps.StreamsBuilder("t", key=str, value=int)
    builder.stream("in").map_values(service, name="call").on_error(ps.hold_key("1s", backoff_max="4s")).to("out")
    return builder


def out(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    return [(r.key, r.value) for r in driver.read("out")]


def pipe(driver: TopologyTestDriver, *records: tuple[str | None, int]) -> None:
    for n, (key, value) in enumerate(records):
        driver.pipe("in", key, value, timestamp_ms=10 * value + n)


@pytest.mark.parametrize("restart", ["no", "restart", "restore"])
def test_later_records_of_the_key_wait_and_others_go_on(restart: str) -> None:
    service = Service(2)
    with TopologyTestDriver(topology(service)) as driver:
        pipe(driver, ("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5), ("a", 6))
        assert out(driver) == [("a", 1), ("b", 3), ("b", 5)]
        if restart != "no":
            driver.restart(restore=restart == "restore")
        driver.advance_wall_time(1_000)
        pipe(driver, ("a", 7), ("b", 8))
        assert out(driver) == [("b", 8)]
        service.refused.clear()
        driver.advance_wall_time(2_000)
        assert out(driver) == [("a", 2), ("a", 4), ("a", 6), ("a", 7)]
        pipe(driver, ("a", 9))
        assert out(driver) == [("a", 9)]
        store = driver.store("call-waiting")
        assert list(store.all()) == []


def test_attempts_follow_with_growing_pauses_that_have_a_limit() -> None:
    service = Service(2)
    with TopologyTestDriver(topology(service)) as driver:
        pipe(driver, ("a", 2))
        start, tried = driver.wall_ms, []
        for _ in range(160):
            before = len(service.calls)
            driver.advance_wall_time(100)
            if len(service.calls) > before:
                tried.append(driver.wall_ms - start)
        assert tried == [1_000, 3_000, 7_000, 11_000, 15_000]


def test_a_record_behind_that_fails_holds_the_rest() -> None:
    service = Service(1, 3)
    with TopologyTestDriver(topology(service)) as driver:
        pipe(driver, *(("a", n) for n in range(1, 6)))
        service.refused = {3}
        driver.advance_wall_time(1_000)
        assert out(driver) == [("a", 1), ("a", 2)]
        service.refused.clear()
        driver.advance_wall_time(1_000)
        assert out(driver) == [("a", 3), ("a", 4), ("a", 5)]


def test_timestamps_headers_and_nulls_come_as_they_were() -> None:
    fails = [True]

    def shown(value: Any) -> str:
        if fails[0]:
            raise ValueError("not yet")
        return repr(value)

    builder = ps.StreamsBuilder("t", key=str, value=int)
    builder.stream("in").map_values(shown, value=str).on_error(ps.hold_key("1s")).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe("in", "a", 7, timestamp_ms=5, headers=(("h", b"x"), ("n", None)))
        driver.pipe("in", "a", None, timestamp_ms=6)
        fails[0] = False
        driver.advance_wall_time(1_000)
        found = driver.read("out")
        assert [(r.value, r.timestamp_ms, tuple(r.headers)) for r in found] == [
            ("7", 5, (("h", b"x"), ("n", None))),
            ("None", 6, ()),
        ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_the_order_of_each_key_is_kept_whatever_fails(seed: int, batch: int) -> None:
    """Random failures, firings, restarts and restores: each key's records come once and in their order."""
    rng = random.Random(seed)
    down = False

    def service(value: int) -> int:
        if down or rng.random() < 0.2:
            raise ConnectionError("away")
        return value

    builder = topology(service)
    written: dict[str, list[int]] = defaultdict(list)
    found: dict[str, list[int]] = defaultdict(list)
    with TopologyTestDriver(builder, options=TaskOptions(batch_max_records=batch)) as driver:
        for step in range(60):
            down = rng.random() < 0.3
            rows = [(rng.choice("abcd"), 10 * step + n) for n in range(rng.randrange(6))]
            for key, value in rows:
                written[key].append(value)
            if rows:
                driver.pipe_all("in", [ps.Record(key, value, value) for key, value in rows])
            if rng.random() < 0.5:
                driver.advance_wall_time(rng.randrange(5_000))
            if rng.random() < 0.1:
                driver.restart(restore=rng.random() < 0.5)
            for key, value in out(driver):
                found[key].append(value)
                assert found[key] == written[key][: len(found[key])]
        for _ in range(200):
            down = False
            driver.advance_wall_time(4_000)
        for key, value in out(driver):
            found[key].append(value)
        assert found == written


@pytest.mark.parametrize("form", ["filter", "flat_map", "flat_map_values", "map", "select_key", "peek", "branch"])
def test_every_operator_that_calls_a_function_can_hold(form: str) -> None:
    service = Service(2)
    policy = ps.hold_key("1s")
    builder = ps.StreamsBuilder("t", key=str, value=int)
    stream = builder.stream("in")
    if form == "filter":
        stream.filter(lambda k, v: service(v) > 0).on_error(policy).to("out")
    elif form == "flat_map":
        stream.flat_map(lambda k, v: [(k, service(v)), (k, v * 10)]).on_error(policy).to("out")
    elif form == "flat_map_values":
        stream.flat_map_values(lambda v: (service(w) for w in (v, v + 1))).on_error(policy).to("out")
    elif form == "map":
        stream.map(lambda k, v: (k, service(v))).on_error(policy).to("out")
    elif form == "select_key":
        stream.select_key(lambda k, v: f"{k}{service(v)}").on_error(policy).to("out")
    elif form == "peek":
        stream.peek(lambda k, v: service(v)).on_error(policy).to("out")
    else:
        first, second = stream.branch(lambda k, v: service(v) > 5, lambda k, v: True)
        first.on_error(policy)
        second.on_error(policy)
        first.merge(second).to("out")
    with TopologyTestDriver(builder) as driver:
        pipe(driver, ("a", 1), ("a", 2), ("a", 9))
        early = [value for _, value in out(driver)]
        assert 2 not in early and 9 not in early
        service.refused.clear()
        driver.advance_wall_time(1_000)
        values = [value for _, value in out(driver)]
        assert values == {"flat_map": [2, 20, 9, 90], "flat_map_values": [1, 2, 2, 3, 9, 10]}.get(form, [2, 9])


def test_foreach_holds_too() -> None:
    service = Service(2)
    builder = ps.StreamsBuilder("t", key=str, value=int)
    builder.stream("in").foreach(lambda k, v: service(v), on_error=ps.hold_key("1s"))
    with TopologyTestDriver(builder) as driver:
        pipe(driver, ("a", 2), ("a", 3))
        assert service.calls == [2]
        service.refused.clear()
        driver.advance_wall_time(1_000)
        assert service.calls == [2, 2, 3]


def test_a_record_without_a_key_ends_the_worker() -> None:
    with (
        pytest.raises(ProcessingError, match="operator call: ConnectionError: no answer for 2"),
        TopologyTestDriver(topology(Service(2))) as driver,
    ):
        pipe(driver, (None, 1), (None, 2))


@pytest.mark.parametrize("later", [False, True])
def test_faults_that_are_not_the_records_are_raised(later: bool) -> None:
    raised: list[Exception] = [ValueError("x") if later else EnvironmentFault("the disk is full")]

    def service(value: int) -> int:
        raise raised[0]

    with pytest.raises(EnvironmentFault, match="the disk is full"), TopologyTestDriver(topology(service)) as driver:
        pipe(driver, ("a", 1))
        raised[0] = EnvironmentFault("the disk is full")
        driver.advance_wall_time(1_000)


def test_what_waits_is_reported_with_the_number_of_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[RecordHeld] = []

    def noted(*given: Any) -> RecordHeld:
        held.append(RecordHeld(*given))
        return held[-1]

    monkeypatch.setattr(operator_context, "RecordHeld", noted)
    with TopologyTestDriver(topology(Service(2))) as driver:
        pipe(driver, ("a", 2))
        driver.advance_wall_time(1_000)
    assert [(fact.operator, fact.error, fact.attempts) for fact in held] == [
        ("call", "ConnectionError", 1),
        ("call", "ConnectionError", 2),
    ]
    place = held[0].place
    assert place is not None and (place[0], place[2]) == ("in", 0)
    assert held[1].place is None


def test_refusals() -> None:
    builder = ps.StreamsBuilder("t", key=str, value=int)
    stream = builder.stream("in")
    with pytest.raises(TopologyError, match="cannot call a function again; retry and hold_key are for map"):
        stream.on_error(ps.hold_key("1s"))
    with pytest.raises(TopologyError, match="a backoff_max that is not below"):
        stream.map_values(lambda v: v).on_error(ps.hold_key("2m"))
    with pytest.raises(TopologyError, match="give 1 ms or more"):
        stream.map_values(lambda v: v).on_error(ps.hold_key(0))

    async def ask(value: int) -> int:
        return value

    with pytest.raises(TopologyError, match=r"cannot hold keys: its calls are made many at a time; choose retry"):
        stream.map_values(ask).on_error(ps.hold_key("1s"))
    with pytest.raises(TopologyError, match="'held' is given on_error"):
        stream.map_values(lambda v: v, name="held").on_error(ps.hold_key("1s")).on_error("skip")
    with pytest.raises(TopologyError, match="at_most_once"):
        check_guarantee(topology(Service()).build(), "at_most_once")


def test_it_is_described() -> None:
    text = topology(Service()).build().describe()
    assert "hold key" in text and "call-waiting" in text


def held_of(driver: TopologyTestDriver) -> list[float]:
    return [m.value for m in metrics_of(driver.tasks.values()) if m.name == "penstock_held_records"]


@pytest.mark.parametrize("restore", [False, True])
def test_what_waits_is_counted(restore: bool) -> None:
    service = Service(2, 4)
    with TopologyTestDriver(topology(service)) as driver:
        pipe(driver, ("a", 1))
        assert held_of(driver) == [0]
        pipe(driver, ("a", 2), ("b", 3), ("a", 3), ("a", 4), ("b", 4), ("b", 5))
        assert held_of(driver) == [5]
        driver.restart(restore=restore)
        assert held_of(driver) == [5]
        service.refused = {4}
        driver.advance_wall_time(1_000)
        assert held_of(driver) == [3]
        service.refused.clear()
        driver.advance_wall_time(4_000)
        assert held_of(driver) == [0]
