"""What a versioned table keeps: the history that can be read, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder

MINUTE_MS = 60_000


def kept(records: list[Record], size: int = 100) -> list[tuple[bytes, Any]]:
    """The versions that are left of a table with a history of a minute."""
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").join(builder.table("rows", history="1m"), lambda a, b: a + b, value=str).to("out")
    with TopologyTestDriver(builder.build(), options=TaskOptions(batch_max_records=size)) as driver:
        driver.pipe_all("rows", records)
        (state,) = (s for task in driver.tasks.values() for name, s in task.stores.items() if name == "rows")
        return [(key[:-8], row[0]) for key, row, _ in state.range()]


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_deleted_keys_and_replaced_versions_are_removed(size: int) -> None:
    """Though their keys are never updated again; rows that nobody changes stay."""
    keys = [f"k{i}" for i in range(50)]
    records = [Record(key, value, at) for at, value in enumerate(("old", "new")) for key in [*keys, "idle"]]
    records += [Record(key, None, 2) for key in keys]
    records += [Record("busy", str(i), MINUTE_MS * i) for i in range(2, 300)]
    assert kept(records, size) == [(b"busy", "298"), (b"busy", "299"), (b"idle", "new")]


def test_what_a_read_may_reach_stays() -> None:
    """The version that held at the horizon, and a tombstone until then."""
    records = [Record("a", "1", 0), Record("a", None, 10), Record("b", "1", 0), Record("b", "2", 10)]
    assert kept([*records, *(Record("z", "z", MINUTE_MS + 9) for _ in range(20))]) == [
        (b"a", "1"),
        (b"a", None),
        (b"b", "1"),
        (b"b", "2"),
        (b"z", "z"),
    ]
    assert kept([*records, *(Record("z", "z", MINUTE_MS + 10) for _ in range(20))]) == [(b"b", "2"), (b"z", "z")]
