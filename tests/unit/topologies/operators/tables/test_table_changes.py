"""A table's changes with the rows that they replace."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.streams.task.task_options import TaskOptions

UPDATES = [("a", 1), ("b", 5), ("a", 2), ("c", None), ("a", None), ("a", None), ("b", 5), ("a", 3)]


def changes_of(built: ps.StreamsBuilder, updates: list[tuple[str, Any]], *, batch: int, restart: bool) -> list[Any]:
    """What arrives in the topic ``out``, where both are written as a list."""
    options = TaskOptions(batch_max_records=batch)
    with ps.TopologyTestDriver(built.build(), options=options, auto_commit=False) as driver:
        for half in (updates[:4], updates[4:]):
            driver.pipe_sequence([("rows", ps.Record(key, value, i)) for i, (key, value) in enumerate(half)])
            driver.commit()
            if restart:
                driver.restart()
        return [(r.key, *r.value) for r in driver.read("out")]


def listed(change: ps.Change[int]) -> list[int | None]:
    """Both rows."""
    return [change.new, change.old]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_each_change_has_the_row_that_it_replaces(batch: int, restart: bool) -> None:
    """A deletion of what is not there is none."""
    builder = ps.StreamsBuilder("changes")
    builder.table("rows", key=str, value=int).to_changes().map_values(listed, value=list).to("out")
    found = changes_of(builder, UPDATES, batch=batch, restart=restart)
    expected = [("a", 1, None), ("b", 5, None), ("a", 2, 1), ("a", None, 2), ("b", 5, 5), ("a", 3, None)]
    assert found == expected


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_between_commits_the_last_one_counts(batch: int, restart: bool) -> None:
    """What is replaced is what was emitted last."""
    builder = ps.StreamsBuilder("changes", emission="per_commit")
    sums = builder.stream("rows", key=str, value=int).group_by_key().reduce(lambda a, b: a + b)
    sums.to_changes().map_values(listed, value=list).to("out")
    found = changes_of(builder, [(k, v or 0) for k, v in UPDATES], batch=batch, restart=restart)
    assert found == [("a", 3, None), ("b", 5, None), ("c", 0, None), ("a", 6, 3), ("b", 10, 5)]


def test_they_may_be_sent_to_another_task() -> None:
    """Through a repartition topic, as Kafka Streams writes changes there."""
    builder = ps.StreamsBuilder("changes")
    changes = builder.table("rows", key=str, value=int).to_changes()
    by_size = changes.select_key(lambda key, change: "big" if (change.new or change.old or 0) > 2 else "small")
    by_size.group_by_key().aggregate(list, lambda k, change, all: [*all, listed(change)], value=list).to_stream().to(
        "out"
    )
    options = TaskOptions()
    with ps.TopologyTestDriver(builder.build(), options=options) as driver:
        driver.pipe_sequence([("rows", ps.Record(key, value, i)) for i, (key, value) in enumerate(UPDATES)])
        last = {r.key: r.value for r in driver.read("out")}
    assert last == {"small": [[1, None], [2, 1], [None, 2]], "big": [[5, None], [5, 5], [3, None]]}
