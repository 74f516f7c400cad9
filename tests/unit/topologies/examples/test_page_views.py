"""One topic of page views, and its four consumers."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record, Windowed
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import page_views
from penstock.topologies.examples.page_views import View
from penstock.topologies.graph.topology import Topology

Drive = Callable[[Topology], TopologyTestDriver]
DAY_MS = 86_400_000
START_MS = 20_000 * DAY_MS  # 2024-10-04
HOUR_MS = 3_600_000
VIEWS = [
    Record("ann", View(1, "acme", 2.0), START_MS + 1_000),
    Record("bob", View(1, "acme", 1.5), START_MS + 2_000),
    Record("ann", View(2, "acme", 4.0), START_MS + HOUR_MS),
    Record("ann", View(1, "acme", 0.5), START_MS + 2 * HOUR_MS),
    Record("ann", View(3, "bolt", 1.0), START_MS + 3 * HOUR_MS),
    Record("ann", View(1, "acme", 1.0), START_MS + DAY_MS),
    Record("ann", View(1, "acme", 1.0), START_MS + DAY_MS + HOUR_MS),
]


def driven(drive: Drive, views: list[Record]) -> TopologyTestDriver:
    driver = drive(page_views.build())
    driver.pipe_all("page-views", views)
    return driver


def test_the_warehouse_gets_every_view_under_its_hour(drive: Drive) -> None:
    written = driven(drive, VIEWS).read("views-by-hour")
    hours = ["04/00", "04/00", "04/01", "04/02", "04/03", "05/00", "05/01"]
    assert [r.key for r in written] == [f"2024-10-{hour}" for hour in hours]
    assert [r.value for r in written] == [r.value for r in VIEWS]


def test_employers_see_their_days(drive: Drive) -> None:
    written = {r.key: r.value for r in driven(drive, VIEWS).read("employer-days")}
    first, second = START_MS, START_MS + DAY_MS
    assert written == {
        Windowed("acme", first, second): {"views": 4, "offers": 2, "seconds": 8.0},
        Windowed("bolt", first, second): {"views": 1, "offers": 1, "seconds": 1.0},
        Windowed("acme", second, second + DAY_MS): {"views": 2, "offers": 1, "seconds": 2.0},
    }


def test_an_offer_is_hidden_from_a_user_at_the_third_view(drive: Drive) -> None:
    assert driven(drive, VIEWS).read("offers-to-hide") == [
        Record("ann", {"user": "ann", "offer": 1}, START_MS + DAY_MS)
    ]


def test_who_views_too_much_in_a_minute_is_told_of_once(drive: Drive) -> None:
    """A hundred views in 50 s; another user makes as many in two minutes."""
    fast = [Record("robot", View(i, "acme", 0.1), START_MS + 500 * i) for i in range(100)]
    slow = [Record("reader", View(i, "acme", 1.1), START_MS + 1_200 * i) for i in range(100)]
    views = sorted([*fast, *slow], key=lambda r: r.timestamp_ms)
    written = driven(drive, [*views, Record("ann", View(1, "acme", 1.0), START_MS + HOUR_MS)]).read("scrapers")
    assert [(r.key, r.value) for r in written] == [("robot", 100)]
