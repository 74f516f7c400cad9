"""Five-minute windows by the clock and by the time of the sale: golden answers, worked by hand."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.five_minutes import build
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.pane_info import pane_of

Drive = Callable[[Topology], TopologyTestDriver]
MINUTE = 60_000


def panes(driver: TopologyTestDriver, topic: str) -> list[tuple[str, int, int, str]]:
    """Shop, minute at which the window starts, total, and which pane it is."""
    out: list[tuple[str, int, int, str]] = []
    for r in driver.read(topic):
        pane = pane_of(r.headers)
        assert pane is not None
        assert r.timestamp_ms == r.key.start_ms + 5 * MINUTE - 1
        out.append((r.key.key, r.key.start_ms // MINUTE, r.value, pane.timing))
    return out


def test_a_late_sale_is_corrected_and_one_is_too_late(drive: Drive) -> None:
    driver = drive(build())

    def at(minute: float, *sales: tuple[str, int, float]) -> None:
        """Sales (shop, amount, minute of the sale) that arrive at a minute of the clock."""
        driver.advance_wall_time(round(minute * MINUTE) - driver.wall_ms)
        driver.pipe_all("sales", [Record(shop, amount, round(when * MINUTE)) for shop, amount, when in sales])

    at(1, ("north", 10, 0.9), ("south", 7, 1))
    at(4, ("north", 5, 4))
    at(6, ("south", 1, 5.6))
    # the clock has ended the first window; the sale of minute 5.6, less 30 s, has ended it by time
    assert panes(driver, "sales-by-clock") == [("north", 0, 15, "ON_TIME"), ("south", 0, 7, "ON_TIME")]
    assert panes(driver, "sales-by-time") == [("north", 0, 15, "ON_TIME"), ("south", 0, 7, "ON_TIME")]

    at(8, ("north", 100, 3))  # its line was down
    assert panes(driver, "sales-by-clock") == []
    assert panes(driver, "sales-by-time") == [("north", 0, 115, "LATE")]

    at(70, ("south", 2, 70))
    assert panes(driver, "sales-by-clock") == [("north", 5, 100, "ON_TIME"), ("south", 5, 1, "ON_TIME")]
    assert panes(driver, "sales-by-time") == [("south", 5, 1, "ON_TIME")]

    at(71, ("north", 1_000, 2))  # an hour behind the end of its window
    at(75)
    assert panes(driver, "sales-by-clock") == [("north", 70, 1_000, "ON_TIME"), ("south", 70, 2, "ON_TIME")]
    assert panes(driver, "sales-by-time") == []
    assert driver.read("sales-too-late") == [Record("north", 1_000, 2 * MINUTE)]
    assert driver.dropped_records["by-time.late"] == 1
