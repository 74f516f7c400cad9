"""Card fraud: a thief tries a stolen card with a small amount, then immediately pays a large one.

One pattern per card: a payment below 1.00, and the very next one above 500.00, less than a minute later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.patterns.pattern import pattern


class Payment(msgspec.Struct, frozen=True, gc=False):
    """A payment by the card that is the record's key."""

    id: str
    cents: int
    shop: str


class Alert(msgspec.Struct, frozen=True, gc=False):
    """The two payments, and the sum to call back."""

    trial: str
    payment: str
    cents: int


SUSPICIOUS = pattern("trial").where(col("cents") < 100).next("payment").where(col("cents") > 50_000).within("1m")


def alert(events: dict[str, list[Any]]) -> Alert:
    """The alert for a match."""
    trial, payment = events["trial"][0], events["payment"][0]
    return Alert(trial.id, payment.id, payment.cents)


def build(source: str = "payments", output: str = "fraud-alerts") -> Topology:
    """Alerts under their card. Payments may be 10 s late: they are sorted by time first."""
    builder = StreamsBuilder("card-fraud", value=Payment)
    payments = builder.stream(source, watermark=bounded_out_of_orderness("10s"))
    payments.match(SUSPICIOUS, select=alert, value=Alert).matches.to(output)
    return builder.build()
