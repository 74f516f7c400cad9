"""Aggregations per key, and the partial aggregates that are combined before a repartition."""
