"""Clicks joined with users."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import enrich
from penstock.topologies.graph.topology import Topology

ANN, BOB = {"name": "Ann"}, {"name": "Bob"}


def test_a_click_meets_its_user_as_known_by_then(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """A change or deletion of a user matters to later clicks alone, and emits nothing itself."""
    driver = drive(enrich.build())
    driver.pipe("users", "u1", ANN, 1)
    driver.pipe("clicks", "u1", {"url": "/a"}, 2)
    driver.pipe("clicks", "u2", {"url": "/b"}, 3)
    driver.pipe("users", "u1", BOB, 4)
    assert driver.read("enriched-clicks") == [Record("u1", {"url": "/a", "profile": ANN}, 2)]
    driver.pipe("clicks", "u1", {"url": "/c"}, 5)
    driver.pipe("users", "u1", None, 6)
    driver.pipe("clicks", "u1", {"url": "/d"}, 7)
    assert driver.read("enriched-clicks") == [Record("u1", {"url": "/c", "profile": BOB}, 5)]


def test_records_that_come_together_meet_by_their_times(
    drive: Callable[[Topology], TopologyTestDriver],
) -> None:
    """Within one batch too, a click sees the users up to its own time and no later ones."""
    driver = drive(enrich.build())
    driver.pipe_raw(
        {
            "users": [Record(b"u1", b'{"name":"Ann"}', 1), Record(b"u1", b'{"name":"Bob"}', 4)],
            "clicks": [Record(b"u1", b'{"url":"/a"}', t) for t in (0, 2, 3, 5)],
        }
    )
    joined = [(r.timestamp_ms, r.value["profile"]) for r in driver.read("enriched-clicks")]
    assert joined == [(2, ANN), (3, ANN), (5, BOB)]
