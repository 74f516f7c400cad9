"""Topologies and values on their way into Spark's executors, pickled by what PySpark has for it."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle

from penstock.streams.batch import shipping
from penstock.streams.batch.shipping import ShippedTopology, ShippedValue, TopologyRef


def ship(ref: TopologyRef) -> ShippedTopology:
    """``ref`` in the form that travels. Raises ``TopologyError`` for what cannot."""
    return shipping.ship(ref, cloudpickle.dumps)


def ship_value(value: Any) -> ShippedValue | None:
    """A type or a name of a serde in the form that travels; ``None`` stays. Raises ``TopologyError`` for what cannot."""
    return shipping.ship_value(value, cloudpickle.dumps)
