"""Queries of Nexmark over windows of time.

Results are emitted when their window closes: by the watermark, 4 s behind the newest event, or by the clock.
"""

from __future__ import annotations

from penstock.topologies.aggregators import top_k
from penstock.topologies.examples.nexmark.model import Counted
from penstock.topologies.examples.nexmark.streams import Nexmark
from penstock.topologies.expressions.functions import col, key, left, struct, value, window_end, window_start
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import hopping, session, tumbling
from penstock.topologies.windows.durations import Duration


def q5(size: Duration = "10s", slide: Duration = "2s") -> Topology:
    """Hot items: the auctions with the most bids within a window, at every slide. Counts are emitted when their
    window closes, stamped with its last millisecond, so that all counts of a window fall into one window of a slide."""
    nexmark = Nexmark("q5")
    by_auction = nexmark.bids.group_by(col("auction")).windowed_by(hopping(size, slide, grace=0))
    counts = by_auction.count(emission="on_close").to_stream().with_timestamp(window_end() - 1)
    counted = counts.map_values(struct(auction=key()["key"], num=value()), value=Counted)
    ends = counted.group_by(window_end()).windowed_by(tumbling(slide, grace=0))
    hottest = ends.aggregate(top_k(1, by=col("num"), ties=True, value=Counted), emission="on_close").to_stream()
    return nexmark.topology(hottest.flat_map_values(lambda most: most, value=Counted))


def q7(size: Duration = "10s") -> Topology:
    """Highest bid: the bids whose price is the highest of their window. A bid at the end of a window, which is the
    first millisecond of the next one, counts for both."""
    nexmark = Nexmark("q7")
    windows = nexmark.bids.group_by(col("dateTime").floor_time(size)).windowed_by(tumbling(size, grace=0))
    highest = windows.aggregate(col("price").max(), emission="on_close").to_stream()
    ends = highest.with_timestamp(window_end()).select_key(value())
    return nexmark.topology(nexmark.bids.select_key(col("price")).join(ends, left(), before=0, after=size, grace=0))


def q11(gap: Duration = "10s") -> Topology:
    """User sessions: the bids that each user makes with less than a gap between them."""
    nexmark = Nexmark("q11")
    sessions = nexmark.bids.group_by(col("bidder")).windowed_by(session(gap, grace=0, bounds="gap"))
    counts = sessions.count(emission="on_close").to_stream()
    fields = {"bidder": key()["key"], "bid_count": value(), "starttime": window_start(), "endtime": window_end()}
    return nexmark.topology(counts.select(**fields))


def q12(size: Duration = "10s") -> Topology:
    """Processing time windows: the bids of each user that were processed within a wall-clock window. Readings of the
    clock are journaled."""
    nexmark = Nexmark("q12")
    windows = nexmark.bids.group_by(col("bidder")).windowed_by(tumbling(size, time="processing"))
    counts = windows.count(emission="on_close").to_stream()
    fields = {"bidder": key()["key"], "bid_count": value(), "starttime": window_start(), "endtime": window_end()}
    return nexmark.topology(counts.select(**fields))
