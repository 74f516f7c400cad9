"""The Yahoo Streaming Benchmark pipeline, against a count made without it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import ysb
from penstock.topologies.graph.topology import Topology

SEED = 7
START_MS = 1_700_000_000_000
WINDOW_MS = 10_000
HOUR_MS = 3_600_000
CAMPAIGNS = {f"ad-{i}": f"campaign-{i % 3}" for i in range(9)}


def ads() -> list[Record]:
    """The table of ads, as its topic holds it."""
    return [
        Record(ad.encode(), b'{"campaign_id":"%s"}' % campaign.encode(), START_MS - HOUR_MS)
        for ad, campaign in CAMPAIGNS.items()
    ]


def event(ad: str, event_type: str, at_ms: int) -> Record:
    """An event with the fields that the benchmark's generator writes."""
    value = (
        f'{{"user_id":"u","page_id":"p","ad_id":"{ad}","ad_type":"mail","event_type":"{event_type}",'
        f'"event_time":{at_ms},"ip_address":"1.2.3.4"}}'
    )
    return Record(ad.encode(), value.encode(), at_ms)


def driven(drive: Callable[[Topology], TopologyTestDriver], topology: Topology) -> TopologyTestDriver:
    """A driver that has read the ads."""
    driver = drive(topology)
    driver.pipe_raw({"ads": ads()})
    return driver


def test_counts_equal_an_independent_count(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """Views of known ads are counted, each in the window of its time, in any order within a minute."""
    rng = random.Random(SEED)
    events, expected = [], Counter[str]()
    for i in range(2_000):
        ad, kind = f"ad-{rng.randrange(11)}", rng.choice(["view", "click", "purchase"])
        at_ms = START_MS + i * 50 - rng.randrange(60_000)
        events.append(event(ad, kind, at_ms))
        if kind == "view" and ad in CAMPAIGNS:
            expected[f"{CAMPAIGNS[ad]}@{at_ms - at_ms % WINDOW_MS}"] += 1
    driver = driven(drive, ysb.build())
    driver.pipe_raw({"events": events})
    written = driver.read("campaign-views")
    assert len(written) == expected.total(), f"seed {SEED}"
    assert {r.key: int(r.value) for r in written} == expected, f"seed {SEED}"


def test_per_commit_writes_each_window_once(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """Three views of one campaign in one commit give one count; topics can be named."""
    driver = drive(ysb.build("in", "table", "out", emission="per_commit"))
    driver.pipe_raw({"table": ads()})
    driver.pipe_raw({"in": [event(ad, "view", START_MS) for ad in ("ad-0", "ad-3", "ad-6")]})
    assert driver.read("out") == [Record(f"campaign-0@{START_MS}", "3", START_MS)]


def test_a_window_closes_an_hour_after_its_end(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """A view of the first window counts while stream time is below its end plus an hour."""
    driver = driven(drive, ysb.build())
    closing_ms = START_MS + WINDOW_MS + HOUR_MS
    times = [START_MS, closing_ms - 1, START_MS + 1, closing_ms, START_MS + 2]
    driver.pipe_raw({"events": [event("ad-0", "view", t) for t in times]})
    first = [r.value for r in driver.read("campaign-views") if r.key == f"campaign-0@{START_MS}"]
    assert first == ["1", "2"]
