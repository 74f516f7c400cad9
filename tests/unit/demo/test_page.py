"""The page and the tables: everything that was found is in them, and the page needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from demo.findings import (
    Check,
    Compacted,
    Compared,
    Drain,
    Findings,
    Kill,
    Report,
    Restored,
    Sample,
)
from demo.flights import AIRPORTS
from demo.page import as_page
from demo.summary import as_tables
from demo.svg import number, ticks

DAY = {
    "flights": 10,
    "cancelled": 1,
    "late": 2,
    "delay_minutes": 90,
    "wet_flights": 2,
    "wet_cancelled": 0,
    "wet_delay_minutes": 60,
}


def drain(kill: Kill | None) -> Drain:
    samples = [Sample(s / 10, {"events [0]": min(s * 10, 900), "events [1]": min(s * 5, 900)}) for s in range(200)]
    return Drain(1800, samples, {"events [0]": 900, "events [1]": 900}, 0.1, 18.0, kill, ("events [0]", "events [1]"))


@pytest.fixture
def report() -> Report:
    kill = Kill(6.0, "worker-b", 900, {"events [1]": 600}, {"events [1]": 7.25})
    ysb = Findings("ysb", "Views", "What & why.", 2000, 1000, 1.0, "topology <ysb>", "flowchart TB", drain(kill))
    ysb.answer = {f"c{c}@{w * 10_000}": 30 + c for c in range(5) for w in range(12)}
    ysb.uncounted = 1234
    ysb.compacted = Compacted(1.0, 8, 1100, 9000)
    ysb.from_changelog, ysb.from_snapshot = Restored(2.0, 1808, 8, 0), Restored(0.5, 97, 8, 8)
    ysb.comparisons = [Compared("topic", "campaign-views", "sequence", 600, 600, 0)]
    flights = Findings("flights", "Flights", "Late.", 2000, 100, 1.0, "topology flights", "flowchart TB", drain(None))
    flights.answer = {f"{airport}@2013-03-08": DAY for airport in AIRPORTS}
    return Report([("Python", "3")], [ysb, flights], [Check("fine", True, "seen")], [("a step", 1.25)])


class Structure(HTMLParser):
    """Raises ``AssertionError`` where elements are not closed in order; keeps attributes that name other files."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [f"{tag} {n}={v}" for n, v in attrs if n in ("src", "href", "xlink:href", "srcset", "data")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_refers_to_nothing(report: Report) -> None:
    text = as_page(report)
    page = Structure()
    page.feed(text)
    page.close()
    assert page.open == []
    assert page.references == []
    assert not re.search(r"https?://|@import|url\(|<script|<link", text)


def test_the_page_shows_what_was_found(report: Report) -> None:
    text = as_page(report)
    for said in ("Every check passed", "SIGKILL worker-b", "taken over", "7.2 s", "1,808 in 2.00 s", "What &amp; why."):
        assert said in text, said
    assert "topology &lt;ysb&gt;" in text
    assert text.count("<svg ") == text.count('role="img" aria-label=') == 9
    assert "Fri 08 Mar: 10 min mean delay, 10 flights, 2 late, 1 cancelled" in text


def test_a_failed_check_is_in_the_headline(report: Report) -> None:
    report.checks.append(Check("Views: <all> accounted for", False, "3 lost"))
    report.pipelines[0].comparisons.append(Compared("store", "windows", "last value", 5, 4, 1))
    text = as_page(report)
    assert "1 of 2 checks failed" in text
    assert "Views: &lt;all&gt; accounted for: 3 lost" in text
    assert report.differences == 1 and [c.name for c in report.failed] == ["Views: <all> accounted for"]


def test_a_report_of_a_run_that_ended_early_can_be_shown() -> None:
    empty = Findings("flights", "Flights", "Late.", 0, 0, 0.0, "", "")
    assert "Flights" in as_page(Report([], [empty], [Check("a", False, "b")]))


def test_the_tables_say_the_same(report: Report) -> None:
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as shown:
        for table in as_tables(report):
            console.print(table)
    for said in ("7.2 s", "97 records, 0.50 s", "differences found", "none", "fine", "1,234"):
        assert said in shown.get(), said


def test_takeover_is_that_of_the_streams_last_partition_and_unknown_while_one_stands_still() -> None:
    def of(left: dict[str, int], moved: dict[str, float]) -> tuple[float | None, bool]:
        kill = Kill(1.0, "w", 5, left, moved)
        return drain(kill).takeover_s, kill.all_moved

    both = {"events [0]": 1, "events [1]": 1}
    assert of(both, {"events [0]": 2.0, "events [1]": 3.0}) == (3.0, True)
    assert of(both, {"events [0]": 2.0}) == (None, False)
    assert of({}, {}) == (None, False)
    more = {**both, "app-map-repartition [0]": 1}
    assert of(more, {"events [0]": 2.0, "events [1]": 3.0, "app-map-repartition [0]": 60.0}) == (3.0, True)
    assert of(more, {"events [0]": 2.0, "events [1]": 3.0}) == (3.0, False)
    assert drain(None).takeover_s is None


def test_the_take_over_of_the_chart_is_that_of_its_text(report: Report) -> None:
    found = report.pipelines[0].drain
    assert found is not None and found.kill is not None
    found.kill.left["app-map-repartition [0]"] = 5
    found.kill.moved_s["app-map-repartition [0]"] = 60.0
    text = as_page(report)
    assert "60.0 s" not in text, "no line of the chart moves then"
    assert text.count("7.2 s") == 3, "the tile, the table and the bar"


def test_the_page_begins_with_what_ran_and_what_it_shows(report: Report) -> None:
    assert "Two worker processes computed “Views” and “Flights”" in as_page(report)
    assert "no record was lost, and none was counted twice" in as_page(report)
    report.checks.append(Check("Views: accounted for", False, "3 lost"))
    assert "no record was lost" not in as_page(report)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0, 0.5, [0, 0.1, 0.2, 0.3, 0.4, 0.5]), (0, 23, [0, 5, 10, 15, 20, 25])],
)
def test_ticks_are_round_and_reach_the_highest(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_numbers_are_short() -> None:
    assert [number(n) for n in (0, 2.5, 9_000, 40_000, 1_200_000)] == ["0", "2.5", "9000", "40 k", "1.2 M"]
