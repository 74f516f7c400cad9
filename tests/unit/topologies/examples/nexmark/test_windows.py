"""Queries of Nexmark over windows of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from penstock.state.log import Record, Windowed
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.nexmark import windows
from penstock.topologies.examples.nexmark.model import BID, Bid, NexmarkEvent
from penstock.topologies.graph.topology import Topology
from tests.unit.topologies.examples.nexmark import oracle
from tests.unit.topologies.examples.nexmark.running import (
    COUNT,
    EVENTS,
    LAST_MS,
    RECORDS,
    Way,
    bag,
    check_bag,
    closing_record,
    in_every_way,
)


@in_every_way
def test_q5_the_auctions_with_the_most_bids(way: Way) -> None:
    check_bag(windows.q5, oracle.bag_q5, way)


@in_every_way
def test_q7_the_highest_bids(way: Way) -> None:
    check_bag(windows.q7, oracle.bag_q7, way)


@in_every_way
def test_q11_sessions(way: Way) -> None:
    check_bag(windows.q11, oracle.bag_q11, way)


@pytest.mark.parametrize("batch", [1, 10_000])
def test_q12_counts_by_the_clock(batch: int) -> None:
    """A third of the events arrives at 0 s, the next at 7 s, the last at 14 s: windows close at 10 s and 20 s."""
    third = COUNT // 3
    options = TaskOptions(batch_max_records=batch)
    with TopologyTestDriver(windows.q12(), options=options) as driver:
        for i in range(3):
            driver.pipe_raw({"nexmark": RECORDS[i * third : (i + 1) * third]})
            if i == 1:
                driver.restart(restore=True)
            driver.advance_wall_time(7_000)
        written = driver.read("q12")
    expected = []
    for start, some in ((0, EVENTS[: 2 * third]), (10_000, EVENTS[2 * third :])):
        for bidder, count in Counter(b.bidder for b in oracle.bids_of(some)).items():
            expected.append({"bidder": bidder, "bid_count": count, "starttime": start, "endtime": start + 10_000})
    assert bag([r.value for r in written]) == bag(expected)


@pytest.mark.parametrize("query", [windows.q5, windows.q7, windows.q11])
def test_results_leave_when_the_watermark_has_passed_their_window(query: Callable[[], Topology]) -> None:
    """Before the end of all events: the windows up to 4 s before the last one, and no others."""
    topology = query()
    with TopologyTestDriver(topology) as driver:
        driver.pipe_raw({"nexmark": RECORDS})
        early = driver.read(topology.name)
        driver.pipe_raw({"nexmark": [closing_record()]})
        rest = driver.read(topology.name)
    assert early and rest

    def end_ms(r: Record) -> int:
        # query 7 gives bids: the end of a bid's window is not far
        return r.key.end_ms if isinstance(r.key, Windowed) else r.value.dateTime // 10_000 * 10_000 + 10_000

    # through a repartition topic watermarks go in steps of 200 ms
    assert max(map(end_ms, early)) <= LAST_MS - 4_000
    assert min(map(end_ms, rest)) > LAST_MS - 4_200


def bid(price: int, time_ms: int) -> Bid:
    """A bid of which only price and time matter."""
    return Bid(1, 2, price, "Google", "", time_ms, "")


def test_q7_takes_a_bid_at_the_end_of_a_window_into_both() -> None:
    bids = [
        bid(5, 1_000),
        bid(9, 3_000),
        bid(9, 10_000),
        bid(9, 12_000),
        bid(8, 19_999),
        bid(7, 20_000),
        bid(9, 20_001),
    ]
    events = [NexmarkEvent(BID, bid=b) for b in bids]
    with TopologyTestDriver(windows.q7()) as driver:
        driver.pipe_raw({"nexmark": [Record(None, msgspec.json.encode(e), e.dateTime) for e in events]})
        driver.pipe_raw({"nexmark": [closing_record()]})
        written = [r.value for r in driver.read("q7")]
    assert [b.dateTime for b in written].count(10_000) == 2
    assert bag(written) == bag(oracle.bag_q7(events))
