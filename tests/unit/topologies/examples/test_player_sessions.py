"""Statistics of players' sessions."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import player_sessions
from penstock.topologies.examples.player_sessions import Score, Statistics
from penstock.topologies.graph.topology import Topology

MINUTE_MS = 60_000
Drive = Callable[[Topology], TopologyTestDriver]


def play(driver: TopologyTestDriver, *scores: tuple[str, int, float]) -> None:
    """Pipe scores of (player, points, minute)."""
    records = [Record(player, Score(points), int(minute * MINUTE_MS)) for player, points, minute in scores]
    driver.pipe_all("scores", records)


def told(driver: TopologyTestDriver) -> list[tuple[str, float, float, Statistics]]:
    """Player, first and last minute, statistics."""
    return [
        (r.key.key, r.key.start_ms / MINUTE_MS, r.key.end_ms / MINUTE_MS, r.value)
        for r in driver.read("player-sessions")
    ]


def test_a_session_is_told_once_when_it_is_over(drive: Drive) -> None:
    """Gap and grace must have passed, by the scores of any player."""
    driver = drive(player_sessions.build())
    play(driver, ("ann", 10, 0), ("bob", 7, 1), ("ann", 20, 3), ("ann", 6, 4), ("bob", 1, 9))
    assert told(driver) == [("bob", 1, 1, Statistics(1, 7, 7.0, 0))]
    play(driver, ("cid", 5, 10.001))
    assert told(driver) == [("ann", 0, 4, Statistics(3, 36, 12.0, 3 * MINUTE_MS))]
    assert driver.read("late-scores") == []


def test_a_late_score_joins_two_sessions(drive: Drive) -> None:
    """Between two scores that are more than a gap apart; the longest pause is found in order of time."""
    driver = drive(player_sessions.build())
    play(driver, ("ann", 10, 0), ("ann", 20, 5.5), ("ann", 3, 2), ("ann", 4, 1.5), ("cid", 1, 20))
    assert told(driver) == [("ann", 0, 5.5, Statistics(4, 37, 9.25, int(3.5 * MINUTE_MS)))]


def test_a_score_behind_a_closed_session_is_late(drive: Drive) -> None:
    driver = drive(player_sessions.build())
    play(driver, ("ann", 10, 0), ("cid", 1, 20), ("ann", 5, 13), ("ann", 6, 14.5))
    assert told(driver) == [("ann", 0, 0, Statistics(1, 10, 10.0, 0))]
    assert driver.read("late-scores") == [Record("ann", Score(5), 13 * MINUTE_MS)]
    assert driver.dropped_records == {"sessions.late": 1}
    assert [(w.key, w.start_ms) for w, _ in driver.store("sessions").all()] == [
        ("ann", int(14.5 * MINUTE_MS)),
        ("cid", 20 * MINUTE_MS),
    ]
