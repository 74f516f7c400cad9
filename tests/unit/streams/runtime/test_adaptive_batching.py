"""How many records a turn of the run loop takes."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.streams.ports.chunk import Chunk
from penstock.streams.runtime.adaptive_batching import (
    GRAVE_S,
    REMEMBERED_TURNS,
    TURN_MAX_BYTES,
    TURN_MAX_ROWS,
    AdaptiveBatchSize,
)
from penstock.topologies.operator_api.columns import BytesColumn


def chunk(records: int, size: int, columns: bool = False) -> Chunk:
    values = [b"v" * size] * records
    if not columns:
        return Chunk("t", 0, range(records), [None] * records, list(values), [0] * records)
    ends = np.arange(records + 1, dtype=np.int64) * size
    empty = BytesColumn(b"", np.zeros(records + 1, dtype=np.int64), np.ones(records, dtype=np.bool_))
    return Chunk("t", 0, range(records), empty, BytesColumn(b"".join(values), ends), [0] * records)


def test_turns_grow_while_there_is_more_and_shrink_when_caught_up() -> None:
    pace = AdaptiveBatchSize(1_000, 20_000, 0.05)
    seen = []
    for _ in range(6):
        seen.append(pace.records)
        pace.turned(pace.records, pace.records * 1e-6, 0)
    assert seen == [1_000, 2_000, 4_000, 8_000, 16_000, 20_000]
    seen = []
    for _ in range(6):
        pace.turned(50, 0.001, 0)
        seen.append(pace.records)
    assert seen == [10_000, 5_000, 2_500, 1_250, 1_000, 1_000]


def test_turn_that_takes_what_was_there_keeps_its_size() -> None:
    pace = AdaptiveBatchSize(1_000, 20_000, 0.05)
    pace.turned(1_000, 0.001, 0)
    for _ in range(5):
        pace.turned(1_500, 0.001, 0)
        assert pace.records == 2_000


def test_buffered_records_count_as_more() -> None:
    pace = AdaptiveBatchSize(1_000, 20_000, 0.05)
    pace.turned(10, 0.0001, 5_000)
    assert pace.records == 2_000


def test_slow_records_make_small_turns_at_once() -> None:
    pace = AdaptiveBatchSize(1_000, 20_000, 0.05)
    pace.turned(1_000, 10.0, 9_000)  # 10 ms each
    assert pace.records == 5
    for _ in range(5):
        pace.turned(pace.records, pace.records * 0.01, 9_000)
        assert 4 <= pace.records <= 5
    pace.turned(5, 60.0, 9_000)
    assert pace.records == 1
    pace.turned(0, 0.0, 0)
    assert pace.records == 1


def after_quick_turns(records: int, seconds: float) -> AdaptiveBatchSize:
    """As many as are remembered."""
    pace = AdaptiveBatchSize(100, 20_000, 0.01)
    for _ in range(REMEMBERED_TURNS):
        pace.turned(records, seconds, 0)
    return pace


def test_one_slow_turn_among_quick_ones_is_the_machines() -> None:
    pace = after_quick_turns(20, 0.001)
    pace.turned(20, 0.026, 130)
    assert pace.records == 100
    pace.turned(130, 0.002, 0)
    assert pace.records == 200


def test_records_that_became_slow_are_believed_after_a_few_turns() -> None:
    pace = after_quick_turns(20, 0.0002)
    seen = []
    for _ in range(5):
        pace.turned(100, 0.1, 9_000)
        seen.append(pace.records)
    assert seen == [100, 100, 100, 10, 10]


def test_a_turn_that_took_very_long_is_believed_at_once() -> None:
    pace = after_quick_turns(100, 0.001)
    pace.turned(100, GRAVE_S * 2, 9_000)
    assert pace.records == 1


def test_turns_recover_from_a_pause_of_the_machine() -> None:
    pace = AdaptiveBatchSize(1_000, 20_000, 0.05)
    pace.turned(1_000, 1.0, 9_000)
    assert pace.records == 50
    for _ in range(12):
        pace.turned(pace.records, pace.records * 1e-6, 9_000)
    assert pace.records == 20_000


@pytest.mark.parametrize("columns", [False, True])
def test_large_records_make_small_turns(columns: bool) -> None:
    pace = AdaptiveBatchSize(1_000, 20_000, 0.05)
    size = TURN_MAX_BYTES // 100
    pace.took([chunk(3, size, columns), chunk(1, size, columns)])
    pace.turned(4, 0.0, 9_000)
    assert pace.records == 100
    pace.took([])
    pace.turned(100, 0.0, 9_000)
    assert pace.records == 100
    for _ in range(12):
        pace.took([chunk(3, 10, columns)])
        pace.turned(100, 0.0, 30_000)
    assert pace.records == 20_000


def test_turns_are_smaller_where_memory_is_bounded() -> None:
    pace = AdaptiveBatchSize(1_000, 20_000, 0.05, 1 << 20)
    pace.took([chunk(3, 1 << 10, True)])
    pace.turned(1_000, 0.0, 9_000)
    assert pace.records == 1_024


def test_turns_of_rows_stay_small_whatever_small_polls_came_as() -> None:
    pace = AdaptiveBatchSize(1_000, 20_000, 0.05)
    seen = []
    for _ in range(6):
        pace.took([chunk(pace.records, 10)])
        pace.turned(pace.records, 0.0, 30_000)
        seen.append(pace.records)
    assert seen == [2_000, TURN_MAX_ROWS, *[TURN_MAX_ROWS] * 4]
    pace.took([chunk(TURN_MAX_ROWS, 10, columns=True)])
    for _ in range(3):
        pace.turned(pace.records, 0.0, 30_000)
        pace.took([chunk(10, 10)])
    assert pace.records == 20_000
