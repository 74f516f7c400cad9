"""A web server's access log in micro-batches of one second, as with Spark's DStreams. Each function is a topology.

The log's lines are in Apache's common or combined format; their own time is event time. Hits are counted under the
client's address. An interval's results are written when the watermark has passed its end.
"""

from __future__ import annotations

from typing import Any

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.micro_batches import MicroBatches
from penstock.topologies.examples.access_lines import AccessLine, access_log, access_time
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness

INTERVAL = "1s"


def _add(a: int, b: int) -> int:
    return a + b


def _subtract(total: int, part: int) -> int:
    return total - part


def _lines(builder: StreamsBuilder, source: str) -> MicroBatches[str, AccessLine]:
    """The log in batches. If a partition is silent for ten seconds, the others no longer wait for it."""
    strategy = bounded_out_of_orderness(0, idle="10s")
    lines = builder.stream(source, value=access_log(), timestamp=access_time, watermark=strategy)
    return lines.micro_batches(INTERVAL)


def _hits(builder: StreamsBuilder, source: str) -> MicroBatches[str, int]:
    """A 1 under the client's address for every line."""
    return _lines(builder, source).map(lambda _, line: (line.host, 1), value=int)


def hits_per_ip(source: str = "access-log", output: str = "hits") -> Topology:
    """The hits of each address in each second."""
    builder = StreamsBuilder("access-log-hits")
    _hits(builder, source).reduce_by_key(_add).to(output)
    return builder.build()


def hits_by_count(source: str = "access-log", output: str = "hits-by-count") -> Topology:
    """The hits of each address in each second, most first, equal ones by address."""
    builder = StreamsBuilder("access-log-by-count")
    counts = _hits(builder, source).reduce_by_key(_add)
    counts.transform(lambda pairs: sorted(pairs, key=lambda pair: (-pair[1], pair[0]))).to(output)
    return builder.build()


def hits_of_both(source: str = "access-log", other: str = "other-log", output: str = "hits-of-both") -> Topology:
    """Addresses that are in both logs in the same second, with their hits in each."""
    builder = StreamsBuilder("access-log-join")
    mine, theirs = (_hits(builder, topic).reduce_by_key(_add) for topic in (source, other))
    mine.join(theirs, lambda a, b: {"here": a, "there": b}, value=dict).to(output)
    return builder.build()


def hits_in_window(source: str = "access-log", output: str = "hits-in-window") -> Topology:
    """All hits of the last three seconds, emitted every second under the window's start in milliseconds."""
    builder = StreamsBuilder("access-log-window")
    _hits(builder, source).window("3s", "1s").count().to(output)
    return builder.build()


def hits_of_five_seconds(source: str = "access-log", output: str = "hits-of-five", *, inverse: bool = True) -> Topology:
    """The hits of each address in the last five seconds, emitted every second. With ``inverse`` each window is
    computed from the one before: the new second is added and the oldest removed. Without it each window is the sum of
    its seconds. The answers are equal."""
    builder = StreamsBuilder("access-log-five")
    taken_out: Any = _subtract if inverse else None
    _hits(builder, source).reduce_by_key_and_window(_add, taken_out, "5s", "1s").to(output)
    return builder.build()


def bytes_of_five_seconds(
    source: str = "access-log", output: str = "bytes-of-five", *, inverse: bool = True
) -> Topology:
    """The bytes sent to all clients in the last five seconds, emitted every second under the window's start."""
    builder = StreamsBuilder("access-log-bytes")
    sizes = _lines(builder, source).map_values(lambda line: line.size or 0, value=int)
    sizes.reduce_by_window(_add, _subtract if inverse else None, "5s", "1s").to(output)
    return builder.build()


def total_hits(source: str = "access-log", output: str = "total-hits") -> Topology:
    """The hits of each address since the beginning, all of them emitted every second."""
    builder = StreamsBuilder("access-log-totals")
    _hits(builder, source).update_state_by_key(lambda new, total: (total or 0) + sum(new)).to(output)
    return builder.build()
