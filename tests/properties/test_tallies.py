"""The compiled tally counts as a dictionary does, whatever way its records come, and a count that it emits is shown once."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.log import TaskId
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.task.commit_metadata import VERSION, CommitMetadata
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.columns import BytesColumn
from tests.properties.oracle import Input
from tests.properties.running import chunk_of

KEYS = st.sampled_from([b"", b"a", b"b", b"\xff" * 40, *(b"%d" % i for i in range(90))])
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 1 << 40), st.integers(-5, 1 << 45)), max_size=120)


def _listed(tally: Any) -> list[tuple[bytes | None, int, int]]:
    data, offsets, counts, times = tally.columns()
    keys = BytesColumn(data, np.frombuffer(offsets, np.int64)).to_list()
    numbers = (np.frombuffer(part, np.int64).tolist() for part in (counts, times))
    return list(zip(keys, *numbers, strict=True))


@given(batches=st.lists(st.tuples(st.sampled_from(["rows", "counts", "codes"]), ROWS), max_size=4))
def test_a_tally_counts_as_a_dictionary(batches: list[tuple[str, list[tuple[bytes, int, int]]]]) -> None:
    if (module := native.compiled()) is None:
        return
    tally = module.Tally()
    expected: dict[bytes, tuple[int, int]] = {}
    for way, rows in batches:
        keys, times = [key for key, _, _ in rows], np.array([time for _, _, time in rows], np.int64)
        column = BytesColumn.of(keys)
        if way == "codes":
            # one that no row has, and the others in another order than that of the rows
            distinct = [b"unused", *sorted(set(keys), reverse=True)]
            codes = np.array([distinct.index(key) for key in keys], np.int32)
            coded = BytesColumn.of(distinct)
            assert tally.add_coded(codes, coded.data, coded.offsets, times)
        else:
            counts = np.array([count for _, count, _ in rows], np.int64) if way == "counts" else None
            assert tally.add(column.data, column.offsets, counts, times)
        for key, count, time in rows:
            before, latest = expected.get(key, (0, time))
            expected[key] = before + (count if way == "counts" else 1), max(latest, time)
        assert _listed(tally) == [(key, *entry) for key, entry in expected.items()]
    assert tally.unbased() == list(expected)
    tally.base([None] * len(expected))
    assert tally.unbased() == []


@given(
    stored=st.dictionaries(KEYS, st.none() | st.tuples(st.integers(-5, 1 << 45), st.integers(0, 1 << 40)), max_size=60),
    rows=ROWS,
    whole=st.booleans(),
)
def test_a_tally_is_told_by_the_memory_of_a_store(
    stored: dict[bytes, tuple[int, int] | None], rows: list[tuple[bytes, int, int]], whole: bool
) -> None:
    if (module := native.compiled()) is None:
        return
    tally, known = module.Tally(), module.EntryMap()
    held = [None if entry is None else struct.pack(">qq", *entry) for entry in stored.values()]
    known.put_many(list(stored), held)
    counted: dict[bytes, tuple[int, int]] = {}
    elsewhere: dict[bytes, tuple[int, int]] = {}
    for part in (rows[::2], rows[1::2]):
        column, before = BytesColumn.of([key for key, _, _ in part]), set(counted)
        assert tally.add(column.data, column.offsets, None, np.array([time for _, _, time in part], np.int64))
        for key, _, time in part:
            count, latest = counted.get(key, (0, time))
            counted[key] = count + 1, max(latest, time)
        tally.base_from(known, whole)
        left = tally.unbased()
        assert set(left) == (set() if whole else set(counted) - before - set(stored))
        tally.base([struct.pack(">qq", 1_000, 7)] * len(left))
        elsewhere.update(dict.fromkeys(left, (1_000, 7)))
        assert tally.unbased() == []
    expected = []
    for key, (count, latest) in counted.items():
        at, more = stored.get(key) or elsewhere.get(key) or (latest, 0)
        expected.append((key, count + more, max(latest, at)))
    assert _listed(tally) == expected


@pytest.mark.parametrize("counts", [[1, -1], [(1 << 63) - 1, 1]])
def test_counts_that_are_none_are_refused(counts: list[int]) -> None:
    if (module := native.compiled()) is None:
        return
    tally, column = module.Tally(), BytesColumn.of([b"a", b"b"])
    assert not tally.add(column.data, column.offsets, np.array(counts, np.int64), np.zeros(2, np.int64))
    assert len(tally) == 0


def _counting() -> Topology:
    builder = StreamsBuilder("t", key=str, value=str, emission="per_commit")
    builder.stream("in").group_by_key().count(name="counts").to_stream().map_values(str, value=str).to("out")
    return builder.build()


def _shown(seed: int, *, columns: bool) -> list[tuple[list[Any], ...]]:
    """What each try of a commit emitted; some tries do not succeed, and their tasks go on."""
    rng = random.Random(seed)
    topology = _counting()
    (sub,) = topology.subtopologies
    start = {"in": (0, CommitMetadata(version=VERSION))}
    options = TaskOptions(columns="auto" if columns else "off")
    task = Task(TaskId(0, 0), "t", topology, sub, MemoryBackend(sub.stores), start, options, {})
    out: list[tuple[list[Any], ...]] = []
    offset = 0
    for _ in range(6):
        for size in [rng.choice((0, 1, 5, 90)) for _ in range(2)]:
            keys = [b"%d" % rng.randrange(60) for _ in range(size)]
            rows = [Input("in", offset + i, key, b"x", rng.randrange(99), ()) for i, key in enumerate(keys)]
            if rows:
                offset += size
                task.add(chunk_of(rows, 0).in_columns() if columns else chunk_of(rows, 0), offset)
                while task.process(0):
                    pass
            if rng.random() < 0.2:
                task.stores["counts"].get(b"7")
        work = task.prepare_commit()
        sent = task.take_outputs()
        out.append(([o.keys for o in sent], [o.values for o in sent], [o.timestamps for o in sent]))
        if rng.random() < 0.6:
            task.committed(work, dict.fromkeys(work.pending, b""))
        else:
            task.abandon_commit(work)
    return out


@pytest.mark.parametrize("seed", range(30))
def test_a_commit_that_is_tried_again_shows_only_what_is_new(seed: int) -> None:
    assert _shown(seed, columns=True) == _shown(seed, columns=False)
