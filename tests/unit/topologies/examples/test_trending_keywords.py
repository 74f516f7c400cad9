"""Trending keywords, held to a count without shards."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import trending_keywords
from penstock.topologies.graph.topology import Topology

Drive = Callable[[Topology], TopologyTestDriver]
MINUTE_MS = 60_000
SEED = 11


def trends(driver: TopologyTestDriver) -> list[tuple[int, list[tuple[str, int]]]]:
    return [(r.key, [(t["keyword"], t["count"]) for t in r.value]) for r in driver.read("trending")]


def test_the_three_best_of_each_minute(drive: Drive) -> None:
    driver = drive(trending_keywords.build())
    posts = [
        (1, "#Rain and #wind", 1_000),
        (17, "more #rain", 2_000),
        (2, "#sun", 59_999),
        (3, "#wind #wind", 30_000),
        (3, "#snow #rain", 31_000),
        (4, "no keyword at all", 61_000),
        (5, "#sun", 62_000),
        (6, "#later", 190_000),
    ]
    driver.pipe_all("posts", [Record(*post) for post in posts])
    first = [("rain", 3), ("wind", 3), ("snow", 1)]
    assert trends(driver) == [(0, first), (MINUTE_MS, [("sun", 1)])]


def test_shards_change_nothing(drive: Drive) -> None:
    rng = random.Random(SEED)
    posts, counts = [], dict[int, Counter[str]]()
    for i in range(1_500):
        at_ms = max(i * 120 - rng.randrange(4_000), 0)
        word = f"w{min(int(rng.expovariate(0.3)), 25):02d}"
        posts.append(Record(rng.randrange(1_000), f"about #{word}", at_ms))
        counts.setdefault(at_ms - at_ms % MINUTE_MS, Counter())[word] += 1
    driver = drive(trending_keywords.build())
    driver.pipe_all("posts", [*posts, Record(0, "", 100 * MINUTE_MS)])
    expected = [
        (start, sorted(some.items(), key=lambda pair: (-pair[1], pair[0]))[:3])
        for start, some in sorted(counts.items())
    ]
    assert len(expected) == 3
    assert trends(driver) == expected, f"seed {SEED}"
