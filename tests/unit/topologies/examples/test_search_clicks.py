"""Searches joined with clicks."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import search_clicks
from penstock.topologies.examples.search_clicks import Click, Search, SearchOutcome
from penstock.topologies.graph.topology import Topology

Drive = Callable[[Topology], TopologyTestDriver]
MINUTE_MS = 60_000


def test_clicks_meet_their_search_and_searches_without_one_are_told_of(drive: Drive) -> None:
    """s1 has two clicks, one of which came before the search did; the click for s2 comes after more than ten minutes; of s3
    nobody knows yet whether there will be one."""
    driver = drive(search_clicks.build())

    def search(key: str, user: str, query: str, at_ms: int) -> tuple[str, Record]:
        return "searches", Record(key, Search(user, query, at_ms), at_ms)

    def click(key: str, url: str, position: int, at_ms: int) -> tuple[str, Record]:
        return "clicks", Record(key, Click(url, position, at_ms), at_ms)

    for topic, record in (
        click("s1", "/a", 1, 5_000),
        search("s1", "ann", "tea", 1_000),
        search("s2", "bob", "mate", 2_000),
        click("s1", "/b", 4, 61_000),
        click("s2", "/c", 1, 2_001 + 10 * MINUTE_MS),
        search("s3", "ann", "rooibos", 12 * MINUTE_MS),
    ):
        driver.pipe(topic, record.key, record.value, record.timestamp_ms)
    assert driver.read("search-outcomes") == [
        Record("s1", SearchOutcome("ann", "tea", "/a", 1, 4_000), 5_000),
        Record("s1", SearchOutcome("ann", "tea", "/b", 4, 60_000), 61_000),
        Record("s2", SearchOutcome("bob", "mate", None, None, None), 2_000),
    ]
