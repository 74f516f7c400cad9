"""Durations mean the same in milliseconds, as a text and as a timedelta, wherever one is taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.state.errors import TopologyError
from penstock.topologies import windows as w
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness, punctuated
from penstock.topologies.operators.tables.suppress import until_time_limit, until_window_closes
from penstock.topologies.windows.durations import Duration, duration_ms, offset_ms
from penstock.topologies.windows.evicting import time

MOST_MS = -(timedelta.min // timedelta(milliseconds=1))


async def price(value: str) -> str:
    return value


@given(st.integers(0, MOST_MS))
def test_a_timedelta_is_as_long_as_its_milliseconds(ms: int) -> None:
    assert duration_ms(timedelta(milliseconds=ms)) == duration_ms(ms) == duration_ms(f"{ms}ms") == ms


@given(st.integers(-MOST_MS, MOST_MS))
def test_a_shift_may_be_negative_and_a_duration_may_not(ms: int) -> None:
    given = timedelta(milliseconds=ms)
    assert offset_ms(given) == offset_ms(ms) == offset_ms(f"{ms}ms") == ms
    if ms < 0:
        with pytest.raises(TopologyError, match=f"cannot be negative: {ms}"):
            duration_ms(given)


@given(st.integers(-(10**15), 10**15).filter(lambda us: us % 1000))
def test_a_part_of_a_millisecond_is_refused(us: int) -> None:
    for read in (duration_ms, offset_ms):
        with pytest.raises(TopologyError, match=r"not a whole number of milliseconds.*round it.*timedelta\("):
            read(timedelta(microseconds=us))


VALUES: dict[str, Callable[[Duration], Any]] = {
    "tumbling": lambda d: w.tumbling(d, grace=d, offset=d),
    "hopping": lambda d: w.hopping(d, d, grace=d, offset=d),
    "sliding": lambda d: w.sliding(d, grace=d),
    "session": lambda d: w.session(d, grace=d),
    "custom": lambda d: w.custom(max, max_size=d, grace=d),
    "calendar": lambda d: w.calendar("day", grace=d),
    "evicting": lambda d: time(d),
    "suppress": lambda d: (until_time_limit(d), until_window_closes(grace=d)),
    "watermark": lambda d: bounded_out_of_orderness(d, idle=d, interval=d),
    "punctuated": lambda d: punctuated(max, idle=d),
    "retry": lambda d: ps.retry(3, d),
    "awaiting": lambda d: ps.awaiting(price, timeout=d).timeout_ms,  # type: ignore[attr-defined]  # typed as the function it wraps
    "triggers": lambda d: (ps.triggers.after_processing_time(d), ps.triggers.continuous_event_time(d)),
    "expressions": lambda d: str(ps.expressions.duration(d)),
}


@pytest.mark.parametrize("what", VALUES)
def test_values_of_equal_durations_are_equal(what: str) -> None:
    make = VALUES[what]
    assert make(timedelta(minutes=5)) == make(300_000) == make("5m")
    assert make(timedelta(minutes=5)) != make(timedelta(minutes=6))


def test_an_expression_takes_a_timedelta_for_a_number_of_milliseconds() -> None:
    minute = timedelta(minutes=1)
    assert (ps.col("at") - minute).same_as(ps.col("at") - 60_000)
    assert (ps.col("at") - -minute).same_as(ps.col("at") - -60_000)
    assert ps.lit(minute).same_as(ps.lit(60_000))
    builder = StreamsBuilder("t", value=int)
    builder.stream("in").map_values(ps.timestamp().floor_time(minute).cast("int64"), value=int).to("out")
    with ps.TopologyTestDriver(builder) as driver:
        driver.pipe("in", "k", 1, timestamp_ms=125_000)
        assert driver.read("out")[0].value == 120_000


def joins(stream: Any, d: Duration) -> None:
    other = stream.filter(lambda key, value: True)
    stream.join(other, max, before=d, after=d, grace=d)
    stream.outer_join(other, max, within=d, grace=d)
    stream.join_as_of(other, max, tolerance=d, grace=d)
    stream.join_all(other, joiner=max, within=d, grace=d)


def fewer(stream: Any, d: Duration) -> None:
    stream.deduplicate(d, grace=d)
    stream.throttle(3, d, grace=d)
    stream.sample_reservoir(2, d)
    stream.shed(d, settle=d)


def groups(stream: Any, d: Duration) -> None:
    grouped = stream.group_by_key()
    grouped.with_ttl(d).count()
    windowed = grouped.windowed_by(w.tumbling(1_000, grace=0), retention=timedelta(days=1) + as_timedelta(d))
    windowed.count()
    triggered = grouped.windowed_by(w.tumbling(1_000, grace=0)).triggered(
        ps.triggers.after_watermark(), allowed_lateness=d
    )
    triggered.count()
    stream.to_table(ttl=d)


def batches(stream: Any, d: Duration) -> None:
    cut = stream.micro_batches(d, grace=d)
    cut.window(d, d).reduce_by_key(max)


def patterns(stream: Any, d: Duration) -> None:
    stream.match(ps.pattern("a").followed_by("b").times(2, within=d).within(d))


def as_timedelta(d: Duration) -> timedelta:
    return timedelta(milliseconds=duration_ms(d))


@pytest.mark.parametrize("build", [joins, fewer, groups, batches, patterns])
def test_operators_of_equal_durations_have_equal_times(build: Callable[[Any, Duration], None]) -> None:
    def made(d: Duration) -> list[tuple[str, int]]:
        builder = StreamsBuilder("t", value=str)
        build(builder.stream("in", watermark=bounded_out_of_orderness(0)), d)
        builder.table("rows", history=d)
        return sorted(numbers({**builder.build().operators}, ""))

    assert made(timedelta(minutes=5)) == made(300_000) == made("5m")
    assert 300_000 in dict.fromkeys(value for _, value in made("5m"))
    assert made(timedelta(minutes=5)) != made(timedelta(minutes=6))


def numbers(value: Any, path: str) -> Iterator[tuple[str, int]]:
    """Every int in a tree of specs, with its path."""
    if isinstance(value, int):
        yield path, int(value)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from numbers(part, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from numbers(part, f"{path}.{i}")
