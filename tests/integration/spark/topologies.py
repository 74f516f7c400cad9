"""Topologies of the tests, built in the executors: functions of functions, as the topics' names differ per test."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.topologies.builder import StreamsBuilder
from penstock.topologies.graph import Topology


def _joined(application_id: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    table = b.table(f"{application_id}.t")
    stream = b.stream(f"{application_id}.a").left_join(table, lambda v, t: v + b"|" + (t or b"-"), value=bytes)
    stream.group_by_key().aggregate(bytes, lambda k, v, agg: (agg + v)[-40:], value=bytes, name="seen").to_stream().to(
        f"{application_id}.out"
    )
    return b.build()


def joined(application_id: str) -> Any:
    """A stream joined with a table, then aggregated."""
    return partial(_joined, application_id)
