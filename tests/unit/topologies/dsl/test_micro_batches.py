"""Micro-batches in the DSL: what is refused when a topology is built, and what batches are shown to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import count, ewma, first, mean, sum_
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.windows import session, tumbling, unlimited


def stream(**how: Any) -> KStream:
    return StreamsBuilder(value=int).stream("in", **how)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda s: s.micro_batches(0), "at least 1 ms"),
        (lambda s: s.micro_batches("1s", time="wall"), "unknown"),
        (lambda s: s.micro_batches("1 year"), "not a duration"),
        (lambda s: s.micro_batches("2s").window("3s"), "multiples of the interval"),
        (lambda s: s.micro_batches("2s").window("4s", "1s"), "multiples of the interval"),
        (lambda s: s.micro_batches("1s").window("4s").window("8s"), "windows already"),
        (lambda s: s.micro_batches("1s").transform(3), "function"),
        (lambda s: s.micro_batches("1s").reduce(None), "function"),
        (lambda s: s.micro_batches("1s").reduce_by_key_and_window(max, 5, "2s"), "function"),
        (lambda s: s.micro_batches("1s").update_state_by_key("x"), "function"),
        (lambda s: s.micro_batches("1s").aggregate(ewma(0.5)), "can be merged"),
        (lambda s: s.micro_batches("1s").aggregate_by_key(len), "ready aggregate"),
        (lambda s: s.micro_batches("1s").window("2s").aggregate_by_key(ewma(0.5)), "cannot be merged"),
        (lambda s: s.micro_batches("1s").join(s), "micro_batches of the same interval"),
        (lambda s: s.micro_batches("1s").join(s.micro_batches("2s")), "same interval"),
        (lambda s: s.micro_batches("1s").join(s.micro_batches("1s"), how="cross"), "unknown"),
        (lambda s: s.micro_batches("1s").join(stream().micro_batches("1s")), "same StreamsBuilder"),
        (
            lambda s: s.micro_batches("1s").join(s.map(lambda k, v: (v, v), key=int).micro_batches("1s")),
            "never match",
        ),
        (lambda s: s.aggregate_all(len), "ready aggregate"),
        (lambda s: s.aggregate_all(first()), "order of all records"),
        (lambda s: s.aggregate_all(mean()), "approximate=True"),
        (lambda s: s.aggregate_all(sum_(number=float)), "approximate=True"),
        (lambda s: s.aggregate_all(count(), session("1s", grace=0)), "no fixed length"),
        (lambda s: s.aggregate_all(count(), unlimited(0)), "no fixed length"),
        (lambda s: s.aggregate_all(count(), tumbling("1s", grace="1s"), retention="1s"), "at least 2000 ms"),
        (lambda s: s.deduplicate(0), "at least 1 ms"),
        (lambda s: s.throttle(0, "1s"), "at least 1 per 1 ms"),
        (lambda s: s.throttle(5, 0), "at least 1 per 1 ms"),
        (lambda s: s.deduplicate("1s", key=3), "function"),
        (lambda s: s.sample(1.1), "from 0 to 1"),
        (lambda s: s.sample(0.5, seed=-1), "seed"),
        (lambda s: s.sample_reservoir(0, "1s"), "at least 1 value"),
        (lambda s: s.sample_reservoir(3, tumbling("1s", time="processing")), "event-time windows"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(call: Callable[[KStream], Any], why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        call(stream())


def test_float_aggregates_of_the_whole_stream_can_be_allowed() -> None:
    builder = StreamsBuilder(value=float)
    builder.stream("in").aggregate_all(mean(), approximate=True, name="mean")
    driver = TopologyTestDriver(builder.build(), partitions=2)
    for i, key in enumerate("abcd"):
        driver.pipe("in", key, float(i))
    total = next(iter(t for t in driver.tasks if t.subtopology == 1 and dict(driver.store("mean", t.partition).all())))
    assert dict(driver.store("mean", total.partition).all()) == {"all": 1.5}


def test_batches_are_printed_and_shown_to_functions() -> None:
    printed: list[str] = []
    seen: list[list[tuple[Any, Any]]] = []
    builder = StreamsBuilder(value=int)
    cut = builder.stream("in").micro_batches("1s")
    cut.print(2, write=printed.append)
    cut.foreach(seen.append)
    driver = TopologyTestDriver(builder.build())
    driver.pipe_all("in", [Record(k, i, i * 300) for i, k in enumerate("abcdefgh")] + [Record(None, 9, 9_000)])
    assert seen == [
        [("a", 0), ("b", 1), ("c", 2), ("d", 3)],
        [("e", 4), ("f", 5), ("g", 6)],
        [("h", 7)],
    ]
    assert printed == [
        "--- 1000 ms ---\n('a', 0)\n('b', 1)\n...",
        "--- 2000 ms ---\n('e', 4)\n('f', 5)\n...",
        "--- 3000 ms ---\n('h', 7)",
    ]


def test_batches_are_printed_to_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    builder = StreamsBuilder(value=int)
    builder.stream("in").micro_batches("1s").print()
    driver = TopologyTestDriver(builder.build())
    driver.pipe_all("in", [Record("a", 1, 0), Record("a", 2, 1_000)])
    assert capsys.readouterr().out == "--- 1000 ms ---\n('a', 1)\n"


def test_record_by_record_functions_keep_the_batches() -> None:
    builder = StreamsBuilder(value=int)
    cut = builder.stream("in").micro_batches("1s").window("2s")
    kept = cut.filter(lambda _, v: v > 1).map_values(lambda v: v * 10).flat_map(lambda k, v: [(k, v), (k, v + 1)])
    assert kept.intervals == cut.intervals
    kept.map(lambda k, v: (k.upper(), v)).reduce_by_key(lambda a, b: a + b).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.pipe_all("in", [Record("a", i, i * 1_000) for i in range(4)])
    assert driver.read("out") == [Record("A", 41, 2_999)]


def test_null_keys_and_values_are_dropped_where_they_have_no_meaning() -> None:
    builder = StreamsBuilder(value=int)
    cut = builder.stream("in").micro_batches("1s")
    cut.count().to("count")
    cut.reduce_by_key(lambda a, b: a + b).to("sum")
    cut.update_state_by_key(lambda values, state: sum(values)).to("state")
    driver = TopologyTestDriver(builder.build())
    driver.pipe_all("in", [Record("a", 1, 0), Record(None, 2, 0), Record("a", None, 0)])
    driver.pipe_all("in", [Record("b", None, 0), Record("a", 1, 1_000)])
    assert driver.read("count") == [Record(0, 4, 999)]
    assert driver.read("sum") == [Record("a", 1, 999)]
    assert driver.read("state") == [Record("a", 1, 999)]
    assert driver.dropped_records == {
        "in-batch-reduce-by-key.null_key": 1,
        "in-batch-state.null_key": 1,
        "in-batch-state.null_value": 2,
    }


def test_a_function_that_fails_on_a_batch_stops_the_task() -> None:
    builder = StreamsBuilder(value=int)
    builder.stream("in").micro_batches("1s").transform(lambda pairs: [(k, 1 // v) for k, v in pairs]).to("out")
    driver = TopologyTestDriver(builder.build())
    with pytest.raises(ProcessingError, match="batch-transform"):
        driver.pipe_all("in", [Record("a", 0, 0), Record("a", 1, 1_000)])


def test_describe_shows_how_time_is_cut() -> None:
    builder = StreamsBuilder(value=int)
    cut = builder.stream("in").micro_batches("1s", time="processing").window("3s", "2s")
    cut.reduce_by_key(lambda a, b: a + b).to("out")
    details = builder.build().operators["in-batch-reduce-by-key"].details()
    assert details["batches"] == "every 2000 ms, last 3000 ms, processing time"
