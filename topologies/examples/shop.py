"""A web shop: sessions, joins, rankings, patterns and lookups over the same streams, each alone or all in one application.

Clicks and orders come under their user, payments under their card; each is at most a second late. Users are a table,
products a global table, because orders are keyed by user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from penstock.topologies.aggregators import top_k
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions.functions import (
    col,
    count,
    key,
    left,
    right,
    struct,
    value,
    window_end,
    window_start,
)
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.patterns.pattern import pattern
from penstock.topologies.patterns.skip import skip_past_last_event
from penstock.topologies.windows import session, tumbling

BEST = 10
MINUTE = tumbling("1m", grace=0)
TOO_OFTEN = (
    pattern("first")
    .where(~col("ok"))
    .next("second")
    .where(~col("ok"))
    .next("third")
    .where(col("ok"))
    .within("10m")
    .after_match(skip_past_last_event())
)
"""Two payments by a card fail, and its very next one is accepted."""


class ShopClick(msgspec.Struct, frozen=True, gc=False):
    """A user looks at a product."""

    user: str
    product: str


class ShopOrder(msgspec.Struct, frozen=True, gc=False):
    """A user orders."""

    id: int
    user: str
    product: str
    quantity: int


class ShopPayment(msgspec.Struct, frozen=True, gc=False):
    """A card pays for an order, or cannot."""

    order: int
    card: str
    cents: int
    ok: bool


class ShopUser(msgspec.Struct, frozen=True, gc=False):
    """A row of the table of users."""

    name: str
    country: str


class ShopProduct(msgspec.Struct, frozen=True, gc=False):
    """A row of the table of products."""

    title: str
    category: str
    cents: int


class PaidOrder(msgspec.Struct, frozen=True, gc=False):
    """An order with its payment."""

    order: int
    user: str
    cents: int


class ShopSale(msgspec.Struct, frozen=True, gc=False):
    """A paid order, and where its user lives."""

    order: int
    user: str
    country: str
    cents: int


class PricedOrder(msgspec.Struct, frozen=True, gc=False):
    """The worth of an order."""

    category: str
    cents: int


class SeenProduct(msgspec.Struct, frozen=True, gc=False):
    """How often a product was looked at in the minute that began at ``starttime`` (milliseconds)."""

    product: str
    num: int
    starttime: int


class ShopAlert(msgspec.Struct, frozen=True, gc=False):
    """The order whose payment failed first, and the accepted payment."""

    card: str
    first_order: int
    cents: int


class Shop:
    """The inputs of one application."""

    def __init__(self, name: str) -> None:
        self.builder = StreamsBuilder(name)
        self._late = bounded_out_of_orderness("1s")

    @cached_property
    def clicks(self) -> KStream[str, ShopClick]:
        """Under their user."""
        return self.builder.stream("shop-clicks", key=str, value=ShopClick, watermark=self._late)

    @cached_property
    def orders(self) -> KStream[str, ShopOrder]:
        """Under their user."""
        return self.builder.stream("shop-orders", key=str, value=ShopOrder, watermark=self._late)

    @cached_property
    def payments(self) -> KStream[str, ShopPayment]:
        """Under their card."""
        return self.builder.stream("shop-payments", key=str, value=ShopPayment, watermark=self._late)


def sessions(shop: Shop) -> None:
    """Visits to ``shop-sessions``: what each user looked at until a pause of ten seconds."""
    visits = shop.clicks.group_by_key().windowed_by(session("10s", grace=0, bounds="gap"))
    seen = visits.agg(clicks=count(), products=col("product").count_distinct(), emission="on_close").to_stream()
    fields = {"clicks": col("clicks"), "products": col("products")}
    seen.select(user=key()["key"], **fields, starttime=window_start(), endtime=window_end()).to("shop-sessions")


def top(shop: Shop) -> None:
    """The ten products that were looked at most in each minute to ``shop-top``; equal ones by their names."""
    by_product = shop.clicks.group_by(col("product")).windowed_by(MINUTE)
    counts = by_product.count(emission="on_close").to_stream()
    seen = counts.select(product=key()["key"], num=value(), starttime=window_start().cast(int), value=SeenProduct)
    by_minute = seen.group_by(col("starttime")).windowed_by(MINUTE)
    best = by_minute.aggregate(top_k(BEST, by=col("num"), value=SeenProduct), emission="on_close").to_stream()
    best.flat_map_values(lambda most: most, value=SeenProduct).to("shop-top")


def sales(shop: Shop) -> None:
    """Orders that were paid within five minutes, with their user's country, to ``shop-sales``."""
    payments = shop.payments.filter_values(col("ok")).select_key(col("order"))
    paid = struct(order=left("id"), user=left("user"), cents=right("cents"))
    both = shop.orders.select_key(col("id")).join(payments, paid, before=0, after="5m", grace=0, value=PaidOrder)
    users = shop.builder.table("shop-users", key=str, value=ShopUser)
    sold = struct(order=left("order"), user=left("user"), country=right("country"), cents=left("cents"))
    both.select_key(col("user")).join(users, sold, value=ShopSale).to("shop-sales")


def alert(events: dict[str, list[Any]]) -> ShopAlert:
    """The alert for a match."""
    first, third = events["first"][0], events["third"][0]
    return ShopAlert(first.card, first.order, third.cents)


def alerts(shop: Shop) -> None:
    """Cards of which two payments failed before one was accepted, to ``shop-alerts``."""
    shop.payments.match(TOO_OFTEN, select=alert, value=ShopAlert).matches.to("shop-alerts")


def revenue(shop: Shop) -> None:
    """Orders of each category of products and minute to ``shop-revenue``."""
    products = shop.builder.global_table("shop-products", key=str, value=ShopProduct)
    priced = struct(category=right("category"), cents=left("quantity") * right("cents"))
    worth = shop.orders.join_global(products, col("product"), priced, value=PricedOrder)
    by_category = worth.group_by(col("category")).windowed_by(MINUTE)
    sums = by_category.agg(orders=count(), cents=col("cents").sum(), emission="on_close").to_stream()
    fields = {"orders": col("orders"), "cents": col("cents")}
    sums.select(category=key()["key"], **fields, starttime=window_start()).to("shop-revenue")


PARTS: Mapping[str, Callable[[Shop], None]] = {
    "sessions": sessions,
    "top": top,
    "sales": sales,
    "alerts": alerts,
    "revenue": revenue,
}


def of_parts(*parts: str) -> Topology:
    """An application with these parts, which write to the topic ``shop-<part>``."""
    shop = Shop("-".join(("shop", *parts)))
    for part in parts:
        PARTS[part](shop)
    return shop.builder.build()


def build() -> Topology:
    """The whole shop."""
    return of_parts(*PARTS)
