"""A stateless task gives the same in pieces as in one, and no other task is cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.state.log import TaskId, TopicPartition
from penstock.streams.batch.published import TaskReport
from penstock.streams.batch.replay_task import FileTask
from penstock.streams.batch.stateless_pieces import in_pieces, joined, may_be_cut
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Topology
from tests.unit.streams.batch.replay_jobs import job_from_begin

TASK, READER, INPUT = TaskId(0, 0), TaskId(1, 0), TopicPartition("in", 0)
MOVED = "app-counts-partials-repartition"
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic="dead")


def sevenths(value: int) -> str:
    """Fails for each multiple of seven."""
    return str(1 / (value % 7))


def stateless() -> Topology:
    """Records that are dropped, repeated, sent elsewhere and refused."""
    builder = ps.StreamsBuilder("app", key=str, value=int)
    even, odd = builder.stream("in").filter(lambda k, v: v % 5 != 0).branch(lambda k, v: v % 2 == 0, default=True)
    even.flat_map_values(lambda v: range(v % 4)).to("out")
    odd.map_values(sevenths, value=str).map(lambda k, v: (f"{k}{k}", v), key=str, value=str).to("out-odd")
    odd.select_key(lambda k, v: v, key=int).repartition().to("out-by-value")
    return builder.build()


Build = Callable[[], Topology]
Input = tuple[str | bytes, bytes, int]


def made(
    build: Build, inputs: Sequence[Input], start: int, folder: Path, topic: str = "in", task_id: TaskId = TASK
) -> TaskReport:
    """The report of a task that has processed these records, from offset ``start`` on; its files are in the folder."""
    options, counts = TaskOptions(policies=POLICIES), {"out": 3, "out-odd": 2, MOVED: 1}
    job = job_from_begin(build, task_id, (topic,), folder, options=options, partition_counts=counts)
    with TemporaryDirectory() as own:
        task = FileTask(job, build(), task_id, Path(own))
        try:
            if inputs:
                keys, values, times = map(list, zip(*inputs, strict=True))
                offsets = range(start, start + len(inputs))
                encoded = [k.encode() if isinstance(k, str) else k for k in keys]
                task.feed(0, [Chunk(topic, 0, offsets, encoded, values, times)])
            return task.finish()
        finally:
            task.close()


def rows_of(report: TaskReport, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows by topic, in order, placed as the files say."""
    out: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in report.outputs:
        for row in pq.read_table(folder / file.path).to_pylist():
            row["seq"] += file.first_seq
            row["running_max_ms"] = max(row["running_max_ms"], file.floor_ms)
            out[file.topic].append(row)
    return out


def made_in_pieces(build: Build, inputs: Sequence[Input], bounds: Sequence[int], folder: Path) -> TaskReport:
    """The report of a task whose input was cut there; the pieces ended in another order."""
    reads = [(TASK, {INPUT: piece}) for piece in pairwise(bounds)]
    parts = [made(build, inputs[a:b], a, folder) for a, b in pairwise(bounds)]
    (together,) = joined(reads[::-1], parts[::-1])
    return together


RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.one_of(st.integers(0, 60).map(lambda n: n.to_bytes(8, "big")), st.just(b"no number")),
        st.integers(0, 5_000),
    ),
    max_size=40,
)


@given(inputs=RECORDS, cuts=st.sets(st.integers(1, 39), max_size=4))
def test_pieces_give_what_the_whole_gives(inputs: list[tuple[str, bytes, int]], cuts: set[int]) -> None:
    bounds = [0, *sorted(cut for cut in cuts if cut < len(inputs)), len(inputs)]
    with TemporaryDirectory() as at:
        folder = Path(at)
        whole = made(stateless, inputs, 0, folder)
        together = made_in_pieces(stateless, inputs, bounds, folder)
        assert rows_of(together, folder) == rows_of(whole, folder)
        for one in (whole, together):
            assert one.records == len(inputs)
        assert (together.dropped, together.failures) == (whole.dropped, whole.failures)


def test_there_are_rows_of_every_kind(tmp_path: Path) -> None:
    inputs = [("k", n.to_bytes(8, "big"), n) for n in range(60)] + [("k", b"no number", 70)]
    report = made(stateless, inputs, 0, tmp_path)
    assert {f.topic for f in report.outputs} == {"out", "out-odd", "app-in-select-key-repartition", "dead"}
    assert sum(report.failures.values()) > 1


def combined(windows: bool) -> Topology:
    """Counts of values, of which a partial aggregate travels."""
    builder = ps.StreamsBuilder("app", key=str, value=int, emission="per_commit")
    groups = builder.stream("in").group_by(lambda k, v: str(v % 3), key=str)
    if windows:
        groups.windowed_by(ps.tumbling("1s", grace="1s"), retention="1h").count(combine=True, name="counts")
    else:
        groups.count(combine=True, name="counts")
    return builder.build()


NUMBERS = st.lists(
    st.tuples(st.just("k"), st.integers(0, 9).map(lambda n: n.to_bytes(8, "big")), st.integers(0, 9_000)), max_size=40
)


@pytest.mark.parametrize("windows", [False, True], ids=["all time", "windows"])
@settings(max_examples=25)  # each opens databases
@given(inputs=NUMBERS, cuts=st.sets(st.integers(1, 39), max_size=4))
def test_partials_of_pieces_make_the_same_aggregates(windows: bool, inputs: list[Input], cuts: set[int]) -> None:
    build = partial(combined, windows)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(inputs)), len(inputs)]
    with TemporaryDirectory() as at:
        folder = Path(at)

        def aggregates(sent: TaskReport) -> list[dict[str, Any]]:
            rows = sorted(rows_of(sent, folder)[MOVED], key=lambda r: (r["running_max_ms"], r["seq"]))
            partials = [(r["key"], r["value"], r["timestamp_ms"]) for r in rows]
            (store,) = made(build, partials, 0, folder, MOVED, READER).stores
            return [
                {"key": r["store_key"], "count": int.from_bytes(r["value"], "big"), "at": r["timestamp_ms"]}
                for r in pq.read_table(folder / store.path).to_pylist()
            ]

        whole = aggregates(made(build, inputs, 0, folder))
        assert aggregates(made_in_pieces(build, inputs, bounds, folder)) == whole
        assert bool(whole) == bool(inputs)
        if not windows:
            assert sum(row["count"] for row in whole) == len(inputs)


# -- which tasks ------------------------------------------------------------------------------------------------------


def counted(builder: ps.StreamsBuilder) -> None:
    builder.stream("in").group_by_key().count().to_stream().to("out")


def two_inputs(builder: ps.StreamsBuilder) -> None:
    builder.stream("in").merge(builder.stream("other")).to("out")


def by_the_clock(builder: ps.StreamsBuilder) -> None:
    builder.stream("in").throttle(5, "1s").to("out")


def watermarked(builder: ps.StreamsBuilder) -> None:
    stream = builder.stream("in", watermark=ps.bounded_out_of_orderness("5s"))
    stream.select_key(lambda k, v: v, key=int).repartition().to("out")


def clamped(builder: ps.StreamsBuilder) -> None:
    builder.stream("in").on_error("skip").to("out")


def may(build: Callable[[ps.StreamsBuilder], None], policies: Policies = POLICIES) -> Mapping[int, bool]:
    builder = ps.StreamsBuilder("app", key=str, value=int)
    build(builder)
    topology = builder.build()
    return {sub.number: may_be_cut(topology, sub, policies) for sub in topology.subtopologies}


@pytest.mark.parametrize("build", [counted, two_inputs, by_the_clock, watermarked, clamped])
def test_what_depends_on_more_than_the_record_is_not_cut(build: Callable[[ps.StreamsBuilder], None]) -> None:
    assert not any(may(build).values())


@pytest.mark.parametrize("windows", [False, True])
def test_combining_ones_are_cut_where_their_partials_are_read_again(windows: bool) -> None:
    topology = combined(windows)
    subs = [topology.subtopologies[task.subtopology] for task in (TASK, READER)]
    assert [may_be_cut(topology, sub, POLICIES, combining=True) for sub in subs] == [True, False]
    assert not any(may_be_cut(topology, sub, POLICIES) for sub in subs)


def test_stateless_ones_are_cut() -> None:
    topology = stateless()
    assert all(may_be_cut(topology, sub, POLICIES) for sub in topology.subtopologies)
    assert not any(may_be_cut(topology, sub, Policies(timestamp="skip")) for sub in topology.subtopologies), (
        "the policy measures timestamps against earlier ones"
    )


def test_only_what_may_be_cut_and_is_large_gets_pieces() -> None:
    other = TaskId(1, 0)
    reads = [(TASK, {INPUT: (100, 1_100)}), (other, {TopicPartition("in2", 0): (0, 900)})]
    found = in_pieces(reads, lambda task: task == TASK, cores=4, piece_records=10)
    assert [r for r in found if r[0] == other] == [reads[1]] and found[0] == reads[1]
    mine = sorted(tuple(ranges[INPUT]) for task, ranges in found if task == TASK)
    assert mine[0][0] == 100 and mine[-1][1] == 1_100 and all(a[1] == b[0] for a, b in pairwise(mine))
    assert len(mine) == 4, "the work of 1,900 records for four cores is two pieces each"
    assert in_pieces(reads, lambda task: True, cores=4, piece_records=1_000) == [reads[0], reads[1]]
    assert in_pieces([(TASK, {INPUT: (5, 5)})], lambda task: True, 4) == [(TASK, {INPUT: (5, 5)})]
    assert in_pieces([], partial(bool), 4) == []
