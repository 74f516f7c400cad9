"""Latest and earliest values that the store holds until the commit, against those folded by rows: what is emitted, logged
and stored is the same, over commits that succeed, fail or are dropped, and whatever else reads the store meanwhile."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.errors import IncompatibleError
from penstock.state.log import TaskId
from penstock.state.stores.latest_view import TIMED, LatestStoreView
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreWrites
from penstock.streams.task.commit_metadata import VERSION, CommitMetadata
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.aggregators import first, last
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.columns import BytesColumn
from tests.properties.oracle import Input
from tests.properties.running import chunk_of

KEYS = st.sampled_from([b"", b"a", b"b", b"\xff" * 40, *(b"%d" % i for i in range(60))])
TIMES = st.integers(-5, 5) | st.integers(-(1 << 62), 1 << 62)
ENTRY = st.tuples(TIMES, TIMES, st.binary(max_size=300))
ROWS = st.lists(st.tuples(KEYS, TIMES, st.binary(max_size=300)), max_size=80)
START = {"in": (0, CommitMetadata(version=VERSION))}


def stored_as(stamp: int, time: int, text: bytes) -> bytes:
    return struct.pack(">q", stamp) + TIMED.serialize((time, text))


def listed(columns: tuple[bytes, ...]) -> list[tuple[Any, ...]]:
    keys, ends, texts, text_ends, times = columns
    found = [
        BytesColumn(data, np.frombuffer(at, np.int64)).to_list() for data, at in ((keys, ends), (texts, text_ends))
    ]
    return list(zip(*found, np.frombuffer(times, np.int64).tolist(), strict=True))


@given(
    stored=st.dictionaries(KEYS, st.none() | ENTRY, max_size=40),
    elsewhere=ENTRY,
    batches=st.lists(ROWS, max_size=3),
    later=st.booleans(),
    whole=st.booleans(),
)
def test_the_compiled_part_keeps_what_a_dictionary_would(
    stored: dict[bytes, Any], elsewhere: tuple[int, int, bytes], batches: list[Any], later: bool, whole: bool
) -> None:
    if (module := native.compiled()) is None:
        return
    latest, known = module.Latest(later), module.EntryMap()
    known.put_many(list(stored), [None if entry is None else stored_as(*entry) for entry in stored.values()])
    expected: dict[bytes, tuple[int, int, bytes]] = {}
    for rows in batches:
        keys, texts = BytesColumn.of([row[0] for row in rows]), BytesColumn.of([row[2] for row in rows])
        times = np.array([row[1] for row in rows], np.int64)
        latest.add(keys.data, keys.offsets, times, texts.data, texts.offsets)
        for key, time, text in rows:
            if key not in expected:
                before = stored.get(key) if key in stored or whole else elsewhere
                expected[key] = (time, time, text) if before is None else before
            highest, kept, kept_text = expected[key]
            if time >= kept if later else time < kept:
                kept, kept_text = time, text
            expected[key] = max(highest, time), kept, kept_text
        latest.base_from(known, whole)
        assert set(latest.unbased()) <= (set() if whole else set(expected) - set(stored))
        latest.base([stored_as(*elsewhere)] * len(latest.unbased()))
        assert latest.unbased() == []
    assert listed(latest.texts()) == [(key, text, highest) for key, (highest, _, text) in expected.items()]
    assert listed(latest.tuples()) == [
        (key, TIMED.serialize((kept, text)), highest) for key, (highest, kept, text) in expected.items()
    ]


class Point(msgspec.Struct, frozen=True):
    """A value."""

    x: int
    name: str | None = None


TEXTS = (
    b'{"x":1,"name":"a"}',
    b'{"x":2,"name":null}',
    b'{"x":3}',  # is written with its name
    b'{"name":"b", "x":4}',  # in another order
    b'{"x":"5","name":"c"}',  # is not a point
    b'{"x":6,"name":"' + b"long" * 30 + b'"}',
)


def topology(aggregator: Any, *, by: str) -> Topology:
    builder = StreamsBuilder("t", key=str, value=Point, emission="per_commit")
    stream = builder.stream("in").on_error("skip")
    grouped = stream.group_by_key() if by == "key" else stream.filter(col("x") != 2).group_by_key()
    grouped.aggregate(aggregator(value=Point), name="kept").to_stream().to("out")
    return builder.build()


def told(output: Any) -> tuple[Any, ...]:
    return [*output.keys], [*output.values], [*map(int, output.timestamps)]


class Forgetful(MemoryBackend):
    """Knows what is stored, but does not tell the compiled part of some of it, as where it cannot read another value."""

    def base(self, store: str, counts: Any) -> None:
        keys = counts.unbased()
        if len(keys) % 3 == 0:
            raise ValueError("a value is none")
        super().base(store, counts)


class Running:
    """One task, and all that it tells the world."""

    def __init__(self, built: Topology, *, columns: bool, backend: type[MemoryBackend] = MemoryBackend) -> None:
        (sub,) = built.subtopologies
        self.columns = columns
        self.backend = backend(sub.stores)
        options = TaskOptions(columns="auto" if columns else "off")
        self.task = Task(TaskId(0, 0), "t", built, sub, self.backend, START, options, {})
        self.offset = 0
        self.said: list[Any] = []

    def take(self, records: list[tuple[bytes | None, bytes | None, int]]) -> None:
        rows = [Input("in", self.offset + i, *record, ()) for i, record in enumerate(records)]
        if rows:
            self.offset += len(rows)
            chunk = chunk_of(rows, 0)
            self.task.add(chunk.in_columns() if self.columns else chunk, self.offset)
            while self.task.process(0):
                pass

    def commit(self, how: str) -> None:
        if how == "drop":
            self.task.discard({"in": (self.offset, CommitMetadata(version=VERSION))})
            return
        work = self.task.prepare_commit()
        logged = [told(output) for _, output in work.changelogs]
        self.said.append(([told(output) for output in self.task.take_outputs()], logged))
        if how == "fail":
            self.task.abandon_commit(work)
            return
        writes = [StoreWrites(name, puts, b"at") for name, puts in work.pending.items()]
        self.backend.commit(writes)
        self.task.committed(work, dict.fromkeys(work.pending, b""))
        self.said.append(list(self.backend.range("kept", None, None)))


def run(seed: int, *, columns: bool) -> tuple[list[Any], bool]:
    rng = random.Random(seed)
    built, backend = topology(rng.choice((last, first)), by=rng.choice(("key", "filter"))), (MemoryBackend, Forgetful)
    running = Running(built, columns=columns, backend=rng.choice(backend))
    texts, held = TEXTS[: rng.choice((2, 3, 6))], False
    for _ in range(8):
        for size in [rng.choice((0, 1, 5, 120)) for _ in range(2)]:
            keys = [None if rng.random() < 0.02 else b"%d" % rng.randrange(50) for _ in range(size)]
            values = [None if rng.random() < 0.02 else rng.choice(texts) for _ in range(size)]
            running.take([(k, v, rng.randrange(90)) for k, v in zip(keys, values, strict=True)])
            view = running.task.stores["kept"]
            held |= isinstance(view, LatestStoreView) and view.changed_texts() is not None
            if rng.random() < 0.2:
                running.said.append(view.get(b"7"))
            if rng.random() < 0.1:
                running.said.append([*view.range(b"2", b"4")])
        running.commit(rng.choice(("done", "done", "fail", "drop")))
    return running.said, held


@pytest.mark.parametrize("seed", range(60))
def test_rows_and_columns_tell_the_same(seed: int) -> None:
    by_columns, by_rows = run(seed, columns=True), run(seed, columns=False)
    assert by_columns[0] == by_rows[0]


def test_the_store_holds_them() -> None:
    held = sum(run(seed, columns=True)[1] for seed in range(20))
    assert (held > 10) == (native.compiled() is not None)


def broken() -> Running:
    """A task whose store has a value that is none under a key."""
    running = Running(topology(last, by="key"), columns=True)
    running.backend.commit([StoreWrites("kept", [(b"1", b"broken")], b"at")])
    return running


def test_a_stored_value_that_is_none_is_named_until_the_changes_are_dropped() -> None:
    running = broken()
    points = [(b"%d" % (i % 70 + 1), TEXTS[0], i) for i in range(140)]
    for _ in range(2):
        with pytest.raises(IncompatibleError, match="holds under key b'1'"):
            running.take(points)
        with pytest.raises(IncompatibleError, match="holds under key b'1'"):
            running.task.stores["kept"].get(b"2")
        with pytest.raises(IncompatibleError, match="holds under key b'1'"):
            running.task.prepare_commit()
        running.task = broken().task
    running = Running(topology(last, by="key"), columns=True)
    running.backend.commit([StoreWrites("kept", [(b"1", stored_as(5, 900, b'{"x": 9}'))], b"at")])
    running.take(points)
    running.commit("done")
    (_, values, times), *_ = running.said[0][0]
    assert (values[0], times[0]) == (b'{"x":9,"name":null}', 70)
