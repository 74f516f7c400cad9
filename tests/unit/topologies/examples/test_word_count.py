"""The rolling word count."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import word_count
from penstock.topologies.graph.topology import Topology

LINES = [
    "Storm Dublin Flink",
    "Apache Storm",
    "Spark Streaming  Storm",
    "Flink Apache",
    "Samza Flink Storm",
    "",
    "streaming bigdata FLINK",
]
GOLDEN = {
    "storm": 4,
    "dublin": 1,
    "flink": 4,
    "apache": 2,
    "spark": 1,
    "streaming": 2,
    "samza": 1,
    "bigdata": 1,
}


def records() -> list[Record]:
    """The lines, without keys, one per millisecond."""
    return [Record(None, line, t) for t, line in enumerate(LINES)]


def test_the_store_holds_the_golden_counts(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """Words are lower-cased; spaces between them do not count."""
    driver = drive(word_count.build())
    driver.pipe_all("lines", records())
    assert dict(driver.store("counts").all()) == GOLDEN


def test_every_update_is_written_in_order(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """The counts roll: one output per word, at the time of its line."""
    driver = drive(word_count.build())
    driver.pipe_all("lines", records())
    seen: dict[str, int] = {}
    expected = []
    for t, line in enumerate(LINES):
        for word in line.lower().split():
            seen[word] = seen.get(word, 0) + 1
            expected.append(Record(word, str(seen[word]), t))
    assert len(expected) == sum(GOLDEN.values())
    assert driver.read("word-counts") == expected


def test_per_commit_writes_the_last_count_of_each_word(
    drive: Callable[[Topology], TopologyTestDriver],
) -> None:
    """All lines in one commit give one output per word, in the order of its first change."""
    driver = drive(word_count.build(emission="per_commit"))
    driver.pipe_all("lines", records())
    written = [(r.key, int(r.value)) for r in driver.read("word-counts")]
    assert dict(written) == GOLDEN
