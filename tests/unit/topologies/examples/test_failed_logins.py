"""Failed logins per address."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import failed_logins
from penstock.topologies.examples.failed_logins import Login
from penstock.topologies.graph.topology import Topology

LOGINS = [
    *[("10.0.0.1", "ann", False, s) for s in (100, 101, 102)],
    ("10.0.0.2", "bob", False, 103),
    ("10.0.0.1", "ann", True, 104),
    ("10.0.0.1", "bob", False, 130),
    *[("10.0.0.2", "bob", False, s) for s in (140, 165, 166)],
    ("10.0.0.1", "cid", False, 159),  # late, and the fifth
    ("10.0.0.1", "cid", False, 170),
    ("10.0.0.2", "bob", False, 180),  # the fifth, but not within a minute
    *[("10.0.0.1", "dan", False, s) for s in range(760, 765)],
]


def test_an_address_that_fails_five_times_in_a_minute_is_told_of_once_in_ten(
    drive: Callable[[Topology], TopologyTestDriver],
) -> None:
    driver = drive(failed_logins.build())
    driver.pipe_all("logins", [Record(u, Login(a, u, ok), s * 1_000) for a, u, ok, s in LOGINS])
    assert [(r.key, r.value) for r in driver.read("guessing-addresses")] == [
        ("10.0.0.1", {"failures": 5, "users": 3, "since": 100_000}),
        ("10.0.0.1", {"failures": 5, "users": 1, "since": 710_000}),
    ]
