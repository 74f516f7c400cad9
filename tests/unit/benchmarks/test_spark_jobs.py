"""The topology of the Spark benchmark, held against the data's own numbers, and the rows of its table."""

from __future__ import annotations

from benchmarks import data
from benchmarks.spark_jobs import HEAD, Figure, Turn
from benchmarks.spark_work import WINDOW_MS, Topic, counted, windows_of
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver

TOPIC = Topic("", "clicks", 2_000, 50, 1_700_000_000_000)


def test_windows_are_counted_as_the_data_say() -> None:
    (block,) = data.clicks(TOPIC.records, TOPIC.base_ms, TOPIC.keys)
    assert block.keys is not None
    rows = [Record(*row) for row in zip(block.keys, block.values, block.timestamps, strict=True)]
    with TopologyTestDriver(counted(TOPIC.name)) as driver:
        driver.pipe_raw({TOPIC.name: rows})
        (task,) = driver.tasks.values()
        stored = dict(task.backend.range("counts", None, None))
    found = {(k[8:].decode(), int.from_bytes(k[:8], "big")): int.from_bytes(v[8:], "big") for k, v in stored.items()}
    right = windows_of(TOPIC)
    assert found == right
    assert sum(right.values()) == TOPIC.records
    assert all(start % WINDOW_MS == 0 for _, start in right)


def test_a_row_has_medians_and_the_ratio_of_each_turn() -> None:
    figure = Figure("replay", 1_000, [Turn(2.0, 1.0, ""), Turn(3.0, 1.0, ""), Turn(3.0, 2.0, "")])
    row = dict(zip(HEAD, figure.row(), strict=True))
    assert (row["Penstock, s"], row["s"], row["ratio"]) == ("3.0", "1.0", "2.00 [1.50–3.00]")
    void = Figure("replay", 1_000, [*figure.turns, Turn(1.0, 1.0, "it is wrong")])
    assert void.void == "it is wrong"
    assert void.row()[-1] == "VOID: it is wrong"
