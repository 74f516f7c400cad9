"""As-of joins and joins of many streams against naive interpreters that keep everything."""

from __future__ import annotations

from itertools import product
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


def rows(sides: int) -> st.SearchStrategy[list[Row]]:
    """Records of several streams in the order of arrival."""
    row = st.builds(
        Row,
        st.integers(0, sides - 1),
        st.sampled_from(["a", "ab", "b", None]),
        st.sampled_from(["x", "y", "z", None]),
        st.integers(0, 60),
    )
    return st.lists(row, max_size=40)


def joined(*values: str | None) -> list[str | None]:
    """The joiner."""
    return list(values)


def driven(topology: ps.Topology, some: list[Row], batch_size: int, restart_at: int | None) -> list[Any]:
    """The real topology, in the order of arrival."""
    options = TaskOptions(batch_max_records=batch_size)
    with ps.TopologyTestDriver(topology, arrival_order=True, options=options) as driver:
        for part in (some[:restart_at], some[restart_at:]) if restart_at is not None else (some,):
            driver.pipe_sequence([(f"in{r.side}", ps.Record(r.key, r.value, r.ts)) for r in part])
            if restart_at is not None:
                driver.restart()
        return [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]


class AsOf(NamedTuple):
    direction: str
    tolerance: int
    grace: int
    left: bool


def as_of_interpreted(join: AsOf, some: list[Row]) -> list[tuple[str | None, list[str | None], int]]:
    """Every right record ever seen; what is too old to be kept is left out by time alone."""
    out: list[tuple[str | None, list[str | None], int]] = []
    right: list[tuple[int, Row]] = []
    waiting: list[Row] = []
    now = floor = -1
    ahead = 0 if join.direction == "backward" else join.tolerance
    keep = max(join.grace + ahead + join.tolerance, 1)

    def meet(row: Row) -> None:
        low = row.ts - (0 if join.direction == "forward" else join.tolerance)
        found = [(n, r) for n, r in right if r.key == row.key and max(low, floor) <= r.ts <= row.ts + ahead]
        if join.direction == "forward":
            found = [(n, r) for n, r in found if r.ts >= row.ts]
        found.sort(key=lambda nr: (abs(nr[1].ts - row.ts), nr[1].ts > row.ts, -nr[0]))
        if found or join.left:
            out.append((row.key, joined(row.value, found[0][1].value if found else None), row.ts))

    for number, row in enumerate(some):
        plain = row.key is not None and row.value is not None
        if plain and row.side == 1:
            right.append((number, row))
        if plain and row.side == 0:
            if now >= row.ts + ahead + join.grace:
                meet(row)
                continue
            waiting.append(row)
        if row.ts > now:
            now = row.ts
            due = [r for r in waiting if r.ts + ahead + join.grace <= now]
            waiting = [r for r in waiting if r not in due]
            for r in sorted(due, key=lambda r: r.ts):
                meet(r)
            floor = max(floor, now - keep)
        if row.side == 0 and row.key is None and row.value is not None and join.left:
            out.append((None, joined(row.value, None), row.ts))
    return out


@settings(deadline=None, max_examples=120)
@given(
    st.builds(
        AsOf,
        st.sampled_from(["backward", "forward", "nearest"]),
        st.integers(0, 12),
        st.integers(0, 8),
        st.booleans(),
    ),
    rows(2),
    st.data(),
)
def test_as_of(join: AsOf, some: list[Row], data: st.DataObject) -> None:
    """At every batch size, and when the task starts again in the middle."""
    builder = ps.StreamsBuilder("as-of", value=str)
    right = builder.stream("in1")
    builder.stream("in0").join_as_of(
        right,
        joined,
        tolerance=join.tolerance,
        grace=join.grace,
        direction=join.direction,
        left=join.left,
        value=list,
    ).to("out")
    expected = as_of_interpreted(join, some)
    for size in BATCH_SIZES:
        assert driven(builder.build(), some, size, None) == expected, size
    at = data.draw(st.integers(0, len(some)), "restart at")
    assert driven(builder.build(), some, 3, at) == expected


def many_interpreted(within: int, grace: int, some: list[Row]) -> list[tuple[str, list[str | None], int]]:
    """All combinations of what each record finds."""
    out: list[tuple[str, list[str | None], int]] = []
    seen: list[list[tuple[int, Row]]] = [[], [], []]
    now = -1
    for number, row in enumerate(some):
        if row.key is not None and row.value is not None:
            floor = now - within - grace
            choices = [
                [(number, row)]
                if side == row.side
                else sorted(
                    (x for x in seen[side] if x[1].key == row.key and x[1].ts >= floor),
                    key=lambda x: (x[1].ts, x[0]),
                )
                for side in range(3)
            ]
            for chosen in product(*choices):
                times = [r.ts for _, r in chosen]
                if max(times) - min(times) <= within:
                    out.append((row.key, [r.value for _, r in chosen], max(times)))
            seen[row.side].append((number, row))
        now = max(now, row.ts)
    return out


@settings(deadline=None, max_examples=120)
@given(st.integers(0, 15), st.integers(0, 10), rows(3), st.data())
def test_many_streams(within: int, grace: int, some: list[Row], data: st.DataObject) -> None:
    """Three streams at every batch size, and when the task starts again in the middle."""
    builder = ps.StreamsBuilder("many", value=str)
    first, *others = (builder.stream(f"in{i}") for i in range(3))
    first.join_all(*others, joiner=joined, within=within, grace=grace, value=list).to("out")
    expected = many_interpreted(within, grace, some)
    for size in BATCH_SIZES:
        assert driven(builder.build(), some, size, None) == expected, size
    at = data.draw(st.integers(0, len(some)), "restart at")
    assert driven(builder.build(), some, 3, at) == expected
