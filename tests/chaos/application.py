"""The application under test: a join, counts, a window behind a repartition, and a record of every commit.

Orders are ``{"n": the user's own count of orders, "amount": …}``, keyed by user. From them follow:

* ``joined``: each order with its user's city, and in the same topic, behind the orders of each commit, the user's count at
  that commit. ``audit`` has the same counts: under exactly-once the two are equal, record by record, or a commit was torn.
* ``counts``: 1, 2, 3 … for each user.
* ``cities``: 1, 2, 3 … for each city. ``windows``: count and sum of ten seconds for each city, also at every update.
* ``behind``: each order once more, behind the repartition.
"""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock import aggregators as agg
from penstock.topologies.graph.topology import Topology

WINDOW_MS = 10_000
INPUTS = ("orders", "users")
OUTPUTS = ("joined", "audit", "counts", "cities", "windows", "behind")
STORES = ("per-user", "per-commit", "window", "per-city")


def _joined(order: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    return {**order, "city": user["city"]}


def build(prefix: str) -> Topology:
    """The topology; its topics are ``<prefix>-<name>``."""
    builder = ps.StreamsBuilder("chaos", emission="every_update")
    orders = builder.stream(f"{prefix}-orders", value=dict)
    users = builder.table(f"{prefix}-users", value=dict, bootstrap=True)
    joined = orders.join(users, _joined)
    joined.to(f"{prefix}-joined")
    per_user = joined.group_by_key()
    per_user.count(name="per-user").to_stream().map_values(str, value=str).to(f"{prefix}-counts")
    audit = per_user.count(name="per-commit", emission="per_commit").to_stream()
    audited = audit.map_values(lambda n: {"audit": n}, value=dict)
    audited.to(f"{prefix}-joined")
    audited.to(f"{prefix}-audit")
    by_city = joined.map(lambda user, order: (order["city"], {**order, "user": user}), key=str, value=dict)
    behind = by_city.repartition(name="by-city")
    behind.to(f"{prefix}-behind")
    groups = behind.group_by_key()
    groups.count(name="per-city").to_stream().map_values(str, value=str).to(f"{prefix}-cities")
    windows = groups.windowed_by(ps.tumbling(WINDOW_MS, grace="6h"))
    sums = windows.agg(name="window", n=agg.count(), total=agg.sum_("amount", number=int))
    sums.to_stream(lambda window, _: f"{window.key}@{window.start_ms}", key=str).to(f"{prefix}-windows")
    return builder.build()
