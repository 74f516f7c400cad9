"""Topologies of the tests. They are built in the executors too, so each is a function and the application's id."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import TumblingWindows


def _joined(application_id: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    table = b.table(f"{application_id}.t")
    stream = b.stream(f"{application_id}.a").left_join(table, lambda v, t: v + b"|" + (t or b"-"), value=bytes)
    seen = stream.group_by_key().aggregate(bytes, lambda k, v, agg: (agg + v)[-40:], value=bytes, name="seen")
    seen.to_stream().to(f"{application_id}.out")
    return b.build()


def joined(application_id: str) -> Any:
    """A stream joined with a table, then aggregated in the order of arrival."""
    return partial(_joined, application_id)


def _windowed(application_id: str, emission: Any) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes, emission=emission)
    stream = b.stream(f"{application_id}.a").select_key(lambda k, v: v[-1:])
    windows = TumblingWindows(1000, grace_ms=2000)
    counts = stream.group_by_key().windowed_by(windows).count(name="per-window")
    counts.to_stream().to(f"{application_id}.out")
    return b.build()


def windowed(application_id: str, emission: str = "every_update") -> Any:
    """Records by another key, through a repartition topic, counted per window."""
    return partial(_windowed, application_id, emission)


def _last(application_id: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    b.stream(f"{application_id}.in").group_by_key().aggregate(
        bytes, lambda key, value, old: None if value == b"x" else (old + value)[-20:], value=bytes, name="last"
    )
    return b.build()


def last(application_id: str) -> Any:
    """The last bytes per key; a value of ``x`` deletes the key."""
    return partial(_last, application_id)


def _of_all_kinds(application_id: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    rows = b.global_table(f"{application_id}.rows")
    stream = b.stream(f"{application_id}.in")
    stream.join_global(rows, lambda k, v: v[-1:], lambda v, row: v + (row or b"-"), name="met").to(
        f"{application_id}.met"
    )
    even, odd = f"{application_id}.even", f"{application_id}.odd"
    stream.to(lambda k, v: odd if int(v) % 2 else even, topics=[even, odd])
    stream.repartition(by="shuffle").map_values(lambda v: v + b"!", value=bytes).to(f"{application_id}.spread")
    stream.group_by_key().count(name="counts")
    return b.build()


def of_all_kinds(application_id: str) -> Any:
    """A join with a global table, a sink that chooses among topics, a repartition that spreads keys, and a store."""
    return partial(_of_all_kinds, application_id)
