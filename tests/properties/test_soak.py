"""State is bounded: over twelve horizons of input the stores of every operator that forgets stay as large as after three.

Seven keys are in use at a time; most topologies get seven new ones with every horizon, so that a row, timer or buffer that
outlives its key shows. Input is a little out of order, and the same in each horizon, which is a multiple of how long the
operator's stores keep anything: their size at the end of one is exactly that at the end of the next. Operators whose own
tests do the same (micro-batches with states, deduplication by key, the table of a versioned topic) are not here again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import count
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kgrouped_stream import KGroupedStream
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.tables.suppress import until_time_limit, until_window_closes
from penstock.topologies.patterns.pattern import pattern
from penstock.topologies.triggers import after_count, after_watermark
from penstock.topologies.windows import custom, evicting, hopping, policies, session, sliding, tumbling

KEYS = 7
HORIZONS = 12
WARM = 3
"""Horizons after which every store has reached its size."""
STEPS = 12
"""Moments with records per horizon."""
LATE_MS = 5


class Inputs:
    """The streams of one topology; ``watermarked`` ones have a strategy. ``horizon_ms`` is set by what is built."""

    def __init__(self, watermarked: bool) -> None:
        self.builder = StreamsBuilder("soak", value=int)
        self.topics: list[str] = []
        self._watermarked = watermarked

    def stream(self, topic: str = "a") -> KStream:
        self.topics.append(topic)
        strategy = bounded_out_of_orderness(LATE_MS) if self._watermarked else None
        return self.builder.stream(topic, watermark=strategy)

    def grouped(self, topic: str = "a") -> KGroupedStream:
        return self.stream(topic).group_by_key()

    def versions(self, topic: str, history_ms: int) -> KTable:
        self.topics.append(topic)
        return self.builder.table(topic, history=history_ms)


def feed(inputs: Inputs, horizon_ms: int, number: int, *, new_keys: bool) -> Iterator[tuple[str, Record]]:
    """The records of one horizon, at most ``LATE_MS`` out of order."""
    rng = random.Random(0)  # every horizon is like the others
    for step in range(STEPS):
        now = number * horizon_ms + step * horizon_ms // STEPS
        for i in range(KEYS):
            key = f"key-{number if new_keys else 0:02}-{i}"
            for topic in inputs.topics:
                yield topic, Record(key, rng.randrange(100, 1000), max(now - rng.randrange(LATE_MS), 0))


def sizes(
    build: Callable[[Inputs], KStream | KTable], horizon_ms: int, *, watermarked: bool, new_keys: bool
) -> list[int]:
    """The bytes in all stores after each horizon."""
    inputs = Inputs(watermarked)
    made = build(inputs)
    if isinstance(made, KStream):
        made.to("out", retractions=True)
    else:
        made.to("out")
    found = []
    with TopologyTestDriver(inputs.builder) as driver:
        for number in range(HORIZONS):
            driver.pipe_sequence(list(feed(inputs, horizon_ms, number, new_keys=new_keys)))
            driver.advance_wall_time(horizon_ms)
            stored = [(t.backend, name) for t in driver.tasks.values() for name in t.stores]
            found.append(sum(backend.size_bytes(name) for backend, name in stored))
    return found


Build = tuple[int, Callable[[Inputs], KStream | KTable]]
"""The horizon in milliseconds, and what makes a topology."""


def both(left: Any, right: Any) -> int:
    return (left or 0) + (right or 0)


def total(key: str, value: int, so_far: int) -> int:
    return so_far + value


def add(a: int, b: int) -> int:
    return a + b


def take_away(a: int, b: int) -> int:
    return a - b


def around(key: str, value: int, ts: int) -> list[tuple[int, int]]:
    return [(ts, ts + 20)]


WINDOWS: dict[str, Build] = {
    "tumbling": (100, lambda i: i.grouped().windowed_by(tumbling(50, grace=50)).count()),
    "tumbling on close": (100, lambda i: i.grouped().windowed_by(tumbling(50, grace=50)).count(emission="on_close")),
    "hopping": (150, lambda i: i.grouped().windowed_by(hopping(100, 25, grace=50)).count()),
    "hopping on close": (
        150,
        lambda i: i.grouped().windowed_by(hopping(100, 25, grace=50)).reduce(add, emission="on_close"),
    ),
    "hopping by panes": (
        150,
        lambda i: (
            i.grouped().windowed_by(hopping(100, 25, grace=50)).reduce(add, inverse=take_away, emission="on_close")
        ),
    ),
    "hopping from before 1970": (
        150,
        lambda i: i.grouped().windowed_by(hopping(100, 25, grace=50, before_epoch=True)).count(emission="on_close"),
    ),
    "sliding": (150, lambda i: i.grouped().windowed_by(sliding(60, grace=30)).count()),
    "sliding on close": (150, lambda i: i.grouped().windowed_by(sliding(60, grace=30)).count(emission="on_close")),
    "session": (100, lambda i: i.grouped().windowed_by(session(5, grace=40)).count()),
    "session on close": (100, lambda i: i.grouped().windowed_by(session(5, grace=40)).count(emission="on_close")),
    "custom": (
        150,
        lambda i: i.grouped().windowed_by(custom(around, max_size=100, grace=50)).count(emission="on_close"),
    ),
    "late records aside": (100, lambda i: i.grouped().windowed_by(tumbling(50, grace=50)).count(late=True)),
}
JOINS: dict[str, Build] = {
    "stream-stream": (250, lambda i: i.stream().outer_join(i.stream("b"), both, within=100, grace=50, value=int)),
    "eager": (
        150,
        lambda i: i.stream().left_join(i.stream("b"), both, before=20, after=80, grace=50, eager=True, value=int),
    ),
    "as of, backward": (
        150,
        lambda i: i.stream().join_as_of(i.stream("b"), both, tolerance=100, grace=50, left=True, value=int),
    ),
    "as of, nearest": (
        150,
        lambda i: i.stream().join_as_of(i.stream("b"), both, tolerance=60, grace=30, direction="nearest", value=int),
    ),
    "of three streams": (
        60,
        lambda i: i.stream().join_all(
            i.stream("b"), i.stream("c"), joiner=lambda a, b, c: a + b + c, within=5, grace=25, value=int
        ),
    ),
    "versioned table with grace": (
        150,
        lambda i: i.stream().join(i.versions("b", 150), both, grace=50, value=int),
    ),
    "windowed cogroup": (
        150,
        lambda i: (
            i.grouped()
            .cogroup(total)
            .cogroup(i.grouped("b"), total)
            .windowed_by(tumbling(50, grace=50), retention=150)
            .aggregate(int, value=int)
        ),
    ),
}
OTHERS: dict[str, Build] = {
    "triggered with lateness": (
        200,
        lambda i: (
            i.grouped()
            .windowed_by(tumbling(100, grace=0))
            .triggered(after_watermark(early=after_count(3), late=after_count(1)), allowed_lateness=100)
            .count()
        ),
    ),
    "triggered sessions, retracting": (
        200,
        lambda i: (
            i.grouped()
            .windowed_by(session(20, grace=0))
            .triggered(after_watermark(), accumulation="accumulating_and_retracting", allowed_lateness=100)
            .reduce(add)
        ),
    ),
    "deduplicate by id": (100, lambda i: i.stream().deduplicate(40, key=lambda k, v: f"{k}-{v}", grace=20)),
    "suppress until windows close": (
        150,
        lambda i: i.grouped().windowed_by(tumbling(50, grace=50)).count().suppress(until_window_closes()),
    ),
    "suppress until a time limit": (
        150,
        lambda i: i.grouped().windowed_by(tumbling(50, grace=50)).count().suppress(until_time_limit(40)),
    ),
    "pattern": (
        150,
        lambda i: (
            i.stream()
            .match(
                pattern("low").where(lambda v: v < 300).followed_by_any("high").where(lambda v: v > 900).within(60),
                select=len,
                value=int,
            )
            .matches
        ),
    ),
    "pattern in order of arrival": (
        150,
        lambda i: (
            i.stream()
            .match(
                pattern("some")
                .where(lambda v: v < 500)
                .times(3)
                .followed_by("high")
                .where(lambda v: v > 900)
                .within(60),
                select=len,
                value=int,
                event_order="arrival",
            )
            .matches
        ),
    ),
    "micro-batches joined": (
        100,
        lambda i: (
            i.stream()
            .micro_batches(20, grace=10)
            .join(i.stream("b").micro_batches(20, grace=10))
            .map(lambda key, pair: (key, sum(pair)), value=int)
            .to_stream()
        ),
    ),
    "micro-batches in windows": (
        100,
        lambda i: i.stream().micro_batches(10, grace=10).reduce_by_key_and_window(add, take_away, 60, 20).to_stream(),
    ),
    "table with ttl": (100, lambda i: i.stream().to_table(ttl=100)),
    "aggregate with ttl": (100, lambda i: i.grouped().with_ttl(100).count()),
    "reservoir": (100, lambda i: i.stream().sample_reservoir(5, tumbling(50, grace=25))),
    "whole stream by windows": (
        150,
        lambda i: i.stream().aggregate_all(count(), tumbling(50, grace=50), retention=300),
    ),
    "last 50 ms, every 10": (
        100,
        lambda i: i.grouped().windowed_by(evicting(policies.time(50), trigger=policies.time(10))).count(),
    ),
    "50 ms after 50 ms": (100, lambda i: i.grouped().windowed_by(evicting(policies.time(50))).count()),
}

TABLES_OF_KEYS = ("versioned table with grace",)
"""A row per key stays for good, so that keys must be the same all along."""


@pytest.mark.parametrize("watermarked", [False, True], ids=["stream time", "watermark"])
@pytest.mark.parametrize("name", [*WINDOWS, *JOINS, *OTHERS])
def test_stores_do_not_grow(name: str, watermarked: bool) -> None:
    horizon_ms, build = {**WINDOWS, **JOINS, **OTHERS}[name]
    found = sizes(build, horizon_ms, watermarked=watermarked, new_keys=name not in TABLES_OF_KEYS)
    assert found[0] > 0
    assert len(set(found[WARM:])) == 1, found


def test_what_keeps_every_key_is_seen_to_grow() -> None:
    found = sizes(lambda i: i.grouped().count(), 100, watermarked=False, new_keys=True)
    assert found == [found[0] * n for n in range(1, HORIZONS + 1)]
