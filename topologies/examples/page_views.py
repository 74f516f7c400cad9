"""One topic of views of job offers, and four consumers: the warehouse, the employers, the site's protection against
scrapers, and the recommender, which must not show a user the same offer over and over.

The four are independent, and together they read the topic once.
"""

from __future__ import annotations

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions.functions import col, count, key, struct, timestamp, value
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import hopping, tumbling

SCRAPER_VIEWS = 100
"""More offers than a person can read in a minute."""
ENOUGH_VIEWS = 3
"""The number of times an offer is shown to a user in a week."""


class View(msgspec.Struct, frozen=True, gc=False):
    """A user (the record's key) looks at an offer."""

    offer: int
    employer: str
    seconds: float


def warehouse(views: KStream[str, View]) -> None:
    """Every view, under its hour."""
    views.select_key(timestamp().format_time("%Y-%m-%d/%H")).to("views-by-hour")


def analytics(views: KStream[str, View]) -> None:
    """Per employer and day: views, distinct offers and seconds spent, updated with each view."""
    days = views.group_by(col("employer")).windowed_by(tumbling("1d", grace="1h"))
    days.agg(views=count(), offers=col("offer").count_distinct(), seconds=col("seconds").sum()).to("employer-days")


def defence(views: KStream[str, View]) -> None:
    """Users who view too many offers in a minute, each at most once per ten minutes."""
    minutes = views.group_by_key().windowed_by(hopping("1m", "10s", grace=0))
    many = minutes.count(emission="on_close").to_stream().filter_values(value() >= SCRAPER_VIEWS)
    many.select_key(key()["key"]).deduplicate("10m").to("scrapers")


def recommender(views: KStream[str, View]) -> None:
    """Offers that a user has seen often enough for this week."""
    weeks = views.group_by(struct(user=key(), offer=col("offer"))).windowed_by(tumbling("7d", grace="1h"))
    seen = weeks.count().to_stream().filter_values(value() == ENOUGH_VIEWS)
    hidden = seen.select(user=key()["key"]["user"], offer=key()["key"]["offer"])
    hidden.select_key(col("user")).to("offers-to-hide")


def build(source: str = "page-views") -> Topology:
    """Views may be 5 s late."""
    builder = StreamsBuilder("page-views", value=View)
    views = builder.stream(source, watermark=bounded_out_of_orderness("5s"))
    for consumer in (warehouse, analytics, defence, recommender):
        views.apply(consumer.__name__, consumer)
    return builder.build()
