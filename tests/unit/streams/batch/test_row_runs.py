"""Runs end where the key changes, and go on over the ends of batches."""

from __future__ import annotations

import pyarrow as pa

from penstock.state.log import TopicPartition
from penstock.streams.batch.row_runs import partition_runs, place_runs, whole_runs


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_run_goes_on_in_the_next_batch() -> None:
    batches = [batch(place=[1, 1, 2], n=[0, 1, 2]), batch(place=[2, 1], n=[3, 4]), batch(place=[], n=[])]
    assert [(place, part["n"].to_pylist()) for place, part in place_runs(batches)] == [
        (1, [0, 1]),
        (2, [2]),
        (2, [3]),
        (1, [4]),
    ]
    whole = [
        (place, [n for part in parts for n in part["n"].to_pylist()])
        for place, parts in whole_runs(place_runs(batches))
    ]
    assert whole == [(1, [0, 1]), (2, [2, 3]), (1, [4])]


def test_equal_partitions_of_other_topics_are_other_runs() -> None:
    rows = batch(topic=["a", "b", "b", "b"], partition=[0, 0, 0, 1])
    found = [(tp, part.num_rows) for tp, part in partition_runs([rows])]
    assert found == [(TopicPartition("a", 0), 1), (TopicPartition("b", 0), 2), (TopicPartition("b", 1), 1)]
