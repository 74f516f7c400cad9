"""Word counts in windows of five seconds and of five minutes."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record, Windowed
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import windowed_word_count
from penstock.topologies.graph.topology import Topology

Drive = Callable[[Topology], TopologyTestDriver]
MINUTE_MS = 60_000


def counts(driver: TopologyTestDriver, lines: list[tuple[int, str]]) -> list[tuple[str, int, int]]:
    """(word, start of the window, count) in the order in which they are written."""
    driver.pipe_all("lines", [Record(None, line, t) for t, line in lines])
    written = driver.read("word-counts")
    assert all(isinstance(r.key, Windowed) for r in written)
    return [(r.key.key, r.key.start_ms, r.value) for r in written]


def test_five_seconds(drive: Drive) -> None:
    """A window is written once 2 s have passed after it, with the line that came late; the last one is still open."""
    driver = drive(windowed_word_count.five_seconds())
    lines = [
        (0, "to be or"),
        (4_000, "Not to be"),
        (6_000, "that"),
        (4_999, "is THE"),
        (7_000, "is the"),
        (13_500, "end"),
    ]
    assert counts(driver, lines) == [
        ("be", 0, 2),
        ("is", 0, 1),
        ("not", 0, 1),
        ("or", 0, 1),
        ("the", 0, 1),
        ("to", 0, 2),
        ("is", 5_000, 1),
        ("that", 5_000, 1),
        ("the", 5_000, 1),
    ]
    assert driver.dropped_records == {}


def test_a_line_more_than_two_seconds_late_is_dropped_and_counted(drive: Drive) -> None:
    driver = drive(windowed_word_count.five_seconds())
    assert counts(driver, [(1_000, "a"), (7_001, "b"), (4_999, "a"), (30_000, "c")]) == [("a", 0, 1), ("b", 5_000, 1)]
    assert sum(driver.dropped_records.values()) == 1


def test_five_minutes_with_the_words_of_beam(drive: Drive) -> None:
    """Apostrophes belong to words, digits and all else part them, and case matters."""
    driver = drive(windowed_word_count.five_minutes())
    lines = [
        (0, "KING LEAR\tI'll not, sir!"),
        (2 * MINUTE_MS, "'Tis 1606: not-Lear's Fool,"),
        (5 * MINUTE_MS - 1, "  "),
        (5 * MINUTE_MS, "not"),
        (11 * MINUTE_MS, "Exit"),
    ]
    assert counts(driver, lines) == [
        ("'Tis", 0, 1),
        ("Fool", 0, 1),
        ("I'll", 0, 1),
        ("KING", 0, 1),
        ("LEAR", 0, 1),
        ("Lear's", 0, 1),
        ("not", 0, 2),
        ("sir", 0, 1),
        ("not", 5 * MINUTE_MS, 1),
    ]
