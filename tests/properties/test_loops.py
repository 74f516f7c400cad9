"""Feedback loops against plain recursion, with watermarks that go around, over several tasks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.state.errors import TopologyError
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.records.feedback_loop import iteration_of

BATCH_SIZES = (1, 2, 7, 10_000)


def collatz(stream: Any) -> tuple[Any, Any]:
    """One step of Collatz: around again until 1; the key is the number."""
    again, done = stream.branch(lambda k, v: k != 1, default=True)
    return again.map(lambda k, v: (k // 2 if k % 2 == 0 else 3 * k + 1, v)), done


def steps(number: int) -> int:
    """How many steps it takes to 1."""
    count = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        count += 1
    return count


def driven(numbers: list[int], most: int, size: int, partitions: int, restart_at: int | None = None) -> Any:
    """What is done and what is exhausted, with rounds."""
    builder = ps.StreamsBuilder("loop", key=int, value=int)
    loop = builder.stream("in").loop(collatz, max_iterations=most, name="around")
    rounds = loop.done.map_records(lambda r: r._replace(key=r.value, value=iteration_of(r.headers)))
    rounds.to("done")
    loop.exhausted.to("exhausted")
    options = TaskOptions(batch_max_records=size)
    with ps.TopologyTestDriver(builder.build(), options=options, partitions=partitions) as driver:
        records = [ps.Record(n, n, i) for i, n in enumerate(numbers)]
        driver.pipe_all("in", records[:restart_at])
        if restart_at is not None:
            driver.restart()
            driver.pipe_all("in", records[restart_at:])
        done = sorted((r.key, r.value) for r in driver.read("done"))
        return done, sorted(r.value for r in driver.read("exhausted"))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 25), st.integers(1, 3), st.data())
def test_records_go_around_until_they_are_done(numbers: list[int], most: int, partitions: int, data: Any) -> None:
    """Or until the bound; the same at every batch size and after a restart."""
    expected = (
        sorted((n, steps(n)) for n in numbers if steps(n) <= most),
        sorted(n for n in numbers if steps(n) > most),
    )
    for size in BATCH_SIZES:
        assert driven(numbers, most, size, partitions) == expected
    at = data.draw(st.integers(0, len(numbers)))
    assert driven(numbers, most, 3, partitions, at) == expected


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=20), st.integers(1, 3))
def test_watermarks_wait_for_what_goes_around(rows: list[tuple[int, int]], partitions: int) -> None:
    """Windows behind the loop count every record, however often it went around, and drop none as late."""

    def around(stream: Any) -> tuple[Any, Any]:
        again, done = stream.branch(lambda k, v: v > 0, default=True)
        return again.map_values(lambda v: v - 1), done

    builder = ps.StreamsBuilder("loop", key=int, value=int)
    source = builder.stream("in", watermark=bounded_out_of_orderness(0, interval=1))
    loop = source.loop(around, max_iterations=4, name="around")
    counts = loop.done.group_by_key().windowed_by(ps.tumbling(10, grace=0)).count(emission="on_close", name="counts")
    counts.to_stream(lambda window, count: window.start_ms, key=int).to("out")
    times = [7 * i for i in range(len(rows))]
    expected: dict[tuple[int, int], int] = {}
    for (key, _), ts in zip(rows, times, strict=True):
        expected[ts - ts % 10, key] = expected.get((ts - ts % 10, key), 0) + 1
    with ps.TopologyTestDriver(builder.build(), partitions=partitions) as driver:
        # all at once: the input's own watermark is at its end before the first record has gone around
        driver.pipe_all("in", [ps.Record(key, value, ts) for (key, value), ts in zip(rows, times, strict=True)])
        for p in range(partitions):
            driver.pipe("in", 99, 0, 1_000_000, partition=p)
        made = sorted((r.key, r.value) for r in driver.read("out") if r.key < 900_000)
        assert made == sorted((start, n) for (start, _), n in expected.items())
        assert not [k for k in driver.dropped_records if "late" in k]


def test_a_body_must_give_two_streams_of_the_right_types() -> None:
    """At build time."""
    builder = ps.StreamsBuilder("loop", value=int)
    with pytest.raises(TopologyError, match=r"must return \(again, done\)"):
        builder.stream("in").loop(lambda s: s, max_iterations=3)  # type: ignore[arg-type,return-value]  # wrong on purpose
    other = ps.StreamsBuilder("loop", value=int)
    with pytest.raises(TopologyError, match="the records to repeat have serdes string and string"):
        other.stream("in").loop(lambda s: (s.map_values(str, value=str), s), max_iterations=3)


def test_watermarks_are_not_sent_around_a_loop_that_cannot_carry_them() -> None:
    """Behind a repartition in the body nobody would relay them, and nothing would ever close."""

    def around(stream: Any) -> tuple[Any, Any]:
        again, done = stream.branch(lambda k, v: v > 0, default=True)
        return again.repartition().map_values(lambda v: v - 1), done

    builder = ps.StreamsBuilder("loop", key=int, value=int)
    source = builder.stream("in", watermark=bounded_out_of_orderness(0, interval=1))
    loop = source.loop(around, max_iterations=4, name="around")
    loop.done.group_by_key().windowed_by(ps.tumbling(10, grace=0)).count(emission="on_close").to_stream(
        lambda window, count: window.start_ms, key=int
    ).to("out")
    with pytest.raises(TopologyError, match="'around-repartition' has a repartition in its body"):
        builder.build()

    plain = ps.StreamsBuilder("loop", key=int, value=int)
    plain.stream("in").loop(around, max_iterations=4, name="around").done.to("out")
    with ps.TopologyTestDriver(plain.build(), partitions=2) as driver:
        driver.pipe_all("in", [ps.Record(n, n, n) for n in range(4)])
        assert sorted((r.key, r.value) for r in driver.read("out")) == [(n, 0) for n in range(4)]
