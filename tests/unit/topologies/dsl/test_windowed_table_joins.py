"""Joins of windowed tables: for how long the rows of closed windows can still be met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.topologies.aggregators import sum_
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.operator_api.operator import Emission

TUMBLING = ps.tumbling("10s", grace=0)
DAY_MS = 86_400_000


def made(
    side: Callable[[Any], KTable], *, windows: Any = TUMBLING, retention: int | str | None = None
) -> ps.StreamsBuilder:
    """Two tables of two topics, made by ``side`` of each windowed stream, joined."""
    builder = ps.StreamsBuilder("joined", value=str)
    left, right = (
        side(builder.stream(topic).group_by_key().windowed_by(windows, retention=retention)) for topic in ("l", "r")
    )
    joined = left.join(right, lambda x, y: f"{x:g}|{y:g}", value=str)
    joined.to_stream(lambda window, value: f"{window.key}@{window.start_ms}", key=str).to("out")
    return builder


def answers(builder: ps.StreamsBuilder, *records: tuple[str, int]) -> list[tuple[str, str]]:
    """What comes out for records of one key."""
    with ps.TopologyTestDriver(builder.build()) as driver:
        for topic, ts in records:
            driver.pipe(topic, "k", "1", ts)
        return [(r.key, r.value) for r in driver.read("out")]


def counts(emission: Emission) -> Callable[[Any], KTable]:
    return lambda grouped: grouped.count(emission=emission)


def final(grouped: Any) -> KTable:
    return grouped.count().suppress(ps.until_window_closes())


def of_values(grouped: Any) -> KTable:
    return grouped.aggregate(sum_(lambda text: int(text), number=int), emission="on_close")


IN_TURN = (("l", 1_000), ("r", 1_500), ("l", 12_000), ("r", 2_000), ("r", 12_500))


def test_counts_that_are_emitted_on_close_meet() -> None:
    """The first result with the count so far of the other side, which closes its window later."""
    assert answers(made(counts("on_close")), *IN_TURN) == [("k@0", "1|1"), ("k@0", "1|2")]


def test_updates_meet_windows_that_the_other_side_has_closed() -> None:
    found = answers(made(counts("every_update")), *IN_TURN)
    assert found == [("k@0", "1|1"), ("k@0", "1|2"), ("k@10000", "1|1")]


@pytest.mark.parametrize(
    "side",
    [
        final,
        of_values,
        lambda grouped: counts("on_close")(grouped).filter(lambda key, value: True, name=None),
        lambda grouped: counts("on_close")(grouped).map_values(lambda value: value).materialize(),
    ],
)
def test_a_side_that_lags_meets_closed_windows(side: Callable[[Any], KTable]) -> None:
    """Suppressed, shown as results, filtered, or copied."""
    records = [(topic, 1_000 + 10_000 * i) for topic in ("l", "r") for i in range(6)]
    found = answers(made(side), *records)
    assert found[-1] == ("k@40000", "1|1")
    assert {key for key, _ in found} == {f"k@{start}" for start in range(0, 50_000, 10_000)}


@pytest.mark.parametrize(
    ("windows", "later_ms"),
    [
        (ps.hopping("10s", "5s", grace=0), 60_000),
        (ps.sliding("10s", grace=0), 60_000),
        (ps.session("10s", grace=0), 60_000),
        (ps.calendar("day", grace=0), DAY_MS + 7_200_000),
    ],
)
def test_of_other_kinds_too(windows: Any, later_ms: int) -> None:
    records = [("l", 1_000), ("l", later_ms), ("r", 1_000), ("r", later_ms)]
    assert answers(made(counts("on_close"), windows=windows), *records)[0][1] == "1|1"


def test_a_retention_that_was_named_stays() -> None:
    builder = made(counts("on_close"), retention="10s")
    assert {s.retention_ms for s in builder.build().stores if s.kind == "window"} == {10_000}
    assert answers(builder, *IN_TURN) == [("k@0", "1|1")]


def test_rows_of_joined_windows_are_forgotten_a_day_after_they_closed() -> None:
    builder = made(counts("on_close"))
    kept = {s.retention_ms for s in builder.build().stores if s.kind == "window"}
    assert kept == {DAY_MS + 10_000}


def test_windows_that_nothing_looks_up_are_forgotten_when_they_close() -> None:
    builder = ps.StreamsBuilder("alone", value=str)
    builder.stream("l").group_by_key().windowed_by(TUMBLING).count().to_stream().to("out")
    assert [s.retention_ms for s in builder.build().stores] == [10_000]
