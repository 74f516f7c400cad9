"""The queries of the many-queries benchmark, held against the data's own numbers."""

from __future__ import annotations

from benchmarks import data
from benchmarks.many_queries import output, topology, wanted
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver

RECORDS = 2_000


def test_queries_share_one_source_and_write_what_the_data_say() -> None:
    together = topology("clicks", range(10), 10)
    (sub,) = together.subtopologies
    assert sub.sources == ("clicks",)
    (block,) = data.clicks(RECORDS, 1_700_000_000_000)
    assert block.keys is not None
    rows = [Record(*row) for row in zip(block.keys, block.values, block.timestamps, strict=True)]
    right = wanted(RECORDS, 10)
    assert sum(right.values()) == RECORDS
    with TopologyTestDriver(together) as driver:
        driver.pipe_raw({"clicks": rows})
        for number in range(10):
            found = driver.read(output(number))
            assert len(found) == right[number]
            assert all(r.key == r.value for r in found)
