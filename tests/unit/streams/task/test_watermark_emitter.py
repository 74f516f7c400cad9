"""When a task announces its watermark: against the rule, applied place by place."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.streams.task.task_watermarks import TaskWatermarks, mark_of
from penstock.streams.task.watermark_emitter import RECORDS_PER_MARK, WatermarkEmitter

PARTITIONS = 2
COST = PARTITIONS * RECORDS_PER_MARK
MOST = 100 * COST
HOLD_MS = 400

Said = dict[int, int]
"""By place, how many tasks send marks like the one that was read there."""


def by_the_rule(marks: list[int], said: Said, credit: int) -> list[tuple[int, int]]:
    """The announcements, as place and watermark."""
    out, sent_ms = [], 0
    for place, watermark_ms in enumerate(marks):
        credit += 1
        if place in said:
            credit += -(-COST // said[place])
        paid = min(credit, MOST) >= COST
        if watermark_ms > sent_ms and (paid or watermark_ms >= sent_ms + HOLD_MS):
            credit = max(min(credit, MOST) - COST, 0)
            sent_ms = watermark_ms
            out.append((place, watermark_ms))
    return out


def emitted(marks: list[int], said: Said, credit: int, cuts: list[int]) -> list[tuple[int, int]]:
    """The announcements of a task whose batches end at these places."""
    watermarks = TaskWatermarks({}, {})
    watermarks.sent["between"] = (0, credit)
    time = SimpleNamespace(stride=10, before_ms=0, watermark_before_ms=0)
    emitter = WatermarkEmitter(time, "between", PARTITIONS, 0, 1, watermarks, HOLD_MS)
    out: list[tuple[int, int]] = []
    for start, stop in zip([0, *cuts], [*cuts, len(marks)], strict=True):
        watermarks.begin()
        time.times = time.watermarks = np.array(marks[start:stop], np.int64)
        watermarks.idle_by_place += [False] * (stop - start)
        watermarks.said_by += [(at - start, said[at]) for at in sorted(said) if start <= at < stop]
        half = (stop - start) // 2
        for until in (half, stop - start):  # as records reach the sink, and at the end
            for place, output in emitter.marks_before(until):
                mark = mark_of(output.headers[0]) if output.headers else None
                assert mark is not None
                assert len(output) == PARTITIONS
                out.append((start + place, mark.watermark_ms))
        emitter.note()
    assert watermarks.sent["between"][1] <= MOST
    return out


@pytest.mark.parametrize("seed", range(300))
def test_announcements_follow_the_rule_wherever_batches_end(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([1, 5, 60, 400, 3000])
    marks, now_ms = [], 0
    fast = rng.choice([0.02, 0.5, 1.0])
    for _ in range(count):
        now_ms += rng.choice([1, 1, 7, 150]) if rng.random() < fast else 0
        marks.append(now_ms)
    share = rng.choice([0.0, 0.01, 0.2, 1.0])
    said = {at: rng.choice([1, 2, 3, 60]) for at in range(count) if rng.random() < share}
    credit = rng.choice([0, 1, COST - 1, COST, 3 * COST, MOST])
    cuts = sorted(rng.randrange(1, count) for _ in range(rng.choice([0, 1, 10]))) if count > 1 else []
    assert emitted(marks, said, credit, cuts) == by_the_rule(marks, said, credit)
