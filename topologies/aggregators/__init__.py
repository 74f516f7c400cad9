"""Ready aggregates: values that define how records are folded, merged, subtracted and serialized (``base`` has the
rules).

Each takes its column: a field's name, a function of the value, or nothing for the value itself. ``agg`` combines
several into one.
"""

from __future__ import annotations

from penstock.topologies.aggregators.base import Aggregator, agg
from penstock.topologies.aggregators.keeping import count_distinct, first, last, list_, reduce_, set_
from penstock.topologies.aggregators.numeric import count, ewma, max_, mean, min_, std_dev, sum_, variance
from penstock.topologies.aggregators.ranked import max_by, min_by, top_k
from penstock.topologies.aggregators.sketches import (
    approx_distinct,
    bloom,
    count_min,
    frequency,
    heavy_hitters,
    might_hold,
    quantiles,
)

__all__ = [
    "Aggregator",
    "agg",
    "approx_distinct",
    "bloom",
    "count",
    "count_distinct",
    "count_min",
    "ewma",
    "first",
    "frequency",
    "heavy_hitters",
    "last",
    "list_",
    "max_",
    "max_by",
    "mean",
    "might_hold",
    "min_",
    "min_by",
    "quantiles",
    "reduce_",
    "set_",
    "std_dev",
    "sum_",
    "top_k",
    "variance",
]
