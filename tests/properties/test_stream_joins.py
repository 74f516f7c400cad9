"""Stream–stream joins against a naive interpreter: lists of everything ever seen, one record at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.streams.task.task_options import TaskOptions

BATCH_SIZES = (1, 2, 7, 10_000)


class Row(NamedTuple):
    side: int
    key: str | None
    value: str | None
    ts: int


class Join(NamedTuple):
    before: int
    after: int
    grace: int
    keeps: tuple[bool, bool]
    condition: bool


rows = st.lists(
    st.builds(
        Row,
        st.integers(0, 1),
        st.sampled_from(["a", "ab", "b", None]),
        st.sampled_from(["x", "y", "z", None]),
        st.integers(0, 60),
    ),
    max_size=40,
)
joins = st.builds(
    Join,
    st.integers(-3, 12),
    st.integers(-3, 12),
    st.integers(0, 10),
    st.sampled_from([(False, False), (True, False), (False, True), (True, True)]),
    st.booleans(),
).filter(lambda join: join.before + join.after >= 0)


def paired(left: str, right: str) -> bool:
    """The condition of some joins."""
    return left != right


def joined(left: str | None, right: str | None) -> list[str | None]:
    """The joiner."""
    return [left, right]


class Kept(NamedTuple):
    """A record as the interpreter keeps it: arrival number, and whether it has met somebody."""

    row: Row
    number: int


def interpreted(join: Join, some: list[Row]) -> list[tuple[str | None, list[str | None], int]]:
    """Kafka Streams' semantics, as its documentation tells them."""
    out: list[tuple[str | None, list[str | None], int]] = []
    kept: tuple[list[Kept], list[Kept]] = ([], [])
    waiting: list[Kept] = []
    now = -1
    look = (join.after, join.before)
    size = join.before + join.after
    keep = (max(join.after, size) + join.grace, max(join.before, size) + join.grace)

    def alone(row: Row) -> None:
        out.append((row.key, joined(row.value, None) if row.side == 0 else joined(None, row.value), row.ts))

    def visible(kept_row: Kept, at: int) -> bool:
        return kept_row.row.ts >= at - keep[kept_row.row.side]

    for number, row in enumerate(some):
        seen = now
        if row.key is not None and row.value is not None:
            now = max(now, row.ts)
        low, high = (row.ts - join.before, row.ts + join.after)
        if row.side == 1:
            low, high = (row.ts - join.after, row.ts + join.before)
        partners = [
            k
            for k in kept[1 - row.side]
            if row.value is not None
            and k.row.key == row.key
            and low <= k.row.ts <= high
            and visible(k, seen)
            and (
                not join.condition or paired(*((row.value, k.row.value) if row.side == 0 else (k.row.value, row.value)))
            )
        ]
        partners.sort(key=lambda k: (k.row.ts, k.number))
        if now > seen:
            over = [k for k in waiting if k.row.ts + look[k.row.side] + join.grace < now]
            for k in sorted(over, key=lambda k: (k.row.ts, -k.row.side, k.row.key, k.number)):
                alone(k.row)
                waiting.remove(k)
        if row.value is None:
            continue
        if row.key is None:
            if join.keeps[row.side]:
                alone(row)
            continue
        me = Kept(row, number)
        if visible(me, now):
            kept[row.side].append(me)
        for k in partners:
            pair = (row.value, k.row.value) if row.side == 0 else (k.row.value, row.value)
            out.append((row.key, joined(*pair), max(row.ts, k.row.ts)))
            if k in waiting:
                waiting.remove(k)
        if not partners and join.keeps[row.side]:
            if row.ts + look[row.side] < now:
                alone(row)
            else:
                waiting.append(me)
    return out


def driven(join: Join, some: list[Row], batch_size: int, restart_at: int | None) -> list[Any]:
    """The real topology, in the order of arrival."""
    builder = ps.StreamsBuilder("joins")
    left, right = builder.stream("left", value=str), builder.stream("right", value=str)
    method = {
        (False, False): left.join,
        (True, False): left.left_join,
        (False, True): left.right_join,
        (True, True): left.outer_join,
    }[join.keeps]
    method(
        right,
        joined,
        before=join.before,
        after=join.after,
        grace=join.grace,
        condition=paired if join.condition else None,
        value=list,
    ).to("out")
    with ps.TopologyTestDriver(
        builder.build(), arrival_order=True, options=TaskOptions(batch_max_records=batch_size)
    ) as driver:
        for part in (some[:restart_at], some[restart_at:]) if restart_at is not None else (some,):
            driver.pipe_sequence([(("left", "right")[r.side], ps.Record(r.key, r.value, r.ts)) for r in part])
            if restart_at is not None:
                driver.restart()
        return [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]


@settings(deadline=None, max_examples=150)
@given(joins, rows, st.data())
def test_the_same_as_interpreted(join: Join, some: list[Row], data: st.DataObject) -> None:
    """At every batch size, and when the task starts again in the middle."""
    expected = interpreted(join, some)
    for size in BATCH_SIZES:
        assert driven(join, some, size, None) == expected, size
    at = data.draw(st.integers(0, len(some)), "restart at")
    assert driven(join, some, 3, at) == expected


def test_buffers_stay_small() -> None:
    """Over ten times the horizon the stores hold what the horizon holds."""
    builder = ps.StreamsBuilder("soak")
    left, right = builder.stream("left", value=str), builder.stream("right", value=str)
    left.outer_join(right, joined, within=100, grace=50, value=list, name="both").to("out")
    sizes = []
    with ps.TopologyTestDriver(builder.build()) as driver:
        for step in range(2_500):
            driver.pipe(("left", "right")[step % 2], f"k{step % 7}", "v", step)
            if step % 250 == 249:
                (task,) = driver.tasks.values()
                sizes.append(sum(task.backend.size_bytes(s) for s in task.stores))
    assert max(sizes[2:]) <= 1.2 * min(sizes[2:]), sizes
