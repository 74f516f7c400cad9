"""Streams joined with versioned tables, with and without grace, and with global tables, against naive interpreters."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.streams.task.task_options import TaskOptions

BATCH_SIZES = (1, 2, 7, 10_000)
HISTORY_MS = 20


class Row(NamedTuple):
    table: bool
    key: str | None
    value: str | None
    ts: int


rows = st.lists(
    st.builds(
        Row,
        st.booleans(),
        st.sampled_from(["a", "ab", "b", None]),
        st.sampled_from(["x", "y", "z", None]),
        st.integers(0, 60),
    ),
    max_size=40,
)


def joined(left: str, right: str | None) -> list[str | None]:
    """The joiner."""
    return [left, right]


def interpreted(some: list[Row], left: bool, grace: int | None) -> list[tuple[str, list[str | None], int]]:
    """Every version ever seen in a list; held records in another."""
    out: list[tuple[str, list[str | None], int]] = []
    versions: dict[str | None, dict[int, str | None]] = {}
    table_now = stream_now = -1
    held: list[Row] = []

    def meet(row: Row) -> None:
        if row.value is None:
            return
        known = {} if row.key is None else versions.get(row.key, {})
        if row.ts < table_now - HISTORY_MS:
            known = {t: v for t, v in known.items() if t == max(known)}  # all that is left
        past = [t for t in known if t <= row.ts]
        found = known[max(past)] if past else None
        if found is not None or left:
            out.append((row.key, joined(row.value, found), row.ts))

    for row in some:
        if row.table and row.key is None:
            continue
        if row.table:
            now = max(table_now, row.ts)
            if row.ts >= now - HISTORY_MS:
                newest = max(versions.get(row.key, {}), default=-1)
                versions.setdefault(row.key, {})[row.ts] = row.value
                if row.ts >= newest:
                    table_now = max(table_now, row.ts)
            continue
        if grace is None or row.key is None or row.value is None:
            meet(row)
            continue
        stream_now = max(stream_now, row.ts)
        if row.ts < stream_now - grace:
            meet(row)
        else:
            held.append(row)
        due = [r for r in held if r.ts <= stream_now - grace]
        held = [r for r in held if r.ts > stream_now - grace]
        for r in sorted(due, key=lambda r: r.ts):
            meet(r)
    return out


def driven(topology: ps.Topology, some: list[Row], batch_size: int, restart_at: int | None) -> list[Any]:
    """The real topology, in the order of arrival."""
    with ps.TopologyTestDriver(
        topology, arrival_order=True, options=TaskOptions(batch_max_records=batch_size)
    ) as driver:
        for part in (some[:restart_at], some[restart_at:]) if restart_at is not None else (some,):
            driver.pipe_sequence([("rows" if r.table else "in", ps.Record(r.key, r.value, r.ts)) for r in part])
            if restart_at is not None:
                driver.restart()
        return [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]


@settings(deadline=None, max_examples=120)
@given(rows, st.booleans(), st.sampled_from([None, 0, 5, 20]), st.data())
def test_as_of_the_records_time(some: list[Row], left: bool, grace: int | None, data: st.DataObject) -> None:
    """At every batch size, and when the task starts again in the middle."""
    builder = ps.StreamsBuilder("versions", value=str)
    table = builder.table("rows", history=HISTORY_MS)
    stream = builder.stream("in")
    method = stream.left_join if left else stream.join
    method(table, joined, grace=grace, value=list).to("out")
    expected = interpreted(some, left, grace)
    for size in BATCH_SIZES:
        assert driven(builder.build(), some, size, None) == expected, size
    at = data.draw(st.integers(0, len(some)), "restart at")
    assert driven(builder.build(), some, 3, at) == expected


@settings(deadline=None, max_examples=60)
@given(rows, st.booleans(), st.data())
def test_global_rows_reach_every_task(some: list[Row], left: bool, data: st.DataObject) -> None:
    """Looked up by the value, whatever the record's own key."""
    builder = ps.StreamsBuilder("global", value=str)
    table = builder.global_table("rows")
    stream = builder.stream("in")
    method = stream.left_join_global if left else stream.join_global
    method(table, lambda key, value: {"x": "a", "y": "ab"}.get(value), joined, value=list).to("out")
    expected = []
    now: dict[str | None, str | None] = {}
    some = [row for row in some if row.key is not None or not row.table]
    for row in some:
        if row.table:
            now[row.key] = row.value
        elif row.value is not None:
            found = now.get({"x": "a", "y": "ab"}.get(row.value, ""))
            if found is not None or left:
                expected.append((row.key, joined(row.value, found), row.ts))
    for size in BATCH_SIZES:
        assert driven(builder.build(), some, size, None) == expected, size
    at = data.draw(st.integers(0, len(some)), "restart at")
    assert driven(builder.build(), some, 3, at) == expected


def test_old_versions_are_forgotten() -> None:
    """A row that changes all the time keeps no more versions than its history holds."""
    builder = ps.StreamsBuilder("soak", value=str)
    builder.stream("in").join(builder.table("rows", history=100), joined, value=list).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        sizes = []
        for ts in range(2_000):
            driver.pipe("rows", f"k{ts % 3}", "v", ts)
            if ts % 200 == 199:
                (task,) = driver.tasks.values()
                sizes.append(task.backend.size_bytes("rows"))
        assert max(sizes[1:]) == min(sizes[1:]), sizes


def test_a_bootstrap_input_comes_first() -> None:
    """Although its records are newer; then the others, by time."""
    builder = ps.StreamsBuilder("bootstrap", value=str)
    first = builder.stream("first", bootstrap=True)
    first.merge(builder.stream("other")).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw(
            {
                "other": [ps.Record(b"k", b"old", 1), ps.Record(b"k", b"older", 0)],
                "first": [ps.Record(b"k", b"new", 50), ps.Record(b"k", b"newer", 60)],
            }
        )
        assert [r.value for r in driver.read("out")] == ["new", "newer", "old", "older"]


def test_an_input_of_higher_priority_goes_first() -> None:
    """As long as it has records."""
    builder = ps.StreamsBuilder("priorities", value=str)
    builder.stream("urgent", priority=1).merge(builder.stream("other")).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw(
            {
                "other": [ps.Record(b"k", b"a", 1), ps.Record(b"k", b"b", 2)],
                "urgent": [ps.Record(b"k", b"u", 50)],
            }
        )
        driver.pipe_raw({"urgent": [ps.Record(b"k", b"v", 40)], "other": [ps.Record(b"k", b"c", 3)]})
        assert [r.value for r in driver.read("out")] == ["u", "a", "b", "v", "c"]
