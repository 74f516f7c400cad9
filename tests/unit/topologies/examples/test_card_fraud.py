"""Fraud on cards."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import card_fraud
from penstock.topologies.examples.card_fraud import Alert, Payment
from penstock.topologies.graph.topology import Topology

PAYMENTS = [
    # card, payment, cents, seconds
    ("stolen", "a1", 99, 1),
    ("honest", "b1", 50, 2),
    ("patient", "c1", 10, 3),
    ("stolen", "a2", 50_001, 5),
    ("honest", "b2", 1_200, 10),  # in between, so that the next one does not follow the trial
    ("honest", "b3", 90_000, 12),
    ("patient", "c2", 70_000, 63),  # a minute later
    ("limits", "d1", 100, 70),  # not below 1.00
    ("limits", "d2", 99, 71),
    ("limits", "d3", 50_000, 72),  # not above 500.00
    ("late", "e2", 60_000, 85),
    ("late", "e1", 1, 80),  # comes late, and belongs before the other
    ("honest", "b4", 300, 120),
]


def test_a_trial_and_a_large_payment_at_once(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    driver = drive(card_fraud.build())
    records = [Record(card, Payment(name, cents, "shop"), s * 1_000) for card, name, cents, s in PAYMENTS]
    driver.pipe_all("payments", records)
    assert [(r.key, r.value) for r in driver.read("fraud-alerts")] == [
        ("stolen", Alert("a1", "a2", 50_001)),
        ("late", Alert("e1", "e2", 60_000)),
    ]
